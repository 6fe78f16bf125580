//! Worker of the shop: `DATABASE_URL=.. cargo run -p shop-worker -- run --migrate`. Contains the handlers of the job types in
//! `shop-domain`.

use queue_core::{Context, Job as _, JobResult, durable::Durable, handler};
use shop_domain::{DailyReport, FulfilOrder, SendMail};
use sqlx::{PgConnection, PgPool};

/// Client of a simulated mail service. Only the worker program links this client; the web server does not.
struct Mailer;

impl Mailer {
    async fn send(&self, to: &str, text: &str) -> std::io::Result<()> {
        tokio::task::yield_now().await;
        println!("to {to}: {text}");
        Ok(())
    }
}

/// Simulates a payment service that accepts an idempotency key.
async fn charge(order: i64, key: String) -> std::io::Result<String> {
    tokio::task::yield_now().await;
    Ok(format!("receipt of order {order}, {}", key.len()))
}

#[handler]
async fn fulfil_order(job: FulfilOrder, cx: &Durable) -> JobResult {
    let receipt = cx.step("charge", charge(job.order, cx.key("charge"))).await?;
    // The receipt, the enqueue of the mail and the journal entry of the step commit together.
    let book = async |tx: &mut PgConnection| {
        let book = sqlx::query_scalar("update orders set receipt = $2 where id = $1 returning email").bind(job.order).bind(&receipt);
        let to = book.fetch_one(&mut *tx).await?;
        SendMail { to, text: receipt.clone() }.enqueue(tx).await.map(|mail| mail.id())
    };
    cx.step_tx("book", book).await?;
    Ok(())
}

#[handler(state(Mailer))]
async fn send_mail(job: SendMail, cx: &Context) -> JobResult {
    cx.state::<Mailer>().send(&job.to, &job.text).await?;
    Ok(())
}

#[handler]
async fn daily_report(_: DailyReport, cx: &Context) -> JobResult {
    let orders: i64 = sqlx::query_scalar("select count(*) from orders").fetch_one(cx.pool()).await?;
    println!("{orders} orders");
    Ok(())
}

/// Creates the state of the handlers.
async fn mailer(_: PgPool) -> sqlx::Result<Mailer> {
    Ok(Mailer)
}

queue_worker::main!(; state = mailer);
