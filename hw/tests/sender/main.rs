//! The sender engine against its model.

#[allow(dead_code, unused_macros)]
#[path = "../leaf/support.rs"]
mod support;

mod compare;
mod lockstep;
mod traffic;
