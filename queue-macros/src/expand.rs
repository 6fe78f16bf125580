//! Expansion of `#[job]`: an `impl JobType` for the struct, and the registration of its handler and schedule.
//!
//! Most options expand to calls to the `Options` methods with the same names. The method name keeps the option's span, so that an editor
//! shows the method's documentation. Types and values keep their spans as well, so that rustc reports errors at their position in the
//! attribute.

use proc_macro2::{Literal, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::{Expr, Ident, LitStr, spanned::Spanned as _};

use crate::{
    args::{self, Args},
    fallback::{self, Mistakes},
    input::{self, Input},
    renamed,
    value::{Backoff, DurationLiteral, Value},
};

pub(crate) fn job(args: TokenStream, item: &TokenStream) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let mut args = args::parse(args, &mut mistakes);
    if args.root.is_none()
        && let Some((name, mistake)) = renamed::check("job")
    {
        mistakes.push(mistake);
        args.root = Some(name.into());
    }
    let Some(input) = input::parse(item, &mut mistakes) else { return fallback::item(item, mistakes) };
    // `JobType` requires `'static`, so it cannot be implemented for a struct with lifetimes.
    if input.generics.lifetimes().next().is_some() {
        return fallback::item(item, mistakes);
    }
    match mistakes.into_result(name(&args, &input)) {
        Ok(name) => {
            let job = implement(&input, &args, &name, &output(&args));
            let registration = register(&input, &args);
            quote!(#item #job #registration)
        }
        Err(mistakes) => fallback::job(item, input, args, mistakes),
    }
}

/// Returns the name given in the attribute, or else the default name derived from the struct.
fn name(args: &Args, input: &Input) -> syn::Result<LitStr> {
    let name = match &args.name {
        Some((_, name)) => name.clone(),
        None => input.default_name()?,
    };
    args.check_aliases(&name).map(|()| name)
}

fn output(args: &Args) -> TokenStream {
    args.output.as_ref().map_or_else(|| quote!(()), |(_, output)| output.to_token_stream())
}

pub(crate) fn implement(input: &Input, args: &Args, name: &LitStr, output: &TokenStream) -> TokenStream {
    let Input { ident, attributes, generics, .. } = input;
    let root = root(args);
    let (parameters, arguments, bounds) = generics.split_for_impl();
    let new = Ident::new("new", args.name.as_ref().map_or_else(Span::call_site, |(key, _)| key.span()));
    let output_name = Ident::new("Output", args.output.as_ref().map_or_else(Span::call_site, |(key, _)| key.span()));
    let unique_key =
        args.calls.iter().find_map(|(_, value)| if let Value::Unique(unique) = value { Some(unique.method(&root)) } else { None });
    let upgrade = match (&args.upgrade, &args.version) {
        (Some(upgrade), _) => upgrade.method(&root),
        // Without `upgrade`, a version above 1 is accepted only for a `send_only` type. `#[handler]` rejects a job type for which this
        // constant is false.
        (None, Some((_, 2..))) => quote!(
            const HAS_UPGRADES: bool = false;
        ),
        (None, _) => TokenStream::new(),
    };
    let calls = calls(&root, &args.calls);
    let cx = if args.is_durable() { quote!(durable::Durable) } else { quote!(Context) };
    let (key, fair) = (ordering_key(&root, args), fair_key(&root, args));
    // The default payload has the span of the schedule option, so rustc reports a payload type without `Default` at that option.
    let scheduled = args.timing.as_ref().map(|timing| {
        let default = quote_spanned!(timing.span()=> #root::private::default());
        quote! {
            fn scheduled() -> #root::private::Option<Self> {
                #root::private::Some(#default)
            }
        }
    });
    quote! {
        #(#attributes)*
        #[automatically_derived]
        #[diagnostic::do_not_recommend]
        impl #parameters #root::JobType for #ident #arguments #bounds {
            type #output_name = #output;
            type Cx = #root::#cx;
            const OPTIONS: #root::private::Options = #root::private::Options::#new(#name)#calls;
            #key
            #fair
            #unique_key
            #scheduled
            #upgrade
        }
    }
}

/// Generates the method that returns the ordering key. The empty key orders the whole queue. The method's receiver is the `self` token of
/// the user's expression. If a `macro_rules!` macro generated the attribute, macro hygiene would distinguish a new `self` token from the
/// `self` in the expression.
fn ordering_key(root: &TokenStream, args: &Args) -> TokenStream {
    let signature = |receiver: &TokenStream| {
        quote! {
            fn ordering_key(&#receiver) -> #root::private::Option<#root::private::Cow<'_, str>>
        }
    };
    if args.fifo.is_some() {
        let signature = signature(&quote!(self));
        return quote!(#signature { #root::private::Some(#root::private::Cow::Borrowed("")) });
    }
    let Some((_, key)) = &args.key else { return TokenStream::new() };
    let signature = signature(&receiver(key.to_token_stream()).unwrap_or_else(|| quote!(self)));
    let text = text(root, key);
    quote!(#signature { #text })
}

/// Generates the method that returns the fairness key.
fn fair_key(root: &TokenStream, args: &Args) -> TokenStream {
    let Some((_, key)) = &args.fair else { return TokenStream::new() };
    let (receiver, text) = (receiver(key.to_token_stream()).unwrap_or_else(|| quote!(self)), text(root, key));
    quote! {
        fn fair_key(&#receiver) -> #root::private::Option<#root::private::Cow<'_, str>> {
            #text
        }
    }
}

/// Generates code that converts an expression over the payload to text.
fn text(root: &TokenStream, key: &Expr) -> TokenStream {
    let text = quote_spanned!(key.span()=> #root::private::ToString::to_string(&(#key)));
    quote!(#root::private::Some(#root::private::Cow::Owned(#text)))
}

/// Returns the first `self` token of an expression.
fn receiver(tokens: TokenStream) -> Option<TokenStream> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) if ident == "self" => Some(ident.into_token_stream()),
        TokenTree::Group(group) => receiver(group.stream()),
        _ => None,
    })
}

/// Generates the registrations of the handler and of the schedule in an unnamed constant, which is valid both in a module and in a function
/// body.
fn register(input: &Input, args: &Args) -> TokenStream {
    if args.send_only && args.timing.is_none() {
        return TokenStream::new();
    }
    let Input { ident, attributes, .. } = input;
    let root = root(args);
    let declared = args.timing.as_ref().map(|_| quote!(#root::private::submit! { #root::private::DeclaredSchedule::of::<#ident>() }));
    let registration = Ident::new(if args.takes_batches() { "batch_registration" } else { "registration" }, Span::call_site());
    let registered = (!args.send_only).then(|| quote!(#root::private::submit! { #root::private::#registration::<#ident>() }));
    quote! {
        #(#attributes)*
        const _: () = {
            #registered
            #declared
        };
    }
}

pub(crate) fn root(args: &Args) -> TokenStream {
    args.root.as_ref().map_or_else(|| quote!(::queue_core), ToTokens::to_token_stream)
}

fn calls(root: &TokenStream, calls: &[(Ident, Value)]) -> TokenStream {
    calls.iter().map(|(key, given)| (key, value(root, given))).map(|(key, given)| quote!(.#key(#given))).collect()
}

fn value(root: &TokenStream, value: &Value) -> TokenStream {
    match value {
        Value::Text(text) => text.to_token_stream(),
        Value::Texts(texts) => quote!(&[#(#texts),*]),
        Value::Number(number) => number.to_token_stream(),
        Value::Share(share) => share.to_token_stream(),
        Value::Time(time) => duration(root, *time),
        Value::Bytes(size) => size.to_token_stream(),
        Value::Backoff(Backoff { kind, base, calls: rest }) => {
            let (base, rest) = (duration(root, *base), calls(root, rest));
            quote!(#root::private::Backoff::#kind(#base)#rest)
        }
        Value::Retain(variant) => quote!(#root::private::Retain::#variant),
        Value::RetainFor(time) => {
            let history = duration(root, *time);
            quote!(#root::private::Retain::For(#history))
        }
        Value::Durability(variant) => quote!(#root::private::Durability::#variant),
        Value::KeyPolicy(variant) => quote!(#root::private::KeyPolicy::#variant),
        Value::Flag => TokenStream::new(),
        Value::Unique(unique) => unique.value(root, |time| duration(root, time)),
        Value::Limits(limits) => {
            let limits = limits.iter().map(|limit| limit.value(root, |time| duration(root, time)));
            quote!(&[#(#limits),*])
        }
        Value::States(types) => quote!(&[#(#root::private::StateKey::of::<#types>()),*]),
    }
}

fn duration(root: &TokenStream, time: DurationLiteral) -> TokenStream {
    let mut millis = Literal::u64_unsuffixed(time.millis);
    millis.set_span(time.span);
    quote!(#root::private::Duration::from_millis(#millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expansion_is_constants_and_one_registration() {
        let args = quote! {
            name = "send_email", aliases = ["mail"], queue = "mail", priority = Priority::EXPLICIT, max_attempts = 5,
            backoff = exponential("1s", max = "10m", jitter = 0.1), timeout = "1m30s", output = MessageId, state(Mailer, Db), retain = "none",
            durability = relaxed, transactional, key = self.to, key_policy = skip, unique(fields(to), while = "1h", on_conflict = replace),
            version = 3, upgrade(1 = Self::from_v1, 2 = from_v2)
        };
        let item = quote! {
            #[derive(Serialize, Deserialize)]
            #[cfg(feature = "mail")]
            struct SendEmail { to: String }
        };
        let file = syn::parse2(job(args, &item)).expect("the expansion of a valid struct is a file of items");
        insta::assert_snapshot!(prettyplease::unparse(&file));
    }

    #[test]
    fn a_fair_key_is_a_method_and_an_option() {
        let item = quote! { struct Render { tenant: Tenant } };
        let expansion = job(quote!(fair = self.tenant.id), &item).to_string();
        let method = quote! {
            fn fair_key(&self) -> ::queue_core::private::Option<::queue_core::private::Cow<'_, str>> {
                ::queue_core::private::Some(::queue_core::private::Cow::Owned(::queue_core::private::ToString::to_string(&(self.tenant.id))))
            }
        };
        assert!(expansion.contains(&method.to_string()) && expansion.contains(&quote!(.fair()).to_string()), "{expansion}");
    }
}
