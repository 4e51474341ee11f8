//! `bind`, `unbind`: moving a PCI function between its driver and vfio-pci.

use anyhow::Result;
use mprdma_host::address::PciAddress;
use mprdma_host::backend::kernel::{self, Rebound, System};
use serde_json::json;

use crate::report::{out, Report};

pub fn bind(address: PciAddress, report: &Report) -> Result<()> {
    let system = System::default();
    let rebound = kernel::bind(&system, address)?;
    tell(address, &rebound, report)?;
    if !report.is_json() {
        if let Some(group) = system.group(address) {
            let node = system.group_node(group);
            report.note(format!(
                "root can open it now; another user once {} is theirs (`sudo chown USER {0}`, or the udev rule of \
                 docs/user-guide.md)",
                node.display()
            ));
        }
    }
    Ok(())
}

pub fn unbind(address: PciAddress, report: &Report) -> Result<()> {
    let rebound = kernel::unbind(&System::default(), address)?;
    tell(address, &rebound, report)
}

fn tell(address: PciAddress, rebound: &Rebound, report: &Report) -> Result<()> {
    let value = json!({
        "ok": true,
        "address": address.to_string(),
        "before": rebound.before,
        "driver": rebound.now,
    });
    report.result(&value, |_| {
        let name = |driver: &Option<String>| driver.clone().unwrap_or_else(|| "none".to_owned());
        let (before, now) = (name(&rebound.before), name(&rebound.now));
        if before == now {
            out!("{address}: driver {now}, as before");
        } else {
            out!("{address}: driver {now} (was {before})");
        }
    })
}
