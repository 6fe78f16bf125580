//! What workers do without an outcome: claim, beat, recover, promote, sleep.

use super::{Guard, Statement, guard, redundant};

const QUICK: &str = "interleave::a_second interleave::claims interleave::a_transactional";
const MODEL: &str = "model::whatever_is_done";

pub(super) const STATEMENTS: &[Statement] = &[
    Statement { file: "claim.sql", tests: &["guards::", QUICK, MODEL, "recovery:: schedule:: outcomes::f23"], guards: CLAIM },
    Statement { file: "take_one.sql", tests: &["guards::", "transactional::", QUICK], guards: TAKE_ONE },
    Statement { file: "give_back.sql", tests: &["guards::", QUICK, MODEL], guards: GIVE_BACK },
    Statement { file: "silent.sql", tests: &["guards:: recovery::", QUICK, MODEL], guards: SILENT },
    Statement { file: "recover.sql", tests: &["guards::", MODEL, "lease::f50 lease::crashes recovery::"], guards: RECOVER },
    Statement { file: "beat.sql", tests: &["guards::", "recovery:: lease::", MODEL], guards: BEAT },
    Statement { file: "register.sql", tests: &["guards::", "recovery:: lease::", MODEL], guards: REGISTER },
    Statement { file: "retire.sql", tests: &["guards::", "lease::a_worker_that_retires wake::", MODEL], guards: RETIRE },
    Statement { file: "sleep.sql", tests: &["guards::", "wake:: schedule::"], guards: SLEEP },
    Statement { file: "wake_up.sql", tests: &["guards::", "wake::"], guards: WAKE_UP },
    Statement { file: "promote.sql", tests: &["guards::", QUICK, MODEL], guards: PROMOTE },
    Statement { file: "prune_workers.sql", tests: &["guards::", "lease::a_silent", MODEL], guards: PRUNE_WORKERS },
    Statement { file: "prune_done.sql", tests: &["guards::prune guards::housekeeping", "days::", QUICK, MODEL], guards: PRUNE_DONE },
];

const CLAIM: &[Guard] = &[
    guard("of its lane", "where r.lane = l.lane and r.seq >= l.floor", "where r.seq >= l.floor"),
    guard("from the floor on", "where r.lane = l.lane and r.seq >= l.floor", "where r.lane = l.lane"),
    guard("in the order of places", "      order by r.seq\n", ""),
    guard("no more than so many of a lane", "      limit l.most\n", ""),
    guard("no more than so many in all", "    limit $6\n", "    limit $6::int * 2\n"),
    guard("locks", "      for update skip locked\n", ""),
    guard("passes over what is locked", "for update skip locked", "for update"),
    guard("only for a worker that lives", "    where exists (select from queue.worker w where w.id = $2 and w.expires_at > now())\n", ""),
    guard("only for this worker", "where w.id = $2 and w.expires_at > now()", "where w.expires_at > now()"),
    guard("only before its heartbeat expires", "where w.id = $2 and w.expires_at > now()", "where w.id = $2"),
    guard("counts the attempt", "least(attempts + 1, 32767)::smallint as attempts", "attempts"),
    guard("counts no further than a smallint", "least(attempts + 1, 32767)::smallint as attempts", "(attempts + 1)::smallint as attempts"),
    guard("keeps the crashes", "as attempts, crashes\n", "as attempts, 0::smallint as crashes\n"),
    guard("a lease of many lanes names none", "case when min(lane) = max(lane) then min(lane) end", "min(lane)"),
    guard("a lease lists its jobs by id", "(select * from taken order by id)", "(select * from taken)"),
    guard("no lease for nothing", "  having count(*) > 0\n", ""),
    guard("payloads of the jobs taken", "where j.id = t.id offset 0", "where j.id > 0 limit 1"),
    guard("a job without a payload is told of too", "left join lateral (select j.max_attempts", "join lateral (select j.max_attempts"),
];

const TAKE_ONE: &[Guard] = &[
    guard("of its lane", "where r.lane = l.lane and r.seq >= l.floor", "where r.seq >= l.floor"),
    guard("from the floor on", "where r.lane = l.lane and r.seq >= l.floor", "where r.lane = l.lane"),
    guard("in the order of places", "    order by r.seq\n", ""),
    guard("locks", "    for update skip locked\n", ""),
    guard("passes over what is locked", "for update skip locked", "for update"),
    redundant(
        "one of a lane",
        "    limit 1\n    for update",
        "    for update",
        "rows are locked as they are asked for, and the limit over all lanes asks for one",
    ),
    guard("one of all lanes", "  ) e\n  limit 1\n", "  ) e\n"),
    guard("the payload of the job taken", "where j.id = p.id offset 0", "where j.id > 0 limit 1"),
    guard("a job without a payload is told of too", "left join lateral (select j.max_attempts", "join lateral (select j.max_attempts"),
];

const GIVE_BACK: &[Guard] = &[
    guard("only the leases named", "  where token = any ($1)\n", "  where $1::uuid[] is not null\n"),
    guard("charges no attempt", "u.attempts - 1", "u.attempts"),
    guard("suspects stay so", "l.priority, u.crashes > 0)", "l.priority, false)"),
    guard("keeps the crashes", "u.attempts - 1, u.crashes\n", "u.attempts - 1, 0\n"),
    guard("each its own lane", "from queue.job j where j.id = u.id offset 0", "from queue.job j where j.id > 0 limit 1"),
    guard("once each", "where l.lane = j.lane limit 1", "where l.lane = j.lane"),
];

const SILENT: &[Guard] = &[
    guard("only of silent workers", "where not exists (select from queue.worker w where w.id = l.worker and w.expires_at > now())\n", ""),
    guard("silent is the lease's own worker", "w.id = l.worker and w.expires_at > now()", "w.expires_at > now()"),
    guard("silent is who does not beat", "w.id = l.worker and w.expires_at > now()", "w.id = l.worker"),
    redundant("in one order", "order by l.token\n", "", "it waits for no lock, so the order cannot matter"),
    guard("so many at most", "limit $1\n", "limit $1::bigint * 2\n"),
    guard("locks", "for update of l skip locked", ""),
    guard("passes over what is locked", "for update of l skip locked", "for update of l"),
];

const RECOVER: &[Guard] = &[
    guard("only the leases locked", "  where token = any ($1)\n", "  where $1::uuid[] is not null\n"),
    guard("counts the crash", "(u.crashes + 1)::smallint as crashes", "u.crashes"),
    guard("each its own lane", "from queue.job j where j.id = u.id offset 0", "from queue.job j where j.id > 0 limit 1"),
    guard("once each", "where l.lane = j.lane limit 1", "where l.lane = j.lane"),
    guard(
        "to the solo twin",
        "queue.meet_lane(k.queue, k.job_type, k.priority, true)",
        "queue.meet_lane(k.queue, k.job_type, k.priority, false)",
    ),
    guard("each twin once", "select distinct queue, job_type, priority from fallen", "select queue, job_type, priority from fallen"),
    guard("a new place", "select s.lane, queue.next_id(), f.id", "select s.lane, f.id, f.id"),
    guard(
        "returned: to its own queue",
        "join solo s on s.queue = f.queue and s.job_type = f.job_type and s.priority = f.priority\n  where f.crashes < $2",
        "join solo s on s.job_type = f.job_type and s.priority = f.priority\n  where f.crashes < $2",
    ),
    guard(
        "returned: to its own type",
        "join solo s on s.queue = f.queue and s.job_type = f.job_type and s.priority = f.priority\n  where f.crashes < $2",
        "join solo s on s.queue = f.queue and s.priority = f.priority\n  where f.crashes < $2",
    ),
    guard(
        "returned: to its own priority",
        "join solo s on s.queue = f.queue and s.job_type = f.job_type and s.priority = f.priority\n  where f.crashes < $2",
        "join solo s on s.queue = f.queue and s.job_type = f.job_type\n  where f.crashes < $2",
    ),
    guard("returned: with few crashes", "  where f.crashes < $2\n", "  where $2::smallint is not null\n"),
    guard("in the order of ids", "  order by f.id\n", ""),
    guard(
        "died: of its own queue",
        "join solo s on s.queue = f.queue and s.job_type = f.job_type and s.priority = f.priority\n  where f.crashes >= $2",
        "join solo s on s.job_type = f.job_type and s.priority = f.priority\n  where f.crashes >= $2",
    ),
    guard(
        "died: of its own type",
        "join solo s on s.queue = f.queue and s.job_type = f.job_type and s.priority = f.priority\n  where f.crashes >= $2",
        "join solo s on s.queue = f.queue and s.priority = f.priority\n  where f.crashes >= $2",
    ),
    guard(
        "died: of its own priority",
        "join solo s on s.queue = f.queue and s.job_type = f.job_type and s.priority = f.priority\n  where f.crashes >= $2",
        "join solo s on s.queue = f.queue and s.job_type = f.job_type\n  where f.crashes >= $2",
    ),
    guard("died: of many crashes", "  where f.crashes >= $2\n", ""),
    guard(
        "a long run fits",
        "least(extract(epoch from now() - claimed_at) * 1000, 2147483647)::int",
        "(extract(epoch from now() - claimed_at) * 1000)::int",
    ),
];

const BEAT: &[Guard] = &[
    guard("its own row", "where id = $1 and expires_at > now()", "where $1::uuid is not null and expires_at > now()"),
    guard("not once it has expired", "where id = $1 and expires_at > now()", "where id = $1"),
];

const REGISTER: &[Guard] = &[guard("alive for a while", "now() + $2 * interval '1 millisecond'", "now() + $2 * interval '0'")];

const RETIRE: &[Guard] = &[
    guard("its own row", "delete from queue.worker\nwhere id = $1", "delete from queue.worker"),
    guard("its own idle rows", "  delete from queue.idle\n  where worker = $1\n", "  delete from queue.idle\n"),
];

const SLEEP: &[Guard] = &[guard("twice is once", "\non conflict do nothing", "")];

const WAKE_UP: &[Guard] = &[guard("its own rows", "\nwhere worker = $1", "\nwhere $1::uuid is not null")];

const PROMOTE: &[Guard] = &[
    guard("only what is due", "    where s.run_at <= now()\n", ""),
    guard("the first that are due", "    order by s.run_at\n", ""),
    guard("so many at most", "    limit $1\n", "    limit $1::bigint * 2\n"),
    guard("locks", "    for update skip locked\n", ""),
    guard("passes over what is locked", "for update skip locked", "for update"),
    guard("a new place", "select lane, queue.next_id(), id", "select lane, id, id"),
    guard("in the order of their times", "  order by run_at, id\n", ""),
    guard("each its own queue", "from queue.lane l where l.lane = d.lane limit 1", "from queue.lane l limit 1"),
    guard("counts each once", "from queue.lane l where l.lane = d.lane limit 1", "from queue.lane l where l.lane = d.lane"),
];

const PRUNE_WORKERS: &[Guard] = &[
    guard("only after an hour", "w.expires_at < now() - interval '1 hour' and not exists", "not exists"),
    guard("only who holds nothing", " and not exists (select from queue.lease l where l.worker = w.id)", ""),
    guard(
        "who holds something itself",
        "not exists (select from queue.lease l where l.worker = w.id)",
        "not exists (select from queue.lease l)",
    ),
    guard(
        "idle rows of those that are gone",
        "\nwhere not exists (select from queue.worker w where w.id = i.worker and w.expires_at > now())",
        "",
    ),
    guard("idle rows by worker", "where w.id = i.worker and w.expires_at > now()", "where w.expires_at > now()"),
    guard("idle rows of the silent too", "where w.id = i.worker and w.expires_at > now()", "where w.id = i.worker"),
];

const PRUNE_DONE: &[Guard] = &[
    guard(
        "only after the retention",
        "    from queue.done_default d\n    where d.finished_at < now() - $1 * interval '1 second'\n",
        "    from queue.done_default d\n    where $1::float8 is not null\n",
    ),
    guard("so many at most", "    limit $2\n", "    limit $2::bigint * 2\n"),
    guard("locks", "    limit $2\n    for update skip locked\n", "    limit $2\n"),
    guard("passes over what is locked", "    limit $2\n    for update skip locked", "    limit $2\n    for update"),
    guard(
        "plain ones only after the retention",
        "    from queue.done_many_default d\n    where d.finished_at < now() - $1 * interval '1 second'\n",
        "    from queue.done_many_default d\n",
    ),
    guard("so many plain ones at most", "    limit $2 / 10\n", "    limit $2 * 10\n"),
    guard("locks plain ones", "    limit $2 / 10\n    for update skip locked\n", "    limit $2 / 10\n"),
    guard("passes over plain ones that are locked", "    limit $2 / 10\n    for update skip locked", "    limit $2 / 10\n    for update"),
    guard("payloads of those that go", "delete from queue.job\n  where id = any (array(select id from gone))", "delete from queue.job"),
    guard(
        "failures of those that go",
        "delete from queue.failure\n  where id = any (array(select id from gone))",
        "delete from queue.failure",
    ),
];
