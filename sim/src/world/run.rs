//! Runs a world on its own, as fast as it goes, for clients outside its thread.

use super::{World, WorldStats};
use crate::scenario::LinkRule;
use crate::time::Ps;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};

/// What a client outside asks of a running world. Ring the world's wake after sending one.
pub enum Command {
    /// Report the counters.
    Stats(SyncSender<WorldStats>),
    /// Change links; the answer is how many matched.
    Link {
        /// Which links, and what is new.
        rule: Box<LinkRule>,
        /// Cut or repair them.
        down: Option<bool>,
        /// Number of links changed.
        reply: SyncSender<usize>,
    },
    /// Stop running.
    Stop,
}

/// Runs until told to stop, or until nobody is left who could. Sleeps while nothing happens.
pub fn free_run(world: &mut World, commands: &Receiver<Command>) {
    loop {
        let seen = world.wake.count();
        loop {
            match commands.try_recv() {
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return,
                // A client that went away does not need its answer.
                Ok(Command::Stats(reply)) => {
                    let _ = reply.try_send(world.stats());
                }
                Ok(Command::Link { rule, down, reply }) => {
                    let _ = reply.try_send(world.change_link(&rule, down));
                }
                Err(TryRecvError::Empty) => break,
            }
        }
        if world.is_idle() {
            world.wake.wait(seen);
        } else {
            world.step(Ps::MAX);
        }
    }
}
