#!/usr/bin/env bash
# Installs what is missing on Debian 12, by package name: `setup.sh demo` what the build and the demo need, `setup.sh`
# what the tests need too. Quick when nothing is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(make g++ clang verilator)
if [[ ${1:-} != demo ]]; then
    packages+=(yosys iverilog tshark python3 python3-pip zlib1g-dev)
fi
missing=()
for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) == "install ok installed" ]] || missing+=("$package")
done
if ((${#missing[@]})); then
    echo "setup: installing ${missing[*]}"
    as_root=()
    if ((EUID != 0)); then
        command -v sudo >/dev/null || {
            echo "setup: not root and no sudo; run as root: apt-get install ${missing[*]}" >&2
            exit 1
        }
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

command -v cargo >/dev/null || {
    echo "setup: cargo is missing; install Rust 1.85 or newer (rustup)" >&2
    exit 1
}

[[ ${1:-} == demo ]] && exit 0

# scapy 2.7 knows the ICRC over IPv6; Debian's 2.5 does not.
scapy=target/python
if [[ ! -e $scapy/scapy/VERSION && ! -d $scapy/scapy ]]; then
    echo "setup: installing scapy 2.7.0 into $scapy"
    python3 -m pip install --quiet --disable-pip-version-check --no-compile --root-user-action=ignore \
        --target "$scapy" scapy==2.7.0
fi
