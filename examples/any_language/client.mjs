// npm install pg; node examples/any_language/client.mjs
import pg from "pg";

const db = new pg.Client(process.env.DATABASE_URL);
await db.connect();
await db.query("create temporary table guest (name text)");

// An id is a bigint, which pg returns as a string: pass it on unchanged.
async function enqueue(name, options = {}) {
  const sql = "select queue.enqueue('greet', $1, $2) as id";
  return (await db.query(sql, [{ name }, options])).rows[0].id;
}

async function status(job) {
  return (await db.query("select state, attempts, error from queue.status($1)", [job])).rows[0];
}

async function wait(job, timeout) {
  return (await db.query("select state, output, error from queue.wait($1, $2)", [job, timeout])).rows[0];
}

// The job is part of your transaction: after a rollback it does not exist.
await db.query("begin");
await db.query("insert into guest values ('nobody')");
let job = await enqueue("nobody");
await db.query("rollback");
console.log("rolled back:", (await status(job)) ? 1 : 0, "jobs");

// After the commit it runs.
await db.query("begin");
await db.query("insert into guest values ('ada')");
job = await enqueue("ada");
await db.query("commit");

// Its result. Undefined if it has not finished after 10 s.
const { state, output, error } = await wait(job, "10 s");
console.log(`${state}: ${output ?? error}`);

// A job for tomorrow.
job = await enqueue("bob", { after: "1 day" });
console.log((await status(job)).state);
console.log("over in 50 ms:", (await wait(job, "50 ms")) ? 1 : 0);
console.log((await db.query("select queue.cancel($1)", [job])).rows[0].cancel);
console.log((await status(job)).state);

// An operation that the job's state does not allow is an error that names the state.
try {
  await db.query("select queue.cancel($1)", [job]);
} catch (refused) {
  console.log("refused:", refused.code);
}
await db.end();
