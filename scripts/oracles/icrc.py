#!/usr/bin/env python3
"""Computes the ICRC of every frame of pcapng captures twice, with scapy and with zlib, and prints both as JSON.

Usage: icrc.py CAPTURE.pcapng... (scapy 2.7 or newer on PYTHONPATH)
Each frame gives {wire, zlib, scapy}: the four ICRC bytes on the wire, and those that the two implementations expect.
Every sixteenth also gives {flip_zlib, flip_scapy}: what they expect after one bit of the byte before the ICRC is flipped.
"""
import json
import struct
import sys
import zlib

try:
    import scapy
    from scapy.contrib.roce import BTH
    from scapy.layers.l2 import Ether
    from scapy.utils import RawPcapNgReader
except ImportError as error:
    sys.exit(f"scapy 2.7.0 is missing ({error}); scripts/setup.sh installs it into target/python")

FLIP_EVERY = 16


def icrc_zlib(frame):
    """ICRC by IBA annex A17: 64 ones stand for the LRH, and what a router may change counts as ones."""
    at = 14
    (ethertype,) = struct.unpack_from("!H", frame, 12)
    if ethertype == 0x8100:
        at = 18
        (ethertype,) = struct.unpack_from("!H", frame, 16)
    packet = bytearray(frame[at:])
    if ethertype == 0x0800:
        (end,) = struct.unpack_from("!H", packet, 2)
        udp = 4 * (packet[0] & 15)
        variant = [1, 8, 10, 11]  # type of service, time to live, checksum
    else:
        end = 40 + struct.unpack_from("!H", packet, 4)[0]
        udp = 40
        packet[0] |= 0x0F  # first half of the traffic class; its second half shares byte 1 with the flow label
        variant = [1, 2, 3, 7]  # traffic class, flow label, hop limit
    for byte in variant + [udp + 6, udp + 7, udp + 12]:  # UDP checksum; FECN, BECN and reserved bits of the BTH
        packet[byte] = 0xFF
    return struct.pack("<I", zlib.crc32(bytes(packet[:end - 4]), zlib.crc32(b"\xff" * 8)))


def icrc_scapy(frame):
    """ICRC as scapy fills it in when it builds the dissected frame without one."""
    packet = Ether(frame)
    packet[BTH].icrc = None
    built = packet.build()
    if built[:-4] != frame[:-4]:
        sys.exit(f"scapy does not rebuild the frame that it dissected: {frame.hex()}")
    return built[-4:]


def main():
    frames = []
    for name in sys.argv[1:]:
        for frame, _ in RawPcapNgReader(name):
            icrcs = {
                "wire": frame[-4:].hex(),
                "zlib": icrc_zlib(frame).hex(),
                "scapy": icrc_scapy(frame).hex(),
            }
            if len(frames) % FLIP_EVERY == 0:
                flipped = bytearray(frame)
                flipped[-5] ^= 0x10
                flipped = bytes(flipped)
                icrcs["flip_zlib"] = icrc_zlib(flipped).hex()
                icrcs["flip_scapy"] = icrc_scapy(flipped).hex()
            frames.append(icrcs)
    json.dump({"scapy": scapy.VERSION, "frames": frames}, sys.stdout)


if __name__ == "__main__":
    main()
