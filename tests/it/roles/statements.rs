//! Checks which roles may run each statement against the matrix below. A new statement without an entry fails the test, unless only the
//! owner may run it.

use std::{fs, path::Path};

use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use super::RoledStore;

/// Roles that may run each statement file: producer (`p`), producer of single queues (`m`), worker (`w`), reader (`r`), operator (`o`), and
/// any login (`!`). Statements that only the owner may run are not listed.
const STATEMENTS: &str = "
acknowledge_pauses w
add_chunk w
add_days w
add_end_hints w
add_parts pmw
announce_waiter pmw
any_hint w
any_schedule wro
any_work w
apply_to_all o
apply_to_one o
audit ro
backlog ro
cancel_flow o
capacities ro
channel pmw
checkpoint wo
child_outcome wo
children ro
choose_blocked wro
choose_dead wro
choose_parked wro
choose_ready wro
choose_running wro
choose_scheduled wro
claim w
claim_fair w
claim_keyed w
claim_late w
claim_limited w
clear_progress w
close_gather w
confirm w
consume_end_hints w
count_gathers w
count_operation o
counts wro
declare w
declare_limits w
doctor_days ro
doctor_jobs wro
doctor_keys wro
doctor_limits ro
doctor_locks ro
doctor_maintenance ro
doctor_mode pmwro!
doctor_privileges pmwro!
doctor_search_path pmwro!
doctor_server pmwro!
doctor_sessions pmwro!
doctor_tables pmwro!
doctor_version pmwro!
doctor_workers ro
drop_day w
due_lanes wo
elect w
enqueue pw
enqueue_each pmw
enqueue_relaxed pw
enqueue_text pmwo
enqueue_with pmwo
ensure_lanes pmw
expire_due w
expire_held w
expired_leases w
extent wro
failures wro
failures_of wro
find o
find_without ro
fire w
fires wro
forget_keys w
forget_lanes w
free_keys w
gather_outcome w
gather_total wro
gathers ro
give_back w
heartbeat w
history ro
horizon pmwro!
id_horizon wro
is_ended_by wro
is_held w
is_queue wro
job_states pmw
job_types wro
journal w
journal_fresh w
journal_one w
keep_types w
kept_hints w
kept_types wro
key_queue ro
lanes wro
leave_lanes w
leave_waiter pmw
limit_heartbeats w
limit_keys ro
limits ro
link_flow pmw
list o
list_without ro
lock_holders pmwro
lock_keys pmw
locked_rows w
logs ro
monitor_server pmwro!
move_to_fair_lanes w
newest_dead wro
nodes ro
notify_waiters w
now pmwro!
oldest wro
open_gather w
own_leases w
park w
park_held w
parts w
pass_lanes w
pause o
pause_awaits ro
pause_schedule o
paused ro
pauses wro
probe w
progress_of wro
progress_page wro
promote w
prune_children w
prune_days w
prune_dead w
prune_done w
prune_early w
prune_fires w
prune_gathers w
prune_kept w
prune_logs w
prune_nodes w
prune_rates w
prune_signals w
prune_steps w
prune_totals w
prune_waiters w
prune_workers w
publish_types w
put_schedule o
quarantined wro
quarantined_by_key w
queues wro
receive w
record_operation o
record_progress w
recover w
register w
release_nodes w
replaced_lanes w
reserve_ids w
restart w
resume o
resume_schedule o
retire w
roll_up w
run_schedule o
schedules wro
served ro
server pmwro!
set_capacity o
set_limit o
set_limit_key o
set_weight o
settle w
settle_forgotten w
settle_leases w
signal pmwo
signals ro
skip_schedule o
sleep w
slow_down w
spawn w
status pmwo
step_written wro
steps ro
steps_done wo
tally w
ticks wro
timeline pmwro!
try_enqueue pmw
types_of wro
unblock w
unread_payloads wo
unschedule o
unseen_lanes wro
unserved wro
unset_limit o
waiting wro
waits_for ro
wake_keys w
wake_others w
wake_parked w
wake_released w
wake_up w
walk_jobs wro
weights wro
why ro
workers ro
write_logs w
";

/// Runs the statement of each file with nulls as parameters. The server checks the privileges on all named objects before it executes the
/// statement.
#[tokio::test]
#[ignore = "deep"]
async fn each_role_may_run_its_statements_and_no_others() {
    let store = RoledStore::new().await;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files: Vec<_> = ["queue-core/sql", "queue-worker/sql"]
        .iter()
        .flat_map(|folder| fs::read_dir(root.join(folder)).unwrap())
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort_by_key(|path| path.file_stem().map(ToOwned::to_owned));
    assert!(files.len() > 80, "the statements were found");
    let mut users = Vec::new();
    for (user, letter) in [("web", 'p'), ("mailer", 'm'), ("runner", 'w'), ("viewer", 'r'), ("ops", 'o'), ("nobody_else", '!')] {
        users.push((store.connect(user).await, letter));
    }
    let mut found = String::new();
    for path in files {
        let (name, text) = (path.file_stem().unwrap().to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap());
        let mut letters = String::new();
        for (connection, letter) in &mut users {
            connection.execute("begin").await.unwrap();
            let done = async {
                connection.execute(sqlx::raw_sql(AssertSqlSafe(format!("prepare s as {text}")))).await?;
                let count: i32 =
                    sqlx::query_scalar("select coalesce(cardinality(parameter_types), 0) from pg_prepared_statements where name = 's'")
                        .persistent(false)
                        .fetch_one(&mut *connection)
                        .await?;
                let nulls = vec!["null"; usize::try_from(count).unwrap()].join(", ");
                let execute = if nulls.is_empty() { "execute s".to_owned() } else { format!("execute s({nulls})") };
                connection.execute(sqlx::raw_sql(AssertSqlSafe(execute))).await.map(drop)
            };
            let done: sqlx::Result<()> = done.await;
            let denied = done.is_err_and(|error| error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("42501")));
            connection.execute("rollback").await.unwrap();
            connection.execute("deallocate all").await.unwrap();
            if !denied {
                letters.push(*letter);
            }
        }
        if !letters.is_empty() {
            found.extend([name.as_str(), " ", letters.as_str(), "\n"]);
        }
    }
    assert!(found == STATEMENTS.trim_start(), "found:\n{found}");
    for (connection, _) in users {
        connection.close().await.unwrap();
    }
    store.server.stop().unwrap();
}
