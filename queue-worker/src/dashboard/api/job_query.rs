//! Query parameters that select jobs. The parameters are validated, clamped to their bounds, and converted to a filter. Performs no I/O.

use std::time::Duration;

use queue_core::{JobId, JobState, operate::Filter};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use crate::dashboard::problem::{HandlerResult, Problem};

/// Query parameters that select jobs. An omitted parameter does not restrict the selection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, IntoParams, ToSchema)]
#[serde(default, deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::dashboard) struct JobQuery {
    /// Job state: `blocked`, `scheduled`, `ready`, `running`, `parked`, `completed`, `dead`, `cancelled` or `expired`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) state: Option<String>,
    /// Name of the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) queue: Option<String>,
    /// Name of the job type. Jobs stored under an alias also match.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) job_type: Option<String>,
    /// Metadata entry as `key=value`. A value that is not valid JSON is compared as a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) meta: Option<String>,
    /// Text that the job's error contains. If set, only dead letters match.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) error: Option<String>,
    /// Maximum age of a job, such as `30s`, `5m`, `12h` or `7d`. The age of a finished job is the time since it finished. The age of an
    /// unfinished job is the time since it was enqueued.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) since: Option<String>,
    /// Minimum age of a job, in the same format as `since`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) older_than: Option<String>,
    /// Exclusive upper bound of the listed job ids, usually `next` of the previous page. Default: no bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) before: Option<String>,
    /// Maximum number of jobs on a page, from 1 to 200. Values outside this range are clamped. Default: 50.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(nullable = false)]
    pub(in crate::dashboard) limit: Option<String>,
}

/// Maximum number of jobs on a page.
pub(in crate::dashboard) const MAX_PAGE_JOBS: u32 = 200;

/// Maximum length of a parameter value in bytes.
const MAX_LENGTH: usize = 500;

impl JobQuery {
    /// Converts the parameters into a filter. Returns an error if a parameter is invalid.
    pub(in crate::dashboard) fn filter(&self) -> HandlerResult<Filter> {
        let given = |text: &Option<String>| text.as_deref().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let texts = [&self.state, &self.queue, &self.job_type, &self.meta, &self.error, &self.since, &self.older_than, &self.before];
        if texts.into_iter().flatten().any(|text| text.len() > MAX_LENGTH || text.contains('\0')) {
            return Err(Problem::bad_request("search parameters are limited to 500 bytes without NUL"));
        }
        let state = |name: String| name.parse::<JobState>().map_err(|_| Problem::bad_request("unknown state"));
        let mut filter = Filter {
            state: given(&self.state).map(state).transpose()?,
            queue: given(&self.queue),
            error: given(&self.error),
            since: given(&self.since).as_deref().map(parse_duration).transpose()?,
            older_than: given(&self.older_than).as_deref().map(parse_duration).transpose()?,
            before: given(&self.before).map(|id| id.parse().map_err(|_| Problem::bad_request("a job id must be a number"))).transpose()?,
            limit: given(&self.limit).map_or(50, |limit| parse_limit(&limit)),
            ..Filter::default()
        };
        if let Some(name) = given(&self.job_type) {
            filter = filter.job_type(&name);
        }
        if let Some(meta) = given(&self.meta) {
            let (key, value) = meta
                .split_once('=')
                .ok_or_else(|| Problem::bad_request("metadata must have the form `key=value`, such as `tenant=acme`"))?;
            filter = filter.meta(key, serde_json::from_str(value).unwrap_or_else(|_| Value::from(value)));
        }
        Ok(filter)
    }

    /// Parses the text of the search field. Returns `Err` with the id if the text is a job id. Words such as `queue:mail`,
    /// `type:send_email`, `state:dead`, `since:1d`, `older:1h` and `tenant=acme` filter by field. The remaining words, joined by spaces,
    /// become the filter for the error text.
    pub(in crate::dashboard) fn parse_search(text: &str) -> Result<Self, JobId> {
        let (mut query, mut words) = (Self::default(), Vec::new());
        if let Some(id) = text.trim().parse::<JobId>().ok().filter(|id| id.0 > 0) {
            return Err(id);
        }
        for word in text.split_whitespace() {
            let place = match word.split_once(':').map(|(key, value)| (key, value.to_owned())) {
                Some(("queue", value)) => Some((&mut query.queue, value)),
                Some(("type", value)) => Some((&mut query.job_type, value)),
                Some(("state", value)) => Some((&mut query.state, value)),
                Some(("since", value)) => Some((&mut query.since, value)),
                Some(("older", value)) => Some((&mut query.older_than, value)),
                _ if word.split_once('=').is_some_and(|(key, _)| !key.is_empty()) => Some((&mut query.meta, word.to_owned())),
                _ => None,
            };
            match place {
                // A word whose key is repeated or has no value becomes part of the error text to search for. If such a word were ignored,
                // the filter would match more jobs than intended.
                Some((place @ None, value)) if !value.is_empty() => *place = Some(value),
                _ => words.push(word),
            }
        }
        query.error = (!words.is_empty()).then(|| words.join(" "));
        Ok(query)
    }

    /// Formats the query as text for the search field.
    pub(in crate::dashboard) fn search_text(&self) -> String {
        let named = [("queue:", &self.queue), ("type:", &self.job_type), ("state:", &self.state), ("since:", &self.since)];
        let named = named.into_iter().chain([("older:", &self.older_than), ("", &self.meta), ("", &self.error)]);
        named.filter_map(|(key, value)| Some(format!("{key}{}", value.as_ref()?))).collect::<Vec<_>>().join(" ")
    }
}

/// Parses a page size and clamps it to the range from 1 to 200. Returns 50 if `text` is not a number.
fn parse_limit(text: &str) -> u32 {
    let number = text.parse::<f64>().unwrap_or(50.0);
    if number.is_nan() { 50 } else { number.clamp(1.0, f64::from(MAX_PAGE_JOBS)) as u32 }
}

/// Parses a duration such as `30s`, `5m`, `12h` or `7d`, clamped to 100 years.
pub(super) fn parse_duration(text: &str) -> HandlerResult<Duration> {
    const CENTURY: f64 = 100.0 * 365.0 * 86400.0;
    let wrong = || Problem::bad_request("a duration must have the form `30s`, `5m`, `12h` or `7d`");
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

    fn query(change: impl FnOnce(&mut JobQuery)) -> HandlerResult<Filter> {
        let mut query = JobQuery::default();
        change(&mut query);
        query.filter()
    }

    #[test]
    fn f63_query_parameters_are_bounded() {
        let limit = |text: &str| query(|query| query.limit = Some(text.to_owned())).unwrap().limit;
        assert_eq!(["1e9", "inf", "-5", "NaN", "0", "x", "7", ""].map(limit), [200, 200, 1, 50, 1, 50, 7, 50]);
        let since = |text: &str| query(|query| query.since = Some(text.to_owned())).map(|filter| filter.since.unwrap().as_secs()).ok();
        let century = Some(100 * 365 * 86400);
        assert_eq!(["1e9d", "inf", "1e300", "90s", "1.5h"].map(since), [century, century, century, Some(90), Some(5400)]);
        assert_eq!(["-1d", "NaN", "d", "soon", "é"].map(since), [None; 5]);
        assert!(query(|query| query.error = Some("x".repeat(501))).is_err());
    }

    #[test]
    fn search_text_is_an_id_or_a_query() {
        assert_eq!(JobQuery::parse_search(" 1879032461361152001 "), Err(JobId(1_879_032_461_361_152_001)));
        let found = JobQuery::parse_search("queue:mail tenant=acme connection  refused older:1h type:a.b").unwrap();
        assert_eq!(found.search_text(), "queue:mail type:a.b older:1h tenant=acme connection refused");
        let filter = found.filter().unwrap();
        assert_eq!((filter.queue.as_deref(), filter.error.as_deref()), (Some("mail"), Some("connection refused")));
        assert_eq!(JobQuery::parse_search("").unwrap(), JobQuery::default());
    }
}
