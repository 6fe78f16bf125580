//! How long what is over is kept: days that go as a whole are in `days`.

use super::{Guard, Statement, guard, redundant};

const PRUNING: &[&str] = &["guards::prune", "retention::"];

pub(super) const STATEMENTS: &[Statement] = &[
    Statement { file: "2_days.sql", tests: &["guards::rows", "retention::"], guards: TABLE },
    Statement { file: "keep_types.sql", tests: &["guards::prune", "retention::"], guards: KEEP_TYPES },
    Statement { file: "prune_kept.sql", tests: PRUNING, guards: PRUNE_KEPT },
    Statement { file: "prune_early.sql", tests: PRUNING, guards: PRUNE_EARLY },
    Statement { file: "prune_dead.sql", tests: &["guards::prune", "retention::", "keys::hands::a_dead_letter"], guards: PRUNE_DEAD },
];

const TABLE: &[Guard] = &[
    guard("a type is there once", "  constraint retention_pkey primary key (job_type),\n", ""),
    guard("a type is a name", "  constraint retention_job_type_is_a_name check (queue.is_name(job_type)),\n", ""),
    guard("it is kept for some time", ",\n  constraint retention_is_positive check (history > '0')", ""),
];

const KEEP_TYPES: &[Guard] = &[
    guard(
        "only types that say nothing are forgotten",
        "  where k.job_type = s.job_type and s.history is null",
        "  where k.job_type = s.job_type",
    ),
    guard("types of others stay", "  where k.job_type = s.job_type and s.history is null", "  where s.history is null"),
    guard("a type without a time of its own has no row", "where s.history is not null\n", ""),
    redundant("only what differs", "\nwhere k.history <> excluded.history", "", "for speed: the same is written again"),
    redundant(
        "locks in one order",
        "order by s.job_type\n",
        "",
        "for workers that start at once; one of two that block each other tries again",
    ),
];

const PRUNE_KEPT: &[Guard] = &[
    guard(
        "a type's own time",
        "(select k.history from kept k where k.lane = (select j.lane from queue.job j where j.id = d.id))",
        "null::interval",
    ),
    guard(
        "that of its own type",
        "k.lane = (select j.lane from queue.job j where j.id = d.id)",
        "k.lane is not null order by k.history desc limit 1",
    ),
    guard("the lanes of that type", "on l.job_type = k.job_type", "on l.job_type is not null"),
    guard(
        "only what is over for so long",
        "d.finished_at < now() - coalesce(\n      (select k.history from kept k where k.lane = (select j.lane from queue.job j where j.id = d.id)), $1 * interval '1 second')",
        "$1::float8 is not null",
    ),
    guard("so many at most", "    limit $2\n", "    limit $2::bigint * 2\n"),
    guard("locks", "    limit $2\n    for update skip locked\n", "    limit $2\n"),
    guard("passes over what is locked", "    limit $2\n    for update skip locked", "    limit $2\n    for update"),
    guard("plain ones: a type's own time", "(select k.history from kept k where k.lane = d.lane)", "null"),
    guard("plain ones: that of its own type", "where k.lane = d.lane)", "order by k.history desc limit 1)"),
    guard(
        "plain ones: only what is over for so long",
        "d.finished_at < now() - coalesce((select k.history from kept k where k.lane = d.lane), $1 * interval '1 second')",
        "d.lane is not null",
    ),
    guard("so many plain ones at most", "    limit $2 / 10\n", "    limit $2 * 10\n"),
    guard("locks plain ones", "    limit $2 / 10\n    for update skip locked\n", "    limit $2 / 10\n"),
    guard("passes over plain ones that are locked", "    limit $2 / 10\n    for update skip locked", "    limit $2 / 10\n    for update"),
    guard("payloads only of those pruned", "delete from queue.job\n  where id = any (array(select id from gone))", "delete from queue.job"),
    guard(
        "failures only of those pruned",
        "delete from queue.failure\n  where id = any (array(select id from gone))",
        "delete from queue.failure",
    ),
];

const PRUNE_EARLY: &[Guard] = &[
    guard("the type named", "  where k.job_type = $1 and k.history < $3", "  where $1::text is not null and k.history < $3"),
    guard("only types that are kept for less", " and k.history < $3 * interval '1 second'\n", " and $3::float8 is not null\n"),
    guard("one looks at a time", "  for update skip locked\n", ""),
    guard("the others pass", "for update skip locked", "for update"),
    guard("only as far as may be over", "least(\n    u.above,\n", "least(\n"),
    guard(
        "so many at most",
        "and d.id < u.above order by d.id offset $2 limit 1",
        "and d.id < u.above order by d.id offset $2 * 2 limit 1",
    ),
    guard("in the order of ids", "and d.id < u.above order by d.id offset", "and d.id < u.above order by d.id desc offset"),
    guard(
        "so many plain ones at most",
        "and m.first_id < u.above order by m.first_id offset $2 limit 1",
        "and m.first_id < u.above order by m.first_id offset $2 * 2 limit 1",
    ),
    guard(
        "plain ones in the order of ids",
        "and m.first_id < u.above order by m.first_id offset",
        "and m.first_id < u.above order by m.first_id desc offset",
    ),
    guard("the page goes on where the last ended", "where d.id >= u.pruned_to and d.id < u.above", "where d.id < u.above"),
    guard(
        "the page of plain ones goes on where the last ended",
        "where m.first_id >= u.pruned_to and m.first_id < u.above",
        "where m.first_id < u.above",
    ),
    guard("the lanes of that type", "  from queue.lane l\n  where l.job_type = $1\n", "  from queue.lane l\n"),
    redundant("from the page's begin", "where d.id >= p.pruned_to and", "where", "for speed: those before it were looked through"),
    guard("to the page's end", " and d.id < p.pruned_to_now and", " and"),
    guard("only what is over for so long", " and d.finished_at < now() - p.history", ""),
    guard("only that type", "\n    and (select j.lane from queue.job j where j.id = d.id) in (select n.lane from lanes n)", ""),
    redundant(
        "plain ones from the page's begin",
        "where m.first_id >= p.pruned_to and",
        "where",
        "for speed: those before it were looked through",
    ),
    guard("plain ones to the page's end", " and m.first_id < p.pruned_to_now and", " and"),
    guard("plain ones only once they are over for so long", " and m.finished_at < now() - p.history", ""),
    guard("plain ones only of that type", "\n    and m.lane in (select n.lane from lanes n)", ""),
    guard(
        "payloads only of those pruned",
        "delete from queue.job\n  where id = any (array(select g.id from gone g))",
        "delete from queue.job",
    ),
    guard(
        "failures only of those pruned",
        "delete from queue.failure\n  where id = any (array(select g.id from gone g))",
        "delete from queue.failure",
    ),
    guard(
        "notes how far that type was looked through",
        "where k.job_type = $1 and k.pruned_to < p.pruned_to_now",
        "where k.pruned_to < p.pruned_to_now",
    ),
    redundant(
        "never goes back",
        "where k.job_type = $1 and k.pruned_to < p.pruned_to_now",
        "where k.job_type = $1",
        "for speed: a type that is kept for longer than before would be looked through again",
    ),
    guard("says whether there are more", "select p.pruned_to_now < p.above from page p", "select false from page p"),
];

const PRUNE_DEAD: &[Guard] = &[
    guard("only what died so long ago", "    where d.died_at < now() - $1 * interval '1 second'\n", "    where $1::float8 is not null\n"),
    guard("the oldest first", "    order by d.died_at\n", "    order by d.died_at desc\n"),
    guard("so many at most", "    limit $2\n", "    limit $2::bigint * 2\n"),
    guard("locks", "    for update skip locked\n", ""),
    guard("passes over what is locked", "for update skip locked", "for update"),
    guard(
        "payloads only of those pruned",
        "delete from queue.job\n  where id = any (array(select g.id from gone g))",
        "delete from queue.job",
    ),
    guard(
        "failures only of those pruned",
        "delete from queue.failure\n  where id = any (array(select g.id from gone g))",
        "delete from queue.failure",
    ),
    guard("one that held up its key frees it", "    from gone g\n  ))\n", "    from gone g\n    where false\n  ))\n"),
    guard("nobody else's", "= g.id) and k.id = g.id)", "= g.id))"),
    guard("a freed key is left a hint", "  from freed f\n", "  from freed f\n  where false\n"),
];
