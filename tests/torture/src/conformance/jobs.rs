//! The job types of a run. Their handlers are in `handlers`.

use std::collections::BTreeMap;

use queue_core::{Of, job};
use serde::{Deserialize, Serialize};

/// Returns its payload.
#[job(name = "conf_echo", output = String)]
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Echo {
    pub(super) text: String,
}

pub(super) fn echo(text: impl Into<String>) -> Echo {
    Echo { text: text.into() }
}

/// Does not complete at its first attempt.
#[job(name = "conf_try", output = u32, max_attempts = 2, backoff = fixed("20ms"), timeout = "500ms", aliases = ["conf_tried_before"])]
#[derive(Serialize, Deserialize)]
pub(super) struct Try {
    pub(super) first: First,
}

/// What the first attempt does instead. `Always` applies to each attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum First {
    Complete,
    Fail,
    Panic,
    Hang,
    RetryIn,
    SlowDown,
    Snooze,
    Terminal,
    Always,
}

/// Reports progress until it is cancelled.
#[job(name = "conf_slow", output = String, max_attempts = 3, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Slow {
    pub(super) ms: u64,
}

/// Saves a checkpoint at its first attempt, and returns it at the next.
#[job(name = "conf_checkpoint", output = u32, max_attempts = 2, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Checkpointed {}

/// Returns what the context reports about its job.
#[job(name = "conf_context", output = BTreeMap<String, String>, max_attempts = 7)]
#[derive(Serialize, Deserialize)]
pub(super) struct ContextReport {}

/// Writes a user row in the transaction of its claim and its completion.
#[job(name = "conf_within", transactional, output = i64, max_attempts = 2, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Within {
    pub(super) n: i64,
    pub(super) fails_first: bool,
}

/// Writes a user row and enqueues another job in one commit with its completion.
#[job(name = "conf_own", output = i64, max_attempts = 2, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Own {
    pub(super) n: i64,
    pub(super) dies: bool,
}

/// Runs in batches. Jobs with a negative number die.
#[job(name = "conf_batch", batch = 20, batch_wait = "100ms", output = usize, max_attempts = 2, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Together {
    pub(super) n: i64,
}

/// Fails once between its steps.
#[job(name = "conf_steps", durable, output = Vec<u64>, max_attempts = 3, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Steps {}

/// Sleeps too long to wait in place.
#[job(name = "conf_sleeps", durable, output = u64)]
#[derive(Serialize, Deserialize)]
pub(super) struct Sleeps {
    pub(super) ms: u64,
}

/// Waits for a signal, with or without a timeout.
#[job(name = "conf_receives", durable, output = Option<String>)]
#[derive(Serialize, Deserialize)]
pub(super) struct Receives {
    pub(super) timeout_ms: Option<u64>,
}

/// Restarts until no rounds are left.
#[job(name = "conf_anew", durable, output = u32)]
#[derive(Serialize, Deserialize)]
pub(super) struct Restarting {
    pub(super) left: u32,
    pub(super) rounds: u32,
}

/// Spawns a child that completes and one that dies.
#[job(name = "conf_parent", durable, output = Vec<String>)]
#[derive(Serialize, Deserialize)]
pub(super) struct Parent {}

/// Waits for a child that no worker runs.
#[job(name = "conf_waits", durable)]
#[derive(Serialize, Deserialize)]
pub(super) struct Waits {}

/// Maps with a limited number of parts in flight. Every third part dies.
#[job(name = "conf_mapper", durable, output = Mapped)]
#[derive(Serialize, Deserialize)]
pub(super) struct Mapper {
    pub(super) parts: u32,
    pub(super) most: u32,
}

/// Result of a map.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mapped {
    pub(super) total: u64,
    pub(super) completed: u64,
    pub(super) dead: u64,
    pub(super) outputs: Vec<Option<u32>>,
}

/// One part of a map, or of a node with many jobs.
#[job(name = "conf_piece", output = u32, max_attempts = 1)]
#[derive(Serialize, Deserialize)]
pub(super) struct Piece {
    pub(super) n: u32,
    pub(super) dies: bool,
}

/// Waits for two other jobs of a flow, and receives their results.
#[job(name = "conf_both", output = String)]
#[derive(Serialize, Deserialize)]
pub(super) struct Both {
    pub(super) left: Of<String>,
    pub(super) right: Of<String>,
}

/// Receives the result of the job before it, if that completed.
#[job(name = "conf_after", output = String)]
#[derive(Serialize, Deserialize)]
pub(super) struct After {
    pub(super) before: Of<u32>,
}

/// Receives the outcome counts of a node with many jobs.
#[job(name = "conf_counted", output = u64)]
#[derive(Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) counts: Of<queue_core::Counts>,
}

/// Fair queueing by tenant.
#[job(name = "conf_fair", fair = self.tenant)]
#[derive(Serialize, Deserialize)]
pub(super) struct Fair {
    pub(super) tenant: String,
    pub(super) n: u32,
}

/// Ordered by key.
#[job(name = "conf_keyed", key = self.key)]
#[derive(Serialize, Deserialize)]
pub(super) struct Keyed {
    pub(super) key: String,
    pub(super) n: u32,
}

/// One queued job per customer.
#[job(name = "conf_unique", unique(fields(customer), while = queued, on_conflict = replace))]
#[derive(Serialize, Deserialize)]
pub(super) struct OneEach {
    pub(super) customer: u32,
    pub(super) text: String,
}

/// One running job across all workers.
#[job(name = "conf_limited", limit(concurrency = 1), limit(name = "conf_service", key = self.account, concurrency = 2))]
#[derive(Serialize, Deserialize)]
pub(super) struct Limited {
    pub(super) account: String,
    pub(super) n: u32,
}

/// Writes to its log.
#[job(name = "conf_logs", keep_logs = "4KiB", max_attempts = 1)]
#[derive(Serialize, Deserialize)]
pub(super) struct LogWriter {}

/// Has a second version, which reads payloads of the first.
#[job(name = "conf_versioned", version = 2, upgrade = from_one, output = String)]
#[derive(Serialize, Deserialize)]
pub(super) struct Versioned {
    pub(super) words: Vec<String>,
}

#[derive(Deserialize)]
struct One {
    word: String,
}

fn from_one(one: One) -> Versioned {
    Versioned { words: vec![one.word] }
}

/// Stored encrypted.
#[job(name = "conf_sealed", seal = "conformance", output = usize)]
#[derive(Serialize, Deserialize)]
pub(super) struct Sealed {
    pub(super) card: String,
}

/// Leaves no record.
#[job(name = "conf_gone", retain = "none")]
#[derive(Serialize, Deserialize)]
pub(super) struct Gone {}

/// Relaxed durability and a start deadline.
#[job(name = "conf_relaxed", durability = relaxed, expires = "1h", priority = 30)]
#[derive(Serialize, Deserialize)]
pub(super) struct Lax {}

/// Scheduled every second by its type.
#[job(name = "conf_ticks", every = "1s", retain = "1h")]
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Ticks {}

/// Observed by a hook of this process.
#[job(name = "conf_hooked", output = Option<String>)]
#[derive(Serialize, Deserialize)]
pub(super) struct Hooked {}
