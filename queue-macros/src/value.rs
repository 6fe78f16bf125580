//! Parsers and checks for option values, one for each kind of value.

use std::ops::RangeInclusive;

use proc_macro2::Span;
use quote::ToTokens;
use syn::{Error, Expr, ExprLit, ExprUnary, Ident, Lit, LitFloat, LitInt, LitStr, Path, Result, Type, UnOp};

use crate::{
    fallback::{Mistakes, unknown_word},
    limit::Limit,
    unique::Unique,
};

/// Value of an option. Most options expand to a call to the method with the same name on `Options` or `Backoff`.
pub(crate) enum Value {
    Text(LitStr),
    Texts(Vec<LitStr>),
    Number(Expr),
    Share(LitFloat),
    Time(DurationLiteral),
    Backoff(Backoff),
    /// Number of bytes, as given by a size such as `64KiB`.
    Bytes(LitInt),
    /// Variant of `Retain`, with the span of the string literal that names the variant.
    Retain(Ident),
    /// Duration of the variant `Retain::For`.
    RetainFor(DurationLiteral),
    /// Variant of `Durability`, with the span of the word that names the variant.
    Durability(Ident),
    /// Variant of `KeyPolicy`, with the span of the word that names the variant.
    KeyPolicy(Ident),
    /// Marker for an option that takes no value.
    Flag,
    States(Vec<Type>),
    Unique(Unique),
    Limits(Vec<Limit>),
}

/// Duration in an attribute, with the span of its literal.
#[derive(Clone, Copy)]
pub(crate) struct DurationLiteral {
    pub(crate) millis: u64,
    pub(crate) span: Span,
}

/// Backoff as written by the user: the constructor with its argument, and the methods called on the result.
pub(crate) struct Backoff {
    pub(crate) kind: Ident,
    pub(crate) base: DurationLiteral,
    pub(crate) calls: Vec<(Ident, Value)>,
}

const BACKOFF_KINDS: &[&str] = &["fixed", "linear", "exponential"];

/// Options that may follow the base delay of a backoff, each with an example.
const BACKOFF_OPTIONS: &[(&str, &str)] = &[("max", r#"max = "10m""#), ("jitter", "jitter = 0.1")];

/// Units of a duration with their lengths in milliseconds, largest first.
const UNITS: &[(&str, u64)] = &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Maximum delay of a backoff: 30 days. A longer delay would have no effect, because `queue-core` limits the delay to 30 days.
const MAX_BACKOFF_MS: u64 = 30 * 86_400_000;

/// Permitted interval of a schedule: from one second to 365 days, as in `queue-core`.
const INTERVAL_MS: RangeInclusive<u64> = 1000..=365 * 86_400_000;

/// Maximum value of `batch_wait`: one minute, as in `queue-core`.
const MAX_BATCH_WAIT_MS: u64 = 60_000;

/// Maximum retention, and maximum time until a job expires: 100 years of 365 days, as in `queue-core`.
const MAX_RETENTION_MS: u64 = 36_500 * 86_400_000;

/// Maximum size of the logs of an attempt: 1 MiB, as in `queue-core`.
const MAX_LOG_BYTES: u64 = 1024 * 1024;

/// Maximum period of a rate: one year, as in `queue-core`.
const MAX_RATE_PERIOD_MS: u64 = 365 * 86_400_000;

/// Option with a known key. Has a parsing method for each kind of value.
pub(crate) struct KnownOption<'a> {
    pub(crate) key: &'a Ident,
    pub(crate) example: &'static str,
}

impl<'a> KnownOption<'a> {
    /// Creates the option for `key` and adds `key` to `given`, the keys that have already occurred. `known` lists the valid keys, each
    /// with an example. Fails if `key` is invalid or has already occurred.
    pub(crate) fn new(key: &'a Ident, known: &[(&'static str, &'static str)], given: &mut Vec<Ident>) -> Result<Self> {
        let Some((_, example)) = known.iter().find(|(name, _)| key == name) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            return Err(unknown_word("option", key, &names));
        };
        if given.contains(key) {
            return Err(Error::new(key.span(), format!("`{key}` is set twice")));
        }
        given.push(key.clone());
        Ok(Self { key, example })
    }

    pub(crate) fn name(&self, given: &Expr) -> Result<LitStr> {
        let name = self.text(given)?;
        if is_name(&name.value()) { Ok(name) } else { Err(self.invalid(name, "1 to 64 of the characters A-Z a-z 0-9 _ . : -")) }
    }

    pub(crate) fn names(&self, given: &Expr) -> Result<Vec<LitStr>> {
        let Expr::Array(array) = ungroup(given) else { return Err(self.invalid(given, "a list of strings")) };
        let mut mistakes = Mistakes::default();
        let names = array.elems.iter().filter_map(|name| mistakes.record(self.name(name))).collect();
        mistakes.into_result(Ok(names))
    }

    pub(crate) fn integer(&self, given: &Expr, range: RangeInclusive<i32>) -> Result<Expr> {
        let (digits, sign) = match ungroup(given) {
            Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => (&**expr, -1),
            other => (other, 1),
        };
        match digits {
            Expr::Lit(ExprLit { lit: Lit::Int(digits), .. }) if digits.base10_parse::<i32>().is_ok_and(|n| range.contains(&(sign * n))) => {
                Ok(given.clone())
            }
            _ => Err(self.invalid(given, &format!("an integer from {} to {}", range.start(), range.end()))),
        }
    }

    /// Parses a version. Returns the version as written and as a number.
    pub(crate) fn version(&self, given: &Expr) -> Result<(Expr, u16)> {
        let number = self.integer(given, 1..=9999)?;
        match ungroup(&number) {
            Expr::Lit(ExprLit { lit: Lit::Int(digits), .. }) => Ok((number.clone(), digits.base10_parse()?)),
            _ => Err(self.invalid(given, "an integer from 1 to 9999")),
        }
    }

    /// Parses an integer literal or a constant. Only a literal is checked against the range. rustc checks the type of a constant.
    pub(crate) fn integer_or_constant(&self, given: &Expr, range: RangeInclusive<i32>) -> Result<Expr> {
        let literal = match ungroup(given) {
            Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => matches!(**expr, Expr::Lit(_)),
            other => matches!(other, Expr::Lit(_)),
        };
        if literal { self.integer(given, range) } else { Ok(given.clone()) }
    }

    /// Parses a non-empty string literal without line breaks or other control characters.
    pub(crate) fn line(&self, given: &Expr) -> Result<LitStr> {
        let text = self.text(given)?;
        let fits = !text.value().trim().is_empty() && !text.value().contains(char::is_control);
        if fits { Ok(text) } else { Err(self.invalid(text, "a non-empty string of one line")) }
    }

    pub(crate) fn timeout(&self, given: &Expr) -> Result<DurationLiteral> {
        self.time(given, u64::MAX)
    }

    pub(crate) fn every(&self, given: &Expr) -> Result<DurationLiteral> {
        let time = self.timeout(given)?;
        let fits = INTERVAL_MS.contains(&time.millis);
        if fits { Ok(time) } else { Err(self.invalid(given, "a duration from one second to 365 days")) }
    }

    pub(crate) fn batch_wait(&self, given: &Expr) -> Result<DurationLiteral> {
        let time = self.time(given, MAX_BACKOFF_MS)?;
        if time.millis <= MAX_BATCH_WAIT_MS { Ok(time) } else { Err(self.invalid(given, "a duration of at most a minute")) }
    }

    /// Parses a size such as `64KiB`, from one byte to 1 MiB.
    pub(crate) fn size(&self, given: &Expr) -> Result<LitInt> {
        let text = self.text(given)?;
        match bytes(&text.value()) {
            Some(size) if (1..=MAX_LOG_BYTES).contains(&size) => Ok(LitInt::new(&size.to_string(), text.span())),
            _ => Err(self.invalid(text, "a size of 1B to 1MiB (a whole number with the unit B, KiB or MiB)")),
        }
    }

    pub(crate) fn expires(&self, given: &Expr) -> Result<DurationLiteral> {
        let time = self.timeout(given)?;
        if time.millis <= MAX_RETENTION_MS { Ok(time) } else { Err(self.invalid(given, "a duration of at most 100 years")) }
    }

    pub(crate) fn retain(&self, given: &Expr) -> Result<Value> {
        let text = self.text(given)?;
        match text.value().as_str() {
            "none" => Ok(Value::Retain(Ident::new("None", text.span()))),
            "default" => Ok(Value::Retain(Ident::new("Default", text.span()))),
            span => match millis(span) {
                Some(millis) if (1..=MAX_RETENTION_MS).contains(&millis) => {
                    Ok(Value::RetainFor(DurationLiteral { millis, span: text.span() }))
                }
                _ => Err(self.invalid(text, "\"none\", \"default\", or a duration of at most 100 years")),
            },
        }
    }

    pub(crate) fn durability(&self, given: &Expr) -> Result<Ident> {
        match ident(given) {
            Some(word) if word == "relaxed" => Ok(Ident::new("Relaxed", word.span())),
            Some(word) if word == "full" => Ok(Ident::new("Full", word.span())),
            _ => Err(self.invalid(given, "`relaxed` or `full`")),
        }
    }

    pub(crate) fn key_policy(&self, given: &Expr) -> Result<Ident> {
        match ident(given) {
            Some(word) if word == "block" => Ok(Ident::new("Block", word.span())),
            Some(word) if word == "skip" => Ok(Ident::new("Skip", word.span())),
            _ => Err(self.invalid(given, "`block` or `skip`")),
        }
    }

    pub(crate) fn path(&self, given: &Expr) -> Result<Path> {
        match ungroup(given) {
            Expr::Path(path) if path.qself.is_none() => Ok(path.path.clone()),
            _ => Err(self.invalid(given, "a path without quotes")),
        }
    }

    /// Parses a backoff. syn parses `exponential("1s", max = "10m")` as a call in which the later arguments are assignments.
    pub(crate) fn backoff(&self, given: &Expr) -> Result<Backoff> {
        let Expr::Call(call) = ungroup(given) else { return Err(self.invalid(given, "a kind with its base delay")) };
        let kind = ident(&call.func).ok_or_else(|| self.invalid(&call.func, "a kind with its base delay"))?;
        if !BACKOFF_KINDS.iter().any(|known| kind == known) {
            return Err(unknown_word("kind of backoff", kind, BACKOFF_KINDS));
        }
        let (mut base, mut calls) = (None, Vec::new());
        let (mut mistakes, mut met) = (Mistakes::default(), Vec::new());
        for (at, argument) in call.args.iter().enumerate() {
            match ungroup(argument) {
                Expr::Assign(assign) => calls.extend(mistakes.record(backoff_option(&assign.left, &assign.right, &mut met))),
                _ if at == 0 => base = mistakes.record(self.time(argument, MAX_BACKOFF_MS)),
                _ => mistakes.push(Error::new_spanned(
                    argument,
                    "only the base delay, which comes first, has no name; expected `max = ..` or `jitter = ..`",
                )),
            }
        }
        mistakes.into_result(Ok(()))?;
        let Some(base) = base else { return Err(self.invalid(kind, "a kind with its base delay")) };
        let shorter = |(_, value): &(Ident, Value)| matches!(value, Value::Time(max) if max.millis < base.millis);
        match calls.iter().find(|call| shorter(call)) {
            Some((key, _)) => Err(Error::new(key.span(), "`max` is shorter than the base delay")),
            None => Ok(Backoff { kind: kind.clone(), base, calls }),
        }
    }

    /// Parses a rate such as `30/1m`. Returns the number of starts and the period.
    pub(crate) fn rate(&self, given: &Expr) -> Result<(LitInt, DurationLiteral)> {
        let text = self.text(given)?;
        let rate = text.value();
        let parts = rate.split_once('/').and_then(|(starts, period)| Some((starts.parse::<u32>().ok()?, millis(period)?)));
        match parts {
            Some((starts, millis)) if (1..=100_000).contains(&starts) && (100..=MAX_RATE_PERIOD_MS).contains(&millis) => {
                let starts = LitInt::new(&starts.to_string(), text.span());
                Ok((starts, DurationLiteral { millis, span: text.span() }))
            }
            _ => Err(self.invalid(text, "a number of starts per duration, 1 to 100000 in 100ms to 365d")),
        }
    }

    fn share(&self, given: &Expr) -> Result<LitFloat> {
        let share = match ungroup(given) {
            Expr::Lit(ExprLit { lit: Lit::Float(share), .. }) => Some(share.clone()),
            Expr::Lit(ExprLit { lit: Lit::Int(share), .. }) => Some(LitFloat::new(&format!("{}.0", share.base10_digits()), share.span())),
            _ => None,
        };
        share
            .filter(|share| share.base10_parse::<f64>().is_ok_and(|share| (0.0..=1.0).contains(&share)))
            .ok_or_else(|| self.invalid(given, "a number from 0 to 1"))
    }

    fn time(&self, given: &Expr, longest: u64) -> Result<DurationLiteral> {
        let text = self.text(given)?;
        match millis(&text.value()) {
            None => Err(self.invalid(text, "a duration (whole numbers with the units d, h, m, s, ms, largest first)")),
            Some(0) => Err(self.invalid(text, "a duration longer than zero")),
            Some(millis) if millis > longest => Err(self.invalid(text, "a duration of at most 30 days")),
            Some(millis) => Ok(DurationLiteral { millis, span: text.span() }),
        }
    }

    fn text(&self, given: &Expr) -> Result<LitStr> {
        match ungroup(given) {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text.clone()),
            _ => Err(self.invalid(given, "a string")),
        }
    }

    pub(crate) fn invalid(&self, at: impl ToTokens, takes: &str) -> Error {
        Error::new_spanned(at, format!("`{}` takes {takes}, as in `{}`", self.key, self.example))
    }
}

fn backoff_option(key: &Expr, given: &Expr, met: &mut Vec<Ident>) -> Result<(Ident, Value)> {
    let key = ident(key).ok_or_else(|| Error::new_spanned(key, "expected `max = ..` or `jitter = ..`"))?;
    let option = KnownOption::new(key, BACKOFF_OPTIONS, met)?;
    let value = if key == "max" { Value::Time(option.time(given, MAX_BACKOFF_MS)?) } else { Value::Share(option.share(given)?) };
    Ok((key.clone(), value))
}

pub(crate) fn ident(expr: &Expr) -> Option<&Ident> {
    match ungroup(expr) {
        Expr::Path(path) => path.path.get_ident(),
        _ => None,
    }
}

pub(crate) fn is_one(expr: &Expr) -> bool {
    matches!(ungroup(expr), Expr::Lit(ExprLit { lit: Lit::Int(digits), .. }) if digits.base10_parse::<u32>().is_ok_and(|number| number == 1))
}

/// Returns the expression inside the invisible group that surrounds a fragment of a `macro_rules!` macro. Returns any other expression
/// unchanged.
fn ungroup(expr: &Expr) -> &Expr {
    match expr {
        Expr::Group(group) => ungroup(&group.expr),
        other => other,
    }
}

pub(crate) fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte))
}

fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let scale = match unit {
        "B" => 1,
        "KiB" => 1024,
        "MiB" => 1024 * 1024,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

fn millis(text: &str) -> Option<u64> {
    let (mut rest, mut units, mut sum) = (text, UNITS, 0_u64);
    loop {
        let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (unit, tail) = tail.split_at(tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len()));
        let place = units.iter().position(|(name, _)| *name == unit)?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(units[place].1)?)?;
        if tail.is_empty() {
            return Some(sum);
        }
        (rest, units) = (tail, &units[place + 1..]);
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, is_name, millis};

    #[test]
    fn a_duration_is_whole_numbers_with_units_the_largest_first() {
        let right = [
            ("250ms", 250),
            ("30s", 30_000),
            ("10m", 600_000),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("1m30s", 90_000),
            ("1d1ms", 86_400_001),
        ];
        for (text, expected) in right {
            assert_eq!(millis(text), Some(expected), "{text:?}");
        }
        let form = ["", "s", "30", "1.5s", "-1s", "+1s", " 1s", "1s ", "1 s", "30s1m", "1s1s", "1w", "1µs", "1S", "1m30"];
        let size = ["99999999999999999999s", "18446744073709551615d"];
        for text in form.iter().chain(&size) {
            assert_eq!(millis(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_size_is_a_whole_number_with_its_unit() {
        assert_eq!([bytes("1B"), bytes("64KiB"), bytes("1MiB"), bytes("0B")], [Some(1), Some(65_536), Some(1_048_576), Some(0)]);
        for text in
            ["", "64", "KiB", "64 KiB", "64KB", "64kib", "-1B", "1.5KiB", "1KiB1B", "99999999999999999999MiB", "18446744073709551615KiB"]
        {
            assert_eq!(bytes(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_name_is_1_to_64_plain_characters() {
        assert!(is_name("Mail.v2:eu_west-1") && is_name(&"n".repeat(64)));
        assert!(!is_name("") && !is_name("a b") && !is_name("größe") && !is_name(&"n".repeat(65)));
    }
}
