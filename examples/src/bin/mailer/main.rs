//! Worker of `docs/GETTING_STARTED.md`: `cargo run -p examples --bin mailer -- run`. `cargo run -p examples --bin sign_up` enqueues a job.

#[allow(unreachable_pub, reason = "the library crate of the package in the guide")]
mod mailer;

queue_worker::main!(mailer);
