//! Build-time configuration of a card image: what the generator takes and what the CSRs report.

/// Configuration of one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Name of the configuration, e.g. `sim`.
    pub name: &'static str,
    /// log2 of the number of queue pairs (contexts in RAM).
    pub qp_log2: usize,
    /// log2 of the number of completion queues.
    pub cq_log2: usize,
    /// log2 of the number of event queues.
    pub eq_log2: usize,
    /// log2 of the number of memory regions.
    pub mr_log2: usize,
    /// Slots of the receiver's reorder bitmap (protocol section 3): 64 or 128.
    pub bitmap_slots: usize,
}

/// The card that the simulator runs: 1,024 queue pairs, 128 slots.
pub const SIM: Config = Config {
    name: "sim",
    qp_log2: 10,
    cq_log2: 6,
    eq_log2: 0,
    mr_log2: 8,
    bitmap_slots: 128,
};

/// The same card with the 64 slots of the published design, to compare the two.
pub const SIM_L64: Config = Config {
    name: "sim-l64",
    bitmap_slots: 64,
    ..SIM
};

/// log2 of the launched-message ring of a queue pair: 64 messages may be in flight.
pub const MESSAGE_RING_LOG2: usize = 6;
/// log2 of the receive completions that may wait out of order per queue pair (protocol section 3).
pub const RECEIVE_WINDOW_LOG2: usize = 5;
/// log2 of the READs and ATOMICs that a queue pair may have open, in each direction (protocol section 7).
pub const READ_SLOTS_LOG2: usize = 4;
/// Of the message ring's entries, how many are kept for the answers to the peer's READs: so that two sides that read from
/// each other cannot wait for each other's rings.
pub const RESPONSE_ENTRIES: usize = 1 << READ_SLOTS_LOG2;
/// log2 of the core cycles after which the next queue pair's open READs are looked at: with 1,024 queue pairs each is
/// every 1.05 ms (protocol section 7 rule 9).
pub const KEEPALIVE_CYCLES_LOG2: usize = 8;
/// Core clock in MHz.
pub const CLOCK_MHZ: u32 = 250;
/// Core cycles in one tick of the protocol clock: 16 cycles of 4 ns are the 64 ns of MPETH's stamp.
pub const CYCLES_PER_TICK: u32 = 16;
/// Ticks in one unit of the slow clock that retransmission timers use: 64 ticks of 64 ns are 4.096 us.
pub const TICKS_PER_SLOW: u32 = 64;
/// MSI-X vectors that the card offers.
pub const MSIX_VECTORS: usize = 8;
/// PCI vendor id of the simulated card (not assigned by the PCI-SIG; boards use their own).
pub const PCI_VENDOR: u16 = 0x1d1d;
/// PCI device id of the simulated card.
pub const PCI_DEVICE: u16 = 0x4d52;
/// PCI class: network controller, InfiniBand-class (0x0207xx), which RDMA stacks look for.
pub const PCI_CLASS: u32 = 0x02_07_00;

/// Build id that the CSRs of an image report: FNV-1a of what tells the image from others, such as its configuration and
/// the version of its source.
#[must_use]
pub fn build_id(of: &str) -> u64 {
    of.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
