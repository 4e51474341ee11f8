//! Memory regions: which addresses a key opens.

use super::StandIn;
use mprdma_model::receiver::MrAnswer;
use mprdma_spec::command::mr_image;

/// One entry of the table.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Region {
    pub exists: bool,
    pub generation: u8,
    rights: u8,
    pd: u16,
    va: u64,
    iova: u64,
    length: u64,
}

impl Region {
    pub(super) fn read(image: &[u8]) -> Region {
        Region {
            exists: true,
            generation: mr_image::KEY.get(image) as u8,
            rights: mr_image::RIGHTS.get(image) as u8,
            pd: mr_image::PD.get(image) as u16,
            va: mr_image::VA.get(image),
            iova: mr_image::IOVA.get(image),
            length: mr_image::LENGTH.get(image),
        }
    }

    /// Whether neither of its ranges wraps around the end of the address space.
    pub(super) fn is_whole(&self) -> bool {
        let whole = |start: u64| start.checked_add(self.length).is_some();
        whole(self.va) && whole(self.iova)
    }
}

impl StandIn {
    /// Answers whether `key` opens a range. A length of 0 needs its address inside or right after the region.
    pub(super) fn look_up(&self, key: u32, va: u64, length: u32) -> MrAnswer {
        let Some(region) = self.tables.regions.get((key >> 8) as usize) else {
            return MrAnswer::default();
        };
        let offset = va.wrapping_sub(region.va);
        let inside =
            va >= region.va && offset < 1 << 48 && offset + u64::from(length) <= region.length;
        MrAnswer {
            hit: region.exists && region.generation == key as u8 && inside,
            rights: region.rights,
            pd: region.pd,
            iova: region.iova.wrapping_add(offset),
        }
    }
}
