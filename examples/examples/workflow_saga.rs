//! Order as a saga: each operation has a compensation. If a later operation is refused, the completed operations are compensated in reverse
//! order.

use std::time::Duration;

use queue_core::{Failure, Handler, Job as _, JobResult, Store, durable::Durable, job, sqlx};
use queue_worker::{Database, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;

#[job(name = "example_order", durable, max_attempts = 5, backoff = fixed("10ms"), output = String)]
#[derive(Serialize, Deserialize)]
struct Order {
    order: i64,
    card: String,
}

/// Answer of a service. A refusal is an answer, not a failure: it is journaled, and the call is not repeated.
type Answer = Result<String, String>;

impl Handler for Order {
    async fn run(self, cx: &Durable) -> JobResult<String> {
        let (shop, mut done) = (Shop(cx.pool().clone()), Vec::new());
        let refused = 'order: {
            for (name, undo) in [("reserve", "release"), ("charge", "refund"), ("ship", "recall")] {
                let asked = shop.ask(name, self.order, &self.card, cx.key(name));
                let answer: Answer = cx.step(name, asked).await?; // an error if the service is unavailable: the step is retried
                match answer {
                    Ok(_) => done.push(undo),
                    Err(why) => break 'order format!("{name}: {why}"),
                }
            }
            return Ok(format!("order {} is on its way", self.order));
        };
        for undo in done.into_iter().rev() {
            // A refused compensation needs a person: the job becomes a dead letter, and continues from here when it is requeued.
            let take_back = async {
                let asked = shop.ask(undo, self.order, &self.card, cx.key(undo)).await?;
                asked.map_err(|why| Failure::terminal(format!("{undo}: {why}")))
            };
            let _: String = cx.step(undo, take_back).await?;
        }
        Ok(format!("order {} is off: {refused}", self.order))
    }
}

/// Simulated external services, which perform each operation once per key. The bank is unavailable at the first call.
struct Shop(PgPool);

impl Shop {
    async fn ask(&self, what: &'static str, order: i64, card: &str, key: String) -> Result<Answer, sqlx::Error> {
        let call =
            "insert into example_calls (key, what, id) values ($1, $2, $3) on conflict (key) do update set tries = example_calls.tries + 1
            returning tries";
        let tries: i32 = sqlx::query_scalar(call).bind(key).bind(what).bind(order).fetch_one(&self.0).await?;
        if what == "charge" && tries == 1 {
            return Err(sqlx::Error::Io(std::io::Error::other("the bank is away")));
        }
        Ok(match what {
            "charge" if card.is_empty() => Err("no card".to_owned()),
            "ship" if order == 9 => Err("we do not ship there".to_owned()),
            _ => Ok(format!("{what} {order}")),
        })
    }
}

/// Returns the names of the operations called for an order, in the order of the calls.
async fn calls(pool: &PgPool, order: i64) -> sqlx::Result<String> {
    let calls = "select coalesce(string_agg(what, ' ' order by n), '') from example_calls where id = $1";
    sqlx::query_scalar(calls).bind(order).fetch_one(pool).await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?; // DATABASE_URL, else an embedded PostgreSQL
    database.migrate(Store::default()).await?;
    let pool = database.pool();
    let queue = database.queue();
    let table = "create table if not exists example_calls (n bigserial, key text primary key, what text, id bigint, tries int default 1);
        truncate example_calls";
    sqlx::raw_sql(table).execute(pool).await?;

    let stop = CancellationToken::new();
    let worker = tokio::spawn(Worker::new(pool.clone()).register::<Order>().run(stop.clone().cancelled_owned()));
    for (order, card, said, called) in [
        (7, "gold", "order 7 is on its way", "reserve charge ship"),
        (8, "", "order 8 is off: charge: no card", "reserve charge release"),
        (9, "gold", "order 9 is off: ship: we do not ship there", "reserve charge ship refund release"),
    ] {
        let job = Order { order, card: card.to_owned() }.enqueue(pool).await?;
        let came = job.wait(&queue).timeout(Duration::from_secs(30)).await?;
        println!("{came} ({})", calls(pool, order).await?);
        assert_eq!((came.as_str(), calls(pool, order).await?.as_str()), (said, called));
    }
    stop.cancel();
    Ok(worker.await??)
}
