//! Control of one job by name: what is refused, and what is tried again.

use super::{Guard, Statement, guard};

pub(super) const STATEMENTS: &[Statement] =
    &[Statement { file: "10_control_one.sql", tests: &["guards::single", "control::"], guards: CONTROL_ONE }];

const CONTROL_ONE: &[Guard] = &[
    guard("an unknown job is none", "  if state is null then\n", "  if false then\n"),
    guard("a job that is held is said to be", "  elsif state = any (wanted) then\n", "  elsif false then\n"),
    guard("tried again", "  for tries in 1 .. 5 loop\n", "  for tries in 1 .. 1 loop\n"),
    guard("no longer than it may help", "    exit when state is null or state <> all (wanted);\n", ""),
    guard(
        "cancel: what waits is over",
        "        if exists (select from queue.cancel_waiting_all(one)) then\n          return 'cancelled';\n        elsif exists",
        "        if exists",
    ),
    guard(
        "cancel: what runs is cancelling",
        "        elsif exists (select from queue.cancel_running_all(one)) then\n          return 'cancelling';\n",
        "",
    ),
    guard("requeue: what is completed too", " or queue.reopen(act_on_one.id) then", " then"),
    guard("a snooze counts from the clock", "pg_catalog.clock_timestamp() + snooze.wait", "pg_catalog.now() + snooze.wait"),
];
