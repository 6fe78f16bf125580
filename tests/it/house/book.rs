//! Checks that `docs/SUMMARY.md` lists every page once, and that `docs/TESTING.md` is a copy of `queue-core/docs/TESTING.md`.

use std::collections::BTreeMap;

use super::{assert_none, files, read};

#[test]
fn the_book_has_every_page_once() {
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    for line in read("docs/SUMMARY.md").lines() {
        let Some((_, rest)) = line.split_once("](") else { continue };
        *listed.entry(format!("docs/{}", rest.trim_end_matches(')'))).or_default() += 1;
    }
    let pages: Vec<String> = files("docs", "md").into_iter().map(|(path, _)| path).filter(|path| path != "docs/SUMMARY.md").collect();
    assert!(pages.len() > 50, "only {} pages", pages.len());
    let mut faults: Vec<String> =
        listed.iter().filter(|(_, count)| **count > 1).map(|(path, _)| format!("{path} is listed twice")).collect();
    faults.extend(pages.iter().filter(|page| !listed.contains_key(*page)).map(|page| format!("{page} is not listed")));
    faults.extend(listed.keys().filter(|path| !pages.contains(path)).map(|path| format!("{path} does not exist")));
    assert_none(&faults, "docs/SUMMARY.md is the order of the pages");
}

#[test]
fn the_page_on_testing_is_that_of_the_test_kit() {
    assert_eq!(read("docs/TESTING.md"), read("queue-core/docs/TESTING.md"), "the second file is compiled, and part of the package");
}
