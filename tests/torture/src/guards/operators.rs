//! What operators do.

use super::{Guard, Statement, guard, redundant};

const OURS: &str = "guards::control guards::order";
const QUICK: &str = "interleave::a_second interleave::claims interleave::of_two";
const MODEL: &str = "model::whatever_is_done";

pub(super) const STATEMENTS: &[Statement] = &[
    Statement { file: "9_requeue.sql", tests: &[OURS, QUICK, MODEL, "operate::"], guards: REQUEUE },
    Statement { file: "9_requeue.sql", tests: &[OURS, QUICK, MODEL, "operate::"], guards: DISCARD },
    Statement { file: "9_requeue.sql", tests: &[OURS, QUICK, MODEL, "days::jobs operate:: progress::progress_goes"], guards: REOPEN },
];

const REQUEUE: &[Guard] = &[
    guard("requeue: only the jobs named", "    where d.id = any (requeue_all.ids)\n", ""),
    guard(
        "requeue: locks in one order",
        "    where d.id = any (requeue_all.ids)\n    order by d.id\n",
        "    where d.id = any (requeue_all.ids)\n",
    ),
    guard(
        "requeue: locks",
        "    where d.id = any (requeue_all.ids)\n    order by d.id\n    for update\n",
        "    where d.id = any (requeue_all.ids)\n    order by d.id\n",
    ),
    guard("requeue: only what was locked", "    where d.id = h.id\n    returning d.id, j.lane", "    returning d.id, j.lane"),
    guard("requeue: each its own lane", "where j.id = h.id offset 0", "where j.id > 0 limit 1"),
    guard("requeue: a new place", "select r.lane, queue.next_id(), r.id", "select r.lane, r.id, r.id"),
    guard("requeue: in the order of ids", "    where not r.is_late\n    order by r.id\n", "    where not r.is_late\n"),
    guard("requeue: workers are told", "  perform queue.wake_for(back);\n", ""),
];

const DISCARD: &[Guard] = &[
    guard("discard: only the jobs named", "    where d.id = any (discard_all.ids)\n", ""),
    guard(
        "discard: locks in one order",
        "    where d.id = any (discard_all.ids)\n    order by d.id\n",
        "    where d.id = any (discard_all.ids)\n",
    ),
    guard(
        "discard: locks",
        "    where d.id = any (discard_all.ids)\n    order by d.id\n    for update\n",
        "    where d.id = any (discard_all.ids)\n    order by d.id\n",
    ),
    guard("discard: only what was locked", "    where d.id = h.id\n    returning d.id\n", "    returning d.id\n"),
    guard("discard: payloads of those discarded", "    where j.id = any (array(select g.id from gone g))\n", ""),
    guard(
        "discard: payloads only of dead letters",
        "    where j.id = any (array(select g.id from gone g))\n",
        "    where j.id = any (discard_all.ids)\n",
    ),
    guard("discard: failures of those discarded", "    where f.id = any (array(select g.id from gone g))\n", ""),
    guard(
        "discard: failures only of dead letters",
        "    where f.id = any (array(select g.id from gone g))\n",
        "    where f.id = any (discard_all.ids)\n",
    ),
    guard("discard: who waits for jobs is told", "    perform queue.tell_waiters();\n", "    null;\n"),
];

const REOPEN: &[Guard] = &[
    guard("reopen: only the job named", "    where d.id = reopen.id\n", ""),
    redundant(
        "reopen: plainly done: in the same span",
        "m.first_id between (reopen.id >> 33) << 33 and reopen.id and m.last_id",
        "m.first_id <= reopen.id and m.last_id",
        "for the plan: that the row holds the id says the same",
    ),
    redundant(
        "reopen: plainly done: not beyond the last",
        "m.last_id >= reopen.id and reopen.id = any",
        "reopen.id = any",
        "for the plan: that the row holds the id says the same",
    ),
    guard("reopen: plainly done: among the row's jobs", " and reopen.id = any (m.ids) and", " and"),
    guard("reopen: plainly done: not the last of the row", " and cardinality(m.ids) > 1\n", "\n"),
    guard("reopen: plainly done alone: first", "where m.first_id = reopen.id and m.last_id = reopen.id", "where m.last_id = reopen.id"),
    guard("reopen: plainly done alone: last", "where m.first_id = reopen.id and m.last_id = reopen.id", "where m.first_id = reopen.id"),
    guard(
        "reopen: back only if its row was deleted",
        " and exists (select from reopened union all select from struck union all select from emptied)",
        "",
    ),
    guard("reopen: back if it was done", "exists (select from reopened union all select", "exists (select"),
    guard("reopen: back if it was struck", "select from struck union all ", ""),
    guard("reopen: back if it was alone", " union all select from emptied", ""),
    guard("reopen: the job named comes back", "where j.id = reopen.id and exists", "where exists"),
    guard("reopen: a new place", "select b.lane, queue.next_id(), b.id", "select b.lane, b.id, b.id"),
    guard("reopen: forgets what that job said", "    where p.id = any (array(select b.id from back b))\n", ""),
    guard("reopen: workers are told", "  perform queue.wake_for(came);\n", ""),
];
