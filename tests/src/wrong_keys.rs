//! A request whose key, address, domain or right is wrong, on either side.

use crate::rig::Side;
use anyhow::Result;
use mprdma_host::memory::{Memory, PageSize};
use mprdma_host::verbs::{Access, Mr, Pd, SendWr};
use std::sync::Arc;

/// A key that no region has.
const NOBODYS: u32 = 0x7f00;

/// The requests, and the regions that some of them name.
pub struct WrongKeys {
    /// A key that nobody has, two addresses outside of the region, another domain's region, and one without the right.
    pub requests: [SendWr; WrongKeys::CASES],
    _regions: [Mr; 2],
    _other_domain: Pd,
}

impl WrongKeys {
    /// How many.
    pub const CASES: usize = 5;

    /// `good` of `side` with what it names there made wrong.
    pub fn local(side: &Side, good: SendWr, outside: [u64; 2]) -> Result<Self> {
        // A region without any right is enough for the source of a WRITE.
        let rights = [Access::NONE, Access::LOCAL_WRITE];
        Self::new(side, good.length, rights, |foreign, no_right| {
            let at = |lkey, addr| SendWr { lkey, addr, ..good };
            [
                at(NOBODYS, good.addr),
                at(good.lkey, outside[0]),
                at(good.lkey, outside[1]),
                at(foreign.lkey(), foreign.addr()),
                at(no_right.lkey(), no_right.addr()),
            ]
        })
    }

    /// `good` of the peer of `side` with what it names there made wrong; it needs the second of `rights`, the first are others.
    pub fn remote(
        side: &Side,
        good: SendWr,
        outside: [u64; 2],
        rights: [Access; 2],
    ) -> Result<Self> {
        Self::new(side, good.length, rights, |foreign, no_right| {
            let at = |rkey, remote_addr| SendWr {
                rkey,
                remote_addr,
                ..good
            };
            [
                at(NOBODYS, good.remote_addr),
                at(good.rkey, outside[0]),
                at(good.rkey, outside[1]),
                at(foreign.rkey(), foreign.addr()),
                at(no_right.rkey(), no_right.addr()),
            ]
        })
    }

    fn new(
        side: &Side,
        bytes: u64,
        [others, right]: [Access; 2],
        requests: impl FnOnce(&Mr, &Mr) -> [SendWr; WrongKeys::CASES],
    ) -> Result<Self> {
        let memory = Arc::new(Memory::allocate(bytes as usize, PageSize::Small)?);
        let other_domain = side.context.alloc_pd()?;
        let foreign = other_domain.register(&memory, 0, bytes as usize, others | right)?;
        let no_right = side.pd.register(&memory, 0, bytes as usize, others)?;
        Ok(Self {
            requests: requests(&foreign, &no_right),
            _regions: [foreign, no_right],
            _other_domain: other_domain,
        })
    }
}
