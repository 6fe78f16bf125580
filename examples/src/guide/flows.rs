//! Code blocks of `docs/FLOWS.md`.

use queue_core::{
    Context, Error, Handler, JobResult,
    flow::{Counts, Flow, Nested, Node, NodeOutput},
    job, testing,
};
use serde::{Deserialize, Serialize};
use sqlx::PgTransaction;

#[job(name = "guide_flow_fetch", output = String, send_only)]
#[derive(Serialize, Deserialize)]
struct Fetch {
    url: String,
}

#[rustfmt::skip]
#[job]
#[derive(Serialize, Deserialize)]
struct Parse { page: NodeOutput<String> } // `Fetch` has `#[job(output = String)]`

impl Handler for Parse {
    async fn run(self, _: &Context) -> JobResult {
        let page = self.page.value()?;
        if page.is_empty() { Err("an empty page".into()) } else { Ok(()) }
    }
}

#[job(name = "guide_flow_mail", send_only)]
#[derive(Serialize, Deserialize)]
struct Mail {
    user: i64,
}

#[job(name = "guide_flow_refund", send_only)]
#[derive(Serialize, Deserialize)]
struct Refund {
    user: i64,
}

#[rustfmt::skip]
async fn flow(mut tx: PgTransaction<'_>, url: String, user: i64) -> Result<(), Error> {
    use queue_core::flow::{Flow, NodeOutput}; // also `Counts`, `IfDead`, `Nested` and `Node`

    let mut flow = Flow::new("import");
    let fetch = flow.add("fetch", Fetch { url });                              // a node that is ready immediately
    let parse = flow.add("parse", Parse { page: fetch.output() });             // waits for `fetch` and receives its output
    flow.add("mail", Mail { user }).after(&parse);                             // waits for `parse` without receiving its output
    flow.add("refund", Refund { user }).on_dead(&fetch);                       // runs only if `fetch` becomes a dead letter
    let flow = flow.enqueue(&mut tx).await?;                                   // in one transaction: the whole flow or nothing
    Ok(())
}

#[job(name = "guide_flow_import_row", send_only)]
#[derive(Serialize, Deserialize)]
struct ImportRow {
    row: String,
}

#[job(name = "guide_flow_report", send_only)]
#[derive(Serialize, Deserialize)]
struct Report {
    rows: NodeOutput<Counts>,
}

#[rustfmt::skip]
fn many_jobs(flow: &mut Flow, rows: std::vec::IntoIter<String>) {
    let rows = flow.add_all("rows", rows.map(|row| ImportRow { row })).in_flight(50);
    flow.add("report", Report { rows: rows.output() });                        // NodeOutput<Counts>: total, completed, dead, cancelled
}

#[job(name = "guide_flow_charge", output = i64, send_only)]
#[derive(Serialize, Deserialize)]
struct Charge {
    order: i64,
}

#[job(name = "guide_flow_receipt", output = String, send_only)]
#[derive(Serialize, Deserialize)]
struct Receipt {
    charge: NodeOutput<i64>,
}

#[job(name = "guide_flow_ship", send_only)]
#[derive(Serialize, Deserialize)]
struct Ship {
    receipt: NodeOutput<String>,
}

#[rustfmt::skip]
fn nested(mut flow: Flow, stock: Node<Fetch>, order: i64) {
    fn bill(flow: &mut Nested, order: i64) -> Node<Receipt> {
        let charge = flow.add("charge", Charge { order });                     // the node `bill/charge`
        flow.add("receipt", Receipt { charge: charge.output() })               // the node `bill/receipt`
    }

    let mut billing = flow.nested("bill").after(&stock);                       // its first nodes wait for `stock`
    let receipt = bill(&mut billing, order);
    flow.add("ship", Ship { receipt: receipt.output() }).after(&billing);      // waits for the last nodes of `billing`
}

#[tokio::test]
async fn outputs_of_earlier_nodes() {
    let ran = testing::run(Parse { page: NodeOutput::given("<p>".to_owned()) }).await;
    let without = testing::run(Parse { page: NodeOutput::ended_as("dead") }).await;
    assert!(ran.is_completed() && !without.is_completed());
}
