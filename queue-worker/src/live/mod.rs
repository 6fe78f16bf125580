//! Foundation of a worker: configuration, connections, heartbeat, wake-ups and signals.

mod address;
mod bell;
mod cluster;
mod config;
mod connect;
mod database;
mod dial;
mod ears;
mod engine;
mod exchange;
mod follow;
mod fresh;
mod heartbeat;
mod hint;
mod holders;
mod hosts;
mod life;
mod limits;
mod loops;
mod panics;
mod pauses;
mod session;
mod settings;
mod shelf;
mod signal;
mod slowed;
mod standby;
#[cfg(feature = "cli")]
mod supervisor;
mod timings;
mod vitals;
mod wake;

#[cfg(feature = "cli")]
pub(crate) use self::supervisor::tell_supervisor;
pub(crate) use self::{
    bell::{Bell, Woken, after_ms},
    cluster::Cluster,
    config::MOST_CRASHES,
    connect::{Link, Wires, bounded, has_moved, jittered, pause_after},
    ears::Ears,
    engine::Engine,
    exchange::Exchange,
    heartbeat::{Identity, Load, Pulse},
    hint::{ClaimerState, Hint, Told},
    holders::{LockHolder, lock_holders},
    life::{Life, OneLife},
    limits::OwnLimits,
    loops::Loop,
    pauses::{LimitRow, PauseRow, Paused, Pauses, Under},
    session::our_settings,
    settings::each_setting,
    slowed::{SlowDown, Slowed},
    timings::Timings,
    vitals::Vitals,
    wake::{Sleep, listen},
};
pub use self::{
    config::Config,
    database::{Database, DatabaseOptions},
    panics::log_panics,
    signal::shutdown_signal,
    standby::OnStandby,
};
