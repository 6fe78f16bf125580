//! Days: made ahead, dropped.

use super::{Guard, Statement, guard};

pub(super) const STATEMENTS: &[Statement] =
    &[Statement { file: "0002_days.sql", tests: &["guards::", "days::", "migrate::", "model::whatever_is_done"], guards: DAYS }];

const DAYS: &[Guard] = &[
    guard(
        "one makes days at a time",
        "  if not pg_try_advisory_xact_lock(hashtextextended('queue.days', 0)) then\n    return 0;\n  end if;\n",
        "",
    ),
    guard("a day is made once", "to_regclass('queue.job_' || queue.day_name(day)) is not null\n      or exists", "exists"),
    guard(
        "not a day of jobs in the default",
        "      or exists (select from queue.job_default d where d.id >= lowest and d.id < above)\n",
        "",
    ),
    guard(
        "not a day of completions in the default",
        "      or exists (select from queue.done_default d where d.id >= lowest and d.id < above)\n",
        "",
    ),
    guard(
        "not a day of plain completions in the default",
        "      or exists (select from queue.done_many_default d where d.first_id >= lowest and d.first_id < above)\n",
        "",
    ),
    guard(
        "not a day of failures in the default",
        "\n      or exists (select from queue.failure_default d where d.id >= lowest and d.id < above);",
        ";",
    ),
    guard(
        "only that day's jobs count: from",
        "queue.job_default d where d.id >= lowest and d.id < above",
        "queue.job_default d where d.id < above",
    ),
    guard(
        "only that day's jobs count: to",
        "queue.job_default d where d.id >= lowest and d.id < above",
        "queue.job_default d where d.id >= lowest",
    ),
    guard("waits for no lock for long", "  set lock_timeout = '50ms'\n", ""),
    guard(
        "one drops days at a time",
        "  if not pg_try_advisory_xact_lock(hashtextextended('queue.days', 0)) then\n    return null;\n  end if;\n",
        "",
    ),
    guard("the oldest day goes first", "select min(to_date(right", "select max(to_date(right"),
    guard("only days that are over", " or (day + 1)::timestamp at time zone 'UTC' > cutoff then", " then"),
    guard("over is at the day's end", "(day + 1)::timestamp at time zone 'UTC' > cutoff", "day::timestamp at time zone 'UTC' > cutoff"),
    guard(
        "what lives stays",
        "    select l.id from queue.living l where l.id >= lowest and l.id < above\n    union\n    select d.id",
        "    select d.id",
    ),
    guard(
        "what finished lately stays",
        "    union\n    select d.id from queue.done d where d.id >= lowest and d.id < above and d.finished_at >= cutoff\n",
        "",
    ),
    guard("what finished long ago goes", "d.id < above and d.finished_at >= cutoff", "d.id < above"),
    guard(
        "what finished plainly of late stays",
        "    union\n    select unnest(d.ids) from queue.done_many d where d.first_id >= lowest and d.first_id < above and d.finished_at >= cutoff);",
        ");",
    ),
    guard("what finished plainly long ago goes", "d.first_id < above and d.finished_at >= cutoff", "d.first_id < above"),
    guard(
        "what is brought back meanwhile stays",
        "    select unnest(living)\n    union\n    select l.id from queue.living l where l.id >= lowest and l.id < above);",
        "    select unnest(living));",
    ),
    guard("what was found before stays", "    select unnest(living)\n    union\n", ""),
    guard("only what stays is moved", " where d.%I = any ($1)'", " where d.%I is not null and $1 is not null'"),
    guard("living: ready", "  select id from queue.ready\n  union all select id from queue.scheduled", "  select id from queue.scheduled"),
    guard("living: scheduled", "  union all select id from queue.scheduled\n", ""),
    guard("living: leased", "  union all select unnest(ids) from queue.lease\n", ""),
    guard("living: dead", "\n  union all select id from queue.dead;", ";"),
];
