//! What is done beside jobs: schedules, pauses, what jobs and types say of themselves, who waits for jobs. And what schedules and pauses are after it.

use sqlx::PgConnection;
use tests::{children, operate, protocol, signals, tallies, timetable};
use uuid::Uuid;

use super::{act::Act, fixture::Fixture, kinds::HEARTS};

/// A statement, on the schedule that is due, on the queue that is paused, or on the jobs and the lease of the fixture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// With other options, and the same ticks.
    PutSchedule,
    Unschedule,
    PauseSchedule,
    ResumeSchedule,
    SkipSchedule,
    RunSchedule,
    /// Of what is declared already, and of something else.
    Declare,
    /// Of what is declared, and not in force.
    Elect,
    PruneFires,
    /// Of the queue, once more.
    Pause,
    Resume,
    Vouch,
    Note,
    ClearProgress,
    LockedRows,
    ForgetKeys,
    /// None: the head of each is there, or is on its way.
    FreeKeys,
    PublishTypes,
    AnnounceWaiter,
    LeaveWaiter,
    PruneWaiters,
    /// What this process has counted, under a number that it has not said yet.
    Tally,
    RollUp,
    PruneTotals,
    /// Of an attempt that no other call names.
    WriteLogs,
    PruneLogs,
    /// A step that no other call names.
    Journal,
    JournalFresh,
    JournalOne,
    PruneSteps,
    /// To the job that is parked.
    Signal,
    /// By the job that runs.
    Receive,
    PruneSignals,
    /// By the job that runs, as a step that no other call names.
    Spawn,
    /// Of those jobs of which one is the child of the job that is parked, and is over.
    NoteEnds,
    /// Of the child.
    TellEnds,
    PruneChildren,
    /// Two more parts of the map of the job that runs.
    AddChunk,
    /// With as many parts as it has.
    CloseGather,
    /// One of its parts is over, by an operator.
    EndPart,
    CountGathers,
    /// In the middle of its work.
    Recount,
    /// As if its parent began anew.
    ForgetGathers,
    PruneGathers,
    /// And with it the parts of its map.
    CancelParent,
}

use Beside::{
    AddChunk, AnnounceWaiter, CancelParent, ClearProgress, CloseGather, CountGathers, Declare, Elect, EndPart, ForgetGathers, ForgetKeys,
    FreeKeys, Journal, JournalFresh, JournalOne, LeaveWaiter, LockedRows, Note, NoteEnds, Pause, PauseSchedule, PruneChildren, PruneFires,
    PruneGathers, PruneLogs, PruneSignals, PruneSteps, PruneTotals, PruneWaiters, PublishTypes, PutSchedule, Receive, Recount, Resume,
    ResumeSchedule, RollUp, RunSchedule, Signal, SkipSchedule, Spawn, Tally, TellEnds, Unschedule, Vouch, WriteLogs,
};

pub(super) const SCHEDULES: &[Act] = &[
    Act::Beside(PutSchedule),
    Act::Beside(Unschedule),
    Act::Beside(PauseSchedule),
    Act::Beside(ResumeSchedule),
    Act::Beside(SkipSchedule),
    Act::Beside(RunSchedule),
    Act::Beside(Declare),
    Act::Beside(Elect),
    Act::Beside(PruneFires),
];
pub(super) const PAUSES: &[Act] = &[Act::Beside(Pause), Act::Beside(Resume), Act::Beside(Vouch)];
pub(super) const MAPS: &[Act] = &[
    Act::Beside(AddChunk),
    Act::Beside(CloseGather),
    Act::Beside(EndPart),
    Act::Beside(CountGathers),
    Act::Beside(Recount),
    Act::Beside(ForgetGathers),
    Act::Beside(PruneGathers),
    Act::Beside(CancelParent),
];
pub(super) const REPORTS: &[Act] = &[
    Act::Beside(Note),
    Act::Beside(ClearProgress),
    Act::Beside(LockedRows),
    Act::Beside(ForgetKeys),
    Act::Beside(FreeKeys),
    Act::Beside(PublishTypes),
    Act::Beside(AnnounceWaiter),
    Act::Beside(LeaveWaiter),
    Act::Beside(PruneWaiters),
    Act::Beside(Tally),
    Act::Beside(RollUp),
    Act::Beside(PruneTotals),
    Act::Beside(WriteLogs),
    Act::Beside(PruneLogs),
    Act::Beside(Journal),
    Act::Beside(JournalFresh),
    Act::Beside(JournalOne),
    Act::Beside(PruneSteps),
    Act::Beside(Signal),
    Act::Beside(Receive),
    Act::Beside(PruneSignals),
    Act::Beside(Spawn),
    Act::Beside(NoteEnds),
    Act::Beside(TellEnds),
    Act::Beside(PruneChildren),
];

impl Beside {
    /// Does it; returns of how many rows.
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
            Vouch => i64::from(timetable::vouch(on, *worker).await?),
            Note => count(protocol::note_all(on, &[(lease.token, lease.jobs[0], "half")]).await?.len()),
            ClearProgress => protocol::clear_progress(on, jobs).await?,
            LockedRows => count(protocol::locked_rows(on, &[lease.token], &[]).await?),
            ForgetKeys => operate::forget_keys(on).await?,
            FreeKeys => operate::free_keys(on).await?,
            PublishTypes => operate::publish_types(on, "elsewhere").await?,
            AnnounceWaiter => operate::announce_waiter(on, *worker).await.map(|()| 1)?,
            LeaveWaiter => operate::leave_waiter(on, *worker).await.map(|()| 1)?,
            PruneWaiters => operate::prune_waiters(on).await?,
            Tally => tallies::say(on, (Uuid::new_v4(), 1), 90.0, &[tallies::Tally::one("default")]).await?,
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
            NoteEnds => children::note_ends(on, jobs).await.map(|()| 1)?,
            TellEnds => i64::from(children::tell_ends(on).await?),
            PruneChildren => i64::from(children::prune_children(on).await?),
            AddChunk | CloseGather | EndPart | CountGathers | Recount | ForgetGathers | PruneGathers | CancelParent => {
                super::maps::run(self, on, fixture).await?
            }
        })
    }

    /// Of which files it is.
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
            Vouch => &["vouch"],
            Note => &["note"],
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
            NoteEnds => &["note_ends"],
            TellEnds => &["tell_ends"],
            PruneChildren => &["prune_children"],
            AddChunk => &["add_chunk"],
            CloseGather => &["close_gather"],
            CountGathers => &["count_gathers"],
            PruneGathers => &["prune_gathers"],
            EndPart | CancelParent => &["act_on_all"],
            // Functions that others call.
            Recount | ForgetGathers => &[],
        }
    }
}

/// What the schedule and the pause of the fixture are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
#[expect(clippy::struct_excessive_bools, reason = "each is a column of what is compared")]
struct State {
    there: bool,
    paused: bool,
    /// Its next tick: not known (0), the one that is due (1), or the one after that (2).
    next: i32,
    /// The tick that is to be skipped; none is 0.
    skip: i32,
    /// The queue is paused, and somebody has not said so yet.
    queue: bool,
    awaits: bool,
}

const FIRST: State = State { there: true, paused: false, next: 1, skip: 0, queue: true, awaits: true };

const STATE: &str = "select s.name is not null as there, s.paused_at is not null as paused, 
    case when s.next_at is null then 0 when s.next_at <= now() then 1 else 2 end as next,
    case when s.skip_at is null then 0 when s.skip_at <= now() then 1 else 2 end as skip, p.id is not null as queue, exists (select from queue.pause_awaits('default')) as awaits
  from (select) one
  left join queue.schedule s on s.name = 'due'
  left join queue.paused p on p.queue = 'default'";

/// What may be once this act has said it was of so many; nothing if it cannot have said so.
fn after(act: Act, count: i64, was: State) -> Vec<State> {
    let did = count > 0;
    let one = |possible: bool, is: State| if possible { vec![is] } else { Vec::new() };
    match act {
        Act::FireTick => {
            let due = was.there && !was.paused && was.next == 1;
            match (did, due && was.skip == 1) {
                (true, skipped) => one(due && !skipped, State { next: 2, ..was }),
                // It passes over what others have.
                (false, false) => vec![was],
                (false, true) => vec![was, State { next: 2, ..was }],
            }
        }
        Act::Beside(PutSchedule) if was.there => vec![was],
        Act::Beside(PutSchedule) => vec![State { there: true, paused: false, next: 0, skip: 0, ..was }],
        Act::Beside(Unschedule) => one(was.there == did, State { there: false, paused: false, next: 0, skip: 0, ..was }),
        Act::Beside(PauseSchedule) => one(was.there == did, State { paused: did, ..was }),
        Act::Beside(ResumeSchedule) => one(was.there == did, State { paused: false, next: if was.paused { 0 } else { was.next }, ..was }),
        Act::Beside(SkipSchedule) => one((was.there && was.next > 0) == did, State { skip: if did { was.next } else { was.skip }, ..was }),
        Act::Beside(RunSchedule) => one(was.there == did, was),
        Act::Beside(Pause) => vec![State { queue: true, awaits: true, ..was }],
        Act::Beside(Resume) => one(was.queue == did, State { queue: false, awaits: false, ..was }),
        Act::Beside(Vouch) => one(was.awaits == did, State { awaits: false, ..was }),
        _ => vec![was],
    }
}

/// All orders of these.
fn orders(acts: &[(Act, i64)]) -> Vec<Vec<(Act, i64)>> {
    let Some((last, rest)) = acts.split_last() else { return vec![Vec::new()] };
    let shorter = orders(rest);
    let insert = |order: &Vec<(Act, i64)>| (0..=order.len()).map(|at| [&order[..at], &[*last], &order[at..]].concat()).collect::<Vec<_>>();
    shorter.iter().flat_map(insert).collect()
}

/// What is wrong with the schedule and the pause after these acts: they are not as after any order of them. Others may come and go, and then
/// nothing is said of whom a pause waits for.
pub(super) async fn out_of_order(on: &mut PgConnection, committed: &[(Act, i64)]) -> sqlx::Result<Option<String>> {
    let minds = |act: &Act| *act == Act::FireTick || SCHEDULES.contains(act) || PAUSES.contains(act);
    if !committed.iter().any(|(act, _)| minds(act)) {
        return Ok(None);
    }
    let hearts = committed.iter().any(|(act, _)| HEARTS.contains(act) || *act == Act::PruneWorkers);
    let heed = |state: State| if hearts { State { awaits: false, ..state } } else { state };
    let found: State = sqlx::query_as(STATE).fetch_one(on).await?;
    let possible = orders(committed).into_iter().flat_map(|order| {
        order.into_iter().fold(vec![FIRST], |states, (act, count)| {
            let count = if hearts && act == Act::Beside(Vouch) { None } else { Some(count) };
            states.into_iter().flat_map(|was| count.map_or_else(|| vec![was], |count| after(act, count, was))).collect()
        })
    });
    let fits = possible.into_iter().any(|state| heed(state) == heed(found));
    Ok((!fits).then(|| format!("{found:?} after no order of {committed:?}")))
}
