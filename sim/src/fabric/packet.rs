//! What a switch looks at in a frame: addresses, ports and the ECN field.

/// Ethernet address.
pub type Mac = [u8; 6];

/// Offset of the network header and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    V4(usize),
    V6(usize),
}

/// The fields that routing hashes. IPv4 addresses take the first four bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Source address.
    pub source: [u8; 16],
    /// Destination address.
    pub destination: [u8; 16],
    /// IP protocol number.
    pub protocol: u8,
    /// Source and destination port; 0 for a protocol without ports.
    pub ports: (u16, u16),
}

/// The flow of an IPv4 or IPv6 frame.
pub fn flow(frame: &[u8]) -> Option<Flow> {
    let mut flow = Flow::default();
    let transport = match network(frame)? {
        Network::V4(at) => {
            let header = frame.get(at..at + 20)?;
            flow.protocol = header[9];
            flow.source[..4].copy_from_slice(&header[12..16]);
            flow.destination[..4].copy_from_slice(&header[16..20]);
            at + usize::from(header[0] & 15) * 4
        }
        Network::V6(at) => {
            let header = frame.get(at..at + 40)?;
            flow.protocol = header[6];
            flow.source.copy_from_slice(&header[8..24]);
            flow.destination.copy_from_slice(&header[24..40]);
            at + 40
        }
    };
    if matches!(flow.protocol, 6 | 17) {
        if let Some(p) = frame.get(transport..transport + 4) {
            flow.ports = (
                u16::from_be_bytes([p[0], p[1]]),
                u16::from_be_bytes([p[2], p[3]]),
            );
        }
    }
    Some(flow)
}

/// Destination and source Ethernet address.
pub fn macs(frame: &[u8]) -> Option<(Mac, Mac)> {
    Some((
        frame.get(..6)?.try_into().ok()?,
        frame.get(6..12)?.try_into().ok()?,
    ))
}

/// Marks the frame Congestion Experienced if it is ECN-capable (RFC 3168 section 5). Says whether it did; a frame that
/// is CE already counts as marked.
pub fn mark_ce(frame: &mut [u8]) -> bool {
    match network(frame) {
        Some(Network::V4(at)) if frame.len() >= at + 20 && frame[at + 1] & 3 != 0 => {
            let before = u16::from_be_bytes([frame[at], frame[at + 1]]);
            frame[at + 1] |= 3;
            let after = u16::from_be_bytes([frame[at], frame[at + 1]]);
            let sum = u16::from_be_bytes([frame[at + 10], frame[at + 11]]);
            frame[at + 10..at + 12]
                .copy_from_slice(&update_checksum(sum, before, after).to_be_bytes());
            true
        }
        Some(Network::V6(at)) if frame.len() >= at + 40 && frame[at + 1] & 0x30 != 0 => {
            frame[at + 1] |= 0x30;
            true
        }
        _ => false,
    }
}

/// Internet checksum after one word changed (RFC 1624 equation 3).
fn update_checksum(sum: u16, before: u16, after: u16) -> u16 {
    let mut s = u32::from(!sum) + u32::from(!before) + u32::from(after);
    s = (s & 0xffff) + (s >> 16);
    s = (s & 0xffff) + (s >> 16);
    !(s as u16)
}

fn network(frame: &[u8]) -> Option<Network> {
    let mut at = 12;
    let mut kind = u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?);
    if kind == 0x8100 {
        at += 4;
        kind = u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?);
    }
    let version = frame.get(at + 2)? >> 4;
    match (kind, version) {
        (0x0800, 4) => Some(Network::V4(at + 2)),
        (0x86dd, 6) => Some(Network::V6(at + 2)),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A UDP frame between two test cards, ECT(0), `len` bytes in all.
    pub(crate) fn udp(from: u8, to: u8, source_port: u16, len: usize) -> Vec<u8> {
        let mut f = vec![2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 8, 0, 0x45, 2];
        f.extend(((len - 14) as u16).to_be_bytes());
        f.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, from, 10, 0, 0, to]);
        let sum = checksum(&f[14..34]);
        f[24..26].copy_from_slice(&sum.to_be_bytes());
        f.extend(source_port.to_be_bytes());
        f.extend(4791u16.to_be_bytes());
        f.resize(len, 0x5a);
        f
    }

    /// The same over IPv6.
    pub(crate) fn udp6(from: u8, to: u8, source_port: u16, len: usize) -> Vec<u8> {
        let mut f = vec![
            2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from, 0x86, 0xdd, 0x60, 0x20, 0, 0,
        ];
        f.extend(((len - 54) as u16).to_be_bytes());
        f.extend([17, 64]);
        for end in [from, to] {
            f.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
        }
        f.extend(source_port.to_be_bytes());
        f.extend(4791u16.to_be_bytes());
        f.resize(len, 0x5a);
        f
    }

    pub(crate) fn checksum(header: &[u8]) -> u16 {
        let mut s: u32 = header
            .chunks(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum();
        while s > 0xffff {
            s = (s & 0xffff) + (s >> 16);
        }
        !(s as u16)
    }

    #[test]
    fn the_five_tuple_is_read_from_both_versions_and_behind_a_tag() {
        let v4 = udp(1, 2, 50_001, 100);
        let f = flow(&v4).unwrap();
        assert_eq!(
            (f.protocol, f.ports, &f.destination[..4]),
            (17, (50_001, 4791), &[10, 0, 0, 2][..])
        );
        let v6 = udp6(1, 2, 50_001, 100);
        assert_eq!(flow(&v6).unwrap().ports, (50_001, 4791));
        let mut tagged = v4[..12].to_vec();
        tagged.extend([0x81, 0, 0, 5]);
        tagged.extend(&v4[12..]);
        assert_eq!(flow(&tagged), Some(f));
        assert_eq!(flow(&v4[..20]), None);
    }

    #[test]
    fn a_mark_keeps_the_header_checksum_right() {
        for port in 0..200 {
            let mut f = udp(1, 2, port, 90);
            f[18] = port as u8;
            f[24..26].fill(0);
            let sum = checksum(&f[14..34]);
            f[24..26].copy_from_slice(&sum.to_be_bytes());
            assert!(mark_ce(&mut f));
            assert_eq!(
                (f[15] & 3, checksum(&f[14..34])),
                (3, 0),
                "identification {port}"
            );
        }
        let mut six = udp6(1, 2, 3, 90);
        assert!(mark_ce(&mut six));
        assert_eq!(six[15] & 0x30, 0x30);
    }

    #[test]
    fn a_frame_that_is_not_ecn_capable_stays_as_it_is() {
        let mut f = udp(1, 2, 3, 90);
        f[15] = 0;
        let before = f.clone();
        assert!(!mark_ce(&mut f));
        assert_eq!(f, before);
    }
}
