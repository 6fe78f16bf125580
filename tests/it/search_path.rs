//! Tests that the product's statements and functions do not depend on the caller's `search_path`. The first or last schema on the tested
//! path defines operators, functions and types that shadow the server's own.

use std::{collections::BTreeSet, fs, path::Path, str::FromStr as _, time::Duration};

use queue_core::{
    Context, Handler, Job as _, JobRef, JobResult, JobState, Queue, Store, job, migrate,
    operate::{Filter, Operation},
    options::Durability,
};
use queue_worker::Worker;
use serde::{Deserialize, Serialize};
use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tests::TestDb;

/// Statements that create the schema `evil`. The schema contains functions, operators and types that shadow the server's own. It also
/// contains operators for pairs of types for which the server has no such operator. Each object fails when used. In a real attack, such
/// an object would compromise the session.
const TRAPS: &str = "
create schema evil;
set check_function_bodies = off;
do $traps$
declare
  made  record;
  body  text := 'language plpgsql volatile as $$ begin raise exception ''hijacked''; end $$';
begin
  for made in
    select p.oid, p.proname, pg_get_function_identity_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result
    from pg_proc p
    where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind <> 'p' and p.provariadic = 0
      -- An ordered-set aggregate has no plain arguments.
      and pg_get_function_identity_arguments(p.oid) !~ 'ORDER BY'
      and not exists (
        select from pg_type t
        where t.oid = any (p.proargtypes::oid[] || p.prorettype) and t.typtype = 'p' and t.typname not in ('anyelement', 'anyarray', 'void', 'record')
      )
  loop
    begin
      execute format('create function evil.%I(%s) returns %s %s', made.proname, made.arguments, made.result, body);
    exception when others then
      null;
    end;
  end loop;
  for made in
    select o.oprname, nullif(o.oprleft, 0) as lhs, o.oprright as rhs, o.oprresult as result
    from pg_operator o
    where o.oprnamespace = 'pg_catalog'::regnamespace
    union
    select n.name, l::oid, r::oid, case when n.name in ('=', '<>', '<', '>', '<=', '>=') then 'bool'::regtype else 'int8'::regtype end
    from unnest('{+,-,*,/,%,&,|,#,<<,>>,=,<>,<,>,<=,>=,||}'::text[]) n (name)
    cross join unnest('{int2,int4,int8,float4,float8,numeric,interval,text,unknown}'::regtype[]) l
    cross join unnest('{int2,int4,int8,float4,float8,numeric,interval,text,unknown}'::regtype[]) r
    where not exists (select from pg_operator o where o.oprname = n.name and o.oprleft = l and o.oprright = r)
  loop
    begin
      execute format('create or replace function evil.%I(%s) returns %s %s', 'trap_' || made.result,
        concat_ws(', ', format_type(made.lhs, null), format_type(made.rhs, null)), format_type(made.result, null), body);
      execute format('create operator evil.%s (%s rightarg = %s, function = evil.%I)', made.oprname,
        'leftarg = ' || format_type(made.lhs, null) || ',', format_type(made.rhs, null), 'trap_' || made.result);
    exception when others then
      null;
    end;
  end loop;
  for made in select unnest('{text,jsonb,json,timestamptz,date,uuid,float8,bytea,xid8,regclass,record,int8,int4,int2,bool}'::text[]) as type loop
    execute format('create domain evil.%I as %s check (evil.never())', made.type,
      case made.type when 'record' then 'pg_catalog.text' else 'pg_catalog.' || made.type end);
  end loop;
end
$traps$;
reset check_function_bodies";

/// Functions that qualify every name, because setting a path would cost too much.
pub(crate) const QUALIFIED: [&str; 4] = ["check_queue", "enqueue", "insert_job", "lock_stripe"];

/// Search paths with the schema `evil` in the first and in the last position.
const PATHS: [&str; 2] = ["evil, pg_catalog", "pg_catalog, evil"];

/// Creates a database with the schema `evil`.
async fn trapped() -> TestDb {
    let db = TestDb::new().await;
    let never = "create schema evil; create function evil.never() returns boolean language plpgsql as $$ begin raise 'hijacked'; end $$;";
    db.pool.execute(sqlx::raw_sql(AssertSqlSafe(TRAPS.replacen("create schema evil;", never, 1)))).await.unwrap();
    let made = "select least((select count(*) from pg_operator where oprnamespace = 'evil'::regnamespace) - 1200,
      (select count(*) from pg_proc where pronamespace = 'evil'::regnamespace) - 2000)";
    assert!(db.count(made).await > 0, "the traps are set");
    db
}

async fn connect(db: &TestDb, path: &str) -> PgConnection {
    let options = PgConnectOptions::from_str(&db.url).unwrap().options([("search_path", path)]);
    PgConnection::connect_with(&options).await.unwrap()
}

/// Returns the file name and the text of each statement of the product.
fn statements() -> Vec<(String, &'static str)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folders = ["queue-core/sql", "queue-core/testing", "queue-worker/sql"].map(|folder| fs::read_dir(root.join(folder)).unwrap());
    let files = folders.into_iter().flatten().map(|entry| entry.unwrap().path());
    let read = |path: &Path| (path.display().to_string(), &*fs::read_to_string(path).unwrap().leak());
    let found: Vec<_> = files.map(|path| read(&path)).collect();
    assert!(found.len() > 60, "the statements were found");
    found
}

/// Returns the types of a statement's parameters. The names are schema-qualified, so they resolve to the same types on every path.
async fn parameters(clean: &mut PgConnection, statement: &str) -> String {
    const TYPES: &str = "select coalesce(string_agg(format('pg_catalog.%I', t.typname), ', ' order by p.place), '')
      from pg_prepared_statements s cross join unnest(s.parameter_types::oid[]) with ordinality p (type, place) join pg_type t on t.oid = p.type
      where s.name = 'probe'";
    clean.execute(sqlx::raw_sql(AssertSqlSafe(format!("prepare probe as {statement}")))).await.unwrap();
    let types = sqlx::query_scalar(TYPES).fetch_one(&mut *clean).await.unwrap();
    clean.execute("deallocate probe").await.unwrap();
    types
}

/// Creates a function whose body is the statement. The server resolves the names in the statement on this connection's path.
async fn understand(connection: &mut PgConnection, types: &str, statement: &str) -> sqlx::Result<()> {
    let body = statement.trim_end().trim_end_matches(';');
    let function = format!("create or replace function public.probe({types}) returns void language sql begin atomic {body}\n; end");
    connection.execute(sqlx::raw_sql("drop function if exists public.probe")).await?;
    connection.execute(sqlx::raw_sql(AssertSqlSafe(function))).await.map(drop)
}

/// Returns the objects in the schema `evil` on which the function `probe` depends.
async fn bound(clean: &mut PgConnection) -> Vec<String> {
    const BOUND: &str = "select pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
      from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = (select p.oid from pg_proc p where p.proname = 'probe') and pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid) ~ 'evil'";
    sqlx::query_scalar(BOUND).fetch_all(clean).await.unwrap()
}

async fn understood(clean: &mut PgConnection) -> Option<String> {
    sqlx::query_scalar("select pg_get_functiondef(p.oid) from pg_proc p where p.proname = 'probe'").fetch_optional(clean).await.unwrap()
}

#[tokio::test]
#[ignore = "deep"]
async fn no_statement_uses_objects_of_other_users() {
    let db = trapped().await;
    let mut clean = connect(&db, "pg_catalog").await;
    let (mut faults, mut caught) = (Vec::new(), BTreeSet::new());
    for (file, written) in statements() {
        let sent = Store::default().sql(written);
        let types = parameters(&mut clean, written).await;
        understand(&mut clean, &types, written).await.unwrap();
        let want = understood(&mut clean).await;
        for path in PATHS {
            let mut hostile = connect(&db, path).await;
            // Records a statement that fails or uses an object in `evil` if its names are not qualified. Without such statements, the test
            // would detect nothing.
            match understand(&mut hostile, &types, written).await {
                Ok(()) if bound(&mut clean).await.is_empty() => {}
                _ => drop(caught.insert((path, file.clone()))),
            }
            match understand(&mut hostile, &types, sent).await {
                Ok(()) => faults.extend(bound(&mut clean).await.into_iter().map(|what| format!("{file}, path {path}: {what}"))),
                Err(error) => faults.push(format!("{file}, path {path}: {error}")),
            }
            let now = understood(&mut clean).await;
            if now != want {
                faults.push(format!("{file}, path {path}: means\n{now:#?}\nnot\n{want:#?}\n{sent}"));
            }
            hostile.close().await.unwrap();
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let caught = PATHS.map(|path| caught.iter().filter(|(at, _)| *at == path).count());
    assert!(caught[0] > 40 && caught[1] > 2, "the traps catch what is not qualified: {caught:?}");
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn no_function_uses_objects_of_other_users() {
    const OPEN: &str = "select p.proname::text, p.prosrc
      from pg_proc p where p.pronamespace = 'queue'::regnamespace and p.prosqlbody is null
        and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false) order by 1";
    let db = trapped().await;
    // The migration resolves the names in parsed bodies on its own path. Functions that set a path resolve names on that path. All other
    // functions must qualify every name.
    let open: Vec<(String, String)> = sqlx::query_as(OPEN).fetch_all(&db.pool).await.unwrap();
    for (name, body) in &open {
        let body: &'static str =
            body.replace("message = ", "message := ").replace("constraint = ", "constraint := ").replace("hint = ", "hint := ").leak();
        assert_eq!(Store::default().sql(body), body, "{name} does not name the schema of everything in it");
    }
    assert_eq!(open.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), QUALIFIED);
    for (path, schema) in PATHS.into_iter().zip(["first", "last"]) {
        migrate(&mut connect(&db, path).await, Store::new(schema).unwrap()).await.unwrap();
    }
    // Counts all objects that depend on the schema `evil`, except constraints within that schema.
    let bound = "select count(*) from pg_depend d where d.classid <> 'pg_namespace'::regclass
      and pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid) ~ '\\mevil\\M'
      and pg_describe_object(d.classid, d.objid, d.objsubid) !~ '(\\mevil\\M|_check$)'";
    assert_eq!(db.count(bound).await, 0);
    db.finish().await;
}

/// Job that fails on its first attempt and reports progress. The handler runs no SQL, because its statements would use objects in `evil`.
#[job(max_attempts = 3, backoff = fixed("1ms"))]
#[derive(Serialize, Deserialize)]
struct Plain {}

impl Handler for Plain {
    async fn run(self, cx: &Context) -> JobResult {
        cx.progress(0.5);
        if cx.attempt() == 1 { Err("not yet".into()) } else { Ok(()) }
    }
}

/// Transactional job that enqueues another job.
#[job(transactional, max_attempts = 1, backoff = fixed("1ms"))]
#[derive(Serialize, Deserialize)]
struct InOneCommit;

impl Handler for InOneCommit {
    async fn run(self, cx: &Context) -> JobResult {
        let mut tx = cx.transaction().await;
        Plain {}.enqueue(&mut tx).await?;
        Ok(())
    }
}

/// Calls to the SQL functions for clients in other languages. Together, they use most of the enqueue options.
const CALLS: [&str; 12] = [
    "queue.enqueue('plain', '{}')",
    "queue.insert_job('plain', '{}', max_attempts => 2::pg_catalog.int2, run_at => pg_catalog.now())",
    "queue.enqueue('plain', '{}', '{\"queue\": \"a\", \"priority\": 7, \"max_attempts\": 2, \"after\": 0.01, \"meta\": {\"b\": 1}}')",
    "queue.enqueue('plain', '{}', '{\"key\": \"k\", \"key_policy\": \"skip\", \"run_at\": \"2020-01-01T00:00:00Z\"}')",
    "queue.enqueue('plain', '{}', '{\"key\": \"k\"}')",
    "queue.enqueue_with('plain', '{}', '{\"unique_key\": \"u\", \"unique_while\": \"queued\"}')",
    "queue.enqueue_with('plain', '{}', '{\"unique_key\": \"u\", \"on_conflict\": \"replace\", \"unique_while\": \"1 hour\"}')",
    "queue.enqueue_with('plain', '{}', '{\"unique_key\": \"u\", \"on_conflict\": \"debounce\", \"after\": \"1 s\"}')",
    "queue.try_enqueue('plain', '{}', '{\"queue\": \"bounded\"}')",
    "queue.status(queue.enqueue('plain', '{}'))",
    "queue.wait(queue.enqueue('plain', '{}'), pg_catalog.make_interval(secs => 0))",
    "queue.cancel(queue.enqueue('plain', '{}'))",
];

#[tokio::test]
#[ignore = "deep"]
async fn a_program_works_with_a_hostile_schema_on_its_path() {
    let db = trapped().await;
    for path in PATHS {
        let options = PgConnectOptions::from_str(&db.url).unwrap().options([("search_path", path)]);
        let pool = PgPoolOptions::new().max_connections(8).test_before_acquire(false).connect_lazy_with(options);
        let store = Store::default();
        Queue::new(&pool).store(store).set_capacity("bounded", Some(1000)).await.unwrap();
        for call in CALLS {
            // A wait cannot see uncommitted rows, so `wait` and `cancel` are called with a job that an earlier call has committed.
            let call = if call.contains("queue.wait") || call.contains("queue.cancel") {
                format!(
                    "with job as materialized (select id from queue.ready limit 1) select {}",
                    call.replace("queue.enqueue('plain', '{}')", "job.id") + " from job"
                )
            } else {
                format!("select {call}")
            };
            pool.execute(AssertSqlSafe(call.clone())).await.unwrap_or_else(|error| panic!("{path}: {call}: {error}"));
        }
        Plain {}.enqueue(&pool).durability(Durability::Relaxed).after(Duration::from_millis(1)).await.unwrap();
        Plain {}.enqueue(&pool).key("k").await.unwrap();
        Plain {}.enqueue(&pool).unique("u").meta("a", 1).queue("bounded").unless_at_capacity().await.unwrap();
        Plain::enqueue_all(vec![Plain {}, Plain {}], &pool).await.unwrap();
        Plain::enqueue_all(vec![Plain {}, Plain {}], &pool).key("all").meta("a", 2).await.unwrap();
        InOneCommit.enqueue(&pool).await.unwrap();
        let acted = Plain {}.enqueue(&pool).after(Duration::from_hours(1)).await.unwrap();
        let one = JobRef::from_id(acted.id());
        for act in
            [Operation::Priority(7), Operation::Snooze(Duration::from_hours(2)), Operation::RunNow, Operation::Cancel, Operation::Requeue]
        {
            one.apply(&pool, act).await.unwrap_or_else(|error| panic!("{path}: {error}"));
        }
        let anything =
            Filter { queue: Some("a".into()), older_than: Some(Duration::ZERO), ..Filter::default() }.job_type("plain").meta("b", 1);
        Queue::new(&pool).store(store).jobs().matching(&anything).set_priority(9).await.unwrap();
        Queue::new(&pool).store(store).jobs().matching(&anything).snooze(Duration::ZERO).await.unwrap();
        Queue::new(&pool).store(store).jobs().matching(&anything).run_now().await.unwrap();
        Queue::new(&pool).store(store).jobs().requeue().await.unwrap();
        Queue::new(&pool).store(store).jobs().matching(&anything).cancel().await.unwrap();
        db.run_until_idle(Worker::new(pool.clone()).register::<Plain>().register::<InOneCommit>()).await;
        assert_eq!(db.state(acted.id()).await, Some(JobState::Completed));
        acted.wait(&Queue::new(&pool)).await.unwrap();
        acted.progress(&pool).await.unwrap();
        one.find(&pool).await.unwrap();
        assert!(!Queue::new(&pool).store(store).jobs().list().await.unwrap().jobs.is_empty());
        assert!(!Queue::new(&pool).store(store).counts().await.unwrap().is_empty());
        Queue::new(&pool).store(store).oldest().await.unwrap();
        Queue::new(&pool).store(store).workers().await.unwrap();
        Queue::new(&pool).store(store).capacities().await.unwrap();
        pool.close().await;
    }
    db.finish().await;
}
