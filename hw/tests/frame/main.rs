//! The frame builder and the frame parser against `spec::wire`.

mod loopback;
mod rx;
mod support;
mod tx;
