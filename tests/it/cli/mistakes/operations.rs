//! Tests the CLI's error messages for `requeue`, `cancel` and `reschedule`.

use super::{Fixture, Row};

pub(super) const ROWS: &[Row] = &[
    ("requeue", 2, "no jobs are selected | give jobs as ID, or `--all` with filter options"),
    ("requeue x", 2, "for '[ID]...' | expected a job id, a number as shown by `list`"),
    ("requeue 7", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was pruned"),
    ("requeue {sched}", 3, "job {sched} is scheduled | only a job that is dead, completed, cancelled or expired can be requeued"),
    ("requeue --queue default", 2, "filter options are given without `--all` | add `--all`, or select jobs by their ids"),
    ("requeue --all --queue nowhere --yes", 0, "no job has ever been enqueued into the queue `nowhere` | there are default, slow"),
    ("requeue --all --type nosuch --yes", 0, "no job of the type `nosuch` has ever been enqueued | there are do, nosuchtype"),
    ("requeue --all --state completed", 2, "the state is completed | it must be dead for a requeue of all; requeue completed,"),
    ("requeue --all --state ready --yes", 2, "the state is ready | it must be dead for a requeue of all; requeue completed, cancelled"),
    ("requeue --all --yes --rate 5", 2, "for '--rate <RATE>' | expected a rate like `50/s`, `10/m` or `100/h`, above zero"),
    ("requeue --all --yes --rate 0/s", 2, "for '--rate <RATE>' | expected a rate like `50/s`, `10/m` or `100/h`, above"),
    ("requeue --all --yes --rate -1/s", 2, "for '--rate <RATE>' | expected a rate like `50/s`, `10/m` or `100/h`, above"),
    ("requeue --all --yes --rate 5/d", 2, "for '--rate <RATE>' | expected a rate like `50/s`, `10/m` or `100/h`, above"),
    ("requeue {dead} --rate 5/s", 2, "filter options are given beside job ids | use `--all` instead of ids"),
    ("requeue {dead} --force --all", 2, "the argument '[ID]...' cannot be used with '--all'"),
    ("requeue {dead},{done}", 2, "for '[ID]...' | expected a job id, a number as shown by `list`"),
    ("requeue --all --exact", 2, "required arguments | --dry-run"),
    ("requeue --all --dry-run --yes", 0, "1 job would be requeued"),
    ("requeue --dead", 2, "unexpected argument '--dead' found"),
    ("cancel", 2, "no jobs are selected | give jobs as ID, or `--all` with filter options"),
    ("cancel x", 2, "for '[ID]...' | expected a job id, a number as shown by `list`"),
    ("cancel 7", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was pruned"),
    ("cancel {done}", 3, "job {done} is completed | only a job that is ready, scheduled, blocked, parked or running can be"),
    ("cancel {dead}", 3, "job {dead} is dead | only a job that is ready, scheduled, blocked, parked or running can be cancelled"),
    ("cancel {gone}", 3, "job {gone} is cancelled | only a job that is ready, scheduled, blocked, parked or running can be"),
    ("cancel {done} {ready} 7", 3, "job {done} is completed | only a job that is | there is no job 7 | it was never enqueued,"),
    ("cancel {sched}", 0, "cancelled {sched}"),
    ("cancel {sched}", 3, "job {sched} is cancelled | only a job that is ready, scheduled, blocked, parked or running can be"),
    ("cancel --all --state dead --yes", 2, "the state is dead | it must be blocked, scheduled, parked, ready or running"),
    ("cancel --all --state running --queue nowhere --yes", 0, "no job has ever been enqueued into the queue | there are default, slow"),
    ("cancel --state ready", 2, "filter options are given without `--all` | add `--all`, or select jobs by their ids"),
    ("cancel {ready} --yes", 2, "filter options are given beside job ids | use `--all` instead of ids"),
    ("cancel --all --since 5 --yes", 2, "for '--since <DURATION>' | time unit needed, for example 5sec or 5ms; write a duration"),
    ("cancel --all --older-than tomorrow --yes", 2, "for '--older-than <DURATION>' | expected number at 0; write a duration like"),
    ("cancel --all --meta x --yes", 2, "for '--meta <KEY=VALUE>' | expected metadata like `tenant=acme`"),
    ("reschedule {ready}", 2, "required arguments | --at <TIME>"),
    ("reschedule --at 2026-12-24T18:00:00Z", 2, "no jobs are selected | give jobs as ID, or `--all` with filter options"),
    ("reschedule {ready} --at tomorrow", 2, "for '--at <TIME>' | expected a time like `2026-12-24T18:00:00Z`"),
    ("reschedule {ready} --at 2026-12-24", 2, "for '--at <TIME>' | expected a time like `2026-12-24T18:00:00Z`"),
    ("reschedule {ready} --at '2026-12-24 18:00'", 2, "for '--at <TIME>' | expected a time like `2026-12-24T18:00:00Z`"),
    ("reschedule {ready} --at 2026-12-24T18:00:00", 2, "for '--at <TIME>' | expected a time like `2026-12-24T18:00:00Z`"),
    ("reschedule {ready} --at 2026-13-24T18:00:00Z", 2, "for '--at <TIME>' | expected a time like `2026-12-24T18:00:00Z`"),
    ("reschedule {ready} --at 9999-12-24T18:00:00Z", 3, "job {ready} is cancelled | only a job that is ready or scheduled can be"),
    ("reschedule {ready} --in 1h", 2, "unexpected argument '--in' found | a similar argument exists: '--since'"),
    ("reschedule {done} --at 2026-12-24T18:00:00Z", 3, "job {done} is completed | only a job that is ready or scheduled can be"),
    ("reschedule {run} --at 2026-12-24T18:00:00Z", 3, "job {run} is running | only a job that is ready or scheduled can be"),
    ("reschedule 7 --at 2026-12-24T18:00:00Z", 3, "there is no job 7 | it was never enqueued, was rolled back, or its history was"),
    ("reschedule --all --state dead --at 2026-12-24T18:00:00Z", 2, "the state is dead | it must be scheduled or ready"),
    ("requeue {ready}", 0, "requeued {ready}"),
    ("requeue {run}", 3, "job {run} is running | only a job that is dead, completed, cancelled or expired can be requeued"),
    (
        "requeue --all",
        2,
        "1 job would be requeued, and stdin is not a terminal to confirm | pass `--yes`, or `--dry-run` to count the jobs",
    ),
    ("requeue {dead} {dead}", 3, "job {dead} is ready | only a job that is dead, completed, cancelled or expired can be requeued"),
    (
        "cancel --all",
        2,
        "4 jobs would be cancelled, and stdin is not a terminal to confirm | pass `--yes`, or `--dry-run` to count the jobs",
    ),
];

#[tokio::test]
async fn an_operation_names_the_states_in_which_it_is_possible() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, ROWS);
    fixture.db.finish().await;
}
