//! Counters must add up.

use super::plan::Plan;
use super::watch::Seen;
use crate::rig::Rig;
use anyhow::{ensure, Result};
use mprdma_spec::counter::Counter::{self, *};

/// Compares the counters of cards and network, when nothing is on its way any more, with what a tap saw and with each
/// other.
pub(super) fn check(plan: &Plan, rig: &Rig, seen: &[Seen; 2]) -> Result<()> {
    let world = rig.sim.stats();
    let net = &world.fabric;
    let sent: u64 = seen.iter().map(|card| card.sent).sum();
    let delivered: u64 = seen.iter().map(|card| card.frames).sum();
    equal(
        "frames sent and copied = delivered and dropped",
        sent + net.total.duplicated + net.flood_copies,
        delivered + net.drops,
    )?;
    equal("frames delivered", net.delivered, delivered)?;
    let kinds =
        net.total.losses + net.total.down_drops + net.total.tail_drops + net.total.chosen_drops;
    equal("drops = sum of their kinds", net.drops, kinds)?;
    for card in 0..2 {
        let name = |what: &str| format!("card {card}: {what}");
        let report = &world.cards[card].stats;
        for (what, count) in [
            ("DMA faults", report.pcie.faults),
            ("PCIe rules broken", report.pcie.violations),
            ("MAC rules broken", report.mac.tx_violations),
            ("MAC underruns", report.mac.tx_underruns),
            ("register accesses without answer", report.mmio_timeouts),
        ] {
            equal(&name(what), count, 0)?;
        }
        card_counters(plan, rig, card, &seen[card], seen, report.mac.rx_frames)?;
    }
    Ok(())
}

fn card_counters(
    plan: &Plan,
    rig: &Rig,
    card: usize,
    seen: &Seen,
    all: &[Seen; 2],
    mac_frames: u64,
) -> Result<()> {
    let counters = rig.sides[card].context.counters()?;
    let of = |wanted: Counter| {
        let found = counters.iter().find(|(counter, _)| *counter == wanted);
        found.map_or(0, |(_, value)| *value)
    };
    let other = 1 - card;
    let mine = || plan.flows.iter().filter(|flow| flow.from == card);
    let theirs = || plan.flows.iter().filter(|flow| flow.from != card);
    let packets = |from: usize| -> u64 {
        let of_flow = |flow: &super::Flow| -> u64 {
            let of_message = |m| flow.packets_from(from, m);
            flow.messages.iter().map(of_message).sum()
        };
        plan.flows.iter().map(of_flow).sum()
    };
    let imms = |flow: &super::Flow| flow.messages.iter().filter(|m| m.imm.is_some()).count() as u64;
    let signals = |flow: &super::Flow| flow.messages.iter().filter(|m| m.signaled).count() as u64;
    let (out, coming) = (packets(card) + seen.asks, packets(other) + all[other].asks);
    let bad = of(RxDropIcrc) + of(RxDropMalformed) + of(RxDropNotOurs) + of(RxDropNoQp);
    let answered = of(RxDataPackets) - of(RxAccessErrors);
    let turned_away = of(RxDuplicates) + of(RxOutOfWindow) + of(RxSyncNaks) + of(RxRnrNaks);
    let messages: usize = mine().map(|flow| flow.messages.len()).sum();
    let cqes: u64 = mine().map(signals).sum::<u64>() + theirs().map(imms).sum::<u64>();
    for (what, left, right) in [
        ("TxFrames", of(TxFrames), seen.sent),
        ("TxDataPackets", of(TxDataPackets), seen.sent_data),
        ("TxRetransmissions", of(TxRetransmissions), seen.sent_again),
        ("TxAcks", of(TxAcks), seen.sent_acks),
        (
            "data sent = packets of messages + retransmissions",
            of(TxDataPackets),
            out + of(TxRetransmissions),
        ),
        ("RxFrames", of(RxFrames), seen.frames),
        ("frames at the MAC", mac_frames, seen.frames),
        ("RxDataPackets", of(RxDataPackets), seen.data),
        ("RxAcks", of(RxAcks), seen.acks),
        ("frames dropped as damaged or not ours", bad, seen.bad),
        ("RxDropFull", of(RxDropFull), 0),
        ("RxAccessErrors", of(RxAccessErrors), 0),
        (
            "data = packets of messages, each once, + those turned away",
            of(RxDataPackets),
            coming + turned_away,
        ),
        ("an answer for each data packet", of(TxAcks), answered),
        ("BadAcks", of(BadAcks), 0),
        ("DmaReadErrors", of(DmaReadErrors), 0),
        ("CqOverflows", of(CqOverflows), 0),
        ("MessagesCompleted", of(MessagesCompleted), messages as u64),
        ("CqesWritten", of(CqesWritten), cqes),
    ] {
        equal(&format!("card {card}: {what}"), left, right)?;
    }
    // A NAK or an echo that the other card sent arrives at most as often as the network doubles it, and is not made up.
    let other = &all[other];
    ensure!(
        of(GhostAcks) <= seen.acks && of(WindowNaks) + of(SyncNaks) <= seen.acks,
        "card {card}: more NAKs than ACKs"
    );
    ensure!(
        other.sent_acks > 0 || of(RxAcks) == 0,
        "card {card}: ACKs from nowhere"
    );
    Ok(())
}

fn equal(what: &str, left: u64, right: u64) -> Result<()> {
    ensure!(left == right, "{what}: {left} is not {right}");
    Ok(())
}
