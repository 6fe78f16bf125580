//! What durable jobs receive: the next signals of a name, or the ends of the waits for them, journaled under their leases' fences. Those that ask
//! together in one statement, a lone one at once.
//!
//! No ask waits for another's locks. One whose lease somebody has locked asks again soon, and one that is refused is refused alone. While the
//! database is away nothing is known: the job is put off, and asks again. It is not parked, for its signal may be journaled by a statement whose
//! answer was lost, and then no hint leads to it.

use std::{
    collections::HashMap,
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{
    JobId, Store,
    runner::{Heard, SignalEntry},
};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::sleep_until,
};
use uuid::Uuid;

use super::send::{is_of_class, is_refusal};
use crate::{
    error::{complain, is_locked},
    live::{Link, bounded},
};

/// The most asks of one statement.
const MOST: usize = 500;

/// A verdict locks its lease for a moment: who meets that asks again so soon, then after as long as it has waited, up to the longest.
const SOON: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(200);

/// A lease that is locked for so long is not asked for any more. Whoever writes the verdict that puts off its job says who has locked it.
const PATIENCE: Duration = Duration::from_secs(2);

/// For so long asks are taken apart that waited for somebody's lock. What is left of them then is put off.
const APART: Duration = Duration::from_secs(2);

const UNKNOWN: &str = "cannot ask for signals; their jobs are put off, and ask again";

/// Where attempts ask.
#[derive(Clone, Debug)]
pub(crate) struct AskSender(mpsc::UnboundedSender<Asking>);

/// What is asked for, and the attempt that waits for the answer.
#[derive(Debug)]
pub(crate) struct Asking {
    entry: SignalEntry,
    since: Instant,
    answer: oneshot::Sender<Heard>,
}

impl AskSender {
    /// A sender, and what it sends; the attempts that run bound how much that is.
    pub(crate) fn open() -> (Self, mpsc::UnboundedReceiver<Asking>) {
        let (sender, incoming) = mpsc::unbounded_channel();
        (Self(sender), incoming)
    }

    pub(super) async fn ask(&self, entry: SignalEntry) -> Heard {
        let (answer, heard) = oneshot::channel();
        match self.0.send(Asking { entry, since: Instant::now(), answer }) {
            Ok(()) => heard.await.unwrap_or(Heard::Unknown),
            // The worker has ended.
            Err(_) => Heard::Unknown,
        }
    }
}

/// Answers what comes in, until nobody asks any more.
pub(crate) async fn receive_all(incoming: Arc<Mutex<mpsc::UnboundedReceiver<Asking>>>, link: Link, store: Store) {
    let mut incoming = incoming.lock().await;
    let mut receiver = Receiver { link, store, locked: Vec::new(), next: Instant::now() };
    let mut received = Vec::new();
    loop {
        let again = async { if receiver.locked.is_empty() { pending().await } else { sleep_until(receiver.next.into()).await } };
        tokio::select! {
            count = incoming.recv_many(&mut received, MOST) => if count == 0 { break },
            () = again => received.append(&mut receiver.locked),
        }
        while !received.is_empty() {
            let most = received.len().min(MOST);
            receiver.receive(received.drain(..most).collect()).await;
        }
    }
    receiver.link.close().await;
}

/// Who asks the database, and what has met a locked lease.
struct Receiver {
    link: Link,
    store: Store,
    locked: Vec<Asking>,
    /// When to ask for those again.
    next: Instant,
}

impl Receiver {
    /// One statement, and more only for those that harm others.
    async fn receive(&mut self, asks: Vec<Asking>) {
        match self.send(&asks).await {
            Ok(answers) => self.tell(asks, answers),
            Err(error) if is_of_some(&error) => self.receive_apart(asks, error).await,
            Err(error) => put_off(asks, &error),
        }
    }

    /// Each half by itself, until those are found that are refused, or wait for somebody's lock. In another order each time: if there is no time to
    /// find all, others have their answers the next time.
    async fn receive_apart(&mut self, mut asks: Vec<Asking>, error: sqlx::Error) {
        fastrand::shuffle(&mut asks);
        let (until, mut groups) = (Instant::now() + APART, vec![(asks, error)]);
        while let Some((mut asks, error)) = groups.pop() {
            if asks.len() == 1 && !is_locked(&error) {
                refuse(asks, &error);
                continue;
            }
            if asks.len() == 1 || is_locked(&error) && Instant::now() > until {
                put_off(asks, &error);
                continue;
            }
            let rest = asks.split_off(asks.len() / 2);
            for half in [asks, rest] {
                match self.send(&half).await {
                    Ok(answers) => self.tell(half, answers),
                    Err(error) if is_of_some(&error) => groups.push((half, error)),
                    Err(error) => put_off(half, &error),
                }
            }
        }
    }

    fn tell(&mut self, asks: Vec<Asking>, mut answers: HashMap<Key, Answer>) {
        for one in asks {
            let heard = match answers.remove(&one.key()) {
                Some(Answer::Locked) if one.since.elapsed() < PATIENCE => {
                    self.put_aside(one);
                    continue;
                }
                Some(Answer::Locked) => Heard::Unknown,
                Some(Answer::Heard(heard)) => heard,
                None => Heard::Refused,
            };
            // Whoever does not wait any more has it in the journal.
            let _ = one.answer.send(heard);
        }
    }

    /// To ask again in a moment.
    fn put_aside(&mut self, one: Asking) {
        let next = Instant::now() + one.since.elapsed().clamp(SOON, LONGEST);
        self.next = if self.locked.is_empty() { next } else { self.next.min(next) };
        self.locked.push(one);
    }

    /// What each that the lease has came to.
    async fn send(&mut self, asks: &[Asking]) -> sqlx::Result<HashMap<Key, Answer>> {
        let said = || asks.iter().map(|one| &one.entry);
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/receive.sql")))
            .bind(said().map(|ask| ask.fence.token).collect::<Vec<_>>())
            .bind(said().map(|ask| ask.fence.id).collect::<Vec<_>>())
            .bind(said().map(|ask| ask.name.as_str()).collect::<Vec<_>>())
            .bind(said().map(|ask| ask.fence.attempt).collect::<Vec<_>>())
            .bind(said().map(|ask| ask.signal.as_str()).collect::<Vec<_>>())
            .bind(said().map(|ask| ask.end.as_deref()).collect::<Vec<_>>());
        let answered = bounded(statement.fetch_all(self.link.get().await?)).await;
        let rows: Vec<Row> = self.link.note(answered)?;
        Ok(rows.into_iter().map(answer).collect())
    }
}

/// An ask: its lease, its job, its step.
type Key = (Uuid, JobId, String);

/// That, whether the lease was locked, whether the wait is over, the payload, and whether anything is journaled.
type Row = (Uuid, JobId, String, bool, bool, Option<String>, bool);

enum Answer {
    Heard(Heard),
    Locked,
}

fn answer((token, id, name, is_locked, is_over, payload, is_journaled): Row) -> (Key, Answer) {
    let answer = match (is_locked, is_journaled, is_over) {
        (true, ..) => Answer::Locked,
        (false, false, _) => Answer::Heard(Heard::Nothing),
        (false, true, true) => Answer::Heard(Heard::Over),
        (false, true, false) => Answer::Heard(Heard::Signal(payload)),
    };
    ((token, id, name), answer)
}

impl Asking {
    fn key(&self) -> Key {
        (self.entry.fence.token, self.entry.fence.id, self.entry.name.clone())
    }
}

/// Whether what asks say, or what they touch, may be the cause. A login or a right that is refused is none of theirs: they are put off until it is
/// mended.
fn is_of_some(error: &sqlx::Error) -> bool {
    is_locked(error) || is_refusal(error) && is_of_class(error, &["22", "23", "54", "P0"])
}

fn put_off(asks: Vec<Asking>, error: &sqlx::Error) {
    complain(error, UNKNOWN);
    for one in asks {
        let _ = one.answer.send(Heard::Unknown);
    }
}

fn refuse(asks: Vec<Asking>, error: &sqlx::Error) {
    for Asking { entry, answer, .. } in asks {
        tracing::warn!(job = %entry.fence.id, step = entry.name, error = queue_core::message(error), "a signal cannot be received");
        let _ = answer.send(Heard::Failed(queue_core::message(error)));
    }
}
