//! BAR0: 32-bit control and status registers, then one 4 KiB doorbell page per EQ, CQ and QP.

/// How software may use a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads only; writes are ignored.
    ReadOnly,
    /// Reads return what was written.
    ReadWrite,
    /// Writes have an effect; reads return zero.
    WriteOnly,
}

/// One 32-bit register.
#[derive(Clone, Copy, Debug)]
pub struct Register {
    /// Name as documentation and tools print it.
    pub name: &'static str,
    /// Byte offset in BAR0, a multiple of 4.
    pub offset: u32,
    /// Permitted accesses.
    pub access: Access,
    /// Meaning, with units.
    pub doc: &'static str,
}

macro_rules! registers {
    ($($name:ident @ $offset:literal $access:ident = $text:literal),+ $(,)?) => {
        $(
            #[doc = $text]
            pub const $name: u32 = $offset;
        )+
        /// Every single register, in ascending order (the windows and doorbell pages are described apart).
        pub const REGISTERS: &[Register] = &[
            $(Register { name: stringify!($name), offset: $offset, access: Access::$access, doc: $text }),+
        ];
    };
}

registers! {
    MAGIC @ 0x000 ReadOnly = "Identification, always 0x4d505244 (\"MPRD\").",
    VERSION @ 0x004 ReadOnly = "Interface version: major in bits 31..16, minor in bits 15..0. The driver refuses another major version; minor 1 adds interrupt moderation, minor 2 ATOMIC.",
    BUILD_ID_LO @ 0x008 ReadOnly = "Build id, low half: a hash of the configuration and the generator version.",
    BUILD_ID_HI @ 0x00c ReadOnly = "Build id, high half.",
    CONFIG0 @ 0x010 ReadOnly = "log2 of QPs in bits 7..0, of CQs in 15..8, of EQs in 23..16, of MRs in 31..24.",
    CONFIG1 @ 0x014 ReadOnly = "Reorder bitmap slots in bits 15..0, clock in MHz in bits 31..16.",
    CONTROL @ 0x018 ReadWrite = "Bit 0: enable (packets are received and sent). Bit 1: soft reset; clears itself, STATUS.ready drops until every table is clear.",
    STATUS @ 0x01c ReadOnly = "Bit 0: ready (tables are clear, commands are accepted). Bit 1: busy (work is in the pipeline).",
    MAC_LO @ 0x020 ReadWrite = "Port MAC address, bytes 0..3, byte 0 (first on the wire) in bits 7..0.",
    MAC_HI @ 0x024 ReadWrite = "Port MAC address, bytes 4..5 in bits 15..0.",
    CMD_OPCODE @ 0x040 WriteOnly = "Writing a command code starts the command with the arguments in the argument window.",
    CMD_STATUS @ 0x044 ReadOnly = "Bit 31: busy. Bits 7..0: result code of the last command.",
    TICK @ 0x048 ReadOnly = "Protocol clock, 64 ns ticks, wraps.",
    CYCLES_LO @ 0x04c ReadOnly = "Core clock cycles since reset, low half; reading it latches the high half.",
    CYCLES_HI @ 0x050 ReadOnly = "Core clock cycles, high half latched by CYCLES_LO.",
}

/// Value of [`MAGIC`].
pub const MAGIC_VALUE: u32 = 0x4d50_5244;
/// Value of [`VERSION`].
pub const VERSION_VALUE: u32 = 0x0001_0002;
/// The first interface version with [`IRQ_INTERVALS`] and the counters of interrupts.
pub const VERSION_MODERATION: u32 = 0x0001_0001;
/// The first interface version whose cards do ATOMICs.
pub const VERSION_ATOMIC: u32 = 0x0001_0002;
/// [`CONTROL`] bit: enable.
pub const CONTROL_ENABLE: u32 = 1 << 0;
/// [`CONTROL`] bit: soft reset.
pub const CONTROL_RESET: u32 = 1 << 1;
/// [`STATUS`] bit: ready.
pub const STATUS_READY: u32 = 1 << 0;
/// [`STATUS`] bit: busy.
pub const STATUS_BUSY: u32 = 1 << 1;
/// [`CMD_STATUS`] bit: a command is running.
pub const CMD_BUSY: u32 = 1 << 31;

/// Interrupt moderation: one register per MSI-X vector, 4 bytes apart, [`crate::config::MSIX_VECTORS`] of them. Bits 15..0:
/// the least time between two interrupts of the vector, in ticks of 64 ns; 0, as after any reset, is none. What comes
/// inside that time waits for its end, and makes one interrupt. A new value counts from the vector's next interrupt on,
/// 0 at once.
pub const IRQ_INTERVALS: u32 = 0x080;
/// Greatest value of a register from [`IRQ_INTERVALS`] on: 4.19 ms.
pub const IRQ_INTERVAL_MAX: u32 = 0xffff;
/// Bytes of the registers from [`IRQ_INTERVALS`] on.
pub const IRQ_INTERVAL_BYTES: u32 = 4 * crate::config::MSIX_VECTORS as u32;

/// Argument window: 32 dwords, written before [`CMD_OPCODE`]. Same bytes as the command's layout.
pub const CMD_ARGS: u32 = 0x100;
/// Result window: 32 dwords, valid when [`CMD_STATUS`] is not busy.
pub const CMD_RESULT: u32 = 0x180;
/// Bytes of the argument and of the result window.
pub const CMD_WINDOW_BYTES: u32 = 128;
/// First counter: 64-bit counters, 8 bytes apart; reading the low half latches the high half. See [`crate::counter`].
pub const COUNTERS: u32 = 0x1000;

/// Size of one doorbell page.
pub const DOORBELL_PAGE: u32 = 0x1000;
/// First EQ doorbell page.
pub const EQ_DOORBELLS: u32 = 0x0008_0000;
/// First CQ doorbell page.
pub const CQ_DOORBELLS: u32 = 0x0010_0000;
/// First QP doorbell page.
pub const QP_DOORBELLS: u32 = 0x0020_0000;

/// In a QP's page: send queue producer index (a free-running 16-bit count, not masked by the ring size).
pub const DB_SQ: u32 = 0x0;
/// In a QP's page: receive queue producer index (free-running, 16 bits).
pub const DB_RQ: u32 = 0x8;
/// In a CQ's page: consumer index (free-running, 16 bits).
pub const DB_CQ_CONSUMER: u32 = 0x0;
/// In a CQ's page: writing arms the CQ: the next CQE beyond the consumer index written raises the CQ's vector.
pub const DB_CQ_ARM: u32 = 0x8;
/// In an EQ's page: consumer index (free-running, 16 bits).
pub const DB_EQ_CONSUMER: u32 = 0x0;

/// Bytes of BAR0 for an image with `1 << qp_log2` queue pairs (a power of two, as PCI wants).
#[must_use]
pub const fn bar0_bytes(qp_log2: usize) -> u64 {
    (QP_DOORBELLS as u64 + ((DOORBELL_PAGE as u64) << qp_log2)).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_ascend_and_are_aligned() {
        for pair in REGISTERS.windows(2) {
            assert!(pair[0].offset < pair[1].offset && pair[1].offset % 4 == 0);
        }
        assert!(REGISTERS.last().unwrap().offset < IRQ_INTERVALS);
        const { assert!(IRQ_INTERVALS + IRQ_INTERVAL_BYTES <= CMD_ARGS) }
    }

    #[test]
    fn bar_sizes() {
        assert_eq!(bar0_bytes(8), 4 << 20);
        assert_eq!(bar0_bytes(10), 8 << 20);
    }
}
