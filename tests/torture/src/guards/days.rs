//! Days: made ahead, dropped.

use super::{Guard, Statement, guard, redundant};

pub(super) const STATEMENTS: &[Statement] = &[
    Statement { file: "2_days.sql", tests: &["days::"], guards: ADD },
    Statement { file: "11_history.sql", tests: &["days::"], guards: LIVING },
    Statement { file: "2_days.sql", tests: &["days:: retention::", "migrate::"], guards: DROP },
];

const ADD: &[Guard] = &[
    guard("waits for no lock for long", "  set lock_timeout = '500ms'\n", ""),
    guard(
        "one makes days at a time",
        "  if not pg_try_advisory_xact_lock(hashtextextended('queue.days', 0)) then\n    return 0;\n  end if;\n",
        "",
    ),
    guard("today is the clock's day", "(clock_timestamp() at time zone 'UTC')::date", "clock_timestamp()::date"),
    guard(
        "a day begins where the clock's does",
        "loop\n    lowest := queue.id_at(day::timestamp at time zone 'UTC');",
        "loop\n    lowest := queue.id_at(day::timestamptz);",
    ),
    guard(
        "a day ends where the clock's does",
        "    above := queue.id_at((day + 1)::timestamp at time zone 'UTC');\n    continue",
        "    above := queue.id_at((day + 1)::timestamptz);\n    continue",
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
    guard(
        "only that day's completions count: from",
        "queue.done_default d where d.id >= lowest and d.id < above",
        "queue.done_default d where d.id < above",
    ),
    guard(
        "only that day's completions count: to",
        "queue.done_default d where d.id >= lowest and d.id < above",
        "queue.done_default d where d.id >= lowest",
    ),
    guard(
        "only that day's plain completions count: from",
        "where d.first_id >= lowest and d.first_id < above)\n",
        "where d.first_id < above)\n",
    ),
    guard(
        "only that day's plain completions count: to",
        "where d.first_id >= lowest and d.first_id < above)\n",
        "where d.first_id >= lowest)\n",
    ),
    guard(
        "only that day's failures count: from",
        "queue.failure_default d where d.id >= lowest and d.id < above",
        "queue.failure_default d where d.id < above",
    ),
    guard(
        "only that day's failures count: to",
        "queue.failure_default d where d.id >= lowest and d.id < above",
        "queue.failure_default d where d.id >= lowest",
    ),
];

const LIVING: &[Guard] = &[
    guard("living: ready", "  select id from queue.ready\n  union all select id from queue.scheduled", "  select id from queue.scheduled"),
    guard("living: scheduled", "  union all select id from queue.scheduled\n", ""),
    guard("living: leased", "  union all select unnest(ids) from queue.lease\n", ""),
    guard("living: dead", "  union all select id from queue.dead\n", ""),
    guard("living: blocked", "\n  union all select id from queue.blocked;", ";"),
];

const DROP: &[Guard] = &[
    guard("waits for no lock for long", "  set lock_timeout = '50ms'\n", ""),
    guard(
        "one drops days at a time",
        "  if not pg_try_advisory_xact_lock(hashtextextended('queue.days', 0)) then\n    return null;\n  end if;\n",
        "",
    ),
    guard("the oldest day goes first", "select min(to_date(right", "select max(to_date(right"),
    guard("none if there is none", "day is null or ", ""),
    guard("only days that are over", " or (day + 1)::timestamp at time zone 'UTC' > cutoff then", " then"),
    guard("over is at the day's end", "(day + 1)::timestamp at time zone 'UTC' > cutoff", "day::timestamp at time zone 'UTC' > cutoff"),
    guard("over is at the end of the clock's day", "(day + 1)::timestamp at time zone 'UTC' > cutoff", "(day + 1)::timestamptz > cutoff"),
    guard(
        "what lives stays",
        "    select l.id from queue.living l where l.id >= lowest and l.id < above\n    union\n    select d.id",
        "    select d.id",
    ),
    redundant(
        "what lives is looked for in that day",
        "    select l.id from queue.living l where l.id >= lowest and l.id < above\n    union\n    select d.id",
        "    select l.id from queue.living l\n    union\n    select d.id",
        "for speed: only rows of the day's own tables are moved",
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
        "what is kept for longer lives on",
        "  if exists (select from queue.retention k where k.history > drop_day.retention) then",
        "  if false then",
    ),
    redundant(
        "asks for types only if one is kept for longer",
        "  if exists (select from queue.retention k where k.history > drop_day.retention) then",
        "  if true then",
        "for speed: what is kept for less than the day is not found",
    ),
    guard(
        "kept for longer: what else stays",
        "    living := array(\n      select unnest(living)\n      union\n      select d.id",
        "    living := array(\n      select d.id",
    ),
    guard("kept for longer: its own type", "join queue.lane l on l.lane = j.lane", "join queue.lane l on j.lane is not null"),
    guard(
        "kept for longer: its type's own time",
        "join queue.retention k on k.job_type = l.job_type\n      where d.id",
        "join queue.retention k on l.job_type is not null\n      where d.id",
    ),
    guard("kept for longer: not for ever", "and j.id < above and d.finished_at >= clock_timestamp() - k.history", "and j.id < above"),
    guard(
        "plainly done: kept for longer",
        "      union\n      select unnest(d.ids)\n      from queue.done_many d\n      join queue.lane l on l.lane = d.lane\n      join queue.retention k on k.job_type = l.job_type\n      where d.first_id >= lowest and d.first_id < above and d.finished_at >= clock_timestamp() - k.history);",
        ");",
    ),
    guard("plainly done: its own type", "join queue.lane l on l.lane = d.lane", "join queue.lane l on d.lane is not null"),
    guard(
        "plainly done: its type's own time",
        "join queue.retention k on k.job_type = l.job_type\n      where d.first_id",
        "join queue.retention k on l.job_type is not null\n      where d.first_id",
    ),
    guard(
        "plainly done: kept by its type's time",
        "and d.first_id < above and d.finished_at >= clock_timestamp() - k.history",
        "and d.first_id < above",
    ),
    guard(
        "what is brought back meanwhile stays",
        "    select unnest(living)\n    union\n    select l.id from queue.living l where l.id >= lowest and l.id < above);",
        "    select unnest(living));",
    ),
    guard("what was found before stays", "  living := array(\n    select unnest(living)\n    union\n", "  living := array(\n"),
    guard("only what stays is moved", " where d.%I = any ($1)'", " where d.%I is not null and $1 is not null'"),
];
