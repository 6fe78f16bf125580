//! Compares the privileges of the roles on functions and tables with the expected privileges below. A new object without an entry fails the
//! test.

use std::collections::BTreeMap;

use super::RoledStore;
use crate::search_path::QUALIFIED;

/// Roles, each with its letter in the tables below. The owner has all privileges. A user without a role has none.
const ROLES: [(&str, char); 5] =
    [("queue_producer", 'p'), ("mailer", 'm'), ("queue_worker", 'w'), ("queue_reader", 'r'), ("queue_operator", 'o')];

/// Roles that may execute each function. Functions that only the owner may execute are not listed.
const FUNCTIONS: &str = "
add_chunk w
add_end_hints w
add_parts pmw
add_tallies w
announce_waiter pmw
any_queue pwo
apply_to_all o
apply_to_one o
are_exhausted w
attempt_of o
backlog ro
bounds_ms ro
bury_blocked w
called_by pmwo
cancel o
cancel_flow o
cancel_running_all o
cancel_waiting_all wo
capacities ro
channel pmw
children ro
choose_fair w
choose_keyed w
choose_of_keys w
choose_under_keys w
claim_fair w
claim_keyed w
claim_limited w
clock_ms w
close_gather w
consume_end_hints w
count_gathers w
count_operation o
count_running w
count_starts w
counts wro
covers wro
day_before wro
declare_limits w
declare_schedules w
depth ro
depths ro
digest pmwo
discard o
discard_all o
edge_effect w
elect_schedules w
end_of wo
enqueue pmw
enqueue_each pmw
enqueue_flow pmw
enqueue_node pmw
enqueue_parts pmw
enqueue_with pmwo
enqueued_at wro
ensure_fair_lane w
ensure_lane w
ensure_lanes pmw
entry_of wo
expire_all w
expire_due w
expiry_text w
find o
fire_ticks w
forget_gathers w
forget_keys w
free_fair_permits w
free_permits w
full_fair_ids w
full_limits ro
gathers ro
hash wo
histogram_buckets ro
history ro
hold_keys w
holds w
id_at wro
ids_in w
in_turn w
insert_chunk w
insert_job pmw
is_expired w
is_in_progress w
is_name w
is_trusted pmwo
job_states pmw
join_name wro
key_queue ro
key_starts w
lane_floors wro
lane_id wo
leave_waiter pmw
limit_awaits w
limit_keys ro
limits ro
link_flow pmw
list o
list_page o
lock_keys pmw
locked_rows w
logs ro
move_heads w
move_permits w
newest_ready o
next_id w
next_key w
next_permit w
node_dependencies pmw
node_error pmw
nodes ro
notify w
notify_free_fair_queues w
notify_free_permits w
oldest wro
open_gather w
paired_lane w
pause o
pause_awaits ro
pause_schedule o
pauses ro
payload_limit pmw
permit_floors w
pick o
producer_enqueue pmw
producer_enqueue_with pmwo
producer_lock_keys pmw
prune_children w
prune_gathers w
prune_logs w
prune_nodes w
prune_signals w
prune_steps w
quantile ro
queue_of_type pmw
read_history ro
read_keyed w
read_permits w
reader_find ro
reader_list ro
ready_places w
record_operation o
recount_gather w
reject_node pmw
release_nodes w
release_parts w
requeue o
requeue_all o
reschedule o
reschedule_all o
restart w
resume o
resume_schedule o
roll_up w
run_now o
run_now_all o
run_schedule o
schedule o
set_capacity o
set_limit o
set_limit_key o
set_priority o
set_priority_all o
set_weight o
signal pmwo
signals ro
skip_schedule o
snooze o
spawn w
starts_left w
starts_since w
state_of w
status pmwo
steps ro
stored_type ro
try_enqueue pmw
type_of wro
unblock w
unique_hash pmw
unschedule o
unset_limit o
version_of wro
wait pmw
waits_for ro
wake w
wake_keys w
wake_parked w
why ro
why_causes ro
why_held w
why_holder wro
why_sessions ro
why_snapshots ro
why_table_locked ro
why_text ro
worker_add_days w
worker_drop_day w
workers ro
write_logs w
";

/// Privileges of each role on each table, view or sequence. S, I, U and D stand for select, insert, update and delete. The privileges on
/// sequences are spelled out. If a role can read only some columns, these columns are listed.
const TABLES: &str = "
active_key w:SIUD r:S o:S
audit r:S o:S
blocked w:SUD r:S o:S
bound w:S r:S o:S
bound_in_all w:S
bound_in_force w:S r:S o:S
bound_type w:S r:S o:S
capacity w:S r:S o:S
child w:SIUD r:parent,name,id,at,state,attempts,error o:parent,name,id,at,state,attempts,output,error
dead w:SIUD r:S o:S
declaration w:SUD
done w:SIUD r:id,finished_at,ran_ms,attempts,cancelled,expired o:id,finished_at,ran_ms,attempts,cancelled,expired,output
done_default w:SUD r:id o:id
done_many w:SIUD r:S o:S
done_many_default w:SUD r:first_id o:first_id
edge w:SIUD r:S o:S
end_hint w:SIUD
expiry w:S
failure w:SID r:S o:S
failure_default r:id o:id
fire w:SUD r:S o:S
gather w:SIUD r:S o:S
gather_hint w:SIUD
gather_part w:SIUD
id_seq w:select,usage
idle w:SIUD
job w:SD r:id,lane,max_attempts,key,meta,system,fair_id o:id,lane,max_attempts,payload,key,meta,system,fair_id
job_default r:id o:id
jobs r:id,queue,job_type,priority,state,attempts,max_attempts,crashes,enqueued_at,run_at,finished_at,worker,error,meta,system,version o:S
key_bound w:S r:S o:S
key_hint w:SIUD
key_seq w:usage
lane w:SIUD r:S o:S
lease w:SIUD r:worker,claimed_at,lane,ids,attempts,crashes,cancelling o:worker,claimed_at,lane,ids,attempts,crashes,cancelling
limiter w:SU r:S o:S
log w:SIUD r:S o:S
map_batch w:SIUD
migration w:S r:S o:S
node w:SIUD r:S o:S
node_hint w:SIUD
parked w:SIUD r:S o:S
paused w:S r:S o:S
permit w:SIUD r:limit_id,place,n o:limit_id,place,n
permit_seq w:usage
progress w:SIUD r:id,attempt,updated_at,fraction,stage,counts o:id,attempt,updated_at,fraction,stage,counts,checkpoint
rate w:SIUD r:S o:S
ready w:SIUD r:S o:S
retention w:SIUD r:S o:S
schedule w:SUD r:name,job_type,cron,every,tz,missed,grace,overlap,jitter,supersede,source,definition,since,next_at,skip_at,tried_at,again_at,paused_at,undeclared_since,withdrawn_at,error o:S
scheduled w:SIUD r:S o:S
signal w:SIUD r:id,seq,name,at o:id,seq,name,at,payload
signal_hint w:SIUD
step w:SIUD r:id,at,ran_ms,attempt,name,until o:id,at,ran_ms,attempt,name,until,output
step_default r:id o:id
tallied w:SIUD r:S o:S
tally_source w:SIUD
tally_total w:SIUD r:S o:S
type_options w:SIUD r:S o:S
unique_key w:SUD
waiter w:SUD
weight w:S r:S o:S
worker w:SIUD r:S o:S
";

/// Returns the names of the roles that may execute a function, except the owner and `mailer`.
pub(crate) fn executors(function: &str) -> Vec<&'static str> {
    let letters = FUNCTIONS.lines().find_map(|line| line.strip_prefix(function)?.strip_prefix(' '));
    let letters = letters.unwrap_or_else(|| panic!("no role may execute {function}"));
    let of = |(_, letter): &(&str, char)| letters.contains(*letter);
    ROLES.iter().filter(|role| role.0 != "mailer").filter(|role| of(role)).map(|(name, _)| *name).collect()
}

#[tokio::test]
#[ignore = "deep"]
async fn each_role_may_execute_its_functions_and_nothing_else() {
    let store = RoledStore::new().await;
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for (role, letter) in ROLES {
        let may = "select p.proname::text from pg_proc p where p.pronamespace = 'queue'::regnamespace and has_function_privilege($1, p.oid, 'execute')";
        let names: Vec<String> = sqlx::query_scalar(may).bind(role).fetch_all(&store.db.pool).await.unwrap();
        for name in names {
            found.entry(name).or_default().push(letter);
        }
    }
    let mut found: Vec<String> = found.iter().map(|(name, letters)| format!("{name} {letters}")).collect();
    found.push(String::new());
    let found = found.join("\n");
    assert!(found == FUNCTIONS.trim_start(), "found:\n{found}");
    store.server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn each_role_has_its_privileges_on_tables_and_no_others() {
    const TABLE: &str = "
        select concat_ws(':',
          (select string_agg(upper(left(p, 1)), '') from unnest('{select,insert,update,delete,truncate,references,trigger}'::text[]) with ordinality u (p, n)
           where has_table_privilege($1, c.oid, p)),
          case when not has_table_privilege($1, c.oid, 'select') then
            (select string_agg(a.attname, ',' order by a.attnum) from pg_attribute a
             where a.attrelid = c.oid and a.attnum > 0 and has_column_privilege($1, c.oid, a.attnum, 'select,insert,update,references')) end)
        from pg_class c where c.oid = $2::regclass";
    const SEQUENCE: &str = "
        select coalesce(string_agg(p, ','), '') from unnest('{select,update,usage}'::text[]) p
        where has_sequence_privilege($1, $2::regclass, p)";
    let store = RoledStore::new().await;
    let all = "select c.oid::regclass::text, c.relkind::text from pg_class c
        where c.relnamespace = 'queue'::regnamespace and c.relkind in ('r', 'p', 'v', 'S', 'm', 'f') order by 1";
    let all: Vec<(String, String)> = sqlx::query_as(all).fetch_all(&store.db.pool).await.unwrap();
    let mut found = String::new();
    for (name, kind) in all {
        let mut line = name.trim_start_matches("queue.").to_owned();
        for (role, letter) in ROLES {
            let ask = if kind == "S" { SEQUENCE } else { TABLE };
            let may: String = sqlx::query_scalar(ask).bind(role).bind(&name).fetch_one(&store.db.pool).await.unwrap();
            if !may.is_empty() {
                line.extend([" ", letter.to_string().as_str(), ":", may.as_str()]);
            }
        }
        if line.contains(' ') {
            found.extend([line.as_str(), "\n"]);
        }
    }
    assert!(found == TABLES.trim_start(), "found:\n{found}");
    store.server.stop().unwrap();
}

#[tokio::test]
#[ignore = "deep"]
async fn nothing_is_open_to_public_and_every_entry_point_pins_its_path_and_belongs_to_the_owner() {
    let store = RoledStore::new().await;
    let (fresh, users) = ("select queue.add_days(9)", ["nobody_else", "public"]);
    store.run(fresh).await;
    for user in users {
        const OPEN: &str = "
            select p.oid::regprocedure::text from pg_proc p
            where p.pronamespace = 'queue'::regnamespace and has_function_privilege($1, p.oid, 'execute')
            union all
            select c.oid::regclass::text from pg_class c
            where c.relnamespace = 'queue'::regnamespace and c.relkind in ('r', 'p', 'v') and has_any_column_privilege($1, c.oid, 'select,insert,update,references')
            union all
            select c.oid::regclass::text from pg_class c
            where c.relnamespace = 'queue'::regnamespace
              and case when c.relkind = 'S' then has_sequence_privilege($1, c.oid, 'select,update,usage') end
            union all
            select t.oid::regtype::text from pg_type t join pg_class c on c.oid = t.typrelid and c.relkind = 'c'
            where t.typnamespace = 'queue'::regnamespace and has_type_privilege($1, t.oid, 'usage')
            union all
            select 'the schema' where has_schema_privilege($1, 'queue', 'usage,create')";
        let open: Vec<String> = sqlx::query_scalar(OPEN).bind(user).fetch_all(&store.db.pool).await.unwrap();
        assert!(open.is_empty(), "{user}: {open:?}");
    }
    let doors: i64 = sqlx::query_scalar("select count(*) from pg_proc where pronamespace = 'queue'::regnamespace and prosecdef")
        .fetch_one(&store.db.pool)
        .await
        .unwrap();
    assert!(doors > 20, "only {doors} doors were found");
    // The functions in `QUALIFIED` are exceptions, because they qualify all names. Each function that they call must also qualify all
    // names, set a path, or have a parsed body.
    let loose = "select p.oid::regprocedure::text from pg_proc p
        where p.pronamespace = 'queue'::regnamespace and p.prosecdef and p.proname <> all ($1)
          and (p.proconfig @> '{\"search_path=pg_catalog, pg_temp\"}') is not true";
    let loose: Vec<String> = sqlx::query_scalar(loose).bind(&QUALIFIED[..]).fetch_all(&store.db.pool).await.unwrap();
    assert!(loose.is_empty(), "without a path of their own: {loose:?}");
    let others = "select c.oid::regclass::text from pg_class c where c.relnamespace = 'queue'::regnamespace and c.relkind <> 'i'
          and c.relowner <> 'queue_owner'::regrole
        union all
        select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'queue'::regnamespace and p.proowner <> 'queue_owner'::regrole";
    let others: Vec<String> = sqlx::query_scalar(others).fetch_all(&store.db.pool).await.unwrap();
    assert!(others.is_empty(), "not the owner's: {others:?}");
    let creates: Vec<String> = sqlx::query_scalar(
        "select r.rolname::text from pg_roles r where not r.rolsuper and has_schema_privilege(r.oid, 'queue', 'create') order by 1",
    )
    .fetch_all(&store.db.pool)
    .await
    .unwrap();
    assert_eq!(creates, ["migrator", "queue_owner"]);
    store.server.stop().unwrap();
}
