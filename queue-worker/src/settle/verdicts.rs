//! Writing verdicts: everything that came in while the last flush was in the air goes into the next.
//!
//! A settle is tried until the database answers. What it refuses is a lost lease, which is never an error of the job. A verdict that the
//! server refuses to store is set aside, so that the others go on; `aside` knows what becomes of it.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use futures_util::{FutureExt as _, future::BoxFuture};
use queue_core::Store;
use tokio::{
    sync::{Mutex, mpsc::Receiver},
    time::sleep_until,
};
use tokio_util::sync::CancellationToken;

use super::{
    aside::Aside,
    locked::Locked,
    send::{News, Statement, Whole, has_parts, is_about_data, is_refusal, send, send_leases},
    settlement::Settlement,
    unsettled::{Flush, Unsettled},
};
use crate::{
    error::{complain, is_locked},
    live::{Bell, Config, Link, Vitals, has_moved, jittered},
    tally::Tallies,
};

/// The most verdicts of one statement.
const MOST: usize = 1000;

/// The most bytes of outputs and errors in one statement, unless one verdict alone has more: a message of a gigabyte is refused by the server,
/// which would be tried again for ever.
const LARGEST: usize = 32 * 1024 * 1024;

/// Between tries while the database is away, with as much again of jitter, so that workers do not return as a herd. The first is quick: most
/// failures are a connection that was cut.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];

/// Settles what comes in until `closing` fires, and then what is in the channel still. Verdicts that a panic takes along are lost, so that their jobs
/// are given back.
pub(crate) fn settle_all(
    (incoming, closing): (Arc<Mutex<Receiver<Settlement>>>, CancellationToken),
    link: Link,
    config: &Config,
    (bell, tallies): (&Arc<Bell>, &Tallies),
) -> impl FnMut() -> BoxFuture<'static, ()> + Send + use<> {
    let (store, lease_ttl, bell, tallies) = (config.store, config.lease_ttl, Arc::clone(bell), tallies.clone());
    move || {
        let aside = Aside::new(tallies.clone(), bell.vitals().clone(), lease_ttl);
        let incoming = (Arc::clone(&incoming), closing.clone());
        settle_until(incoming, link.another(), store, Arc::clone(&bell), (tallies.clone(), aside)).boxed()
    }
}

async fn settle_until(
    (incoming, closing): (Arc<Mutex<Receiver<Settlement>>>, CancellationToken),
    mut link: Link,
    store: Store,
    bell: Arc<Bell>,
    (tallies, mut aside): (Tallies, Aside),
) {
    let mut incoming = incoming.lock().await;
    bell.vitals().settling.clear();
    let mut received = Vec::new();
    let mut unsettled = Unsettled::default();
    let mut locked = Locked::default();
    loop {
        // Slots wait for these, as they do while the database is away.
        if aside.is_full() {
            aside.wait().await;
        } else if locked.is_full() {
            locked.wait().await;
        } else if !unsettled.is_empty() {
            // Whatever came in during the last flush, without waiting for more.
            while received.len() < MOST && incoming.try_recv().map(|one| received.push(one)).is_ok() {}
        } else if !receive(&mut incoming, &mut received, &closing, aside.due().into_iter().chain(locked.due()).min()).await {
            break;
        }
        bell.vitals().settling.set_first();
        tallies.note(received.iter().filter(|one| one.over).filter_map(|one| one.counted(false)));
        // A handler's own transaction has ended these.
        if received.iter().any(|one| one.over && (one.ending.has_key() || one.ending.is_child())) {
            bell.tell_keys();
        }
        unsettled.extend(received.drain(..));
        let flush = unsettled.next_flush();
        settle_and_tell(&mut link, store, flush, &mut aside, &mut locked, &bell).await;
        if locked.due().is_some_and(|due| due <= Instant::now()) {
            let free = locked.free(&mut link, store).await;
            settle_and_tell(&mut link, store, free, &mut aside, &mut locked, &bell).await;
        }
        if aside.due().is_some_and(|due| due <= Instant::now()) {
            aside.try_again(&mut link, store, &bell).await;
        }
        // Where no more can be taken in, others wait as long as the first; and where no verdict can be written.
        if !aside.is_full() && !locked.is_full() && !locked.is_shut(Statement::Settle) {
            bell.vitals().settling.clear();
        }
    }
    // Whoever stops the worker does not wait for it for long.
    while locked.due().is_some() {
        locked.wait().await;
        let free = locked.free(&mut link, store).await;
        settle_and_tell(&mut link, store, free, &mut aside, &mut locked, &bell).await;
    }
    aside.finish(&mut link, store, &bell).await;
    link.close().await;
}

async fn settle_and_tell(link: &mut Link, store: Store, flush: Flush, aside: &mut Aside, locked: &mut Locked, bell: &Bell) {
    if flush.verdicts.is_empty() && flush.whole.is_empty() {
        return;
    }
    let (news, began) = (News::of(&flush.verdicts, &flush.whole), Instant::now());
    settle(link, store, flush, aside, locked).await;
    aside.vitals().note_settle(began.elapsed());
    news.tell(link, store, bell).await;
}

/// Waits for verdicts, or for the time at which one is due again; false when there will be none any more.
async fn receive(
    incoming: &mut Receiver<Settlement>,
    received: &mut Vec<Settlement>,
    closing: &CancellationToken,
    due: Option<Instant>,
) -> bool {
    loop {
        tokio::select! {
            biased;
            count = incoming.recv_many(received, MOST) => return count > 0,
            () = closing.cancelled(), if !incoming.is_closed() => incoming.close(),
            () = sleep_until(due.unwrap_or_else(Instant::now).into()), if due.is_some() => return true,
        }
    }
}

/// Writes a flush, however often it must be sent.
async fn settle(link: &mut Link, store: Store, flush: Flush, aside: &mut Aside, locked: &mut Locked) {
    let Flush { mut verdicts, whole } = flush;
    let (counted, plain): (Vec<_>, Vec<_>) = whole.into_iter().partition(|(_, jobs)| has_parts(jobs));
    for whole in [plain, counted] {
        verdicts.extend(settle_whole(link, store, whole, aside, locked).await);
    }
    // Each statement by itself: what one has written is not sent again for a fault of another, which would look like a lost lease.
    for statement in Statement::ALL {
        let of: Vec<_> = verdicts.extract_if(.., |one| Statement::of(one) == statement).collect();
        if locked.is_shut(statement) {
            locked.put(of);
        } else if !of.is_empty() {
            settle_verdicts(link, store, of, aside, locked).await;
        }
    }
}

/// Returns the verdicts of leases that are not settled as a whole: the server refuses that, or they list other jobs than these.
async fn settle_whole(link: &mut Link, store: Store, mut whole: Vec<Whole>, aside: &mut Aside, locked: &mut Locked) -> Vec<Settlement> {
    let mut tries = Tries::default();
    while !whole.is_empty() {
        match send_leases(link, store, &whole).await {
            Ok(lost) => {
                // Sent again, what is refused may be what was written at the first time: that is not asked job by job.
                let left: Vec<Whole> =
                    if tries.count == 0 { whole.extract_if(.., |(token, _)| lost.contains(token)).collect() } else { Vec::new() };
                let is_lost = tries.report(lost.len() - left.len(), aside.lease_ttl());
                aside.note_written(whole.iter().flat_map(|(_, jobs)| jobs), |one| is_lost && lost.contains(&one.token));
                return left.into_iter().flat_map(|(_, jobs)| jobs).collect();
            }
            Err(error) if is_refusal(&error) => {
                let (leases, error) = (whole.len(), queue_core::message(&error));
                tracing::warn!(leases, error, "cannot settle whole leases; settling their jobs");
                return whole.into_iter().flat_map(|(_, jobs)| jobs).collect();
            }
            Err(error) if is_locked(&error) => {
                if !locked.take_whole(link, store, &mut whole).await {
                    // It may be a table that is not written to for jobs one by one.
                    return whole.into_iter().flat_map(|(_, jobs)| jobs).collect();
                }
            }
            Err(error) => tries.pause(&error, aside.vitals()).await,
        }
    }
    Vec::new()
}

/// Verdicts that the server refuses harm only themselves.
async fn settle_verdicts(link: &mut Link, store: Store, mut verdicts: Vec<Settlement>, aside: &mut Aside, locked: &mut Locked) {
    let size: usize = verdicts.iter().flat_map(|one| [one.ending.output(), one.ending.error()]).flatten().map(str::len).sum();
    let mut tries = Tries::default();
    let refused = loop {
        if size > LARGEST && verdicts.len() > 1 {
            break None;
        }
        match send(link, store, aside.tallies(), &verdicts).await {
            Ok(lost) => {
                let is_lost = tries.report(lost.len(), aside.lease_ttl());
                return aside.note_written(verdicts.iter(), |one| is_lost && lost.contains(&(one.token, one.id)));
            }
            Err(error) if is_refusal(&error) => break Some(error),
            Err(error) if is_locked(&error) && locked.take(link, store, &mut verdicts).await => {
                if verdicts.is_empty() {
                    return;
                }
            }
            // What it waits for is not known: of which of them, each half shows.
            Err(error) if is_locked(&error) && tries.count > 0 => break Some(error),
            Err(error) => tries.pause(&error, aside.vitals()).await,
        }
    };
    if verdicts.len() > 1 {
        if let Some(error) = refused {
            tracing::debug!(jobs = verdicts.len(), error = queue_core::message(&error), "cannot settle together; settling each half");
        }
        let rest = verdicts.split_off(verdicts.len() / 2);
        Box::pin(settle_verdicts(link, store, verdicts, aside, locked)).await;
        return Box::pin(settle_verdicts(link, store, rest, aside, locked)).await;
    }
    let (Some(mut one), Some(error)) = (verdicts.pop(), refused) else { return };
    if is_locked(&error) {
        return locked.put_off(one);
    }
    if is_about_data(&error) && one.ending.redact() {
        tracing::warn!(job = %one.id, error = queue_core::message(&error), "cannot settle with these texts; leaving them out");
        return Box::pin(settle_verdicts(link, store, vec![one], aside, locked)).await;
    }
    aside.put(one, &error);
}

/// How often one statement was sent.
#[derive(Default)]
struct Tries {
    count: u32,
    /// When the first has failed.
    since: Option<Instant>,
}

impl Tries {
    async fn pause(&mut self, error: &sqlx::Error, vitals: &Vitals) {
        vitals.settle_retries.fetch_add(1, Relaxed);
        let pause = PAUSES[usize::from(self.count > 0 && !has_moved(error))];
        if self.count > 0 {
            complain(error, "cannot settle; trying again");
        }
        self.count += 1;
        self.since.get_or_insert_with(Instant::now);
        tokio::time::sleep(jittered(pause)).await;
    }

    /// After an error the commit may have happened all the same: what is refused at the next try may be what was written at that one. But what was
    /// tried for longer than a lease was hardly written, and its leases went to others. Returns whether others have the jobs.
    fn report(&self, refused: usize, lease_ttl: Duration) -> bool {
        let outlived = self.since.is_some_and(|since| since.elapsed() >= lease_ttl);
        let is_lost = refused > 0 && (self.count == 0 || outlived);
        if is_lost {
            tracing::warn!(refused, "lease lost: verdicts refused, others have these jobs");
        }
        is_lost
    }
}
