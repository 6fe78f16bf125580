//! `#[job]`: what it accepts works, and what it refuses is answered with one message for each mistake.
//!
//! After a change of a message: `TRYBUILD=overwrite cargo test -p tests --test it macros`, and read the difference.

#[test]
fn compile_cases() {
    let cases = trybuild::TestCases::new();
    cases.pass("ui/pass/*.rs");
    cases.compile_fail("ui/fail/*.rs");
}
