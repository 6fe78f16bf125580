//! Tests the CLI's error messages for `snooze`, `run-now`, `priority` and `discard`.

use super::{Fixture, Row};

pub(super) const ROWS: &[Row] = &[
    ("snooze {ready}", 2, "required arguments | --by <DURATION>"),
    ("snooze {ready} --by 5", 2, "for '--by <DURATION>' | time unit needed, for example 5sec or 5ms; write a duration like `30s`,"),
    ("snooze {ready} --by -5m", 2, "for '--by <DURATION>' | a duration cannot be negative; write one like `30s`"),
    ("snooze {ready} --by tomorrow", 2, "for '--by <DURATION>' | expected number at 0; write a duration like `30s`, `5m` or `1h"),
    ("snooze {ready} --by 99999999999999999999s", 2, "for '--by <DURATION>' | number is too large or cannot be represented without"),
    ("snooze {done} --by 5m", 3, "job {done} is completed | only a job that is ready or scheduled can be snoozed"),
    ("snooze {run} --by 5m", 3, "job {run} is running | only a job that is ready or scheduled can be snoozed"),
    ("snooze 7 --by 5m", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was pruned"),
    ("snooze --all --state running --by 5m", 2, "the state is running | it must be scheduled or ready"),
    ("snooze --by 5m", 2, "no jobs are selected | give jobs as ID, or `--all` with filter options"),
    ("run-now", 2, "no jobs are selected | give jobs as ID, or `--all` with filter options"),
    ("run-now x", 2, "for '[ID]...' | expected a job id, a number as shown by `list`"),
    ("run-now 7", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was pruned"),
    ("run-now {ready}", 3, "job {ready} is ready | only a job that is scheduled or parked can be run now"),
    ("run-now {done}", 3, "job {done} is completed | only a job that is scheduled or parked can be run now"),
    ("run-now {run}", 3, "job {run} is running | only a job that is scheduled or parked can be run now"),
    ("run-now {dead}", 3, "job {dead} is dead | only a job that is scheduled or parked can be run now"),
    ("run-now --all --state dead", 2, "the state is dead | it must be scheduled or parked"),
    ("run-now --all --state blocked", 2, "the state is blocked | it must be scheduled or parked"),
    ("run-now --queue default", 2, "filter options are given without `--all` | add `--all`, or select jobs by their ids"),
    ("priority {ready}", 2, "required arguments | --to <N>"),
    ("priority {ready} high", 2, "for '[ID]...' | expected a job id, a number as shown by `list`"),
    ("priority {ready} --to high", 2, "for '--to <N>' | expected a whole number from -32768 to 32767"),
    ("priority {ready} --to 99999", 2, "for '--to <N>' | expected a whole number from -32768 to 32767"),
    ("priority {ready} --to -99999", 2, "for '--to <N>' | expected a whole number from -32768 to 32767"),
    ("priority {ready} --to 1.5", 2, "for '--to <N>' | expected a whole number from -32768 to 32767"),
    ("priority {done} --to 1", 3, "job {done} is completed | only a job that is ready or scheduled can be given another priority"),
    ("priority {run} --to 1", 3, "job {run} is running | only a job that is ready or scheduled can be given another priority"),
    ("priority 7 --to 1", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was pruned"),
    ("priority --to 1", 2, "no jobs are selected | give jobs as ID, or `--all` with filter options"),
    ("priority --all --state dead --to 1", 2, "the state is dead | it must be scheduled or ready"),
    ("discard", 2, "no jobs are selected | give jobs as ID, or `--all` with filter options"),
    ("discard x", 2, "for '[ID]...' | expected a job id, a number as shown by `list`"),
    ("discard 7", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was pruned"),
    ("discard {ready}", 3, "job {ready} is ready | only a job that is dead can be discarded"),
    ("discard {done}", 3, "job {done} is completed | only a job that is dead can be discarded"),
    ("discard {run}", 3, "job {run} is running | only a job that is dead can be discarded"),
    (
        "discard --all",
        2,
        "1 job would be discarded, and stdin is not a terminal to confirm | pass `--yes`, or `--dry-run` to count the jobs",
    ),
    ("discard --all --state completed --yes", 2, "the state is completed | it must be dead"),
    ("discard --all --queue nowhere --yes", 0, "no job has ever been enqueued into the queue `nowhere` | there are default, slow"),
    ("discard --all --type nosuch --dry-run", 0, "no job of the type `nosuch` has ever been enqueued | there are do, nosuchtype"),
    ("discard {dead} --dry-run", 2, "filter options are given beside job ids | use `--all` instead of ids"),
    ("run-now {ready} --all", 2, "the argument '[ID]...' cannot be used with '--all'"),
    ("run-now {sched}", 0, "ready {sched}"),
    ("run-now {sched}", 3, "job {sched} is ready | only a job that is scheduled or parked can be run now"),
    ("snooze {ready} --by 9999y", 2, "for '--by <DURATION>' | months and years differ in length; write days, as in `30d`"),
    ("snooze {ready} --by 1month", 2, "for '--by <DURATION>' | months and years differ in length; write days, as in `30d`"),
    ("snooze {ready} --by 99999d", 2, "the snooze duration is 99999 days | it must be at most 100 years"),
    ("snooze {ready} -5m", 2, "unexpected argument '-5' found | a number or a duration must follow its option, as in `--by 5m`"),
    ("snooze {ready} --delay -5m", 2, "unexpected argument '--delay' found"),
    ("snooze {ready} --by 1h --at 2026-01-01T00:00:00Z", 2, "unexpected argument '--at' found | a similar argument exists:"),
];

#[tokio::test]
async fn a_change_names_the_states_in_which_it_is_possible() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, ROWS);
    fixture.db.finish().await;
}
