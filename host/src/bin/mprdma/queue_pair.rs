//! `qp`: looking at queue pairs, making, changing and removing them, through the process that has the card.

use anyhow::Result;
use mprdma_host::verbs::{
    Context, ContextAttr, Parameters, QpStats, QpStatus, Trace, VpStats, DISTANCES,
};
use serde::Serialize;
use serde_json::{json, Value};

use crate::args::{OneDevice, Qp, QpAction};
use crate::failure::Failure;
use crate::inspect::{ask_or, control};
use crate::open;
use crate::owner::{self, Request};
use crate::report::{out, Report};
use crate::tuning::Change;
use crate::usage;

/// What `qp show` shows: the card's state in the open, what it is set to and what it has counted beside it.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    status: QpStatus,
    parameters: Parameters,
    telemetry: QpStats,
}

/// Everything about a queue pair.
pub fn show(context: &Context, qpn: u32) -> Result<Value> {
    Ok(serde_json::to_value(Shown {
        status: context.query_qp(qpn)?,
        parameters: context.parameters(qpn)?,
        telemetry: context.query_qp_stats(qpn)?,
    })?)
}

/// Changes parameters; answers with all of them.
pub fn modify(context: &Context, qpn: u32, change: &Change) -> Result<Value> {
    let old = context.parameters(qpn)?;
    let new = change.apply(&old);
    // Both are checked before either is changed.
    new.timers.check()?;
    new.multi_path.check()?;
    if new.timers != old.timers {
        context.modify_timers(qpn, &new.timers)?;
    }
    if new.multi_path != old.multi_path {
        context.modify_paths(qpn, &new.multi_path)?;
    }
    Ok(serde_json::to_value(context.parameters(qpn)?)?)
}

/// The answer when nobody has the card: it has been reset, and there is no queue pair.
fn nobody(device: &OneDevice, qpn: u32) -> Result<Value> {
    control(device)?;
    Err(Failure::Owner(format!("there is no QP {qpn}: nobody has the card")).into())
}

fn print_fields(indent: &str, value: &Value) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Bool(true) => "on".to_owned(),
            Value::Bool(false) => "off".to_owned(),
            Value::Null => "-".to_owned(),
            Value::Object(_) | Value::Array(_) => continue,
            Value::Number(_) => value.to_string(),
        };
        out!("{indent}{name:<15} {text}");
    }
}

/// `qp show` as text.
fn print_state(shown: &Value) {
    out!("state");
    print_fields("  ", shown);
    out!("parameters");
    print_fields("  ", &shown["parameters"]);
    out!("telemetry, since it was created");
    print_fields("  ", &shown["telemetry"]);
    out!("accepted packets by their distance from the next in order");
    let counts: Vec<u64> = shown["telemetry"]["distance"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_u64)
        .collect();
    let total: u64 = counts.iter().sum();
    for (i, (from, count)) in DISTANCES.iter().zip(&counts).enumerate() {
        let range = match DISTANCES.get(i + 1) {
            Some(next) if next - 1 > *from => format!("{from}-{}", next - 1),
            Some(_) => from.to_string(),
            None => format!("{from}+"),
        };
        let share = *count as f64 / total.max(1) as f64;
        out!("  {range:>6} {count:>12} {:>6.2} %", 100.0 * share);
    }
}

fn print_trace(trace: &Trace) {
    out!("      vp        sent  retransmitted       acked  ecn_marked      pruned");
    let row = |name: &str, counts: &VpStats| {
        out!(
            "{name:>8}  {:>10}  {:>13}  {:>10}  {:>10}  {:>10}",
            counts.sent,
            counts.retransmitted,
            counts.acked,
            counts.ecn_marked,
            counts.pruned
        );
    };
    for path in &trace.paths {
        row(&path.vp.to_string(), &path.counts);
    }
    row("other", &trace.other);
}

pub fn qp(args: &Qp, report: &Report) -> Result<()> {
    match &args.action {
        QpAction::List(device) => {
            // When nobody has the card it has been reset: there is no queue pair.
            let list = ask_or(device, &Request::QpList, || {
                control(device).map(|_| Vec::<u32>::new())
            })?;
            report.result(&list, |list| {
                let qps = list.as_array().map_or(&[][..], Vec::as_slice);
                if qps.is_empty() {
                    out!("no queue pairs");
                } else {
                    out!("   qpn  state  mode   mtu  dest_qpn  vp_count  sq_outstanding  rq_outstanding");
                }
                for qp in qps {
                    let text = |name: &str| qp[name].as_str().map_or_else(|| qp[name].to_string(), str::to_owned);
                    out!(
                        "{:>6}  {:<5}  {:<4}  {:>4}  {:>8}  {:>8}  {:>14}  {:>14}",
                        text("qpn"),
                        text("state"),
                        text("mode"),
                        text("path_mtu"),
                        text("dest_qp_num"),
                        text("vp_count"),
                        text("sq_outstanding"),
                        text("rq_outstanding"),
                    );
                }
            })
        }
        QpAction::Show { device, qpn } => {
            let shown = ask_or(device, &Request::QpShow(*qpn), || nobody(device, *qpn))?;
            report.result(&shown, print_state)
        }
        QpAction::Modify {
            device,
            qpn,
            change,
        } => {
            if *change == Change::default() {
                return Err(usage("name a parameter to change; `--help` lists them"));
            }
            let request = Request::QpModify(*qpn, *change);
            let parameters = ask_or(device, &request, || nobody(device, *qpn))?;
            report.result(&parameters, |parameters| print_fields("", parameters))
        }
        QpAction::Trace {
            device,
            qpn,
            start: true,
            ..
        } => {
            let request = Request::QpTrace(*qpn);
            let begun = ask_or(device, &request, || nobody(device, *qpn))?;
            report.result(&begun, |_| {
                out!("QP {qpn} is traced from now on; `mprdma qp trace {qpn}` prints the counts");
            })
        }
        QpAction::Trace {
            device,
            qpn,
            nonzero,
            ..
        } => {
            let request = Request::QpReadTrace(*qpn);
            let value = ask_or(device, &request, || nobody(device, *qpn))?;
            let mut trace: Trace = serde_json::from_value(value)?;
            if *nonzero {
                trace.paths.retain(|path| path.counts != VpStats::default());
            }
            report.result(&trace, print_trace)
        }
        QpAction::Create { device, shape } => {
            let mut value = ask_or(device, &Request::QpCreate(*shape), || {
                let context = Context::open(open::device(device)?, &ContextAttr::default())?;
                let mut value = serde_json::to_value(owner::make(&context, shape)?.summary())?;
                value["temporary"] = json!(true);
                Ok(value)
            })?;
            let temporary = value["temporary"] == json!(true);
            value["temporary"] = json!(temporary);
            report.result(&value, |value| {
                out!(
                    "QP {} made: {} {} MTU {}",
                    value["qpn"],
                    value["mode"],
                    value["state"],
                    value["path_mtu"]
                );
                if temporary {
                    out!("it is gone again: nobody has the card; `mprdma hold` keeps it");
                }
            })
        }
        QpAction::Destroy { device, qpn } => {
            let gone = ask_or(device, &Request::QpDestroy(*qpn), || nobody(device, *qpn))?;
            report.result(&gone, |gone| out!("QP {} removed", gone["qpn"]))
        }
    }
}
