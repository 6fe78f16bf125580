//! What attempts say of themselves, and who waits for jobs.

use super::{Guard, Statement, guard, redundant};

pub(super) const STATEMENTS: &[Statement] = &[
    Statement { file: "note.sql", tests: &["guards::reports", "progress::"], guards: NOTE },
    Statement { file: "clear_progress.sql", tests: &["guards::reports", "progress::progress_goes"], guards: CLEAR_PROGRESS },
    Statement { file: "announce_waiter.sql", tests: &["guards::reports", "results::a_notification"], guards: ANNOUNCE_WAITER },
    Statement { file: "leave_waiter.sql", tests: &["guards::reports"], guards: LEAVE_WAITER },
    Statement { file: "prune_waiters.sql", tests: &["guards::reports"], guards: PRUNE_WAITERS },
    Statement { file: "0011_any_language.sql", tests: &["any_language::"], guards: ANY_LANGUAGE },
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

const ANY_LANGUAGE: &[Guard] = &[
    guard("only a job that is over has ended", "when e.state = 'completed' then 1 else", "when true then 1 else"),
    guard("a completed job has no error", " and e.state is distinct from 'completed'", ""),
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
