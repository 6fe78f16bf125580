use chrono::DateTime;
use queue_core::{
    Context, Handler, JobResult, JobType as _, Store, job,
    options::TraceRelation,
    registry::Registry,
    runner::{ClaimedJob, ReportSender, Shared, States},
};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{claimer_queue::ClaimerHandle, reserve::SlotRequest, *};
use crate::{
    lanes::{LeaseRegistry, PayloadMemory},
    live::{LeaseDeadline, Pauses},
    run::outcome::OutcomeObserver,
    settle::DatabaseBackend,
    tally::MetricsBuffer,
};

/// Job whose handler never ends.
#[job]
#[derive(serde::Serialize, serde::Deserialize)]
struct Hang;

impl Handler for Hang {
    async fn run(self, _: &Context) -> JobResult {
        std::future::pending().await
    }
}

/// Returns slots for one handler, and the receiver of the verdicts.
fn slots() -> (Arc<Slots>, tokio::sync::mpsc::Receiver<Settlement>) {
    let pool = PgPoolOptions::new().connect_lazy_with(PgConnectOptions::new());
    let (settle, settled) = tokio::sync::mpsc::channel(1);
    let backend = Arc::new(DatabaseBackend {
        pool: pool.clone(),
        store: Store::default(),
        logs: crate::settle::LogSender::open().0,
        journal: crate::settle::JournalSender::open().0,
        signals: crate::settle::SignalSender::open().0,
    });
    let shared = Shared {
        pool,
        store: Store::default(),
        states: States::default(),
        handlers: Handle::current(),
        backend,
        reports: ReportSender::open().0,
        middleware: Vec::new(),
        trace: TraceRelation::default(),
        shutting_down: CancellationToken::new(),
    };
    let mut registry = Registry::default();
    registry.register::<Hang>().unwrap();
    let (notifier, handlers, cancel_grace) = (Arc::default(), Handle::current(), Duration::ZERO);
    let (shared, pauses, lease_deadline, observer) =
        (Arc::new(shared), Pauses::new(registry.clone()), LeaseDeadline::new(), OutcomeObserver::default());
    let hand = PayloadMemory::new(512, &notifier);
    let context = SlotContext {
        registry,
        shared,
        settle,
        notifier,
        pauses,
        lease_deadline,
        handlers,
        cancel_grace,
        observer,
        metrics: MetricsBuffer::default(),
        takes_batches: false,
        share: None,
        hand,
        slow_downs: Arc::default(),
    };
    (Slots::new(&Arc::new(context), 1, "q"), settled)
}

#[tokio::test]
async fn a_handler_that_starts_while_its_lease_is_abandoned_is_dropped() {
    let (slots, mut settled) = slots();
    lock(&slots.jobs).queued.push_back(Arc::new(leased()));

    let slot = lock(&slots.jobs).open();
    let attempt = slots.next(slot).unwrap();
    slots.abandon();
    tokio::time::timeout(Duration::from_secs(20), slots.run(slot, attempt)).await.expect("a handler that has just started is halted");
    assert!(settled.try_recv().is_err() && slots.is_idle(), "the job belongs to another worker");
}

fn single(priority: i32) -> SlotRequest<'static> {
    SlotRequest { priority, most: 1, in_turn: false, batches: &[] }
}

#[tokio::test]
async fn a_slot_goes_to_the_first_claimer_which_is_woken() {
    let (slots, _settled) = slots();
    let notify: [Arc<tokio::sync::Notify>; 3] = Default::default();
    let [free, equal, best] = notify.each_ref().map(ClaimerHandle::new);
    let woken = async |nth: usize| tokio::time::timeout(Duration::from_millis(1), notify[nth].notified()).await.is_ok();
    let all = slots.reserve(&free, single(100));
    assert_eq!((all.count, all.above, slots.reserve(&equal, single(100)).count), (1, None, 0));
    drop(all);
    assert!(woken(1).await && !woken(0).await, "after a grant a claimer is behind its equals");
    assert_eq!(slots.reserve(&free, single(100)).count, 0);
    let all = slots.reserve(&equal, single(100));
    assert_eq!((all.count, all.above), (1, Some(100)));
    assert_eq!(slots.reserve(&best, single(200)).count, 0);
    all.release();
    assert!(woken(2).await, "the highest priority is next, though it arrived last");
    assert_eq!((slots.reserve(&equal, single(100)).count, slots.reserve(&best, single(200)).count), (0, 1));
    slots.leave(&best);
    drop(all);
    assert!(woken(0).await, "the longest waiting is next");
}

#[tokio::test]
async fn a_claimer_that_waits_for_a_batch_to_start_leaves_slots_to_others() {
    let (slots, _settled) = slots();
    let notify: Arc<tokio::sync::Notify> = Arc::default();
    let [batches, singles] = [0, 1].map(|_| ClaimerHandle::new(&notify));
    let batch = || slots.reserve(&batches, SlotRequest { batches: &[("hang", 2)], most: 2, ..single(100) });
    let all = batch();
    assert_eq!((all.count, batch().count), (2, 0), "one slot has room for a batch");
    assert!(!lock(&slots.jobs).batches.is_idle(), "it is woken once there is room");
    drop(all);
    assert_eq!(slots.reserve(&singles, single(50)).count, 0, "the other claimer is first");
    slots.leave(&batches);
    assert_eq!(slots.reserve(&singles, single(50)).count, 1);
}

#[tokio::test]
async fn a_job_that_expires_while_it_waits_for_a_slot_does_not_start() {
    let (slots, mut settled) = slots();
    let (late, in_time) = (Some(Instant::now()), Instant::now().checked_add(Duration::from_hours(1)));
    let job = |begin_by| LeasedJob { begin_by, ..leased() };
    lock(&slots.jobs).queued.extend([job(late), job(in_time)].map(Arc::new));
    let slot = lock(&slots.jobs).open();
    let attempt = slots.next(slot).unwrap();
    slots.run(slot, attempt).await;
    let expired = settled.try_recv().unwrap();
    assert!(expired.ending.verdict() == queue_core::options::Verdict::Expire, "{expired:?}");
    let attempt = slots.next(slot).unwrap();
    let runs = tokio::time::timeout(Duration::from_millis(1), slots.run(slot, attempt)).await;
    assert!(runs.is_err() && settled.try_recv().is_err(), "the other job runs");
}

#[test]
fn a_job_that_expires_while_it_waits_for_a_batch_is_not_part_of_it() {
    let (mut jobs, now) = (SlotJobs::default(), Instant::now());
    let mut options = Hang::OPTIONS;
    (options.batch, options.batch_wait) = (Some(10), Duration::ZERO);
    for begin_by in [Some(now), None, now.checked_add(Duration::from_hours(1)), Some(now)] {
        let job = ClaimedJob { max_attempts: 5, ..hang() };
        assert!(jobs.batches.push(LeasedJob { job, begin_by, ..leased() }, &options, now).is_none());
    }
    let (late, next, _) = jobs.next_in_time(now);
    let (first, others) = next.unwrap();
    assert_eq!((late.len(), first.begin_by, others.len()), (2, None, 1));
    assert!(
        jobs.batches
            .push(LeasedJob { job: ClaimedJob { max_attempts: 5, ..hang() }, begin_by: Some(now), ..leased() }, &options, now)
            .is_none()
    );
    let (late, next, _) = jobs.next_in_time(now);
    assert!(late.len() == 1 && next.is_none());
}

#[tokio::test]
async fn a_reservation_for_one_batch_type_leaves_room_for_the_next_type() {
    let (slots, _settled) = slots();
    let claimer = ClaimerHandle::new(&Arc::default());
    let request = |batches| SlotRequest { batches, most: 500, ..single(0) };
    let reservation = slots.reserve(&claimer, request(&[("empty", 10), ("full", 10)]));
    assert_eq!((reservation.count, reservation.count_of("empty"), reservation.count_of("full")), (10, 10, 10));
    drop(reservation);
    assert_eq!(slots.reserve(&claimer, request(&[("full", 10)])).count, 10, "the reservation was released");
}

#[test]
fn a_job_with_a_start_deadline_waits_for_a_batch_for_half_of_the_time() {
    let (mut jobs, now) = (SlotJobs::default(), Instant::now());
    let mut options = Hang::OPTIONS;
    (options.batch, options.batch_wait) = (Some(10), Duration::from_mins(1));
    for seconds in [3600, 10] {
        let (job, begin_by) = (ClaimedJob { max_attempts: 5, ..hang() }, now.checked_add(Duration::from_secs(seconds)));
        assert!(jobs.batches.push(LeasedJob { job, begin_by, ..leased() }, &options, now).is_none());
    }
    assert_eq!(jobs.batches.next_ready(now), Some(now + Duration::from_secs(5)));
    assert_eq!(jobs.batches.take(now + Duration::from_secs(5)).map(|batch| batch.len()), Some(2));
}

fn leased() -> LeasedJob {
    LeasedJob {
        job: hang(),
        batch: 1,
        holding: LeaseRegistry::default().begin(),
        begin_by: None,
        waited: Duration::ZERO,
        requested_at: Instant::now(),
        held: None,
    }
}

fn hang() -> ClaimedJob {
    let (token, id, payload) = (Uuid::nil(), JobId(1), Some("null".to_owned()));
    let claimed_at = DateTime::UNIX_EPOCH;
    ClaimedJob {
        token,
        id,
        lane: 1,
        queue: Arc::default(),
        attempt: 1,
        crashes: 0,
        max_attempts: 1,
        job_type: "hang",
        version: 1,
        payload,
        meta: None,
        system: None,
        key: None,
        claimed_at,
        start_deadline: None,
    }
}
