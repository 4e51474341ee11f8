//! `moderation`: the least time between two interrupts of a vector, through the process that has the card.

use std::time::Duration;

use anyhow::Result;
use mprdma_host::control::Control;
use mprdma_spec::counter::Counter;
use serde_json::{json, Value};

use crate::args::Moderation;
use crate::failure::Failure;
use crate::inspect::{ask_or, control};
use crate::owner::{ask, Request};
use crate::report::{out, Report};

pub fn moderation(args: &Moderation, report: &Report) -> Result<()> {
    let value = match args.interval_us {
        Some(interval) => {
            let request = Request::SetModeration {
                vector: args.vector,
                interval,
            };
            ask(&args.device.device, &request)?.ok_or_else(|| {
                // Makes sure that there is a card to speak of.
                control(&args.device).err().unwrap_or_else(|| {
                    Failure::Owner(format!(
                        "nobody has {}, and whoever opens it resets it; set the interval while a process has it, or \
                         give --moderation-us to that process (`mprdma hold`, `bench`, `send-file`, `recv-file`)",
                        args.device.device
                    ))
                    .into()
                })
            })?
        }
        None => ask_or(&args.device, &Request::Moderation, || {
            describe(&control(&args.device)?)
        })?,
    };
    report.result(&value, |value| {
        let intervals = value["interval_us"].as_array().into_iter().flatten();
        for (vector, interval) in intervals.enumerate() {
            if args.vector.is_none_or(|chosen| chosen == vector) {
                out!("vector {vector:<8} {}", shown(interval));
            }
        }
        out!(
            "interrupts raised {}, held {}",
            value["raised"],
            value["held"]
        );
    })
}

/// An interval for people.
pub fn shown(interval_us: &Value) -> String {
    match interval_us.as_f64() {
        Some(interval) if interval > 0.0 => format!("{interval} us"),
        _ => "off".to_owned(),
    }
}

/// The interval of each vector in microseconds.
pub fn intervals(control: &Control) -> Result<Value> {
    let microseconds = |interval: Duration| interval.as_nanos() as f64 / 1e3;
    let intervals = control.moderation()?;
    Ok(json!(intervals
        .into_iter()
        .map(microseconds)
        .collect::<Vec<_>>()))
}

/// The intervals, and what has come of them since the card's last reset.
pub fn describe(control: &Control) -> Result<Value> {
    Ok(json!({
        "interval_us": intervals(control)?,
        "raised": control.counter(Counter::InterruptsRaised)?,
        "held": control.counter(Counter::InterruptsHeld)?,
    }))
}
