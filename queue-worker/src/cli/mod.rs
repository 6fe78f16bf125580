//! Command line of the bundled binary and of all binaries that use [`main!`](crate::main!).
//!
//! A command reads its settings, connects to the database and calls `queue_core::operate` or the worker. It then prints the result.
//! Commands contain no job logic of their own.

mod args;
mod selection;
mod values;
mod settings;
mod span;
mod stores;
mod default_file;
mod subscription;
mod variables;
mod weight;
mod name_check;
mod limits;
mod run;
mod audit;
mod open;
mod migrate;
mod roles;
mod jobs;
mod stats;
mod history;
mod list;
mod show;
mod enqueue;
mod signal;
mod json_arg;
mod tail;
mod why;
mod conformance;
mod doctor;
mod try_one;
#[cfg(feature = "top")]
mod top;
mod act;
mod act_args;
mod job_name;
#[cfg(feature = "dashboard")]
mod dashboard;
#[cfg(feature = "dashboard")]
mod dashboard_settings;
mod export;
mod flow;
mod help;
mod capacity;
mod cron;
mod pause;
mod print;
mod problem;
#[cfg(all(test, feature = "dashboard", feature = "health", feature = "metrics", feature = "top", feature = "embedded"))]
mod reference;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use futures_util::future::LocalBoxFuture;
use queue_core::registry::Registry;
use sqlx::PgPool;
use tracing_subscriber::EnvFilter;

pub use self::problem::BoxError;
use self::{
    args::{Args, Command},
    problem::Problem,
    settings::{LogFormat, Settings},
};
use crate::{
    error::Error,
    escape,
    logs::{WORKER_LOG, log_to_stderr},
    program,
    worker::Worker,
};

/// Defines the `main` function of a worker binary. The macro links the given crates, so that their handlers can run, and starts the command
/// line. For handlers in the binary's own crate, `main!()` suffices.
///
/// ```no_run
/// # mod my_app {}
/// # #[cfg(any())] fn main() {} // keeps rustdoc from adding one
/// queue_worker::main!(my_app);
/// ```
///
/// Several crates are separated by commas. Each `; state = ..` names an async function that takes the pool and returns a value. Handlers
/// get this value with `cx.state::<T>()`. A worker has at most one value per type. An example with one value:
///
/// ```no_run
/// # mod my_app {}
/// # #[cfg(any())] fn main() {} // keeps rustdoc from adding one
/// struct Templates(Vec<String>);
///
/// async fn templates(pool: sqlx::PgPool) -> sqlx::Result<Templates> {
///     sqlx::query_scalar("select text from template").fetch_all(&pool).await.map(Templates)
/// }
///
/// queue_worker::main!(my_app; state = templates);
/// ```
///
/// For other setups, write `main` yourself and call [`cli::main_with`](crate::cli::main_with).
#[macro_export]
macro_rules! main {
    (@run) => { $crate::cli::main() };
    (@run $($setup:expr),+) => {
        $crate::cli::main_of_linked(async |worker| {
            $(let worker = $crate::cli::with_state(worker, $setup).await?;)+
            ::core::result::Result::Ok(worker)
        })
    };
    ($($first:ident $(:: $more:ident)*),* $(,)? $(; state = $setup:expr)* $(;)?) => {
        fn main() -> ::std::process::ExitCode {
            $(
                #[allow(unused_imports, clippy::single_component_path_imports)]
                use $first $(:: $more)* as _;
            )*
            $crate::main!(@run $($setup),*)
        }
        // Detects a use inside a function, where `self::main` is the module's own `main` instead of the function defined above.
        const _: () = $crate::cli::at_module_level(self::main);
    };
    ($($other:tt)*) => {
        ::core::compile_error!(
            "`main!` takes the crates with job types, as named in code, and functions that create state from the pool: \
            `main!(my_app, other_app; state = setup)`; a `-` in a crate's name is `_` in code"
        );
        // Prevents a second compiler error about a missing `main`.
        fn main() {}
    };
}

/// Implemented only for the return type of the `main` function that [`main!`](crate::main) defines.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`main!` must be invoked at module level in place of `fn main`, not inside it",
    label = "move it out of the function, and remove that function",
    note = "within a function, `main!` would define another function `main` that nothing calls"
)]
pub trait MainResult {}

#[diagnostic::do_not_recommend]
impl MainResult for ExitCode {}

/// Fails to compile if [`main!`](crate::main) is used inside a `main` function with another return type.
#[doc(hidden)]
pub const fn at_module_level<R: MainResult>(_: fn() -> R) {}

/// Parses the arguments, runs the command and reports its errors. `--help` lists the exit codes.
pub fn main() -> ExitCode {
    main_of_linked(async |worker| Ok(worker))
}

/// Runs the command line like [`main_with`], but fails early if the command runs jobs and this binary links no job types.
#[doc(hidden)]
pub fn main_of_linked(prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>) -> ExitCode {
    let args = parse_args();
    let empty = args.command.runs().then(Registry::linked);
    // This check comes first, so that the command fails before it connects to a database or starts an embedded server.
    match empty {
        Some(Ok(registry)) if registry.is_empty() => Problem::from(Error::from(queue_core::registry::RegistryError::Empty)).report(),
        _ => finish(start(args, prepare)),
    }
}

/// Calls the function of a `state = ..` argument of `main!`, and adds the returned state to the worker. The type of the future does not
/// depend on the function, so a function with a wrong signature causes only one compile error.
///
/// # Errors
/// The future returns the error that `setup` returned.
#[doc(hidden)]
pub fn with_state<T, E>(
    worker: Worker,
    setup: impl AsyncFnOnce(PgPool) -> Result<T, E> + 'static,
) -> LocalBoxFuture<'static, Result<Worker, BoxError>>
where
    T: Send + Sync + 'static,
    E: Into<BoxError>,
{
    Box::pin(async move {
        let state = setup(worker.pool().clone()).await.map_err(Into::into)?;
        Ok(worker.state(state))
    })
}

/// Runs the command line like [`main()`]. `prepare` configures the worker before its start, for example by adding state.
///
/// ```no_run
/// # #[derive(Default)] struct Mailer;
/// fn main() -> std::process::ExitCode {
///     queue_worker::cli::main_with(async |worker| Ok(worker.state(Mailer::default())))
/// }
/// ```
pub fn main_with(prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>) -> ExitCode {
    finish(start(parse_args(), prepare))
}

/// Default log filter of commands that run no jobs. Excludes the driver's log of statements slower than a second, because the user already
/// notices the delay.
const COMMAND_LOG: &str = "warn,sqlx::query=error";

/// Parses the arguments. Exits the process for `--help` and for invalid arguments.
fn parse_args() -> Args {
    program::remember();
    let matches = help::with_program_name(Args::command()).try_get_matches().unwrap_or_else(|error| help::with_own_tips(error).exit());
    Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn finish(result: Result<ExitCode, Problem>) -> ExitCode {
    result.unwrap_or_else(Problem::report)
}

fn start(args: Args, prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>) -> Result<ExitCode, Problem> {
    let Args { config, settings, command } = args;
    // A schema from the environment is ignored here, because `QUEUE_SCHEMA` may be set for other commands.
    let is_schema_given = settings.schema.is_some() && settings.schema != std::env::var("QUEUE_SCHEMA").ok();
    if matches!(command, Command::Stores(_)) && is_schema_given {
        return Err(Problem::usage("`--schema` selects one store, but `stores` covers all stores; omit one of the two"));
    }
    // `RUST_LOG` takes precedence over the settings file, but not over `QUEUE_LOG`.
    let rust_log = Settings { log: std::env::var("RUST_LOG").ok(), ..Settings::default() };
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut notes = variables::unknown_variables(&Args::command(), set);
    let settings = settings.without_foreign_urls().with_fallback(rust_log).with_fallback(Settings::read(config.as_deref(), &mut notes)?);
    let settings = command_settings(&command).with_fallback(settings);
    log(&settings, if command.runs() { WORKER_LOG } else { COMMAND_LOG })?;
    for note in notes {
        tracing::warn!("{}", escape::lines(&note));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Problem::failed)?;
    let result = runtime.block_on(run_command(command, &settings, prepare));
    // Does not wait for handlers that never yield. Their grace period has already ended.
    runtime.shutdown_background();
    result
}

/// Returns the settings from the options that are specific to `command`.
fn command_settings(command: &Command) -> Settings {
    match command {
        #[cfg(feature = "dashboard")]
        Command::Run { worker, dashboard } => Settings { worker: worker.clone(), dashboard: dashboard.clone(), ..Settings::default() },
        #[cfg(not(feature = "dashboard"))]
        Command::Run { worker } => Settings { worker: worker.clone(), ..Settings::default() },
        #[cfg(feature = "dashboard")]
        Command::Dashboard { dashboard, .. } => Settings { dashboard: dashboard.clone(), ..Settings::default() },
        Command::Stores(args) => args.settings(),
        _ => Settings::default(),
    }
}

async fn run_command(
    command: Command,
    settings: &Settings,
    prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>,
) -> Result<ExitCode, Problem> {
    match command {
        Command::Run { .. } => run::run(settings, prepare).await?,
        #[cfg(feature = "dashboard")]
        Command::Dashboard { addr, .. } => dashboard::serve(settings, addr).await?,
        Command::Migrate { output, step } => migrate::migrate(settings, step, output.json).await?,
        Command::Roles(args) => roles::roles(settings, &args).await?,
        Command::Jobs(output) => jobs::jobs(output.json)?,
        Command::Stats { all, exact, output } => stats::stats(settings, all, exact, output.json).await?,
        Command::History(args) => history::history(settings, &args).await?,
        Command::List(list) => list::list(settings, &list).await?,
        Command::Tail(args) => tail::tail(settings, &args).await?,
        Command::Show { id, payload, logs, output } => show::show(settings, id, (payload, logs), output.json).await?,
        Command::Why { id, output } => return why::why(settings, id, output.json).await,
        Command::Try(args) => return try_one::try_one(settings, &args, prepare).await,
        Command::Doctor(args) => return doctor::doctor(settings, &args).await,
        Command::Conformance(args) => return conformance::conformance(settings, args),
        #[cfg(feature = "top")]
        Command::Top => return top::top(settings).await,
        Command::Act(command) => return act::act(settings, command).await,
        Command::Stores(args) => return stores::stores(settings, args, prepare).await,
        Command::Flow(args) => flow::flow(settings, args).await?,
        Command::Enqueue(args) => enqueue::enqueue(settings, args).await?,
        Command::Signal(args) => signal::signal(settings, args).await?,
        Command::Export(export) => export::export(settings, &export).await?,
        Command::Pause(args) => pause::pause(settings, &args).await?,
        Command::Resume(which) => pause::resume(settings, &which).await?,
        Command::Pauses(output) => pause::pauses(settings, output.json).await?,
        Command::Cron { command } => cron::cron(settings, command).await?,
        Command::Limits { command, output } => limits::limits(settings, command, output.json).await?,
        Command::Capacity { queue, capacity, exact, output } => {
            capacity::capacity(settings, queue.as_deref(), capacity, exact, output.json).await?;
        }
        Command::Weight { job_type, key, weight, output } => {
            weight::weight(settings, job_type.as_deref(), key.as_deref(), weight, output.json).await?;
        }
        Command::Help(command) => help::help(help::with_program_name(Args::command()), command)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Sets up logging to stderr, because stdout is reserved for the output of commands.
fn log(settings: &Settings, default: &str) -> Result<(), Problem> {
    let filter = settings.log.as_deref().unwrap_or(default);
    let filter = EnvFilter::try_new(filter)
        .map_err(|error| Problem::usage(format!("invalid log filter: {error}; write it like `info` or `queue_worker=debug,sqlx=warn`")))?;
    log_to_stderr(filter, matches!(settings.log_format, Some(LogFormat::Json)));
    crate::live::log_panics();
    Ok(())
}
