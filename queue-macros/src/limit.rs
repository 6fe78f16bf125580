//! `limit(name = "stripe", key = self.account, concurrency = 3, rate = "30/1m", burst = 5)`: how many jobs run at once, or begin in a time.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, Expr, Ident, LitInt, LitStr, Result, Token, ext::IdentExt as _, parenthesized, parse::ParseStream, token};

use crate::{
    args::{each, ends},
    value::{Named, Time},
};

/// What stood in the parentheses.
pub(crate) struct Limit {
    /// The word `limit`.
    pub(crate) word: Ident,
    pub(crate) name: Option<(Ident, LitStr)>,
    concurrency: Option<(Ident, Expr)>,
    rate: Option<(Ident, LitInt, Time)>,
    burst: Option<(Ident, Expr)>,
    /// An expression over the payload: the figures are of each key.
    pub(crate) key: Option<(Ident, Expr)>,
}

/// What may stand in the parentheses, each with an example.
const OPTIONS: &[(&str, &str)] = &[
    ("name", r#"name = "stripe""#),
    ("concurrency", "concurrency = 10"),
    ("rate", r#"rate = "30/1m""#),
    ("burst", "burst = 5"),
    ("key", "key = self.account"),
];

pub(crate) fn parse(option: &Named, input: ParseStream) -> Result<Limit> {
    let nothing = || option.wrong(option.key, "how many");
    if !input.peek(token::Paren) {
        return Err(nothing());
    }
    let content;
    parenthesized!(content in input);
    let mut limit = Limit { word: option.key.clone(), name: None, concurrency: None, rate: None, burst: None, key: None };
    let mut given = Vec::new();
    each(&content, |input| {
        let key = input.call(Ident::parse_any)?;
        let option = Named::new(&key, OPTIONS, &mut given)?;
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
            return Err(Error::new(key.span(), "`burst` is of a rate, and not more than that, as in `rate = \"30/1m\", burst = 5`"));
        }
    }
    Ok(limit)
}

fn number(given: &Expr) -> Option<u32> {
    syn::parse2::<LitInt>(quote!(#given)).ok()?.base10_parse().ok()
}

fn value(option: &Named, input: ParseStream) -> Result<Expr> {
    let equals: Option<Token![=]> = input.parse()?;
    if equals.is_none() || ends(input) {
        return Err(option.wrong(option.key, "a value after `=`"));
    }
    input.parse()
}

impl Limit {
    /// The name, as far as one was given.
    pub(crate) fn named(&self) -> Option<String> {
        self.name.as_ref().map(|(_, name)| name.value())
    }

    /// One of those in the argument of `Options::limit`.
    pub(crate) fn value(&self, root: &TokenStream, duration: impl Fn(Time) -> TokenStream) -> TokenStream {
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
