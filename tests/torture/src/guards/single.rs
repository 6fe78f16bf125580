//! Control of one job by name: what is refused, and what is tried again.

use super::{Guard, Statement, guard};

pub(super) const STATEMENTS: &[Statement] =
    &[Statement { file: "0008_control_one.sql", tests: &["guards::single", "control::"], guards: CONTROL_ONE }];

const CONTROL_ONE: &[Guard] = &[
    guard("an unknown job is none", "  if state is null then\n", "  if false then\n"),
    guard("a job that is held is said to be", "  elsif state = any (string_to_array(wanted, ' ')) then\n", "  elsif false then\n"),
    guard(
        "cancel: tried again",
        "  for tries in 1 .. 5 loop\n    if exists (select from queue.cancel",
        "  for tries in 1 .. 1 loop\n    if exists (select from queue.cancel",
    ),
    guard(
        "cancel: what waits is over",
        "    if exists (select from queue.cancel_waiting_all(array[cancel.id])) then\n      return 'cancelled';\n    elsif exists",
        "    if exists",
    ),
    guard(
        "cancel: what runs is called off",
        "    elsif exists (select from queue.call_off_all(array[cancel.id])) then\n      return 'cancelling';\n",
        "",
    ),
    guard(
        "cancel: no longer than it may help",
        "    exit when queue.state_of(cancel.id) is null or queue.state_of(cancel.id) not in ('ready', 'scheduled', 'blocked', 'running');\n",
        "",
    ),
    guard("cancel: refused", "  perform queue.refuse(cancel.id, 'ready scheduled blocked running', 'cancelled');\n", ""),
    guard(
        "put off: tried again",
        "  for tries in 1 .. 5 loop\n    if exists (select from queue.reschedule",
        "  for tries in 1 .. 1 loop\n    if exists (select from queue.reschedule",
    ),
    guard(
        "put off: no longer than it may help",
        "    exit when queue.state_of(reschedule.id) is null or queue.state_of(reschedule.id) not in ('ready', 'scheduled');\n",
        "",
    ),
    guard("put off: refused", "  perform queue.refuse(reschedule.id, 'ready scheduled', 'rescheduled');\n", ""),
    guard("a snooze counts from the clock", "clock_timestamp() + snooze.wait", "now() + snooze.wait"),
    guard(
        "run now: tried again",
        "  for tries in 1 .. 5 loop\n    if exists (select from queue.run_now",
        "  for tries in 1 .. 1 loop\n    if exists (select from queue.run_now",
    ),
    guard("run now: no longer than it may help", "    exit when queue.state_of(run_now.id) is distinct from 'scheduled';\n", ""),
    guard("run now: refused", "  perform queue.refuse(run_now.id, 'scheduled', 'run now');\n", ""),
    guard(
        "ranked: tried again",
        "  for tries in 1 .. 5 loop\n    if exists (select from queue.set_priority",
        "  for tries in 1 .. 1 loop\n    if exists (select from queue.set_priority",
    ),
    guard(
        "ranked: no longer than it may help",
        "    exit when queue.state_of(set_priority.id) is null or queue.state_of(set_priority.id) not in ('ready', 'scheduled');\n",
        "",
    ),
    guard("ranked: refused", "  perform queue.refuse(set_priority.id, 'ready scheduled', 'given another priority');\n", ""),
];
