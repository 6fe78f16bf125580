//! What `top` asks the database. Each question has a transaction, a pace and an end of its own: one that is refused or slow holds up no other.

use std::time::{Duration, Instant};

use queue_core::{
    Error, JobRef, JobState, Store,
    operate::{self, Filter, JobRecord, Past},
};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::{sync::watch, time::timeout};

use super::look::{Answer, Look, Part, Refused, Seen};
use crate::{inert, program::commands};

/// Between the beginnings of two askings; and an asking that takes long is followed by [`REST`] times its length of rest.
const EVERY: Duration = Duration::from_secs(1);
const REST: u32 = 4;

/// The server ends a statement after two seconds; one without an answer for so long is given up, and its connection with it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Said in one go with the beginning, and over with the transaction: it is the same behind a pooler.
const BEGIN: &str = "begin isolation level read committed, read only; set local statement_timeout = '2s'; set local lock_timeout = '500ms'; \
                     set local idle_in_transaction_session_timeout = '10s'";

/// The busiest queues and types that are shown, and the running jobs.
const QUEUES: u16 = 50;
const RUNNING: u32 = 20;

#[derive(Clone, Copy)]
enum Question {
    Counts,
    Oldest,
    Minute,
    Workers,
    Running,
}

impl Question {
    const ALL: [Self; 5] = [Self::Counts, Self::Oldest, Self::Minute, Self::Workers, Self::Running];

    fn part(self) -> Part {
        match self {
            Self::Counts | Self::Oldest | Self::Minute => Part::Queues,
            Self::Workers => Part::Workers,
            Self::Running => Part::Running,
        }
    }

    /// What is missing without it.
    fn what(self) -> &'static str {
        match self {
            Self::Counts => "counts",
            Self::Oldest => "oldest",
            Self::Minute => "last minute",
            Self::Workers => "workers",
            Self::Running => "jobs",
        }
    }

    /// Each statement has a bound: as those of `stats` and `history`.
    async fn ask(self, on: &mut PgConnection, store: Store) -> Result<Answer, Error> {
        let past = Past { last: Duration::from_mins(1), ..Past::default() };
        Ok(match self {
            Self::Counts => Answer::Counts(operate::busiest(on, store, QUEUES).await?),
            Self::Oldest => Answer::Oldest(operate::oldest_of(on, store, QUEUES).await?),
            Self::Minute => {
                let apart = operate::history(&mut *on, store, &Past { apart: true, ..past.clone() }).await?;
                Answer::Minute { apart, together: operate::history(on, store, &past).await? }
            }
            Self::Workers => Answer::Workers(operate::workers(on, store).await?),
            Self::Running => Answer::Running(running(on, store).await?),
        })
    }
}

async fn running(on: &mut PgConnection, store: Store) -> Result<Vec<JobRecord>, Error> {
    let filter = Filter { state: Some(JobState::Running), limit: RUNNING, ..Filter::default() };
    let mut running = operate::list(&mut *on, store, &filter).await?.jobs;
    for job in &mut running {
        match JobRef::from_id(job.id).in_store(store).find_without_payload(&mut *on).await {
            Ok(found) => job.progress = found.progress,
            // It is over, and not kept.
            Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(running)
}

/// A question, and what came of it.
struct Asked {
    question: Question,
    due: Instant,
    answer: Option<(Instant, Answer)>,
    refused: Option<String>,
}

/// Asks until nobody wants to know any more.
pub(super) async fn follow(pool: PgPool, store: Store, tell: watch::Sender<Look>) {
    let mut all = Question::ALL.map(|question| Asked { question, due: Instant::now(), answer: None, refused: None });
    let mut connection: Option<PgConnection> = None;
    // Whoever has just come sees each answer as it is there; later all that are due are one picture.
    let mut is_first = true;
    loop {
        // It may lead to another host by now.
        let options = (*pool.connect_options()).clone().application_name("queue-worker top").disable_statement_logging();
        let mut away = None;
        for at in 0..all.len() {
            let asked = &mut all[at];
            if asked.due > Instant::now() {
                continue;
            }
            if let Err(why) = asked.put(&mut connection, &options, store).await {
                away = Some(why);
                break;
            }
            if is_first && tell.send(Look { schema: store.schema(), seen: seen(&all), away: None }).is_err() {
                return;
            }
        }
        is_first = false;
        let is_away = away.is_some();
        if tell.send(Look { schema: store.schema(), seen: seen(&all), away }).is_err() {
            return;
        }
        let next = if is_away { None } else { all.iter().map(|asked| asked.due).min() };
        tokio::time::sleep_until(next.unwrap_or_else(|| Instant::now() + EVERY).into()).await;
    }
}

/// What was seen, if anything was.
fn seen(all: &[Asked]) -> Option<Seen> {
    let at = all.iter().filter_map(|asked| asked.answer.as_ref().map(|(at, _)| *at)).max();
    let refused = all.iter().filter_map(|asked| {
        let since = asked.answer.as_ref().map(|(at, _)| *at);
        Some(Refused { part: asked.question.part(), what: asked.question.what(), why: asked.refused.clone()?, since })
    });
    let refused: Vec<Refused> = refused.collect();
    let is_any = at.is_some() || !refused.is_empty();
    is_any.then(|| Seen::of(at.unwrap_or_else(Instant::now), all.iter().filter_map(|asked| Some(&asked.answer.as_ref()?.1)), refused))
}

impl Asked {
    /// Asks, and rests. That the server refuses is an answer, too; an error says that it cannot be reached.
    async fn put(&mut self, connection: &mut Option<PgConnection>, options: &PgConnectOptions, store: Store) -> Result<(), String> {
        let began = Instant::now();
        let mut on = match connection.take() {
            Some(on) => on,
            None => match timeout(PATIENCE, options.connect()).await {
                Ok(connected) => connected.map_err(|error| inert::line(&Error::Database(error).to_string()))?,
                Err(_) => return Err(format!("no connection within {} s", PATIENCE.as_secs())),
            },
        };
        let answered = timeout(PATIENCE, async {
            let mut tx = on.begin_with(BEGIN).await.map_err(Error::Database)?;
            let answer = self.question.ask(&mut tx, store).await;
            tx.rollback().await.map_err(Error::Database)?;
            answer
        });
        let answered = answered.await;
        self.due = began + EVERY.max((1 + REST) * began.elapsed());
        match answered {
            Ok(Ok(answer)) => (self.answer, self.refused) = (Some((Instant::now(), answer)), None),
            Ok(Err(error)) if is_lost(&error) => return Err(inert::line(&error.to_string())),
            Ok(Err(error)) => self.refused = Some(inert::line(&commands(&error.to_string()))),
            Err(_) => {
                self.refused = Some(format!("no answer within {} s", PATIENCE.as_secs()));
                return Ok(());
            }
        }
        *connection = Some(on);
        Ok(())
    }
}

/// Whether the connection is of no more use.
fn is_lost(error: &Error) -> bool {
    match error {
        Error::Database(sqlx::Error::Database(said)) => {
            // A statement that takes too long is 57014.
            said.code().is_none_or(|code| code.starts_with("57P") || code.starts_with("08") || code == "25P03")
        }
        Error::Database(error) => !matches!(error, sqlx::Error::RowNotFound | sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_)),
        _ => false,
    }
}
