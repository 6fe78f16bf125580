//! Foundation of a worker: configuration, connections, heartbeat, notifications and signals.

mod address;
mod notifier;
mod cluster;
mod config;
mod store_connection;
mod database;
mod dial;
mod notification_listener;
mod engine;
mod connection_broker;
mod follow;
mod fresh;
mod heartbeat;
mod claim_inbox;
mod holders;
mod hosts;
mod lease_deadline;
mod limits;
mod loops;
mod panics;
mod pauses;
mod session;
mod settings;
mod idle_connections;
mod signal;
mod slow_downs;
mod standby;
#[cfg(feature = "cli")]
mod supervisor;
mod timings;
mod loop_health;
mod sleep;

#[cfg(feature = "cli")]
pub(crate) use self::supervisor::notify_supervisor;
pub(crate) use self::{
    claim_inbox::{ClaimInbox, ClaimNotice, ClaimerState},
    cluster::Cluster,
    config::MOST_CRASHES,
    connection_broker::ConnectionBroker,
    engine::Engine,
    heartbeat::{Heartbeat, Identity, Load},
    holders::{LockHolder, lock_holders},
    lease_deadline::{LeaseDeadline, OwnLease},
    limits::OwnLimits,
    loop_health::LoopHealth,
    loops::Loop,
    notification_listener::ListenHandle,
    notifier::{Notifier, WakeReason, after_ms},
    pauses::{LimitRow, LimitSet, PauseRow, PauseSnapshot, Pauses},
    session::our_settings,
    settings::each_setting,
    sleep::{SleepState, listen},
    slow_downs::{SlowDown, SlowDowns},
    store_connection::{ConnectionFactory, StoreConnection, bounded, has_moved, jittered, pause_after},
    timings::Timings,
};
pub use self::{
    config::Config,
    database::{Database, DatabaseOptions},
    panics::log_panics,
    signal::shutdown_signal,
    standby::OnStandby,
};
