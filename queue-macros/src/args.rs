//! Parser for the options inside `#[job(..)]`.
//!
//! After a mistake, parsing continues at the next comma. All mistakes are therefore reported together, each at the token that the user
//! wrote. The parser does not depend on the meaning of the options, because nearly all options are methods with the same name on `Options`
//! in `queue-core`.

use proc_macro2::{TokenStream, TokenTree};
use queue_cron::Cron;
use quote::ToTokens as _;
use syn::{
    Error, Expr, Ident, LitStr, Path, Result, Token, Type,
    ext::IdentExt as _,
    parenthesized,
    parse::{ParseStream, Parser as _},
    token,
};

use crate::{
    fallback::Mistakes,
    limit::{self, Limit},
    synonyms, unique,
    upgrade::{self, Upgrade},
    value::{KnownOption, Value, is_one},
};

/// Parsed options of the attribute. Invalid options are left out.
#[derive(Default)]
pub(crate) struct Args {
    /// Path of the crate `queue_core`, if it differs from `::queue_core`.
    pub(crate) root: Option<Path>,
    pub(crate) name: Option<(Ident, LitStr)>,
    pub(crate) output: Option<(Ident, Type)>,
    pub(crate) send_only: bool,
    /// Expression that computes the ordering key from the payload, as given by the option `key`.
    pub(crate) key: Option<(Ident, Expr)>,
    /// Expression that computes the fairness key from the payload, as given by the option `fair` or by the key of a limit.
    pub(crate) fair: Option<(Ident, Expr)>,
    pub(crate) fifo: Option<Ident>,
    /// Name of the schedule option that was given (`cron` or `every`).
    pub(crate) timing: Option<Ident>,
    pub(crate) version: Option<(Ident, u16)>,
    pub(crate) upgrade: Option<Upgrade>,
    /// Options that the expansion turns into method calls on `Options`, in source order.
    pub(crate) calls: Vec<(Ident, Value)>,
}

/// Names of all options, each with an example for error messages.
const OPTIONS: &[(&str, &str)] = &[
    ("name", r#"name = "send_email""#),
    ("aliases", r#"aliases = ["old_name"]"#),
    ("version", "version = 2"),
    ("upgrade", "upgrade = from_v1"),
    ("queue", r#"queue = "mail""#),
    ("priority", "priority = 150"),
    ("max_attempts", "max_attempts = 5"),
    ("backoff", r#"backoff = exponential("1s", max = "10m", jitter = 0.1)"#),
    ("timeout", r#"timeout = "30s""#),
    ("expires", r#"expires = "10m""#),
    ("output", "output = MessageId"),
    ("state", "state(Mailer, Db)"),
    ("retain", r#"retain = "30d""#),
    ("durability", "durability = relaxed"),
    ("transactional", "transactional"),
    ("durable", "durable"),
    ("batch", "batch = 500"),
    ("batch_wait", r#"batch_wait = "200ms""#),
    ("key", "key = self.account_id"),
    ("fifo", "fifo"),
    ("key_policy", "key_policy = skip"),
    ("fair", "fair = self.tenant"),
    ("unique", "unique(fields(user, month), while = live)"),
    ("limit", r#"limit(concurrency = 10, rate = "30/1m")"#),
    ("cron", r#"cron = "30 4 * * MON-FRI""#),
    ("every", r#"every = "15m""#),
    ("tz", r#"tz = "Europe/Berlin""#),
    ("keep_logs", r#"keep_logs = "64KiB""#),
    ("seal", r#"seal = "customers""#),
    ("send_only", "send_only"),
    ("crate", "crate = my::path::to::queue_core"),
];

/// Returns whether `key` is an option of a job type.
pub(crate) fn is_option(key: &Ident) -> bool {
    OPTIONS.iter().any(|(name, _)| key == name)
}

pub(crate) fn parse(tokens: TokenStream, mistakes: &mut Mistakes) -> Args {
    let mut args = Args::default();
    let mut given = Vec::new();
    let parser = |input: ParseStream| parse_parts(input, |input| option(input, &mut given, &mut args));
    mistakes.record(parser.parse2(tokens));
    mistakes.record(args.check_keys());
    mistakes.record(args.check_schedule());
    mistakes.record(args.check_fair_key());
    mistakes.record(args.check_batch());
    mistakes.record(args.check_durable());
    // The check is skipped if `upgrade` was given but is invalid, because that mistake has already been reported.
    if args.upgrade.is_some() || given.iter().all(|key| key != "upgrade") {
        mistakes.record(upgrade::check(args.upgrade.as_ref(), args.version.as_ref(), args.send_only));
    }
    args
}

impl Args {
    /// Checks that `key` and `fifo` are not combined, because a job has at most one ordering key.
    fn check_keys(&self) -> Result<()> {
        match (&self.key, &self.fifo) {
            (Some(_), Some(fifo)) => Err(Error::new(
                fifo.span(),
                "`fifo` sets one key for the whole queue, so it cannot be combined with `key`; remove one of them",
            )),
            _ => Ok(()),
        }
    }

    /// Checks the cron expression and the time zone, and that `tz` is used only with `cron`.
    fn check_schedule(&self) -> Result<()> {
        let text = |name| match self.calls.iter().find(|(key, _)| key == name) {
            Some((_, Value::Text(text))) => Some(text),
            _ => None,
        };
        let check =
            |expression: &str, zone: &str, at: &LitStr| Cron::new(expression, zone).map(drop).map_err(|why| Error::new(at.span(), why));
        let mut mistakes = Mistakes::default();
        mistakes.record(text("tz").map_or(Ok(()), |zone| check("* * * * *", &zone.value(), zone)));
        mistakes.record(text("cron").map_or(Ok(()), |expression| check(&expression.value(), "UTC", expression)));
        mistakes.into_result(Ok(()))?;
        let zone = self.calls.iter().find(|(key, _)| key == "tz");
        match (&self.timing, zone) {
            (timing, Some((zone, _))) if timing.as_ref().is_none_or(|timing| timing != "cron") => Err(Error::new(
                zone.span(),
                "`tz` sets the time zone of a cron expression, as in `cron = \"30 4 * * *\", tz = \"Europe/Berlin\"`",
            )),
            _ => Ok(()),
        }
    }

    fn add_limit(&mut self, limit: Limit) -> Result<()> {
        let known = self.calls.iter_mut().find_map(|(_, value)| if let Value::Limits(limits) = value { Some(limits) } else { None });
        let Some(known) = known else {
            self.calls.push((limit.word.clone(), Value::Limits(vec![limit])));
            return Ok(());
        };
        if known.iter().any(|other| other.named() == limit.named()) {
            return Err(Error::new(
                limit.word.span(),
                "duplicate limit; several limits need different names, as in `limit(name = \"stripe\")`",
            ));
        }
        known.push(limit);
        Ok(())
    }

    /// Checks that `fair` and the limits use the same key. If only limits have a key, that key becomes the fairness key of the type.
    fn check_fair_key(&mut self) -> Result<()> {
        let limits = self.calls.iter().find_map(|(_, value)| if let Value::Limits(limits) = value { Some(limits) } else { None });
        let keys: Vec<(Ident, Expr)> = limits.into_iter().flatten().filter_map(|limit| limit.key.clone()).collect();
        let Some((first, expression)) = self.fair.as_ref().or(keys.first()).cloned() else { return Ok(()) };
        let text = |key: &Expr| key.to_token_stream().to_string();
        if let Some((other, _)) = keys.iter().find(|(_, key)| text(key) != text(&expression)) {
            return Err(Error::new(
                other.span(),
                format!(
                    "a job has one fairness key, so `fair` and the `key` of each limit must be the same expression; `{first}` is `{}`",
                    text(&expression)
                ),
            ));
        }
        if self.fair.is_none() {
            self.calls.push((Ident::new("fair", first.span()), Value::Flag));
            self.fair = Some((first, expression));
        }
        Ok(())
    }

    /// Checks the options of batches. A batch job needs at least two attempts, because the last attempt of each job runs alone.
    fn check_batch(&self) -> Result<()> {
        let find = |name| self.calls.iter().find(|(key, _)| key == name);
        let transactional = "a transactional job has its own transaction, while a batch has one handler for many jobs, so `transactional` cannot be combined with `batch`; remove one of them";
        let last = "a job's last attempt runs alone, so with `max_attempts = 1` there would be no batch; set at least 2";
        if let (Some(_), Some((logs, _))) = (find("batch"), find("keep_logs")) {
            return Err(Error::new(
                logs.span(),
                "one handler logs for all jobs of a batch, so `keep_logs` cannot be combined with `batch`; remove one of them",
            ));
        }
        match (find("batch"), find("batch_wait"), find("transactional"), find("max_attempts")) {
            (None, Some((wait, _)), ..) => Err(Error::new(
                wait.span(),
                "`batch_wait` sets how long jobs wait for a fuller batch, as in `batch = 500, batch_wait = \"200ms\"`",
            )),
            (Some(_), _, Some((key, _)), _) => Err(Error::new(key.span(), transactional)),
            (Some(_), _, _, Some((key, Value::Number(most)))) if is_one(most) => Err(Error::new(key.span(), last)),
            _ => Ok(()),
        }
    }

    /// Checks the options of durable jobs. A transactional job cannot be durable, because its work is committed in one transaction with
    /// the completion and cannot stop halfway.
    fn check_durable(&self) -> Result<()> {
        let find = |name| self.calls.iter().find(|(key, _)| key == name);
        match (find("durable"), find("transactional"), find("batch")) {
            (Some((durable, _)), Some(_), _) => Err(Error::new(
                durable.span(),
                "a transactional job is a single transaction, so `durable` cannot be combined with `transactional`; remove one of them, and use \
                 `cx.step_tx` for effects that must happen exactly once",
            )),
            (Some((durable, _)), _, Some(_)) => Err(Error::new(
                durable.span(),
                "a batch handler has no journal for each job, so `durable` cannot be combined with `batch`; remove one of them",
            )),
            _ => Ok(()),
        }
    }

    /// Returns only the options that determine the types in the generated implementation.
    pub(crate) fn types_only(self) -> Self {
        let calls = self.calls.into_iter().filter(|(key, _)| key == "batch" || key == "durable").collect();
        Self { root: self.root, output: self.output, calls, ..Self::default() }
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.calls.iter().any(|(key, _)| key == "durable")
    }

    pub(crate) fn takes_batches(&self) -> bool {
        self.calls.iter().any(|(key, _)| key == "batch")
    }

    /// Checks that all aliases differ from each other and from the name. This check runs after parsing, because the name may be the
    /// struct's name.
    pub(crate) fn check_aliases(&self, name: &LitStr) -> Result<()> {
        let mut names = vec![name.value()];
        for (_, value) in &self.calls {
            let Value::Texts(aliases) = value else { continue };
            for alias in aliases {
                if names.contains(&alias.value()) {
                    return Err(Error::new(alias.span(), format!("the job type is already called {:?}", alias.value())));
                }
                names.push(alias.value());
            }
        }
        Ok(())
    }
}

/// Parses comma-separated parts. After a mistake, parsing continues with the next part.
pub(crate) fn parse_parts(input: ParseStream, mut part: impl FnMut(ParseStream) -> Result<()>) -> Result<()> {
    let mut mistakes = Mistakes::default();
    while !input.is_empty() {
        let parsed = part(input).and_then(|()| if is_part_end(input) { Ok(()) } else { Err(input.error("expected `,`")) });
        mistakes.record(parsed);
        skip_part(input);
        let _: Option<Token![,]> = input.parse()?;
    }
    mistakes.into_result(Ok(()))
}

pub(crate) fn is_part_end(input: ParseStream) -> bool {
    input.is_empty() || input.peek(Token![,])
}

/// Skips the remaining tokens of a part. A comma within `<..>` belongs to a type and does not end the part.
fn skip_part(input: ParseStream) {
    let mut depth = 0_usize;
    while !input.is_empty() && (depth > 0 || !input.peek(Token![,])) {
        match input.parse() {
            Ok(TokenTree::Punct(punct)) if punct.as_char() == '<' => depth += 1,
            Ok(TokenTree::Punct(punct)) if punct.as_char() == '>' => depth = depth.saturating_sub(1),
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

fn option(input: ParseStream, given: &mut Vec<Ident>, args: &mut Args) -> Result<()> {
    let Ok(key) = input.call(Ident::parse_any) else {
        return Err(input.error(format!("expected an option, such as `{}`", OPTIONS[0].1)));
    };
    // The option `limit` may be repeated, because each limit has a different name.
    given.retain(|met| *met != "limit");
    if let Some(hint) = synonyms::hint(&key) {
        return Err(Error::new(key.span(), format!("unknown option `{key}`; {hint}")));
    }
    let option = KnownOption::new(&key, OPTIONS, given)?;
    match key.to_string().as_str() {
        "send_only" if is_part_end(input) => args.send_only = true,
        "transactional" | "durable" if is_part_end(input) => args.calls.push((key.clone(), Value::Flag)),
        "fifo" if is_part_end(input) => args.fifo = Some(key.clone()),
        "key" => args.key = Some((key.clone(), value(&option, input)?)),
        "fair" => {
            args.fair = Some((key.clone(), value(&option, input)?));
            args.calls.push((key.clone(), Value::Flag));
        }
        "cron" | "every" => {
            if let Some(first) = &args.timing {
                return Err(Error::new(
                    key.span(),
                    format!("a schedule has one timing, so `{key}` cannot be combined with `{first}`; remove one of them"),
                ));
            }
            args.timing = Some(key.clone());
            args.calls.push((key.clone(), expression(&option, &value(&option, input)?)?));
        }
        "send_only" | "transactional" | "durable" | "fifo" => return Err(input.error(format!("`{key}` takes no value; write it alone"))),
        "state" => args.calls.push((key.clone(), Value::States(states(&option, input)?))),
        "limit" => {
            let limit = limit::parse(&option, input)?;
            args.add_limit(limit)?;
        }
        "unique" => args.calls.push((key.clone(), Value::Unique(unique::parse(&option, input)?))),
        "upgrade" => args.upgrade = Some(upgrade::parse(&option, input)?),
        "version" => {
            let (number, version) = option.version(&value(&option, input)?)?;
            args.version = Some((key.clone(), version));
            args.calls.push((key.clone(), Value::Number(number)));
        }
        "output" => args.output = Some((key.clone(), output(&option, input)?)),
        "name" => args.name = Some((key.clone(), option.name(&value(&option, input)?)?)),
        "crate" => args.root = Some(option.path(&value(&option, input)?)?),
        _ => args.calls.push((key.clone(), expression(&option, &value(&option, input)?)?)),
    }
    Ok(())
}

fn expression(option: &KnownOption, given: &Expr) -> Result<Value> {
    Ok(match option.key.to_string().as_str() {
        "aliases" => Value::Texts(option.names(given)?),
        "queue" | "seal" => Value::Text(option.name(given)?),
        "priority" => Value::Number(option.integer_or_constant(given, -32768..=32767)?),
        "batch" => Value::Number(option.integer(given, 2..=10_000)?),
        "batch_wait" => Value::Time(option.batch_wait(given)?),
        "keep_logs" => Value::Bytes(option.size(given)?),
        "max_attempts" => Value::Number(option.integer(given, 1..=32767)?),
        "backoff" => Value::Backoff(option.backoff(given)?),
        "expires" => Value::Time(option.expires(given)?),
        "timeout" => Value::Time(option.timeout(given)?),
        "every" => Value::Time(option.every(given)?),
        "cron" | "tz" => Value::Text(option.line(given)?),
        "durability" => Value::Durability(option.durability(given)?),
        "key_policy" => Value::KeyPolicy(option.key_policy(given)?),
        _ => option.retain(given)?,
    })
}

pub(crate) fn value(option: &KnownOption, input: ParseStream) -> Result<Expr> {
    equals(option, input)?;
    input.parse()
}

fn equals(option: &KnownOption, input: ParseStream) -> Result<()> {
    let equals: Option<Token![=]> = input.parse()?;
    if equals.is_some() && !is_part_end(input) { Ok(()) } else { Err(option.invalid(option.key, "a value after `=`")) }
}

fn output(option: &KnownOption, input: ParseStream) -> Result<Type> {
    equals(option, input)?;
    input.parse().map_err(|error| {
        // At the end of the attribute, the span of the parser's error would cover the whole attribute. The error is therefore reported at
        // the option.
        let span = if input.is_empty() { option.key.span() } else { error.span() };
        Error::new(span, "`output` takes a type, as in `output = MessageId`")
    })
}

pub(crate) fn states(option: &KnownOption, input: ParseStream) -> Result<Vec<Type>> {
    let mut types = Vec::new();
    if input.peek(token::Paren) {
        let content;
        parenthesized!(content in input);
        parse_parts(&content, |input| {
            if input.peek(LitStr) {
                let quoted: LitStr = input.parse()?;
                let fix = if quoted.parse::<Type>().is_ok() { quoted.value() } else { "Mailer".to_owned() };
                return Err(Error::new(quoted.span(), format!("`state` takes types, without quotes: `state({fix})`")));
            }
            input.parse().map(|one| types.push(one))
        })?;
    }
    if types.is_empty() { Err(option.invalid(option.key, "types in parentheses")) } else { Ok(types) }
}

#[cfg(test)]
mod tests {
    use super::OPTIONS;

    #[test]
    fn the_documented_options_are_those_of_the_parser() {
        let (job, _) = include_str!("lib.rs").split_once("pub fn job(").expect("the attribute `job`");
        let rows = job.lines().filter_map(|line| line.strip_prefix("/// | `"));
        let documented: Vec<&str> = rows.filter_map(|row| row.split([' ', '(', '`']).next()).collect();
        for (name, _) in OPTIONS {
            assert!(documented.contains(name), "`{name}` has no row");
        }
        assert_eq!(documented.len(), OPTIONS.len(), "{documented:?}");
    }
}
