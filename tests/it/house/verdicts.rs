//! Checks which files decide and name verdicts, that attempts do not touch the database, and that no decision depends on the worker's
//! clock.

use queue_core::runner::Ending;

use super::{assert_none, library_code, read};

#[test]
fn an_attempt_never_touches_the_database() {
    let (mut faults, mut seen) = (Vec::new(), 0);
    for (path, text) in library_code().filter(|(path, _)| path.starts_with("queue-core/src/attempt/")) {
        seen += 1;
        for word in ["sqlx", "connect", "include_str", "PgConnection", "PgPool", "pool()", "query"] {
            faults.extend(text.contains(word).then(|| format!("{path} names `{word}`")));
        }
    }
    assert!(seen >= 3, "only {seen} files were read");
    assert_none(&faults, "jobs come in, verdicts go out");
}

#[test]
fn f29_the_protocol_never_reads_the_clock_of_the_worker() {
    let rooms =
        ["queue-worker/src/", "queue-core/src/attempt/", "queue-core/src/context/", "queue-core/src/define/", "queue-core/src/finish.rs"];
    // Log lines and pages show times to people only, so no decision depends on these times.
    let shown = ["queue-worker/src/cli/", "queue-worker/src/logs.rs"];
    let protocol = library_code()
        .filter(|(path, _)| rooms.iter().any(|room| path.starts_with(room)) && !shown.iter().any(|shown| path.starts_with(shown)));
    let (mut uses, mut seen) = (Vec::new(), 0);
    for (path, text) in protocol {
        seen += 1;
        let clocks = ["SystemTime", "Utc::now", "Local::now"];
        uses.extend(clocks.iter().filter(|clock| text.contains(**clock)).map(|clock| format!("{path}: {clock}")));
    }
    assert!(seen > 20, "only {seen} files were read");
    assert_none(&uses, "take the time from the database, or measure with `Instant`");
}

/// Path of the file that decides between a retry and a dead letter.
const RETRY: &str = "queue-core/src/define/retry.rs";

/// Path of the file that maps a verdict to the names and columns that a settle statement takes.
const ENDING: &str = "queue-core/src/define/ending.rs";

#[test]
fn only_retry_decides_between_a_retry_and_a_dead_letter() {
    let (mut faults, mut patterns) = (Vec::new(), 0);
    for (path, text) in library_code().filter(|(path, _)| path != RETRY) {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| line.contains("Verdict::Retry") || line.contains("Verdict::Dead"))
        {
            // Left of an arrow, in `matches!` or after `let`, the verdict is a pattern and is not constructed.
            let last = line.rfind("Verdict::Retry").max(line.rfind("Verdict::Dead")).unwrap_or_default();
            if line[last..].contains("=>") || line.contains("matches!(") || line.contains("let Verdict::") {
                patterns += 1;
            } else {
                faults.push(format!("{path}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(patterns > 0, "an ending matches its verdict");
    assert_none(&faults, "ask `queue_core::options::verdict`");
}

#[test]
fn only_an_ending_has_a_word_for_a_verdict_and_no_match_skips_one() {
    let (mut faults, mut seen) = (Vec::new(), 0);
    for (path, text) in library_code() {
        for arms in matches(&text).filter(|arms| arms.iter().any(|(pattern, _)| pattern.contains("Verdict::"))) {
            seen += 1;
            for (pattern, value) in arms {
                let is_name = pattern.chars().all(|letter| letter.is_lowercase() || letter == '_');
                if is_name {
                    faults.push(format!("{path}: `{pattern} =>` would stand for a verdict that is added"));
                }
                if path != ENDING && pattern.contains("Verdict::") && value.starts_with('"') {
                    faults.push(format!("{path}: {value} is matched on {pattern}: use its ending"));
                }
            }
        }
    }
    assert!(seen >= 2, "only {seen} matches over verdicts were found");
    assert_none(&faults, "adding a verdict must not compile until all that must know it do");
}

/// Returns the arms of every `match`, each as its pattern and the start of its expression.
fn matches(text: &str) -> impl Iterator<Item = Vec<(String, String)>> {
    text.match_indices("match ").filter_map(|(at, _)| {
        let body = &text[at + text[at..].find('{')? + 1..];
        let (mut depth, mut arms, mut pattern) = (0, Vec::new(), String::new());
        let mut letters = body.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '{' | '(' | '[' => depth += 1,
                '}' | ')' | ']' if depth == 0 => break,
                '}' | ')' | ']' => depth -= 1,
                '=' if depth == 0 && body[at..].starts_with("=>") => {
                    letters.next();
                    arms.push((std::mem::take(&mut pattern).trim().to_owned(), body[at + 2..].trim_start().chars().take(40).collect()));
                    continue;
                }
                _ => {}
            }
            // An arm in braces is not followed by a comma.
            if depth == 0 && (letter == ',' || letter == '}') { pattern.clear() } else { pattern.push(letter) }
        }
        Some(arms)
    })
}

#[test]
fn the_scanner_of_matches_finds_arms_that_skip_a_verdict() {
    let text =
        "match verdict { Verdict::Retry(wait) => { f(wait, x) } Verdict::Dead | Verdict::Cancel => \"dead\", other => g(other), _ => h }";
    let arms = matches(text).next().unwrap();
    let patterns: Vec<&str> = arms.iter().map(|(pattern, _)| pattern.as_str()).collect();
    assert_eq!(patterns, ["Verdict::Retry(wait)", "Verdict::Dead | Verdict::Cancel", "other", "_"]);
    assert!(arms[1].1.starts_with("\"dead\""), "{arms:?}");
}

/// A statement that does not handle a verdict would delete the job's lease or entry without writing a new entry.
#[test]
fn the_statements_that_end_jobs_know_every_word_of_a_verdict() {
    for path in ["queue-worker/sql/settle.sql", "queue-core/testing/finish_one.sql"] {
        let text = read(path);
        // Jobs without a record are settled by separate statements, which take no verdict name.
        let words = Ending::VERDICT_NAMES.into_iter().filter(|word| *word != "forget");
        let unknown: Vec<&str> = words.filter(|word| !text.contains(&format!("'{word}'"))).collect();
        assert!(unknown.is_empty(), "{path} knows nothing of {unknown:?}");
    }
}

#[test]
fn no_product_file_knows_a_seeded_bug() {
    let mut faults = Vec::new();
    for (path, text) in library_code() {
        for word in ["feature = \"mutants\"", "bug(\"", "QUEUE_BUG", "seeded"] {
            faults.extend(text.contains(word).then(|| format!("{path} names `{word}`")));
        }
    }
    for member in ["queue-core", "queue-macros", "queue-worker"] {
        let manifest = read(format!("{member}/Cargo.toml"));
        faults.extend(manifest.contains("mutants = ").then(|| format!("{member} has a feature `mutants` that a release could turn on")));
    }
    assert_none(&faults, "seeded bugs are of the torture crate, and put in from outside");
}
