//! `unique(fields(a, b), while = live, on_conflict = keep)`: which fields make a job's key, and what is said of it.
//!
//! Whether the struct has such fields is rustc's to say: the expansion borrows each, at the place where it was named.

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
    args::{each, ends},
    fallback::unknown,
    value::{Named, Time, ident},
};

/// What stood in the parentheses.
pub(crate) struct Unique {
    /// The word `fields`.
    word: Ident,
    pub(crate) fields: Vec<Member>,
    held: Option<(Ident, HowLong)>,
    on_conflict: Option<(Ident, Ident)>,
}

enum HowLong {
    /// A variant of `While`, at the place of the word that named it.
    Word(Ident),
    For(Time),
}

/// What may stand in the parentheses, each with an example.
const OPTIONS: &[(&str, &str)] = &[("fields", "fields(user, month)"), ("while", "while = live"), ("on_conflict", "on_conflict = keep")];

const HELD: &[&str] = &["live", "queued", "kept"];

const ON_CONFLICT: &[&str] = &["keep", "replace", "debounce"];

pub(crate) fn parse(option: &Named, input: ParseStream) -> Result<Unique> {
    if !input.peek(token::Paren) {
        return Err(option.wrong(option.key, "the fields that make its key"));
    }
    let content;
    parenthesized!(content in input);
    let (mut given, mut fields, mut held, mut on_conflict) = (Vec::new(), None, None, None);
    each(&content, |input| {
        let key = input.call(Ident::parse_any)?;
        let option = Named::new(&key, OPTIONS, &mut given)?;
        match key.to_string().as_str() {
            "fields" => fields = Some((key.clone(), members(&option, input)?)),
            "while" => held = Some((key.clone(), hold(&option, &value(&option, input)?)?)),
            _ => on_conflict = Some((key.clone(), word(&option, &value(&option, input)?, "way out of a conflict", ON_CONFLICT)?)),
        }
        Ok(())
    })?;
    let Some((word, fields)) = fields else { return Err(option.wrong(option.key, "the fields that make its key")) };
    Ok(Unique { word, fields, held, on_conflict })
}

fn value(option: &Named, input: ParseStream) -> Result<Expr> {
    let equals: Option<Token![=]> = input.parse()?;
    if equals.is_none() || ends(input) {
        return Err(option.wrong(option.key, "a value after `=`"));
    }
    input.parse()
}

fn members(option: &Named, input: ParseStream) -> Result<Vec<Member>> {
    if !input.peek(token::Paren) {
        return Err(option.wrong(option.key, "names of fields in parentheses"));
    }
    let content;
    parenthesized!(content in input);
    let mut members: Vec<Member> = Vec::new();
    each(&content, |input| {
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

fn hold(option: &Named, given: &Expr) -> Result<HowLong> {
    match ident(given) {
        Some(_) => Ok(HowLong::Word(word(option, given, "way to hold a key", HELD)?)),
        // Whoever gives no word has a duration in mind.
        None => Named { key: option.key, example: "while = \"1h\"" }.timeout(given).map(HowLong::For),
    }
}

/// One of the words, as the variant of that name.
fn word(option: &Named, given: &Expr, what: &str, known: &[&str]) -> Result<Ident> {
    let word = ident(given).ok_or_else(|| option.wrong(given, &format!("one of `{}`", known.join("`, `"))))?;
    if !known.iter().any(|name| word == name) {
        return Err(unknown(what, word, known));
    }
    let text = word.to_string();
    let (first, rest) = text.split_at(1);
    Ok(Ident::new(&(first.to_uppercase() + rest), word.span()))
}

impl Unique {
    /// The argument of `Options::unique`.
    pub(crate) fn value(&self, root: &TokenStream, duration: impl Fn(Time) -> TokenStream) -> TokenStream {
        let fields = &self.word;
        let held = self.held.as_ref().map(|(key, held)| {
            let method = Ident::new("held", key.span());
            let held = match held {
                HowLong::Word(variant) => quote!(#variant),
                HowLong::For(time) => {
                    let time = duration(*time);
                    quote!(For(#time))
                }
            };
            quote!(.#method(#root::private::While::#held))
        });
        let on_conflict = self.on_conflict.as_ref().map(|(key, variant)| quote!(.#key(#root::private::OnConflict::#variant)));
        quote!(#root::private::Unique::#fields()#held #on_conflict)
    }

    /// The method of `Job` that makes the key.
    pub(crate) fn method(&self, root: &TokenStream) -> TokenStream {
        let fields = self.fields.iter().map(|member| {
            let span = match member {
                Member::Named(name) => name.span(),
                Member::Unnamed(index) => index.span,
            };
            // Said of the field's own token: that there is none of this name, or that it cannot be written.
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
