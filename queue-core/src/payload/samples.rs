//! Payloads made of nothing but their type, in each of its forms: with every variant, and with and without what is optional.
//!
//! Each is what this release would enqueue: made by the type's `Deserialize`, written by its `Serialize`.

use std::collections::{BTreeSet, VecDeque};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::make::{Choice, Maker, NotMade, Plan};

/// So many values are tried to be made of a type, and no more.
const TRIES: usize = 1000;

/// A type has no more samples than this.
const MOST: usize = 200;

/// The payloads; or why not one could be made.
pub(crate) fn samples<T: Serialize + DeserializeOwned>() -> Result<Vec<Value>, String> {
    let (mut found, mut first_fault) = (Vec::new(), None);
    let (mut tried, mut met) = (BTreeSet::from([Plan::new()]), BTreeSet::new());
    // Those that are another try for the one before stand in front.
    let mut next = VecDeque::from([(Plan::new(), false)]);
    for _ in 0..TRIES {
        let Some((plan, _)) = next.pop_front().filter(|_| found.len() < MOST) else { break };
        let mut maker = Maker::new(&plan);
        let made = T::deserialize(maker.root()).and_then(|value| serde_json::to_value(&value).map_err(|error| NotMade(error.to_string())));
        let choices = maker.made;
        let others = match &made {
            Ok(_) => {
                met.extend(choices.iter().map(|choice| (choice.place.clone(), choice.taken)));
                forms(&choices).into_iter().filter(|form| met.insert(form.clone())).collect()
            }
            Err(_) => retries(&choices),
        };
        let plans = others.into_iter().map(|(place, taken)| {
            let mut other = plan.clone();
            other.insert(place, taken);
            other
        });
        let plans: Vec<Plan> = plans.filter(|plan| tried.insert(plan.clone())).collect();
        match made {
            Ok(value) => {
                next.retain(|(_, is_retry)| !is_retry);
                next.extend(plans.into_iter().map(|plan| (plan, false)));
                if !found.contains(&value) {
                    found.push(value);
                }
            }
            Err(NotMade(why)) => {
                first_fault.get_or_insert(why);
                for plan in plans.into_iter().rev() {
                    next.push_front((plan, true));
                }
            }
        }
    }
    if found.is_empty() { Err(first_fault.unwrap_or_default()) } else { Ok(found) }
}

/// The forms of a value that was made, at each of its places.
fn forms(choices: &[Choice]) -> Vec<(String, usize)> {
    let all = |choice: &Choice| (0..choice.of).map(|way| (choice.place.clone(), way)).collect::<Vec<_>>();
    choices.iter().filter(|choice| choice.is_form).flat_map(all).collect()
}

/// Other tries for a value that was not: for what was asked for last, which is at fault nearly always. Those of what was tried already are on
/// their way.
fn retries(choices: &[Choice]) -> Vec<(String, usize)> {
    let Some(last) = choices.last().filter(|last| last.taken == 0) else { return Vec::new() };
    (1..last.of).map(|way| (last.place.clone(), way)).collect()
}
