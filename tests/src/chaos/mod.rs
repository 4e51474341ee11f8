//! Random faults: from a seed, a network whose links lose, damage, double and delay packets, die and come back, and
//! queue pairs that send messages of all sizes through it; then the check that nothing of it shows.
//!
//! - [`Plan::new`] makes everything that is random from the seed.
//! - [`run`] plays it: it posts, polls, and checks each completion and the data it stands for.
//! - `accounts` compares the counters of cards and network with what a tap saw and with each other.

mod accounts;
mod plan;
mod run;
mod watch;

pub use plan::{Flow, Message, Plan};
pub use run::{run, Outcome};
