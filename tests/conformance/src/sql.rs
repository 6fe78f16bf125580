//! SQL functions for other languages, as described in `docs/ANY_LANGUAGE.md` and `docs/OPERATIONS.md`.

use anyhow::{Context as _, Result, bail, ensure};
use queue_core::{JobId, JobRef, JobState};
use sqlx::{
    Decode, PgPool, Postgres, Type,
    error::DatabaseError,
    postgres::{PgArguments, PgRow},
    query::Query,
};

use super::{
    play::{Need, OperationGroup, not_on_citus, operations},
    world::World,
};

pub(super) const GROUP: OperationGroup = OperationGroup {
    name: "sql",
    needs: Need::Worker,
    operations: operations![
        "enqueue, in a transaction" => enqueue,
        "enqueue_with, enqueue_each, try_enqueue" => outcomes,
        "status, wait" => wait,
        "wait that cannot end" => endless,
        "signal, signals, steps" => signal,
        "children, gathers" => children,
        "enqueue_flow, nodes, cancel_flow" => flow,
        "cancel, reschedule, snooze, run_now, set_priority" => change_jobs,
        "requeue, discard" => dead,
        "operations on many jobs" => many,
        "pause, pauses, pause_awaits, resume" => pause,
        "set_limit, limits, set_limit_key, limit_keys, waits_for, unset_limit" => limit,
        "set_weight, set_capacity, capacities" => bounds,
        "schedule, pause, resume, skip, run, unschedule" => schedule,
        "list, find, counts, oldest, backlog, workers" => views,
        "depth, depths, fair_id" => depths,
        "history, quantile, why, logs" => reports,
        "error codes" => refused,
    ],
};

/// Builds a query on the store of the run.
fn query<'q>(world: &World, statement: &'static str, values: &[&'q str]) -> Query<'q, Postgres, PgArguments> {
    values.iter().fold(sqlx::query(world.store.sql(statement)), |query, value| query.bind(*value))
}

/// Returns the first column of the only row.
async fn value<T>(world: &World, statement: &'static str, values: &[&str]) -> Result<T>
where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres>,
{
    one(world.pool(), query(world, statement, values)).await.context(statement)
}

async fn one<T>(pool: &PgPool, query: Query<'_, Postgres, PgArguments>) -> Result<T>
where
    T: for<'r> Decode<'r, Postgres> + Type<Postgres>,
{
    use sqlx::Row as _;
    Ok(query.fetch_one(pool).await?.try_get(0)?)
}

/// Executes the query on the pool for read-only operations. Returns the number of rows.
async fn rows(world: &World, statement: &'static str, values: &[&str]) -> Result<usize> {
    let found: Vec<PgRow> = query(world, statement, values).fetch_all(world.read().await?).await.context(statement)?;
    Ok(found.len())
}

async fn run(world: &World, statement: &'static str, values: &[&str]) -> Result<()> {
    query(world, statement, values).execute(world.pool()).await.map(drop).context(statement)
}

/// Enqueues a job into a queue without a worker. Returns the job's id.
async fn idle(world: &World) -> Result<String> {
    value(world, r#"select queue.enqueue('conf_echo', '{"text": "sql"}', '{"queue": "idle"}')::text"#, &[]).await
}

async fn is(world: &World, id: &str, state: &str) -> Result<()> {
    let found: String = value(world, "select state from queue.status($1::bigint)", &[id]).await?;
    ensure!(found == state, "the job is {found} instead of {state}");
    Ok(())
}

async fn enqueue(world: &World) -> Result<()> {
    let mut tx = world.pool().begin().await?;
    let text =
        r#"select queue.enqueue('conf_echo', '{"text": "sql"}', '{"queue": "idle", "priority": 5, "after": 60, "meta": {"a": 1}}')::text"#;
    let rolled_back: String = sqlx::query_scalar(world.store.sql(text)).fetch_one(&mut *tx).await?;
    tx.rollback().await?;
    ensure!(rows(world, "select * from queue.status($1::bigint)", &[&rolled_back]).await? == 0, "the job exists");
    let id: String = value(world, text, &[]).await?;
    is(world, &id, "scheduled").await?;
    let keyed = r#"select queue.enqueue('conf_echo', '{"text": "x"}', '{"queue": "idle", "key": "sql", "fair": "a", "expires_in": "1 hour"}')::text"#;
    let (first, second): (String, String) = (value(world, keyed, &[]).await?, value(world, keyed, &[]).await?);
    is(world, &first, "ready").await?;
    is(world, &second, "blocked").await
}

async fn outcomes(world: &World) -> Result<()> {
    let with = r#"select outcome from queue.enqueue_with('conf_echo', '{"text": "x"}',
        '{"queue": "idle", "unique_key": "sql", "unique_while": "live", "on_conflict": "replace"}')"#;
    let (first, second): (String, String) = (value(world, with, &[]).await?, value(world, with, &[]).await?);
    ensure!((first.as_str(), second.as_str()) == ("enqueued", "replaced"), "{first}, {second}");
    run(world, "select queue.set_capacity('sql_full', 1)", &[]).await?;
    let each = r#"select string_agg(outcome, ' ') from queue.enqueue_each(array['conf_echo', 'conf_echo'],
        array['{"text": "x"}', '{"text": "y"}']::jsonb[], array['{"queue": "idle"}', '{"queue": "idle", "unique_key": "sql"}']::jsonb[])"#;
    let outcomes: String = value(world, each, &[]).await?;
    ensure!(outcomes == "enqueued kept", "{outcomes}");
    let tried = r#"select outcome from queue.try_enqueue('conf_echo', '{"text": "x"}', '{"queue": "sql_full"}')"#;
    let (first, second): (String, String) = (value(world, tried, &[]).await?, value(world, tried, &[]).await?);
    ensure!((first.as_str(), second.as_str()) == ("enqueued", "at_capacity"), "{first}, {second}");
    Ok(())
}

async fn wait(world: &World) -> Result<()> {
    let id: String = value(world, r#"select queue.enqueue('conf_echo', '{"text": "waited"}')::text"#, &[]).await?;
    let output: String = value(world, "select output #>> '{}' from queue.wait($1::bigint, '20 s')", &[&id]).await?;
    ensure!(output == "waited");
    is(world, &id, "completed").await?;
    let never = idle(world).await?;
    let waited = query(world, "select * from queue.wait($1::bigint, '50 ms')", &[&never]).fetch_all(world.pool()).await?;
    ensure!(waited.is_empty(), "the wait returned a state");
    Ok(())
}

fn code(error: &anyhow::Error) -> Option<String> {
    let database = error.chain().find_map(|cause| cause.downcast_ref::<sqlx::Error>())?.as_database_error()?;
    database.code().map(std::borrow::Cow::into_owned)
}

async fn endless(world: &World) -> Result<()> {
    let id = idle(world).await?;
    let mut tx = world.pool().begin().await?;
    sqlx::raw_sql("set transaction isolation level repeatable read").execute(&mut *tx).await?;
    let refused = query(world, "select * from queue.wait($1::bigint, '1 s')", &[&id]).fetch_all(&mut *tx).await;
    tx.rollback().await?;
    let code = refused.err().and_then(|error| error.as_database_error().and_then(DatabaseError::code).map(std::borrow::Cow::into_owned));
    match code.as_deref() {
        Some("25000") => Ok(()),
        // On Citus, the store's own node rejects a wait under repeatable read with this code.
        Some("0A000") => not_on_citus(world, "the store's own node refuses writes under repeatable read"),
        _ => bail!("{code:?}"),
    }
}

async fn signal(world: &World) -> Result<()> {
    let id: String = value(world, r#"select queue.enqueue('conf_receives', '{"timeout_ms": null}', '{"after": 0.4}')::text"#, &[]).await?;
    let sent: String = value(world, r#"select queue.signal($1::bigint, 'word', '"by SQL"')"#, &[&id]).await?;
    ensure!(sent == "sent");
    rows(world, "select name, at from queue.signals($1::bigint)", &[&id]).await?;
    let output: String = value(world, "select output #>> '{}' from queue.wait($1::bigint, '20 s')", &[&id]).await?;
    ensure!(output == "by SQL");
    ensure!(rows(world, "select name, at from queue.steps($1::bigint)", &[&id]).await? == 1);
    let outcome: String = value(world, "select queue.signal($1::bigint, 'word')", &[&id]).await?;
    ensure!(outcome == "over");
    Ok(())
}

async fn children(world: &World) -> Result<()> {
    let parent: String = value(world, "select queue.enqueue('conf_parent', '{}')::text", &[]).await?;
    let mapper: String = value(world, r#"select queue.enqueue('conf_mapper', '{"parts": 4, "most": 3}')::text"#, &[]).await?;
    for id in [&parent, &mapper] {
        let state: String = value(world, "select state from queue.wait($1::bigint, '20 s')", &[id]).await?;
        ensure!(state == "completed", "{state}");
    }
    ensure!(rows(world, "select * from queue.children($1::bigint)", &[&parent]).await? == 2);
    rows(world, "select * from queue.gathers($1::bigint)", &[&mapper]).await?;
    Ok(())
}

async fn flow(world: &World) -> Result<()> {
    let flow = r#"select queue.enqueue_flow('sql', '[
        {"name": "first", "job_type": "conf_piece", "payload": {"n": 3, "dies": false}},
        {"name": "after", "job_type": "conf_after", "payload": {"before": {"$of": "first"}}},
        {"name": "never", "job_type": "conf_echo", "payload": {"text": "x"}, "on_dead": ["first"]},
        {"name": "many", "job_type": "conf_piece", "jobs": [{"n": 1, "dies": false}, {"n": 2, "dies": false}], "in_flight": 1}]')::text"#;
    let id: String = value(world, flow, &[]).await?;
    let after: String = value(world, "select id::text from queue.nodes($1::bigint) where name = 'after'", &[&id]).await?;
    let output: String = value(world, "select output #>> '{}' from queue.wait($1::bigint, '20 s')", &[&after]).await?;
    ensure!(output == "3", "{output}");
    let waiting = r#"select queue.enqueue_flow('sql', '[
        {"name": "first", "job_type": "conf_echo", "payload": {"text": "x"}, "options": {"queue": "idle"}},
        {"name": "second", "job_type": "conf_echo", "payload": {"text": "y"}, "after": ["first"]}]')::text"#;
    let id: String = value(world, waiting, &[]).await?;
    run(world, "select queue.cancel_flow($1::bigint)", &[&id]).await?;
    is(world, &id, "cancelled").await
}

async fn change_jobs(world: &World) -> Result<()> {
    let id = idle(world).await?;
    run(world, "select queue.reschedule($1::bigint, now() + interval '1 hour')", &[&id]).await?;
    is(world, &id, "scheduled").await?;
    run(world, "select queue.snooze($1::bigint, '1 hour')", &[&id]).await?;
    run(world, "select queue.set_priority($1::bigint, 7)", &[&id]).await?;
    run(world, "select queue.run_now($1::bigint)", &[&id]).await?;
    is(world, &id, "ready").await?;
    let became: String = value(world, "select queue.cancel($1::bigint)", &[&id]).await?;
    ensure!(became == "cancelled");
    is(world, &id, "cancelled").await
}

async fn dies(world: &World) -> Result<String> {
    let id: String = value(world, r#"select queue.enqueue('conf_piece', '{"n": 1, "dies": true}')::text"#, &[]).await?;
    let state: String = value(world, "select state from queue.wait($1::bigint, '20 s')", &[&id]).await?;
    ensure!(state == "dead", "{state}");
    Ok(id)
}

async fn dead(world: &World) -> Result<()> {
    let id = dies(world).await?;
    run(world, "select queue.requeue($1::bigint)", &[&id]).await?;
    let job = JobRef::from_id(id.parse::<JobId>()?).in_store(world.store);
    world.wait_for_state(job, JobState::Dead).await?;
    run(world, "select queue.discard($1::bigint)", &[&id]).await?;
    ensure!(rows(world, "select * from queue.status($1::bigint)", &[&id]).await? == 0);
    Ok(())
}

async fn many(world: &World) -> Result<()> {
    let ids = format!("{{{},{}}}", idle(world).await?, idle(world).await?);
    for (statement, expected) in [
        ("select count(*) from queue.set_priority_all($1::bigint[], 3)", 2),
        ("select count(*) from queue.reschedule_all($1::bigint[], now() + interval '1 hour')", 2),
        ("select count(*) from queue.run_now_all($1::bigint[])", 2),
        ("select count(*) from queue.cancel_running_all($1::bigint[])", 0),
        ("select count(*) from queue.cancel_waiting_all($1::bigint[])", 2),
        ("select count(*) from queue.discard_all($1::bigint[])", 0),
        ("select count(*) from queue.requeue_all($1::bigint[])", 0),
    ] {
        let done: i64 = value(world, statement, &[&ids]).await?;
        ensure!(done == expected, "{statement}: {done}");
    }
    let ids = format!("{{{},{}}}", dies(world).await?, dies(world).await?);
    let requeued: i64 = value(world, "select count(*) from queue.requeue_all($1::bigint[])", &[&ids]).await?;
    ensure!(requeued == 2, "{requeued} of two jobs were requeued");
    Ok(())
}

async fn pause(world: &World) -> Result<()> {
    run(world, "select queue.pause('sql_paused', reason => 'a test')", &[]).await?;
    ensure!(rows(world, "select * from queue.pauses() where queue = 'sql_paused' and reason = 'a test'", &[]).await? == 1);
    rows(world, "select * from queue.pause_awaits('sql_paused')", &[]).await?;
    ensure!(value::<bool>(world, "select queue.resume('sql_paused')", &[]).await?);
    Ok(())
}

async fn limit(world: &World) -> Result<()> {
    run(world, "select queue.set_limit('sql_limit', 3, 10, '1 minute', 2, 'a test', true)", &[]).await?;
    ensure!(rows(world, "select * from queue.limits() where name = 'sql_limit' and concurrency = 3", &[]).await? == 1);
    run(world, "select queue.set_limit_key('sql_limit', 'acme', 1)", &[]).await?;
    ensure!(rows(world, "select * from queue.limit_keys('sql_limit')", &[]).await? == 1);
    run(world, "select queue.set_limit_key('sql_limit', 'acme', null)", &[]).await?;
    let id = idle(world).await?;
    ensure!(rows(world, "select * from queue.waits_for($1::bigint)", &[&id]).await? == 0);
    ensure!(value::<bool>(world, "select queue.unset_limit('sql_limit')", &[]).await?);
    Ok(())
}

async fn bounds(world: &World) -> Result<()> {
    run(world, "select queue.set_weight('conf_fair', 'sql', 2)", &[]).await?;
    run(world, "select queue.set_weight('conf_fair', 'sql', null)", &[]).await?;
    run(world, "select queue.set_capacity('sql_bound', 5)", &[]).await?;
    ensure!(rows(world, "select * from queue.capacities() where queue = 'sql_bound'", &[]).await? == 1);
    run(world, "select queue.set_capacity('sql_bound', null)", &[]).await
}

async fn schedule(world: &World) -> Result<()> {
    let made = r#"select queue.schedule('sql_hourly', 'conf_echo', '{"text": "hourly"}', '{"cron": "0 * * * *", "tz": "Europe/Berlin", "queue": "idle"}')"#;
    run(world, made, &[]).await?;
    ensure!(rows(world, "select * from queue.schedule where name = 'sql_hourly'", &[]).await? == 1);
    run(world, "select queue.pause_schedule('sql_hourly')", &[]).await?;
    run(world, "select queue.resume_schedule('sql_hourly')", &[]).await?;
    let is_planned = "select next_at is not null from queue.schedule where name = 'sql_hourly'";
    world.until("a worker has planned it", async || value(world, is_planned, &[]).await).await?;
    run(world, "select queue.skip_schedule('sql_hourly')", &[]).await?;
    let id: String = value(world, "select queue.run_schedule('sql_hourly')::text", &[]).await?;
    is(world, &id, "ready").await?;
    ensure!(value::<bool>(world, "select queue.unschedule('sql_hourly')", &[]).await?);
    Ok(())
}

async fn views(world: &World) -> Result<()> {
    let id = idle(world).await?;
    ensure!(rows(world, "select * from queue.list(queue => 'idle', most => 5) where id is not null", &[]).await? == 5);
    ensure!(rows(world, "select * from queue.reader_list(in_queue => 'idle', most => 5) where id is not null", &[]).await? == 5);
    for find in ["select * from queue.find($1::bigint)", "select * from queue.reader_find($1::bigint)"] {
        ensure!(rows(world, find, &[&id]).await? == 1);
    }
    ensure!(rows(world, "select * from queue.counts() where queue = 'idle'", &[]).await? > 0);
    ensure!(rows(world, "select * from queue.oldest() where queue = 'idle'", &[]).await? == 1);
    let ready: i64 = value(world, "select ready from queue.backlog('idle')", &[]).await?;
    ensure!(ready > 0);
    ensure!(rows(world, "select * from queue.workers() where alive", &[]).await? == 1);
    ensure!(rows(world, "select * from queue.jobs where id = $1::bigint", &[&id]).await? == 1);
    Ok(())
}

async fn depths(world: &World) -> Result<()> {
    rows(world, "select * from queue.depths('{idle,default}')", &[]).await?;
    rows(world, "select * from queue.depth('idle')", &[]).await?;
    ensure!(value::<i64>(world, "select queue.fair_id_of('acme')", &[]).await? != 0);
    Ok(())
}

async fn reports(world: &World) -> Result<()> {
    let history = "select queue.quantile(run, 0.99) from queue.history()";
    world.until("workers have written their counters", async || Ok(rows(world, history, &[]).await? > 0)).await?;
    let id = idle(world).await?;
    ensure!(rows(world, "select kind, message from queue.why($1::bigint)", &[&id]).await? > 0);
    ensure!(rows(world, "select * from queue.logs($1::bigint)", &[&id]).await? == 0);
    Ok(())
}

async fn refused(world: &World) -> Result<()> {
    let id = idle(world).await?;
    for (statement, expected) in [
        ("select queue.requeue($1::bigint)", "55000"),
        ("select queue.cancel($1::bigint - $1::bigint)", "P0002"),
        (r"select queue.enqueue('conf_echo', '{}', jsonb_build_object('no option', $1))", "22023"),
        (r#"select queue.enqueue('conf_echo', jsonb_build_object('text', $1), '{"queue": "sql_full"}')"#, "QCAPA"),
    ] {
        let Err(error) = run(world, statement, &[&id]).await else { anyhow::bail!("{statement} was not refused") };
        ensure!(code(&error).as_deref() == Some(expected), "{statement}: {error:#}");
    }
    Ok(())
}
