//! What producers do, and the functions that they call.

use super::{Guard, Statement, guard, redundant};

const ENQUEUE_TESTS: &[&str] = &["enqueue:: schedule:: durability::", "guards::", "model::whatever_is_done"];

pub(super) const STATEMENTS: &[Statement] = &[
    Statement { file: "enqueue.sql", tests: ENQUEUE_TESTS, guards: ENQUEUE },
    Statement { file: "enqueue_relaxed.sql", tests: ENQUEUE_TESTS, guards: ENQUEUE_RELAXED },
    Statement {
        file: "insert_all.sql",
        tests: &["guards::order", "bulk::a_batch", "bulk::", "schedule::", "model::whatever_is_done"],
        guards: INSERT_ALL,
    },
    Statement { file: "meet_lanes.sql", tests: &["bulk::a_batch", "guards::", "bulk::", "model::whatever_is_done"], guards: MEET_LANES },
    Statement {
        file: "1_jobs.sql",
        tests: &[
            "guards::rows guards::a_suspect guards::a_lane_that bulk::each_queue bulk::a_queue",
            "enqueue:: migrate:: wake:: payloads:: refuse:: guards::",
            "bulk:: days:: recovery:: outcomes:: schedule::",
            "model::whatever_is_done",
            "registry:: durability::",
        ],
        guards: FUNCTIONS,
    },
    Statement {
        file: "4_unique.sql",
        tests: &["unique::held", "unique:: together::a_unique --skip races --skip worker", "unique::races"],
        guards: KEYS,
    },
    Statement {
        file: "6_enqueue.sql",
        tests: &["guards::notices keys::edges together::blocked", "unique:: --skip races", "capacity::", "unique::races"],
        guards: WITH,
    },
];

const ENQUEUE: &[Guard] = &[
    guard("a wait counts from the clock", "pg_catalog.clock_timestamp()", "pg_catalog.now()"),
    guard("a time is kept", "coalesce($6, pg_catalog", "coalesce(case when false then $6::pg_catalog.timestamptz end, pg_catalog"),
];

const ENQUEUE_RELAXED: &[Guard] = &[
    guard("does not wait for the disk", "'synchronous_commit', 'off', true", "'synchronous_commit', 'on', true"),
    guard("a time is kept", "coalesce($6, pg_catalog", "coalesce(case when false then $6::pg_catalog.timestamptz end, pg_catalog"),
    guard("the setting ends with the statement", "'synchronous_commit', 'off', true", "'synchronous_commit', 'off', false"),
    redundant(
        "a wait counts from the clock",
        "pg_catalog.clock_timestamp()",
        "pg_catalog.now()",
        "for likeness: the statement is its own transaction, which begins with it",
    ),
];

const INSERT_ALL: &[Guard] = &[
    guard("ids in the order given", "    order by 1\n", ""),
    guard("ready if for now", "  where e.run_at is null\n", ""),
    guard("scheduled if for later", "  where e.run_at is not null\n", ""),
];

const MEET_LANES: &[Guard] = &[guard("in the order asked for", "    order by l.place\n", "    order by l.place desc\n")];

const FUNCTIONS: &[Guard] = &[
    guard("ids are of one time and unlike", "<< 20)\n    | (pg_catalog.nextval('queue.id_seq'::regclass) & 1048575)", "<< 20)"),
    guard("a lane is of a queue", "queue.hash(queue || '/' || job_type", "queue.hash(job_type"),
    guard("a lane is of a job type", " || job_type || '/'", " || '/'"),
    guard("a lane is of a priority", " || priority::text || '/'", " || '/'"),
    guard("a lane is solo or not", " || '/' || solo::text", ""),
    guard("a lane's queue is a name", "  constraint lane_queue_is_a_name check (queue.is_name(queue)),\n", ""),
    guard("a lane's job type is a name", "  constraint lane_job_type_is_a_name check (queue.is_name(job_type)),\n", ""),
    guard("a lane is its hash", ",\n  constraint lane_is_its_hash check (lane = queue.lane_id(queue, job_type, priority, solo))", ""),
    guard("null is no name", "return name is not null and name ~", "return name ~"),
    guard(
        "wakes only who sleeps",
        "if exists (select from queue.idle i where i.queue in (wake.queue, '*')) or current_setting('transaction_isolation') <> 'read committed' then",
        "if true then",
    ),
    guard("wakes who sleeps over this queue", "i.queue in (wake.queue, '*')", "i.queue in ('*')"),
    guard("wakes who sleeps over any", "i.queue in (wake.queue, '*')", "i.queue in (wake.queue)"),
    guard("wakes under an old snapshot", " or current_setting('transaction_isolation') <> 'read committed' then", " then"),
    guard("a place is taken once", ",\n  constraint ready_claim primary key (lane, seq)", ""),
    guard("a job waits once for a time", ",\n  constraint scheduled_due primary key (run_at, id)", ""),
    guard("a time is one", ",\n  constraint scheduled_run_at_in_range check (run_at >= '1970-01-01+00' and run_at < '10000-01-01+00')", ""),
    guard("a token names one lease", "  constraint lease_pkey primary key (token),\n", ""),
    guard("a lease holds something", "  constraint lease_holds_something check (cardinality(ids) > 0),\n", ""),
    guard(
        "a lease's lists match",
        ",\n  constraint lease_arrays_match check (cardinality(ids) = cardinality(attempts) and cardinality(ids) = cardinality(crashes))",
        "",
    ),
    guard("cancelled jobs have no output", ",\n  constraint done_cancelled_has_no_output check (not cancelled or output is null)", ""),
    guard("a job is over once", "  constraint done_pkey primary key (id),\n", ""),
    guard(
        "a row of history spans its jobs",
        "  constraint done_many_spans_its_ids check (first_id = ids[1] and last_id = ids[cardinality(ids)]),\n",
        "",
    ),
    guard("a row of history is of one span", ",\n  constraint done_many_is_close_together check (first_id >> 33 = last_id >> 33)", ""),
    guard("a job dies once", ",\n  constraint dead_pkey primary key (id)", ""),
    guard("a job is enqueued once", "constraint job_pkey primary key (id)", "constraint job_pkey check (true)"),
    guard("a worker is there once", ",\n  constraint worker_pkey primary key (id)", ""),
    guard("a worker sleeps once", ",\n  constraint idle_pkey primary key (queue, worker)", ""),
];

const WITH: &[Guard] = &[
    guard("the options are an object", "  if jsonb_typeof(options) is distinct from 'object' then\n", "  if false then\n"),
    guard("null is not given", "    continue when kind = 'null';\n", ""),
    guard("what does not fit is refused", "    if fits is not true then\n", "    if false then\n"),
    guard("a text is a text", "    fits := kind = 'string';\n", "    fits := true;\n"),
    guard("a queue is a name", "fits := fits and queue.is_name(word);", "null;"),
    guard("a number is a whole one", "case when kind = 'number' and word ~ '^-?[0-9]{1,5}$' then word end", "word::numeric"),
    guard("a priority is in range", "coalesce(whole between -32768 and 32767, false)", "true"),
    guard("there is an attempt", "coalesce(whole between 1 and 32767, false)", "true"),
    guard(
        "a time is within range",
        "fits := said.run_at >= '1970-01-01+00' and said.run_at < '10000-01-01+00';",
        "fits := said.run_at is not null;",
    ),
    guard("one time is said", "if options -> 'run_at' <> 'null' and options -> 'after' <> 'null' then", "if false then"),
    guard("a policy is known", "fits := fits and word in ('block', 'skip');", "null;"),
    guard("a key is held for some time", "fits := fits and said.unique_until > clock_timestamp();", "null;"),
    guard("what a conflict leads to is known", "fits := fits and word in ('keep', 'replace', 'debounce');", "null;"),
    guard("metadata fit", "fits := queue.is_meta(value);", "fits := true;"),
    guard("metadata are an object", "pg_catalog.jsonb_typeof(meta) = 'object' and ", ""),
    guard("metadata are small", " and pg_catalog.octet_length(meta::text) <= queue.meta_limit()", ""),
    guard("metadata of many are checked", "  if not queue.is_meta(meta) then\n", "  if false then\n"),
    guard("the payload is one", "  if payload is null then\n", "  if false then\n"),
    guard("the payload fits", "  elsif octet_length(payload::text) > queue.payload_limit() then\n", "  elsif false then\n"),
    guard("workers are told", "      perform queue.wake(said.queue);\n", ""),
    guard(
        "a key names its job",
        "    update queue.unique_key u set id = enqueue_with.id, held = said.unique_while, until = said.unique_until where u.hash = taken;\n",
        "    null;\n",
    ),
    guard("only that key does", " where u.hash = taken;\n", ";\n"),
    guard(
        "a queue at its capacity is no error for who tries",
        "exception when sqlstate 'QCAPA' then\n  id := null;\n  outcome := 'at_capacity';\n",
        "",
    ),
    guard("a keyed job takes capacity", "    perform queue.take_capacity(said.queue, 1);\n", ""),
];

const KEYS: &[Guard] = &[
    guard("a key has one row", "  constraint unique_key_pkey primary key (hash),\n", ""),
    guard("a key is of a queue", "queue.digest(queue || '/' || job_type", "queue.digest(job_type"),
    guard("a key is of a job type", " || '/' || job_type || '/' || unique_key", " || '/' || unique_key"),
    guard("a payload that replaces another fits", "    perform queue.check_payload(change_waiting.payload);\n", ""),
    guard("a key's row is locked", "where u.hash = take_key.hash for update;", "where u.hash = take_key.hash;"),
    guard("whoever finds a job queued has it wait", "on_conflict = 'keep' and holder.held <> 'queued'", "on_conflict = 'keep'"),
    guard("a claim in flight is waited for", "  if not found then\n    return false;\n  end if;\n", ""),
    guard(
        "it is pushed, never pulled",
        "change_waiting.run_at > greatest(due, clock_timestamp())",
        "change_waiting.run_at > clock_timestamp()",
    ),
    guard("how a key is held is known", "  constraint unique_key_held_is_known check (held in ('live', 'queued', 'until')),\n", ""),
    guard("a key held for a time has one", ",\n  constraint unique_key_has_its_time check ((held = 'until') = (until is not null))", ""),
    guard(
        "a key is held while its job is scheduled",
        "when 'queued' then coalesce(state in ('ready', 'scheduled', 'blocked'), false)",
        "when 'queued' then coalesce(state in ('ready', 'blocked'), false)",
    ),
    guard(
        "a key is held while its job is blocked",
        "when 'queued' then coalesce(state in ('ready', 'scheduled', 'blocked'), false)",
        "when 'queued' then coalesce(state in ('ready', 'scheduled'), false)",
    ),
    guard(
        "a key is held until its job is over",
        "when 'live' then coalesce(state in ('ready', 'scheduled', 'blocked', 'running'), false)",
        "when 'live' then true",
    ),
    guard("a key is held for its time", "else until > pg_catalog.clock_timestamp()", "else true"),
    guard("a job found ready is locked", " and r.id = change_waiting.id for update;", " and r.id = change_waiting.id;"),
    guard(
        "a job found scheduled is locked",
        "s.run_at = due and s.id = change_waiting.id for update;",
        "s.run_at = due and s.id = change_waiting.id;",
    ),
    guard(
        "a replaced job keeps its attempts",
        "change_waiting.seq, change_waiting.id, taken.attempts, taken.crashes);",
        "change_waiting.seq, change_waiting.id, 0::smallint, 0::smallint);",
    ),
    guard(
        "a job that is put off keeps its attempts",
        "change_waiting.id, change_waiting.lane, taken.attempts, taken.crashes);",
        "change_waiting.id, change_waiting.lane, 0::smallint, 0::smallint);",
    ),
    guard("only who debounces puts off", "on_conflict = 'debounce' and coalesce(", "coalesce("),
    guard(
        "a key that was forgotten meanwhile is taken anew",
        "    -- Forgotten in between: once more.\n    exit when found;\n",
        "    exit;\n",
    ),
    guard(
        "forgetting waits for nobody",
        ">= start order by u.hash limit most for update skip locked",
        ">= start order by u.hash limit most for update",
    ),
    guard(
        "nor does it from the first key on",
        "limit most - cardinality(met) for update skip locked",
        "limit most - cardinality(met) for update",
    ),
    guard("keys before the random one are looked at too", "met := met || array(", "met := met || '{}'; perform array("),
    guard(
        "only keys that nobody holds are forgotten",
        " and not queue.holds(u.held, u.until, (select e.state from queue.entry_of(u.id) e))",
        "",
    ),
];
