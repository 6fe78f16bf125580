//! Tests leases. Writes under one lease do not wait for other leases, and claims under limits read locked leases.

use super::{cases, sql};

const STATES: &str = "select id, state from queue.jobs order by id";
const STEPS: &str = "select id, name from queue.step order by id, name";

/// Query that claims jobs of the type `do` under its per-key limit. `$1` lists the tokens of ended leases.
const CLAIM_KEYED: &str = "select array_agg(c.id order by c.id)
  from queue.claim_keyed(gen_random_uuid(), token('worker'), array[queue.hash('type:do')],
    array[queue.lane_id('default', 'do', 100, false)], array[0], array[true], array[50], 50, $1, 0, null) c where c.id is not null";

cases! {
    fn verdicts_wait_for_no_other_lease {
        given: "select put('a'), put('b'); select lease('A', 'a'), lease('B', 'b')",
        held: "select from queue.lease where token = token('A') for update", act: sql!("settle"),
        meanwhile: &[(
            "array[token('B')], jobs('b'), '{retry}', array[queue.lane_id('default', 'do', 100, false)], '{1}', '{0}', '{60000}', '{7}',
              '{null}', '{as told}', '{null}', '{f}'",
            "",
        )],
        left: (STATES, "a running, b scheduled", ""),
    }
    fn verdicts_that_leave_no_record_wait_for_no_other_lease {
        given: "select put('a'), put('b'); select lease('A', 'a'), lease('B', 'b')",
        held: "select from queue.lease where token = token('A') for update", act: sql!("settle_forgotten"),
        meanwhile: &[("array[token('B')], jobs('b'), '{null}', job('b'), job('b')", "")], left: (STATES, "a running", ""),
    }
    fn steps_wait_for_no_other_lease {
        given: "select put('a'), put('b'); select lease('A', 'a'), lease('B', 'b')",
        held: "select from queue.lease where token = token('A') for update", act: sql!("journal"),
        meanwhile: &[("array[token('B')], jobs('b'), '{x}', '{1}', '{5}', '{null}', '{1}'", "B b x")], left: (STEPS, "b x", ""),
    }
    fn reports_wait_for_no_other_lease {
        given: "select put('a'), put('b'); select lease('A', 'a'), lease('B', 'b')",
        held: "select from queue.lease where token = token('A') for update", act: sql!("record_progress"),
        meanwhile: &[("array[token('B')], jobs('b'), '{1}', '{null}', '{here}', '{\"{}\"}', '{null}'", "B b")],
        left: ("select id, stage from queue.progress", "b here", ""),
    }
    /// For the job under the locked lease, the result reports that the lease is locked.
    fn signals_are_received_beside_a_lease_that_is_locked {
        given: "select put('a'), put('b'); select lease('A', 'a'), lease('B', 'b'); select queue.signal(id, 'go', '1') from queue.job",
        held: "select from queue.lease where token = token('A') for update", act: sql!("receive"),
        meanwhile: &[(
            "array[token('A'), token('B'), token('B')], jobs('a', 'b', 'a'), '{x,y,z}', '{1,1,1}', '{go,go,go}', '{null,null,null}'",
            "B b y f f 1 t, A a x t f - f",
        )],
        after: &[("array[token('A')], jobs('a'), '{x}', '{1}', '{go}', '{null}'", "A a x f f 1 t")], left: (STEPS, "b y", "a x, b y"),
    }
    fn cancels_of_running_jobs_wait_for_no_other_lease {
        given: "select put('a'), put('b'); select lease('A', 'a'), lease('B', 'b')",
        held: "select from queue.lease where token = token('A') for update", act: "select c from queue.cancel_running_all($1) c",
        meanwhile: &[("jobs('b')", "b")], left: ("select token, cancelling from queue.lease order by ids", "A -, B {b}", ""),
    }
    fn logs_wait_for_no_table_for_long {
        given: "select put('a')",
        held: "lock table queue.log in access exclusive mode", act: sql!("write_logs"),
        meanwhile: &[("'{null}', jobs('a'), '{1}', '{0}', '{x}'", "55P03")], after: &[("'{null}', jobs('a'), '{1}', '{0}', '{x}'", "1")],
    }
    fn claims_by_key_skip_an_entry_of_the_key_and_take_its_next {
        given: "select live(); select queue.set_limit('type:do', 2, keyed => true);
           select put(n, jsonb_build_object('fair', left(n, 1))) from unnest('{a1,a2,b,c}'::text[]) n",
        held: "select from queue.ready where id = job('a1') for update", act: CLAIM_KEYED,
        meanwhile: &[("'{}'", "{a2,b,c}")], after: &[("'{}'", "{a1}")],
    }
    /// The claim reads the locked lease and finds it unchanged, even though the caller has reported it as ended.
    fn claims_by_key_read_a_lease_that_is_locked {
        given: "select live(); select queue.set_limit('type:do', 2, keyed => true);
           select put(n, jsonb_build_object('fair', left(n, 1))) from unnest('{a1,a2,b,c}'::text[]) n;
           insert into named select 'L', token('L');
           select c.id from queue.claim_keyed(token('L'), token('worker'), array[queue.hash('type:do')],
             array[queue.lane_id('default', 'do', 100, false)], array[0], array[true], array[3], 3, '{}', 0, null) c",
        held: "select from queue.lease for update", act: CLAIM_KEYED,
        meanwhile: &[("array[token('L')]", "{a2}")],
    }
    #[ignore = "deep"]
    fn limits_are_set_without_waiting_forever_for_pauses {
        held: "lock table queue.paused in share row exclusive mode", act: "select queue.set_limit('x', 1)",
        meanwhile: &[("", "55P03")],
    }
    #[ignore = "deep"]
    fn limits_are_unset_without_waiting_forever_for_pauses {
        held: "lock table queue.paused in share row exclusive mode", act: "select queue.unset_limit('x')",
        meanwhile: &[("", "55P03")],
    }
}
