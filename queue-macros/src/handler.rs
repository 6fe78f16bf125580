//! Expansion of `#[handler]`: a type with the function's name, an implementation of `JobRunner` or `BatchRunner` for the type, and one
//! registration.
//!
//! The generated type is an empty enum, which exists only in the type namespace. The function therefore stays callable under the same name.
//! The enum belongs to the user's crate, so it can implement the trait even if the job type is in another crate.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::{
    Attribute, Error, FnArg, GenericArgument, Ident, Lifetime, Path, PathArguments, Result, ReturnType, Signature, Token, Type, Visibility,
    ext::IdentExt as _,
    parse::{ParseStream, Parser as _},
    spanned::Spanned as _,
};

use crate::{
    args::{self, parse_parts},
    fallback::Mistakes,
    input::{self, has_lifetime, mentions},
    renamed, synonyms,
    value::KnownOption,
};

/// Names of all options, each with an example for error messages.
const OPTIONS: &[(&str, &str)] = &[("state", "state(Mailer, Db)"), ("crate", "crate = my::path::to::queue_core")];

/// Names of the context types.
const CONTEXTS: [&str; 3] = ["Context", "Durable", "BatchContext"];

#[derive(Default)]
struct Args {
    /// Path of the crate `queue_core`, if it differs from `::queue_core`.
    root: Option<Path>,
    /// Types of the state that the handler requires.
    states: Vec<Type>,
}

/// Parsed signature of the function under `#[handler]`.
struct Function {
    ident: Ident,
    visibility: Visibility,
    /// `#[cfg(..)]` attributes of the function.
    attributes: Vec<Attribute>,
    /// Type of the jobs that the function runs.
    job: Type,
    /// Whether the function takes a batch.
    takes_batch: bool,
    /// Types of the two parameters.
    parameters: [Type; 2],
    output: Type,
}

pub(crate) fn handler(args: TokenStream, item: &TokenStream) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let mut args = parse_args(args, &mut mistakes);
    if args.root.is_none()
        && let Some((name, mistake)) = renamed::check("handler")
    {
        mistakes.push(mistake);
        args.root = Some(name.into());
    }
    let parser = |input: ParseStream| {
        let function = Function::parse(input);
        input.parse::<TokenStream>()?;
        function
    };
    let function = mistakes.record(parser.parse2(item.clone()));
    match (function, mistakes.into_result(Ok(()))) {
        (Some(function), Ok(())) => {
            let generated = function.expand(&args);
            // The attribute requires an `async` function that takes the job by value, so the clippy lints against both are disabled.
            quote!(#[allow(clippy::needless_pass_by_value, clippy::unused_async)] #item #generated)
        }
        (_, result) => {
            let errors = result.err().map(Error::into_compile_error);
            quote!(#item #errors)
        }
    }
}

fn parse_args(tokens: TokenStream, mistakes: &mut Mistakes) -> Args {
    let (mut args, mut given) = (Args::default(), Vec::new());
    let mut option = |input: ParseStream| {
        let Ok(key) = input.call(Ident::parse_any) else {
            return Err(input.error(format!("expected an option, such as `{}`", OPTIONS[0].1)));
        };
        if let Some(hint) = synonyms::hint(&key) {
            return Err(Error::new(key.span(), format!("`{key}` belongs in the `#[job(..)]` of the payload; {hint}")));
        }
        if !OPTIONS.iter().any(|(name, _)| key == name) && args::is_option(&key) {
            return Err(Error::new(
                key.span(),
                format!("`{key}` is an option of the job type; write it in the `#[job(..)]` of the payload"),
            ));
        }
        let option = KnownOption::new(&key, OPTIONS, &mut given)?;
        if key == "state" {
            args.states = args::states(&option, input)?;
        } else {
            args.root = Some(option.path(&args::value(&option, input)?)?);
        }
        Ok(())
    };
    mistakes.record((|input: ParseStream| parse_parts(input, &mut option)).parse2(tokens));
    args
}

impl Function {
    fn parse(input: ParseStream) -> Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        if input.peek(Token![impl]) {
            return Err(
                input.error("`#[handler]` belongs on a function; an `impl Handler` needs no attribute, because `#[job]` registers it")
            );
        }
        let Ok(signature) = input.parse::<Signature>() else {
            return Err(input.error("`#[handler]` belongs on an `async fn` that takes the job and its context"));
        };
        let Signature { asyncness, fn_token, ident, generics, inputs, output, .. } = signature;
        let example = format!("`async fn {ident}(job: SendEmail, cx: &Context) -> JobResult`");
        if asyncness.is_none() {
            return Err(Error::new(fn_token.span(), "a handler is an `async fn`; write `async` before `fn`"));
        }
        if let Some(first) = generics.params.first() {
            return Err(Error::new_spanned(first, "a handler has neither generic parameters nor named lifetimes; write `cx: &Context`"));
        }
        let mut parameters = Vec::new();
        for input in inputs {
            match input {
                FnArg::Receiver(receiver) => {
                    return Err(Error::new_spanned(receiver, format!("a handler is a function, not a method, as in {example}")));
                }
                FnArg::Typed(parameter) => parameters.push(ungroup(*parameter.ty)),
            }
        }
        let Ok(parameters) = <[Type; 2]>::try_from(parameters) else {
            return Err(Error::new(ident.span(), format!("a handler takes the job and its context, as in {example}")));
        };
        let ReturnType::Type(_, output) = output else {
            return Err(Error::new(ident.span(), format!("a handler returns a `JobResult`, as in {example}")));
        };
        if parameters.iter().chain([&*output]).any(|ty| mentions(ty, &["Self"])) {
            return Err(Error::new(ident.span(), "a handler is a free function; move it out of the `impl`"));
        }
        let (job, takes_batch) = job(&parameters[0])?;
        if has_lifetime(job.to_token_stream()) {
            return Err(Error::new_spanned(job, input::OWNS_ITS_DATA));
        }
        check_context(&parameters[1])?;
        let attributes = attributes.into_iter().filter(|attribute| attribute.path().is_ident("cfg")).collect();
        Ok(Self { ident, visibility, attributes, job, takes_batch, parameters, output: *output })
    }

    fn expand(&self, args: &Args) -> TokenStream {
        let Self { ident, visibility, attributes, job, takes_batch, output, .. } = self;
        let root = args.root.as_ref().map_or_else(|| quote!(::queue_core), ToTokens::to_token_stream);
        let states = &args.states;
        let state = (!states.is_empty()).then(|| {
            quote! {
                const STATE: &'static [#root::private::StateKey] = &[#(#root::private::StateKey::of::<#states>()),*];
            }
        });
        // The job type is always written as this projection, with the span of the parameter. If the type is not a job type, rustc reports a
        // single error, because rustc prints equal errors with the same span only once.
        let bound = quote_spanned!(job.span()=> #root::private::HandlerJob);
        let job_type = quote_spanned!(job.span()=> <#job as #bound<'static>>::Job);
        let registrar = quote_spanned!(job.span()=> <#job as #bound<'static>>::Registrar);
        let declared = quote_spanned!(job.span()=> <#job_type as #root::private::JobType>);
        let ([runner, function, of, name], parameters, lifetimes) = self.signature(&root, &job_type, &declared);
        let output_type = if *takes_batch { quote!(()) } else { quote_spanned!(job.span()=> #declared::Output) };
        let future = quote_spanned!(output.span()=> impl #root::private::JobFuture<#output_type> + #root::private::Send);
        let opaque = quote_spanned!(output.span()=> #future + use<#lifetimes>);
        let [payload, cx] = self.arguments();
        let argument = context_argument(&root, &self.parameters[1], &cx);
        let mut handler = ident.clone();
        handler.set_span(ident.span().located_at(job.span()));
        let registration = quote_spanned!(job.span()=> #registrar::#of::<#handler>());
        let checks = self.checks(&root, &declared);
        let doc = format!("Handler of `{}` jobs, as a type for `register`.", job.to_token_stream().to_string().replace(' ', ""));
        quote! {
            #(#attributes)*
            #[doc = #doc]
            #[allow(deprecated, missing_debug_implementations, non_camel_case_types)]
            #visibility enum #ident {}
            #(#attributes)*
            #[allow(deprecated)]
            const _: () = {
                #checks
                #[automatically_derived]
                impl #root::private::#runner for #ident where for<'a> #job: #bound<'a> {
                    type Job = #job_type;
                    #state
                    fn #name<#lifetimes>(#parameters) -> #future {
                        Self::run(#payload, #cx)
                    }
                }
                impl #root::private::#function for #ident where for<'a> #job: #bound<'a> {}
                impl #ident {
                    fn run<#lifetimes>(#parameters) -> #opaque {
                        #ident(#payload, #argument)
                    }
                }
                #root::private::submit! { #registration }
            };
        }
    }

    /// Returns the argument names, each with the span of its parameter's type. rustc reports a mismatch with the job type at this span.
    fn arguments(&self) -> [Ident; 2] {
        let at = |ty: &Type, name| Ident::new(name, Span::mixed_site().located_at(ty.span()));
        [at(&self.parameters[0], "job"), at(&self.parameters[1], "cx")]
    }

    /// Returns four names: the two implemented traits, the constructor of the registration, and the method. Also returns the parameters
    /// of the method and their lifetimes.
    fn signature(&self, root: &TokenStream, job_type: &TokenStream, declared: &TokenStream) -> ([Ident; 4], TokenStream, TokenStream) {
        let names = |names: [&str; 4]| names.map(|name| Ident::new(name, Span::call_site()));
        let [payload, cx] = self.arguments();
        let [a, b] = ["'a", "'b"].map(|name| Lifetime::new(name, Span::mixed_site().located_at(self.output.span())));
        if self.takes_batch {
            let batch = quote_spanned!(self.job.span()=> &#a mut #root::private::JobBatch<#job_type>);
            let parameters = quote!(#payload: #batch, #cx: &#b #root::private::BatchContext);
            return (
                names(["BatchRunner", "BatchFunction", "of_batch", "run_batch"]),
                parameters,
                quote_spanned!(self.output.span()=> #a, #b),
            );
        }
        let parameters = quote_spanned!(self.job.span()=> #payload: #job_type, #cx: &#b #declared::Cx);
        (names(["JobRunner", "Function", "of", "run_job"]), parameters, quote!(#b))
    }

    /// Generates compile-time checks of the job type's options.
    fn checks(&self, root: &TokenStream, declared: &TokenStream) -> TokenStream {
        let (is_of_kind, kind) = if self.takes_batch {
            (quote!(is_some), "only the handler of a job type with `batch = ..` takes a `JobBatch`; this job type has no such option")
        } else {
            (quote!(is_none), "the handler of a job type with `batch = ..` takes `&mut JobBatch<..>` and `&BatchContext`")
        };
        quote_spanned! {self.job.span()=>
            const _: () = #root::private::assert!(#declared::OPTIONS.batch.#is_of_kind(), #kind);
            const _: () = #root::private::assert!(
                #declared::HAS_UPGRADES,
                "jobs of older versions may be waiting; add the option `upgrade` to the job type"
            );
        }
    }
}

/// Generates the argument for the second parameter. A reference is converted by `into_context`, so that rustc explains a context type
/// mismatch and reports it at the parameter.
fn context_argument(root: &TokenStream, parameter: &Type, cx: &Ident) -> TokenStream {
    let Type::Reference(reference) = parameter else { return cx.to_token_stream() };
    match &*reference.elem {
        context @ Type::Path(_) => quote_spanned!(parameter.span()=> #root::private::into_context::<#context, _>(#cx)),
        _ => cx.to_token_stream(),
    }
}

/// Checks that the second parameter is a shared reference. Unknown type names are accepted, because they may be aliases of references.
fn check_context(parameter: &Type) -> Result<()> {
    match parameter {
        Type::Reference(reference) if reference.mutability.is_some() => {
            Err(Error::new_spanned(parameter, format!("a handler borrows its context; write `&{}`", reference.elem.to_token_stream())))
        }
        Type::Path(path) => match path.path.segments.last() {
            Some(last) if CONTEXTS.iter().any(|name| last.ident == name) => {
                Err(Error::new_spanned(parameter, format!("a handler borrows its context; write `&{}`", last.ident)))
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

/// Returns the job type of the first parameter, and whether the parameter is a batch.
fn job(parameter: &Type) -> Result<(Type, bool)> {
    let batched = |ty: &Type| {
        let Type::Path(path) = ty else { return None };
        let last = path.path.segments.last().filter(|last| last.ident == "JobBatch")?;
        let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
        match arguments.args.first() {
            Some(GenericArgument::Type(job)) => Some(job.clone()),
            _ => None,
        }
    };
    match parameter {
        Type::Reference(reference) => {
            let job = batched(&reference.elem).filter(|_| reference.mutability.is_some());
            let expected = "a handler takes its job by value, as in `job: SendEmail`, or a batch as `&mut JobBatch<SendEmail>`";
            job.map(|job| (job, true)).ok_or_else(|| Error::new_spanned(parameter, expected))
        }
        _ if batched(parameter).is_some() => {
            Err(Error::new_spanned(parameter, "a handler borrows its batch; write `&mut` before the type"))
        }
        _ => Ok((parameter.clone(), false)),
    }
}

/// Removes the invisible group that a `macro_rules!` macro has inserted around a type.
fn ungroup(ty: Type) -> Type {
    match ty {
        Type::Group(group) => ungroup(*group.elem),
        other => other,
    }
}
