//! Parser for the item under `#[job]`, a struct without generic parameters. The default name of the job type is derived from the struct's
//! name.
//!
//! Only the head of the item must have known syntax. serde and rustc check the fields, so new field syntax requires no new release of this
//! crate. Fields with known syntax are searched for references, because rustc's error about a reference does not name the field.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Attribute, Error, Field, Generics, Ident, ItemStruct, LitStr, Result, Visibility,
    ext::IdentExt as _,
    parse::{ParseStream, Parser as _},
    parse_quote,
};

use crate::{fallback::Mistakes, value::is_name};

/// Error message for a payload that borrows.
pub(crate) const OWNS_ITS_DATA: &str = "a payload owns its data, because it is read from the database; use owned types without a lifetime, such as `String` rather than `&str`";

/// Head of the struct under `#[job]`.
pub(crate) struct Input {
    pub(crate) ident: Ident,
    /// Attributes for the generated items: the `#[cfg(..)]` attributes of the struct, and an `allow` attribute for a deprecated struct.
    pub(crate) attributes: Vec<Attribute>,
    /// Generic parameters, which the macro rejects. The emitted implementation has them too, so that rustc reports no further errors.
    pub(crate) generics: Generics,
    /// Whether a field has a `&'static` reference. The derived `Deserialize` then does not satisfy the bounds of a payload.
    pub(crate) borrows: bool,
}

/// Parses the item and records mistakes. Returns `None` if no `impl JobType` is possible for the item.
pub(crate) fn parse(item: &TokenStream, mistakes: &mut Mistakes) -> Option<Input> {
    let parser = |input: ParseStream| {
        let head = head(input, mistakes);
        input.parse::<TokenStream>()?;
        head
    };
    let head = parser.parse2(item.clone());
    let mut head = mistakes.record(head);
    if let (Some(head), Ok(parsed)) = (&mut head, syn::parse2::<ItemStruct>(item.clone())) {
        // The where clause of a tuple struct follows the fields, so it is taken from the fully parsed item.
        head.generics.where_clause.clone_from(&parsed.generics.where_clause);
        // Fields are checked only if a derive of `Deserialize` is visible. A manual implementation of `Deserialize` may support
        // `&'static` fields.
        if parsed.attrs.iter().any(|attribute| attribute.path().is_ident("derive") && mentions(attribute, &["Deserialize"])) {
            parsed.fields.iter().for_each(|field| head.borrows |= check_field(field, mistakes));
        }
    }
    head
}

/// Checks that a field's type has no `&'static` reference. Skips conditional fields, fields with serde attributes that change how the field
/// is deserialized, and types with `PhantomData` or `fn`. Records a mistake and returns true if the check fails.
fn check_field(field: &Field, mistakes: &mut Mistakes) -> bool {
    let is_exempt = field.attrs.iter().any(|attribute| match attribute.path().get_ident() {
        Some(name) if name == "serde" => mentions(attribute, &["skip", "skip_deserializing", "deserialize_with", "with", "borrow"]),
        Some(name) => name == "cfg" || name == "cfg_attr",
        None => false,
    });
    let is_mistake = !is_exempt && !mentions(&field.ty, &["PhantomData", "fn"]) && borrows(field.ty.to_token_stream());
    if is_mistake {
        let why = "a payload owns its data, because it is read from the database; use an owned type, such as `String`";
        mistakes.push(Error::new_spanned(&field.ty, why));
    }
    is_mistake
}

/// Returns whether the tokens contain one of the identifiers.
pub(crate) fn mentions(tokens: &impl ToTokens, words: &[&str]) -> bool {
    tokens.to_token_stream().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => words.iter().any(|word| ident == word),
        TokenTree::Group(group) => mentions(&group.stream(), words),
        _ => false,
    })
}

/// Returns whether the tokens of a type contain `&'static`.
fn borrows(tokens: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let is = |token: &TokenTree, letter| matches!(token, TokenTree::Punct(punct) if punct.as_char() == letter);
    let is_static = |token: &TokenTree| matches!(token, TokenTree::Ident(ident) if ident == "static");
    tokens.windows(3).any(|three| is(&three[0], '&') && is(&three[1], '\'') && is_static(&three[2]))
        || tokens.into_iter().any(|token| matches!(token, TokenTree::Group(group) if borrows(group.stream())))
}

/// Returns whether the tokens of a type contain a lifetime other than `'static`.
pub(crate) fn has_lifetime(tokens: TokenStream) -> bool {
    let mut is_quoted = false;
    tokens.into_iter().any(|token| match token {
        TokenTree::Punct(punct) => {
            is_quoted = punct.as_char() == '\'';
            false
        }
        TokenTree::Ident(ident) => std::mem::take(&mut is_quoted) && ident != "static",
        TokenTree::Group(group) => has_lifetime(group.stream()),
        TokenTree::Literal(_) => false,
    })
}

fn head(input: ParseStream, mistakes: &mut Mistakes) -> Result<Input> {
    let attributes = input.call(Attribute::parse_outer)?;
    let _: Visibility = input.parse()?;
    let misplaced =
        input.error("`#[job]` belongs on the payload struct; the handler is its `impl Handler`, or a function with `#[handler]`");
    let Ok(keyword) = input.call(Ident::parse_any) else { return Err(misplaced) };
    let other_kind = || Error::new(keyword.span(), format!("the payload of a job must be a struct; put the {keyword} in a field of it"));
    match keyword.to_string().as_str() {
        "struct" => {}
        "enum" => mistakes.push(other_kind()),
        "union" => return Err(other_kind()),
        _ => return Err(misplaced),
    }
    let ident = input.parse()?;
    let generics: Generics = input.parse()?;
    if !generics.params.is_empty() {
        let has_lifetimes = generics.lifetimes().next().is_some();
        let why = "a job type has one name and one payload, so its struct cannot have generic parameters";
        mistakes.push(Error::new_spanned(&generics.params, if has_lifetimes { OWNS_ITS_DATA } else { why }));
    }
    let attributes = attributes.into_iter().filter_map(|attribute| match attribute.path().get_ident()?.to_string().as_str() {
        "cfg" => Some(attribute),
        "deprecated" => Some(parse_quote!(#[allow(deprecated)])),
        _ => None,
    });
    Ok(Input { ident, attributes: attributes.collect(), generics, borrows: false })
}

impl Input {
    /// Returns the default name of the job type, which is the struct's name in snake case.
    pub(crate) fn default_name(&self) -> Result<LitStr> {
        let name = snake_case(&self.ident.unraw().to_string());
        if is_name(&name) {
            return Ok(LitStr::new(&name, self.ident.span()));
        }
        Err(Error::new(
            self.ident.span(),
            "the name of a job type consists of 1 to 64 of the characters A-Z a-z 0-9 _ . : -; set one, as in `name = \"send_email\"`",
        ))
    }
}

/// Converts a name to snake case. An uppercase letter starts a word after a lowercase letter or a digit. In a run of uppercase letters,
/// the last letter starts a word if a lowercase letter follows. For example, `HTTPServer2Job` becomes `http_server2_job`.
fn snake_case(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| letters[at]);
        let after = letters.get(at + 1);
        let begins =
            before.is_some_and(|c| c.is_lowercase() || c.is_numeric() || (c.is_uppercase() && after.is_some_and(|c| c.is_lowercase())));
        if letter.is_uppercase() && begins {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::snake_case;

    #[test]
    fn a_struct_s_name_in_snake_case() {
        for (name, expected) in [
            ("SendEmail", "send_email"),
            ("HTTPServer2Job", "http_server2_job"),
            ("SendHTTP", "send_http"),
            ("Tick", "tick"),
            ("X", "x"),
            ("A1B2", "a1_b2"),
            ("already_snake", "already_snake"),
            ("Snake_Case", "snake_case"),
            ("ABTest", "ab_test"),
        ] {
            assert_eq!(snake_case(name), expected);
        }
    }
}
