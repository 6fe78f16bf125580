//! Tests the pruning of finished jobs and other expired rows. The pruning deletes up to the requested number of rows and skips rows that
//! another session has locked.

use super::{cases, sql};

/// Defines functions that create a job with one failure. The job finished a given number of hours ago, and its day has no partition.
macro_rules! past {
    ($given:literal) => {
        concat!(
            "create function past(name text, job_type text) returns bigint language sql as $$
               with j as (
                 insert into queue.job (id, lane, max_attempts, payload)
                 select queue.id_at(now() - interval '20 days') + nextval('queue.id_seq'),
                   queue.ensure_lane('default', job_type, 100::smallint, false), 3, '{}'
                 returning id
               ), f as (insert into queue.failure (id, attempt, at, ran_ms, error) select id, 1, now(), 1, 'once' from j)
               insert into named select name, id from j returning value::bigint $$;
             create function done(name text, job_type text, hours int) returns void language sql as $$
               insert into queue.done (id, finished_at, ran_ms, attempts)
               select past(name, job_type), now() - hours * interval '1 hour', 1, 2 $$;
             create function plain(name text, job_type text, hours int) returns void language sql as $$
               insert into queue.done_many (first_id, last_id, finished_at, lane, ids)
               select p, p, now() - hours * interval '1 hour', queue.lane_id('default', job_type, 100, false), array[p]
               from past(name, job_type) p $$;
             create function dead(name text, hours int) returns void language sql as $$
               insert into queue.dead (id, died_at, lane, attempts, crashes, error)
               select past(name, 'do'), now() - hours * interval '1 hour', queue.lane_id('default', 'do', 100, false), 1, 0, 'x' $$;",
            $given
        )
    };
}

/// Query for the jobs, and for the jobs with failures. Both results must be equal.
const JOBS: &str = "select array_agg(id order by id) from queue.job union all select array_agg(id order by id) from queue.failure";

const HISTORY: &str = past!(
    "select done('d' || n, 'do', 240) from generate_series(1, 23) n; select plain('p' || n, 'do', 240) from generate_series(1, 4) n;
     select done('recent', 'do', 1), plain('recent, too', 'do', 1)"
);
const HELD_HISTORY: &str =
    "select from queue.done where id = job('d1') for update; select from queue.done_many where first_id = job('p1') for update";
const LEFT_OF_HISTORY: (&str, &str, &str) =
    (JOBS, "{d1,p1,recent,recent, too}, {d1,p1,recent,recent, too}", "{recent,recent, too}, {recent,recent, too}");

cases! {
    /// The statement assumes about ten jobs per row of `done_many`. With a maximum of 20, it deletes up to 20 rows of `done` and 2 rows
    /// of `done_many`.
    fn history_is_deleted_up_to_the_given_number {
        given: HISTORY,
        held: HELD_HISTORY, act: sql!("prune_done"),
        meanwhile: &[("7 * 86400, 20", "22"), ("7 * 86400, 20", "3")], beside: Some("0"),
        after: &[("7 * 86400, 20", "2"), ("7 * 86400, 20", "0")], left: LEFT_OF_HISTORY,
    }
    fn history_is_deleted_by_types_up_to_the_given_number {
        given: HISTORY,
        held: HELD_HISTORY, act: sql!("prune_kept"),
        meanwhile: &[("7 * 86400, 20", "22"), ("7 * 86400, 20", "3")], beside: Some("0"),
        after: &[("7 * 86400, 20", "2"), ("7 * 86400, 20", "0")], left: LEFT_OF_HISTORY,
    }
    fn history_of_a_type_with_a_shorter_retention_is_deleted {
        given: past!(
            "insert into queue.retention (job_type, history) values ('brief', '1 hour');
             select done('d' || n, 'brief', 2), plain('p' || n, 'brief', 2) from generate_series(1, 2) n"
        ),
        held: HELD_HISTORY, act: sql!("prune_early"),
        meanwhile: &[("'brief', 100, 30 * 86400", "f")], left: (JOBS, "{d1,p1}, {d1,p1}", ""),
    }
    fn dead_letters_are_deleted_starting_with_the_oldest {
        given: past!("select dead('dead for ' || h, h) from unnest('{1,200,300,400,500}'::int[]) h"),
        held: "select from queue.dead where id = job('dead for 500') for update", act: sql!("prune_dead"),
        meanwhile: &[("7 * 86400, 2", "2"), ("7 * 86400, 2", "1")], beside: Some("0"), after: &[("7 * 86400, 2", "1")],
        left: (JOBS, "{dead for 1,dead for 500}, {dead for 1,dead for 500}", "{dead for 1}, {dead for 1}"),
    }
    /// Among the unlocked dead letters, the oldest are deleted first.
    fn the_oldest_dead_letters_are_deleted_first {
        given: past!("select dead('dead for ' || h, h) from unnest('{200,300,400,500}'::int[]) h"),
        held: "select from queue.dead where id = job('dead for 500') for update", act: sql!("prune_dead"),
        meanwhile: &[("7 * 86400, 2", "2")], left: (JOBS, "{dead for 200,dead for 500}, {dead for 200,dead for 500}", ""),
    }
    fn expired_workers_are_deleted_with_their_idle_rows {
        given: "insert into queue.worker (id, expires_at, name, host, pid, version, queues)
             select token(n), now() - interval '2 hours', n, '', 1, '', '{}' from unnest('{a,b}'::text[]) n;
           insert into queue.idle select w.name, w.id from queue.worker w",
        held: "select from queue.worker where name = 'a' for update; select from queue.idle where queue = 'a' for update",
        act: sql!("prune_workers"),
        meanwhile: &[("'{}'", "")], after: &[("'{}'", "")],
        left: ("select name from queue.worker union all select 'idle ' || queue from queue.idle", "a, idle a", ""),
    }
    fn expired_waiters_are_deleted {
        given: "insert into named select n, token(n) from unnest('{a,b}'::text[]) n;
           insert into queue.waiter select token(n), now() - interval '1 s' from unnest('{a,b}'::text[]) n",
        held: "select from queue.waiter where id = token('a') for update", act: sql!("prune_waiters"),
        meanwhile: &[("", "")], after: &[("", "")], left: ("select id from queue.waiter", "a", ""),
    }
    fn reports_of_finished_jobs_are_cleared {
        given: "select put('a'), put('b'); select over('a'), over('b');
           insert into queue.progress (id, attempt, stage) select id, 1, 'said' from queue.job",
        held: "select from queue.progress where id = job('a') for update", act: sql!("clear_progress"),
        meanwhile: &[("jobs('a', 'b')", "1")], beside: Some("0"), after: &[("jobs('a', 'b')", "1")],
        left: ("select id from queue.progress", "a", ""),
    }
    fn steps_of_deleted_jobs_are_deleted {
        given: "select put('a'), put('b'), put('c');
           insert into queue.step (id, name, attempt, at, ran_ms, output)
           select j.id, s, 1, now(), 1, '1' from queue.job j, unnest('{x,y}'::text[]) s;
           select lose('a'), lose('b')",
        held: "select from queue.step where id = job('a') and name = 'x' for update", act: sql!("prune_steps"),
        meanwhile: &[("0, 100", "c")], after: &[("0, 1", "a"), ("job('c'), 100", "-")],
        left: ("select id, name from queue.step order by id, name", "a x, c x, c y", "c x, c y"),
    }
    fn signals_to_deleted_jobs_are_deleted {
        given: "select put('a'), put('b'), put('c'); select park('a', 'go'), park('b', 'go'), park('c', 'go');
           insert into queue.signal (id, name) select id, 'go' from queue.job; select lose('b'), lose('c')",
        held: "select from queue.signal where id = job('b') for update", act: sql!("prune_signals"),
        meanwhile: &[("0, 10", "c")], after: &[("job('c'), 10", "-"), ("0, 10", "b")],
        left: ("select id from queue.signal order by id", "a, b", "a"),
    }
    fn logs_of_deleted_jobs_are_deleted_page_by_page {
        given: "select put(n) from unnest('{a,b,c,d,e,f}'::text[]) n;
           insert into queue.log (id, attempt, at, cut, text) select j.id, n, now(), 0, 'x' from queue.job j, generate_series(1, 2) n;
           select lose('a'), lose('c'), lose('e')",
        held: "select from queue.log where id = job('e') for update", act: sql!("prune_logs"),
        meanwhile: &[("0, 5", "c"), ("job('c'), 5", "f"), ("job('f'), 5", "-")], after: &[("0, 100", "f")],
        left: ("select id, count(*) from queue.log group by id order by id", "b 2, d 2, e 2, f 2", "b 2, d 2, f 2"),
    }
    fn pruning_of_logs_waits_for_no_table_for_long {
        held: "lock table queue.log in access exclusive mode", act: sql!("prune_logs"),
        meanwhile: &[("0, 10", "55P03")], after: &[("0, 10", "-")],
    }
    /// Each scan begins at a random key. The statement runs several times while the keys are locked, so that scans begin at different
    /// keys.
    fn keys_of_finished_jobs_are_deleted {
        given: "select put(n::text, jsonb_build_object('unique_key', n::text)) from generate_series(1, 6) n; select over(name) from named",
        held: "select from queue.unique_key for update", act: sql!("forget_keys"),
        meanwhile: &[("10", "0"), ("10", "0"), ("10", "0"), ("10", "0"), ("10", "0"), ("10", "0"), ("10", "0"), ("10", "0")],
        after: &[("10", "6")], left: ("select count(*) from queue.unique_key", "6", "0"),
    }
}
