//! The `#[job]` attribute of `queue-core`, which re-exports it. This crate knows of `queue-core` only the token path.
//!
//! The macro holds no logic: it parses (`args`, `value`, `input`), writes an `impl Job` of constants and one registration (`expand`), and
//! on a mistake as much of them as keeps rustc from adding messages of its own (`fallback`). What an option means, and what becomes of a
//! job by it, is in `queue-core`.

mod args;
mod expand;
mod fallback;
mod input;
mod limit;
mod renamed;
mod unique;
mod upgrade;
mod value;

use proc_macro::TokenStream;

/// Makes a struct a job type: implements `Job` for it and, unless it is `send_only`, registers its handler with this binary's workers.
///
/// It sits on the payload struct, which stays as it is written and needs serde's two derives. Enums, unions and structs with generic
/// parameters are refused: a job type has one stable name and one payload. The handler is an `impl Handler` beside it.
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
/// All are optional, may come in any order, each once. Every value is checked when the crate is compiled.
///
/// | option | meaning | unit | default |
/// |---|---|---|---|
/// | `name = "send_email"` | the name under which jobs of this type are stored | a name | the struct's name in snake case |
/// | `aliases = ["old_name"]` | older names under which jobs may still be stored | names | none |
/// | `version = 2` | which version of its payload this struct is; jobs of a newer one are left to workers that know it | 1 to 9999 | 1 |
/// | `upgrade = from_v1` | how payloads of older versions are read; of several `upgrade(1 = from_v1, 2 = from_v2)` | functions | |
/// | `queue = "mail"` | the queue that jobs go to unless they are enqueued elsewhere | a name | `default` |
/// | `priority = 150` | higher runs first | -32768 to 32767, or a constant such as `Priority::EXPLICIT` | 100 |
/// | `max_attempts = 5` | how many times a job is tried before it is a dead letter | 1 to 32767 | 20 |
/// | `backoff = exponential("1s", max = "10m", jitter = 0.1)` | the wait after a failed attempt; also `linear(..)` and `fixed(..)` | durations up to `30d`; a share from 0 to 1 | `exponential("5s", max = "6h", jitter = 0.1)` |
/// | `timeout = "30s"` | how long one attempt may take | a duration | no limit |
/// | `expires = "10m"` | how long after it may run a job may begin; then it is over, as expired | a duration | at any time |
/// | `output = MessageId` | what the handler returns | a type | `()` |
/// | `state(Mailer, Db)` | what the handler asks its context for; a worker that lacks one refuses to start | types | none |
/// | `retain = "none"` | what is kept of a completed job | `"default"`: its record and output; `"none"`: nothing | `"default"` |
/// | `durability = relaxed` | an enqueue that is a transaction of its own does not wait for the disk; a crash of the server may lose its job | `full` or `relaxed` | `full` |
/// | `transactional` | handler and completion are one transaction, `cx.transaction()`; see `Options::transactional` for what that costs | | |
/// | `key = self.account_id` | the ordering key: jobs of one key in a queue run one at a time, in the order of their commits | an expression over the payload that has `to_string` | none |
/// | `fifo` | one ordering key for the whole queue | | |
/// | `key_policy = skip` | a dead job holds up its key until somebody requeues or discards it (`block`), or does not | `block` or `skip` | `block` |
/// | `fair = self.tenant` | jobs of this type take turns by this key, however many jobs each key has | an expression over the payload that has `to_string` | the oldest goes first |
/// | `unique(fields(user, month), while = live, on_conflict = keep)` | jobs whose fields are equal are unique | `while`: `live`, `queued`, `kept` or a duration; `on_conflict`: `keep`, `replace` or `debounce` | not unique; `live`; `keep` |
/// | `cron = "30 4 * * MON-FRI"` | workers that run this type enqueue a job of it at these times, with its `Default` payload | a cron expression | no schedule |
/// | `every = "15m"` | the same at every multiple of this since 1970 | a duration up to `365d` | no schedule |
/// | `tz = "Europe/Berlin"` | the zone of the expression | a name of the IANA database | UTC |
/// | `seal = "customers"` | payloads are stored encrypted, with the keys of this name given to `use_keyring`; needs the feature `seal` | a name | in clear |
/// | `send_only` | the handler lives in another crate; nothing is registered | | |
/// | `crate = my::path` | where `queue_core` is found | a path | `::queue_core` |
///
/// A name has 1 to 64 of the characters `A-Z a-z 0-9 _ . : -`. A duration is whole numbers with the units `d`, `h`, `m`, `s` and `ms`,
/// the largest first: `"250ms"`, `"30s"`, `"1m30s"`. Within a backoff, `max` is 30 days and `jitter` is 0 unless given.
#[proc_macro_attribute]
pub fn job(args: TokenStream, item: TokenStream) -> TokenStream {
    expand::job(args.into(), &item.into()).into()
}
