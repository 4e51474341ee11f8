//! The documentation that is generated must be what the code says.

#[test]
fn registers_md_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/registers.md");
    let text = std::fs::read_to_string(path).expect("docs/registers.md");
    assert!(
        text == mprdma_tests::registers::markdown(),
        "docs/registers.md is old: run `make docs`"
    );
}
