//! Verdicts: of a worker on its leases, and of a transactional job on itself.

use super::{Guard, Statement, guard, redundant};

pub(super) const STATEMENTS: &[Statement] = &[
    Statement {
        file: "settle.sql",
        tests: &["guards:: recovery::", "model::whatever_is_done", "outcomes::", "interleave::a_second interleave::claims"],
        guards: SETTLE,
    },
    Statement {
        file: "settle_leases.sql",
        tests: &["guards:: recovery::", "interleave::a_second", "model::whatever_is_done"],
        guards: SETTLE_LEASES,
    },
    Statement {
        file: "finish_one.sql",
        tests: &["guards::", "interleave::a_second interleave::a_transactional", "transactional::"],
        guards: FINISH_ONE,
    },
];

const SETTLE: &[Guard] = &[
    guard("only the leases named", "  where l.token = any ($1)\n  order by l.token", "  order by l.token"),
    guard("locks in one order", "  order by l.token\n  for update", "  for update"),
    guard("locks the leases", "  order by l.token\n  for update", "  order by l.token"),
    guard("fenced by the token", "join listed l on l.token = s.token and l.id = s.id", "join listed l on l.id = s.id"),
    guard("fenced by the id", "join listed l on l.token = s.token and l.id = s.id", "join listed l on l.token = s.token"),
    guard("fenced at all", "  join listed l on l.token = s.token and l.id = s.id\n", ""),
    redundant(
        "left over of the same lease",
        "left join fenced f on f.token = l.token and f.id = l.id",
        "left join fenced f on f.id = l.id",
        "a job is in one lease",
    ),
    guard(
        "left over but for the same job",
        "left join fenced f on f.token = l.token and f.id = l.id",
        "left join fenced f on f.token = l.token",
    ),
    guard("left over is what has no verdict", "  where f.id is null\n", ""),
    guard(
        "what is left over keeps its order",
        "array_agg(l.id order by l.place) as ids, array_agg(l.attempts order by l.place) as attempts,\n    array_agg(l.crashes order by l.place)",
        "array_agg(l.id order by l.id desc) as ids, array_agg(l.attempts order by l.id desc) as attempts,\n    array_agg(l.crashes order by l.id desc)",
    ),
    redundant(
        "a lease ends only when nothing is left",
        " except select token from left_over",
        "",
        "a row that the same statement shrinks is changed once, and the server shrinks it first; but it does not promise that",
    ),
    guard("shrinks its own lease", " and l.token = o.token", ""),
    redundant(
        "shrinks leases found by their key",
        "l.token = any (array(select token from left_over)) and ",
        "",
        "for the plan: the join says the same",
    ),
    guard(
        "plainly completed: verdict",
        "where verdict = 'complete' and output is null and attempts = 1",
        "where output is null and attempts = 1",
    ),
    guard(
        "plainly completed: no output",
        "where verdict = 'complete' and output is null and attempts = 1",
        "where verdict = 'complete' and attempts = 1",
    ),
    guard(
        "plainly completed: first attempt",
        "where verdict = 'complete' and output is null and attempts = 1",
        "where verdict = 'complete' and output is null",
    ),
    guard("history in the order of ids", "array_agg(id order by id)", "array_agg(id)"),
    guard(
        "history of one lane",
        "statement_timestamp(), lane, array_agg(id order by id)\n  from fenced\n  where verdict = 'complete' and output is null and attempts = 1\n  group by lane, id",
        "statement_timestamp(), min(lane), array_agg(id order by id)\n  from fenced\n  where verdict = 'complete' and output is null and attempts = 1\n  group by id",
    ),
    guard("history of one span", "group by lane, id >> 33, (id >> 20)", "group by lane, (id >> 20)"),
    guard("history of one day", "group by lane, id >> 33, (id >> 20) / 86400000", "group by lane, id >> 33"),
    guard("cancelled is not completed", "attempts, verdict = 'cancel', output", "attempts, false, output"),
    guard("completed: verdict", "(verdict = 'complete' and (output", "((output"),
    guard("completed: not plainly", " and (output is not null or attempts > 1))", ")"),
    guard("completed: with an output", "(output is not null or attempts > 1)", "attempts > 1"),
    guard("completed: at a later attempt", "(output is not null or attempts > 1)", "output is not null"),
    guard(
        "forgets payloads by verdict",
        "delete from queue.job\n  where id = any (array(select id from fenced where verdict = 'forget'))",
        "delete from queue.job\n  where id = any (array(select id from fenced))",
    ),
    guard(
        "forgets failures by verdict",
        "delete from queue.failure\n  where id = any (array(select id from fenced where verdict = 'forget'))",
        "delete from queue.failure\n  where id = any (array(select id from fenced))",
    ),
    guard("a snooze is no attempt", "attempts - (verdict = 'snooze')::int", "attempts"),
    guard(
        "waits count from now",
        "select statement_timestamp() + wait_ms * interval '1 millisecond', id",
        "select statement_timestamp(), id",
    ),
    guard("waiting by verdict", "  where verdict in ('retry', 'snooze')\n", ""),
    guard("a release is no attempt", "select lane, id, id, attempts - 1, crashes", "select lane, id, id, attempts, crashes"),
    guard("released by verdict", "  where verdict = 'release'\n", ""),
    guard("died by verdict", "  where verdict = 'dead'\n", ""),
    guard("failed by verdict", "  where verdict in ('retry', 'dead')\n", ""),
    guard("refused is what was not fenced", "\nwhere not exists (select from fenced f where f.token = s.token and f.id = s.id)", ""),
    guard("refused by token", "where f.token = s.token and f.id = s.id)", "where f.id = s.id)"),
    guard("refused by id", "where f.token = s.token and f.id = s.id)", "where f.token = s.token)"),
];

const SETTLE_LEASES: &[Guard] = &[
    guard("only the leases named", "  where token = any ($1)\n", ""),
    guard("alike: of one lane", "lane is not null and cardinality", "cardinality"),
    guard("alike: large", "cardinality(ids) >= 100 and ", ""),
    guard("alike: one span", " and ids[1] >> 33 = ids[cardinality(ids)] >> 33", ""),
    guard("alike: one day", "\n      and (ids[1] >> 20) / 86400000 = (ids[cardinality(ids)] >> 20) / 86400000", ""),
    guard(
        "a lease of many lanes asks the jobs",
        "coalesce(g.lane, (select j.lane from queue.job j where j.id = u.id))",
        "coalesce(g.lane, 0)",
    ),
    guard("each its own lane", "(select j.lane from queue.job j where j.id = u.id)", "(select j.lane from queue.job j limit 1)"),
    guard("plain is what is not alike", "  where not g.alike\n", ""),
    guard("as it is if alike", "  where alike\n", ""),
    guard("history in the order of ids", "array_agg(id order by id)", "array_agg(id)"),
    guard(
        "history of one lane",
        "now(), lane, array_agg(id order by id)\n  from plain\n  group by lane, id",
        "now(), min(lane), array_agg(id order by id)\n  from plain\n  group by id",
    ),
    guard("history of one span", "group by lane, id >> 33, (id >> 20)", "group by lane, (id >> 20)"),
    guard("history of one day", "group by lane, id >> 33, (id >> 20) / 86400000", "group by lane, id >> 33"),
    guard("refused is what had no lease", "\nwhere not exists (select from gone g where g.token = t)", ""),
    guard("refused each by its token", "where not exists (select from gone g where g.token = t)", "where not exists (select from gone g)"),
];

const FINISH_ONE: &[Guard] = &[
    guard("its lane", "where lane = $1 and seq = $2 and id = $3", "where $1::bigint is not null and seq = $2 and id = $3"),
    guard("its place", "where lane = $1 and seq = $2 and id = $3", "where lane = $1 and $2::bigint is not null and id = $3"),
    guard("its id", "where lane = $1 and seq = $2 and id = $3", "where lane = $1 and seq = $2 and $3::bigint is not null"),
    guard("completed by verdict", "\n  where $4::text = 'complete'\n", "\n  where $4::text is not null\n"),
    guard(
        "completed if the entry was there",
        "  from fenced\n  where $4::text = 'complete'",
        "  from (select $3::bigint as id) f\n  where $4::text = 'complete'",
    ),
    guard(
        "forgets payloads by verdict",
        "delete from queue.job\n  where id = any (array(select id from fenced where $4 = 'forget'))",
        "delete from queue.job\n  where id = any (array(select id from fenced))",
    ),
    guard(
        "forgets failures by verdict",
        "delete from queue.failure\n  where id = any (array(select id from fenced where $4 = 'forget'))",
        "delete from queue.failure\n  where id = any (array(select id from fenced))",
    ),
    guard("a snooze is no attempt", "$5 - ($4 = 'snooze')::int", "$5"),
    guard(
        "waits count from the clock",
        "select clock_timestamp() + $7::float8 * interval '1 millisecond', id",
        "select now() + $7::float8 * interval '1 millisecond', id",
    ),
    guard("waits at all", "clock_timestamp() + $7::float8 * interval '1 millisecond'", "clock_timestamp() + $7::float8 * interval '0'"),
    guard("waiting by verdict", "  where $4 in ('retry', 'snooze')\n", ""),
    guard("died by verdict", "  where $4 = 'dead'\n", ""),
    guard("failed by verdict", "  where $4 in ('retry', 'dead')\n", ""),
    guard("finished by the clock", "select id, clock_timestamp(), $8::int", "select id, now(), $8::int"),
];
