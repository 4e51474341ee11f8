//! Addresses of a port: MAC, IP, and what a simulator publishes about its cards.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// An Ethernet address, first byte on the wire first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 6]);

/// Text that is no Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is no MAC address; write six hexadecimal bytes, 02:00:00:00:00:01")]
pub struct MacError(String);

impl Mac {
    /// Whether it names one station: not a group address and not zero.
    #[must_use]
    pub fn is_station(self) -> bool {
        self.0[0] & 1 == 0 && self != Self::default()
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Self, MacError> {
        let byte = |part: &str| {
            let good = part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
            good.then(|| u8::from_str_radix(part, 16).ok()).flatten()
        };
        let bytes: Option<Vec<u8>> = text.split(':').map(byte).collect();
        bytes
            .and_then(|bytes| bytes.try_into().ok())
            .map(Self)
            .ok_or_else(|| MacError(text.to_owned()))
    }
}

impl Serialize for Mac {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mac {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// A GID: an IPv6 address, or an IPv4 address mapped into one (IBA annex A17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gid(pub Ipv6Addr);

impl Gid {
    /// Its bytes, first on the wire first.
    #[must_use]
    pub const fn octets(self) -> [u8; 16] {
        self.0.octets()
    }

    /// The IP address that it stands for.
    #[must_use]
    pub fn ip(self) -> IpAddr {
        self.0.to_canonical()
    }

    /// Whether packets carry an IPv6 header.
    #[must_use]
    pub fn is_ipv6(self) -> bool {
        self.0.to_ipv4_mapped().is_none()
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        Self(match address {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        })
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ip().fmt(f)
    }
}

/// Addresses and rate of a card's port. A simulator writes this beside its socket, as `nic0.json` beside `nic0.sock`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Ethernet address.
    pub mac: Mac,
    /// IPv4 address, if it has one.
    #[serde(default)]
    pub ipv4: Option<Ipv4Addr>,
    /// IPv6 address, if it has one.
    #[serde(default)]
    pub ipv6: Option<Ipv6Addr>,
    /// Link rate in Gb/s, if it is known.
    #[serde(default)]
    pub link_gbps: Option<f64>,
}

/// Why a port description could not be read.
#[derive(Debug, Error)]
pub enum PortError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The file is no port description.
    #[error("{} does not describe a port: {source}", .path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
}

impl Port {
    /// The addresses of simulated card `card`: 02:4d:52:00:00:NN, 10.0.0.NN and fd00::NN, where NN is the number plus 1.
    #[must_use]
    pub fn numbered(card: u8) -> Self {
        let host = card.saturating_add(1);
        Self {
            mac: Mac([0x02, 0x4d, 0x52, 0, 0, host]),
            ipv4: Some(Ipv4Addr::new(10, 0, 0, host)),
            ipv6: Some(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into())),
            link_gbps: None,
        }
    }

    /// The description beside the socket `socket`, if there is one.
    ///
    /// # Errors
    /// [`PortError`] when there is one that cannot be read.
    pub fn beside(socket: &Path) -> Result<Option<Self>, PortError> {
        let path = socket.with_extension("json");
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(PortError::Read { path, source }),
        };
        serde_json::from_slice(&text)
            .map(Some)
            .map_err(|source| PortError::Parse { path, source })
    }

    /// The address that `ipv6` asks for, as a GID.
    #[must_use]
    pub fn gid(&self, ipv6: bool) -> Option<Gid> {
        if ipv6 {
            self.ipv6.map(|address| IpAddr::V6(address).into())
        } else {
            self.ipv4.map(|address| IpAddr::V4(address).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macs_read_and_print() {
        assert_eq!(
            "02:0a:00:FF:00:01".parse::<Mac>().unwrap().to_string(),
            "02:0a:00:ff:00:01"
        );
        for bad in [
            "",
            "02:0a:00:ff:00",
            "02:0a:00:ff:00:01:02",
            "2:0a:00:ff:00:01",
            "02:0a:00:ff:00:0g",
            "+2:0a:00:ff:00:01",
        ] {
            assert_eq!(bad.parse::<Mac>(), Err(MacError(bad.to_owned())));
        }
        assert!(!Mac([1, 0, 0, 0, 0, 1]).is_station() && !Mac([0; 6]).is_station());
    }

    #[test]
    fn gids_stand_for_ip_addresses() {
        let v4: Gid = IpAddr::from([10, 0, 0, 1]).into();
        assert_eq!((v4.to_string().as_str(), v4.is_ipv6()), ("10.0.0.1", false));
        assert_eq!(v4.octets()[10..], [0xff, 0xff, 10, 0, 0, 1]);
        let v6: Gid = "fd00::1".parse::<IpAddr>().unwrap().into();
        assert!(v6.is_ipv6());
    }

    #[test]
    fn port_descriptions() {
        let port: Port = serde_json::from_str(
            r#"{"card": 0, "mac": "02:00:00:00:00:01", "ipv4": "10.0.0.1", "ipv6": "fd00::1", "link_gbps": 100.0}"#,
        )
        .unwrap();
        assert_eq!(port.gid(false).unwrap().to_string(), "10.0.0.1");
        assert_eq!(port.gid(true).unwrap().to_string(), "fd00::1");
        assert!(serde_json::from_str::<Port>(r#"{"mac": "x"}"#).is_err());
        assert!(Port::beside(Path::new("/nonexistent/nic0.sock"))
            .unwrap()
            .is_none());
    }
}
