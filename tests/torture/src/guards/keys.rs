//! Ordering keys: what puts jobs behind each other, and what lets them go on, in statements of their own and in those of others.

use super::{Guard, Statement, guard, redundant};

const TESTS: &[&str] = &["keys::edges keys::hands together::the_head", "keys::ways"];

pub(super) const STATEMENTS: &[Statement] = &[
    Statement {
        file: "3_keys.sql",
        tests: &["keys::edges keys::hands unique::held", "guards::notices together::", "keys::ways"],
        guards: FUNCTIONS,
    },
    Statement { file: "lock_keys.sql", tests: &["keys::hands"], guards: LOCK_KEYS },
    Statement {
        file: "insert_with.sql",
        tests: &["together::a_batch guards::order::jobs_stand keys::edges", "keys::ways"],
        guards: INSERT_KEYED,
    },
    Statement { file: "settle.sql", tests: &["keys::hands together::the_head"], guards: SETTLE_CALLED_OFF },
    Statement { file: "finish_one.sql", tests: &["keys::ways::transactions", "keys::ways"], guards: SETTLE },
    Statement { file: "recover.sql", tests: TESTS, guards: RECOVER },
    Statement { file: "8_control.sql", tests: &["guards::control guards::notices", "keys::hands together::the_head"], guards: CANCEL },
    Statement { file: "give_back.sql", tests: &["together::"], guards: SETTLE },
    Statement { file: "9_requeue.sql", tests: TESTS, guards: DISCARD },
    Statement { file: "9_requeue.sql", tests: TESTS, guards: REQUEUE },
    Statement { file: "9_requeue.sql", tests: &["keys::edges keys::hands guards::control::a_job_comes_back"], guards: REOPEN },
];

const ONE_HEAD: &str =
    "for a mistake elsewhere: places follow commits, so two that move a key on find the same job, and one of them has it";

const FUNCTIONS: &[Guard] = &[
    guard("a place in a key is one", "constraint blocked_line primary key (key, seq)", "constraint blocked_line check (true)"),
    guard("a key has one head", "constraint active_key_is_one primary key (key)", "constraint active_key_is_one check (true)"),
    guard("a hint has a place of its own", "constraint key_hint_order primary key (seq)", "constraint key_hint_order check (true)"),
    guard("a key is of a queue", "queue.hash(queue || '/' || key)", "queue.hash(key)"),
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
    guard(
        "who sees a head does not wait for its end",
        "    where not exists (select from queue.active_key a where a.key = job_key) and not exists",
        "    where not exists",
    ),
    guard("nor is anybody waiting", " and not exists (select from queue.blocked b where b.key = job_key)\n", "\n"),
    guard("a keyed job has a type", "  if new_lane is null then\n", "  if false then\n"),
    guard("a keyed payload fits", "  perform queue.check_payload(insert_in_line.payload);\n", ""),
    guard("a head for later is scheduled", "  elsif run_at > clock_timestamp() then\n", "  elsif false then\n"),
    guard("its lane is met", "  perform queue.meet_lane(insert_in_line.queue,", "  perform queue.lane_id(insert_in_line.queue,"),
    guard("a head is told of", "    perform queue.wake(insert_in_line.queue);\n", "    null;\n"),
    guard("who is behind another is told of", "  else\n    perform queue.wake_keys();\n", "  else\n    null;\n"),
    redundant("hints from a floor on", "      where h.seq >= unblock.floor\n", "", "for speed: dead index entries are not walked"),
    guard("hints in their order", "      order by h.seq\n", ""),
    guard("no more hints than asked for", "      limit unblock.most\n", ""),
    guard(
        "passes over hints that others have",
        "      limit unblock.most\n      for update skip locked\n",
        "      limit unblock.most\n      for update\n",
    ),
    redundant("a head is one", "    from held h\n    on conflict do nothing\n", "    from held h\n", ONE_HEAD),
    redundant(
        "a head is one, to its producer",
        "b where b.key = job_key)\n    on conflict do nothing;",
        "b where b.key = job_key);",
        ONE_HEAD,
    ),
    guard("only keys that have no head", "    where (select a.id from queue.active_key a where a.key = k.key) is null\n", ""),
    redundant("from a place on", " and b.seq > f.after order by b.seq", " order by b.seq", "for speed: nothing of the key is before it"),
    guard(
        "passes over jobs that others have",
        "any (array(select h.at from head h))\n    for update skip locked\n",
        "any (array(select h.at from head h))\n    for update\n",
    ),
    guard(
        "only what was moved leaves",
        "select h.at from head h where h.key in (select a.key from activated a)",
        "select b.ctid from queue.blocked b",
    ),
    guard("ready in the order of their places", "    order by e.seq\n", ""),
    guard(
        "ready now is not scheduled too",
        "    from entered e\n    where e.run_at > moment\n",
        "    from entered e\n    where e.run_at is not null\n",
    ),
    guard("whoever serves its queue is told", "  perform queue.wake(q.queue)\n  from (\n", "  perform (q.queue)\n  from (\n"),
];

const LOCK_KEYS: &[Guard] = &[
    guard("in one order", "  order by 1\n", ""),
    guard("all there are", "generate_series(0::bigint, 1023) n where $3\n", "generate_series(0::bigint, 1023) n where $3 and false\n"),
    guard("no more than asked for", "generate_series(0::bigint, 1023) n where $3\n", "generate_series(0::bigint, 1023) n\n"),
    redundant("each once", "  select distinct queue.key_id", "  select queue.key_id", "for speed: the union does it again"),
    redundant("a key that is null is none", " and k.key is not null\n", "\n", "for the reader: a lock on null is none"),
];

const INSERT_KEYED: &[Guard] = &[
    guard("ids in the order given", "    order by 1\n", ""),
    guard("ready at once if it has no key", "  where e.key is null and e.run_at is null\n", "  where e.run_at is null\n"),
    guard("ready only if for now", "  where e.key is null and e.run_at is null\n", "  where e.key is null\n"),
    guard("scheduled if for later", "  where e.key is null and e.run_at is not null\n", "  where e.key is null\n"),
    guard("only those without a key", "  where e.key is null and e.run_at is not null\n", "  where e.run_at is not null\n"),
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
    guard("only the dead free their keys", "(f.crashes >= $2 or f.cancelling) and f.freed is not null", "f.freed is not null"),
    guard("and only of keys that skip", "case when j.key_skips or u.id = any (t.cancelling) then j.key end as freed", "j.key as freed"),
    guard("and those that were called off", "case when j.key_skips or u.id = any (t.cancelling) then", "case when j.key_skips then"),
    guard("a freed key is left a hint", "  select key, seq\n  from freed\n", "  select key, seq\n  from freed\n  where false\n"),
];

const CANCEL: &[Guard] = &[
    guard("a blocked job is found", "      and b.id = any (cancel_waiting_all.ids)\n", "      and false\n"),
    guard("only the blocked jobs named", "      and b.id = any (cancel_waiting_all.ids)\n", ""),
    redundant(
        "those that were ready are not looked for in their lines",
        " where k.id not in (select t.id from unnest(taken) t)",
        "",
        "for speed: they are not there",
    ),
    guard(
        "a freed key is left a hint",
        "    select f.key, f.seq\n    from freed f\n",
        "    select f.key, f.seq\n    from freed f\n    where false\n",
    ),
    guard("whoever sees to keys is told", "    perform queue.wake_keys();\n", ""),
    guard("nobody is told if no key goes on", "  if keys then\n", "  if true then\n"),
    guard("a blocked job frees no key", "where a.key = k.key and a.id = k.id)", "where a.key = k.key)"),
    guard("only what was cancelled frees its key", "      where k.id in (select o.id from over o)\n", ""),
    guard(
        "passes over blocked jobs that others hold",
        "    order by b.id\n    for update skip locked\n",
        "    order by b.id\n    for update\n",
    ),
    guard("only the blocked jobs that were locked", "    where b.ctid = any (array(select i.at from in_line i))\n", ""),
];

const DISCARD: &[Guard] = &[
    guard(
        "a freed key is left a hint",
        "    select f.key, f.seq\n    from freed f\n",
        "    select f.key, f.seq\n    from freed f\n    where false\n",
    ),
    guard("only the head frees its key", "= g.id) and k.id = g.id)", "= g.id))"),
];

const REQUEUE: &[Guard] = &[
    guard("places follow commits", "select queue.lock_key(s.stripe)", "select s.stripe"),
    guard("late ones in the order of their ids", "where r.is_late order by r.id) r", "where r.is_late) r"),
    guard(
        "only late ones to the end",
        "cross join (select r.* from risen r where r.is_late order",
        "cross join (select r.* from risen r order",
    ),
    guard("late ones are not ready", "    where not r.is_late\n    order by r.id\n", "    order by r.id\n"),
    guard("the head keeps its place", " and not exists (select from queue.active_key a where a.key = j.key and a.id = d.id)", ""),
    guard(
        "its key is left a hint",
        "    select distinct r.key\n    from risen r\n    where r.is_late\n",
        "    select distinct r.key\n    from risen r\n    where false\n",
    ),
];

const REOPEN: &[Guard] = &[
    guard(
        "its key is left a hint",
        "    select b.key\n    from back b\n    where b.key is not null\n",
        "    select b.key\n    from back b\n    where false\n",
    ),
    guard("places follow commits", "select queue.lock_key(b.key)\n", "select b.key\n"),
    guard("ready only without a key", "    from back b\n    where b.key is null\n", "    from back b\n"),
    guard(
        "to the end of a key only with one",
        "    from back b\n    where b.key is not null\n  ), queued_up",
        "    from back b\n  ), queued_up",
    ),
];
