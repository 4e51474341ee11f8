//! The card's 64-bit counters, in the order of their registers from [`crate::csr::COUNTERS`] on.

macro_rules! counters {
    ($($name:ident = $text:literal,)+) => {
        /// A counter; its discriminant is its index.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Counter { $(#[doc = $text] $name),+ }
        impl Counter {
            /// Every counter in register order.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];
            /// What it counts.
            #[must_use]
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }
        }
    };
}

counters! {
    TxFrames = "Frames sent.",
    TxBytes = "Bytes sent, headers and ICRC included, FCS not.",
    TxDataPackets = "Data packets sent, retransmissions included.",
    TxAcks = "ACKs and NAKs sent.",
    TxRetransmissions = "Data packets sent with ReTx set.",
    TxProbes = "Data packets sent to a random path for probing.",
    RxFrames = "Frames received.",
    RxBytes = "Bytes received, FCS not included.",
    RxDataPackets = "Data packets with a good ICRC.",
    RxAcks = "ACKs and NAKs received.",
    RxOutOfOrder = "Data packets accepted ahead of a hole.",
    RxDuplicates = "Data packets that had arrived before.",
    RxOutOfWindow = "Data packets beyond the bitmap, answered by a window NAK.",
    RxSyncNaks = "Data packets of synchronised messages that came too early.",
    RxCeMarks = "Data packets that carried a CE mark.",
    RxDropIcrc = "Frames dropped for a bad ICRC.",
    RxDropMalformed = "Frames dropped for a bad header or length.",
    RxDropNotOurs = "Frames dropped: another MAC address, not RoCEv2.",
    RxDropNoQp = "Frames dropped: no such QP, wrong state, opcode or P_Key.",
    RxDropFull = "Frames dropped: the receive buffer was full.",
    RxAccessErrors = "Requests refused for key, bounds or rights.",
    RxRnrNaks = "Requests refused for want of a receive WQE.",
    EcnEchoes = "ACKs that echoed a CE mark.",
    Prunes = "ACKs of slow paths: window reduced, nothing clocked out.",
    WindowNaks = "Window NAKs received.",
    SyncNaks = "Sync NAKs received.",
    GhostAcks = "ACKs for PSNs before snd_una.",
    BadAcks = "ACKs that acknowledge what was never sent; ignored.",
    Timeouts = "Retransmission timeouts.",
    Recoveries = "Times that loss recovery was entered.",
    CqesWritten = "Completion queue entries written.",
    CqOverflows = "CQEs dropped because the ring was full.",
    DmaReadErrors = "DMA reads that failed.",
    MessagesCompleted = "Send work requests completed with success.",
    InterruptsRaised = "MSI-X interrupts sent to the host.",
    InterruptsHeld = "Causes of an interrupt that came inside the moderation interval of their vector and waited for its end.",
    AtomicsExecuted = "ATOMICs of the peers executed, compare and swaps that found another value included.",
}
