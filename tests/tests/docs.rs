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

#[test]
fn wireshark_dissector_is_current() {
    let path = mprdma_tests::dissector::path();
    let text = std::fs::read_to_string(path).expect("scripts/wireshark/mprdma.lua");
    assert!(
        text == mprdma_tests::dissector::current(&text).expect("a place for the generated part"),
        "scripts/wireshark/mprdma.lua is old: run `make docs`"
    );
}
