//! Which jobs are asked for, in the words of an address: made a filter, and held within bounds. Pure.

use std::time::Duration;

use queue_core::{JobId, JobState, operate::Filter};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::dashboard::problem::{Answer, Problem};

/// Which jobs are meant. Whatever is not said may be anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, IntoParams, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::dashboard) struct AskedJobs {
    /// In this state only: `blocked`, `scheduled`, `ready`, `running`, `parked`, `completed`, `dead`, `cancelled` or `expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) state: Option<String>,
    /// In this queue only.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) queue: Option<String>,
    /// Of this job type only, whichever of its names it is stored under.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) job_type: Option<String>,
    /// With this in their metadata: `key=value`, the value as JSON or else text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) meta: Option<String>,
    /// Dead letters with this text in their error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) error: Option<String>,
    /// Not longer ago than this: `30s`, `5m`, `12h`, `7d`. What counts is when they were over, or else their enqueue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) since: Option<String>,
    /// At least so long ago.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) older_than: Option<String>,
    /// Enqueued before this job: where the last page ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) before: Option<String>,
    /// How many at most. More than 200 are taken for that; 50 if nothing is said.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) limit: Option<String>,
}

/// The longest page.
pub(in crate::dashboard) const MOST: u32 = 200;

/// Longer texts are no search.
const LONGEST: usize = 500;

impl AskedJobs {
    /// The filter that this means.
    pub(in crate::dashboard) fn filter(&self) -> Answer<Filter> {
        let given = |text: &Option<String>| text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let texts = [&self.state, &self.queue, &self.job_type, &self.meta, &self.error, &self.since, &self.older_than, &self.before];
        if texts.into_iter().flatten().any(|text| text.len() > LONGEST || text.contains('\0')) {
            return Err(Problem::wrong("a search has at most 500 characters, without NUL"));
        }
        let state = |name: String| name.parse::<JobState>().map_err(|_| Problem::wrong("there is no such state"));
        let mut filter = Filter {
            state: given(&self.state).map(state).transpose()?,
            queue: given(&self.queue),
            error: given(&self.error),
            since: given(&self.since).as_deref().map(span).transpose()?,
            older_than: given(&self.older_than).as_deref().map(span).transpose()?,
            before: given(&self.before).map(|id| id.parse().map_err(|_| Problem::wrong("a job's id is a number"))).transpose()?,
            limit: given(&self.limit).map_or(50, |limit| bounded(&limit)),
            ..Filter::default()
        };
        if let Some(name) = given(&self.job_type) {
            filter = filter.job_type(&name);
        }
        if let Some(meta) = given(&self.meta) {
            let (key, value) = meta.split_once('=').ok_or_else(|| Problem::wrong("metadata is written like `tenant=acme`"))?;
            filter = filter.meta(key, serde_json::from_str(value).unwrap_or_else(|_| Value::from(value)));
        }
        Ok(filter)
    }

    /// What is typed into one field: an id, or words of which some have a meaning (`queue:mail`, `type:send_email`, `state:dead`, `since:1d`, `older:1h`,
    /// `tenant=acme`), and the rest is a text in errors.
    pub(in crate::dashboard) fn typed(text: &str) -> Result<Self, JobId> {
        let (mut asked, mut words) = (Self::default(), Vec::new());
        if let Some(id) = text.trim().parse::<JobId>().ok().filter(|id| id.0 > 0) {
            return Err(id);
        }
        for word in text.split_whitespace() {
            let place = match word.split_once(':').map(|(key, value)| (key, value.to_owned())) {
                Some(("queue", value)) => Some((&mut asked.queue, value)),
                Some(("type", value)) => Some((&mut asked.job_type, value)),
                Some(("state", value)) => Some((&mut asked.state, value)),
                Some(("since", value)) => Some((&mut asked.since, value)),
                Some(("older", value)) => Some((&mut asked.older_than, value)),
                _ if word.split_once('=').is_some_and(|(key, _)| !key.is_empty()) => Some((&mut asked.meta, word.to_owned())),
                _ => None,
            };
            match place {
                // Said twice, or without a value, it is looked for as it stands: never is more meant than what was typed.
                Some((place @ None, value)) if !value.is_empty() => *place = Some(value),
                _ => words.push(word),
            }
        }
        asked.error = (!words.is_empty()).then(|| words.join(" "));
        Ok(asked)
    }

    /// As it would be typed.
    pub(in crate::dashboard) fn text(&self) -> String {
        let named = [("queue:", &self.queue), ("type:", &self.job_type), ("state:", &self.state), ("since:", &self.since)];
        let named = named.into_iter().chain([("older:", &self.older_than), ("", &self.meta), ("", &self.error)]);
        named.filter_map(|(key, value)| Some(format!("{key}{}", value.as_ref()?))).collect::<Vec<_>>().join(" ")
    }
}

/// A number, however large or small, as so many jobs.
fn bounded(text: &str) -> u32 {
    let number = text.parse::<f64>().unwrap_or(50.0);
    if number.is_nan() { 50 } else { number.clamp(1.0, f64::from(MOST)) as u32 }
}

/// `30s`, `5m`, `12h`, `7d`; at most a hundred years.
pub(super) fn span(text: &str) -> Answer<Duration> {
    const CENTURY: f64 = 100.0 * 365.0 * 86400.0;
    let wrong = || Problem::wrong("a time is written like `30s`, `5m`, `12h` or `7d`");
    let (number, seconds) = match text.chars().last() {
        Some('s') => (&text[..text.len() - 1], 1.0),
        Some('m') => (&text[..text.len() - 1], 60.0),
        Some('h') => (&text[..text.len() - 1], 3600.0),
        Some('d') => (&text[..text.len() - 1], 86400.0),
        _ => (text, 1.0),
    };
    let number = number.parse::<f64>().ok().filter(|number| *number >= 0.0).ok_or_else(wrong)?;
    Ok(Duration::from_secs_f64((number * seconds).min(CENTURY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(change: impl FnOnce(&mut AskedJobs)) -> Answer<Filter> {
        let mut asked = AskedJobs::default();
        change(&mut asked);
        asked.filter()
    }

    #[test]
    fn f63_whatever_is_asked_for_is_held_within_bounds() {
        let limit = |text: &str| asked(|asked| asked.limit = Some(text.to_owned())).unwrap().limit;
        assert_eq!(["1e9", "inf", "-5", "NaN", "0", "x", "7", ""].map(limit), [200, 200, 1, 50, 1, 50, 7, 50]);
        let since = |text: &str| asked(|asked| asked.since = Some(text.to_owned())).map(|filter| filter.since.unwrap().as_secs()).ok();
        let century = Some(100 * 365 * 86400);
        assert_eq!(["1e9d", "inf", "1e300", "90s", "1.5h"].map(since), [century, century, century, Some(90), Some(5400)]);
        assert_eq!(["-1d", "NaN", "d", "soon", "é"].map(since), [None; 5]);
        assert!(asked(|asked| asked.error = Some("x".repeat(501))).is_err());
    }

    #[test]
    fn what_is_typed_into_one_field_is_an_id_or_a_search() {
        assert_eq!(AskedJobs::typed(" 1879032461361152001 "), Err(JobId(1_879_032_461_361_152_001)));
        let found = AskedJobs::typed("queue:mail tenant=acme connection  refused older:1h type:a.b").unwrap();
        assert_eq!(found.text(), "queue:mail type:a.b older:1h tenant=acme connection refused");
        let filter = found.filter().unwrap();
        assert_eq!((filter.queue.as_deref(), filter.error.as_deref()), (Some("mail"), Some("connection refused")));
        assert_eq!(AskedJobs::typed("").unwrap(), AskedJobs::default());
    }
}
