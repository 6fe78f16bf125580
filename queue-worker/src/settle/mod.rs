//! How jobs end in the store: verdicts in natural batches, a handler's own commit, what jobs report, and who is told that jobs are over.

mod aside;
mod children;
mod commit;
mod gathers;
mod journal;
mod locked;
mod logs;
mod notify_waiters;
mod own;
mod receive;
mod report;
mod send;
mod settlement;
mod unsettled;
mod verdicts;

#[cfg(feature = "cli")]
pub(crate) use self::{children::look as look_at_child, gathers::look as look_at_gather, journal::steps_done};
pub(crate) use self::{
    children::note_ends,
    commit::DatabaseBackend,
    journal::{JournalSender, Waiting, write_journal},
    logs::{LogSender, Logs, write_logs},
    notify_waiters::notify_waiters,
    receive::{AskSender, Asking, receive_all},
    report::write_reports,
    settlement::Settlement,
    verdicts::settle_all,
};
