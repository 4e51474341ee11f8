//! Output: one JSON document on standard output with `--json`, text otherwise; progress and errors on standard error.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::json;

use crate::failure;

/// Prints a line on standard output.
macro_rules! out {
    ($($text:tt)*) => { $crate::report::line(format_args!($($text)*)) };
}
pub(crate) use out;

/// Writes a line to standard output. A reader that has seen enough, as `head` has, is no failure.
pub fn line(text: std::fmt::Arguments<'_>) {
    match writeln!(io::stdout(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("mprdma: cannot write the result: {error}");
        }
        _ => {}
    }
}

/// Where results go.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    json: bool,
}

impl Report {
    pub const fn new(json: bool) -> Self {
        Self { json }
    }

    pub const fn is_json(&self) -> bool {
        self.json
    }

    /// Prints `value` as JSON, or what `text` makes of it.
    pub fn result<T: Serialize>(&self, value: &T, text: impl FnOnce(&T)) -> anyhow::Result<()> {
        if self.json {
            out!("{}", serde_json::to_string_pretty(value)?);
        } else {
            text(value);
        }
        Ok(())
    }

    /// Something to know while it runs.
    pub fn note(&self, text: impl Display) {
        eprintln!("{text}");
    }

    /// The end in failure.
    pub fn failure(&self, error: &anyhow::Error, code: u8) {
        let text = failure::text(error);
        eprintln!("mprdma: {text}");
        if self.json {
            out!(
                "{}",
                json!({ "ok": false, "error": text, "exit_code": code })
            );
        }
    }

    /// A progress bar over `bytes` bytes; nothing when standard error is no terminal.
    pub fn progress(&self, bytes: u64, what: &str) -> ProgressBar {
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(
            "{msg} [{bar:32}] {binary_bytes}/{binary_total_bytes}, {elapsed} elapsed, {eta} left",
        ) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    }
}
