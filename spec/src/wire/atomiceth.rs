//! Atomic extended transport header (IBA 9.3.4).

use super::{header, plain_repr};

header! { "AtomicETH", 28 bytes {
    VA va set_va: u64 = 0, 0, 64, "Virtual address of the 8 bytes.";
    RKEY rkey set_rkey: u32 = 8, 0, 32, "Remote key.";
    SWAP_ADD swap_add set_swap_add: u64 = 12, 0, 64, "Value to swap in, or to add.";
    COMPARE compare set_compare: u64 = 20, 0, 64, "Value to compare with.";
} }

plain_repr! {
    /// The header's fields.
    {
        va set_va: u64 = "Virtual address of the 8 bytes.";
        rkey set_rkey: u32 = "Remote key.";
        swap_add set_swap_add: u64 = "Value to swap in (compare and swap), or to add (fetch and add).";
        compare set_compare: u64 = "Value to compare with (compare and swap).";
    }
}
