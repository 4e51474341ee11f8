//! ICRC of frames that other tools made.

use super::{icrc, Frame, WireError};
use std::vec::Vec;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex"))
        .collect()
}

/// CNP captured on a ConnectX-4 Lx.
const CONNECTX4_CNP: &str = "\
    e41d2dab2bc27cfe90643b32080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff4000\
    0118000000000000000000000000000000000000000082fd002a";

/// Published UC SEND ONLY example, migration state set.
const UC_SEND_ONLY: &str = "\
    248a07a8fa22248a07a8fa22080045010040047840004011b4d5c0a80007c0a80007c00012b7002caca22460ffff0000\
    00d300cf17104630818be28935d90e9a95505401be885e50000078f353f3";

/// Crafted, ICRC by scapy: RC WRITE ONLY of 61 bytes and 3 of pad.
const CRAFTED_1: &str = "\
    02000000000202000000000108004502007c000140004011266c0a0000010a000002c07b12b7006800000a70ffff0012\
    345680abcdef1122334455667788deadbeef0000003d000102030405060708090a0b0c0d0e0f10111213141516171819\
    1a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c0000001cf79be3";

/// Crafted, ICRC by scapy: RC ACK.
const CRAFTED_2: &str = "\
    02000000000202000000000108004502003000014000401126b80a0000010a000002c07b12b7001c00001140ffff0065\
    432100abcdef1f00000147094cfc";

/// Crafted, ICRC by scapy: RC NAK, syndrome 0x60.
const CRAFTED_3: &str = "\
    02000000000202000000000108004502003000014000401126b80a0000010a000002c07b12b7001c00001140ffff0065\
    432100abcdf060000001deb9a02d";

/// Crafted, ICRC by scapy: RC RNR NAK.
const CRAFTED_4: &str = "\
    02000000000202000000000108004502003000014000401126b80a0000010a000002c07b12b7001c00001140ffff0065\
    432100abcdf02c0000015b5e62fc";

/// Crafted, ICRC by scapy: RC READ REQUEST.
const CRAFTED_5: &str = "\
    02000000000202000000000108004502003c00014000401126ac0a0000010a000002c07b12b7002800000c40ffff0012\
    345600abcdf1000000000000100000000042000010001671ac00";

/// Crafted, ICRC by scapy: RC SEND ONLY with immediate.
const CRAFTED_6: &str = "\
    02000000000202000000000108004502003800014000401126b00a0000010a000002c07b12b70024000005f0ffff0012\
    345600000005cafebabe68656c6c6f00000073d66895";

/// Crafted, ICRC by scapy: RC FETCH ADD.
const CRAFTED_7: &str = "\
    02000000000202000000000108004502004800014000401126a00a0000010a000002c07b12b7003400001440ffff0012\
    3456000000060000000000002000000000420000000000000007000000000000000006145e86";

/// Crafted, ICRC by scapy: CNP.
const CRAFTED_8: &str = "\
    020000000001020000000002080045c0003c00094000401125e60a0000020a000001c07b12b7002800008100ffff4012\
    345600000000000000000000000000000000000000003784b8cb";

/// Crafted, ICRC by scapy: WRITE ONLY with an MP opcode but no MPETH.
const CRAFTED_9: &str = "\
    02000000000202000000000108004502004000014000401126a80a0000010a000002c07b12b7002c0000ca40ffff0012\
    3456000000090000000000000001000000020000000461626364d9dbbafc";

/// Crafted, ICRC by scapy: RC SEND MIDDLE of 1 KiB.
const CRAFTED_10: (&str, &str, &str) = (
    "02000000000202000000000108004502042c00014000401122bc0a0000010a000002c07b12b7041800000740ffff001234560000000a",
    "78",
    "4496e19c",
);

/// Crafted, ICRC by scapy: RC WRITE ONLY with a damaged ICRC.
const CRAFTED_11: &str = "\
    02000000000202000000000108004502007c000140004011266c0a0000010a000002c07b12b7006800000a70ffff0012\
    345680abcdef1122334455667788deadbeef0000003d000102030405060708090a0b0c0d0e0f10111213141516171819\
    1a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c0000001cf79b1c";

/// Crafted, ICRC by scapy: RC WRITE ONLY with a damaged RETH.
const CRAFTED_12: &str = "\
    02000000000202000000000108004502007c000140004011266c0a0000010a000002c07b12b7006800000a70ffff0012\
    345680abcdef1122334455668888deadbeef0000003d000102030405060708090a0b0c0d0e0f10111213141516171819\
    1a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c0000001cf79be3";

/// Crafted, ICRC by scapy: RC SEND ONLY over IPv6.
const CRAFTED_13: &str = "\
    02000000000202000000000186dd6021234500281140fd000000000000000000000000000001fd000000000000000000\
    000000000002c35012b7002800000440ffff000000778000000141414141414141414141414141414141ca145397";

/// Every good vector: name, frame, ICRC bytes in wire order.
fn good() -> Vec<(&'static str, Vec<u8>, [u8; 4])> {
    let (head, fill, tail) = CRAFTED_10;
    let long = std::format!("{head}{}{tail}", fill.repeat(1024));
    std::vec![
        (
            "ConnectX-4 CNP",
            bytes(CONNECTX4_CNP),
            [0x82, 0xfd, 0x00, 0x2a]
        ),
        (
            "UC SEND ONLY",
            bytes(UC_SEND_ONLY),
            [0x78, 0xf3, 0x53, 0xf3]
        ),
        ("crafted 1", bytes(CRAFTED_1), [0x1c, 0xf7, 0x9b, 0xe3]),
        ("crafted 2", bytes(CRAFTED_2), [0x47, 0x09, 0x4c, 0xfc]),
        ("crafted 3", bytes(CRAFTED_3), [0xde, 0xb9, 0xa0, 0x2d]),
        ("crafted 4", bytes(CRAFTED_4), [0x5b, 0x5e, 0x62, 0xfc]),
        ("crafted 5", bytes(CRAFTED_5), [0x16, 0x71, 0xac, 0x00]),
        ("crafted 6", bytes(CRAFTED_6), [0x73, 0xd6, 0x68, 0x95]),
        ("crafted 7", bytes(CRAFTED_7), [0x06, 0x14, 0x5e, 0x86]),
        ("crafted 8", bytes(CRAFTED_8), [0x37, 0x84, 0xb8, 0xcb]),
        ("crafted 9", bytes(CRAFTED_9), [0xd9, 0xdb, 0xba, 0xfc]),
        ("crafted 10", bytes(&long), [0x44, 0x96, 0xe1, 0x9c]),
        ("crafted 13", bytes(CRAFTED_13), [0xca, 0x14, 0x53, 0x97]),
    ]
}

#[test]
fn icrc_agrees_with_hardware_and_scapy() {
    for (name, frame, crc) in good() {
        assert_eq!(icrc::icrc(&frame).map(u32::to_le_bytes), Ok(crc), "{name}");
        assert_eq!(icrc::check_icrc(&frame), Ok(()), "{name}");
    }
}

#[test]
fn damaged_frames_are_told() {
    for frame in [bytes(CRAFTED_11), bytes(CRAFTED_12)] {
        assert!(matches!(
            icrc::check_icrc(&frame),
            Err(WireError::Icrc { .. })
        ));
    }
}

/// A change in any bit from the IP header on is seen, except in the fields that routers may change.
#[test]
fn icrc_covers_all_but_the_variant_fields() {
    // Byte offsets in an untagged IPv4 frame: TOS, TTL, IPv4 checksum, UDP checksum, BTH byte 4.
    let free = [15, 22, 24, 25, 40, 41, 46];
    let frame = bytes(CRAFTED_1);
    for at in 14..frame.len() {
        for bit in 0..8 {
            let mut bad = frame.clone();
            bad[at] ^= 1 << bit;
            if at < 34 && !(24..26).contains(&at) {
                bad[24] = 0;
                bad[25] = 0;
                let sum = super::ipv4::checksum(&bad[14..34]);
                bad[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            let got = icrc::check_icrc(&bad);
            if (24..26).contains(&at) {
                assert_eq!(got, Err(WireError::Checksum));
            } else {
                assert_eq!(got.is_ok(), free.contains(&at), "byte {at} bit {bit}");
            }
        }
    }
    let frame = bytes(CRAFTED_13);
    for at in 14..frame.len() {
        for bit in 0..8 {
            let mut bad = frame.clone();
            bad[at] ^= 1 << bit;
            let variant = matches!(at, 15..=17 | 21 | 60 | 61 | 66) || at == 14 && bit < 4;
            assert_eq!(
                icrc::check_icrc(&bad).is_ok(),
                variant,
                "IPv6 byte {at} bit {bit}"
            );
        }
    }
}

/// What is parsed from the frames of another tool is emitted as the same bytes, ICRC included.
#[test]
fn foreign_frames_survive_a_round_trip() {
    let mut again = [0; 2048];
    for (name, frame, _) in good() {
        let parsed = match (name, Frame::parse(&frame)) {
            ("UC SEND ONLY", got) => {
                assert_eq!(got, Err(WireError::Opcode(0x24)));
                continue;
            }
            ("crafted 9", got) => {
                // Its MPETH is missing.
                assert!(got.is_err());
                continue;
            }
            (_, got) => got.unwrap_or_else(|error| panic!("{name}: {error}")),
        };
        let len = parsed
            .emit(&mut again)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(&again[..len], &frame[..], "{name}");
    }
}
