//! What is done to jobs that wait, or called off of those that run; and how long what is over is kept.

use super::{Guard, Statement, guard, redundant};

pub(super) const STATEMENTS: &[Statement] = &[
    Statement {
        file: "0006_control.sql",
        tests: &[
            "guards::",
            "interleave::a_second interleave::claims",
            "model::whatever_is_done",
            "control:: called_off:: observe:: retention::",
        ],
        guards: CONTROL,
    },
    Statement { file: "settle.sql", tests: &["called_off::"], guards: SETTLE },
    Statement { file: "recover.sql", tests: &["called_off::"], guards: RECOVER },
    Statement { file: "give_back.sql", tests: &["called_off::"], guards: GIVE_BACK },
];

const SETTLE: &[Guard] = &[
    guard(
        "what was called off is cancelled",
        "case when l.called_off and s.verdict not in ('complete', 'forget') then 'cancel' else s.verdict end as verdict",
        "s.verdict",
    ),
    guard("unless it completed", "l.called_off and s.verdict not in ('complete', 'forget') then 'cancel'", "l.called_off then 'cancel'"),
];

const RECOVER: &[Guard] = &[
    guard("what was called off does not return", "  where f.crashes < $2\n    and not f.called_off\n", "  where f.crashes < $2\n"),
    guard("only what was called off is cancelled", "  from fallen\n  where called_off\n", "  from fallen\n"),
];

const GIVE_BACK: &[Guard] = &[guard("what was called off does not return", "\nwhere u.id = any (h.called_off) is not true", "")];

const CONTROL: &[Guard] = &[
    guard("only the jobs named", "    where j.id = any (ready_places.ids)\n", ""),
    guard(
        "fresh: in its lane",
        "join queue.ready r on r.lane = w.lane and r.seq = w.id and r.id = w.id",
        "join queue.ready r on r.seq = w.id and r.id = w.id",
    ),
    redundant(
        "fresh: at its place",
        "join queue.ready r on r.lane = w.lane and r.seq = w.id and r.id = w.id",
        "join queue.ready r on r.lane = w.lane and r.id = w.id",
        "for the plan: a job has one entry",
    ),
    guard("elsewhere: not fresh", "where not exists (select from fresh f where f.id = w.id)\n      and not exists", "where not exists"),
    redundant(
        "elsewhere: not scheduled",
        "      and not exists (select from queue.scheduled s where s.id = w.id)\n",
        "",
        "for speed: it has no entry in ready, and the look finds none",
    ),
    redundant(
        "elsewhere: not dead",
        "      and not exists (select from queue.dead d where d.id = w.id)\n",
        "",
        "for speed: it has no entry in ready, and the look finds none",
    ),
    guard("looked for in both lanes", "r.lane in (e.lane, e.solo)", "r.lane in (e.lane)"),
    guard("looked for by id", "r.lane in (e.lane, e.solo) and r.id = e.id", "r.lane in (e.lane, e.solo)"),
    guard("cancelled: only the scheduled ones named", "    where s.id = any (cancel_waiting_all.ids)\n", ""),
    guard("put off: only the scheduled ones named", "    where s.id = any (reschedule_all.ids)\n", ""),
    guard("run now: only the ones named", "    where s.id = any (run_now_all.ids)\n", ""),
    guard("ranked: only the scheduled ones named", "    where s.id = any (set_priority_all.ids)\n", ""),
    guard("over as cancelled", "o.attempts, true\n", "o.attempts, false\n"),
    guard("called off: locks in one order", "    order by h.token\n    for update of h", "    for update of h"),
    guard(
        "called off: only the jobs named",
        "from unnest(l.ids) u (id) where u.id = any (call_off_all.ids))",
        "from unnest(l.ids) u (id))",
    ),
    guard("called off: those before stay so", "      select u.id from unnest(l.called_off) u (id)\n      union\n", ""),
    guard("told at once", "    perform pg_notify('queue.wake', '!control');\n", "    null;\n"),
    guard("a suspect stays in a solo lane", "coalesce(t.twin, t.plain) as lane", "t.plain as lane"),
    guard("the job's own row follows", "    set lane = m.plain\n", "    set lane = j.lane\n"),
    guard(
        "a job is renamed by its own move",
        "any (array(select x.id from moving x)) and j.id = m.id",
        "any (array(select x.id from moving x))",
    ),
    guard("run now: a new place", "select u.lane, queue.next_id(), u.id", "select u.lane, u.id, u.id"),
];
