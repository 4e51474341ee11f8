//! Immediate data (IBA 9.3.6).

use super::{header, plain_repr};

header! { "ImmDt", 4 bytes {
    DATA data set_data: u32 = 0, 0, 32, "Immediate data.";
} }

plain_repr! {
    /// The header's field.
    {
        data set_data: u32 = "Immediate data.";
    }
}
