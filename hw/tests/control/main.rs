//! Tests of the blocks that software talks to: registers, commands, memory regions, completion and event queues.

mod cq_writer;
mod eq_writer;
mod lint;
mod moderator;
mod mr_table;
mod registers;
mod simulators;
mod support;
