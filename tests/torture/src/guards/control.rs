//! What is done to jobs that wait, or called off of those that run; and how long what is over is kept.

use super::{Guard, Statement, guard, redundant};

pub(super) const STATEMENTS: &[Statement] = &[
    Statement {
        file: "8_control.sql",
        tests: &["guards::control guards::notices", "control:: cancelling:: operate::a_cancelled", "model::whatever_is_done"],
        guards: CONTROL,
    },
    Statement { file: "settle.sql", tests: &["cancelling::"], guards: SETTLE },
    Statement { file: "recover.sql", tests: &["cancelling::"], guards: RECOVER },
    Statement { file: "give_back.sql", tests: &["cancelling::"], guards: GIVE_BACK },
];

const SETTLE: &[Guard] = &[
    guard(
        "what was called off is cancelled",
        "case when l.cancelling and s.verdict not in ('complete', 'forget') then 'cancel' else s.verdict end as verdict",
        "s.verdict",
    ),
    guard("unless it completed", "l.cancelling and s.verdict not in ('complete', 'forget') then 'cancel'", "l.cancelling then 'cancel'"),
];

const RECOVER: &[Guard] = &[
    guard("what was called off does not return", "  where f.crashes < $2\n    and not f.cancelling\n", "  where f.crashes < $2\n"),
    guard("only what was called off is cancelled", "  from fallen\n  where cancelling\n", "  from fallen\n"),
];

const GIVE_BACK: &[Guard] = &[guard("what was called off does not return", "\nwhere u.id = any (h.cancelling) is not true", "")];

const NOBODY_WAITS: &str = "for two operators at once, of whom one then has all: with skip locked nobody waits";

const CONTROL: &[Guard] = &[
    guard("found: only the jobs named", "  where j.id = any (ready_places.ids)\n", ""),
    guard("found in their lane", "any (array[j.lane, queue.lane_id(", "any (array[queue.lane_id("),
    guard("found in the solo twin", "array[j.lane, queue.lane_id(l.queue, l.job_type, l.priority, true)]", "array[j.lane]"),
    guard("found at their place", " and r.seq = j.id and r.id = j.id\n", "\n"),
    redundant(
        "found by id",
        " and r.seq = j.id and r.id = j.id\n",
        " and r.seq = j.id\n",
        "a place that is an id is the place of that job",
    ),
    guard("found again: only the jobs named", "  where r.id = any (ready_places.ids) and r.seq <> r.id;", "  where r.seq <> r.id;"),
    guard("found when they enter ready again", "  where r.id = any (ready_places.ids) and r.seq <> r.id;", "  where false;"),
    redundant("found again: only there", " and r.seq <> r.id;", ";", "for the plan: what is found twice is locked and deleted once"),
    guard("taken: only the scheduled ones named", "    where s.id = any (take_scheduled.ids)\n", ""),
    guard(
        "taken: passes over scheduled ones that others hold",
        "    order by s.id\n    for update skip locked",
        "    order by s.id\n    for update",
    ),
    guard("taken: passes over ready ones that others hold", "    for update of r skip locked", "    for update of r"),
    guard("taken: only the scheduled ones that were locked", "  where s.ctid = any (array(select h.at from held h))\n", ""),
    guard("taken: only the ready ones that were locked", "  where r.ctid = any (array(select h.at from held h))\n", ""),
    redundant("taken: scheduled ones in one order", "    order by s.id\n    for update skip", "    for update skip", NOBODY_WAITS),
    redundant("taken: ready ones in one order", "    order by r.id\n", "", NOBODY_WAITS),
    guard("over as cancelled", "o.attempts, true\n", "o.attempts, false\n"),
    guard(
        "called off: no lease but those that hold the jobs",
        "    where exists (select from unnest(h.ids) u (id) where u.id = any (cancel_running_all.ids))\n",
        "",
    ),
    guard("called off: locks in one order", "    order by h.token\n    for update of h", "    for update of h"),
    guard(
        "called off: only the jobs named",
        "from unnest(l.ids) u (id) where u.id = any (cancel_running_all.ids))",
        "from unnest(l.ids) u (id))",
    ),
    guard("called off: those before stay so", "      select u.id from unnest(l.cancelling) u (id)\n      union\n", ""),
    guard("told at once", "    perform pg_notify('queue.wake', '!control');\n", "    null;\n"),
    guard("a suspect stays in a solo lane", "coalesce(t.twin, t.plain) as lane", "t.plain as lane"),
    guard("the job's own row follows", "    set lane = m.plain\n", "    set lane = j.lane\n"),
    guard(
        "a job is renamed by its own move",
        "any (array(select x.id from moving x)) and j.id = m.id",
        "any (array(select x.id from moving x))",
    ),
    guard("run now: a new place", "select t.lane, queue.next_id(), t.id", "select t.lane, t.id, t.id"),
    guard("run now: in the order of their times", "    order by t.run_at, t.id\n", ""),
    guard("ranked: a ready job stays ready", "    from moving m\n    where m.run_at is null\n", "    from moving m\n"),
    guard("ranked: only a ready one is", "    from moving m\n    where m.run_at is not null\n", "    from moving m\n    where false\n"),
    guard("put off: workers are told", "from put_off p;\n  perform queue.wake_for(moved);\n", "from put_off p;\n"),
    guard("run now: workers are told", "from entered e;\n  perform queue.wake_for(moved);\n", "from entered e;\n"),
    guard("ranked: workers are told", "from moving m;\n  perform queue.wake_for(moved);\n", "from moving m;\n"),
    guard("told: those of the queues of these jobs", "      where j.id = any (wake_for.ids)\n", ""),
    guard("cancelled: who waits for jobs is told", "    perform queue.tell_waiters();\n", "    null;\n"),
    guard(
        "called off: nobody is told if nothing was",
        "  if found then\n    perform pg_notify('queue.wake', '!control')",
        "  if true then\n    perform pg_notify('queue.wake', '!control')",
    ),
];
