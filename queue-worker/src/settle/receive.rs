//! Receives signals for durable jobs. A request journals the next signal with a given name, or the timeout of the wait. Each request is
//! fenced by the job's lease. Concurrent requests are batched in one statement, and a single request is sent immediately.
//!
//! Requests do not wait for locked leases. A request whose lease is locked is retried soon, and a rejected request does not affect other
//! requests. While the database is unavailable, the outcome is unknown, so the job is rescheduled for a retry. The job is not parked,
//! because a statement whose response was lost may have journaled the signal. No hint would then wake the job.

use std::{
    collections::HashMap,
    future::pending,
    sync::Arc,
    time::{Duration, Instant},
};

use queue_core::{
    JobId, Store,
    runner::{ReceiveResult, SignalEntry},
};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::sleep_until,
};
use uuid::Uuid;

use super::send::{has_error_class, is_rejection};
use crate::{
    error::{is_locked, warn_throttled},
    live::{StoreConnection, bounded},
};

/// Maximum number of requests per statement.
const MAX_REQUESTS: usize = 500;

/// Minimum delay before the retry of a request whose lease is locked. This minimum is short, because verdicts lock a lease only briefly.
/// The delay grows with the request's age, up to [`MAX_RETRY_DELAY`].
const MIN_RETRY_DELAY: Duration = Duration::from_millis(10);
const MAX_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Maximum time for which a request is retried while its lease is locked. Afterwards, the job is rescheduled, and the settle loop logs
/// the lock holder.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time for splitting a batch to find the requests that wait for a lock. After this time, the jobs of the remaining requests are
/// rescheduled.
const SPLIT_TIMEOUT: Duration = Duration::from_secs(2);

const UNAVAILABLE: &str = "receiving signals failed; the jobs are rescheduled and retry";

/// Channel through which attempts send signal requests to the receive loop.
#[derive(Clone, Debug)]
pub(crate) struct SignalSender(mpsc::UnboundedSender<SignalRequest>);

/// Request for a signal, with the reply channel of the waiting attempt.
#[derive(Debug)]
pub(crate) struct SignalRequest {
    entry: SignalEntry,
    since: Instant,
    reply: oneshot::Sender<ReceiveResult>,
}

impl SignalSender {
    /// Creates a sender and its receiver. The channel needs no bound, because a running attempt has only a few unanswered requests.
    pub(crate) fn open() -> (Self, mpsc::UnboundedReceiver<SignalRequest>) {
        let (sender, incoming) = mpsc::unbounded_channel();
        (Self(sender), incoming)
    }

    pub(super) async fn request(&self, entry: SignalEntry) -> ReceiveResult {
        let (reply, answer) = oneshot::channel();
        match self.0.send(SignalRequest { entry, since: Instant::now(), reply }) {
            Ok(()) => answer.await.unwrap_or(ReceiveResult::Unknown),
            // The receive loop has ended, because the worker has ended.
            Err(_) => ReceiveResult::Unknown,
        }
    }
}

/// Responds to incoming requests until all senders are dropped.
pub(crate) async fn receive_signals(
    incoming: Arc<Mutex<mpsc::UnboundedReceiver<SignalRequest>>>,
    connection: StoreConnection,
    store: Store,
) {
    let mut incoming = incoming.lock().await;
    let mut receiver = SignalReceiver { connection, store, locked: Vec::new(), next_retry: Instant::now() };
    let mut received = Vec::new();
    loop {
        let retry = async { if receiver.locked.is_empty() { pending().await } else { sleep_until(receiver.next_retry.into()).await } };
        tokio::select! {
            count = incoming.recv_many(&mut received, MAX_REQUESTS) => if count == 0 { break },
            () = retry => received.append(&mut receiver.locked),
        }
        while !received.is_empty() {
            let count = received.len().min(MAX_REQUESTS);
            receiver.receive(received.drain(..count).collect()).await;
        }
    }
    receiver.connection.close().await;
}

/// Receiver that sends signal requests to the database. `locked` contains the requests whose leases are locked.
struct SignalReceiver {
    connection: StoreConnection,
    store: Store,
    locked: Vec<SignalRequest>,
    /// Time at which the locked requests are retried next.
    next_retry: Instant,
}

impl SignalReceiver {
    /// Sends the requests in one statement. If a request causes the statement to fail, retries them in smaller batches.
    async fn receive(&mut self, requests: Vec<SignalRequest>) {
        match self.send(&requests).await {
            Ok(answers) => self.reply(requests, answers),
            Err(error) if is_request_error(&error) => self.receive_halves(requests, error).await,
            Err(error) => reply_unknown(requests, &error),
        }
    }

    /// Repeatedly halves the requests and sends each half, until the requests that are rejected or wait for a lock are found. The order is
    /// random, so that a later call handles other requests first if [`SPLIT_TIMEOUT`] is too short for all requests.
    async fn receive_halves(&mut self, mut requests: Vec<SignalRequest>, error: sqlx::Error) {
        fastrand::shuffle(&mut requests);
        let (deadline, mut groups) = (Instant::now() + SPLIT_TIMEOUT, vec![(requests, error)]);
        while let Some((mut requests, error)) = groups.pop() {
            if requests.len() == 1 && !is_locked(&error) {
                reply_rejected(requests, &error);
                continue;
            }
            if requests.len() == 1 || is_locked(&error) && Instant::now() > deadline {
                reply_unknown(requests, &error);
                continue;
            }
            let rest = requests.split_off(requests.len() / 2);
            for half in [requests, rest] {
                match self.send(&half).await {
                    Ok(answers) => self.reply(half, answers),
                    Err(error) if is_request_error(&error) => groups.push((half, error)),
                    Err(error) => reply_unknown(half, &error),
                }
            }
        }
    }

    fn reply(&mut self, requests: Vec<SignalRequest>, mut answers: HashMap<SignalRequestKey, SignalAnswer>) {
        for request in requests {
            let result = match answers.remove(&request.key()) {
                Some(SignalAnswer::Locked) if request.since.elapsed() < LOCK_TIMEOUT => {
                    self.schedule_retry(request);
                    continue;
                }
                Some(SignalAnswer::Locked) => ReceiveResult::Unknown,
                Some(SignalAnswer::Received(result)) => result,
                None => ReceiveResult::Refused,
            };
            // Sending fails only if the attempt no longer waits for the result. The next attempt reads the result from the journal.
            let _ = request.reply.send(result);
        }
    }

    fn schedule_retry(&mut self, request: SignalRequest) {
        let next = Instant::now() + request.since.elapsed().clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY);
        self.next_retry = if self.locked.is_empty() { next } else { self.next_retry.min(next) };
        self.locked.push(request);
    }

    /// Sends one statement and returns a response for each request whose lease lists the job.
    async fn send(&mut self, requests: &[SignalRequest]) -> sqlx::Result<HashMap<SignalRequestKey, SignalAnswer>> {
        let entries = || requests.iter().map(|request| &request.entry);
        let statement = sqlx::query_as(self.store.sql(include_str!("../../sql/receive.sql")))
            .bind(entries().map(|entry| entry.fence.token).collect::<Vec<_>>())
            .bind(entries().map(|entry| entry.fence.id).collect::<Vec<_>>())
            .bind(entries().map(|entry| entry.name.as_str()).collect::<Vec<_>>())
            .bind(entries().map(|entry| entry.fence.attempt).collect::<Vec<_>>())
            .bind(entries().map(|entry| entry.signal.as_str()).collect::<Vec<_>>())
            .bind(entries().map(|entry| entry.end.as_deref()).collect::<Vec<_>>());
        let answered = bounded(statement.fetch_all(self.connection.get().await?)).await;
        let rows: Vec<SignalAnswerRow> = self.connection.note(answered)?;
        Ok(rows.into_iter().map(signal_answer).collect())
    }
}

/// Lease token, job id and step name of a request.
type SignalRequestKey = (Uuid, JobId, String);

/// Request key (first three columns), whether the lease is locked, whether the wait timed out, payload as JSON text, and whether the step
/// is journaled.
type SignalAnswerRow = (Uuid, JobId, String, bool, bool, Option<String>, bool);

enum SignalAnswer {
    Received(ReceiveResult),
    Locked,
}

fn signal_answer((token, id, name, is_locked, timed_out, payload, is_journaled): SignalAnswerRow) -> (SignalRequestKey, SignalAnswer) {
    let answer = match (is_locked, is_journaled, timed_out) {
        (true, ..) => SignalAnswer::Locked,
        (false, false, _) => SignalAnswer::Received(ReceiveResult::Nothing),
        (false, true, true) => SignalAnswer::Received(ReceiveResult::Over),
        (false, true, false) => SignalAnswer::Received(ReceiveResult::Signal(payload)),
    };
    ((token, id, name), answer)
}

impl SignalRequest {
    fn key(&self) -> SignalRequestKey {
        (self.entry.fence.token, self.entry.fence.id, self.entry.name.clone())
    }
}

/// Returns whether the values or rows of a single request may have caused the error. Other errors, such as a rejected login or a missing
/// permission, affect all requests. All jobs are then rescheduled until an operator fixes the cause.
fn is_request_error(error: &sqlx::Error) -> bool {
    is_locked(error) || is_rejection(error) && has_error_class(error, &["22", "23", "54", "P0"])
}

fn reply_unknown(requests: Vec<SignalRequest>, error: &sqlx::Error) {
    warn_throttled(error, UNAVAILABLE);
    for request in requests {
        let _ = request.reply.send(ReceiveResult::Unknown);
    }
}

fn reply_rejected(requests: Vec<SignalRequest>, error: &sqlx::Error) {
    for SignalRequest { entry, reply, .. } in requests {
        let error = queue_core::message(error);
        tracing::warn!(job = %entry.fence.id, step = entry.name, error, "signal request rejected by the server; its attempt fails");
        let _ = reply.send(ReceiveResult::Failed(error));
    }
}
