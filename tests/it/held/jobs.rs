//! Tests statements that move or end jobs. The statements skip jobs whose entry or row is locked by another session.

use super::{cases, sql};

const STATES: &str = "select id, state from queue.jobs order by id";

/// SQL that creates jobs with `$given` and moves their deadlines into the past. Also defines the function `look`, which makes all postponed
/// expiry checks due and then expires the due jobs.
macro_rules! expiring {
    ($given:literal) => {
        concat!(
            "create function look() returns int language sql as $$
               update queue.expiry set at = now() - interval '2 s' where looks > 0;
               select coalesce(cardinality(e.expired), 0) from queue.expire_due('-infinity', 1000) e $$;",
            $given,
            ";
             update queue.job set system = queue.with_expiry(system, clock_timestamp() - interval '1 s');
             update queue.expiry set at = clock_timestamp() - interval '1 s'"
        )
    };
}

/// Query that claims the first free job of each fair key (`fair_id`) in the default queue. Returns whether the jobs are in turn order, and
/// their ids.
const CLAIM_FAIR: &str = "select array_agg(c.fair_id) = array_agg(c.fair_id order by c.fair_id), array_agg(c.id order by c.id)
  from queue.claim_fair(gen_random_uuid(), token('worker'), array[queue.lane_id('default', 'do', 100, false)],
    array[-9223372036854775808], array[$1::int], $1, 1000) c";

/// Statement that declares two schedules.
const DECLARE: &str = "select d.name, d.became from queue.declare_schedules(
    token('worker'), '{good,new}', '{do,do}', '{\"{}\",\"{}\"}', array_fill('{\"every\": 60}'::text, array[2])) d";

/// Defines a function that runs a job operation by name.
macro_rules! acts {
    ($given:literal) => {
        concat!(
            "create function act(what text, ids bigint[]) returns setof bigint language plpgsql as $$ begin case what
               when 'cancel' then return query select c from queue.cancel_waiting_all(ids) c;
               when 'put off' then return query select c from queue.reschedule_all(ids, now() + interval '1 hour') c;
               when 'run now' then return query select c from queue.run_now_all(ids) c;
               when 'rank' then return query select c from queue.set_priority_all(ids, 7) c;
               when 'requeue' then return query select c from queue.requeue_all(ids) c;
               when 'discard' then return query select c from queue.discard_all(ids) c;
             end case; end $$;",
            $given
        )
    };
}

cases! {
    /// A claim, an operator, an enqueue with the same key, and an uncommitted completion hold the locks that an expiry needs.
    fn jobs_expire_beside_those_that_are_locked {
        given: expiring!(
            "select put('head', '{\"key\": \"k\", \"expires_in\": 60}'), put('blocked', '{\"key\": \"k\", \"expires_in\": 60}');
             select put('scheduled', '{\"after\": 3600, \"expires_in\": 3600}');
             select put(n, '{\"expires_in\": 60}') from unnest('{ready,claimed,stored,ended}'::text[]) n;
             select put('other ' || n, '{\"expires_in\": 60}') from generate_series(1, 20) n"
        ),
        held: "select from queue.ready where id = job('ready') for update; select from queue.job where id = job('stored') for update;
           select from queue.scheduled where id = job('scheduled') for update;
           select from queue.active_key where id = job('head') for update;
           select from queue.blocked where id = job('blocked') for update; delete from queue.ready where id = job('claimed');
           insert into queue.done (id, finished_at, ran_ms, attempts) values (job('ended'), now(), 1, 1)",
        act: "select look()",
        meanwhile: &[("", "20"), ("", "0")], after: &[("", "7")],
        left: (
            "select (select count(*) from queue.done where expired), (select string_agg(id::text, ' ' order by id) from queue.expiry)",
            "20 head blocked scheduled ready claimed stored ended",
            "27 -",
        ),
    }
    fn two_concurrent_sweeps_expire_different_jobs {
        given: expiring!("select queue.enqueue('do', '{}', '{\"expires_in\": 60}') from generate_series(1, 1500)"),
        held: "select from queue.expire_due('-infinity', 1000)", act: "select look()",
        meanwhile: &[("", "500")], after: &[("", "1000")], left: ("select count(*) from queue.done where expired", "500", "1500"),
    }
    fn a_sweep_waits_for_no_table_for_long {
        given: expiring!("select put('a', '{\"expires_in\": 60}'), put('b', '{\"expires_in\": 60}')"),
        held: "lock table queue.done in exclusive mode", act: "select look()",
        meanwhile: &[("", "0")], after: &[("", "2")],
        left: ("select count(*) from queue.expiry where at > now() and looks = 1", "2", "0"),
    }
    fn due_jobs_are_promoted_up_to_the_given_number {
        given: "select put(n) from unnest('{a,b,c,d}'::text[]) n; select park(name, 'go') from named;
           update queue.parked set run_at = now() - interval '1 s' where id = any (jobs('a', 'b'));
           update queue.parked set run_at = now() + interval '1 h' where id = job('c')",
        held: "select from queue.parked where id = job('a') for update", act: sql!("promote"),
        meanwhile: &[("10", "default 1")], after: &[("0", ""), ("10", "default 1")],
        left: (STATES, "a parked, b ready, c parked, d parked", "a ready, b ready, c parked, d parked"),
    }
    fn jobs_with_signals_are_woken_and_the_hint_of_the_other_stays {
        given: "select put('a'), put('b'); select park('a', 'go'), park('b', 'go'); select queue.signal(id, 'go', '1') from queue.parked",
        held: "select from queue.parked where id = job('a') for update", act: "select w.moved from queue.wake_parked($1, 100) w",
        meanwhile: &[("0", "1"), ("0", "0")], after: &[("0", "1")],
        left: (
            "select id, state from queue.jobs union all select id, 'has a hint' from queue.signal_hint order by 1, 2",
            "a has a hint, a parked, b ready",
            "a ready, b ready",
        ),
    }
    /// If the first job of a fair key is locked, the next job of the key gets its turn.
    fn fair_queues_give_their_first_free_job_in_turn {
        given: "select live(); select put(k || n, jsonb_build_object('fair', k))
           from (values ('a', 2), ('b', 1), ('c', 1), ('d', 2), ('e', 1)) l (k, jobs), generate_series(1, jobs) n",
        held: "select from queue.ready where id = any (jobs('a1', 'c1', 'd1')) for update", act: CLAIM_FAIR,
        meanwhile: &[("5", "t {a2,b1,d2,e1}")], after: &[("5", "t {a1,c1,d1}")],
    }
    fn jobs_are_moved_into_fair_queues_once_and_in_order {
        given: "select put(n::text, jsonb_build_object('fair', n::text, 'after', 60)) from generate_series(1, 6) n;
           select queue.run_now_all(array(select id from queue.scheduled));
           insert into named select 'place of ' || n.name, r.seq from queue.ready r join named n on n.value = r.id::text;
           insert into named values ('lane', queue.lane_id('default', 'do', 100, false))",
        held: "select from queue.ready where id = any (jobs('1', '2', '3', '4')) for update", act: sql!("move_to_fair_lanes"),
        meanwhile: &[("array[job('lane')], '{0}', 10", "lane place of 5 2")],
        after: &[("array[job('lane')], '{0}', 4", "lane place of 1 4"), ("array[job('lane')], '{0}', 10", "")],
        left: ("select id from queue.ready where lane <> job('lane') and fair_id is not null order by seq", "5, 6", "5, 6, 1, 2, 3, 4"),
    }
    fn operations_change_the_jobs_that_are_free {
        given: acts!(
            "select put(n) from unnest('{moved,suspect,ready,running}'::text[]) n;
             select put('scheduled', '{\"after\": 3600}'), put('head', '{\"key\": \"k\"}'), put('blocked', '{\"key\": \"k\"}');
             update queue.ready set seq = queue.next_id() where id = job('moved');
             update queue.ready set lane = queue.ensure_lane('default', 'do', 100::smallint, true) where id = job('suspect');
             select lease('L', 'running')"
        ),
        held: "select from queue.ready for update; select from queue.scheduled for update; select from queue.blocked for update",
        act: "select array_agg(a order by a) from act($1, array(select id from queue.job)) a",
        meanwhile: &[("'cancel'", "-"), ("'put off'", "-"), ("'run now'", "-"), ("'rank'", "-")],
        after: &[("'cancel'", "{moved,suspect,ready,scheduled,head,blocked}")],
        left: ("select count(*) from queue.done where cancelled", "0", "6"),
    }
    fn operators_requeue_and_discard_the_dead_letters_that_are_free {
        given: acts!(
            "select put(n) from unnest('{a,b,c,d}'::text[]) n;
             with gone as (delete from queue.ready returning id, lane)
             insert into queue.dead (id, died_at, lane, attempts, crashes, error) select id, now(), lane, 1, 0, 'x' from gone"
        ),
        held: "select from queue.dead where id = any (jobs('a', 'c')) for update",
        act: "select array_agg(a order by a) from act($1, $2) a",
        meanwhile: &[("'requeue', jobs('a', 'b')", "{b}"), ("'discard', jobs('c', 'd')", "{d}")],
        left: (STATES, "a dead, b ready, c dead", ""),
    }
    fn ticks_wait_for_no_schedule {
        given: "select queue.schedule('a', 'do', '{}', '{\"every\": 1}'); update queue.schedule set next_at = now() - interval '1 s'",
        held: "select from queue.schedule for update",
        act: "select f.outcome from queue.schedule s,
          queue.fire_ticks(s.name, s.definition, s.next_at, array[s.next_at], 'enqueue', now() + interval '1 h', null) f",
        meanwhile: &[("", "")], after: &[("", "enqueued")],
    }
    /// The earlier declaration of the locked schedule remains in effect.
    fn schedules_are_declared_beside_one_that_is_locked {
        given: "select live(); select queue.declare_schedules(token('worker'), '{good}', '{do}', '{\"{}\"}', array['{\"every\": 60}'])",
        held: "select from queue.declaration for update", act: DECLARE,
        meanwhile: &[("", "good held up: canceling statement due to lock timeout")], after: &[("", "")],
        left: (
            "select array_agg(d.name order by d.name), cardinality(w.declares) from queue.declaration d, queue.worker w group by 2",
            "{good,new} 2",
            "{good,new} 2",
        ),
    }
    fn schedules_are_elected_beside_a_declaration_that_is_locked {
        given: "select live();
           select queue.declare_schedules(token('worker'), '{good,new}', '{do,do}', '{\"{}\",\"{}\"}',
             array_fill('{\"every\": 60}'::text, array[2]));
           update queue.declaration set last_seen = now() - interval '2 h' where name = 'good'",
        held: "select from queue.declaration where name = 'good' for update",
        act: "select array_agg(e.name order by e.name) from queue.elect_schedules() e where e.became = 'in force'",
        meanwhile: &[("", "{good,new}")],
    }
}
