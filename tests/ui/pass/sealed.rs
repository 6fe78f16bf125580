//! `seal` can be combined with other options. The keys are set at run time.

use queue_core::{
    JobResult, JobType, Keyring, Secret,
    batch::{BatchContext, BatchHandler, JobBatch},
    job, use_keyring,
};
use serde::{Deserialize, Serialize};

#[job(send_only, seal = "customers", unique(fields(card)), key = self.card, version = 2)]
#[derive(Serialize, Deserialize)]
struct Charge {
    card: String,
}

#[job(seal = "eu.customers:2", batch = 10, every = "1h")]
#[derive(Default, Serialize, Deserialize)]
struct Many;

impl BatchHandler for Many {
    async fn run(_: &mut JobBatch<Self>, _: &BatchContext) -> JobResult {
        Ok(())
    }
}

#[job(send_only)]
#[derive(Serialize, Deserialize)]
struct Plain;

fn main() {
    assert_eq!(Charge::OPTIONS.seal, Some("customers"));
    assert_eq!(Many::OPTIONS.seal, Some("eu.customers:2"));
    assert_eq!(Plain::OPTIONS.seal, None);
    let keys = Keyring::new("new", Secret::new([1; 32])).older("old", Secret::new([2; 32])).hashing(Secret::new([3; 32]));
    use_keyring("customers", keys).unwrap();
}
