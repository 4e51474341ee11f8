//! Threads that step cards.

use super::{lock, Cards};
use crate::time::Ps;
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// One thread and the cards `first`, `first + threads`, … that it steps.
struct Worker {
    jobs: Option<Sender<Ps>>,
    done: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// The calling thread, and workers for the other cards.
pub(super) struct Pool {
    workers: Vec<Worker>,
}

impl Pool {
    pub(super) fn new(cards: &Cards, threads: usize) -> Pool {
        Pool {
            workers: (1..threads)
                .map(|first| Worker::start(Arc::clone(cards), first, threads))
                .collect(),
        }
    }

    /// Runs every card until `end`, and `also` on the calling thread meanwhile.
    pub(super) fn run<R>(&self, cards: &Cards, end: Ps, also: impl FnOnce() -> R) -> R {
        for worker in &self.workers {
            // A worker that is gone shows in the wait below.
            let _ = worker.jobs.as_ref().map(|jobs| jobs.send(end));
        }
        let result = also();
        run_cards(cards, 0, self.workers.len() + 1, end);
        for worker in &self.workers {
            worker
                .done
                .recv()
                .expect("a card's thread panicked; its message is above");
        }
        result
    }
}

impl Worker {
    fn start(cards: Cards, first: usize, threads: usize) -> Worker {
        let (jobs, wanted) = channel::<Ps>();
        let (finished, done) = channel();
        let work = move || {
            for end in wanted {
                run_cards(&cards, first, threads, end);
                if finished.send(()).is_err() {
                    return;
                }
            }
        };
        let thread = Builder::new()
            .name(format!("cards{first}"))
            .spawn(work)
            .expect("the system starts a thread");
        Worker {
            jobs: Some(jobs),
            done,
            thread: Some(thread),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic was reported by `Pool::run`.
            let _ = thread.join();
        }
    }
}

fn run_cards(cards: &Cards, first: usize, threads: usize, end: Ps) {
    cards
        .iter()
        .skip(first)
        .step_by(threads)
        .for_each(|card| lock(card).run_until(end));
}
