//! Operations of the model test. Jobs and leases are named by their age, so that a shrunk sequence remains meaningful.

use proptest::{collection::vec, prelude::*};
use tests::protocol::VERDICTS;

/// Step of a sequence: one operation in one transaction.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) op: Op,
    /// Whether the transaction is rolled back after the operation, as if a failover had lost the transaction.
    pub(super) lost: bool,
}

/// Index of a job or lease, counted back from the newest and taken modulo the number of jobs or leases. In operator statements, the
/// indexes refer alternately to the jobs to which the statement applies and to all jobs.
pub(super) type Age = usize;

/// Operation of a producer, a worker or an operator.
#[derive(Clone, Debug)]
pub(super) enum Op {
    /// Enqueues one job. Fields: lane, and whether the job is scheduled for later.
    Enqueue(usize, bool),
    /// Enqueues several jobs in one statement. Fields per job: lane, and whether the job is scheduled for later.
    EnqueueMany(Vec<(usize, bool)>),
    /// Claims jobs. Fields: worker, and maximum number of jobs.
    Claim(usize, i32),
    /// Settles jobs of any leases, including ended leases. Optionally settles a whole lease as completed.
    Settle(Vec<VerdictOp>, Option<Age>),
    /// Sends the same verdict for every job that a lease ever had.
    SettleAll(Age, &'static str),
    GiveBack(Vec<Age>),
    Recover,
    Promote(i64),
    /// Moves the start times of the given scheduled jobs into the past.
    MakeDue(Vec<Age>),
    Requeue(Vec<Age>),
    Cancel(Vec<Age>),
    Discard(Vec<Age>),
    Reopen(Age),
    /// Expires the heartbeat of a worker.
    Silence(usize),
    /// Expires the heartbeat of the worker that holds a lease.
    Orphan(Age),
    Beat(usize),
    /// Expires the heartbeat of a worker, and registers the worker under a new id. The worker abandons its leases.
    Register(usize),
    Retire(usize),
    PruneDone,
    PruneWorkers,
    AddDays,
    DropDay,
    /// Enqueues a job into the given lane, with a start deadline in an hour.
    EnqueueExpiring(usize),
    /// Moves the start deadlines of the given jobs into the past.
    MakeLate(Vec<Age>),
    ExpireDue,
    /// Expires or releases the unstarted jobs of a lease that have a start deadline, as the lease holder does. A job expires if its
    /// deadline has passed, and otherwise becomes ready.
    ExpireHeld(Age),
    /// Pauses a scope.
    Pause(usize),
    Resume(usize),
    /// Lets a worker read pauses and limits, and acknowledge them.
    Vouch(usize),
    /// Sets the concurrency of the limit, or removes the limit.
    Limit(Option<usize>),
    /// Claims jobs under the limit. Fields: worker, maximum number of jobs, whether the claim reports all leases as freed, and whether the
    /// claim reads all permits again.
    ClaimLimited(usize, i32, (bool, bool)),
}

/// Verdict on a job of a lease.
#[derive(Clone, Copy, Debug)]
pub(super) struct VerdictOp {
    pub(super) lease: Age,
    /// Index of the job among the jobs of the lease. If `of_another` is set, index among all jobs.
    pub(super) job: Age,
    pub(super) of_another: bool,
    pub(super) verdict: &'static str,
}

/// Queue and priority of each lane.
pub(super) const LANES: [(&str, i16); 4] = [("default", 100), ("mail", 100), ("default", 7), ("slow", 100)];

/// Index of the lane that may have a limit. `LIMIT` is the scope of the limit.
pub(super) const LIMITED: usize = 3;
pub(super) const LIMIT: &str = "queue:slow";

/// Queue and job type of each scope that may be paused.
pub(super) const SCOPES: [(&str, &str); 4] = [("mail", "*"), ("default", "do"), ("slow", "*"), ("*", "do")];

/// Events that must each occur in at least one sequence. A run without one of them tests too little.
pub(super) const EVENTS: [&str; 38] = [
    "added days",
    "beat",
    "beat too late",
    "cancelled",
    "claimed",
    "claimed nothing",
    "claimed under a limit",
    "claimed while silent",
    "convicted",
    "discarded",
    "dropped a day",
    "enqueued",
    "enqueued many",
    "enqueued one that expires",
    "expired",
    "expired while held",
    "found no room",
    "gave back",
    "gave back nothing",
    "gave back what had time left",
    "lost",
    "made late",
    "paused",
    "promoted",
    "pruned",
    "recovered",
    "refused",
    "refused a whole lease",
    "reopened",
    "requeued",
    "resumed",
    "set a limit",
    "settled",
    "settled a part",
    "settled a whole lease",
    "retired",
    "took a limit away",
    "vouched",
];

/// Returns the strategy for sequences of steps.
pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Some sequences begin by dropping the day partition, so that history is written to the default partition.
    let days = prop_oneof![6 => Just(vec![]), 2 => Just(vec![Op::DropDay]), 1 => Just(vec![Op::DropDay, Op::AddDays])];
    let first = vec((0..LANES.len(), prop::bool::weighted(0.1)), 3..9).prop_map(|jobs| vec![Op::EnqueueMany(jobs)]);
    let once = |ops: Vec<Op>| ops.into_iter().map(|op| Step { op, lost: false });
    let then = (prop_oneof![5 => op().prop_map(|op| vec![op]), 1 => story()], prop::bool::weighted(0.06))
        .prop_map(|(ops, lost)| ops.into_iter().map(|op| Step { op, lost }).collect::<Vec<_>>());
    (days, first, vec(then, 1..50))
        .prop_map(move |(days, first, rest)| once(days).chain(once(first)).chain(rest.into_iter().flatten()).collect())
}

/// Returns the strategy for typical sequences of operations, which occur too rarely among random operations.
fn story() -> impl Strategy<Value = Vec<Op>> {
    let crash = (0..3_usize, 1..4_i32).prop_map(|(worker, most)| vec![Op::Claim(worker, most), Op::Register(worker), Op::Recover]);
    let letter = (0..3_usize, vec(0..3_usize, 3)).prop_map(|(worker, jobs)| {
        vec![Op::Register(worker), Op::Claim(worker, 4), Op::SettleAll(0, "dead"), Op::Requeue(jobs.clone()), Op::Discard(jobs)]
    });
    let delay = (0..LANES.len()).prop_map(|lane| vec![Op::Enqueue(lane, true), Op::MakeDue(vec![0]), Op::Promote(2)]);
    // In `held`, a worker releases a claimed job before the start deadline, or expires the job after the deadline. In `begun`, the job
    // has already started and can no longer expire.
    let held = (0..LANES.len(), 0..3_usize, any::<bool>()).prop_map(|(lane, worker, is_late)| {
        let late = Some(Op::MakeLate(vec![0])).filter(|_| is_late);
        let held = [Op::EnqueueExpiring(lane), Op::Claim(worker, 9)].into_iter().chain(late);
        held.chain([Op::ExpireHeld(0), Op::ExpireDue]).collect()
    });
    let begun = (0..LANES.len(), 0..3_usize).prop_map(|(lane, worker)| {
        let begun = vec![Op::EnqueueExpiring(lane), Op::Claim(worker, 9), Op::SettleAll(0, "retry"), Op::MakeLate(vec![0]), Op::ExpireDue];
        begun.into_iter().chain([Op::MakeDue(vec![0]), Op::Promote(3), Op::ExpireDue]).collect()
    });
    let vouched = || (0..3_usize).map(Op::Vouch);
    let pause = (0..SCOPES.len(), 0..3_usize, prop::bool::weighted(0.8)).prop_map(move |(scope, worker, ends)| {
        let end = [Op::Resume(scope)].into_iter().chain(vouched()).filter(move |_| ends);
        [Op::Pause(scope)].into_iter().chain(vouched()).chain([Op::Claim(worker, 3)]).chain(end).collect()
    });
    let jobs = || Op::EnqueueMany(vec![(LIMITED, false); 4]);
    let limit = (1..4_usize, 0..3_usize, 1..6_i32, any::<[bool; 3]>(), prop::bool::weighted(0.2)).prop_map(
        move |(most, worker, claimed, slow, ends)| {
            let acknowledgements = (0..3).filter(move |other| *other == worker || !slow[*other]).map(Op::Vouch);
            let claims = [(false, false), (true, false)].map(|how| Op::ClaimLimited(worker, claimed, how));
            let end = Some(Op::Limit(None)).filter(|_| ends);
            let set = [Op::Limit(Some(most)), jobs()].into_iter().chain(acknowledgements).chain(claims.clone());
            set.chain(vouched()).chain(claims).chain(end).collect()
        },
    );
    prop_oneof![8 => crash, 3 => letter, 2 => delay, 2 => held, 1 => begun, 1 => pause, 2 => limit]
}

fn op() -> impl Strategy<Value = Op> {
    let lane = || 0..LANES.len();
    let later = || prop::bool::weighted(0.2);
    let worker = || 0..3_usize;
    let ago = || prop_oneof![4 => 0..4_usize, 1 => 0..30_usize];
    let jobs = || vec(ago(), 2..9);
    let recent = || prop_oneof![4 => 0..2_usize, 1 => 0..30_usize];
    prop_oneof![
        11 => (lane(), later()).prop_map(|(lane, later)| Op::Enqueue(lane, later)),
        4 => vec((lane(), later()), 1..6).prop_map(Op::EnqueueMany),
        16 => (worker(), prop_oneof![4 => 1..6_i32, 1 => Just(0)]).prop_map(|(worker, most)| Op::Claim(worker, most)),
        20 => (vec(verdict_op(), 1..6), prop::option::weighted(0.25, recent())).prop_map(|(verdicts, whole)| Op::Settle(verdicts, whole)),
        7 => (recent(), prop::sample::select(&VERDICTS[..])).prop_map(|(lease, verdict)| Op::SettleAll(lease, verdict)),
        3 => vec(ago(), 1..3).prop_map(Op::GiveBack),
        10 => Just(Op::Recover),
        6 => (1..4_i64).prop_map(Op::Promote),
        6 => jobs().prop_map(Op::MakeDue),
        5 => jobs().prop_map(Op::Requeue),
        5 => jobs().prop_map(Op::Cancel),
        3 => jobs().prop_map(Op::Discard),
        5 => ago().prop_map(Op::Reopen),
        2 => worker().prop_map(Op::Silence),
        5 => recent().prop_map(Op::Orphan),
        3 => worker().prop_map(Op::Beat),
        9 => worker().prop_map(Op::Register),
        1 => worker().prop_map(Op::Retire),
        3 => Just(Op::PruneDone),
        1 => Just(Op::PruneWorkers),
        1 => Just(Op::AddDays),
        1 => Just(Op::DropDay),
        4 => lane().prop_map(Op::EnqueueExpiring),
        3 => vec(ago(), 1..4).prop_map(Op::MakeLate),
        4 => Just(Op::ExpireDue),
        3 => recent().prop_map(Op::ExpireHeld),
        9 => rules(),
    ]
}

/// Returns the strategy for operations on pauses and the limit.
fn rules() -> impl Strategy<Value = Op> {
    let worker = || 0..3_usize;
    prop_oneof![
        1 => (0..SCOPES.len()).prop_map(Op::Pause),
        3 => (0..SCOPES.len()).prop_map(Op::Resume),
        4 => worker().prop_map(Op::Vouch),
        1 => prop::option::weighted(0.6, 0..4_usize).prop_map(Op::Limit),
        5 => (worker(), 0..6_i32, any::<(bool, bool)>()).prop_map(|(worker, most, how)| Op::ClaimLimited(worker, most, how)),
    ]
}

fn verdict_op() -> impl Strategy<Value = VerdictOp> {
    let lease = prop_oneof![6 => 0..2_usize, 1 => 0..10_usize];
    (lease, 0..6_usize, prop::bool::weighted(0.1), prop::sample::select(&VERDICTS[..]))
        .prop_map(|(lease, job, of_another, verdict)| VerdictOp { lease, job, of_another, verdict })
}
