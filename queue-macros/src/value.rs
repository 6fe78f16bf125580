//! The kinds of value that options take, and the check of each.

use std::ops::RangeInclusive;

use proc_macro2::Span;
use quote::ToTokens;
use syn::{Error, Expr, ExprLit, ExprUnary, Ident, Lit, LitFloat, LitInt, LitStr, Path, Result, Type, UnOp};

use crate::{
    fallback::{Mistakes, unknown},
    limit::Limit,
    unique::Unique,
};

/// The value of an option that is a method of `Options` or of `Backoff`.
pub(crate) enum Value {
    Text(LitStr),
    Texts(Vec<LitStr>),
    Number(Expr),
    Share(LitFloat),
    Time(Time),
    Backoff(Backoff),
    /// A number of bytes.
    Bytes(LitInt),
    /// A variant of `Retain`, at the place of the literal that named it.
    Retain(Ident),
    /// A length of time for `Retain`.
    RetainFor(Time),
    /// A variant of `Durability`, at the place of the word that named it.
    Durability(Ident),
    /// A variant of `KeyPolicy`, at the place of the word that named it.
    KeyPolicy(Ident),
    /// None: the key says it all.
    Alone,
    States(Vec<Type>),
    Unique(Unique),
    Limits(Vec<Limit>),
}

/// A length of time, and where it was written.
#[derive(Clone, Copy)]
pub(crate) struct Time {
    pub(crate) millis: u64,
    pub(crate) span: Span,
}

/// A constructor of `Backoff` with its argument and the methods called on it, in the user's own words.
pub(crate) struct Backoff {
    pub(crate) kind: Ident,
    pub(crate) base: Time,
    pub(crate) calls: Vec<(Ident, Value)>,
}

const BACKOFF_KINDS: &[&str] = &["fixed", "linear", "exponential"];

/// What may follow the base of a backoff, each with an example.
const BACKOFF_OPTIONS: &[(&str, &str)] = &[("max", r#"max = "10m""#), ("jitter", "jitter = 0.1")];

/// The units of a duration in milliseconds, the largest first.
const UNITS: &[(&str, u64)] = &[("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Thirty days. `queue-core` waits no longer, so a longer backoff would be a promise that is not kept.
const LONGEST_WAIT: u64 = 30 * 86_400_000;

/// A minute, as `queue-core` has it.
const LONGEST_BATCH_WAIT: u64 = 60_000;

/// A hundred years of 365 days, as `queue-core` has it.
const LONGEST_HISTORY: u64 = 36_500 * 86_400_000;

/// A mebibyte, as `queue-core` has it.
const LARGEST_LOG: u64 = 1024 * 1024;

/// A year, as `queue-core` has it.
const LONGEST_RATE: u64 = 365 * 86_400_000;

/// A key that is known, with one reader for each kind of value.
pub(crate) struct Named<'a> {
    pub(crate) key: &'a Ident,
    pub(crate) example: &'static str,
}

impl<'a> Named<'a> {
    /// `known` holds the keys with an example each, `given` those that were met before.
    pub(crate) fn new(key: &'a Ident, known: &[(&'static str, &'static str)], given: &mut Vec<Ident>) -> Result<Self> {
        let Some((_, example)) = known.iter().find(|(name, _)| key == name) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            return Err(unknown("option", key, &names));
        };
        if given.contains(key) {
            return Err(Error::new(key.span(), format!("`{key}` is given twice")));
        }
        given.push(key.clone());
        Ok(Self { key, example })
    }

    pub(crate) fn name(&self, given: &Expr) -> Result<LitStr> {
        let name = self.text(given)?;
        if is_name(&name.value()) { Ok(name) } else { Err(self.wrong(name, "1 to 64 of the characters A-Z a-z 0-9 _ . : -")) }
    }

    pub(crate) fn names(&self, given: &Expr) -> Result<Vec<LitStr>> {
        let Expr::Array(array) = bare(given) else { return Err(self.wrong(given, "a list of strings")) };
        let mut mistakes = Mistakes::default();
        let names = array.elems.iter().filter_map(|name| mistakes.note(self.name(name))).collect();
        mistakes.or(Ok(names))
    }

    pub(crate) fn integer(&self, given: &Expr, range: RangeInclusive<i32>) -> Result<Expr> {
        let (digits, sign) = match bare(given) {
            Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => (&**expr, -1),
            other => (other, 1),
        };
        match digits {
            Expr::Lit(ExprLit { lit: Lit::Int(digits), .. }) if digits.base10_parse::<i32>().is_ok_and(|n| range.contains(&(sign * n))) => {
                Ok(given.clone())
            }
            _ => Err(self.wrong(given, &format!("an integer from {} to {}", range.start(), range.end()))),
        }
    }

    /// A version, as it was written and as a number.
    pub(crate) fn version(&self, given: &Expr) -> Result<(Expr, u16)> {
        let number = self.integer(given, 1..=9999)?;
        match bare(&number) {
            Expr::Lit(ExprLit { lit: Lit::Int(digits), .. }) => Ok((number.clone(), digits.base10_parse()?)),
            _ => Err(self.wrong(given, "an integer from 1 to 9999")),
        }
    }

    /// rustc checks a constant; only literals are looked at here.
    pub(crate) fn integer_or_constant(&self, given: &Expr, range: RangeInclusive<i32>) -> Result<Expr> {
        let literal = match bare(given) {
            Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => matches!(**expr, Expr::Lit(_)),
            other => matches!(other, Expr::Lit(_)),
        };
        if literal { self.integer(given, range) } else { Ok(given.clone()) }
    }

    /// A text of one line.
    pub(crate) fn line(&self, given: &Expr) -> Result<LitStr> {
        let text = self.text(given)?;
        let fits = !text.value().trim().is_empty() && !text.value().contains(char::is_control);
        if fits { Ok(text) } else { Err(self.wrong(text, "a text")) }
    }

    pub(crate) fn timeout(&self, given: &Expr) -> Result<Time> {
        self.time(given, u64::MAX)
    }

    pub(crate) fn batch_wait(&self, given: &Expr) -> Result<Time> {
        let time = self.time(given, LONGEST_WAIT)?;
        if time.millis <= LONGEST_BATCH_WAIT { Ok(time) } else { Err(self.wrong(given, "a duration of at most a minute")) }
    }

    /// `64KiB`: from a byte to a mebibyte.
    pub(crate) fn size(&self, given: &Expr) -> Result<LitInt> {
        let text = self.text(given)?;
        match bytes(&text.value()) {
            Some(size) if (1..=LARGEST_LOG).contains(&size) => Ok(LitInt::new(&size.to_string(), text.span())),
            _ => Err(self.wrong(text, "a size of 1B to 1MiB (a whole number with the unit B, KiB or MiB)")),
        }
    }

    pub(crate) fn expires(&self, given: &Expr) -> Result<Time> {
        let time = self.timeout(given)?;
        if time.millis <= LONGEST_HISTORY { Ok(time) } else { Err(self.wrong(given, "a duration of at most 100 years")) }
    }

    pub(crate) fn retain(&self, given: &Expr) -> Result<Value> {
        let text = self.text(given)?;
        match text.value().as_str() {
            "none" => Ok(Value::Retain(Ident::new("None", text.span()))),
            "default" => Ok(Value::Retain(Ident::new("Default", text.span()))),
            span => match millis(span) {
                Some(millis) if (1..=LONGEST_HISTORY).contains(&millis) => Ok(Value::RetainFor(Time { millis, span: text.span() })),
                _ => Err(self.wrong(text, "\"none\", \"default\", or a duration of at most 100 years")),
            },
        }
    }

    pub(crate) fn durability(&self, given: &Expr) -> Result<Ident> {
        match ident(given) {
            Some(word) if word == "relaxed" => Ok(Ident::new("Relaxed", word.span())),
            Some(word) if word == "full" => Ok(Ident::new("Full", word.span())),
            _ => Err(self.wrong(given, "`relaxed` or `full`")),
        }
    }

    pub(crate) fn key_policy(&self, given: &Expr) -> Result<Ident> {
        match ident(given) {
            Some(word) if word == "block" => Ok(Ident::new("Block", word.span())),
            Some(word) if word == "skip" => Ok(Ident::new("Skip", word.span())),
            _ => Err(self.wrong(given, "`block` or `skip`")),
        }
    }

    pub(crate) fn path(&self, given: &Expr) -> Result<Path> {
        match bare(given) {
            Expr::Path(path) if path.qself.is_none() => Ok(path.path.clone()),
            _ => Err(self.wrong(given, "a path without quotes")),
        }
    }

    /// `exponential("1s", max = "10m")` is, to the parser, a call whose later arguments are assignments.
    pub(crate) fn backoff(&self, given: &Expr) -> Result<Backoff> {
        let Expr::Call(call) = bare(given) else { return Err(self.wrong(given, "a kind with its base")) };
        let kind = ident(&call.func).ok_or_else(|| self.wrong(&call.func, "a kind with its base"))?;
        if !BACKOFF_KINDS.iter().any(|known| kind == known) {
            return Err(unknown("kind of backoff", kind, BACKOFF_KINDS));
        }
        let (mut base, mut calls) = (None, Vec::new());
        let (mut mistakes, mut met) = (Mistakes::default(), Vec::new());
        for (at, argument) in call.args.iter().enumerate() {
            match bare(argument) {
                Expr::Assign(assign) => calls.extend(mistakes.note(backoff_option(&assign.left, &assign.right, &mut met))),
                _ if at == 0 => base = mistakes.note(self.time(argument, LONGEST_WAIT)),
                _ => mistakes.push(Error::new_spanned(
                    argument,
                    "only the base, which comes first, has no name; expected `max = ..` or `jitter = ..`",
                )),
            }
        }
        mistakes.or(Ok(()))?;
        let Some(base) = base else { return Err(self.wrong(kind, "a kind with its base")) };
        let shorter = |(_, value): &(Ident, Value)| matches!(value, Value::Time(max) if max.millis < base.millis);
        match calls.iter().find(|call| shorter(call)) {
            Some((key, _)) => Err(Error::new(key.span(), "`max` is shorter than the base")),
            None => Ok(Backoff { kind: kind.clone(), base, calls }),
        }
    }

    /// `30/1m`: so many in so long.
    pub(crate) fn rate(&self, given: &Expr) -> Result<(LitInt, Time)> {
        let text = self.text(given)?;
        let rate = text.value();
        let parts = rate.split_once('/').and_then(|(starts, period)| Some((starts.parse::<u32>().ok()?, millis(period)?)));
        match parts {
            Some((starts, millis)) if (1..=100_000).contains(&starts) && (100..=LONGEST_RATE).contains(&millis) => {
                let starts = LitInt::new(&starts.to_string(), text.span());
                Ok((starts, Time { millis, span: text.span() }))
            }
            _ => Err(self.wrong(text, "how many in how long: 1 to 100000 in 100ms to 365d")),
        }
    }

    fn share(&self, given: &Expr) -> Result<LitFloat> {
        let share = match bare(given) {
            Expr::Lit(ExprLit { lit: Lit::Float(share), .. }) => Some(share.clone()),
            Expr::Lit(ExprLit { lit: Lit::Int(share), .. }) => Some(LitFloat::new(&format!("{}.0", share.base10_digits()), share.span())),
            _ => None,
        };
        share
            .filter(|share| share.base10_parse::<f64>().is_ok_and(|share| (0.0..=1.0).contains(&share)))
            .ok_or_else(|| self.wrong(given, "a number from 0 to 1"))
    }

    fn time(&self, given: &Expr, longest: u64) -> Result<Time> {
        let text = self.text(given)?;
        match millis(&text.value()) {
            None => Err(self.wrong(text, "a duration (whole numbers with the units d, h, m, s, ms, the largest first)")),
            Some(0) => Err(self.wrong(text, "a duration longer than zero")),
            Some(millis) if millis > longest => Err(self.wrong(text, "a duration of at most 30 days")),
            Some(millis) => Ok(Time { millis, span: text.span() }),
        }
    }

    fn text(&self, given: &Expr) -> Result<LitStr> {
        match bare(given) {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Ok(text.clone()),
            _ => Err(self.wrong(given, "a string")),
        }
    }

    pub(crate) fn wrong(&self, at: impl ToTokens, takes: &str) -> Error {
        Error::new_spanned(at, format!("`{}` takes {takes}, as in `{}`", self.key, self.example))
    }
}

fn backoff_option(key: &Expr, given: &Expr, met: &mut Vec<Ident>) -> Result<(Ident, Value)> {
    let key = ident(key).ok_or_else(|| Error::new_spanned(key, "expected `max = ..` or `jitter = ..`"))?;
    let option = Named::new(key, BACKOFF_OPTIONS, met)?;
    let value = if key == "max" { Value::Time(option.time(given, LONGEST_WAIT)?) } else { Value::Share(option.share(given)?) };
    Ok((key.clone(), value))
}

pub(crate) fn ident(expr: &Expr) -> Option<&Ident> {
    match bare(expr) {
        Expr::Path(path) => path.path.get_ident(),
        _ => None,
    }
}

/// Whether an integer is 1.
pub(crate) fn is_one(expr: &Expr) -> bool {
    matches!(bare(expr), Expr::Lit(ExprLit { lit: Lit::Int(digits), .. }) if digits.base10_parse::<u32>().is_ok_and(|number| number == 1))
}

/// The expression within the invisible group that a fragment of `macro_rules!` arrives in.
fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Group(group) => bare(&group.expr),
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
