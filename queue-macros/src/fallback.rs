//! Error reporting, and the expansion of an invalid attribute.
//!
//! The item is always emitted, so that rustc does not also report a missing struct. If possible, an `impl JobType` with the valid options
//! is emitted too, so that rustc does not report a missing implementation. The user therefore sees one message per mistake. No
//! registration is generated, because rustc would report a missing handler for it.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote};
use syn::{Error, Ident, ItemStruct, LitStr, Path, Result, Token, parse_quote, punctuated::Punctuated};

use crate::{
    args::Args,
    expand::{implement, root},
    input::Input,
};

/// Mistakes found so far, combined into one error.
#[derive(Default)]
pub(crate) struct Mistakes(Option<Error>);

impl Mistakes {
    pub(crate) fn push(&mut self, mistake: Error) {
        match &mut self.0 {
            Some(others) => others.combine(mistake),
            None => self.0 = Some(mistake),
        }
    }

    /// Returns the value of `result`. If `result` is an error, records the error as a mistake and returns `None`.
    pub(crate) fn record<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|mistake| self.push(mistake)).ok()
    }

    /// Returns `result` if no mistakes were recorded. Otherwise returns one error with all mistakes, including the error of `result`.
    pub(crate) fn into_result<T>(self, result: Result<T>) -> Result<T> {
        match (self.0, result) {
            (None, result) => result,
            (Some(mistakes), Ok(_)) => Err(mistakes),
            (Some(mut mistakes), Err(last)) => {
                mistakes.combine(last);
                Err(mistakes)
            }
        }
    }
}

/// Expands an item that cannot have an `impl JobType`.
pub(crate) fn item(item: &TokenStream, mistakes: Mistakes) -> TokenStream {
    let errors = mistakes.0.map(Error::into_compile_error);
    quote!(#item #errors)
}

/// Expands an item that can have an `impl JobType`. If the attribute gives no valid output type, the output type becomes an array whose
/// length is the first error. rustc treats this type as already reported and does not compare it with the handler's return type.
///
/// A struct with generic parameters gets an implementation for all arguments that satisfy the bounds of a payload. A struct with
/// `&'static` references is emitted without its serde derives, because the derived implementations do not satisfy these bounds.
pub(crate) fn job(item: &TokenStream, mut input: Input, mut args: Args, mistakes: Error) -> TokenStream {
    let mut errors = mistakes.into_iter().map(Error::into_compile_error);
    let output = match &args.output {
        Some((_, output)) => output.to_token_stream(),
        None => errors.next().map_or_else(|| quote!(()), |error| quote!([(); #error])),
    };
    let root = root(&args);
    let (item, payload) = if input.borrows { without_serde(item, &input, &root) } else { (item.clone(), TokenStream::new()) };
    if !input.generics.params.is_empty() {
        args = args.types_only();
        let ident = &input.ident;
        let arguments = input.generics.split_for_impl().1.to_token_stream();
        let bounds = parse_quote!(#ident #arguments: #root::private::Payload + #root::private::Send + #root::private::Sync + 'static);
        input.generics.make_where_clause().predicates.push(bounds);
    }
    let job = implement(&input, &args, &LitStr::new("job", Span::call_site()), &output);
    quote!(#item #payload #job #(#errors)*)
}

/// Returns a struct without its visible serde derives, and an implementation of `Payload` that is never called. A struct without visible
/// serde derives is returned unchanged.
fn without_serde(item: &TokenStream, input: &Input, root: &TokenStream) -> (TokenStream, TokenStream) {
    let is_serde = |path: &Path| path.segments.last().is_some_and(|last| last.ident == "Serialize" || last.ident == "Deserialize");
    let Ok(mut parsed) = syn::parse2::<ItemStruct>(item.clone()) else { return (item.clone(), TokenStream::new()) };
    let mut has_derive = false;
    for attribute in parsed.attrs.iter_mut().filter(|attribute| attribute.path().is_ident("derive")) {
        let Ok(derives) = attribute.parse_args_with(Punctuated::<Path, Token![,]>::parse_terminated) else { continue };
        has_derive |= derives.iter().any(is_serde);
        let others = derives.iter().filter(|path| !is_serde(path));
        *attribute = parse_quote!(#[derive(#(#others),*)]);
    }
    if !has_derive {
        return (item.clone(), TokenStream::new());
    }
    let fields = parsed.fields.iter_mut().map(|field| &mut field.attrs);
    fields.chain([&mut parsed.attrs]).for_each(|attributes| attributes.retain(|attribute| !attribute.path().is_ident("serde")));
    let (ident, attributes, (parameters, arguments, bounds)) = (&input.ident, &input.attributes, input.generics.split_for_impl());
    let payload = quote! {
        #(#attributes)*
        impl #parameters #root::private::Payload for #ident #arguments #bounds {
            type Serde = ();
            fn as_serde(&self) -> &() {
                &()
            }
            fn from_serde(_: ()) -> Self {
                #root::private::unreachable!()
            }
        }
    };
    (parsed.into_token_stream(), payload)
}

/// Creates the error for a word that is not one of `known`.
pub(crate) fn unknown_word(what: &str, word: &Ident, known: &[&str]) -> Error {
    let text = word.to_string();
    let near = known.iter().filter(|name| distance(&text, name) <= 1 + text.len() / 4).min_by_key(|name| distance(&text, name));
    let part = || known.iter().find(|name| text.len() >= 3 && (name.contains(&text) || text.starts_with(**name)));
    let hint = match near.or_else(part) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("expected one of `{}`", known.join("`, `")),
    };
    Error::new(word.span(), format!("unknown {what} `{word}`; {hint}"))
}

/// Returns the Levenshtein distance between two words.
fn distance(one: &str, other: &str) -> usize {
    let mut row: Vec<usize> = (0..=other.chars().count()).collect();
    for (at, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], at + 1);
        for (column, against) in other.chars().enumerate() {
            let changed = diagonal + usize::from(letter != against);
            diagonal = row[column + 1];
            row[column + 1] = changed.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[other.chars().count()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distance_counts_letters() {
        for (one, other, expected) in [
            ("", "abc", 3),
            ("abc", "", 3),
            ("queue", "queue", 0),
            ("max_attempt", "max_attempts", 1),
            ("timout", "timeout", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }
}
