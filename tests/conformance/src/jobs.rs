//! Job types that a conformance run enqueues. Their handlers are in `handlers`.

use std::collections::BTreeMap;

use queue_core::{flow::NodeOutput, job};
use serde::{Deserialize, Serialize};

/// Job that returns its payload.
#[job(name = "conf_echo", output = String)]
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Echo {
    pub(super) text: String,
}

pub(super) fn echo(text: impl Into<String>) -> Echo {
    Echo { text: text.into() }
}

/// Job whose first attempt behaves as `first` specifies.
#[job(name = "conf_try", output = u32, max_attempts = 2, backoff = fixed("20ms"), timeout = "500ms", aliases = ["conf_tried_before"])]
#[derive(Serialize, Deserialize)]
pub(super) struct Try {
    pub(super) first: First,
}

/// Behavior of the first attempt of `Try`. `Always` fails every attempt.
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

/// Job that reports progress, then sleeps until its duration `ms` has elapsed or the job is cancelled.
#[job(name = "conf_slow", output = String, max_attempts = 3, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Slow {
    pub(super) ms: u64,
}

/// Job that saves a checkpoint on the first attempt and returns the checkpoint on the second attempt.
#[job(name = "conf_checkpoint", output = u32, max_attempts = 2, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Checkpointed {}

/// Job that returns the job properties reported by its context.
#[job(name = "conf_context", output = BTreeMap<String, String>, max_attempts = 7)]
#[derive(Serialize, Deserialize)]
pub(super) struct ContextReport {}

/// Transactional job that writes a row to a user table, and enqueues another job. Both writes are committed with the job's completion.
#[job(name = "conf_within", transactional, output = i64, max_attempts = 2, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Within {
    pub(super) n: i64,
    pub(super) fails_first: bool,
}

/// Job that completes in its own transaction. The transaction also writes a row to a user table and enqueues another job.
#[job(name = "conf_own", output = i64, max_attempts = 2, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Own {
    pub(super) n: i64,
    pub(super) dies: bool,
}

/// Job that runs in batches. Jobs with a negative number become dead letters.
#[job(name = "conf_batch", batch = 20, batch_wait = "100ms", output = usize, max_attempts = 2, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Together {
    pub(super) n: i64,
}

/// Durable job that fails once between two steps.
#[job(name = "conf_steps", durable, output = Vec<u64>, max_attempts = 3, backoff = fixed("20ms"))]
#[derive(Serialize, Deserialize)]
pub(super) struct Steps {}

/// Durable job that sleeps. A long sleep releases the job's slot.
#[job(name = "conf_sleeps", durable, output = u64)]
#[derive(Serialize, Deserialize)]
pub(super) struct Sleeps {
    pub(super) ms: u64,
}

/// Durable job that waits for a signal, with or without a timeout.
#[job(name = "conf_receives", durable, output = Option<String>)]
#[derive(Serialize, Deserialize)]
pub(super) struct Receives {
    pub(super) timeout_ms: Option<u64>,
}

/// Durable job that restarts until no rounds are left.
#[job(name = "conf_anew", durable, output = u32)]
#[derive(Serialize, Deserialize)]
pub(super) struct Restarting {
    pub(super) left: u32,
    pub(super) rounds: u32,
}

/// Durable job that spawns two children. One child completes, and the other becomes a dead letter.
#[job(name = "conf_parent", durable, output = Vec<String>)]
#[derive(Serialize, Deserialize)]
pub(super) struct Parent {}

/// Durable job that waits for a child that no worker runs.
#[job(name = "conf_waits", durable)]
#[derive(Serialize, Deserialize)]
pub(super) struct Waits {}

/// Durable job that spawns a map with a maximum number of parts in flight. Every third part becomes a dead letter.
#[job(name = "conf_mapper", durable, output = Mapped)]
#[derive(Serialize, Deserialize)]
pub(super) struct Mapper {
    pub(super) parts: u32,
    pub(super) most: u32,
}

/// Outcome counts and outputs of a map, as returned by `Mapper`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mapped {
    pub(super) total: u64,
    pub(super) completed: u64,
    pub(super) dead: u64,
    pub(super) outputs: Vec<Option<u32>>,
}

/// Part of a map, or job of a flow node with many jobs.
#[job(name = "conf_piece", output = u32, max_attempts = 1)]
#[derive(Serialize, Deserialize)]
pub(super) struct Piece {
    pub(super) n: u32,
    pub(super) dies: bool,
}

/// Flow job that waits for two other jobs and receives their results.
#[job(name = "conf_both", output = String)]
#[derive(Serialize, Deserialize)]
pub(super) struct Both {
    pub(super) left: NodeOutput<String>,
    pub(super) right: NodeOutput<String>,
}

/// Flow job that receives the outcome of the preceding job: its result if it completed, and otherwise its final state.
#[job(name = "conf_after", output = String)]
#[derive(Serialize, Deserialize)]
pub(super) struct After {
    pub(super) before: NodeOutput<u32>,
}

/// Flow job that receives the outcome counts of a node with many jobs.
#[job(name = "conf_counted", output = u64)]
#[derive(Serialize, Deserialize)]
pub(super) struct Counted {
    pub(super) counts: NodeOutput<queue_core::flow::Counts>,
}

/// Job whose fairness key is the tenant.
#[job(name = "conf_fair", fair = self.tenant)]
#[derive(Serialize, Deserialize)]
pub(super) struct Fair {
    pub(super) tenant: String,
    pub(super) n: u32,
}

/// Job with an ordering key.
#[job(name = "conf_keyed", key = self.key)]
#[derive(Serialize, Deserialize)]
pub(super) struct Keyed {
    pub(super) key: String,
    pub(super) n: u32,
}

/// Job with a uniqueness key: only one job per customer can be queued.
#[job(name = "conf_unique", unique(fields(customer), while = queued, on_conflict = replace))]
#[derive(Serialize, Deserialize)]
pub(super) struct OneEach {
    pub(super) customer: u32,
    pub(super) text: String,
}

/// Job with two limits: one running job across all workers, and a shared limit per account.
#[job(name = "conf_limited", limit(concurrency = 1), limit(name = "conf_service", key = self.account, concurrency = 2))]
#[derive(Serialize, Deserialize)]
pub(super) struct Limited {
    pub(super) account: String,
    pub(super) n: u32,
}

/// Job that writes to its log.
#[job(name = "conf_logs", keep_logs = "4KiB", max_attempts = 1)]
#[derive(Serialize, Deserialize)]
pub(super) struct LogWriter {}

/// Job type of version 2, with an upgrade from payloads of version 1.
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

/// Job whose payload is stored encrypted.
#[job(name = "conf_sealed", seal = "conformance", output = usize)]
#[derive(Serialize, Deserialize)]
pub(super) struct Sealed {
    pub(super) card: String,
}

/// Job that leaves no record after its completion.
#[job(name = "conf_gone", retain = "none")]
#[derive(Serialize, Deserialize)]
pub(super) struct Gone {}

/// Job with relaxed durability, an expiry and a priority.
#[job(name = "conf_relaxed", durability = relaxed, expires = "1h", priority = 30)]
#[derive(Serialize, Deserialize)]
pub(super) struct Lax {}

/// Job type that declares its own schedule, which fires every second.
#[job(name = "conf_ticks", every = "1s", retain = "1h")]
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Ticks {}

/// Job to which an enqueue hook adds metadata. The job returns this metadata.
#[job(name = "conf_hooked", output = Option<String>)]
#[derive(Serialize, Deserialize)]
pub(super) struct Hooked {}
