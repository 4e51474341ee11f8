//! The simulator: cards, as Verilated RTL or as the golden model, behind a PCIe and host-memory model, joined by a multi-path network.
//!
//! Time is counted in picoseconds everywhere. A scenario (TOML) describes the network, the cards and the PCIe side;
//! [`world::World`] runs it, [`server`] offers each card as a vfio-user socket, and [`inproc`] offers the same cards
//! to a test in its own process.

pub mod capture;
pub mod card;
pub mod engine;
pub mod fabric;
pub mod golden;
pub mod inproc;
pub mod lanes;
pub mod mac;
pub mod pcie;
pub mod ports;
pub mod scenario;
pub mod server;
pub mod standin;
pub mod time;
pub mod verilated;
pub mod world;
