//! Opening a card for this process alone, with its addresses.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use mprdma_host::address::Address;
use mprdma_host::backend;
use mprdma_host::device::{Device, DeviceError};
use mprdma_host::port::{Gid, Mac, Port};
use mprdma_host::verbs::{Context, ContextAttr};

use crate::args::{Host, OneDevice, Path};
use crate::owner::{self, Owner};
use crate::usage;

/// How long to knock again at a card whose last user is just leaving.
const KNOCK: Duration = Duration::from_secs(3);

/// A card of ours, and where it answers questions of other processes.
pub struct Opened {
    // Dropped first: its thread uses the context.
    _owner: Option<Owner>,
    pub context: Context,
    pub mac: Mac,
    pub gid: Gid,
}

impl Opened {
    /// Opens the card with the addresses that `path` and the simulator give it. `role` tells others who has it.
    pub fn new(args: &OneDevice, path: &Path, setup: &Host, role: &str) -> Result<Self> {
        let (mac, gid) = addresses(&args.device, path)?;
        let context = Context::open(
            device(args)?,
            &ContextAttr {
                mac: Some(mac),
                ring_pages: setup.pages(),
                ..ContextAttr::default()
            },
        )?;
        if let Some(interval) = setup.moderation_us {
            context.set_moderation(None, interval)?;
        }
        // It is the thread that polls.
        context.keep_thread_near();
        let owner = Owner::announce(&args.device, &context, role);
        Ok(Self {
            _owner: owner,
            context,
            mac,
            gid,
        })
    }
}

/// Opens the device, or says who has it.
pub fn device(args: &OneDevice) -> Result<Arc<dyn Device>> {
    let address = &args.device;
    let busy = |holder| DeviceError::Busy {
        address: address.to_string(),
        holder,
    };
    let start = Instant::now();
    loop {
        if let Some(holder) = owner::holder(address) {
            return Err(busy(holder).into());
        }
        match backend::open(address, args.timeout()) {
            // A server turns a second client away until it is done with the first.
            Err(DeviceError::Busy { .. }) if start.elapsed() < KNOCK => {
                thread::sleep(Duration::from_millis(50))
            }
            other => return Ok(other?),
        }
    }
}

/// MAC address and GID: what the arguments say, or what the simulator publishes, or the default of its card number.
fn addresses(address: &Address, path: &Path) -> Result<(Mac, Gid)> {
    let port = port(address)?;
    let mac = path.mac.or_else(|| port.as_ref().map(|port| port.mac));
    let mac = mac.ok_or_else(|| usage("no MAC address is known for this card; give --mac"))?;
    if !mac.is_station() {
        return Err(usage(format!("--mac {mac} is a group address or zero")));
    }
    let gid = match path.ip {
        Some(ip) if ip.is_ipv6() != path.ipv6 => {
            return Err(usage(format!(
                "--ip {ip} does not go with {} --ipv6",
                if path.ipv6 { "" } else { "no" }
            )));
        }
        Some(ip) => Some(Gid::from(ip)),
        None => port.and_then(|port| port.gid(path.ipv6)),
    };
    Ok((
        mac,
        gid.ok_or_else(|| usage("no IP address of that family is known for this card; give --ip"))?,
    ))
}

/// What is published about the card, or the default for a socket called `nicN.sock`.
pub fn port(address: &Address) -> Result<Option<Port>> {
    let Some(socket) = address.socket() else {
        return Ok(None);
    };
    if let Some(port) = Port::beside(socket)? {
        return Ok(Some(port));
    }
    let number = socket
        .file_stem()
        .and_then(|stem| stem.to_str())
        .and_then(|stem| stem.strip_prefix("nic"))
        .and_then(|digits| digits.parse::<u8>().ok());
    Ok(number
        .filter(|number| *number < u8::MAX)
        .map(Port::numbered))
}

/// The peer's address for messages.
pub fn text(gid: Gid) -> String {
    match gid.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}
