//! `unique` sets the key and the options for every kind of struct.

use queue_core::{
    JobType, OnConflict, job,
    options::{Unique, UniqueKey, While},
};
use serde::{Deserialize, Serialize};

#[job(send_only, unique(fields(user, r#type), while = "1h30m", on_conflict = debounce))]
#[derive(Serialize, Deserialize)]
struct Report {
    user: String,
    r#type: u32,
    pages: u32,
}

#[job(send_only, unique(fields(1)))]
#[derive(Serialize, Deserialize)]
struct Pair(u32, String);

#[job(send_only, unique(on_conflict = replace, while = queued, fields(),))]
#[derive(Serialize, Deserialize)]
struct Sweep;

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Plain;

fn main() {
    let held = While::For(std::time::Duration::from_secs(5400));
    assert_eq!(Report::OPTIONS.unique, Some(Unique::fields().held(held).on_conflict(OnConflict::Debounce)));
    assert_eq!(Pair::OPTIONS.unique, Some(Unique::fields()));
    assert_eq!(Sweep::OPTIONS.unique, Some(Unique::fields().held(While::Queued).on_conflict(OnConflict::Replace)));
    assert_eq!(Plain::OPTIONS.unique, None);

    let report = Report { user: "ada".to_owned(), r#type: 7, pages: 1 };
    assert_eq!(report.unique_key(), UniqueKey::fields().field("ada").field(&7));
    assert_eq!(Pair(1, "x".to_owned()).unique_key(), UniqueKey::fields().field("x"));
    assert_eq!(Sweep.unique_key(), UniqueKey::fields());
    assert_eq!(Plain.unique_key(), UniqueKey::none());
    let _ = (Pair(1, String::new()).0, report.pages);
}
