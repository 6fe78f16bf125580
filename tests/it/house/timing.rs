//! Checks that no test asserts a maximum duration or a minimum rate, because such an assertion would test the machine.

use super::{assert_none, sources};

#[test]
fn no_test_asserts_on_how_long_something_took() {
    let mut faults = Vec::new();
    for (path, text) in sources().filter(|(path, _)| !path.contains("/house/") && path != "tests/src/wait.rs") {
        let measured: Vec<&str> = text.lines().filter_map(measured).collect();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| line.contains("assert!(")) {
            let is_bound = |name: &&str| [" <", "] <"].iter().any(|end| line.contains(&format!("{name}{end}")));
            if line.contains(".elapsed() <") || measured.iter().any(is_bound) {
                faults.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert_none(&faults, "assert on counts, on the order of rows or on a lower bound; a figure of a clock belongs to the bench");
}

/// Returns the name of the variable to which a source line assigns an elapsed time, or of the collection to which it pushes one.
fn measured(line: &str) -> Option<&str> {
    let (before, _) = line.split_once(".elapsed()")?;
    let assigned =
        before.trim().strip_prefix("let ").and_then(|rest| rest.split([' ', ':', '=']).find(|word| !word.is_empty() && *word != "mut"));
    let pushed = before.trim().split_once(".push(").map(|(name, _)| name);
    assigned.or(pushed).filter(|name| name.chars().all(|letter| letter.is_alphanumeric() || letter == '_'))
}
