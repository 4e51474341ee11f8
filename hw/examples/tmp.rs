use mprdma_hw::prelude::*;
use mprdma_hw::nic::*;
fn show<B: Block>(mut b: B, n: &str) {
    b.connect_all();
    match mprdma_hw::verilog::generate(&b, n) { Ok(t) => std::fs::write(format!("/tmp/v/{n}.v"), t).unwrap(), Err(e) => println!("{n}: {e}") }
}
fn main() { mprdma_hw::with_big_stack(|| {
    show(mr_table::MrTable::<8>::default(), "mr_table");
    show(cq_writer::CqWriter::<6>::default(), "cq_writer");
    show(eq_writer::EqWriter::default(), "eq_writer");
    show(control::Registers::<10>::new(&mprdma_spec::config::SIM), "registers");
}) }
