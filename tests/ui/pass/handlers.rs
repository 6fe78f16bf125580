//! A function with `#[handler]` can handle a job type from another module or crate.

#![deny(warnings)]

use queue_core::{
    Context, JobResult,
    batch::{BatchContext, JobBatch},
    durable::Durable,
    handler,
    registry::Registry,
};

/// Stand-in for a crate that has no handlers.
mod domain {
    use queue_core::job;
    use serde::{Deserialize, Serialize};

    #[job(send_only, output = usize)]
    #[derive(Serialize, Deserialize)]
    pub struct SendEmail {
        pub to: String,
    }

    #[job(send_only, batch = 500)]
    #[derive(Serialize, Deserialize)]
    pub struct Push {
        pub device: String,
    }

    #[job(send_only, durable)]
    #[derive(Serialize, Deserialize)]
    pub struct Ship;

    #[job(send_only, durable)]
    #[derive(Serialize, Deserialize)]
    pub struct Pack;

    #[job(send_only)]
    #[derive(Serialize, Deserialize)]
    #[deprecated]
    pub struct Old;

    #[job(send_only, cron = "30 4 * * *")]
    #[derive(Default, Serialize, Deserialize)]
    pub struct Nightly;
}

use domain::{Push, SendEmail};

pub struct Mailer;

/// Sends one mail.
#[handler(state(Mailer))]
#[inline]
pub async fn send_email(SendEmail { to }: SendEmail, cx: &Context) -> JobResult<usize> {
    let _: &Mailer = cx.state();
    Ok(to.len())
}

#[handler]
async fn push(batch: &mut JobBatch<Push>, cx: &BatchContext) -> JobResult {
    println!("{} jobs of type {}", batch.len(), cx.job_type());
    Ok(())
}

#[handler]
async fn ship(_: domain::Ship, cx: &Durable) -> JobResult {
    cx.sleep("a day", std::time::Duration::from_secs(86_400)).await;
    Ok(())
}

/// Handler of a durable job. It takes a plain `Context`, because it uses no journal.
#[handler]
async fn pack(_: domain::Pack, _: &Context) -> JobResult {
    Ok(())
}

#[cfg(any())]
#[handler]
async fn absent(_: domain::Absent, _: &Context) -> JobResult {
    Ok(())
}

macro_rules! nothing {
    ($name:ident, $job:ty) => {
        #[handler(crate = ::queue_core)]
        async fn $name(_: $job, _: &Context) -> JobResult {
            Ok(())
        }
    };
}
nothing!(nightly, domain::Nightly);

/// Deprecated handler with the same name as a parameter of the generated function.
#[handler]
#[deprecated]
#[allow(deprecated)]
async fn job(_: domain::Old, _: &Context) -> JobResult {
    Ok(())
}

fn main() {
    let registry = Registry::linked().unwrap();
    let names: Vec<&str> = registry.types().map(|known| known.options().name).collect();
    assert_eq!(names, ["nightly", "old", "pack", "push", "send_email", "ship"]);
    assert!(registry.get("push").unwrap().takes_batches());
    let error = registry.check(&Default::default()).unwrap_err().to_string();
    assert!(error.contains("handlers::Mailer` (for `send_email`)"), "{error}");
    let schedules: Vec<String> = queue_core::schedule::DeclaredSchedule::linked().filter_map(|one| Some(one.named()?.0)).collect();
    assert_eq!(schedules, ["nightly"]);

    let mut registry = Registry::new();
    registry.register::<send_email>().unwrap();
    registry.register::<send_email>().unwrap();
    registry.register_batch::<push>().unwrap();
    assert_eq!(registry.types().count(), 2);
}
