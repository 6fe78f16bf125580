//! The command line: the bundled binary's, and through [`main!`](crate::main!) that of every user's worker.
//!
//! A command reads its settings, opens the database, calls `queue_core::operate` or the worker, and prints. It decides nothing about jobs.

mod args;
mod chosen;
mod values;
mod settings;
mod span;
mod stores;
mod own_file;
mod subscription;
mod variables;
mod weight;
mod known_queue;
mod limits;
mod run;
mod noted;
mod open;
mod migrate;
mod roles;
mod jobs;
mod stats;
mod history;
mod list;
mod show;
mod signal;
mod tail;
mod why;
mod doctor;
mod try_one;
#[cfg(feature = "top")]
mod top;
mod act;
mod act_args;
mod named;
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

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use queue_core::Registry;
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
    inert,
    logs::{WORKER_LOG, log_to_stderr},
    program,
    worker::Worker,
};

/// The `main` of a worker binary: links the crates named, so that their job types can be run, and hands over to the command line.
///
/// ```no_run
/// # mod my_app {}
/// queue_worker::main!(my_app);
/// ```
///
/// Several crates are separated by commas. What handlers ask for with `cx.state::<T>()` is made by functions that are given the pool; one value
/// a type, `; state = ..` for each:
///
/// ```no_run
/// # mod my_app {}
/// struct Templates(Vec<String>);
///
/// async fn templates(pool: sqlx::PgPool) -> sqlx::Result<Templates> {
///     sqlx::query_scalar("select text from template").fetch_all(&pool).await.map(Templates)
/// }
///
/// queue_worker::main!(my_app; state = templates);
/// ```
///
/// For anything else write `main` yourself and call [`cli::main_with`](crate::cli::main_with).
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
    };
    ($($other:tt)*) => {
        ::core::compile_error!(
            "`main!` takes the crates with job types, as code names them, and functions that make state of the pool: \
            `main!(my_app, other_app; state = setup)`; a `-` in a crate's name is `_` in code"
        );
        // So that this is the only message.
        fn main() {}
    };
}

/// Reads the arguments, does what they say, and reports what went wrong. The exit codes are in `--help`.
pub fn main() -> ExitCode {
    main_of_linked(async |worker| Ok(worker))
}

/// As [`main_with`], for a worker that runs the job types linked into this binary and no others.
#[doc(hidden)]
pub fn main_of_linked(prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>) -> ExitCode {
    let args = parsed();
    let empty = args.command.runs().then(Registry::linked);
    // Said before a database is looked for, or an embedded one is made, for a worker that could do nothing with it.
    match empty {
        Some(Ok(registry)) if registry.is_empty() => Problem::from(Error::from(queue_core::RegistryError::Empty)).report(),
        _ => finish(start(args, prepare)),
    }
}

/// What `main!` does with each `state = ..`.
///
/// # Errors
/// What the function returns.
#[doc(hidden)]
pub async fn with_state<T, E>(worker: Worker, setup: impl AsyncFnOnce(PgPool) -> Result<T, E>) -> Result<Worker, BoxError>
where
    T: Send + Sync + 'static,
    E: Into<BoxError>,
{
    let state = setup(worker.pool().clone()).await.map_err(Into::into)?;
    Ok(worker.state(state))
}

/// As [`main()`], with a last word on the worker before it runs: its state, above all.
///
/// ```no_run
/// # #[derive(Default)] struct Mailer;
/// fn main() -> std::process::ExitCode {
///     queue_worker::cli::main_with(async |worker| Ok(worker.state(Mailer::default())))
/// }
/// ```
pub fn main_with(prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>) -> ExitCode {
    finish(start(parsed(), prepare))
}

/// The driver warns of a statement that takes a second, and prints it; whoever waits for a command can see that.
const COMMAND_LOG: &str = "warn,sqlx::query=error";

/// The arguments; help, and what is wrong with them, end the process here.
fn parsed() -> Args {
    program::remember();
    let matches = help::named(Args::command()).try_get_matches().unwrap_or_else(|error| help::without_value_tip(error).exit());
    Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

fn finish(result: Result<ExitCode, Problem>) -> ExitCode {
    result.unwrap_or_else(Problem::report)
}

fn start(args: Args, prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>) -> Result<ExitCode, Problem> {
    let Args { config, settings, command } = args;
    // What stands in the environment is meant for other commands, too.
    let names_one = settings.schema.is_some() && settings.schema != std::env::var("QUEUE_SCHEMA").ok();
    if matches!(command, Command::Stores(_)) && names_one {
        return Err(Problem::usage("`--schema` names one store, and `stores` is about all of them; leave out one of the two"));
    }
    // In the environment `RUST_LOG` stands behind our own variable, and like it before the file.
    let rust_log = Settings { log: std::env::var("RUST_LOG").ok(), ..Settings::default() };
    let set = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut notes = variables::unknown(&Args::command(), set);
    let settings = settings.of_options().over(rust_log).over(Settings::read(config.as_deref(), &mut notes)?);
    let settings = own_settings(&command).over(settings);
    log(&settings, if command.runs() { WORKER_LOG } else { COMMAND_LOG })?;
    for note in notes {
        tracing::warn!("{}", inert::lines(&note));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Problem::failed)?;
    let result = runtime.block_on(obey(command, &settings, prepare));
    // Not waited for: a handler that never yields has had its grace period.
    runtime.shutdown_background();
    result
}

/// What only this command has.
fn own_settings(command: &Command) -> Settings {
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

async fn obey(
    command: Command,
    settings: &Settings,
    prepare: impl AsyncFnOnce(Worker) -> Result<Worker, BoxError>,
) -> Result<ExitCode, Problem> {
    match command {
        Command::Run { .. } => run::run(settings, prepare).await?,
        #[cfg(feature = "dashboard")]
        Command::Dashboard { addr, .. } => dashboard::serve(settings, addr).await?,
        Command::Migrate { output, step } => migrate::migrate(settings, step, output.json).await?,
        Command::Roles(asked) => roles::roles(settings, &asked).await?,
        Command::Jobs(output) => jobs::jobs(output.json)?,
        Command::Stats { all, exact, output } => stats::stats(settings, all, exact, output.json).await?,
        Command::History(args) => history::history(settings, &args).await?,
        Command::List(list) => list::list(settings, &list).await?,
        Command::Tail(asked) => tail::tail(settings, &asked).await?,
        Command::Show { id, payload, logs, output } => show::show(settings, id, (payload, logs), output.json).await?,
        Command::Why { id, output } => return why::why(settings, id, output.json).await,
        Command::Try(args) => return try_one::try_one(settings, &args, prepare).await,
        Command::Doctor(args) => return doctor::doctor(settings, &args).await,
        #[cfg(feature = "top")]
        Command::Top => return top::top(settings).await,
        Command::Act(command) => return act::act(settings, command).await,
        Command::Stores(args) => return stores::stores(settings, args, prepare).await,
        Command::Flow(args) => flow::flow(settings, args).await?,
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
        Command::Help(command) => help::help(help::named(Args::command()), command)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Logs go to stderr: stdout is for what was asked for.
fn log(settings: &Settings, default: &str) -> Result<(), Problem> {
    let filter = settings.log.as_deref().unwrap_or(default);
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Problem::usage(format!("the log filter cannot be read: {error}; write it like `info` or `queue_worker=debug,sqlx=warn`"))
    })?;
    log_to_stderr(filter, matches!(settings.log_format, Some(LogFormat::Json)));
    crate::live::log_panics();
    Ok(())
}
