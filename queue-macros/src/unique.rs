//! Parser for the option `unique(..)`, such as `unique(fields(a, b), while = live, on_conflict = keep)`. The option specifies the fields of
//! the uniqueness key, the duration for which a job holds the key, and the policy for conflicts.
//!
//! The expansion borrows each field with the span of its name. rustc therefore reports a missing field at that name.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::{
    Error, Expr, Ident, Member, Result, Token,
    ext::IdentExt as _,
    parenthesized,
    parse::{Parse as _, ParseStream},
    token,
};

use crate::{
    args::{is_part_end, parse_parts},
    fallback::unknown_word,
    value::{DurationLiteral, KnownOption, ident},
};

/// Parsed contents of the parentheses of `unique(..)`.
pub(crate) struct Unique {
    /// Identifier `fields` as written in the attribute. Its span marks the location of errors.
    word: Ident,
    pub(crate) fields: Vec<Member>,
    held: Option<(Ident, HoldTime)>,
    on_conflict: Option<(Ident, Ident)>,
}

enum HoldTime {
    /// Variant of `While`, with the span of the word that names the variant.
    Word(Ident),
    For(DurationLiteral),
}

/// Options allowed in the parentheses of `unique(..)`, each with an example.
const OPTIONS: &[(&str, &str)] = &[("fields", "fields(user, month)"), ("while", "while = live"), ("on_conflict", "on_conflict = keep")];

const HELD: &[&str] = &["live", "queued", "kept"];

const ON_CONFLICT: &[&str] = &["keep", "replace", "debounce"];

pub(crate) fn parse(option: &KnownOption, input: ParseStream) -> Result<Unique> {
    if !input.peek(token::Paren) {
        return Err(option.invalid(option.key, "the fields of its key"));
    }
    let content;
    parenthesized!(content in input);
    let (mut given, mut fields, mut held, mut on_conflict) = (Vec::new(), None, None, None);
    parse_parts(&content, |input| {
        let key = input.call(Ident::parse_any)?;
        let option = KnownOption::new(&key, OPTIONS, &mut given)?;
        match key.to_string().as_str() {
            "fields" => fields = Some((key.clone(), members(&option, input)?)),
            "while" => held = Some((key.clone(), hold(&option, &value(&option, input)?)?)),
            _ => on_conflict = Some((key.clone(), word(&option, &value(&option, input)?, "conflict policy", ON_CONFLICT)?)),
        }
        Ok(())
    })?;
    let Some((word, fields)) = fields else { return Err(option.invalid(option.key, "the fields of its key")) };
    Ok(Unique { word, fields, held, on_conflict })
}

fn value(option: &KnownOption, input: ParseStream) -> Result<Expr> {
    let equals: Option<Token![=]> = input.parse()?;
    if equals.is_none() || is_part_end(input) {
        return Err(option.invalid(option.key, "a value after `=`"));
    }
    input.parse()
}

fn members(option: &KnownOption, input: ParseStream) -> Result<Vec<Member>> {
    if !input.peek(token::Paren) {
        return Err(option.invalid(option.key, "field names in parentheses"));
    }
    let content;
    parenthesized!(content in input);
    let mut members: Vec<Member> = Vec::new();
    parse_parts(&content, |input| {
        let member = Member::parse(input)
            .map_err(|error| Error::new(error.span(), "expected the name of a field, without quotes, as in `fields(user, month)`"))?;
        if members.contains(&member) {
            return Err(Error::new_spanned(&member, format!("the field `{}` is named twice", member.to_token_stream())));
        }
        members.push(member);
        Ok(())
    })?;
    Ok(members)
}

fn hold(option: &KnownOption, given: &Expr) -> Result<HoldTime> {
    match ident(given) {
        Some(_) => Ok(HoldTime::Word(word(option, given, "duration of a key", HELD)?)),
        // A value that is not an identifier is parsed as a duration.
        None => KnownOption { key: option.key, example: "while = \"1h\"" }.timeout(given).map(HoldTime::For),
    }
}

/// Parses one of the `known` words. Returns the name of the corresponding variant, which is the word with a capital first letter.
fn word(option: &KnownOption, given: &Expr, what: &str, known: &[&str]) -> Result<Ident> {
    let word = ident(given).ok_or_else(|| option.invalid(given, &format!("one of `{}`", known.join("`, `"))))?;
    if !known.iter().any(|name| word == name) {
        return Err(unknown_word(what, word, known));
    }
    let text = word.to_string();
    let (first, rest) = text.split_at(1);
    Ok(Ident::new(&(first.to_uppercase() + rest), word.span()))
}

impl Unique {
    /// Generates the `Unique` value that is passed to `Options::unique`.
    pub(crate) fn value(&self, root: &TokenStream, duration: impl Fn(DurationLiteral) -> TokenStream) -> TokenStream {
        let fields = &self.word;
        let held = self.held.as_ref().map(|(key, held)| {
            let method = Ident::new("held", key.span());
            let held = match held {
                HoldTime::Word(variant) => quote!(#variant),
                HoldTime::For(time) => {
                    let time = duration(*time);
                    quote!(For(#time))
                }
            };
            quote!(.#method(#root::private::While::#held))
        });
        let on_conflict = self.on_conflict.as_ref().map(|(key, variant)| quote!(.#key(#root::private::OnConflict::#variant)));
        quote!(#root::private::Unique::#fields()#held #on_conflict)
    }

    /// Generates the method of `JobType` that returns the uniqueness key.
    pub(crate) fn method(&self, root: &TokenStream) -> TokenStream {
        let fields = self.fields.iter().map(|member| {
            let span = match member {
                Member::Named(name) => name.span(),
                Member::Unnamed(index) => index.span,
            };
            // The field access has the span of the field's name, so rustc reports an unknown or unserializable field at that name.
            let own = Ident::new("self", Span::call_site());
            quote_spanned!(span=> .field(&#own.#member))
        });
        quote! {
            fn unique_key(&self) -> #root::private::UniqueKey {
                #root::private::UniqueKey::fields()#(#fields)*
            }
        }
    }
}
