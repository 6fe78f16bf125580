//! Capacity, and what asks for it: meeting a lane, and an enqueue.

use super::{Guard, Statement, guard, redundant};

pub(super) const STATEMENTS: &[Statement] = &[
    Statement { file: "5_capacity.sql", tests: &["guards::rows"], guards: TABLE },
    Statement { file: "5_capacity.sql", tests: &["capacity::"], guards: CAPACITY },
    Statement {
        file: "1_jobs.sql",
        tests: &[
            "refuse::f08 wake::producers bulk::a_queue enqueue::a_lane enqueue::what",
            "enqueue:: capacity:: wake:: schedule::",
            "migrate:: payloads:: refuse:: bulk:: recovery::",
        ],
        guards: ENQUEUE,
    },
];

const TABLE: &[Guard] = &[
    guard("a queue has one bound", "  constraint capacity_pkey primary key (queue),\n", ""),
    guard("a bound is of a name", "  constraint capacity_queue_is_a_name check (queue.is_name(queue)),\n", ""),
    guard("a bound is not negative", ",\n  constraint capacity_is_not_negative check (capacity >= 0)", ""),
];

const CAPACITY: &[Guard] = &[
    guard(
        "a bound waits for lanes that are being met",
        "  perform pg_advisory_xact_lock(hashtextextended('queue.lanes/' || set_capacity.queue, 0));\n",
        "",
    ),
    guard("counts its own queue", "from queue.lane l where l.queue = depth.queue)", "from queue.lane l)"),
    guard("counts a lane once", "(select distinct l.lane from", "(select l.lane from"),
    guard("counts what is ready", "        select from queue.ready r where r.lane = l.lane\n        union all\n", ""),
    guard("counts what is scheduled", "        select from queue.scheduled s where s.lane = l.lane\n        union all\n", ""),
    guard("counts what is blocked", "        union all\n        select from queue.blocked b where b.lane = l.lane\n", ""),
    guard("counts no further than asked", "      limit most\n", ""),
    guard("a bound waits for nobody for ever", "  set lock_timeout = '5s'\n", ""),
    guard("a bound ends alone", "delete from queue.capacity c where c.queue = set_capacity.queue;", "delete from queue.capacity c;"),
    guard(
        "tickets of an old bound end",
        "do update set capacity = excluded.capacity, counted = 0, since = 0, tickets = 0;",
        "do update set capacity = excluded.capacity;",
    ),
    guard("a bound marks only its lanes", "  where l.queue = set_capacity.queue and l.has_capacity", "  where l.has_capacity"),
    redundant(
        "a bound marks only lanes that are not yet",
        " and l.has_capacity <> (set_capacity.capacity is not null);",
        ";",
        "for speed: the same is written again",
    ),
    guard("a bound marks its lanes", "set has_capacity = set_capacity.capacity is not null", "set has_capacity = false"),
    guard("no jobs take no room", "  if not found or jobs = 0 then\n", "  if not found then\n"),
    redundant(
        "no tickets if too few are left",
        "  if fresh and tally.tickets - (select s.last_value from queue.ticket_seq s) >= jobs then",
        "  if fresh then",
        "for speed: numbers beyond the last ticket are void, and the next one counts",
    ),
    guard(
        "who counted meanwhile is believed",
        "      -- Who counted while we waited has left others.\n      select * into tally from queue.capacity c where c.queue = take_capacity.queue;\n",
        "",
    ),
    guard("a ticket each", "from generate_series(1, jobs);", "from generate_series(1, 1);"),
    redundant(
        "a bound that ended meanwhile takes no tickets",
        "      if tally.capacity is null or drawn <= tally.tickets then",
        "      if drawn <= tally.tickets then",
        "for speed: whoever counts next finds no bound either",
    ),
    guard(
        "who counts believes the newest bound",
        "  perform pg_advisory_xact_lock(gate);\n  select * into tally from queue.capacity c where c.queue = take_capacity.queue;\n",
        "  perform pg_advisory_xact_lock(gate);\n",
    ),
    guard("a room of its own queue", "'queue.capacity/' || take_capacity.queue", "'queue.capacity/'"),
    guard("jobs since an old snapshot: as counted then", "greatest(depth, tally.counted + greatest(", "greatest(depth, greatest("),
    guard("jobs since an old snapshot: by their tickets", "greatest(least(drawn, tally.tickets) - tally.since, 0) + jobs)", "jobs)"),
    guard("jobs since an old snapshot: not by the marks of counts", "least(drawn, tally.tickets) - tally.since", "drawn - tally.since"),
    guard("jobs since an old snapshot: and its own", " - tally.since, 0) + jobs);", " - tally.since, 0));"),
    guard("counts one further than the capacity", "tally.capacity + 1);", "tally.capacity);"),
    guard(
        "a count is of one queue",
        "tally.capacity * 4 / 5 - depth, 0)\n  where c.queue = take_capacity.queue;",
        "tally.capacity * 4 / 5 - depth, 0);",
    ),
    redundant(
        "no fewer tickets than none",
        "drawn + greatest(tally.capacity * 4 / 5 - depth, 0)",
        "drawn + (tally.capacity * 4 / 5 - depth)",
        "a number that was drawn before is never drawn again",
    ),
    guard("tickets are drawn under a lock", "      perform pg_advisory_xact_lock_shared(gate);\n", ""),
    guard("the lock of a ticket that was void is given back", "      raise sqlstate 'QVOID';\n", ""),
    guard("tickets end", "if tally.capacity is null or drawn <= tally.tickets then", "if true then"),
    guard("tickets are drawn under a new snapshot", "  if fresh and tally.tickets", "  if tally.tickets"),
    guard("whoever counts is alone", "  perform pg_advisory_xact_lock(gate);\n", ""),
    guard("what was committed since an old snapshot counts", "  if not fresh then\n", "  if false then\n"),
    guard("a full queue refuses", "  if depth > tally.capacity then", "  if false then"),
    guard("near its capacity everybody counts", "tally.capacity * 4 / 5 - depth", "tally.capacity - depth"),
];

/// Of an enqueue, and of meeting a lane.
const ENQUEUE: &[Guard] = &[
    guard(
        "whoever meets a lane says so",
        "perform pg_advisory_xact_lock_shared(hashtextextended('queue.lanes/' || meet_lane.queue, 0));",
        "null;",
    ),
    guard(
        "a new lane is marked",
        "      exists (select from queue.capacity c where c.queue = meet_lane.queue) or current_setting",
        "      current_setting",
    ),
    guard(
        "a new lane is marked under an old snapshot",
        "exists (select from queue.capacity c where c.queue = meet_lane.queue) or current_setting('transaction_isolation') <> 'read committed');",
        "exists (select from queue.capacity c where c.queue = meet_lane.queue));",
    ),
    redundant(
        "a new lane is marked if its own queue is bounded",
        "exists (select from queue.capacity c where c.queue = meet_lane.queue)",
        "exists (select from queue.capacity c)",
        "for speed: whoever enqueues into a lane that is marked in vain asks, and finds no bound",
    ),
    guard("a recovery waits for no bound", "    if not solo then\n", "    if true then\n"),
    guard(
        "writes a lane that cannot be seen",
        "if not exists (select from queue.lane l where l.lane = met) then",
        "if not exists (select from queue.lane l) then",
    ),
    guard("writes a lane only then", "if not exists (select from queue.lane l where l.lane = met) then", "if true then"),
    guard("nothing is null", "if new_lane is null or payload is null or max_attempts is null then", "if false then"),
    guard("the lane is not null", "if new_lane is null or payload is null", "if payload is null"),
    guard("the payload is not null", "or payload is null or", "or"),
    guard("the attempts are not null", " or max_attempts is null then", " then"),
    guard("there is an attempt", "elsif max_attempts operator(pg_catalog.<) 1::smallint then", "elsif false then"),
    guard("the payload fits", "elsif bytes operator(pg_catalog.>) queue.payload_limit() then", "elsif false then"),
    guard("later is later", "if run_at operator(pg_catalog.>) pg_catalog.clock_timestamp() then", "if run_at is not null then"),
    guard("a lane is met", "  if has_capacity is null then\n", "  if false then\n"),
    redundant(
        "a lane is met once",
        "  if has_capacity is null then\n",
        "  if true then\n",
        "for speed: meeting a lane is to look whether it is there",
    ),
    guard("an enqueue takes room", "  if coalesce(has_capacity, true) then\n", "  if false then\n"),
    guard("an enqueue into a new lane takes room", "  if coalesce(has_capacity, true) then\n", "  if has_capacity then\n"),
    guard("an enqueue wakes", "if sleeper or pg_catalog.current_setting", "if pg_catalog.current_setting"),
    guard(
        "an enqueue wakes under an old snapshot",
        "  if sleeper or pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.<>) 'read committed'::pg_catalog.text then",
        "  if sleeper then",
    ),
    guard(
        "an enqueue wakes only who sleeps",
        "  if sleeper or pg_catalog.current_setting('transaction_isolation') operator(pg_catalog.<>) 'read committed'::pg_catalog.text then",
        "  if true then",
    ),
    guard("an enqueue wakes who sleeps over this queue", "i.queue operator(pg_catalog.=) insert_job.queue or i", "i"),
    guard("an enqueue wakes who sleeps over any", " or i.queue operator(pg_catalog.=) '*'::pg_catalog.text", ""),
];
