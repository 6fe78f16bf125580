//! Options that commands share, and values as they are written.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

use chrono::{DateTime, Utc};
use queue_core::JobId;
use serde::Deserialize;
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

/// A whole number as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(super) struct Whole(usize);

impl FromStr for Whole {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        whole(text).map(Self)
    }
}

impl From<Whole> for usize {
    fn from(number: Whole) -> Self {
        number.0
    }
}

pub(super) fn whole<T: FromStr>(text: &str) -> Result<T, &'static str> {
    text.parse().map_err(|_| "expected a whole number such as 20, and not too large a one")
}

/// Reads a whole number in this range.
pub(super) fn whole_in<T: TryFrom<u32>>(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}

pub(super) fn priority(text: &str) -> Result<i16, &'static str> {
    text.parse().map_err(|_| "a priority is a whole number from -32768 to 32767")
}

/// Where to listen.
#[cfg(any(feature = "dashboard", feature = "health"))]
pub(super) fn address(text: &str) -> Result<std::net::SocketAddr, &'static str> {
    text.parse().map_err(|_| "an address is written like `127.0.0.1:8080`, or `[::]:8080` for every one of this machine")
}

/// As [`counted`], of jobs.
pub(super) fn counted_jobs(number: u64, partial: bool) -> String {
    let noun = if number == 1 && !partial { "job" } else { "jobs" };
    format!("{} {noun}", counted(number, partial))
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
    let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("metadata is written like `tenant=acme`")?;
    Ok((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}
