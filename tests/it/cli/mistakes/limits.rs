//! Tests the CLI's error messages for invalid limits.

use super::{Fixture, Row};

pub(super) const ROWS: &[Row] = &[
    ("limits x", 2, "unrecognized subcommand 'x'"),
    ("limits set", 2, "required arguments | <NAME>"),
    ("limits set x", 2, "no bounds are given for the limit `x` | give `--concurrency`, `--rate` or both"),
    ("limits set queue:default", 2, "no bounds are given for the limit `queue:default` | give `--concurrency`, `--rate` or both"),
    ("limits set queue:default --concurrency -1", 2, "for '--concurrency <N|none>' | expected a whole number from 0 to 1000000 or `none`"),
    (
        "limits set queue:default --concurrency many",
        2,
        "for '--concurrency <N|none>' | expected a whole number from 0 to 1000000 or `none`",
    ),
    ("limits set queue:default --concurrency 99999999", 2, "the concurrency of the limit is 99999999 | it must be 0 to 1000000"),
    ("limits set queue:default --concurrency 99999999999", 2, "for '--concurrency <N|none>' | expected a whole number from 0 to"),
    ("limits set queue:default --rate 5", 2, "for '--rate <N/PERIOD|none>' | expected starts per period, such as `30/1m`, or `none`"),
    ("limits set queue:default --rate 5/", 2, "for '--rate <N/PERIOD|none>' | expected starts per period, such as `30/1m`, or `none`"),
    ("limits set queue:default --rate 5/s", 2, "for '--rate <N/PERIOD|none>' | expected starts per period, such as `30/1m`, or `none`"),
    ("limits set queue:default --rate 5/0s", 2, "the rate of the limit is 5 in 0s | it must be 1 to 100000 starts within 100 ms to"),
    ("limits set queue:default --rate 0/1s", 2, "the rate of the limit is 0 in 1s | it must be 1 to 100000 starts within 100 ms to"),
    ("limits set queue:default --rate -1/1s", 2, "for '--rate <N/PERIOD|none>' | expected starts per period, such as `30/1m`, or `none`"),
    ("limits set queue:default --rate 5/1M", 2, "for '--rate <N/PERIOD|none>' | months and years differ in length"),
    ("limits set queue:default --rate 5/366d", 2, "the rate of the limit is 5 in 366 days | it must be 1 to 100000 starts within 100"),
    ("limits set queue:default --burst 5", 2, "required arguments | --rate <N/PERIOD|none>"),
    ("limits set queue:default --concurrency 3 --burst 5", 2, "required arguments | --rate <N/PERIOD|none>"),
    ("limits set queue:default --rate 5/1s --burst 0", 2, "for '--burst <N>' | expected a whole number from 1 to 100000"),
    ("limits set queue:default --rate 5/1s --burst 10", 2, "the burst of the limit is 10 | it must be 1 to the starts of its rate,"),
    ("limits set queue:default --rate none --burst 10", 2, "the burst of the limit is 10 | it must be 1 to the starts of its rate,"),
    ("limits set 'a b' --concurrency 3", 2, "`a b` is not a valid limit name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("limits set queue: --concurrency 3", 2, "`` is not a valid queue name: 1 to 64 of the characters A-Z a-z 0-9 _ . : -"),
    ("limits set que:x --concurrency 3", 0, "`que:` is not a kind of limit | write `queue:NAME` or `type:NAME`, unless types share a"),
    ("limits set queue:nowhere --concurrency 3", 0, "no job has ever been enqueued into the queue `nowhere` | there are default, slow"),
    ("limits set type:nosuch --concurrency 3", 0, "no job of the type `nosuch` has ever been enqueued | there are do, nosuchtype"),
    ("limits set slack --concurrency 3", 0, "no type has used the limit `slack` so far | there are queue:nowhere, type:nosuch"),
    ("limits set slack --concurrency 4", 0, "no type has used the limit `slack` so far | there are queue:nowhere, type:nosuch"),
    ("limits set slak --concurrency 3", 0, "no type has used the limit `slak` so far | there are queue:nowhere, type:nosuch"),
    ("limits set type.nosuch --concurrency 3", 0, "no type has used the limit `type.nosuch` so far | did you mean `type:nosuch`?"),
    ("limits set stripe --concurrency 3 --reason {long}", 2, "the reason of a limit is 1100 | it must be at most 1000 characters"),
    ("limits set stripe --key acme --concurrency 3", 0, "acme  3 at once"),
    (
        "limits set strip --key acme --concurrency 3",
        0,
        "no type has used the limit `strip` so far, so this has no effect yet | there are queue:nowhere, type:nosuch",
    ),
    ("limits set stripe --key acme --rate 5/1s", 2, "the argument '--key <KEY>' cannot be used with '--rate <N/PERIOD|none>'"),
    ("limits set stripe --key acme", 2, "required arguments | --concurrency <N|none>"),
    ("limits keys", 2, "required arguments | <NAME>"),
    ("limits unset", 2, "required arguments | <NAME>"),
    ("limits unset nosuch", 3, "nosuch: no operator has set this limit | `test-cli limits` lists the limits"),
    ("limits unset stripe", 3, "stripe: no operator has set this limit | `test-cli limits` lists the limits"),
    ("limits unset stripe", 3, "stripe: no operator has set this limit | `test-cli limits` lists the limits"),
    ("limits remove stripe", 2, "unrecognized subcommand 'remove'"),
    ("limits keys nosuch", 0, "nosuch: no key holds a permit, waits, or has a bound"),
    ("limits keys stripe --limit 5", 2, "unexpected argument '--limit' found"),
];

#[tokio::test]
async fn a_limit_names_the_wrong_number() {
    let fixture = Fixture::new().await;
    fixture.play(&fixture.db.url, ROWS);
    fixture.db.finish().await;
}
