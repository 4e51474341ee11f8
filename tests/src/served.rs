//! Simulated cards behind vfio-user sockets, served by threads of this process: the driver meets them as `mprdma` does.

use anyhow::Result;
use mprdma_host::backend::vfio_user::VfioUser;
use mprdma_host::device::DeviceError;
use mprdma_sim::pcie::Wake;
use mprdma_sim::scenario::Scenario;
use mprdma_sim::server::{serve, Device};
use mprdma_sim::world::{free_run, Command, Options, World};
use mprdma_spec::{config, csr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{channel, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// A running world.
pub struct Served {
    directory: PathBuf,
    commands: Sender<Command>,
    wake: Wake,
    runner: Option<JoinHandle<()>>,
}

impl Served {
    /// Starts the scenario.
    pub fn start(scenario: &Scenario, options: &Options) -> Result<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mprdma-served-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory)?;
        let mut world = World::new(scenario, options, options.engine.cores(scenario, None)?)?;
        for card in 0..world.cards() {
            let bar0 = csr::bar0_bytes(config::SIM.qp_log2);
            let device = Device::new(&format!("nic{card}"), world.host(card).clone(), bar0);
            serve(&directory.join(format!("nic{card}.sock")), device)?;
        }
        let (commands, inbox) = channel();
        Ok(Self {
            directory,
            commands,
            wake: world.wake(),
            runner: Some(std::thread::spawn(move || free_run(&mut world, &inbox))),
        })
    }

    /// A card as its driver sees it.
    pub fn open(&self, card: usize) -> Result<VfioUser, DeviceError> {
        let socket = self.directory.join(format!("nic{card}.sock"));
        VfioUser::open(&socket, Duration::from_secs(60))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The world may have ended already.
        let _ = self.commands.send(Command::Stop);
        self.wake.ring();
        if let Some(runner) = self.runner.take() {
            let _ = runner.join();
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
