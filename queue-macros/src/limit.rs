//! Parser for the option `limit(..)`, which limits the concurrency and the start rate of jobs, as in
//! `limit(name = "stripe", key = self.account, concurrency = 3, rate = "30/1m", burst = 5)`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Expr, Ident, LitInt, LitStr, Result, Token, ext::IdentExt as _, parenthesized, parse::ParseStream, token};

use crate::{
    args::{is_part_end, parse_parts},
    value::{DurationLiteral, KnownOption},
};

/// Parsed contents of the parentheses of `limit(..)`.
pub(crate) struct Limit {
    /// Identifier `limit` as written in the attribute. Its span marks the location of errors.
    pub(crate) word: Ident,
    pub(crate) name: Option<(Ident, LitStr)>,
    concurrency: Option<(Ident, Expr)>,
    rate: Option<(Ident, LitInt, DurationLiteral)>,
    burst: Option<(Ident, Expr)>,
    /// Expression over the payload that yields the key of the limit.
    pub(crate) key: Option<(Ident, Expr)>,
}

/// Options allowed in the parentheses of `limit(..)`, each with an example.
const OPTIONS: &[(&str, &str)] = &[
    ("name", r#"name = "stripe""#),
    ("concurrency", "concurrency = 10"),
    ("rate", r#"rate = "30/1m""#),
    ("burst", "burst = 5"),
    ("key", "key = self.account"),
];

pub(crate) fn parse(option: &KnownOption, input: ParseStream) -> Result<Limit> {
    let nothing = || option.invalid(option.key, "limits in parentheses");
    if !input.peek(token::Paren) {
        return Err(nothing());
    }
    let content;
    parenthesized!(content in input);
    let mut limit = Limit { word: option.key.clone(), name: None, concurrency: None, rate: None, burst: None, key: None };
    let mut given = Vec::new();
    parse_parts(&content, |input| {
        let key = input.call(Ident::parse_any)?;
        let option = KnownOption::new(&key, OPTIONS, &mut given)?;
        let value = value(&option, input)?;
        match key.to_string().as_str() {
            "name" => limit.name = Some((key.clone(), option.name(&value)?)),
            "concurrency" => limit.concurrency = Some((key.clone(), option.integer(&value, 0..=1_000_000)?)),
            "key" => limit.key = Some((key.clone(), value)),
            "burst" => limit.burst = Some((key.clone(), option.integer(&value, 1..=100_000)?)),
            _ => {
                let (starts, period) = option.rate(&value)?;
                limit.rate = Some((key.clone(), starts, period));
            }
        }
        Ok(())
    })?;
    if limit.name.is_none() && limit.concurrency.is_none() && limit.rate.is_none() && limit.burst.is_none() {
        return Err(nothing());
    }
    if let Some((key, burst)) = &limit.burst {
        let fits = limit.rate.as_ref().is_some_and(|(_, starts, _)| match (number(burst), starts.base10_parse::<u32>()) {
            (Some(burst), Ok(starts)) => burst <= starts,
            _ => false,
        });
        if !fits {
            return Err(Error::new(key.span(), "`burst` requires a rate of at least as many starts, as in `rate = \"30/1m\", burst = 5`"));
        }
    }
    Ok(limit)
}

fn number(given: &Expr) -> Option<u32> {
    syn::parse2::<LitInt>(quote!(#given)).ok()?.base10_parse().ok()
}

fn value(option: &KnownOption, input: ParseStream) -> Result<Expr> {
    let equals: Option<Token![=]> = input.parse()?;
    if equals.is_none() || is_part_end(input) {
        return Err(option.invalid(option.key, "a value after `=`"));
    }
    input.parse()
}

impl Limit {
    /// Returns the name of the limit, or `None` if the limit has no name.
    pub(crate) fn named(&self) -> Option<String> {
        self.name.as_ref().map(|(_, name)| name.value())
    }

    /// Generates the `Limit` value that is passed to `Options::limit`.
    pub(crate) fn value(&self, root: &TokenStream, duration: impl Fn(DurationLiteral) -> TokenStream) -> TokenStream {
        let name = self.name.as_ref().map(|(key, name)| quote!(.#key(#name)));
        let concurrency = self.concurrency.as_ref().map(|(key, most)| quote!(.#key(#most)));
        let rate = self.rate.as_ref().map(|(key, starts, period)| {
            let period = duration(*period);
            quote!(.#key(#starts, #period))
        });
        let burst = self.burst.as_ref().map(|(key, starts)| quote!(.#key(#starts)));
        let keyed = self.key.as_ref().map(|(key, _)| {
            let keyed = Ident::new("keyed", key.span());
            quote!(.#keyed())
        });
        quote!(#root::private::Limit::job_type()#name #concurrency #rate #burst #keyed)
    }
}
