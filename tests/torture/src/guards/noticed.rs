//! Lists the tests that detect the removal of each guard. Each entry contains one or more parts of test names. The entries of a list are
//! run separately, the fastest entry first.

const MODEL: &str = "model::the_tables_match";
const PAIRS: &str = "interleave::a_second interleave::claims interleave::a_transactional";
const KEYS: &str = "keys::edges keys::statements together::the_head";
const EVERYTHING: &[&str] = &[
    "guards::rows guards::a_suspect guards::a_lane_that bulk::each_queue bulk::a_queue",
    "enqueue:: migrate:: wake:: payloads:: refuse:: guards::",
    "bulk:: days:: recovery:: outcomes:: schedule::",
    MODEL,
    "registry:: durability::",
    "expiry::",
];
const ENQUEUES: &[&str] = &["enqueue:: schedule:: durability::", "guards::", MODEL];
const ENQUEUE: &[&str] = &[
    "refuse::f08 wake::producers bulk::a_queue enqueue::a_lane enqueue::what",
    "enqueue:: capacity:: wake:: schedule::",
    "migrate:: payloads:: refuse:: bulk:: recovery::",
    "roles::attacks refuse::f08",
    "durable::family::cases::the_end_of_a_leaf",
];
const IN_LINE: &[&str] = &[
    "keys::edges keys::statements unique::held",
    "guards::notices together::",
    "keys::ways fair_queues::ways bad_rows::",
    "durable::family::cases::the_end_of_a_leaf",
];
const OPTIONS: &[&str] = &[
    "guards::notices refuse:: enqueue:: meta:: type_options:: evolution::sql",
    "any_language:: bulk:: payloads::",
    "unique:: --skip races",
    "keys::edges",
    "expiry::",
];
const WHERE: &[&str] =
    &["guards::queries", "unique::held", "unique:: together::a_unique --skip races --skip worker", "results:: operate::", "expiry::"];
const UNIQUE: &[&str] = &[
    "unique::held unique::kept held::pruned evolution::sql",
    "unique:: together::a_unique --skip races --skip worker",
    "unique::races bad_rows::no_table",
];
const BEATS: &[&str] = &["guards::", "recovery:: lease::", MODEL];
const OPERATORS: &[&str] = &[
    "guards::control guards::order held::jobs control::no_act",
    "interleave::a_second interleave::claims interleave::of_two",
    KEYS,
    MODEL,
    "operate::",
    "keys::ways",
    "expiry::",
];
const CONTROLS: &[&str] = &[
    "guards::control guards::notices held::jobs held::leases",
    "control:: cancelling:: operate::a_cancelled",
    "keys::statements together::the_head",
    MODEL,
    "expiry::",
];
const SINGLE: &[&str] = &["guards::single", "control::"];
const SCHEDULES: &[&str] = &[
    "held::jobs cron::single cron::overlaps cron::changes cron::tries",
    "cron::refusals",
    "cron::releases cron::poison::what cron::poison::one",
    "cron:: --skip attacks --skip clocks",
];
const ROLES: &[&str] = &["roles::attacks roles::names roles::work", "roles::", "expiry::"];
const AUDIT: &[&str] = &["operate::audit"];
const PAUSES: &[&str] = &["paused::statements", "paused:: --skip statements --skip attacks", "paused::attacks"];
const EXPIRY: &[&str] =
    &["expiry::sweeps held::jobs zombies::", "expiry::statements expiry::ways", "expiry::operations expiry::attacks", "expiry::"];
const WHY: &[&str] = &["why::locked why::turns why::served why::waits", "why:: --skip locked --skip turns --skip served --skip waits"];
const SIGNALS: &[&str] = &["durable::signals held:: zombies::", "durable:: operate:: control:: days:: unique::"];
const GATHERS: &[&str] = &["map::statements zombies::", "map::window", "durable::family map::", "durable:: roles::"];
const CHILDREN: &[&str] =
    &["durable::ends children::statements zombies:: guards::rows", "durable::family", "children::", "durable:: roles::"];
const ENDS: &[&str] = &[
    "durable::ends",
    "children::statements map::statements flows::statements flows::races zombies::",
    "durable::family flows::bounds map::window children::",
];
const FLOWS: &[&str] = &["flows::statements flows::races flows::bounds guards::rows", "flows::", "flows:: roles:: why::"];
const BY_KEY: &[&str] = &[
    "held::leases limits::key_claims limits::key_costs limits::key_edges limits::turned limits::behind::jobs limits::statements",
    "limits::keys",
    "limits::statements",
];
const LIMITS: &[&str] = &[
    "limits::statements held::leases held::workers bad_rows::no_table",
    "limits::settings",
    "limits:: --skip statements --skip settings --skip attacks --skip suspects --skip behind",
    "limits::attacks",
];
const LINES: &[&str] = &[
    "fair_queues::claims fair_queues::attacks::two held::jobs",
    "fair_queues:: --skip attacks",
    "fair_queues::attacks",
    "durable::family::cases::the_end_of_a_leaf",
];
const HISTORY: &[&str] = &["history::kept", "history::read history::failing"];
const PRUNING: &[&str] = &["guards::prune held::pruned", "retention::"];

/// Lists of tests, by the name of a statement file or of an object that a migration creates.
const NOTICED_BY: &[(&[&str], &[&str])] = &[
    (
        &["settle.sql"],
        &["guards:: recovery:: zombies:: held::leases", "keys::statements together::the_head", "cancelling::", MODEL, "outcomes::", PAIRS],
    ),
    (&["settle_forgotten.sql"], &["guards::forgotten zombies:: held::leases"]),
    (&["settle_leases.sql"], &["guards:: recovery:: zombies::", "interleave::a_second", MODEL]),
    (&["limit_heartbeats.sql"], &["clocks:: recovery:: guards::", "lease::"]),
    (&["own_leases.sql"], &["processes:: lease:: liveness::f73", "cancelling::"]),
    (&["park.sql"], &["zombies:: parked::f66_only parked::f66_a_job parked::f66_a_parked", "parked::"]),
    (&["claim.sql"], &["guards::", PAIRS, MODEL, "recovery:: schedule:: outcomes::f23", "large::"]),
    (&["claim_late.sql"], &["guards::late", "late::"]),
    (&["give_back.sql"], &["bad_rows::", "guards::", "together:: cancelling::", PAIRS, MODEL]),
    (&["expired_leases.sql"], &["guards:: recovery::", PAIRS, MODEL]),
    (&["recover.sql"], &["bad_rows::", "guards::", KEYS, "cancelling::", MODEL, "lease::f50 lease::crashes recovery::", "keys::ways"]),
    (&["heartbeat.sql", "register.sql"], BEATS),
    (&["retire.sql"], &["guards::", "lease::a_worker_that_retires wake::", MODEL]),
    (&["sleep.sql", "wake_up.sql"], &["guards::", "wake:: schedule::"]),
    (&["promote.sql"], &["guards:: held::jobs", PAIRS, MODEL]),
    (&["prune_workers.sql"], &["guards:: held::pruned", "lease::a_silent", MODEL]),
    (&["prune_done.sql"], &["guards::prune held::pruned guards::housekeeping", "days::", PAIRS, MODEL]),
    (&["keep_types.sql", "prune_kept.sql", "prune_early.sql", "prune_days.sql", "queue.retention"], PRUNING),
    (&["publish_types.sql", "queue.type_options", "queue.enqueue"], &["type_options:: evolution::sql", "expiry::ways"]),
    (&["prune_dead.sql"], &["guards::prune held::pruned", "retention::", "keys::statements::a_dead_letter"]),
    (&["queue.requeue_all", "queue.discard_all", "queue.lock_some_keys"], OPERATORS),
    (
        &["queue.reopen"],
        &[
            "guards::control guards::order control::no_act",
            "interleave::a_second interleave::claims interleave::of_two",
            KEYS,
            MODEL,
            "days::jobs operate:: progress::progress_goes",
            "expiry::operations",
        ],
    ),
    (&["enqueue.sql", "enqueue_relaxed.sql"], ENQUEUES),
    (&["insert_all.sql"], &["guards::order", "bulk::a_batch", "bulk::", "schedule::", MODEL]),
    (&["leave_lanes.sql", "unseen_lanes.sql", "pass_lanes.sql"], &["lanes::"]),
    (&["replaced_lanes.sql", "due_lanes.sql", "forget_lanes.sql"], &["lanes::"]),
    (&["queue.ensure_lanes"], &["lanes::attacks", "bulk::a_batch", "guards::", "bulk::", MODEL]),
    (&["queue.lock_keys"], &["keys::statements"]),
    (
        &["insert_with.sql"],
        &[
            "together::a_batch guards::order::jobs_are_queued keys::edges meta::",
            "keys::ways",
            "expiry::ways",
            "durable::family::cases::the_end_of_a_leaf",
        ],
    ),
    (&["record_progress.sql"], &["guards::reports zombies:: held::leases", "progress::"]),
    (&["queue.locked_rows"], &["locked_leases::"]),
    (&["clear_progress.sql"], &["guards::reports held::pruned", "progress::progress_goes"]),
    (&["queue.announce_waiter", "queue.leave_waiter", "prune_waiters.sql"], &["guards::reports held::pruned", "results::a_notification"]),
    (&["queue.job", "queue.ready", "queue.scheduled", "queue.lease", "queue.done", "queue.done_many", "queue.dead"], EVERYTHING),
    (&["queue.next_id", "queue.lane_id", "queue.lane", "queue.is_name", "queue.wake", "queue.worker", "queue.idle"], EVERYTHING),
    (&["queue.add_days"], &["days::"]),
    (&["queue.drop_day"], &["days:: retention::", "migrate::"]),
    (&["queue.unfinished_job"], &["days::", "keys::edges keys::statements unique::held", "guards::notices together::"]),
    (&["queue.blocked", "queue.active_key", "queue.key_hint", "queue.key_id", "queue.insert_keyed"], IN_LINE),
    (&["queue.move_heads", "queue.unblock", "free_keys.sql"], IN_LINE),
    (&["queue.bury_blocked", "queue.check_run_at"], &["bad_rows::"]),
    (&["queue.unique_key", "queue.unique_hash", "queue.unique_of", "queue.change_waiting"], UNIQUE),
    (&["queue.take_key", "queue.holds", "queue.forget_keys", "queue.retake_keys"], UNIQUE),
    (
        &["queue.enqueue_with", "queue.try_enqueue"],
        &[
            "guards::notices keys::edges together::blocked",
            "unique:: --skip races",
            "capacity::",
            "unique::races",
            "expiry::ways",
            "evolution::sql",
        ],
    ),
    (&["queue.read_options", "queue.read_whole", "queue.read_text", "queue.read_time"], OPTIONS),
    (&["queue.is_meta", "queue.checked_meta", "queue.check_payload"], OPTIONS),
    (&["queue.end_of", "queue.entry_of", "queue.attempt_of"], WHERE),
    (&["queue.notify_waiters"], &["guards::control guards::notices", "results::", "control::"]),
    (&["queue.insert_job"], ENQUEUE),
    (
        &["queue.ensure_lane"],
        &["lanes:: capacity::", "refuse::f08 wake::producers bulk::a_queue enqueue::a_lane enqueue::what", "enqueue:: recovery::"],
    ),
    (&["queue.schedule", "queue.fire", "queue.fire_ticks", "queue.put_schedule", "queue.unschedule", "queue.run_schedule"], SCHEDULES),
    (&["queue.pause_schedule", "queue.resume_schedule", "queue.skip_schedule", "queue.declaration"], SCHEDULES),
    (&["queue.read_span", "queue.read_schedule", "queue.enqueue_tick", "queue.last_jobs", "queue.overlaps_with"], SCHEDULES),
    (&["queue.declare_schedules", "queue.elect_schedules"], SCHEDULES),
    (&["prune_fires.sql"], &["cron::single"]),
    (&["queue.capacity"], &["guards::rows"]),
    (
        &["queue.lane_floors", "queue.backlog", "queue.counts", "queue.oldest", "queue.depths"],
        &["operate::statistics", "operate::counted capacity::attacks"],
    ),
    (&["queue.set_capacity", "queue.count_waiting", "queue.take_capacity"], &["capacity::"]),
    (
        &["queue.capacity_mark", "queue.mark_jobs", "queue.announce_jobs", "queue.announced_jobs", "queue.jobs_since"],
        &["secret::no_other_role", "capacity::"],
    ),
    (&["queue.stripe", "queue.lock_stripe", "queue.secret"], &["secret::stores", "keys::statements capacity::"]),
    (&["queue.progress", "queue.waiter", "queue.job_states"], &["guards::queries guards::rows", "progress::", "results::"]),
    (&["queue.status", "queue.is_written_here", "queue.wait"], &["guards::queries", "any_language::"]),
    (&["queue.ready_places", "queue.take_scheduled", "queue.take_waiting", "queue.end_waiting"], CONTROLS),
    (&["queue.cancel_running_all", "queue.set_priority_all", "queue.run_now_all", "queue.reschedule_all", "queue.wake_for"], CONTROLS),
    (&["queue.audit", "queue.record_operation", "queue.count_operation"], AUDIT),
    (&["queue.signal", "queue.signal_hint", "queue.parked", "queue.wake_parked", "queue.prune_signals", "queue.signals"], SIGNALS),
    (&["queue.take_parked", "park_held.sql", "receive.sql"], SIGNALS),
    (&["queue.add_end_hints", "queue.consume_end_hints", "queue.cancel_children"], ENDS),
    (&["queue.child", "queue.spawn", "queue.prune_children", "queue.children"], CHILDREN),
    (&["queue.forget_children"], &["durable::children durable::restart", "guards::single durable::"]),
    (&["queue.reset_children", "child_outcome.sql", "queue.why_joined"], CHILDREN),
    (
        &[
            "queue.gather",
            "queue.map_batch",
            "queue.gather_part",
            "queue.gather_hint",
            "queue.insert_chunk",
            "queue.add_chunk",
            "queue.close_gather",
        ],
        GATHERS,
    ),
    (&["queue.release_parts", "queue.count_gathers", "queue.forget_gathers", "queue.recount_gather"], GATHERS),
    (&["queue.prune_gathers", "queue.gathers"], GATHERS),
    (
        &["queue.step", "queue.prune_steps", "queue.steps", "journal.sql", "journal_fresh.sql", "journal_one.sql"],
        &["durable::statements held:: zombies::", "durable::"],
    ),
    (&["queue.restart"], &["restart::statements", "zombies:: durable::restart"]),
    (&["queue.node", "queue.edge", "queue.node_hint", "queue.edge_effect", "queue.link_flow"], FLOWS),
    (&["queue.are_written_here", "queue.add_parts", "queue.open_gather"], &["flows::many flows::bounds", "flows:: roles::"]),
    (&["queue.enqueue_flow", "queue.enqueue_parts", "queue.node_error"], &["flows::bounds flows::many", "flows::"]),
    (&["queue.fill_node", "queue.release_nodes", "queue.prune_nodes", "queue.nodes", "queue.cancel_flow"], FLOWS),
    (&["queue.log", "queue.write_logs", "queue.prune_logs", "queue.logs"], &["logs::statements held:: zombies::", "logs::"]),
    (&["queue.paused", "queue.pause", "queue.resume", "queue.pause_awaits", "queue.pauses", "acknowledge_pauses.sql"], PAUSES),
    (&["queue.bound", "queue.bound_type", "queue.limiter", "queue.permit", "queue.rate", "queue.bound_in_force"], LIMITS),
    (
        &["queue.set_limit", "queue.unset_limit", "queue.forget_limiters", "queue.limits", "queue.free_permits", "queue.read_permits"],
        LIMITS,
    ),
    (&["queue.count_running", "queue.claim_limited", "confirm.sql", "slow_down.sql", "prune_rates.sql"], LIMITS),
    (&["queue.ensure_fair_lane", "queue.insert_unkeyed"], LINES),
    (
        &[
            "queue.key_bound",
            "queue.set_limit_key",
            "queue.free_fair_permits",
            "queue.key_starts",
            "queue.choose_keyed",
            "queue.choose_of_keys",
        ],
        BY_KEY,
    ),
    (
        &[
            "queue.read_keyed",
            "queue.choose_under_keys",
            "queue.claim_keyed",
            "queue.notify_free_fair_queues",
            "queue.starts_since",
            "queue.count_starts",
        ],
        BY_KEY,
    ),
    (&["queue.waits_for"], &["cli::waits"]),
    (&["queue.why_holder", "queue.why_held", "queue.why_sessions", "queue.why"], WHY),
    (&["queue.why_servers", "queue.why_pace", "queue.why_ahead", "queue.why_behind", "queue.why_turn", "queue.why_snapshots"], WHY),
    (&["queue.why_finished", "queue.why_running", "queue.why_paused", "queue.why_causes"], WHY),
    (&["queue.bound_in_all", "queue.starts_left", "queue.ensure_limiters"], LIMITS),
    (&["queue.weight", "queue.set_weight", "queue.choose_fair", "queue.claim_fair", "move_to_fair_lanes.sql"], LINES),
    (&["tally.sql", "prune_totals.sql", "queue.add_tallies", "queue.roll_up", "queue.read_history"], HISTORY),
    (&["queue.apply_to_one", "queue.apply_to_all", "queue.snooze"], SINGLE),
    (
        &[
            "queue.expiry",
            "queue.is_expired",
            "queue.with_expiry",
            "queue.insert_expiries",
            "queue.read_expiry",
            "queue.set_expiry",
            "queue.forget_expiry",
        ],
        EXPIRY,
    ),
    (&["queue.expire_all", "queue.expire_due", "expire_held.sql"], EXPIRY),
    (&["queue.check_queue", "queue.producer_queue", "queue.producer_enqueue"], ROLES),
    (&["queue.producer_enqueue_with", "queue.worker_add_days", "queue.worker_drop_day"], ROLES),
];

/// Returns the tests for a statement file, or for an object that a migration creates.
pub(super) fn tests_for(name: &str) -> &'static [&'static str] {
    NOTICED_BY.iter().find(|(names, _)| names.contains(&name)).map_or(&[], |(_, tests)| tests)
}

/// Returns the names of all files and objects with listed tests.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    NOTICED_BY.iter().flat_map(|(names, _)| names.iter().copied())
}
