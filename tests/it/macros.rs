//! Tests `#[job]`: valid input works, and each mistake is rejected with one message.
//!
//! After changing a message, run `UI_OVERWRITE=1 cargo ui` and review the diff.

mod compile;

use std::{fs, path::Path};

use compile::{Compiler, each};

#[test]
#[ignore = "ui: runs rustc"]
fn what_the_macro_accepts_compiles_and_works() {
    let compiler = Compiler::find();
    let faults = each("ui/pass", |case| match compiler.build(case) {
        Ok(program) => compile::run(&program),
        Err(error) => Err(error),
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
#[ignore = "ui: runs rustc"]
fn what_the_macro_refuses_has_the_expected_message() {
    let compiler = Compiler::find();
    let overwrite = std::env::var_os("UI_OVERWRITE").is_some();
    let faults = each("ui/fail", |case| {
        let Err(error) = compiler.check(case) else { return Err("it compiles".to_owned()) };
        let written = Path::new(case).with_extension("stderr");
        if overwrite {
            fs::write(&written, &error).unwrap();
        }
        let expected = fs::read_to_string(&written).unwrap_or_default();
        if error == expected { Ok(()) } else { Err(format!("expected:\n{expected}\nbut rustc prints:\n{error}")) }
    });
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_expected_message_belongs_to_a_case() {
    for entry in fs::read_dir("ui/fail").unwrap() {
        let path = entry.unwrap().path();
        let case = path.with_extension("");
        assert!(case.with_extension("rs").exists() && case.with_extension("stderr").exists(), "{}", path.display());
    }
}
