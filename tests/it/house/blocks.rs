//! Checks that each block of Rust code in `docs` and in the README files is part of a compiled file. An API change that breaks a block then
//! breaks the build.

use super::{LIBRARIES, assert_none, files, read};

/// A code block of a page.
struct Block<'a> {
    /// 1-based line number of the opening fence.
    number: usize,
    /// Language and flags, such as `rust,ignore`.
    info: &'a str,
    lines: Vec<&'a str>,
}

/// Returns the code blocks of a page.
fn blocks(page: &str) -> Vec<Block<'_>> {
    let (mut closed, mut open) = (Vec::new(), None::<Block>);
    for (at, line) in page.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(info)) => open = Some(Block { number: at + 1, info, lines: Vec::new() }),
            (Some(_), Some(_)) => closed.extend(open.take()),
            (Some(block), None) => block.lines.push(line),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "every block is closed");
    closed
}

/// Text that marks a block as not compiled. `#[sqlx::test]` needs a feature of sqlx that the workspace does not enable.
const NOT_COMPILED: &str = "#[sqlx::test]";

/// Returns whether the block is Rust code. A block without a language, or with only a rustdoc flag, is also Rust code.
fn is_rust(block: &Block) -> bool {
    ["rust", "ignore", "no_run", ""].contains(&block.info.split(',').next().unwrap_or_default())
}

/// Joins the non-empty lines without their indentation, so that a block can be found in another text.
fn comparable<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
    let lines = lines.into_iter().map(str::trim).filter(|line| !line.is_empty());
    lines.fold("\n".to_owned(), |text, line| text + line + "\n")
}

/// Returns the comparable texts of compiled code: the files of the examples, and the doctests of the page on testing.
fn compiled() -> Vec<String> {
    let testing = read("queue-core/docs/TESTING.md");
    let doctests = blocks(&testing).into_iter().filter(|block| !block.info.contains("ignore"));
    let doctests = doctests.map(|block| comparable(block.lines));
    files("examples", "rs").iter().map(|(_, text)| comparable(text.lines())).chain(doctests).collect()
}

#[test]
fn every_block_of_rust_in_the_documents_is_compiled() {
    let compiled = compiled();
    let (mut faults, mut seen) = (Vec::new(), 0);
    let readmes = LIBRARIES.iter().map(|library| format!("{library}/README.md")).chain(["README.md".to_owned()]);
    for (path, text) in files("docs", "md").into_iter().chain(readmes.map(|path| (path.clone(), read(path)))) {
        for block in blocks(&text).into_iter().filter(is_rust) {
            seen += 1;
            let (number, code) = (block.number, comparable(block.lines));
            if !code.contains(NOT_COMPILED) && !compiled.iter().any(|text| text.contains(&code)) {
                faults.push(format!("{path}:{number}: no copy of this block is in examples/src/guide"));
            }
        }
    }
    assert!(seen > 60, "only {seen} blocks were found");
    assert_none(&faults, "copy the block, word for word, to the file of its page in examples/src/guide, with the context that it needs");
}

#[test]
fn every_file_of_the_guide_is_compiled() {
    let guide = read("examples/src/guide/mod.rs");
    let pages = files("examples/src/guide", "rs").into_iter().filter_map(|(path, _)| {
        let name = path.rsplit('/').next()?.strip_suffix(".rs")?;
        (name != "mod" && !guide.contains(&format!("\nmod {name};\n"))).then_some(path)
    });
    assert_none(&pages.collect::<Vec<_>>(), "declare it in examples/src/guide/mod.rs");
}

#[test]
fn the_scanner_of_blocks_finds_them() {
    let page = "text\n```rust,ignore\nfn f() {\n\n    g();\n}\n```\n- item\n  ```sh\n  ls\n  ```\n";
    let found: Vec<_> = blocks(page).into_iter().map(|block| (block.number, is_rust(&block), comparable(block.lines))).collect();
    assert_eq!(found, [(2, true, "\nfn f() {\ng();\n}\n".to_owned()), (9, false, "\nls\n".to_owned())]);
}
