//! `upgrade = from_v1`, `upgrade(1 = from_v1, 2 = from_v2)`: how payloads of older versions are read.
//!
//! Each older version has one, which is checked here. Whether it is a function from something to the job's type is rustc's to say.

use proc_macro2::{Literal, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Error, Expr, Ident, LitInt, Result, Token, parenthesized, parse::ParseStream, spanned::Spanned as _, token};

use crate::{
    args::{each, ends},
    value::Named,
};

/// What was given.
pub(crate) struct Upgrade {
    key: Ident,
    /// Without a number if it is the only one.
    from: Vec<(Option<u16>, Expr)>,
}

pub(crate) fn parse(option: &Named, input: ParseStream) -> Result<Upgrade> {
    let (key, mut from) = (option.key.clone(), Vec::new());
    if !input.peek(token::Paren) {
        from.push((None, value(option, input)?));
        return Ok(Upgrade { key, from });
    }
    let content;
    parenthesized!(content in input);
    each(&content, |input| {
        let number: LitInt = input.parse().map_err(|error| Error::new(error.span(), EXPECTED))?;
        let version = number.base10_parse().map_err(|_| Error::new(number.span(), EXPECTED))?;
        if from.iter().any(|(other, _)| *other == Some(version)) {
            return Err(Error::new(number.span(), format!("the upgrade from version {version} is given twice")));
        }
        from.push((Some(version), value(option, input)?));
        Ok(())
    })?;
    Ok(Upgrade { key, from })
}

const EXPECTED: &str = "expected an older version and how it is read, as in `upgrade(1 = from_v1, 2 = from_v2)`";

fn value(option: &Named, input: ParseStream) -> Result<Expr> {
    let equals: Option<Token![=]> = input.parse()?;
    if equals.is_some() && !ends(input) { input.parse() } else { Err(option.wrong(option.key, "a function")) }
}

/// That each version before this one can be read, by whoever runs the jobs.
pub(crate) fn check(upgrade: Option<&Upgrade>, version: Option<&(Ident, u16)>, send_only: bool) -> Result<()> {
    let newest = version.map_or(1, |(_, version)| *version);
    let all = || (1..newest).map(|old| format!("{old} = from_v{old}")).collect::<Vec<_>>().join(", ");
    let fix = || if newest == 2 { "`upgrade = from_v1`".to_owned() } else { format!("`upgrade({})`", all()) };
    match (upgrade, version) {
        (None, Some((key, newest))) if *newest > 1 && !send_only => {
            Err(Error::new(key.span(), format!("jobs of older versions may be waiting; say how they are read, as in {}", fix())))
        }
        (Some(upgrade), _) if newest == 1 => {
            Err(Error::new(upgrade.key.span(), "`upgrade` is from older versions, and there is none before the first; say `version = 2`"))
        }
        (Some(Upgrade { key, from }), _) => {
            let from: Vec<u16> = from.iter().map(|(old, _)| old.unwrap_or(1)).collect();
            if let Some(strange) = from.iter().find(|old| !(1..newest).contains(old)) {
                return Err(Error::new(key.span(), format!("there is no version {strange} before version {newest}")));
            }
            match (1..newest).find(|old| !from.contains(old)) {
                Some(missing) => Err(Error::new(key.span(), format!("the upgrade from version {missing} is missing; say {}", fix()))),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

impl Upgrade {
    /// The method of `JobType`.
    pub(crate) fn method(&self, root: &TokenStream) -> TokenStream {
        let key = &self.key;
        let arms = self.from.iter().map(|(old, by)| {
            let old = Literal::u16_unsuffixed(old.unwrap_or(1));
            let read = quote_spanned!(by.span()=> #root::private::upgrade::<Self, _, _>(old, #by));
            quote!(#old => #read,)
        });
        quote! {
            fn #key(old: #root::OldPayload<'_>) -> #root::private::Result<Self, #root::Failure> {
                match old.version() {
                    #(#arms)*
                    _ => #root::private::no_upgrade(old),
                }
            }
        }
    }
}
