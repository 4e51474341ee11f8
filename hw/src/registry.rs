//! Every block that is printed, checked and shipped, by name.

use crate::dma;
use crate::leaf;
use crate::nic;
use crate::nic::types;
use crate::verilog::{generate, PrintError};
use mprdma_spec::config::{Config, SIM, SIM_L64};
use rust_hdl_core::prelude::*;
use thiserror::Error;

/// Name of the block that is the whole core.
pub const TOP: &str = "mprdma_core";

/// The named configurations.
pub const CONFIGS: &[Config] = &[SIM, SIM_L64];

/// A block and how to make it.
#[derive(Clone, Copy)]
pub struct BlockInfo {
    /// Name of the printed top module.
    pub name: &'static str,
    /// One line on what it is.
    pub about: &'static str,
    make: fn(&Config) -> Result<Box<dyn Block>, RegistryError>,
}

/// Why a block cannot be made or printed.
#[derive(Debug, Error)]
pub enum RegistryError {
    #[error("no block `{0}`; `--list` shows them")]
    NoBlock(String),
    #[error("no configuration `{0}`")]
    NoConfig(String),
    #[error("`{parameter}` = {value} is not built into this generator; there are {supported:?}")]
    Size {
        parameter: &'static str,
        value: usize,
        supported: &'static [usize],
    },
    #[error("no core is built into this generator for the sizes of configuration `{0}`")]
    NoCore(&'static str),
    #[error(transparent)]
    Print(#[from] PrintError),
}

impl BlockInfo {
    /// Makes and connects the block. Call it inside [`crate::with_big_stack`].
    pub fn build(&self, config: &Config) -> Result<Box<dyn Block>, RegistryError> {
        let mut block = (self.make)(config)?;
        block.connect_all();
        Ok(block)
    }

    /// The Verilog of the block. Call it inside [`crate::with_big_stack`].
    pub fn verilog(&self, config: &Config) -> Result<String, RegistryError> {
        Ok(generate(self.build(config)?.as_ref(), self.name)?)
    }
}

/// A block whose size does not depend on the configuration.
macro_rules! fixed {
    ($name:literal, $about:literal, $make:expr) => {
        BlockInfo {
            name: $name,
            about: $about,
            make: |_| Ok(Box::new($make)),
        }
    };
}

/// A block with a const generic taken from the configuration: one of the listed values.
macro_rules! sized {
    ($name:literal, $about:literal, |$config:ident| $field:ident in [$($size:literal),+], $n:ident => $make:expr) => {
        BlockInfo {
            name: $name,
            about: $about,
            make: |$config| match $config.$field {
                $($size => {
                    const $n: usize = $size;
                    Ok(Box::new($make))
                })+
                value => Err(RegistryError::Size {
                    parameter: stringify!($field),
                    value,
                    supported: &[$($size),+],
                }),
            },
        }
    };
}

/// All blocks, leaves first.
pub fn blocks() -> Vec<BlockInfo> {
    use leaf::{
        Arbiter3, AsyncFifo, Beat, Crc32Stream, Delay, Lfsr, Mul16, PacketFifo, Prepend, Ram,
        RamStyle, Realign, Skid, SyncFifo, TimerWheel,
    };
    vec![
        fixed!(
            "leaf_ram",
            "block RAM of 64 beats with an output register",
            Ram::<Beat, 6>::new(RamStyle::Block, true)
        ),
        fixed!(
            "leaf_skid",
            "two-entry stream buffer",
            Skid::<Beat>::default()
        ),
        fixed!(
            "leaf_sync_fifo",
            "FIFO of 512 beats in block RAM",
            SyncFifo::<Beat, 9>::deep()
        ),
        fixed!(
            "leaf_packet_fifo",
            "FIFO that drops whole packets",
            PacketFifo::<9>::default()
        ),
        fixed!(
            "leaf_async_fifo",
            "FIFO between two clocks",
            AsyncFifo::<Beat, 5>::default()
        ),
        fixed!(
            "leaf_arbiter",
            "three-way stream arbiter",
            Arbiter3::<Beat>::default()
        ),
        fixed!("leaf_mul16", "16 x 16 bit multiplier", Mul16::default()),
        fixed!("leaf_lfsr", "random numbers", Lfsr::default()),
        fixed!("leaf_delay", "five-cycle delay", Delay::<Bits<24>>::new(5)),
        fixed!(
            "leaf_crc32",
            "CRC-32 of a 512-bit stream",
            Crc32Stream::default()
        ),
        fixed!(
            "leaf_realign",
            "cuts bytes from the front of packets",
            Realign::default()
        ),
        fixed!(
            "leaf_prepend",
            "puts a header before packets",
            Prepend::default()
        ),
        fixed!(
            "leaf_timer_wheel",
            "timers of 1024 queue pairs",
            TimerWheel::<10, 8>::default()
        ),
        sized!("registers", "AXI4-Lite registers, doorbells, commands, counters",
            |config| qp_log2 in [10], QPW => nic::control::Registers::<{ QPW + 2 }>::new(config)),
        sized!("sq_fetch", "fetches send work requests",
            |config| qp_log2 in [10], QPW => nic::sq_fetch::SqFetch::<QPW, { QPW + 1 }>::default()),
        sized!("segment", "cuts messages into packets",
            |config| qp_log2 in [10], QPW => nic::segment::Segment::<QPW, { QPW + 6 }>::default()),
        sized!("tx_build", "builds frames", |config| qp_log2 in [10], QPW => nic::tx_build::TxBuild::<QPW>::default()),
        sized!("tx_complete", "completes send work requests",
            |config| qp_log2 in [10], QPW => nic::tx_complete::TxComplete::<QPW, { QPW + 6 }>::default()),
        sized!("receiver", "receiver engine, 64 or 128 slots",
            |config| bitmap_slots in [64, 128], L => nic::receiver::ReceiverEngine::<10, L>::default()),
        sized!("mr_table", "memory region table", |config| mr_log2 in [8], MRW => nic::mr_table::MrTable::<MRW>::default()),
        sized!("rx_classify", "sorts received packets", |config| qp_log2 in [10], QPW => nic::rx_classify::RxClassify::<QPW>::default()),
        sized!("cq_writer", "writes completions", |config| cq_log2 in [6], CQW => nic::cq_writer::CqWriter::<CQW>::default()),
        fixed!(
            "eq_writer",
            "writes asynchronous events",
            nic::eq_writer::EqWriter::default()
        ),
        fixed!(
            "dma_read",
            "reads of host memory for three clients",
            dma::DmaRead::default()
        ),
        fixed!(
            "dma_write",
            "writes of host memory for four clients, and interrupts",
            dma::DmaWrite::default()
        ),
        fixed!(
            "atomic_unit",
            "executes ATOMICs of the peers",
            nic::atomic_unit::AtomicUnit::default()
        ),
        fixed!(
            "moderator",
            "keeps interrupts of a vector apart",
            nic::moderator::Moderator::default()
        ),
        sized!("sender", "sender engine, 64 or 128 slots",
            |config| bitmap_slots in [64, 128], L => nic::sender::Sender::<10, L>::default()),
        sized!("rx_parse", "takes received frames apart",
            |config| bitmap_slots in [64, 128], L => nic::rx_parse::RxParse::<10>::new(L)),
        sized!("telemetry", "counts per queue pair and per virtual path",
            |config| qp_log2 in [10], QPW => nic::telemetry::Telemetry::<QPW>::default()),
        sized!("read_book", "open READs and ATOMICs of both directions",
            |config| qp_log2 in [10], QPW => nic::read_book::ReadBook::<QPW, { QPW + 1 }, { QPW + 4 }>::default()),
        sized!("place", "received payloads, ACKs and completions, in order",
            |config| qp_log2 in [10], QPW => nic::place::Place::<QPW, { QPW + 5 }>::default()),
        BlockInfo {
            name: TOP,
            about: "the whole NIC",
            make: |config| match (
                config.qp_log2,
                config.cq_log2,
                config.mr_log2,
                config.bitmap_slots,
            ) {
                (10, 6, 8, 128) => Ok(Box::new(nic::core::SimCore::new(config))),
                (10, 6, 8, 64) => Ok(Box::new(nic::core::SimL64Core::new(config))),
                _ => Err(RegistryError::NoCore(config.name)),
            },
        },
    ]
}

/// The block called `name`.
pub fn find(name: &str) -> Result<BlockInfo, RegistryError> {
    blocks()
        .into_iter()
        .find(|block| block.name == name)
        .ok_or_else(|| RegistryError::NoBlock(name.to_string()))
}

/// The configuration called `name`.
pub fn config(name: &str) -> Result<Config, RegistryError> {
    CONFIGS
        .iter()
        .find(|config| config.name == name)
        .copied()
        .ok_or_else(|| RegistryError::NoConfig(name.to_string()))
}

macro_rules! records {
    ($($record:ty),+ $(,)?) => {
        vec![$(<$record>::descriptor()),+]
    };
}

/// The records that travel between blocks and the contexts that lie in RAM.
pub fn records() -> Vec<TypeDescriptor> {
    records![
        types::Doorbell,
        types::CfgReq,
        types::Launch,
        types::Work,
        types::QpMark,
        types::SenderNote,
        types::ReceiverNote,
        types::Retired,
        types::AckEvent,
        types::QpError,
        types::Grant,
        types::Progress,
        types::PacketCmd,
        types::AckCmd,
        types::RxMeta,
        types::MrQuery,
        types::MrAnswer,
        types::ReadQuery,
        types::ReadEvent,
        types::Respond,
        types::Responded,
        types::AtomicOp,
        types::AtomicResult,
        types::RxEvent,
        types::RxAction,
        types::Completion,
        types::AsyncEvent,
        types::DmaReadReq,
        types::DmaWriteReq,
        nic::receiver::records::ReceiverState,
        nic::read_book::ReadState,
        nic::telemetry::SenderTally,
        nic::telemetry::ReceiverTally,
        nic::telemetry::VpTally,
    ]
}
