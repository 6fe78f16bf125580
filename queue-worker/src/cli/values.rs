//! Options that commands share, and values as they are written.

use std::fmt::Display;

use chrono::{DateTime, Utc};
use queue_core::JobId;
use serde_json::Value;

/// How a command answers.
#[derive(clap::Args)]
pub(super) struct Output {
    /// Print one JSON document; ids are strings
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// How far jobs are counted.
#[derive(clap::Args, Clone, Copy)]
pub(super) struct Exact {
    /// Count all jobs: it takes time in proportion to them, about half a second a million
    #[arg(long)]
    pub(super) exact: bool,
}

/// What was counted, as it is shown: with a plus if there may be more.
pub(super) fn counted(number: impl Display, partial: bool) -> String {
    format!("{number}{}", if partial { "+" } else { "" })
}

/// A capacity, or none.
#[derive(Clone, Copy)]
pub(super) struct NewCapacity(pub(super) Option<u64>);

pub(super) fn new_capacity(text: &str) -> Result<NewCapacity, &'static str> {
    match text {
        "none" => Ok(NewCapacity(None)),
        _ => text.parse().map(|capacity| NewCapacity(Some(capacity))).map_err(|_| "a capacity is a number of jobs, or `none`"),
    }
}

/// A weight, or `none` for as many turns as any other.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewWeight(pub(super) Option<u16>);

pub(super) fn new_weight(text: &str) -> Result<NewWeight, &'static str> {
    match text.parse() {
        _ if text == "none" => Ok(NewWeight(None)),
        Ok(weight @ 1..=1000) => Ok(NewWeight(Some(weight))),
        _ => Err("a weight is a number from 1 to 1000, or `none`"),
    }
}

pub(super) fn id(text: &str) -> Result<JobId, &'static str> {
    text.parse().map_err(|_| "a job's id is a number, as `list` shows it")
}

pub(super) fn time(text: &str) -> Result<DateTime<Utc>, &'static str> {
    DateTime::parse_from_rfc3339(text).map(|time| time.to_utc()).map_err(|_| "a time is written like `2026-12-24T18:00:00Z`")
}

/// Jobs a second.
pub(super) fn rate(text: &str) -> Result<f64, &'static str> {
    let wrong = "a rate is written like `50/s`, `10/m` or `100/h`, and is above zero";
    let (number, unit) = text.split_once('/').ok_or(wrong)?;
    let seconds = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong),
    };
    number.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0).map(|number| number / seconds).ok_or(wrong)
}

/// A key of metadata with its value: JSON, or else text.
pub(super) fn meta(text: &str) -> Result<(String, Value), &'static str> {
    let (key, value) = text.split_once('=').ok_or("metadata is written like `tenant=acme`")?;
    Ok((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}
