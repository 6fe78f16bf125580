//! Builds samples of a payload type. Within the limits below, the samples cover every enum variant, and every optional part both present
//! and absent.
//!
//! Each sample is a payload that this release could enqueue. The type's `Deserialize` implementation builds the value, and the
//! `Serialize` implementation encodes the value.

use std::collections::{BTreeSet, VecDeque};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::sample_deserializer::{Choice, Plan, SampleBuilder, SampleError};

/// Maximum number of attempts to build samples of a type.
const MAX_TRIES: usize = 1000;

/// Maximum number of samples per type.
const MAX_SAMPLES: usize = 200;

/// Returns the samples, or the reason why no sample could be built.
pub(crate) fn samples<T: Serialize + DeserializeOwned>() -> Result<Vec<Value>, String> {
    let (mut samples, mut first_error) = (Vec::new(), None);
    let (mut tried, mut seen) = (BTreeSet::from([Plan::new()]), BTreeSet::new());
    // Plans to try, each with a flag that marks a retry of a failed plan. Retries are inserted at the front.
    let mut queue = VecDeque::from([(Plan::new(), false)]);
    for _ in 0..MAX_TRIES {
        let Some((plan, _)) = queue.pop_front().filter(|_| samples.len() < MAX_SAMPLES) else { break };
        let mut builder = SampleBuilder::new(&plan);
        let sample =
            T::deserialize(builder.root()).and_then(|value| serde_json::to_value(&value).map_err(|error| SampleError(error.to_string())));
        let choices = builder.choices;
        let others = match &sample {
            Ok(_) => {
                seen.extend(choices.iter().map(|choice| (choice.path.clone(), choice.chosen)));
                forms(&choices).into_iter().filter(|form| seen.insert(form.clone())).collect()
            }
            Err(_) => retries(&choices),
        };
        let plans = others.into_iter().map(|(path, chosen)| {
            let mut other = plan.clone();
            other.insert(path, chosen);
            other
        });
        let plans: Vec<Plan> = plans.filter(|plan| tried.insert(plan.clone())).collect();
        match sample {
            Ok(value) => {
                queue.retain(|(_, is_retry)| !is_retry);
                queue.extend(plans.into_iter().map(|plan| (plan, false)));
                if !samples.contains(&value) {
                    samples.push(value);
                }
            }
            Err(SampleError(why)) => {
                first_error.get_or_insert(why);
                for plan in plans.into_iter().rev() {
                    queue.push_front((plan, true));
                }
            }
        }
    }
    if samples.is_empty() { Err(first_error.unwrap_or_default()) } else { Ok(samples) }
}

/// Returns every alternative at each path whose alternatives are different forms of the type.
fn forms(choices: &[Choice]) -> Vec<(String, usize)> {
    let all = |choice: &Choice| (0..choice.count).map(|alternative| (choice.path.clone(), alternative)).collect::<Vec<_>>();
    choices.iter().filter(|choice| choice.is_form).flat_map(all).collect()
}

/// Returns the alternatives to try after a sample could not be built: the other alternatives at the last path, whose value nearly always
/// caused the failure. Returns none if the failed plan did not use the first alternative there, because the others are already queued.
fn retries(choices: &[Choice]) -> Vec<(String, usize)> {
    let Some(last) = choices.last().filter(|last| last.chosen == 0) else { return Vec::new() };
    (1..last.count).map(|alternative| (last.path.clone(), alternative)).collect()
}
