//! What attempts say of themselves, and who waits for jobs.

use super::{Guard, Statement, guard, redundant};

pub(super) const STATEMENTS: &[Statement] = &[
    Statement { file: "note.sql", tests: &["guards::reports", "progress::"], guards: NOTE },
    Statement { file: "clear_progress.sql", tests: &["guards::reports", "progress::progress_goes"], guards: CLEAR_PROGRESS },
    Statement { file: "announce_waiter.sql", tests: &["guards::reports", "results::a_notification"], guards: ANNOUNCE_WAITER },
    Statement { file: "leave_waiter.sql", tests: &["guards::reports"], guards: LEAVE_WAITER },
    Statement { file: "prune_waiters.sql", tests: &["guards::reports"], guards: PRUNE_WAITERS },
    Statement { file: "7_results.sql", tests: &["guards::looks guards::rows", "progress::", "results::"], guards: RESULTS },
    Statement {
        file: "7_results.sql",
        tests: &["guards::looks", "unique::held", "unique:: together::a_unique --skip races --skip worker", "results::"],
        guards: ENTRY,
    },
    Statement { file: "7_results.sql", tests: &["guards::looks", "any_language::"], guards: ANY_LANGUAGE },
];

const NOTE: &[Guard] = &[
    guard("only the leases named", "  where l.token = any ($1)\n", "  where $1::uuid[] is not null\n"),
    guard("locks in one order", "  order by l.token\n  for share", "  for share"),
    guard("locks the leases", "  order by l.token\n  for share\n", "  order by l.token\n"),
    guard("fenced by the token", "h.token = s.token and s.id = any (h.ids)", "s.id = any (h.ids)"),
    guard("fenced by the id", "h.token = s.token and s.id = any (h.ids)", "h.token = s.token"),
    guard("fenced at all", "  join held h on h.token = s.token and s.id = any (h.ids)\n", ""),
    redundant("in the order of ids", "  order by f.id\n", "", "a job is in one lease, so no other report waits for its row"),
    guard("says which attempt it was", "set attempt = excluded.attempt, ", "set "),
    guard("says when it was", "updated_at = excluded.updated_at, ", ""),
    guard("keeps the checkpoint", "coalesce(excluded.checkpoint, p.checkpoint)", "excluded.checkpoint"),
];

const CLEAR_PROGRESS: &[Guard] = &[
    guard("only the jobs named", "where p.id = u.id offset 0", "where p.id > 0"),
    guard("each by its own end", "from queue.done d where d.id = u.id limit 1", "from queue.done d limit 1"),
    guard("in the row of history", " and u.id = any (m.ids)", ""),
    guard("each by its own absence", "from queue.job j where j.id = u.id limit 1", "from queue.job j where false limit 1"),
    guard("only as it was seen", "where p.id = s.id and p.updated_at = s.updated_at", "where p.id = s.id"),
    guard("only what was seen", "where p.id = s.id and p.updated_at = s.updated_at", "where p.updated_at = s.updated_at"),
    guard("only what is over", " and s.is_over", ""),
];

const ANNOUNCE_WAITER: &[Guard] = &[
    guard("for a minute", "pg_catalog.now() + interval '1 minute'", "pg_catalog.now()"),
    guard("renewed", "do update set expires_at = excluded.expires_at", "do nothing"),
];

const LEAVE_WAITER: &[Guard] = &[guard("its own row", "\nwhere id = $1", "\nwhere $1::uuid is not null")];

const PRUNE_WAITERS: &[Guard] = &[guard("only once it has expired", "\nwhere w.expires_at < now()", "")];

const RESULTS: &[Guard] = &[
    guard("a job has one row", "  constraint progress_pkey primary key (id),\n", ""),
    guard("a fraction is one", "  constraint progress_fraction_in_range check (fraction between 0 and 1),\n", ""),
    guard("counts have names", ",\n  constraint progress_counts_by_name check (jsonb_typeof(counts) = 'object')", ""),
    guard("a waiter has one row", ",\n  constraint waiter_pkey primary key (id)", ""),
    guard(
        "only the jobs named",
        "(select j.id from queue.job j where j.id = u.id offset 0) j",
        "(select j.id from queue.job j offset 0) j",
    ),
    guard("why it was cancelled: its own failure", "from queue.failure f where f.id = u.id order", "from queue.failure f order"),
    guard("why it was cancelled: the last failure", "where f.id = u.id order by f.at desc limit 1", "where f.id = u.id limit 1"),
    guard("what that job said", "      from queue.progress p\n      where p.id = u.id\n", "      from queue.progress p\n"),
    guard("cancelled: nobody is told if nobody waits", " where exists (select from queue.waiter w where w.expires_at > now());", ";"),
    guard("cancelled: who no longer waits is nobody", "queue.waiter w where w.expires_at > now());", "queue.waiter w);"),
];

/// How a job ended, and where it is, for whoever asks.
const ENTRY: &[Guard] = &[
    guard(
        "cancelled is not completed",
        "select case when d.cancelled then 'cancelled' else 'completed' end, d.attempts",
        "select 'completed', d.attempts",
    ),
    guard("done: that job", "  where d.id = end_of.id\n  union all\n  select 'completed'", "  union all\n  select 'completed'"),
    redundant(
        "plainly done: in the same span",
        "m.first_id between (end_of.id >> 33) << 33 and end_of.id and",
        "m.first_id <= end_of.id and",
        PLAN,
    ),
    redundant("plainly done: not beyond the last", "and m.last_id >= end_of.id and", "and", PLAN),
    guard("plainly done: among the row's jobs", " and end_of.id = any (m.ids)\n", "\n"),
    guard("dead: that job", "  from queue.dead d\n  where d.id = end_of.id\n", "  from queue.dead d\n"),
    redundant("a job is over once", "  where d.id = end_of.id\n  limit 1;", "  where d.id = end_of.id;", "it has one entry"),
    guard("ready: at its place", "where r.lane = j.lane and r.seq = entry_of.id and r.id = entry_of.id", "where false"),
    guard("ready: that job", "where r.lane = j.lane and r.seq = entry_of.id and r.id = entry_of.id", "where r.lane = j.lane"),
    guard("ready again: that job", "    where r.id = entry_of.id and r.seq <> r.id\n", "    where false\n"),
    guard("scheduled: that job", "    where s.id = entry_of.id\n", ""),
    guard("a scheduled job is found", "    where s.id = entry_of.id\n", "    where false\n"),
    guard("a job that is over is found", "    from queue.end_of(entry_of.id) o\n", "    from queue.end_of(entry_of.id) o where false\n"),
    redundant(
        "blocked: by its key",
        "where b.key = j.key and b.id = entry_of.id",
        "where b.id = entry_of.id",
        "for the plan: a job is in one line",
    ),
    guard("blocked: that job", "where b.key = j.key and b.id = entry_of.id", "where b.key = j.key"),
    guard("a blocked job is found", "where b.key = j.key and b.id = entry_of.id", "where false"),
    guard(
        "a suspect that was given back is found",
        "where r.lane = queue.lane_id(l.queue, l.job_type, l.priority, true) and r.seq = entry_of.id and r.id = entry_of.id",
        "where false",
    ),
    redundant("a job has one state", "    limit 1\n  ) e on true\n", "  ) e on true\n", "it has one entry"),
    guard("only the job named", "  ) e on true\n  where j.id = entry_of.id;", "  ) e on true;"),
    redundant("running: in a lease that lists it", "where attempt_of.id = any (h.ids) and u.id", "where u.id", PLAN),
    guard("running: that job", " and u.id = attempt_of.id\n", "\n"),
];

const PLAN: &str = "for the plan: that the row holds the id says the same";

const ANY_LANGUAGE: &[Guard] = &[
    guard("status: why that job failed", "where f.id = status.id and e.state", "where e.state"),
    guard("status: why it failed last", " and e.state <> 'completed' order by f.at desc limit 1)", " and e.state <> 'completed' limit 1)"),
    guard("status: what that job said", "left join queue.progress p on p.id = status.id", "left join queue.progress p on true"),
    guard("ours: that job", "from queue.job j where j.id = is_ours.id;", "from queue.job j;"),
    guard(
        "ours: whatever was lost of its transaction's number",
        "  written := today + ((written - today + 2147483648) & 4294967295) - 2147483648;\n",
        "",
    ),
    redundant("ours: asked once", "      elsif ours is null then\n", "      else\n", "for speed: it stays as it is"),
    guard("no wait for nothing", "  if wait.id is null or wait.timeout is null then\n", "  if false then\n"),
    guard("over is what is over now", " where s.state in ('completed', 'dead', 'cancelled');", ";"),
    guard("a wait ends at its timeout", "    elsif clock_timestamp() >= until then\n      return;\n", ""),
    guard("only a job that is over has ended", "when e.state = 'completed' then 1 else", "when true then 1 else"),
    guard("a completed job has no error", " and e.state <> 'completed' order", " order"),
    guard(
        "no wait under an old snapshot",
        "current_setting('transaction_isolation') not in ('read committed', 'read uncommitted')",
        "false",
    ),
    guard("no wait for what is not committed", "ours := queue.is_ours(wait.id)", "ours := false"),
    guard(
        "a savepoint's number too",
        "pg_xact_status(written::text::xid8) = 'in progress'",
        "written::text::xid8 = pg_current_xact_id_if_assigned()",
    ),
    guard("no lock through a sleep", "      raise sqlstate 'QVOID';\n    exception", "    exception"),
    guard("not for an unknown job", "if seen is null then", "if false then"),
];
