#!/usr/bin/env python3
"""`make vm-test`: Debian's stock kernel in QEMU drives two Verilated cards by the kernel's VFIO.

Fetches QEMU and the kernel by package name into target/vm, builds an initramfs with the programs of this workspace,
attaches the cards of `mprdma-sim up` through vfio-user with a virtual IOMMU, and runs the steps of scripts/vm/guest.
KVM is not used. Prints `ok NAME seconds` for each step and writes target/vm-test.json.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import image
from debian import Debian, unpack

ROOT = Path(__file__).resolve().parents[2]
HERE = ROOT / "scripts" / "vm"
VM = ROOT / "target" / "vm"
# vfio-user-pci came with QEMU 10.1; trixie has 10.0.
QEMU_SUITE = "trixie-backports"
CARDS = 2
MEMORY_MIB = 512
# The guest's steps are over by then, or one of them hangs.
GUEST_SECONDS = 720


class Steps:
    """Results, printed as they come."""

    def __init__(self):
        self.done = []

    def add(self, name: str, ok: bool, seconds: float):
        self.done.append({"name": name, "ok": ok, "seconds": round(seconds, 2)})
        print(f"{'ok' if ok else 'FAILED'} {name} {seconds:.2f}", flush=True)

    def timed(self, name: str, work):
        begin = time.monotonic()
        try:
            result = work()
        except BaseException:
            self.add(name, False, time.monotonic() - begin)
            raise
        self.add(name, True, time.monotonic() - begin)
        return result


def fetch():
    """QEMU, busybox and the kernel, once."""
    if (VM / "complete").exists():
        return
    for folder in ["qemu", "busybox", "kernel"]:
        shutil.rmtree(VM / folder, ignore_errors=True)
    debian = Debian(VM / "apt")
    debian.prepare()
    for archive in debian.with_dependencies("qemu-system-x86", QEMU_SUITE):
        unpack(archive, VM / "qemu")
    unpack(debian.alone("busybox-static"), VM / "busybox")
    kernel = debian.dependency("linux-image-amd64", "linux-image-")
    unpack(debian.alone(kernel), VM / "kernel")
    shutil.rmtree(VM / "apt")
    (VM / "complete").touch()


def build() -> tuple[Path, image.Kernel]:
    """Our programs and the initramfs."""
    cargo = [os.environ.get("CARGO", "cargo"), "build", "--quiet"]
    packages = ["-p", "mprdma-sim", "-p", "mprdma-host"]
    subprocess.run([*cargo, *packages, "--bins", "--example", "vm_guest"], cwd=ROOT, check=True)
    debug = ROOT / "target" / "debug"
    programs = {
        "mprdma": image.strip(debug / "mprdma", VM / "mprdma"),
        "vm_guest": image.strip(debug / "examples" / "vm_guest", VM / "vm_guest"),
    }
    kernel = image.Kernel(VM / "kernel")
    busybox = next((VM / "busybox").glob("**/bin/busybox"))
    path = VM / "initramfs.cpio"
    image.build(path, kernel, busybox, programs, HERE / "guest")
    return path, kernel


def qemu() -> list[str]:
    """QEMU through the loader that came with it: it runs where its folder is, beside an older libc."""
    tree = VM / "qemu" / "usr"
    loader = next(tree.glob("lib64/ld-linux-x86-64.so.2"))
    return [
        str(loader), "--library-path", str(tree / "lib/x86_64-linux-gnu"),
        str(tree / "bin/qemu-system-x86_64"),
        "-L", str(tree / "share/qemu"), "-L", str(tree / "share/seabios"),
    ]


def machine(kernel: image.Kernel, initramfs: Path, sockets: list[Path], cycles: int) -> list[str]:
    arguments = [
        *qemu(), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-M", "q35,kernel-irqchip=split", "-accel", "tcg", "-cpu", "qemu64", "-smp", "1",
        "-m", str(MEMORY_MIB), "-machine", "memory-backend=ram",
        # The cards reach memory through its descriptor.
        "-object", f"memory-backend-memfd,id=ram,size={MEMORY_MIB}M,share=on",
        "-device", "intel-iommu,intremap=on,caching-mode=on",
        "-kernel", str(kernel.image), "-initrd", str(initramfs),
        # On a busy machine the timer may tick too late for the kernel's own check of it.
        "-append", f"console=ttyS0 quiet panic=-1 no_timer_check intel_iommu=on cycles={cycles}",
        "-serial", "stdio",
    ]
    for number, socket in enumerate(sockets):
        device = {
            "driver": "vfio-user-pci", "bus": f"port{number}", "x-msg-timeout": 60000,
            "socket": {"type": "unix", "path": str(socket)},
        }
        arguments += [
            "-device", f"pcie-root-port,id=port{number},chassis={number + 1},slot={number + 1}",
            "-device", json.dumps(device),
        ]
    return arguments


class Cards:
    """The simulator, with a socket per card in a short path: UNIX sockets take 108 bytes."""

    def __init__(self, engine: str, log: Path):
        self.folder = tempfile.TemporaryDirectory(prefix="mprdma-vm-")
        self.sockets = [Path(self.folder.name) / f"nic{card}.sock" for card in range(CARDS)]
        self.log = log
        command = [
            ROOT / "target/debug/mprdma-sim", "up", "direct", "--dir", self.folder.name,
            "--engine", engine,
        ]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log.open("w"), text=True
        )

    def __enter__(self):
        for line in self.process.stdout:
            if line.strip() == "ready":
                return self
        raise SystemExit(f"vm-test: the simulator did not start; see {self.log}")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def follow(command: list[str], steps: Steps) -> str:
    """Runs the guest; returns its kernel's release."""
    release, failed_boot = "", True
    (VM / "console.log").unlink(missing_ok=True)
    guest = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=(VM / "qemu.log").open("w"), text=True, errors="replace",
    )
    limit = threading.Timer(GUEST_SECONDS, guest.kill)
    limit.start()
    try:
        with (VM / "console.log").open("w") as console:
            for line in guest.stdout:
                console.write(line)
                console.flush()
                line = line.strip()
                if match := re.fullmatch(r"step (\S+) (ok|failed) ([\d.]+)", line):
                    steps.add(match[1], match[2] == "ok", float(match[3]))
                elif match := re.fullmatch(r"kernel (\S+)", line):
                    release = match[1]
                elif line == "done":
                    failed_boot = False
                elif line.startswith(("| ", "bandwidth ", "cycles ")):
                    print(f"    {line}", flush=True)
    finally:
        limit.cancel()
        guest.kill()
        guest.wait()
    if failed_boot:
        steps.add("guest_ran_to_its_end", False, 0)
        print(f"    see {VM / 'console.log'} and {VM / 'qemu.log'}")
    return release


def check_faults(log: Path):
    """The IOMMU's reports: one at least of each kind of wild access."""
    text = log.read_text()
    for kind in ["read", "write"]:
        if not re.search(rf"DMA fault: .*{kind}.* is not mapped", text):
            raise SystemExit(f"vm-test: no fault of a wild {kind} in {log}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=100, help="rounds of kill, reset, unbind and bind")
    parser.add_argument("--engine", default="rtl", choices=["rtl", "model"])
    arguments = parser.parse_args()
    VM.mkdir(parents=True, exist_ok=True)
    begin, steps = time.monotonic(), Steps()
    steps.timed("set_up", fetch)
    initramfs, kernel = steps.timed("build", build)
    version = subprocess.run([*qemu(), "--version"], text=True, capture_output=True, check=True).stdout
    version = re.search(r"version (\S+)", version)[1]
    log = VM / "cards.log"
    with Cards(arguments.engine, log) as cards:
        release = follow(machine(kernel, initramfs, cards.sockets, arguments.cycles), steps)
    try:
        steps.timed("faults_are_reported", lambda: check_faults(log))
    except SystemExit as error:
        print(f"    {error}")
    result = {
        "kernel": release, "qemu": version, "steps": steps.done,
        "seconds": round(time.monotonic() - begin, 1),
    }
    (ROOT / "target" / "vm-test.json").write_text(json.dumps(result, indent=2) + "\n")
    failed = [step["name"] for step in steps.done if not step["ok"]]
    print(f"{len(steps.done) - len(failed)} steps ok, {len(failed)} failed, {result['seconds']} s")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
