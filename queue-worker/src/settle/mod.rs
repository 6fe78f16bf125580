//! Job settlement in the store: batched verdicts, commits of handlers' own transactions, reports, and notifications to clients that wait
//! for jobs.

mod children;
mod commit;
mod handler_tx;
mod journal;
mod locked;
mod logs;
mod maps;
mod notify_waiters;
mod pending;
mod receive;
mod rejected;
mod report;
mod send;
mod settlement;
mod verdicts;

pub(crate) use self::{
    children::add_end_hints,
    commit::DatabaseBackend,
    journal::{JournalSender, PendingStep, write_journal},
    logs::{LogQueue, LogSender, write_logs},
    notify_waiters::notify_waiters,
    receive::{SignalRequest, SignalSender, receive_signals},
    report::write_reports,
    settlement::Settlement,
    verdicts::settle_all,
};
#[cfg(feature = "cli")]
pub(crate) use self::{children::load_child, journal::load_steps, maps::load_map};
