"""Debian packages of another suite, in a folder of their own: the host's package state is neither read nor changed."""

import subprocess
from pathlib import Path

KEY = "/usr/share/keyrings/debian-archive-keyring.gpg"
MIRROR = "http://deb.debian.org/debian"
SUITES = ["trixie", "trixie-backports"]


class Debian:
    """apt with its own sources, lists, cache and (empty) list of installed packages under `root`."""

    def __init__(self, root: Path):
        self.root = root.resolve()

    def prepare(self):
        """Fetches the package lists."""
        for folder in ["lists/partial", "cache/archives/partial"]:
            (self.root / folder).mkdir(parents=True, exist_ok=True)
        (self.root / "status").touch()
        lines = [f"deb [signed-by={KEY}] {MIRROR} {suite} main\n" for suite in SUITES]
        (self.root / "sources.list").write_text("".join(lines))
        self._run("apt-get", "update")

    def with_dependencies(self, package: str, suite: str) -> list[Path]:
        """Downloads a package of a suite and all that it depends on."""
        before = set(self._archives())
        self._run("apt-get", "install", "-y", "--download-only", "-t", suite, package)
        return sorted(set(self._archives()) - before)

    def alone(self, package: str) -> Path:
        """Downloads one package."""
        folder = self.root / "cache" / "single"
        folder.mkdir(exist_ok=True)
        before = set(folder.glob("*.deb"))
        self._run("apt-get", "download", package, cwd=folder)
        (new,) = set(folder.glob("*.deb")) - before
        return new

    def dependency(self, package: str, prefix: str) -> str:
        """The package that a metapackage stands for."""
        text = self._run("apt-cache", "depends", package)
        names = [line.split()[-1] for line in text.splitlines() if "Depends:" in line]
        return next(name for name in names if name.startswith(prefix))

    def _archives(self):
        return (self.root / "cache" / "archives").glob("*.deb")

    def _run(self, *command: str, cwd: Path | None = None) -> str:
        options = {
            "Dir::Etc::sourcelist": self.root / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "Dir::State::lists": self.root / "lists",
            "Dir::State::status": self.root / "status",
            "Dir::Cache": self.root / "cache",
            # No lock files of the host, no change of user: nothing here needs root.
            "Debug::NoLocking": "1",
            "APT::Sandbox::User": "",
            "APT::Install-Recommends": "false",
            "Acquire::Languages": "none",
            "Acquire::Retries": "3",
        }
        settings = [f"-o{name}={value}" for name, value in options.items()]
        done = subprocess.run(
            [command[0], "-qq", *settings, *command[1:]], cwd=cwd, text=True, capture_output=True
        )
        if done.returncode:
            raise SystemExit(f"vm-test: {' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout


def unpack(archive: Path, into: Path):
    """Puts the files of a package into a folder."""
    into.mkdir(parents=True, exist_ok=True)
    subprocess.run(["dpkg", "-x", archive, into], check=True)
