//! What is being done to many jobs by this process, so that it can be seen and stopped.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use queue_core::operate::Note;
use serde::Serialize;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

/// So many go on at a time.
const AT_ONCE: usize = 4;

/// The acts on many jobs that are on their way, in whichever of the dashboard's stores.
#[derive(Clone, Default)]
pub(super) struct Acts(Arc<Mutex<Book>>);

#[derive(Default)]
struct Book {
    acts: Vec<Act>,
    /// How many there have been.
    begun: u64,
}

struct Act {
    number: u64,
    /// In which store.
    store: Arc<str>,
    note: Note,
    began: Instant,
    stop: CancellationToken,
}

/// An act on many jobs that is on its way.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(super) struct ActOnItsWay {
    /// Of this process, since it began.
    pub(super) number: u64,
    /// Who began it.
    pub(super) actor: String,
    /// What is done.
    pub(super) act: String,
    /// To which jobs.
    pub(super) what: String,
    /// For how many seconds it has been going on.
    pub(super) seconds: f64,
}

/// One of the few places; left when it is dropped.
pub(super) struct Place {
    acts: Acts,
    number: u64,
    /// Cancelled when the act is to end.
    pub(super) stop: CancellationToken,
}

impl Acts {
    /// Enters an act in this store; `None` if as many as may be are on their way.
    pub(super) fn begin(&self, store: &Arc<str>, note: Note) -> Option<Place> {
        let mut book = self.book();
        if book.acts.len() >= AT_ONCE {
            return None;
        }
        book.begun += 1;
        let (number, stop) = (book.begun, CancellationToken::new());
        book.acts.push(Act { number, store: store.clone(), note, began: Instant::now(), stop: stop.clone() });
        Some(Place { acts: self.clone(), number, stop })
    }

    /// Those that are on their way in this store, the oldest first.
    pub(super) fn list(&self, store: &Arc<str>) -> Vec<ActOnItsWay> {
        self.book().acts.iter().filter(|act| act.store == *store).map(Act::seen).collect()
    }

    /// Lets one end after the batch that is on its way; `None` if there is none of this number in this store.
    pub(super) fn stop(&self, store: &Arc<str>, number: u64) -> Option<ActOnItsWay> {
        let book = self.book();
        let act = book.acts.iter().find(|act| act.number == number && act.store == *store)?;
        act.stop.cancel();
        Some(act.seen())
    }

    /// Nothing is half-written under this lock.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Act {
    fn seen(&self) -> ActOnItsWay {
        let Note { actor, act, what, .. } = self.note.clone();
        ActOnItsWay { number: self.number, actor, act, what, seconds: self.began.elapsed().as_secs_f64() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.acts.book().acts.retain(|act| act.number != self.number);
    }
}
