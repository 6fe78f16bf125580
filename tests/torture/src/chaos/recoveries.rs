//! Measures the recovery times of jobs whose worker was killed or stopped. A recovery time is the time from the fault until the job starts
//! in another process.

use std::collections::{HashMap, HashSet};

use serde::Serialize;

use super::{
    history::{Entry, Line},
    inject::Fault,
    plan::Kind,
};

/// Statistics of the recovery times.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Recoveries {
    pub(super) count: usize,
    pub(super) p50_ms: u64,
    pub(super) p99_ms: u64,
    pub(super) max_ms: u64,
    /// Number of recoveries during which the server was down, jobs were paused, or either had ended less than a second before. The queue
    /// is not responsible for these recovery times.
    pub(super) count_with_outage: usize,
    pub(super) max_with_outage_ms: u64,
}

pub(super) fn measure(history: &[Entry], faults: &[Fault]) -> Recoveries {
    let mut starts: HashMap<u64, Vec<(u64, &str)>> = HashMap::new();
    // Jobs that failed, each with the process of the failed attempt. Their recovery is not measured, because the verdict may have been in
    // flight when the fault occurred. Such a job waits at the end of the queue like any retry.
    let mut failed: HashSet<(u64, &str)> = HashSet::new();
    for entry in history {
        match entry.line {
            Line::Start(n, _, _) => starts.entry(n).or_default().push((entry.at, &entry.who)),
            Line::End(n, _, _, false) => drop(failed.insert((n, &entry.who))),
            _ => {}
        }
    }
    let away = |from: u64, until: u64| {
        faults.iter().any(|fault| matches!(fault.kind, Kind::Server | Kind::Pause) && fault.from < until && fault.until + 1_000_000 > from)
    };
    let (mut times, mut with_outage) = (Vec::new(), Vec::new());
    for fault in faults.iter().filter(|fault| matches!(fault.kind, Kind::Kill | Kind::Stop)) {
        for n in fault.held.iter().filter(|n| !failed.contains(&(**n, fault.who.as_str()))) {
            let elsewhere = |(at, who): &&(u64, &str)| *at > fault.from && *who != fault.who;
            // A job whose verdict was sent before the fault does not start in another process, so it has no recovery time.
            let Some((at, _)) = starts.get(n).and_then(|starts| starts.iter().find(elsewhere)) else { continue };
            let ms = (at - fault.from) / 1000;
            if away(fault.from, *at) { with_outage.push(ms) } else { times.push(ms) }
        }
    }
    times.sort_unstable();
    let rank = |share: f64| times.get(((times.len() as f64 * share).ceil() as usize).saturating_sub(1)).copied().unwrap_or(0);
    Recoveries {
        count: times.len(),
        p50_ms: rank(0.5),
        p99_ms: rank(0.99),
        max_ms: times.last().copied().unwrap_or(0),
        count_with_outage: with_outage.len(),
        max_with_outage_ms: with_outage.iter().max().copied().unwrap_or(0),
    }
}
