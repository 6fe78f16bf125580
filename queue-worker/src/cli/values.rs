//! Options shared by several commands, and parsers of their values.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

use chrono::{DateTime, Utc};
use queue_core::JobId;
use serde::Deserialize;
use serde_json::Value;

/// Command-line arguments that select the output format.
#[derive(clap::Args)]
pub(super) struct OutputArgs {
    /// Print one JSON document; ids are strings
    #[arg(long, global = true)]
    pub(super) json: bool,
}

/// Command-line arguments that select exact job counts instead of lower bounds.
#[derive(clap::Args, Clone, Copy)]
pub(super) struct ExactArgs {
    /// Count all jobs exactly; takes about half a second per million jobs
    #[arg(long)]
    pub(super) exact: bool,
}

/// Formats a count. Appends a plus sign if the count is a lower bound.
pub(super) fn counted(number: impl Display, partial: bool) -> String {
    format!("{number}{}", if partial { "+" } else { "" })
}

/// Value of a setting that must be a nonnegative whole number. The parse error suggests a valid value.
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
    text.parse().map_err(|_| "expected a whole number within range, such as 20")
}

/// Returns a parser for whole numbers in `range`.
pub(super) fn whole_in<T: TryFrom<u32>>(range: RangeInclusive<u32>) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("expected a whole number from {} to {}", range.start(), range.end()))
    }
}

pub(super) fn priority(text: &str) -> Result<i16, &'static str> {
    text.parse().map_err(|_| "expected a whole number from -32768 to 32767")
}

/// Parses a listen address.
#[cfg(any(feature = "dashboard", feature = "health"))]
pub(super) fn address(text: &str) -> Result<std::net::SocketAddr, &'static str> {
    text.parse().map_err(|_| "expected an address like `127.0.0.1:8080`, or `[::]:8080` for every interface")
}

/// Formats a number of jobs with its noun, such as `3 jobs`. Appends a plus sign to a lower bound.
pub(super) fn counted_jobs(number: u64, partial: bool) -> String {
    let noun = if number == 1 && !partial { "job" } else { "jobs" };
    format!("{} {noun}", counted(number, partial))
}

/// Queue capacity to set. `none` removes the capacity.
#[derive(Clone, Copy)]
pub(super) struct NewCapacity(pub(super) Option<u64>);

pub(super) fn new_capacity(text: &str) -> Result<NewCapacity, &'static str> {
    match text {
        "none" => Ok(NewCapacity(None)),
        _ => text.parse().map(|capacity| NewCapacity(Some(capacity))).map_err(|_| "expected a number of jobs, or `none`"),
    }
}

/// Weight to set for a fairness key. `none` removes the weight, which resets it to the default of 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewWeight(pub(super) Option<u16>);

pub(super) fn new_weight(text: &str) -> Result<NewWeight, &'static str> {
    match text.parse() {
        _ if text == "none" => Ok(NewWeight(None)),
        Ok(weight @ 1..=1000) => Ok(NewWeight(Some(weight))),
        _ => Err("expected a number from 1 to 1000, or `none`"),
    }
}

pub(super) fn id(text: &str) -> Result<JobId, &'static str> {
    text.parse().map_err(|_| "expected a job id, a number as shown by `list`")
}

pub(super) fn time(text: &str) -> Result<DateTime<Utc>, &'static str> {
    DateTime::parse_from_rfc3339(text).map(|time| time.to_utc()).map_err(|_| "expected a time like `2026-12-24T18:00:00Z`")
}

/// Parses a rate such as `10/m` and converts it to jobs per second.
pub(super) fn rate(text: &str) -> Result<f64, &'static str> {
    let wrong = "expected a rate like `50/s`, `10/m` or `100/h`, above zero";
    let (number, unit) = text.split_once('/').ok_or(wrong)?;
    let seconds = match unit {
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong),
    };
    number.parse::<f64>().ok().filter(|number| number.is_finite() && *number > 0.0).map(|number| number / seconds).ok_or(wrong)
}

/// Parses a metadata entry such as `tenant=acme`. A value that is not valid JSON becomes a string.
pub(super) fn meta(text: &str) -> Result<(String, Value), &'static str> {
    let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or("expected metadata like `tenant=acme`")?;
    Ok((key.to_owned(), serde_json::from_str(value).unwrap_or_else(|_| value.into())))
}
