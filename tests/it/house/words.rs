//! Checks that removed words do not return, and that pages are readable: short paragraphs, links with a target, and tests that exist.

use std::collections::{BTreeMap, BTreeSet};

use super::{DOCUMENTS, LIBRARIES, assert_none, files, first_word, read, root, sources};

/// Words with several meanings or no clear meaning, each with its replacement.
const GONE: [(&str, &str); 33] = [
    ("he", "the noun"),
    ("him", "the noun"),
    ("his", "the noun's"),
    ("she", "the noun"),
    ("her", "the noun's"),
    ("whoever", "the noun"),
    ("whomever", "the noun"),
    ("anew", "again"),
    ("lest", "so that .. not"),
    ("begun_anew", "restarted"),
    ("herald", "notify_waiters"),
    ("stir", "changed"),
    ("called_off", "cancelling"),
    ("call_off", "cancel_running"),
    ("call_off_all", "cancel_running_all"),
    ("take_room", "take_capacity"),
    ("QueueFull", "AtCapacity"),
    ("QFULL", "QCAPA"),
    ("dispatch", "attempt"),
    ("desk", "sender"),
    ("brood", "map_batch"),
    ("let_run", "release_parts"),
    ("look_capacity", "check_capacity"),
    ("meet_lane", "ensure_lane"),
    ("note_act", "record_operation"),
    ("note_ends", "add_end_hints"),
    ("put_chunk", "insert_chunk"),
    ("refuse_option", "reject_option"),
    ("say_jobs", "announce_jobs"),
    ("tell_ends", "consume_end_hints"),
    ("twin_of", "paired_lane"),
    ("why_says", "why_text"),
    ("md5", "sha256: FIPS servers refuse the other"),
];

/// Rejected type names, each with its replacement. A type name must describe what the type holds, finds or runs.
const NO_TYPES: [(&str, &str); 56] = [
    ("Desk", "ReportSender"),
    ("Rig", "TestBackend"),
    ("Ground", "TestServer, DrainConnection or BenchDatabase"),
    ("Sheet", "PayloadBuffer"),
    ("Parcel", "the builder"),
    ("Eye", "JobSubscription"),
    ("Looks", "JobSubscription"),
    ("Ear", "WaiterConnection"),
    ("Sight", "JobSnapshot"),
    ("Fate", "WaitOutcome or GuardResult"),
    ("Stage", "CommitState"),
    ("Held", "LockedJob, or what it holds"),
    ("Found", "ClaimResult, GuardReport, or what was found"),
    ("Running", "HandlerFuture, RunningJob or RunningWorker"),
    ("Keys", "LockedKeys or Unblocker"),
    ("Said", "Report, Response or Message"),
    ("Told", "Notice or Report"),
    ("Taken", "what was taken"),
    ("Asked", "Request or Query"),
    ("Wanted", "Filter or Request"),
    ("Known", "State, Cache or Registry"),
    ("Seen", "State or Snapshot"),
    ("Given", "Parts or Arguments"),
    ("Kept", "what is kept"),
    ("Noted", "Record"),
    ("Checked", "what was checked"),
    ("Left", "what is left"),
    ("Which", "Kind or Filter"),
    ("Can", "the capability"),
    ("Look", "Query, Probe or Check"),
    ("Feed", "ClaimLoop"),
    ("Flight", "InFlightClaim"),
    ("Lineup", "FairQueue"),
    ("Vigil", "PauseWatcher"),
    ("Trial", "TrialResult"),
    ("Bell", "Notifier"),
    ("Ears", "ListenHandle"),
    ("Lookout", "Poller"),
    ("Scout", "Poller"),
    ("Crew", "TaskPool"),
    ("Life", "LeaseDeadline"),
    ("Pulse", "Heartbeat"),
    ("Heart", "HeartbeatLoop"),
    ("Vitals", "LoopHealth"),
    ("Link", "StoreConnection"),
    ("Wires", "ConnectionFactory"),
    ("Exchange", "ConnectionBroker"),
    ("Tallies", "MetricsBuffer"),
    ("Speaker", "MetricsFlusher"),
    ("Teller", "OutcomeObserver"),
    ("Farewell", "DrainNotice"),
    ("Keyhole", "TokenAuth"),
    ("House", "Housekeeper"),
    ("Hands", "the counter"),
    ("Brood", "MapBatch"),
    ("Aside", "RejectedVerdicts"),
];

/// Phrases that hide the noun, each with its replacement.
const PHRASES: [(&str, &str); 8] = [
    ("so many", "the count"),
    ("so long", "the duration"),
    ("what came of", "the outcome of"),
    ("begun anew", "restarted"),
    ("held back", "deferred"),
    ("it is over", "it has finished"),
    ("is said of", "applies to"),
    ("as it were", "nothing"),
];

/// Splits a text into words of letters, digits and underscores.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

/// Returns the name of the type that the line defines.
fn defined(line: &str) -> Option<&str> {
    let mut words = words(line);
    words.find(|word| ["struct", "enum", "type", "trait"].contains(word)).and_then(|_| words.next())
}

#[test]
fn removed_words_do_not_return() {
    let sql = LIBRARIES.into_iter().flat_map(|member| files(member, "sql"));
    let pages = DOCUMENTS.into_iter().flat_map(pages_of).filter(|(path, _)| path != "CHANGELOG.md");
    let (mut faults, mut seen, gone, no_types) = (Vec::new(), 0, BTreeMap::from(GONE), BTreeMap::from(NO_TYPES));
    for (path, text) in sources().chain(sql).chain(pages).filter(|(path, _)| !path.ends_with("house/words.rs")) {
        seen += 1;
        for (number, line) in text.lines().enumerate() {
            for (gone, instead) in words(line).filter_map(|word| gone.get_key_value(word)) {
                faults.push(format!("{path}:{}: `{gone}`: say {instead}", number + 1));
            }
            let phrase = PHRASES.iter().filter(|(gone, _)| line.contains(&format!(" {gone} ")));
            faults.extend(phrase.map(|(gone, instead)| format!("{path}:{}: `{gone}`: say {instead}", number + 1)));
            let defined = defined(line).and_then(|name| no_types.get_key_value(name));
            faults.extend(defined.map(|(name, instead)| format!("{path}:{}: a type `{name}`: say {instead}", number + 1)));
        }
    }
    assert!(seen > 300, "only {seen} files were read");
    assert_none(&faults, "one word, one meaning");
}

/// Returns a page, or all pages of a folder.
fn pages_of(place: &str) -> Vec<(String, String)> {
    if root().join(place).is_file() { vec![(place.to_owned(), read(place))] } else { files(place, "md") }
}

#[test]
fn no_paragraph_is_longer_than_eight_lines() {
    let mut faults = Vec::new();
    for (path, text) in DOCUMENTS.into_iter().flat_map(pages_of) {
        let (mut is_code, mut lines) = (false, 0);
        for (number, line) in text.lines().enumerate() {
            if line.starts_with("```") {
                (is_code, lines) = (!is_code, 0);
                continue;
            }
            let begins = line.trim_start();
            let numbered =
                begins.split_once(". ").is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
            let is_item = begins.starts_with("- ") || begins.starts_with("* ") || numbered;
            lines = match begins.chars().next() {
                _ if is_code => 0,
                None | Some('|' | '#') => 0,
                _ if is_item => 1,
                _ => lines + 1,
            };
            if lines == 9 {
                faults.push(format!("{path}:{}: the ninth line", number + 1));
            }
            if !is_code && line.chars().count() > 150 && !line.starts_with('|') && !line.contains("http") {
                faults.push(format!("{path}:{}: {} characters", number + 1, line.chars().count()));
            }
        }
    }
    let map = read("ARCHITECTURE.md").lines().count();
    faults.extend((map > 150).then(|| format!("ARCHITECTURE.md: {map} lines, where a map has at most 150")));
    assert_none(&faults, "break it, or say less");
}

#[test]
fn links_have_targets_and_tests_named_in_pages_exist() {
    let tests: BTreeSet<String> =
        sources().flat_map(|(_, text)| text.match_indices("fn ").map(|(at, _)| first_word(&text[at + 3..])).collect::<Vec<_>>()).collect();
    let (mut faults, mut links, mut named) = (Vec::new(), 0, 0);
    for (path, text) in DOCUMENTS.into_iter().flat_map(pages_of) {
        let folder = root().join(&path).parent().unwrap().to_owned();
        for (at, _) in text.match_indices("](") {
            let to = text[at + 2..].split([')', '#']).next().unwrap_or_default();
            if !to.is_empty() && !to.starts_with("http") && !to.starts_with("crate::") {
                links += 1;
                faults.extend((!folder.join(to).exists()).then(|| format!("{path}: a link to {to}")));
            }
        }
        // A test is named as `module::name_of_the_test`, or abbreviated with `..`.
        for name in text.split('`').skip(1).step_by(2).filter(|code| path.starts_with("docs/protocol/") && code.contains("::")) {
            let name = name.rsplit("::").next().unwrap_or_default();
            let (short, is_short) = name.strip_suffix("..").map_or((name, false), |short| (short, true));
            let is_test = short.len() >= 15 && short.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
            if is_test {
                named += 1;
                let exists = if is_short { tests.iter().any(|test| test.starts_with(short)) } else { tests.contains(short) };
                faults.extend((!exists).then(|| format!("{path}: there is no test {name}")));
            }
        }
    }
    assert!(links > 20 && named > 20, "only {links} links and {named} tests were found");
    assert_none(&faults, "pages are kept true");
}
