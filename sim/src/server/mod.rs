//! `mprdma-sim up`: the cards of a scenario as vfio-user sockets in a directory.

mod config_space;
pub mod control;
mod device;
mod doorman;
mod interrupts;
mod session;
mod signal;

pub use device::Device;
pub use session::serve;

use crate::engine::Cores;
use crate::scenario::Scenario;
use crate::world::{free_run, Command, Options, World, WorldError, WorldStats};
use control::{ask, ControlError, Link, Request};
use mprdma_host::port::Port;
use mprdma_spec::{config, csr};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

/// Where and how to run.
#[derive(Clone, Debug)]
pub struct Server {
    /// Directory of the sockets.
    pub dir: PathBuf,
    /// Seed, threads, captures.
    pub options: Options,
    /// Where the result goes; nowhere without it.
    pub json: Option<PathBuf>,
}

/// The simulator cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Another one runs there.
    #[error("a simulator already runs in {}; stop it with `mprdma-sim down {}`", .0.display(), .0.display())]
    Running(PathBuf),
    /// The directory or a socket in it cannot be made.
    #[error("cannot use {}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The world cannot be built.
    #[error(transparent)]
    World(#[from] WorldError),
    /// The simulation ended before anybody asked for it.
    #[error("the simulation broke down; its message is above")]
    Broken,
}

impl Server {
    /// Runs until SIGINT, SIGTERM or `mprdma-sim down`, then writes the result. `ready` is told the sockets once
    /// clients can connect.
    pub fn run(
        &self,
        scenario: &Scenario,
        cores: impl Into<Cores>,
        ready: impl FnOnce(&[PathBuf]),
    ) -> Result<WorldStats, ServerError> {
        // Before any thread starts, so that all inherit the mask.
        let signals = signal::Signals::block();
        self.claim_directory()?;
        let mut world = World::new(scenario, &self.options, cores)?;
        let (commands, inbox) = channel();
        let wake = world.wake();
        let mut sockets = vec![];
        for card in 0..world.cards() {
            let path = self.dir.join(format!("nic{card}.sock"));
            let bar0 = csr::bar0_bytes(config::SIM.qp_log2);
            let device = Device::new(&format!("nic{card}"), world.host(card).clone(), bar0);
            clear(&path)?;
            serve(&path, device).map_err(|source| ServerError::Path {
                path: path.clone(),
                source,
            })?;
            let port = Port {
                link_gbps: Some(scenario.network.card_rate_gbps),
                ..Port::numbered(card as u8)
            };
            publish(&path.with_extension("json"), &port)?;
            sockets.push(path);
        }
        let runner = std::thread::Builder::new()
            .name("world".into())
            .spawn(move || {
                // Whatever ends this thread, a panic included, ends the program.
                let _end = signal::EndOfProgram;
                free_run(&mut world, &inbox);
                world.stats()
            })
            .expect("the system starts a thread");
        let link = Link {
            commands: commands.clone(),
            wake: wake.clone(),
            stop: Box::new(signal::end_program),
        };
        let control = control::socket(&self.dir);
        control::serve(&self.dir, link).map_err(|source| ServerError::Path {
            path: control.clone(),
            source,
        })?;
        ready(&sockets);
        signals.wait();
        // If the world is gone already, joining tells.
        let _ = commands.send(Command::Stop);
        wake.ring();
        let result = runner.join().map_err(|_| ServerError::Broken);
        sockets
            .iter()
            .chain([&control])
            .flat_map(|path| [path.clone(), path.with_extension("json")])
            .for_each(|path| drop(std::fs::remove_file(path)));
        let stats = result?;
        self.write_result(&stats)?;
        Ok(stats)
    }

    /// Makes the directory and removes what a simulator that was killed left in it.
    fn claim_directory(&self) -> Result<(), ServerError> {
        std::fs::create_dir_all(&self.dir).map_err(|source| ServerError::Path {
            path: self.dir.clone(),
            source,
        })?;
        match ask(&self.dir, &Request::Stats) {
            Err(ControlError::Absent { .. }) => clear(&control::socket(&self.dir)),
            _ => Err(ServerError::Running(self.dir.clone())),
        }
    }

    fn write_result(&self, stats: &WorldStats) -> Result<(), ServerError> {
        let Some(path) = &self.json else {
            return Ok(());
        };
        let text = serde_json::to_string_pretty(stats).expect("counters are plain data") + "\n";
        std::fs::write(path, text).map_err(|source| ServerError::Path {
            path: path.clone(),
            source,
        })
    }
}

/// Writes a card's addresses beside its socket, where the driver looks for them.
fn publish(path: &Path, port: &Port) -> Result<(), ServerError> {
    let text = serde_json::to_string_pretty(port).expect("addresses are plain data") + "\n";
    std::fs::write(path, text).map_err(|source| ServerError::Path {
        path: path.to_path_buf(),
        source,
    })
}

fn clear(path: &Path) -> Result<(), ServerError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => Err(ServerError::Path {
            path: path.to_path_buf(),
            source,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
