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
# Of each of two NUMA nodes; a card and a processor are on each.
NODE_MIB = 320
# Mappings of a process for threads and heaps that come and go.
MAPPINGS_MORE = 8
# The guest ends a step that hangs; by then all are over, or the guest itself hangs.
GUEST_SECONDS = 780


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


def machine(kernel: image.Kernel, initramfs: Path, sockets: list[Path], words: str, iommu: bool) -> list[str]:
    """QEMU with the cards. `words` go to the guest on its kernel's command line."""
    arguments = [
        *qemu(), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-M", "q35,kernel-irqchip=split", "-accel", "tcg", "-cpu", "qemu64",
        "-smp", f"{CARDS},sockets={CARDS}", "-m", str(CARDS * NODE_MIB),
        "-kernel", str(kernel.image), "-initrd", str(initramfs),
        # On a busy machine the timer may tick too late for the kernel's own check of it.
        "-append", f"console=ttyS0 quiet panic=-1 no_timer_check intel_iommu=on {words}",
        "-serial", "stdio",
    ]
    if iommu:
        arguments += ["-device", "intel-iommu,intremap=on,caching-mode=on"]
    for node, socket in enumerate(sockets):
        device = {
            "driver": "vfio-user-pci", "bus": f"port{node}", "x-msg-timeout": 60000,
            "socket": {"type": "unix", "path": str(socket)},
        }
        arguments += [
            # The cards reach memory through its descriptor.
            "-object", f"memory-backend-memfd,id=ram{node},size={NODE_MIB}M,share=on",
            "-numa", f"node,nodeid={node},cpus={node},memdev=ram{node}",
            # A host bridge of the node's own, and a port for the card.
            "-device", f"pxb-pcie,id=bridge{node},bus=pcie.0,bus_nr={0x40 * (node + 1)},numa_node={node}",
            "-device", f"pcie-root-port,id=port{node},bus=bridge{node},chassis={node + 1},slot={node + 1}",
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

    def holds(self) -> dict[str, int]:
        """What the simulator has of the system and of its clients, which does not grow when they come and go."""
        process = Path("/proc") / str(self.process.pid)
        command = [ROOT / "target/debug/mprdma-sim", "stats", self.folder.name]
        stats = json.loads(subprocess.run(command, text=True, capture_output=True, check=True).stdout)

        def count() -> dict[str, int]:
            time.sleep(0.1)
            return {
                "files": len(list((process / "fd").iterdir())),
                "threads": len(list((process / "task").iterdir())),
                "mappings": len((process / "maps").read_text().splitlines()),
            }

        # The least of some looks: the thread that answered may still be there.
        looks = [count() for _ in range(5)]
        least = {what: min(look[what] for look in looks) for what in looks[0]}
        return {**least, "dma_ranges": sum(card["dma_ranges"] for card in stats["cards"])}

    def idle(self) -> dict[str, int]:
        """The same, once the last client is gone."""
        deadline = time.monotonic() + 10
        while (held := self.holds())["dma_ranges"] and time.monotonic() < deadline:
            time.sleep(0.1)
        return held

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()


def follow(command: list[str], steps: Steps, cards: Cards, name: str) -> tuple[str, dict[str, dict[str, int]]]:
    """Runs the guest; returns its kernel's release, and what the simulator held whenever the guest asked to look."""
    release, failed_boot, running, held = "", True, "boot", {}
    log, errors = VM / f"{name}.log", VM / f"{name}-qemu.log"
    guest = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=errors.open("w"), text=True, errors="replace",
    )
    limit = threading.Timer(GUEST_SECONDS, guest.kill)
    limit.start()
    try:
        with log.open("w") as console:
            for line in guest.stdout:
                console.write(line)
                console.flush()
                line = line.strip()
                if match := re.fullmatch(r"step (\S+) (ok|failed) ([\d.]+)", line):
                    steps.add(match[1], match[2] == "ok", float(match[3]))
                elif match := re.fullmatch(r"begin (\S+)", line):
                    running = match[1]
                elif match := re.fullmatch(r"look (\S+)", line):
                    held[match[1]] = cards.holds()
                    guest.stdin.write("go\n")
                    guest.stdin.flush()
                elif match := re.fullmatch(r"kernel (\S+)", line):
                    release = match[1]
                elif line == "done":
                    failed_boot = False
                elif line.startswith(("| ", "> ")):
                    print(f"    {line}", flush=True)
    finally:
        limit.cancel()
        guest.kill()
        guest.wait()
    if failed_boot:
        steps.add(f"{name}_ran_to_its_end", False, 0)
        print(f"    in the step {running}; see {log} and {errors}")
    return release, held


def check_faults(log: Path):
    """The IOMMU's reports: one at least of each kind of wild access."""
    text = log.read_text()
    for kind in ["read", "write"]:
        if not re.search(rf"DMA fault: .*{kind}.* is not mapped", text):
            raise SystemExit(f"vm-test: no fault of a wild {kind} in {log}")


def check_leaks(held: dict[str, dict[str, int]]):
    """The cycles leave nothing in the simulator; nor does a guest that is gone."""
    print(f"    > the simulator holds {held}")
    for before, after in [("before_cycles", "after_cycles"), ("start", "end")]:
        if not {before, after} <= held.keys():
            raise SystemExit(f"vm-test: the guest did not come from {before} to {after}")
        for what, count in held[after].items():
            if count > held[before][what] + (MAPPINGS_MORE if what == "mappings" else 0):
                raise SystemExit(f"vm-test: {count} {what} at {after}, {held[before][what]} at {before}")


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
        start = cards.holds()
        words = f"steps=all cycles={arguments.cycles}"
        command = machine(kernel, initramfs, cards.sockets, words, iommu=True)
        release, held = follow(command, steps, cards, "guest")
        command = machine(kernel, initramfs, cards.sockets, "steps=no_iommu", iommu=False)
        follow(command, steps, cards, "guest-without-iommu")
        held |= {"start": start, "end": cards.idle()}
    for name, check in [
        ("faults_are_in_the_simulators_log", lambda: check_faults(log)),
        ("simulator_leaks_nothing", lambda: check_leaks(held)),
    ]:
        try:
            steps.timed(name, check)
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
