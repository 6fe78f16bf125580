//! Without options, a job type is named after its struct and has the options of `Options::new`.

use queue_core::{
    Context, Handler, JobResult, JobType, job,
    options::{Backoff, Durability, Retain},
    registry::Registry,
};
use serde::{Deserialize, Serialize};

#[job]
#[derive(Serialize, Deserialize)]
struct HTTPServer2Job {
    port: u16,
}

impl Handler for HTTPServer2Job {
    async fn run(self, _: &Context) -> JobResult {
        assert!(self.port > 0);
        Ok(())
    }
}

#[job()]
#[derive(Serialize, Deserialize)]
struct r#Type {
    r#fn: u8,
}

impl Handler for r#Type {
    async fn run(self, _: &Context) -> JobResult {
        assert!(self.r#fn > 0);
        Ok(())
    }
}

fn main() {
    let options = HTTPServer2Job::OPTIONS;
    assert_eq!(options.name, "http_server2_job");
    assert!(options.aliases.is_empty() && options.state.is_empty());
    assert_eq!((options.queue, options.priority, options.max_attempts), ("default", 100, 20));
    assert_eq!((options.backoff, options.timeout, options.retain), (Backoff::DEFAULT, None, Retain::Default));
    assert_eq!((options.durability, options.transactional), (Durability::Full, false));

    assert_eq!(r#Type::OPTIONS.name, "type");
    let types: Vec<_> = Registry::linked().unwrap().types().map(|one| one.options().name).collect();
    assert_eq!(types, ["http_server2_job", "type"]);
}
