//! The driver of mprdma cards: devices, DMA memory, and a verbs-style interface to queue pairs.
//!
//! The driver does not know whether silicon or a simulator answers: [`device::Device`] is all it sees.
//!
//! ```no_run
//! use mprdma_host::backend::{self, ANSWER_TIMEOUT};
//! use mprdma_host::memory::PageSize;
//! use mprdma_host::verbs::{Access, Context, ContextAttr};
//!
//! # fn main() -> Result<(), mprdma_host::Error> {
//! let address = "vfio-user:/tmp/mprdma-sim/nic0.sock".parse()?;
//! let context = Context::open(backend::open(&address, ANSWER_TIMEOUT)?, &ContextAttr::default())?;
//! let pd = context.alloc_pd()?;
//! let memory = context.allocate(1 << 20, PageSize::Small)?;
//! let region = pd.register(&memory, 0, 1 << 20, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! println!("{} queue pairs; rkey {:#x}", context.capabilities().qps, region.rkey());
//! # Ok(())
//! # }
//! ```

pub mod address;
pub mod backend;
pub mod control;
pub mod device;
pub mod error;
pub mod exchange;
pub mod hugepages;
pub mod memory;
pub mod moderation;
pub mod numa;
pub mod port;
pub mod verbs;

pub use error::Error;
