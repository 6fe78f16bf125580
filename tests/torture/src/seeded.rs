//! Typical queue bugs that can be inserted into this product's code. `cargo chaos --bugs` applies the bugs one at a time in a copy of the
//! workspace (`docs/RELIABILITY.md`).

#[cfg(test)]
mod tests;

use anyhow::{Context as _, Result, ensure};

/// Seeded bug, with the test scenario (scene) that must report the bug.
#[derive(Debug)]
pub struct Bug {
    /// Name of the bug.
    pub name: &'static str,
    /// Scene of `cargo chaos --bugs` that must report the bug.
    pub scene: &'static str,
    /// Edits that introduce the bug.
    pub edits: &'static [Edit],
}

/// Edit of one file. A bug consists of one or more edits.
#[derive(Debug)]
pub struct Edit {
    /// Path of the file, relative to the workspace root.
    pub file: &'static str,
    /// Text to replace, which occurs exactly once in the file.
    pub from: &'static str,
    /// Text that replaces `from`.
    pub to: &'static str,
}

impl Edit {
    /// Returns the text of the file after the edit.
    ///
    /// # Errors
    /// Returns an error if `from` does not occur exactly once or equals `to`. A bug that was not applied must not count as missed.
    pub fn of(&self, text: &str) -> Result<String> {
        let (before, after) = text.split_once(self.from).with_context(|| format!("{} has no {:?}", self.file, self.from))?;
        ensure!(!after.contains(self.from), "{} has {:?} more than once", self.file, self.from);
        ensure!(self.from != self.to, "{:?} changes nothing in {}", self.from, self.file);
        Ok([before, self.to, after].concat())
    }
}

const fn edit(file: &'static str, from: &'static str, to: &'static str) -> Edit {
    Edit { file, from, to }
}

const CLAIM: &str = "queue-worker/sql/claim.sql";
const CONFIRM: &str = "queue-worker/sql/confirm.sql";
const CLAIMED: &str = "queue-worker/src/lanes/claim.rs";
const HEARTBEAT: &str = "queue-worker/src/live/heartbeat.rs";
const KEYS: &str = "queue-core/migrations/3_keys.sql";
const RECOVER: &str = "queue-worker/sql/recover.sql";
const SETTLE: &str = "queue-worker/sql/settle.sql";
const TICKS: &str = "queue-core/migrations/13_schedules.sql";

/// Join of verdicts with leased jobs in the settle statement.
const FENCE: &str = "join listed l on l.token = s.token and l.id = s.id";

/// Seeded bugs, in the order in which `cargo chaos --bugs` applies them.
pub const BUGS: [Bug; 19] = [
    Bug {
        name: "jobs begin under limits before their claim is on the disk",
        scene: "limits",
        edits: &[edit(CONFIRM, "pg_logical_emit_message(true, 'queue', '') as place", "'0/0'::pg_lsn as place")],
    },
    Bug {
        name: "settle by id only",
        scene: "zombies",
        edits: &[edit(SETTLE, FENCE, "cross join (select false as cancelling) l")],
    },
    Bug {
        name: "settle by state only",
        scene: "zombies",
        edits: &[edit(SETTLE, "where l.token = any ($1)", "where l.ids && $2"), edit(SETTLE, FENCE, "join listed l on l.id = s.id")],
    },
    Bug {
        name: "attempt number instead of token",
        scene: "zombies",
        edits: &[
            edit(SETTLE, "where l.token = any ($1)", "where l.ids && $2"),
            edit(SETTLE, FENCE, "join listed l on l.id = s.id and l.attempts = s.attempts"),
        ],
    },
    Bug {
        name: "attempt counted at the end",
        scene: "kills",
        edits: &[
            edit(CLAIM, "least(attempts + 1, 32767)::smallint as attempts", "attempts"),
            edit(CLAIM, "t.id, t.attempts,", "t.id, (t.attempts + 1)::smallint as attempts,"),
        ],
    },
    // The recovery locks and reads in one statement. Its snapshot is older than the commit for which the lock waited.
    Bug {
        name: "recover in one statement",
        scene: "zombies",
        edits: &[
            edit("queue-worker/sql/expired_leases.sql", "for update of l skip locked", ""),
            edit(RECOVER, "with taken as materialized (\n  delete from queue.lease\n", "with gone as (\n  delete from queue.lease where token = any ($1)\n), taken as materialized (\n  select claimed_at, ids, attempts, crashes, cancelling from queue.lease\n"),
            edit(RECOVER, "  returning claimed_at, ids, attempts, crashes, cancelling\n", ""),
        ],
    },
    Bug {
        name: "no floor rescan",
        scene: "late",
        edits: &[edit(CLAIMED, "ClaimSource::Limited { from_zero: true } => 0,", "ClaimSource::Limited { from_zero: true } => lanes.floor(share.lane),")],
    },
    Bug {
        name: "idle flag without the second claim",
        scene: "sleep",
        edits: &[edit("queue-worker/src/live/sleep.rs", "Ok(Self::Announced(horizon(connection).await?.1))", "Ok(Self::Asleep)")],
    },
    Bug {
        name: "heartbeat on the handlers' runtime",
        scene: "busy",
        edits: &[edit(
            HEARTBEAT,
            "None => HeartbeatRunner::Thread(beat_alone(beats).map_err(|error| Error::Thread(error.to_string()))?),",
            "None => HeartbeatRunner::Shared(tokio::spawn(beats)),",
        )],
    },
    Bug {
        name: "recovery that ignores crashes",
        scene: "poison",
        edits: &[edit(RECOVER, "least(coalesce(u.crashes, 0) + 1, 32767)::smallint as crashes", "u.crashes")],
    },
    // One unreadable payload fails all jobs of its claim.
    Bug {
        name: "payloads decoded as a batch",
        scene: "unreadable",
        edits: &[edit(
            CLAIMED,
            "totals.record(lanes, &fair_jobs, block_scan.is_none() || rows.len() >= self.request.most);",
            "totals.record(lanes, &fair_jobs, block_scan.is_none() || rows.len() >= self.request.most);
        let readable = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
        if !claimed.iter().all(|(_, _, job)| job.job.payload.as_deref().is_some_and(readable)) {
            claimed.iter_mut().for_each(|(_, _, job)| job.job.payload = None);
        }",
        )],
    },
    // A handler's own transaction is committed before the job's verdict.
    Bug {
        name: "effects committed before the settle",
        scene: "kills",
        edits: &[edit(
            "queue-worker/src/settle/commit.rs",
            "sqlx::raw_sql(PREPARE_VERDICT).execute(&mut *tx).await?;",
            "sqlx::raw_sql(\"commit; begin\").execute(&mut *tx).await?;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    sqlx::raw_sql(PREPARE_VERDICT).execute(&mut *tx).await?;",
        )],
    },
    // A step transaction of a durable job is committed before its journal entry.
    Bug {
        name: "effects of steps committed before their journal",
        scene: "durable",
        edits: &[edit(
            "queue-worker/src/settle/journal.rs",
            "sqlx::raw_sql(PREPARE_VERDICT).execute(&mut *tx).await?;",
            "sqlx::raw_sql(\"commit; begin\").execute(&mut *tx).await?;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    sqlx::raw_sql(PREPARE_VERDICT).execute(&mut *tx).await?;",
        )],
    },
    // A signal that is committed between the check for signals and the parking of the job does not wake the job.
    Bug {
        name: "look, then park",
        scene: "durable",
        edits: &[edit(
            "queue-worker/sql/park_held.sql",
            "from fenced f\n  where not f.cancelling\n), finished",
            "from fenced f\n  where false\n), finished",
        )],
    },
    // Every job is ready immediately. A claim skips jobs with a visible predecessor of the same key, but it does not see uncommitted
    // predecessors.
    Bug {
        name: "FIFO by NOT EXISTS",
        scene: "order",
        edits: &[
            edit(KEYS, "  perform queue.lock_key(job_key);", ""),
            edit(KEYS, "where not exists (select from queue.active_key a where a.key = job_key) and", "where false and"),
            edit(KEYS, "is_head := found;", "is_head := true;"),
            edit(
                CLAIM,
                "where r.lane = l.lane and r.seq >= l.floor",
                "where r.lane = l.lane and r.seq >= l.floor and not exists (
                   select from queue.job j join queue.job e on e.key = j.key and e.id < j.id join queue.unfinished_job v on v.id = e.id where j.id = r.id
                 )",
            ),
        ],
    },
    // A start deadline is checked only at the claim, and not again before the handler starts.
    Bug {
        name: "expiry checked at the claim only",
        scene: "expiry",
        edits: &[edit("queue-core/src/attempt/claimed.rs", "self.attempt == 1 && self.crashes == 0", "self.attempt == 0")],
    },
    Bug {
        name: "a pause that is read and not heeded",
        scene: "pauses",
        edits: &[edit("queue-worker/src/live/pauses.rs", "None => paused.pauses.push(pause),", "None => drop(pause),")],
    },
    // Jobs that failed together in a batch are retried together forever.
    Bug {
        name: "batches tried again as they were",
        scene: "batches",
        edits: &[edit(
            "queue-worker/src/run/slots/batch_buffer.rs",
            "most_together(max, number, job.job.most_attempts(), crashes)",
            "most_together(max, 1, job.job.most_attempts(), crashes)",
        )],
    },
    // A worker fires the tick that it has read, although the schedule may have changed since. The edits also remove the check for an
    // earlier row in `queue.fire`, because that check would hide the bug.
    Bug {
        name: "ticks without compare and set",
        scene: "ticks",
        edits: &[
            edit(
                TICKS,
                "s.definition = fire_ticks.definition and s.next_at is not distinct from fire_ticks.seen",
                "s.definition = fire_ticks.definition",
            ),
            edit(TICKS, "when exists (select from queue.fire f where f.name = fire_ticks.name and f.tick = fire_ticks.tick) then 'fired'", ""),
        ],
    },
];
