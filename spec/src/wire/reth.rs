//! RDMA extended transport header (IBA 9.3.3).

use super::{header, plain_repr};

header! { "RETH", 16 bytes {
    VA va set_va: u64 = 0, 0, 64, "Virtual address; in MP mode that of this packet's payload.";
    RKEY rkey set_rkey: u32 = 8, 0, 32, "Remote key.";
    LENGTH length set_length: u32 = 12, 0, 32, "DMA length in bytes; in MP mode that of this packet's payload.";
} }

plain_repr! {
    /// The header's fields.
    {
        va set_va: u64 = "Virtual address; in an MP WRITE that of this packet's own payload.";
        rkey set_rkey: u32 = "Remote key.";
        length set_length: u32 = "DMA length in bytes; in an MP WRITE that of this packet's own payload.";
    }
}
