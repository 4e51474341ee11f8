//! Every kind of loss of one packet, one after the other, on one pair of queue pairs.

use crate::lose::{Lose, Loss, CASES};
use crate::rig::{Pair, PairAttr, Rig};
use anyhow::{ensure, Context as _, Result};
use mprdma_host::verbs::{MultiPath, RtsAttr};
use mprdma_spec::wire::Psn;

/// Two cards, and the packet that either sends next.
pub struct InTurn {
    /// The cards.
    pub rig: Rig,
    /// From card 0 to card 1.
    pub pair: Pair,
    lose: Lose,
    psns: [Psn; 2],
}

impl InTurn {
    /// Queue pairs that send again soon.
    pub fn start(seed: u64, attr: &PairAttr) -> Result<Self> {
        println!("seed {seed}");
        let rig = Rig::start("small", seed)?;
        let lose = Lose::default();
        rig.sim.set_tap(Box::new(lose.clone()));
        let attr = PairAttr {
            rts: RtsAttr {
                timeout: 1,
                multi_path: MultiPath {
                    initial_window: 16,
                    ..MultiPath::default()
                },
                ..RtsAttr::new(0)
            },
            ..*attr
        };
        let pair = rig.pair(0, 1, &attr)?;
        Ok(Self {
            rig,
            pair,
            lose,
            psns: [attr.first_psn(false), attr.first_psn(true)].map(Psn::new),
        })
    }

    /// Does `exchange`, in which the cards send so many `packets` each, once for each case of loss, of packet `position` of
    /// those of card `from`.
    pub fn each(
        &mut self,
        packets: [usize; 2],
        (from, position): (usize, usize),
        mut exchange: impl FnMut(&Rig, &Pair) -> Result<()>,
    ) -> Result<()> {
        for case in &CASES {
            let what = format!(
                "{packets:?} packets, {} of card {from}'s packet {position}",
                case.name
            );
            self.lose.set(Loss {
                from,
                psn: self.psns[from].add(position as u32).value(),
                data: case.data.to_vec(),
                acks: case.acks.to_vec(),
            });
            exchange(&self.rig, &self.pair).context(what.clone())?;
            let (lost, _) = self.lose.lost();
            ensure!(
                lost as usize == case.data.len(),
                "{what}: lost {lost} packets"
            );
            for (psn, packets) in self.psns.iter_mut().zip(packets) {
                *psn = psn.add(packets as u32);
            }
        }
        Ok(())
    }
}
