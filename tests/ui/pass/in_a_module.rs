//! Structs with the same name in two modules can both be job types. Only the stored names must differ.

use queue_core::{JobType, registry::Registry};

mod mail {
    use queue_core::{Context, Handler, JobResult, job};
    use serde::{Deserialize, Serialize};

    #[job(name = "mail.send")]
    #[derive(Serialize, Deserialize)]
    pub(crate) struct Send;

    impl Handler for Send {
        async fn run(self, _: &Context) -> JobResult {
            Ok(())
        }
    }

    pub(crate) mod deep {
        /// Job type in a module without imports. The expansion uses full paths.
        #[queue_core::job(name = "deep.send")]
        #[derive(serde::Serialize, serde::Deserialize)]
        pub(crate) struct Send;

        impl queue_core::Handler for Send {
            async fn run(self, _: &queue_core::Context) -> queue_core::JobResult {
                Ok(())
            }
        }
    }
}

fn main() {
    assert_eq!(mail::Send::OPTIONS.name, "mail.send");
    assert_eq!(mail::deep::Send::OPTIONS.name, "deep.send");
    let registry = Registry::linked().unwrap();
    assert!(registry.get("mail.send").unwrap().rust_type().ends_with("mail::Send"));
    assert!(registry.get("deep.send").unwrap().rust_type().ends_with("deep::Send"));
}
