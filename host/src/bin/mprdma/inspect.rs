//! `devices`, `info`, `stats`: looking at cards. A card that another process has answers through that process.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use mprdma_host::address::{Address, PciAddress};
use mprdma_host::backend::kernel::System;
use mprdma_host::control::Control;
use mprdma_host::device::DeviceError;
use mprdma_host::hugepages;
use mprdma_spec::config;
use mprdma_spec::counter::Counter;
use serde::Serialize;
use serde_json::{json, Map, Value};

use crate::args::{Devices, HugePages, OneDevice, Stats};
use crate::moderation;
use crate::open;
use crate::owner::{self, ask, Request};
use crate::report::{out, Report};

/// Where `mprdma-sim up` puts its sockets.
const DEFAULT_DIRECTORY: &str = "/tmp/mprdma-sim";

#[derive(Serialize)]
struct Found {
    address: String,
    /// Driver of a PCI function: it can be opened when that is vfio-pci.
    driver: Option<String>,
    /// Who has it.
    holder: Option<String>,
    mac: Option<String>,
    ipv4: Option<String>,
    ipv6: Option<String>,
    link_gbps: Option<f64>,
}

pub fn devices(args: &Devices, report: &Report) -> Result<()> {
    let mut found = Vec::new();
    if args.directories.is_empty() {
        let default = Path::new(DEFAULT_DIRECTORY);
        if default.is_dir() {
            found.extend(sockets(default)?);
        }
    }
    for directory in &args.directories {
        found.extend(sockets(directory)?);
    }
    let mut list: Vec<Found> = Vec::new();
    for path in found {
        let address = Address::VfioUser(path);
        let port = open::port(&address)?;
        list.push(Found {
            driver: None,
            holder: owner::holder(&address),
            mac: port.as_ref().map(|port| port.mac.to_string()),
            ipv4: port
                .as_ref()
                .and_then(|port| port.ipv4)
                .map(|ip| ip.to_string()),
            ipv6: port
                .as_ref()
                .and_then(|port| port.ipv6)
                .map(|ip| ip.to_string()),
            link_gbps: port.and_then(|port| port.link_gbps),
            address: address.to_string(),
        });
    }
    let system = System::default();
    for address in pci_functions() {
        let pci = Address::Pci(address);
        list.push(Found {
            address: address.to_string(),
            driver: system.driver(address),
            holder: owner::holder(&pci),
            mac: None,
            ipv4: None,
            ipv6: None,
            link_gbps: None,
        });
    }
    report.result(&list, |list| {
        if list.is_empty() {
            out!("no cards found; `mprdma-sim up SCENARIO` starts simulated ones");
        }
        for card in list {
            let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
            let pci = matches!(card.address.parse(), Ok(Address::Pci(_)));
            let state = match &card.holder {
                Some(holder) => format!("in use by {holder}"),
                None if pci && card.driver.as_deref() != Some("vfio-pci") => format!(
                    "driver {}; `mprdma bind {}` makes it usable",
                    card.driver.as_deref().unwrap_or("none"),
                    card.address
                ),
                None => "free".to_owned(),
            };
            out!(
                "{}  {}  {}  {state}",
                card.address,
                or_dash(&card.mac),
                or_dash(&card.ipv4)
            );
        }
    })
}

/// The cards' sockets of a directory, by name. A simulator's control socket is none.
fn sockets(directory: &Path) -> Result<Vec<PathBuf>> {
    let cannot = || format!("cannot look into {}", directory.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        let socket = path
            .extension()
            .is_some_and(|extension| extension == "sock");
        if socket && path.file_stem().is_some_and(|stem| stem != "control") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// PCI functions with our ids.
fn pci_functions() -> Vec<PciAddress> {
    let id = |path: PathBuf| {
        let text = std::fs::read_to_string(path).ok()?;
        u16::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    };
    let Ok(entries) = std::fs::read_dir("/sys/bus/pci/devices") else {
        return Vec::new();
    };
    let ours = |path: &Path| {
        id(path.join("vendor")) == Some(config::PCI_VENDOR)
            && id(path.join("device")) == Some(config::PCI_DEVICE)
    };
    let mut found: Vec<PciAddress> = entries
        .flatten()
        .filter(|entry| ours(&entry.path()))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    found.sort_by_key(PciAddress::to_string);
    found
}

/// Asks the process that has the card, or looks at the card itself when nobody has it.
pub fn ask_or<T>(
    device: &OneDevice,
    request: &Request,
    look: impl FnOnce() -> Result<T>,
) -> Result<Value>
where
    T: Serialize,
{
    if let Some(value) = ask(&device.device, request)? {
        return Ok(value);
    }
    match look() {
        Ok(value) => Ok(serde_json::to_value(value)?),
        // Somebody was just opening it.
        Err(error) if matches!(error.downcast_ref(), Some(DeviceError::Busy { .. })) => {
            ask(&device.device, request)?.ok_or(error)
        }
        Err(error) => Err(error),
    }
}

/// The registers of a card that nobody has; it is left as it is.
pub fn control(device: &OneDevice) -> Result<Control> {
    Ok(Control::open(open::device(device)?, false)?)
}

pub fn info(args: &OneDevice, report: &Report) -> Result<()> {
    let holder = owner::holder(&args.device);
    let mut value = ask_or(args, &Request::Info, || {
        describe(&args.device, &control(args)?)
    })?;
    value["holder"] = json!(holder);
    report.result(&value, |value| {
        for (name, value) in value.as_object().into_iter().flatten() {
            out!("{name:<18} {}", plain(value));
        }
    })
}

/// A value for people.
fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(", "),
        Value::Object(fields) => {
            let nested = fields.values().any(Value::is_object);
            let fields = fields
                .iter()
                .map(|(name, value)| format!("{name} {}", plain(value)));
            let separator = if nested { "; " } else { ", " };
            fields.collect::<Vec<_>>().join(separator)
        }
        _ => value.to_string(),
    }
}

/// The huge pages of this machine, by the name that `--hugepages` takes.
fn huge_pages() -> Value {
    let sizes = HugePages::value_variants().iter().filter_map(|size| {
        let name = size.to_possible_value()?.get_name().to_owned();
        let pages = hugepages::HugePages::of(size.page(), None)?;
        Some((name, json!({ "total": pages.total, "free": pages.free })))
    });
    Value::Object(sizes.collect())
}

/// What `info` shows.
pub fn describe(address: &Address, control: &Control) -> Result<Value> {
    let identity = control.device().identity();
    let card = control.capabilities();
    let port = open::port(address)?;
    Ok(json!({
        "address": identity.address,
        "backend": identity.backend,
        "pci_id": format!("{:04x}:{:04x}", identity.vendor, identity.device),
        "version": format!("{}.{}", card.version >> 16, card.version & 0xffff),
        "build_id": format!("{:016x}", card.build_id),
        "qps": card.qps,
        "cqs": card.cqs,
        "eqs": card.eqs,
        "mrs": card.mrs,
        "bitmap_slots": card.bitmap_slots,
        "clock_mhz": card.clock_mhz,
        "bar0_bytes": identity.bar0_bytes,
        "vectors": identity.vectors,
        "completion_modes": if identity.vectors > 0 { vec!["polling", "events"] } else { vec!["polling"] },
        "moderation_us": moderation::intervals(control)?,
        "hugepages": huge_pages(),
        "numa_node": identity.numa_node,
        "mac": control.mac()?.to_string(),
        "ipv4": port.as_ref().and_then(|port| port.ipv4).map(|ip| ip.to_string()),
        "ipv6": port.as_ref().and_then(|port| port.ipv6).map(|ip| ip.to_string()),
        "link_gbps": port.and_then(|port| port.link_gbps),
        "cycles": control.cycles()?,
        "device_seconds": control.seconds(control.cycles()?),
    }))
}

pub fn stats(args: &Stats, report: &Report) -> Result<()> {
    let device = &args.device;
    let mut value = ask_or(device, &Request::Stats, || counters(&control(device)?))?;
    if args.nonzero {
        if let Some(map) = value.as_object_mut() {
            map.retain(|_, count| count != &json!(0));
        }
    }
    report.result(&value, |value| {
        for counter in Counter::ALL {
            if let Some(count) = value.get(counter_name(*counter)) {
                out!(
                    "{:<20} {:>20}  {}",
                    counter_name(*counter),
                    count.to_string(),
                    counter.doc()
                );
            }
        }
    })
}

/// Every counter by name.
pub fn counters(control: &Control) -> Result<Value> {
    let counters = control.counters()?;
    let map: Map<String, Value> = counters
        .into_iter()
        .map(|(counter, count)| (counter_name(counter), json!(count)))
        .collect();
    Ok(Value::Object(map))
}

/// A counter's name as it is printed: `TxDataPackets` is `tx_data_packets`.
pub fn counter_name(counter: Counter) -> String {
    let mut name = String::new();
    for letter in format!("{counter:?}").chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}
