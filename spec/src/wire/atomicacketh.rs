//! Atomic acknowledge extended transport header (IBA 9.3).

use super::{header, plain_repr};

header! { "AtomicAckETH", 8 bytes {
    ORIGINAL original set_original: u64 = 0, 0, 64, "What the memory held before.";
} }

plain_repr! {
    /// The header's field.
    {
        original set_original: u64 = "What the memory held before.";
    }
}
