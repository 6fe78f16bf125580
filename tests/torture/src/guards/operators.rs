//! What operators do.

use super::{Guard, Statement, guard, redundant};

const OURS: &str = "guards::control guards::order";
const QUICK: &str = "interleave::a_second interleave::claims interleave::of_two";
const MODEL: &str = "model::whatever_is_done";

pub(super) const STATEMENTS: &[Statement] = &[
    Statement { file: "requeue.sql", tests: &[OURS, QUICK, MODEL, "observe::"], guards: REQUEUE },
    Statement { file: "discard.sql", tests: &[OURS, QUICK, MODEL, "observe::"], guards: DISCARD },
    Statement { file: "reopen.sql", tests: &[OURS, QUICK, MODEL, "days::jobs observe:: progress::progress_goes"], guards: REOPEN },
];

const REQUEUE: &[Guard] = &[
    guard("only the jobs named", "  where d.id = any ($1)\n", "  where $1::bigint[] is not null\n"),
    guard("locks in one order", "  order by d.id\n  for update", "  for update"),
    guard("locks", "  order by d.id\n  for update\n", "  order by d.id\n"),
    guard("only what was locked", "  where d.id = h.id\n", ""),
    guard("each its own lane", "where j.id = h.id offset 0", "where j.id > 0 limit 1"),
    guard("a new place", "select r.lane, queue.next_id(), r.id", "select r.lane, r.id, r.id"),
    guard("in the order of ids", "  where not r.is_late\n  order by r.id\n", "  where not r.is_late\n"),
    guard("each its own queue", "where l.lane = r.lane limit 1", "limit 1"),
    guard("each told of once", "where l.lane = r.lane limit 1", "where l.lane = r.lane"),
];

const DISCARD: &[Guard] = &[
    guard("only the jobs named", "  where d.id = any ($1)\n", "  where $1::bigint[] is not null\n"),
    guard("locks in one order", "  order by d.id\n  for update", "  for update"),
    guard("locks", "  order by d.id\n  for update\n", "  order by d.id\n"),
    guard("only what was locked", "  where d.id = h.id\n", ""),
    guard(
        "payloads of those discarded",
        "delete from queue.job\n  where id = any (array(select g.id from gone g))",
        "delete from queue.job",
    ),
    guard(
        "payloads only of dead letters",
        "delete from queue.job\n  where id = any (array(select g.id from gone g))",
        "delete from queue.job\n  where id = any ($1)",
    ),
    guard(
        "failures of those discarded",
        "delete from queue.failure\n  where id = any (array(select g.id from gone g))",
        "delete from queue.failure",
    ),
    guard(
        "failures only of dead letters",
        "delete from queue.failure\n  where id = any (array(select g.id from gone g))",
        "delete from queue.failure\n  where id = any ($1)",
    ),
];

const REOPEN: &[Guard] = &[
    guard("only the job named", "  where d.id = $1\n", ""),
    redundant(
        "plainly done: in the same span",
        "m.first_id between ($1 >> 33) << 33 and $1 and m.last_id",
        "m.first_id <= $1 and m.last_id",
        "for the plan: that the row holds the id says the same",
    ),
    redundant(
        "plainly done: not beyond the last",
        "m.last_id >= $1 and $1 = any",
        "$1 = any",
        "for the plan: that the row holds the id says the same",
    ),
    guard("plainly done: among the row's jobs", " and $1 = any (m.ids) and", " and"),
    guard("plainly done: not the last of the row", " and pg_catalog.cardinality(m.ids) > 1\n", "\n"),
    guard("plainly done alone: first", "where m.first_id = $1 and m.last_id = $1", "where m.last_id = $1"),
    guard("plainly done alone: last", "where m.first_id = $1 and m.last_id = $1", "where m.first_id = $1"),
    guard(
        "back only if its row was deleted",
        " and exists (select from reopened union all select from struck union all select from emptied)",
        "",
    ),
    guard("back if it was done", "exists (select from reopened union all select", "exists (select"),
    guard("back if it was struck", "select from struck union all ", ""),
    guard("back if it was alone", " union all select from emptied", ""),
    guard("the job named comes back", "where j.id = $1 and exists", "where exists"),
    guard("a new place", "select b.lane, queue.next_id(), b.id", "select b.lane, b.id, b.id"),
    guard(
        "forgets what that job said",
        "delete from queue.progress\n  where id = any (array(select b.id from back b))",
        "delete from queue.progress",
    ),
    guard("its own queue", "where l.lane = b.lane limit 1", "limit 1"),
    guard("told of once", "where l.lane = b.lane limit 1", "where l.lane = b.lane"),
];
