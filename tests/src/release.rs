//! Job type in three releases, and a job type with sealed payloads. Each release reads the jobs that earlier releases have enqueued.

/// Job type in the first release.
pub mod first {
    use queue_core::{Context, Handler, JobResult, job};
    use serde::{Deserialize, Serialize};

    /// Mail to one recipient.
    #[job(send_only, name = "release_mail", aliases = ["release_post"], output = String)]
    #[derive(Clone, Debug, Serialize, Deserialize)]
    pub struct Mail {
        /// Recipient of the mail.
        pub to: String,
    }

    impl Handler for Mail {
        async fn run(self, _: &Context) -> JobResult<String> {
            Ok(format!("first: {}", self.to))
        }
    }
}

/// Job type in the second release.
pub mod second {
    use queue_core::{Context, Handler, JobResult, job};
    use serde::{Deserialize, Serialize};

    use super::first;

    /// Mail to several recipients. A mail to `hang` never finishes.
    #[job(send_only, name = "release_mail", aliases = ["release_post"], version = 2, upgrade = from_v1, output = String)]
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Mail {
        /// Recipients of the mail.
        pub to: Vec<String>,
    }

    fn from_v1(old: first::Mail) -> Mail {
        Mail { to: vec![old.to] }
    }

    impl Handler for Mail {
        async fn run(self, _: &Context) -> JobResult<String> {
            if self.to == ["hang"] {
                std::future::pending::<()>().await;
            }
            Ok(format!("second: {}", self.to.join("+")))
        }
    }
}

/// Job type in the third release.
pub mod third {
    use queue_core::{Context, Handler, JobResult, job};
    use serde::{Deserialize, Serialize};
    use serde_json::Value;

    use super::second;

    /// Mail with a subject. A mail of an earlier release cannot be upgraded if one of its recipients is empty.
    #[job(send_only, name = "release_mail", aliases = ["release_post"], version = 3, upgrade(1 = Self::from_v1, 2 = from_v2), output = String)]
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct Mail {
        /// Recipients of the mail.
        pub to: Vec<String>,
        /// Subject line of the mail.
        pub subject: String,
    }

    impl Mail {
        fn from_v1(mut old: Value) -> Result<Self, &'static str> {
            match old["to"].take() {
                Value::String(to) => from_v2(second::Mail { to: vec![to] }),
                _ => Err("`to` is no text"),
            }
        }
    }

    fn from_v2(old: second::Mail) -> Result<Mail, &'static str> {
        if old.to.iter().any(String::is_empty) {
            return Err("somebody in `to` has no name");
        }
        Ok(Mail { to: old.to, subject: "none".to_owned() })
    }

    impl Handler for Mail {
        async fn run(self, cx: &Context) -> JobResult<String> {
            Ok(format!("third: {} about {} from {}", self.to.join("+"), self.subject, cx.version()))
        }
    }
}

/// Job type with sealed payloads.
pub mod sealed {
    use queue_core::{Context, Handler, JobResult, job};
    use serde::{Deserialize, Serialize};

    /// Job that charges a card.
    #[job(send_only, name = "release_charge", seal = "release", output = usize)]
    #[derive(Clone, Debug, Serialize, Deserialize)]
    pub struct Charge {
        /// Number of the card to charge.
        pub card: String,
    }

    impl Handler for Charge {
        async fn run(self, _: &Context) -> JobResult<usize> {
            Ok(self.card.len())
        }
    }
}
