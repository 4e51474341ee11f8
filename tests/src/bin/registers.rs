//! Prints `docs/registers.md`.
fn main() {
    print!("{}", mprdma_tests::registers::markdown());
}
