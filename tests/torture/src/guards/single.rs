//! Control of one job by name: what is refused, and what is tried again.

use super::{Guard, Statement, guard};

pub(super) const STATEMENTS: &[Statement] =
    &[Statement { file: "10_control_one.sql", tests: &["guards::single", "control::"], guards: CONTROL_ONE }];

const CONTROL_ONE: &[Guard] = &[
    guard("an unknown job is none", "case when state is null then 'P0002' when", "case when"),
    guard("a job that is locked is said to be", " when state = any (wanted) then '55P03' else", " else"),
    guard("tried again", "  for tries in 1 .. 5 loop\n", "  for tries in 1 .. 1 loop\n"),
    guard("no longer than it may help", "    exit when state is null or state <> all (wanted);\n", ""),
    guard(
        "cancel: what waits is over",
        "      return query select c.id, 'cancelled' from queue.cancel_waiting_all(act_on_all.ids) c (id);\n",
        "      perform 1;\n",
    ),
    guard(
        "cancel: what runs is cancelling",
        "        return query select c.id, 'cancelling' from queue.cancel_running_all(act_on_all.ids) c (id);\n",
        "        null;\n",
    ),
    guard("requeue: what is completed too", "    elsif act = 'requeue' and queue.reopen(act_on_one.id) then\n", "    elsif false then\n"),
    guard("a snooze counts from the clock", "pg_catalog.clock_timestamp() + snooze.wait", "pg_catalog.now() + snooze.wait"),
];
