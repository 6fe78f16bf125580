//! Tests that a caller can neither forge the identity of the enqueuing role nor read the secrets of the store.

use sqlx::Executor as _;

use super::RoledStore;

/// Statements that create security definer functions, which enqueue with the privileges of `mailer`. They also create a table and an
/// immutable function, so that an index build can call one of the security definer functions.
const BORROWED: &str = "
    create function shop.lend() returns bigint language sql volatile security definer as $$ select queue.insert_job('do', '{}', 'secret') $$;
    create function shop.lend_all() returns bigint language sql volatile security definer
    as $$ select queue.enqueue('do', '{}', '{\"queue\": \"secret\", \"meta\": {\"a\": 1}}') $$;
    create function shop.told(n int) returns bigint language plpgsql immutable as $$ begin return case when n > 0 then shop.lend() end; end $$;
    create table shop.trap (n int);
    insert into shop.trap values (1);
    grant usage on schema shop to public";

#[tokio::test]
#[ignore = "deep"]
async fn a_producer_for_some_queues_cannot_enqueue_as_another_role() {
    let store = RoledStore::new().await;
    store.run("create role guests; grant guests to mailer; create schema shop authorization mailer").await;
    store.tries("mailer", BORROWED).await.unwrap();
    // The functions are called by their owner and by other users. The owner also calls the functions after assuming a role without
    // privileges on the store.
    for sql in ["select shop.lend()", "select shop.lend_all()"] {
        for user in ["mailer", "web", "nobody_else", "viewer"] {
            store.is_denied(user, sql).await;
        }
        store.is_denied("mailer", &format!("set role guests; {sql}")).await;
        store.is_denied("postgres", sql).await;
    }
    // An index build runs with the privileges of the table's owner. A build by another user must not enqueue with these privileges
    // either.
    store.is_denied("postgres", "create index on shop.trap (shop.told(n))").await;
    // A caller can only pass its own identity.
    for caller in ["null", "'web'", "'web'::queue.caller", "'postgres'", "('{web}'::queue.caller[])[1]", "''"] {
        for sql in [
            format!("select queue.insert_job('do', '{{}}', 'secret', caller => {caller})"),
            format!("select queue.producer_enqueue('do', '{{}}', {caller})"),
            format!("select queue.producer_enqueue_with('do', '{{}}', '{{\"queue\": \"secret\"}}', {caller})"),
        ] {
            let refused = store.tries("mailer", &sql).await.unwrap_err();
            assert!(refused.starts_with("42501 ") || refused.contains("caller_is_oneself"), "{sql}: {refused}");
        }
    }
    store.is_denied("mailer", "create function pg_temp.f(queue.caller) returns int language sql return 1").await;
    assert_eq!(store.db.count("select count(*) from queue.job").await.unwrap(), 0);
    store.tries("mailer", "select queue.insert_job('do', '{}', 'mail')").await.unwrap();
    store.tries("web", "select queue.insert_job('do', '{}', 'secret')").await.unwrap();
    store.tries("postgres", "select queue.insert_job('do', '{}', 'secret')").await.unwrap();
    store.server.stop().unwrap();
}

/// A session can print the plans of all statements with their parameter values, including statements inside the SQL entry points.
#[tokio::test]
#[ignore = "deep"]
async fn no_secret_of_the_store_is_in_a_plan_that_its_caller_has_printed() {
    let store = RoledStore::new().await;
    store.run("alter role web set log_error_verbosity = verbose; select queue.set_capacity('bounded', 20)").await;
    let marks: String = sqlx::query_scalar("select marks from queue.secret").fetch_one(&store.db.pool).await.unwrap();
    let mut web = store.connect("web").await;
    // The pretty format breaks lines in the middle of numbers.
    web.execute(sqlx::raw_sql("set debug_print_plan = on; set debug_pretty_print = off")).await.unwrap();
    for sql in [
        "select queue.insert_job('do', '{}', 'bounded') from generate_series(1, 7)",
        "select queue.enqueue('do', '{}', '{\"queue\": \"bounded\", \"key\": \"k\", \"unique_key\": \"u\"}') from generate_series(1, 7)",
        "begin isolation level repeatable read; select queue.enqueue('do', '{}', '{\"queue\": \"bounded\"}'); commit",
        "select queue.channel('wake'), queue.status(1), queue.job_states('{1}')",
    ] {
        web.execute(sqlx::raw_sql(sql)).await.unwrap();
    }
    let log = "select pg_read_file(current_setting('data_directory') || '/../postgres.log')";
    let log: String = sqlx::query_scalar(log).fetch_one(&store.db.pool).await.unwrap();
    let values: Vec<Vec<u8>> = log.split('[').map(|value| value.split_whitespace().map_while(byte).collect()).collect();
    let shown = |word: &str| values.iter().any(|value| value.windows(word.len()).any(|bytes| bytes == word.as_bytes()));
    assert!(shown("bounded"), "values are printed");
    assert!(!shown(&marks), "the secret is printed");
    store.server.stop().unwrap();
}

/// Parses a byte, which plans print as a signed number.
fn byte(number: &str) -> Option<u8> {
    number.parse::<i8>().ok().map(i8::cast_unsigned)
}
