//! Invalidate extended transport header (IBA 9.3.7).

use super::{header, plain_repr};

header! { "IETH", 4 bytes {
    RKEY rkey set_rkey: u32 = 0, 0, 32, "Remote key to invalidate.";
} }

plain_repr! {
    /// The header's field.
    {
        rkey set_rkey: u32 = "Remote key to invalidate.";
    }
}
