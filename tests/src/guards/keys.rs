//! Ordering keys: what puts jobs behind each other, and what lets them go on, in statements of their own and in those of others.

use super::{Guard, Statement, guard, redundant};

const TESTS: &[&str] = &["keys::hands together::the_head", "keys::ways"];

pub(super) const STATEMENTS: &[Statement] = &[
    Statement { file: "0003_keys.sql", tests: &["keys::hands together::", "keys::ways"], guards: FUNCTIONS },
    Statement { file: "lock_keys.sql", tests: &["keys::hands"], guards: LOCK_KEYS },
    Statement { file: "insert_keyed.sql", tests: &["together::a_batch keys::hands", "keys::ways"], guards: INSERT_KEYED },
    Statement { file: "settle.sql", tests: &["keys::hands together::the_head"], guards: SETTLE_CALLED_OFF },
    Statement { file: "finish_one.sql", tests: TESTS, guards: SETTLE },
    Statement { file: "recover.sql", tests: TESTS, guards: RECOVER },
    Statement { file: "0006_control.sql", tests: &["guards::control guards::notices", "keys::hands together::the_head"], guards: CANCEL },
    Statement { file: "give_back.sql", tests: &["together::"], guards: SETTLE },
    Statement { file: "discard.sql", tests: TESTS, guards: DISCARD },
    Statement { file: "requeue.sql", tests: TESTS, guards: REQUEUE },
    Statement { file: "reopen.sql", tests: TESTS, guards: REOPEN },
];

const FUNCTIONS: &[Guard] = &[
    guard("a key is of a queue", "pg_catalog.md5(queue || '/' || key)", "pg_catalog.md5(key)"),
    guard("places follow commits", "  perform queue.lock_key(job_key);\n", ""),
    guard(
        "an old snapshot is not trusted",
        "current_setting('transaction_isolation') = 'read committed' then\n    insert",
        "true then\n    insert",
    ),
    guard("who is behind another leaves a hint", "    insert into queue.key_hint (key) values (job_key);\n", ""),
    guard("the first of a key", "b.seq > f.after order by b.seq limit 1", "b.seq > f.after order by b.seq desc limit 1"),
    guard("what is not moved keeps its hint", "    where h.key not in (select a.key from activated a)\n", "    where false\n"),
    guard("what is for later is scheduled", "    where coalesce(e.run_at <= moment, true)\n", ""),
    guard("living: blocked", "\n  union all select id from queue.blocked;", ";"),
];

const LOCK_KEYS: &[Guard] = &[
    guard("in one order", "  order by 1\n", ""),
    guard("all there are", "generate_series(0::bigint, 1023) n where $3\n", "generate_series(0::bigint, 1023) n where $3 and false\n"),
    guard("no more than asked for", "generate_series(0::bigint, 1023) n where $3\n", "generate_series(0::bigint, 1023) n\n"),
    redundant("each once", "  select distinct queue.key_id", "  select queue.key_id", "for speed: the union does it again"),
    redundant("a key that is null is none", " and k.key is not null\n", "\n", "for the reader: a lock on null is none"),
];

const INSERT_KEYED: &[Guard] = &[
    guard(
        "places in the order given",
        "(select e.* from entries e order by e.place) e",
        "(select e.* from entries e order by e.place desc) e",
    ),
    guard("blocked if it has a key", "order by e.place) e\n  where e.key is not null\n", "order by e.place) e\n"),
    guard(
        "each key is left a hint",
        "  select distinct e.key\n  from entries e\n  where e.key is not null\n",
        "  select distinct e.key\n  from entries e\n  where false and e.key is not null\n",
    ),
];

const SETTLE_CALLED_OFF: &[Guard] = &[
    guard("a freed key is left a hint", "  select key, seq\n  from freed\n", "  select key, seq\n  from freed\n  where false\n"),
    guard("one that was called off frees its key", "then (select j.key from queue.job j where j.id = s.id)", "then s.freed"),
];

const SETTLE: &[Guard] =
    &[guard("a freed key is left a hint", "  select key, seq\n  from freed\n", "  select key, seq\n  from freed\n  where false\n")];

const RECOVER: &[Guard] = &[
    guard("only the dead free their keys", "(f.crashes >= $2 or f.called_off) and f.freed is not null", "f.freed is not null"),
    guard("and only of keys that skip", "case when j.key_skips or u.id = any (t.called_off) then j.key end as freed", "j.key as freed"),
    guard("and those that were called off", "case when j.key_skips or u.id = any (t.called_off) then", "case when j.key_skips then"),
    guard("a freed key is left a hint", "  select key, seq\n  from freed\n", "  select key, seq\n  from freed\n  where false\n"),
];

const CANCEL: &[Guard] = &[
    guard("a blocked job is found", "i.key = k.key and i.id = k.id offset 0", "i.key = k.key and i.id = k.id and false offset 0"),
    guard(
        "a freed key is left a hint",
        "    select f.key, f.seq\n    from freed f\n",
        "    select f.key, f.seq\n    from freed f\n    where false\n",
    ),
    guard("whoever sees to keys is told", "    perform queue.wake_keys();\n", ""),
    guard("nobody is told if no key goes on", "  if keys then\n", "  if true then\n"),
    guard("a blocked job frees no key", "where a.key = k.key and a.id = k.id and k.id in", "where a.key = k.key and k.id in"),
    guard("only what was cancelled frees its key", " and k.id in (select o.id from over o)\n", "\n"),
    guard(
        "passes over blocked jobs that others hold",
        "    order by b.id\n    for update skip locked\n",
        "    order by b.id\n    for update\n",
    ),
    guard("only the blocked jobs that were locked", "    where b.key = i.key and b.seq = i.seq and b.id = i.id\n", ""),
];

const DISCARD: &[Guard] = &[guard(
    "a freed key is left a hint",
    "  select f.key, f.seq\n  from freed f\n",
    "  select f.key, f.seq\n  from freed f\n  where false\n",
)];

const REQUEUE: &[Guard] = &[
    guard("the head keeps its place", " and not exists (select from queue.active_key a where a.key = j.key and a.id = d.id)", ""),
    guard(
        "its key is left a hint",
        "  select distinct r.key\n  from risen r\n  where r.is_late\n",
        "  select distinct r.key\n  from risen r\n  where false\n",
    ),
];

const REOPEN: &[Guard] = &[guard(
    "its key is left a hint",
    "  select b.key\n  from back b\n  where b.key is not null\n",
    "  select b.key\n  from back b\n  where false\n",
)];
