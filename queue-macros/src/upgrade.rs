//! Parser for the option `upgrade = from_v1` or `upgrade(1 = from_v1, 2 = from_v2)`: functions that convert payloads of older versions.
//!
//! This module checks that each older version has a function. rustc checks that the function returns the job's type.

use proc_macro2::{Literal, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Error, Expr, Ident, LitInt, Result, Token, parenthesized, parse::ParseStream, spanned::Spanned as _, token};

use crate::{
    args::{is_part_end, parse_parts},
    value::KnownOption,
};

/// Parsed option `upgrade`.
pub(crate) struct Upgrade {
    key: Ident,
    /// Upgrade functions and the versions that they convert from. The version is `None` for a single function without a version.
    from: Vec<(Option<u16>, Expr)>,
}

pub(crate) fn parse(option: &KnownOption, input: ParseStream) -> Result<Upgrade> {
    let (key, mut from) = (option.key.clone(), Vec::new());
    if !input.peek(token::Paren) {
        from.push((None, value(option, input)?));
        return Ok(Upgrade { key, from });
    }
    let content;
    parenthesized!(content in input);
    parse_parts(&content, |input| {
        let number: LitInt = input.parse().map_err(|error| Error::new(error.span(), EXPECTED))?;
        let version = number.base10_parse().map_err(|_| Error::new(number.span(), EXPECTED))?;
        if from.iter().any(|(other, _)| *other == Some(version)) {
            return Err(Error::new(number.span(), format!("duplicate upgrade from version {version}")));
        }
        from.push((Some(version), value(option, input)?));
        Ok(())
    })?;
    Ok(Upgrade { key, from })
}

const EXPECTED: &str = "expected an older version and its function, as in `upgrade(1 = from_v1, 2 = from_v2)`";

fn value(option: &KnownOption, input: ParseStream) -> Result<Expr> {
    let equals: Option<Token![=]> = input.parse()?;
    if equals.is_some() && !is_part_end(input) { input.parse() } else { Err(option.invalid(option.key, "a function")) }
}

/// Checks that each older version has an upgrade function, unless the type is `send_only`.
pub(crate) fn check(upgrade: Option<&Upgrade>, version: Option<&(Ident, u16)>, send_only: bool) -> Result<()> {
    let newest = version.map_or(1, |(_, version)| *version);
    let all = || (1..newest).map(|old| format!("{old} = from_v{old}")).collect::<Vec<_>>().join(", ");
    let fix = || if newest == 2 { "`upgrade = from_v1`".to_owned() } else { format!("`upgrade({})`", all()) };
    match (upgrade, version) {
        (None, Some((key, newest))) if *newest > 1 && !send_only => {
            Err(Error::new(key.span(), format!("jobs of older versions may be waiting; add an upgrade, as in {}", fix())))
        }
        (Some(upgrade), _) if newest == 1 => {
            Err(Error::new(upgrade.key.span(), "`upgrade` converts from older versions, and version 1 has none; set `version = 2`"))
        }
        (Some(Upgrade { key, from }), _) => {
            let from: Vec<u16> = from.iter().map(|(old, _)| old.unwrap_or(1)).collect();
            if let Some(strange) = from.iter().find(|old| !(1..newest).contains(old)) {
                return Err(Error::new(key.span(), format!("there is no version {strange} before version {newest}")));
            }
            match (1..newest).find(|old| !from.contains(old)) {
                Some(missing) => Err(Error::new(key.span(), format!("the upgrade from version {missing} is missing; write {}", fix()))),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

impl Upgrade {
    /// Generates the method `upgrade` of `JobType`.
    pub(crate) fn method(&self, root: &TokenStream) -> TokenStream {
        let key = &self.key;
        // The parameter's declaration and uses share one identifier, so they resolve to each other even if a `macro_rules!` macro wrote
        // the attribute.
        let payload = Ident::new("old", Span::call_site());
        let arms = self.from.iter().map(|(old, by)| {
            let old = Literal::u16_unsuffixed(old.unwrap_or(1));
            let read = quote_spanned!(by.span()=> #root::private::upgrade::<Self, _, _>(#payload, #by));
            quote!(#old => #read,)
        });
        quote! {
            fn #key(#payload: #root::private::OldPayload<'_>) -> #root::private::Result<Self, #root::Failure> {
                match #payload.version() {
                    #(#arms)*
                    _ => #root::private::no_upgrade(#payload),
                }
            }
        }
    }
}
