"""The guest's initramfs: busybox, the kernel's VFIO modules, programs with their libraries."""

import lzma
import re
import shutil
import subprocess
from pathlib import Path


class Image:
    """Files of a root file system, packed as cpio."""

    def __init__(self):
        self.files: dict[str, tuple[int, bytes]] = {}

    def add(self, path: str, content: bytes, executable: bool = False):
        self._parents(path)
        self.files[path] = (0o100755 if executable else 0o100644, content)

    def directory(self, path: str):
        self._parents(path)
        self.files[path] = (0o040755, b"")

    def program(self, source: Path, path: str):
        """A program of this machine, and the libraries that it loads, under their own paths."""
        self.add(path, source.read_bytes(), executable=True)
        listed = subprocess.run(["ldd", source], text=True, capture_output=True).stdout
        for library in re.findall(r"(/\S+) \(0x", listed):
            self.add(library.lstrip("/"), Path(library).read_bytes(), executable=True)

    def pack(self, path: Path):
        """Writes it in the `newc` format (Documentation/driver-api/early-userspace/buffer-format.rst)."""
        with path.open("wb") as out:
            entries = [*sorted(self.files.items()), ("TRAILER!!!", (0, b""))]
            for number, (name, (mode, content)) in enumerate(entries, 1):
                text = name.encode() + b"\0"
                fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(text), 0]
                head = b"070701" + b"".join(b"%08x" % field for field in fields) + text
                for part in (head, content):
                    out.write(part + b"\0" * (-len(part) % 4))

    def _parents(self, path: str):
        for parent in list(Path(path).parents)[:-1]:
            self.files.setdefault(str(parent), (0o040755, b""))


class Kernel:
    """An unpacked kernel package."""

    def __init__(self, root: Path):
        self.image = next(root.glob("boot/vmlinuz-*"))
        self.release = self.image.name.removeprefix("vmlinuz-")
        modules = next(root.glob(f"**/lib/modules/{self.release}"))
        self.files = {self._name(path): path for path in modules.glob("kernel/**/*.ko*")}

    def modules(self, *wanted: str) -> list[tuple[str, bytes]]:
        """The modules and what they need, in the order in which they load."""
        order: dict[str, bytes] = {}

        def load(name: str):
            if name in order or name not in self.files:
                return  # not there: part of the kernel itself
            content = self._content(self.files[name])
            depends = re.search(rb"\0depends=([^\0]*)\0", content)
            for other in filter(None, depends[1].decode().split(",") if depends else []):
                load(other.replace("-", "_"))
            order[name] = content

        for name in wanted:
            load(name)
        return list(order.items())

    @staticmethod
    def _name(path: Path) -> str:
        return path.name.split(".ko")[0].replace("-", "_")

    @staticmethod
    def _content(path: Path) -> bytes:
        data = path.read_bytes()
        return lzma.decompress(data) if path.suffix == ".xz" else data


def build(path: Path, kernel: Kernel, busybox: Path, programs: dict[str, Path], scripts: Path):
    """Packs the guest's root file system."""
    image = Image()
    for folder in ["etc", "proc", "sys", "dev", "tmp", "run", "root"]:
        image.directory(folder)
    image.add("bin/busybox", busybox.read_bytes(), executable=True)
    names = []
    for name, content in kernel.modules("vfio_pci", "vfio_iommu_type1", "pci_stub"):
        image.add(f"lib/modules/{name}.ko", content)
        names.append(name)
    image.add("lib/modules/order", "\n".join(names).encode() + b"\n")
    for name, source in programs.items():
        image.program(source, f"usr/bin/{name}")
    for script in scripts.iterdir():
        target = "init" if script.name == "init" else f"usr/bin/{script.name}"
        image.add(target, script.read_bytes(), executable=True)
    image.pack(path)


def strip(source: Path, target: Path) -> Path:
    """A copy of a program without what only debuggers read."""
    shutil.copy(source, target)
    subprocess.run(["strip", "-g", target], check=True)
    return target
