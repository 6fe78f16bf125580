//! Statements on schedules, pauses, keys, job types, row locks, progress, logs, steps, signals, child jobs, maps, waiters and metrics.
//! Also checks the state of the schedule and of the pause after a run.

use sqlx::PgConnection;
use tests::{children, operate, protocol, signals, tallies, timetable};
use uuid::Uuid;

use super::{fixture::Fixture, kinds::HEARTBEATS, statement::Statement};

/// Statement on the due schedule, on the paused queue, or on the jobs and the lease of the fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideStatement {
    /// Updates the options of the schedule. The ticks stay the same.
    PutSchedule,
    Unschedule,
    PauseSchedule,
    ResumeSchedule,
    SkipSchedule,
    RunSchedule,
    /// Declares a schedule that is already declared, with other options.
    Declare,
    /// Applies the latest declaration of a schedule. The declaration is not in force yet.
    Elect,
    PruneFires,
    /// Pauses the queue again.
    Pause,
    Resume,
    Vouch,
    Note,
    ClearProgress,
    LockedRows,
    ForgetKeys,
    /// Frees no ordering key, because the head job of each key exists or is being enqueued.
    FreeKeys,
    PublishTypes,
    AnnounceWaiter,
    LeaveWaiter,
    PruneWaiters,
    /// Writes the first batch of statistics of a new process.
    Tally,
    RollUp,
    PruneTotals,
    /// Writes a log under a random attempt number.
    WriteLogs,
    PruneLogs,
    /// Journals a step under a name that no other call uses.
    Journal,
    JournalFresh,
    JournalOne,
    PruneSteps,
    /// Sends a signal to the parked job.
    Signal,
    /// Receives a signal in the running job.
    Receive,
    PruneSignals,
    /// Spawns a child of the running job, in a step whose name no other call uses.
    Spawn,
    /// Writes end hints for the finished jobs that other jobs wait for, including the child of the parked job.
    NoteEnds,
    /// Notifies a parent that its child has ended.
    TellEnds,
    PruneChildren,
    /// Adds two parts to the map of the running job.
    AddChunk,
    /// Closes the map with its current number of parts.
    CloseGather,
    /// Cancels one part of the map, as an operator would.
    EndPart,
    CountGathers,
    /// Recounts the unfinished parts of the map of the running job.
    Recount,
    /// Deletes the map's records, as a restart of the parent does.
    ForgetGathers,
    PruneGathers,
    /// Cancels the parent, which also cancels the parts of its map.
    CancelParent,
}

use SideStatement::{
    AddChunk, AnnounceWaiter, CancelParent, ClearProgress, CloseGather, CountGathers, Declare, Elect, EndPart, ForgetGathers, ForgetKeys,
    FreeKeys, Journal, JournalFresh, JournalOne, LeaveWaiter, LockedRows, Note, NoteEnds, Pause, PauseSchedule, PruneChildren, PruneFires,
    PruneGathers, PruneLogs, PruneSignals, PruneSteps, PruneTotals, PruneWaiters, PublishTypes, PutSchedule, Receive, Recount, Resume,
    ResumeSchedule, RollUp, RunSchedule, Signal, SkipSchedule, Spawn, Tally, TellEnds, Unschedule, Vouch, WriteLogs,
};

pub(super) const SCHEDULES: &[Statement] = &[
    Statement::Side(PutSchedule),
    Statement::Side(Unschedule),
    Statement::Side(PauseSchedule),
    Statement::Side(ResumeSchedule),
    Statement::Side(SkipSchedule),
    Statement::Side(RunSchedule),
    Statement::Side(Declare),
    Statement::Side(Elect),
    Statement::Side(PruneFires),
];
pub(super) const PAUSES: &[Statement] = &[Statement::Side(Pause), Statement::Side(Resume), Statement::Side(Vouch)];
pub(super) const MAPS: &[Statement] = &[
    Statement::Side(AddChunk),
    Statement::Side(CloseGather),
    Statement::Side(EndPart),
    Statement::Side(CountGathers),
    Statement::Side(Recount),
    Statement::Side(ForgetGathers),
    Statement::Side(PruneGathers),
    Statement::Side(CancelParent),
];
pub(super) const REPORTS: &[Statement] = &[
    Statement::Side(Note),
    Statement::Side(ClearProgress),
    Statement::Side(LockedRows),
    Statement::Side(ForgetKeys),
    Statement::Side(FreeKeys),
    Statement::Side(PublishTypes),
    Statement::Side(AnnounceWaiter),
    Statement::Side(LeaveWaiter),
    Statement::Side(PruneWaiters),
    Statement::Side(Tally),
    Statement::Side(RollUp),
    Statement::Side(PruneTotals),
    Statement::Side(WriteLogs),
    Statement::Side(PruneLogs),
    Statement::Side(Journal),
    Statement::Side(JournalFresh),
    Statement::Side(JournalOne),
    Statement::Side(PruneSteps),
    Statement::Side(Signal),
    Statement::Side(Receive),
    Statement::Side(PruneSignals),
    Statement::Side(Spawn),
    Statement::Side(NoteEnds),
    Statement::Side(TellEnds),
    Statement::Side(PruneChildren),
];

impl SideStatement {
    /// Executes the statement. Returns the number of affected rows.
    pub(super) async fn run(self, on: &mut PgConnection, fixture: &Fixture) -> sqlx::Result<i64> {
        let count = |some: usize| i64::try_from(some).unwrap_or(i64::MAX);
        let Fixture { jobs, lease, worker, .. } = fixture;
        Ok(match self {
            PutSchedule => timetable::put(on, 7).await.map(|()| 1)?,
            Unschedule => i64::from(timetable::unschedule(on).await?),
            PauseSchedule => i64::from(timetable::pause_schedule(on).await?),
            ResumeSchedule => i64::from(timetable::resume_schedule(on).await?),
            SkipSchedule => i64::from(timetable::skip_schedule(on).await?),
            RunSchedule => i64::from(timetable::run_schedule(on).await?),
            Declare => 1 - count(timetable::declare(on, *worker, 8).await?),
            Elect => count(timetable::elect(on).await?.len()),
            PruneFires => timetable::prune_fires(on).await?,
            Pause => timetable::pause(on).await.map(|_| 1)?,
            Resume => i64::from(timetable::resume(on).await?),
            Vouch => i64::from(timetable::acknowledge(on, *worker).await?),
            Note => count(protocol::note_all(on, &[(lease.token, lease.jobs[0], "half")]).await?.len()),
            ClearProgress => protocol::clear_progress(on, jobs).await?,
            LockedRows => count(protocol::locked_rows(on, &[lease.token], &[]).await?),
            ForgetKeys => operate::forget_keys(on).await?,
            FreeKeys => operate::free_keys(on).await?,
            PublishTypes => operate::publish_types(on, "elsewhere").await?,
            AnnounceWaiter => operate::announce_waiter(on, *worker).await.map(|()| 1)?,
            LeaveWaiter => operate::leave_waiter(on, *worker).await.map(|()| 1)?,
            PruneWaiters => operate::prune_waiters(on).await?,
            Tally => tallies::write(on, (Uuid::new_v4(), 1), 90.0, &[tallies::Tally::one("default")]).await?,
            RollUp => tallies::roll_up(on, 100).await?.0,
            PruneTotals => tallies::prune_totals(on, 100).await?,
            WriteLogs => operate::write_logs(on, lease.token, lease.jobs[0].id).await?,
            PruneLogs => operate::prune_logs(on).await?,
            Journal => operate::journal(on, lease.token, lease.jobs[0].id).await?,
            JournalFresh => operate::journal_fresh(on, lease.token, lease.jobs[0].id).await?,
            JournalOne => operate::journal_one(on, lease.token, lease.jobs[0].id).await?,
            PruneSteps => operate::prune_steps(on).await?,
            Signal => i64::from(signals::signal(on, fixture.parked).await?),
            Receive => i64::from(signals::receive(on, lease.token, lease.jobs[0].id).await?),
            PruneSignals => i64::from(signals::prune_signals(on).await?),
            Spawn => i64::from(children::spawn(on, lease.token, lease.jobs[0].id).await?),
            NoteEnds => children::add_end_hints(on, jobs).await.map(|()| 1)?,
            TellEnds => i64::from(children::consume_end_hints(on).await?),
            PruneChildren => i64::from(children::prune_children(on).await?),
            AddChunk | CloseGather | EndPart | CountGathers | Recount | ForgetGathers | PruneGathers | CancelParent => {
                super::maps::run(self, on, fixture).await?
            }
        })
    }

    /// Returns the names of the SQL files that contain the statement, without extension.
    pub(super) fn files(self) -> &'static [&'static str] {
        match self {
            PutSchedule => &["put_schedule"],
            Unschedule => &["unschedule"],
            PauseSchedule => &["pause_schedule"],
            ResumeSchedule => &["resume_schedule"],
            SkipSchedule => &["skip_schedule"],
            RunSchedule => &["run_schedule"],
            Declare => &["declare"],
            Elect => &["elect"],
            PruneFires => &["prune_fires"],
            Pause => &["pause"],
            Resume => &["resume"],
            Vouch => &["acknowledge_pauses"],
            Note => &["record_progress"],
            ClearProgress => &["clear_progress"],
            LockedRows => &["locked_rows"],
            ForgetKeys => &["forget_keys"],
            FreeKeys => &["free_keys"],
            PublishTypes => &["publish_types"],
            AnnounceWaiter => &["announce_waiter"],
            LeaveWaiter => &["leave_waiter"],
            PruneWaiters => &["prune_waiters"],
            Tally => &["tally"],
            RollUp => &["roll_up"],
            PruneTotals => &["prune_totals"],
            WriteLogs => &["write_logs"],
            PruneLogs => &["prune_logs"],
            Journal => &["journal"],
            JournalFresh => &["journal_fresh"],
            JournalOne => &["journal_one"],
            PruneSteps => &["prune_steps"],
            Signal => &["signal"],
            Receive => &["receive"],
            PruneSignals => &["prune_signals"],
            Spawn => &["spawn"],
            NoteEnds => &["add_end_hints"],
            TellEnds => &["consume_end_hints"],
            PruneChildren => &["prune_children"],
            AddChunk => &["add_chunk"],
            CloseGather => &["close_gather"],
            CountGathers => &["count_gathers"],
            PruneGathers => &["prune_gathers"],
            EndPart | CancelParent => &["apply_to_all"],
            // These SQL functions are called by other statements, so they have no file.
            Recount | ForgetGathers => &[],
        }
    }
}

/// State of the fixture's schedule and pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
#[expect(clippy::struct_excessive_bools, reason = "one per compared column")]
struct ScheduleState {
    there: bool,
    paused: bool,
    /// Next tick: 0 if unknown, 1 for the due tick, 2 for the tick after the due tick.
    next: i32,
    /// Tick to be skipped, numbered like `next`. 0 if no tick is to be skipped.
    skip: i32,
    /// Whether the queue is paused.
    queue: bool,
    /// Whether a worker has not yet acknowledged the pause.
    awaits: bool,
}

const FIRST: ScheduleState = ScheduleState { there: true, paused: false, next: 1, skip: 0, queue: true, awaits: true };

const STATE: &str = "select s.name is not null as there, s.paused_at is not null as paused, 
    case when s.next_at is null then 0 when s.next_at <= now() then 1 else 2 end as next,
    case when s.skip_at is null then 0 when s.skip_at <= now() then 1 else 2 end as skip, p.id is not null as queue, exists (select from queue.pause_awaits('default')) as awaits
  from (select) one
  left join queue.schedule s on s.name = 'due'
  left join queue.paused p on p.queue = 'default'";

/// Returns the possible states after a statement has reported `count`. The result is empty if the count is impossible.
fn after(statement: Statement, count: i64, was: ScheduleState) -> Vec<ScheduleState> {
    let did = count > 0;
    let one = |possible: bool, is: ScheduleState| if possible { vec![is] } else { Vec::new() };
    match statement {
        Statement::FireTick => {
            let due = was.there && !was.paused && was.next == 1;
            match (did, due && was.skip == 1) {
                (true, skipped) => one(due && !skipped, ScheduleState { next: 2, ..was }),
                // The statement skips rows that are locked by other transactions, so the state may be unchanged.
                (false, false) => vec![was],
                (false, true) => vec![was, ScheduleState { next: 2, ..was }],
            }
        }
        Statement::Side(PutSchedule) if was.there => vec![was],
        Statement::Side(PutSchedule) => vec![ScheduleState { there: true, paused: false, next: 0, skip: 0, ..was }],
        Statement::Side(Unschedule) => one(was.there == did, ScheduleState { there: false, paused: false, next: 0, skip: 0, ..was }),
        Statement::Side(PauseSchedule) => one(was.there == did, ScheduleState { paused: did, ..was }),
        Statement::Side(ResumeSchedule) => {
            one(was.there == did, ScheduleState { paused: false, next: if was.paused { 0 } else { was.next }, ..was })
        }
        Statement::Side(SkipSchedule) => {
            one((was.there && was.next > 0) == did, ScheduleState { skip: if did { was.next } else { was.skip }, ..was })
        }
        Statement::Side(RunSchedule) => one(was.there == did, was),
        Statement::Side(Pause) => vec![ScheduleState { queue: true, awaits: true, ..was }],
        Statement::Side(Resume) => one(was.queue == did, ScheduleState { queue: false, awaits: false, ..was }),
        Statement::Side(Vouch) => one(was.awaits == did, ScheduleState { awaits: false, ..was }),
        _ => vec![was],
    }
}

/// Returns all permutations of the statements.
fn orders(statements: &[(Statement, i64)]) -> Vec<Vec<(Statement, i64)>> {
    let Some((last, rest)) = statements.split_last() else { return vec![Vec::new()] };
    let shorter = orders(rest);
    let insert =
        |order: &Vec<(Statement, i64)>| (0..=order.len()).map(|at| [&order[..at], &[*last], &order[at..]].concat()).collect::<Vec<_>>();
    shorter.iter().flat_map(insert).collect()
}

/// Describes a violation if no order of the committed statements leads to the current state of the schedule and the pause. Ignores the
/// acknowledgement of the pause if a statement adds or removes workers.
pub(super) async fn schedule_violation(on: &mut PgConnection, committed: &[(Statement, i64)]) -> sqlx::Result<Option<String>> {
    let minds = |statement: &Statement| *statement == Statement::FireTick || SCHEDULES.contains(statement) || PAUSES.contains(statement);
    if !committed.iter().any(|(statement, _)| minds(statement)) {
        return Ok(None);
    }
    let has_heartbeats = committed.iter().any(|(statement, _)| HEARTBEATS.contains(statement) || *statement == Statement::PruneWorkers);
    let acknowledge = |state: ScheduleState| if has_heartbeats { ScheduleState { awaits: false, ..state } } else { state };
    let found: ScheduleState = sqlx::query_as(STATE).fetch_one(on).await?;
    let possible = orders(committed).into_iter().flat_map(|order| {
        order.into_iter().fold(vec![FIRST], |states, (statement, count)| {
            let count = if has_heartbeats && statement == Statement::Side(Vouch) { None } else { Some(count) };
            states.into_iter().flat_map(|was| count.map_or_else(|| vec![was], |count| after(statement, count, was))).collect()
        })
    });
    let fits = possible.into_iter().any(|state| acknowledge(state) == acknowledge(found));
    Ok((!fits).then(|| format!("{found:?} after no order of {committed:?}")))
}
