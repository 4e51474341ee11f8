//! Which packets an event sends, and on which paths.

use super::step::Step;
use super::{Cause, Grant, RING};
use crate::psn;

/// Low bits of a distance between virtual paths that the ring keeps.
const RING_MASK: u16 = (1 << 14) - 1;

/// What clocks packets out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// An ACK came in on this path.
    Ack(u16),
    /// New work or the burst timer.
    Own,
}

impl Step<'_> {
    /// Rules 5 to 7 for new packets: up to two now, the rest by the burst timer.
    pub(super) fn send_new(&mut self, clock: Clock) {
        let flight = self.c.flight();
        let awnd = self.awnd();
        if awnd == 0 {
            return;
        }
        let unsent = self.c.unsent();
        if unsent == 0 {
            // Rule 6: the window is larger than the work.
            if clock != Clock::Own {
                self.shrink(2);
            }
            return;
        }
        let room = awnd.min(unsent).min(self.room_in_bitmap());
        if room == 0 {
            return;
        }
        let to_sync = psn::distance(self.c.snd_nxt, self.c.sync_psn);
        let sync_first = self.c.sync_wait && to_sync == 0;
        if self.env.full || self.env.crowded || sync_first && flight != 0 && !self.sync_due {
            self.arm_burst(self.c.config.burst_interval);
            return;
        }
        if flight == 0 {
            self.c.progress_at = self.env.now;
        }
        let mut count = room.min(2);
        if sync_first {
            self.c.sync_wait = false;
            self.out.sync_passed = true;
        } else if self.c.sync_wait {
            count = count.min(to_sync);
        }
        for i in 0..count as usize {
            self.send_one(i, clock, i == 1);
        }
        if clock == Clock::Own {
            self.turn_ring(count);
        }
        if room > count {
            // Rule 7. The first window leaves at full speed.
            let pause = if self.c.start > 0 {
                1
            } else {
                self.c.config.burst_interval
            };
            self.arm_burst(pause);
        }
    }

    /// Rule 5: what may be sent beyond what is in flight. `vp_recycle`: a window of n and a half packets counts as the
    /// even one of n and n + 1, or of two paths whose marks alternate one would always pay the whole packet.
    fn awnd(&self) -> u32 {
        let to_even = u16::from(self.c.config.vp_recycle) & self.c.cwnd >> 1;
        let window = (self.c.cwnd + to_even) >> 1;
        let allowed = u32::from(window) + u32::from(self.c.inflate);
        allowed.saturating_sub(self.c.flight())
    }

    /// `hole_repair`: while a lost packet is known, nothing is sent that would fall outside the peer's bitmap.
    fn room_in_bitmap(&self) -> u32 {
        if self.knows_a_loss() {
            (self.env.slots - 1).saturating_sub(self.c.flight())
        } else {
            u32::MAX
        }
    }

    /// `hole_repair`: a lost packet has not been acknowledged yet.
    pub(super) fn knows_a_loss(&self) -> bool {
        self.c.config.hole_repair && self.hole_limit() != 0
    }

    /// `hole_repair`: holes nearer than this to `snd_una` are losses, as they are more than delta behind `snd_ooh`.
    pub(super) fn hole_limit(&self) -> u32 {
        let span = psn::distance(self.c.snd_una, self.c.snd_ooh);
        if span < psn::HALF {
            span.saturating_sub(self.c.config.delta.into())
        } else {
            0
        }
    }

    /// The next new packet, as this event's grant `i`.
    fn send_one(&mut self, i: usize, clock: Clock, extra: bool) {
        let vp = self.path_of_new(i, clock, extra);
        self.c.start = self.c.start.saturating_sub(1);
        self.grant(i, self.c.snd_nxt, vp, false);
        self.c.snd_nxt = psn::add(self.c.snd_nxt, 1);
        self.c.last_new_at = self.env.now as u16;
    }

    /// `extra`: an ACK has clocked out one packet already.
    fn path_of_new(&mut self, i: usize, clock: Clock, extra: bool) -> u16 {
        let (chance, random) = self.random(i);
        let probe = chance < self.c.config.probe && self.c.config.vp_count > 1;
        match clock {
            Clock::Own if self.c.start > 0 => self.recycled(i),
            _ if probe => {
                self.out.counts.probes += 1;
                random
            }
            // `vp_recycle`: the packet by which the window grows looks for room on any path.
            Clock::Ack(_) if extra && self.c.config.vp_recycle => random,
            Clock::Ack(vp) => vp,
            Clock::Own if self.c.config.vp_recycle => self.recycled(i),
            Clock::Own => self.c.last_vp,
        }
    }

    /// `hole_repair`: resends up to two of the packets nearer than `limit` to `snd_una` that `map` does not show, going on
    /// where the pass stopped. The first goes to `first_vp`, or else to a recycled path, as the second does. True if
    /// there is one.
    pub(super) fn repair(&mut self, map: u128, limit: u32, first_vp: Option<u16>) -> bool {
        if self.pass_old {
            self.c.snd_retx = self.c.snd_una;
            self.c.pass_at = self.env.now as u16;
        }
        let una = self.c.snd_una;
        let from = psn::distance(una, self.c.snd_retx);
        let limit = limit.min(self.env.slots);
        let mut holes = (from..limit).filter(|&i| map >> i & 1 == 0);
        let found: [Option<u32>; 2] = [holes.next(), holes.next()];
        if self.env.full {
            return found[0].is_some();
        }
        for (i, offset) in found.into_iter().flatten().enumerate() {
            let vp = match first_vp {
                Some(vp) if i == 0 => vp,
                _ => self.recycled(i),
            };
            self.grant(i, psn::add(una, offset), vp, true);
            self.c.snd_retx = psn::add(una, offset + 1);
        }
        if found[0].is_some() {
            // The repair needs a round trip: no timeout before.
            self.c.progress_at = self.env.now;
            self.turn_ring(if found[1].is_some() { 2 } else { 1 });
        }
        found[0].is_some()
    }

    /// An ACK that repairs one hole has a grant left: a new packet on the path of the ACK, whose clock would be lost to
    /// that path otherwise. A synchronised message begins by the burst timer.
    pub(super) fn send_beside_repair(&mut self, vp: u16) {
        let free = self.out.grants[0].is_some() && self.out.grants[1].is_none();
        let room = self.awnd().min(self.c.unsent()).min(self.room_in_bitmap());
        let at_sync = self.c.sync_wait && self.c.snd_nxt == self.c.sync_psn;
        if !free || room == 0 || at_sync || self.env.crowded {
            return;
        }
        self.send_one(1, Clock::Ack(vp), false);
    }

    /// The burst timer is to send what the window still allows, since retransmissions took this ACK's place.
    pub(super) fn leave_to_burst(&mut self) {
        if self.awnd() != 0 && self.c.unsent() != 0 {
            self.arm_burst(1);
        }
    }

    /// Section 5, after a timeout: retransmissions that no ACK clocks out go to random paths, two at a time.
    pub(super) fn resend_unclocked(&mut self) {
        let left = psn::distance(self.c.snd_retx, self.c.recovery).min(self.c.rto_left.into());
        if left == 0 {
            return;
        }
        if self.env.full {
            self.arm_burst(self.c.config.burst_interval);
            return;
        }
        self.out.cause = Cause::Timeout;
        for i in 0..left.min(2) as usize {
            let (_, random) = self.random(i);
            self.resend(i, random);
            self.c.rto_left -= 1;
        }
        if left > 2 {
            self.arm_burst(self.c.config.burst_interval);
        }
    }

    /// The packet at `snd_retx`.
    pub(super) fn resend(&mut self, slot: usize, vp: u16) {
        self.grant(slot, self.c.snd_retx, vp, true);
        self.c.snd_retx = psn::add(self.c.snd_retx, 1);
    }

    fn grant(&mut self, slot: usize, psn: u32, vp: u16, retx: bool) {
        self.out.grants[slot] = Some(Grant {
            psn,
            vp,
            retx,
            marker: false,
        });
    }

    /// The random path for packet `i` of this event, and 16 more random bits.
    fn random(&self, i: usize) -> (u16, u16) {
        let bits = (self.env.rnd >> (32 * i)) as u32;
        let path = ((bits >> 16) * u32::from(self.c.config.vp_count)) >> 16;
        (bits as u16, self.c.config.vp_base.wrapping_add(path as u16))
    }

    /// `vp_recycle`: packet `i` goes to the path whose good ACK is the longest ago; to a random one while the ring fills.
    fn recycled(&self, i: usize) -> u16 {
        if self.c.config.vp_recycle && usize::from(self.c.ring_count) == RING {
            self.c
                .config
                .vp_base
                .wrapping_add(self.c.ring[RING - 1 - i])
        } else {
            self.random(i).1
        }
    }

    /// The `count` oldest paths of the ring become its newest.
    fn turn_ring(&mut self, count: u32) {
        self.c.ring.rotate_right(count as usize);
    }

    /// A path brought an ACK that was neither marked nor slow.
    pub(super) fn keep_path(&mut self, vp: u16) {
        self.c.ring.rotate_right(1);
        self.c.ring[0] = vp.wrapping_sub(self.c.config.vp_base) & RING_MASK;
        self.c.ring_count = (self.c.ring_count + 1).min(RING as u8);
    }
}
