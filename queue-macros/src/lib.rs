//! Attribute macros `#[job]` and `#[handler]` of `queue-core`, which re-exports them. This crate refers to `queue-core` only by paths in
//! the generated code.
//!
//! The macros contain no job logic. The modules `args`, `value` and `input` parse the options, and `expand` generates constants in an
//! `impl JobType` and one registration. After a mistake, `fallback` generates only the items whose absence would cause further messages
//! from rustc. The module `handler` generates a type and one registration for a function. `queue-core` documents the meaning and the
//! effects of the options.

mod args;
mod expand;
mod fallback;
mod handler;
mod input;
mod limit;
mod renamed;
mod synonyms;
mod unique;
mod upgrade;
mod value;

use proc_macro::TokenStream;

/// Turns a struct into a job type. Implements `JobType` for the struct and registers its handler with the workers of this binary unless the
/// type is `send_only`.
///
/// The attribute belongs on the payload struct, which is emitted unchanged and must derive serde's `Serialize` and `Deserialize`. Enums,
/// unions and structs with generic parameters are rejected, because a job type has one stable name and one payload. The handler is an
/// `impl Handler` for the struct, or with `send_only` a function with [`#[handler]`](macro@handler), which may be in another crate.
///
/// ```ignore
/// /// Sends one mail.
/// #[job(queue = "mail", max_attempts = 5, backoff = exponential("1s", max = "10m"), timeout = "30s", output = MessageId)]
/// #[derive(Serialize, Deserialize)]
/// struct SendEmail {
///     to: String,
///     subject: String,
/// }
///
/// impl Handler for SendEmail {
///     async fn run(self, cx: &Context) -> JobResult<MessageId> {
///         Ok(cx.state::<Mailer>().send(&self.to, &self.subject).await?)
///     }
/// }
/// ```
///
/// # Options
///
/// All options are optional and may be given in any order. Each option may be given once, except for `limit`. All values are checked at
/// compile time. Each option is documented in full at the method of the same name on `queue_core::options::Options`.
///
/// | option | meaning | value | default |
/// |---|---|---|---|
/// | `name = "send_email"` | name under which jobs of this type are stored | a name | the struct's name in snake case |
/// | `aliases = ["old_name"]` | former names under which jobs may still be stored | names | none |
/// | `version = 2` | version of the payload; workers leave jobs of newer versions to workers that support them | 1 to 9999 | 1 |
/// | `upgrade = from_v1` | function that converts payloads of the previous version; several functions: `upgrade(1 = from_v1, 2 = from_v2)` | functions | |
/// | `queue = "mail"` | queue of the jobs, unless the enqueue names another | a name | `default` |
/// | `priority = 150` | jobs of higher priority run first | -32768 to 32767, or a constant such as `Priority::EXPLICIT` | 100 |
/// | `max_attempts = 5` | number of attempts before a job becomes a dead letter | 1 to 32767 | 20 |
/// | `backoff = exponential("1s", max = "10m", jitter = 0.1)` | delay after a failed attempt; also `linear(..)` and `fixed(..)` | durations up to `30d`; jitter from 0 to 1 | `exponential("5s", max = "6h", jitter = 0.1)` |
/// | `timeout = "30s"` | maximum duration of an attempt | a duration | no limit |
/// | `expires = "10m"` | maximum delay between the due time and the start of a job; a job that misses the deadline expires | a duration | never |
/// | `output = MessageId` | return type of the handler | a type | `()` |
/// | `state(Mailer, Db)` | state that the handler requires; a worker without it refuses to start | types | none |
/// | `retain = "30d"` | retention of a completed job; `"none"` deletes the job together with its output | a duration, `"none"`, `"default"` | the worker's `retention` |
/// | `durability = relaxed` | whether an enqueue in its own transaction waits for the disk; with `relaxed`, a server crash may lose the job | `full`, `relaxed` | `full` |
/// | `transactional` | runs the handler and the completion in one transaction, `cx.transaction()`; occupies a connection per running job | | off |
/// | `durable` | gives the handler a `Durable` context with steps that run once, sleeps, signals and children | | off |
/// | `batch = 500` | maximum number of jobs that the handler runs at a time | 2 to 10,000 | single jobs |
/// | `batch_wait = "200ms"` | maximum time that a claimed job waits for a fuller batch while a slot is free | a duration up to `1m` | no wait |
/// | `key = self.account_id` | ordering key: jobs of a key in a queue run one at a time, in commit order | an expression over the payload with `to_string` | none |
/// | `fifo` | gives all jobs of `fifo` types in a queue the same ordering key | | off |
/// | `key_policy = skip` | whether a dead letter blocks its ordering key until it is requeued or discarded | `block`, `skip` | `block` |
/// | `fair = self.tenant` | fairness key: keys take turns, regardless of how many jobs each key has | an expression over the payload with `to_string` | oldest job first |
/// | `unique(fields(user, month), while = live, on_conflict = keep)` | uniqueness: at most one job with equal fields | `while`: `live`, `queued`, `kept` or a duration; `on_conflict`: `keep`, `replace`, `debounce` | not unique; `live`; `keep` |
/// | `limit(concurrency = 10, rate = "30/1m", burst = 5)` | limits running jobs and starts over all workers; `name = ".."` shares the limit among types, `key = ..` applies the limit to each key | see `Limit` | no limit |
/// | `cron = "30 4 * * MON-FRI"` | cron schedule: workers enqueue a job with the `Default` payload at the times of the expression | a cron expression | no schedule |
/// | `every = "15m"` | interval schedule: workers enqueue a job at every multiple of the interval since 1970 | a duration up to `365d` | no schedule |
/// | `tz = "Europe/Berlin"` | time zone of the cron expression | a name from the IANA database | UTC |
/// | `keep_logs = "64KiB"` | stores log events of the handler at `INFO` and above with each attempt | 1 B to 1 MiB | not kept |
/// | `seal = "customers"` | encrypts stored payloads with the keyring of this name, passed to `use_keyring`; requires the feature `seal` | a name | not encrypted |
/// | `send_only` | registers no handler here; the handler is a function with `#[handler]`, usually in another crate | | off |
/// | `crate = my::path` | path of `queue_core` | a path | `::queue_core` |
///
/// A name has 1 to 64 of the characters `A-Z a-z 0-9 _ . : -`. A duration consists of whole numbers with the units `d`, `h`, `m`, `s` and
/// `ms`, from the largest to the smallest unit: `"250ms"`, `"30s"`, `"1m30s"`. Within a backoff, `max` defaults to 30 days and `jitter`
/// to 0.
#[proc_macro_attribute]
pub fn job(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::job(args.into(), &item.into()).into()
}

/// Turns an `async fn` into the handler of a job type and registers it with the workers of this binary.
///
/// The function takes the job and its context, and may be in a different crate from the job type. A web server then links only the crate
/// with the job types, without the handlers and their dependencies. The job type must have the option `send_only`. A worker refuses to
/// start if a job type has two handlers.
///
/// ```ignore
/// // In the crate `domain`, which depends on `queue-core`:
/// #[job(send_only, queue = "mail", output = MessageId)]
/// #[derive(Serialize, Deserialize)]
/// pub struct SendEmail {
///     pub to: String,
/// }
///
/// // In the crate of the worker:
/// #[handler(state(Mailer))]
/// async fn send_email(job: SendEmail, cx: &Context) -> JobResult<MessageId> {
///     Ok(cx.state::<Mailer>().send(&job.to).await?)
/// }
/// ```
///
/// | job type | parameters | returns |
/// |---|---|---|
/// | without the options below | `job: T, cx: &Context` | `JobResult<Output>` |
/// | `durable` | `job: T, cx: &Durable` | `JobResult<Output>` |
/// | `batch = 500` | `batch: &mut JobBatch<T>, cx: &BatchContext` | `JobResult` |
///
/// The function stays callable. The attribute adds a type with the same name and visibility, for `Worker::register::<send_email>()` and
/// `testing::run_with::<send_email>(job)`. The scope of the function must therefore not have another type or module of that name, and a
/// `pub` function needs a `pub` job type.
///
/// # Options
///
/// | option | meaning | default |
/// |---|---|---|
/// | `state(Mailer, Db)` | state that the handler requires, in addition to the state in `#[job]`; a worker without it refuses to start | none |
/// | `crate = my::path` | path of `queue_core` | `::queue_core` |
#[proc_macro_attribute]
pub fn handler(args: TokenStream, item: TokenStream) -> TokenStream {
    handler::handler(args.into(), &item.into()).into()
}
