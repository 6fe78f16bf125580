//! Code blocks of `docs/DEPLOY.md`.

use std::io::Error;

use sqlx::PgPool;

struct Mailer;
struct S3;

async fn mailer(_: PgPool) -> Result<Mailer, Error> {
    Ok(Mailer)
}

async fn s3(_: PgPool) -> Result<S3, Error> {
    Ok(S3)
}

/// Stands for a crate with handlers.
mod handlers {}

mod one_crate {
    use super::{handlers as my_app, mailer};

    queue_worker::main!(my_app; state = mailer); // `async fn mailer(pool: PgPool) -> Result<Mailer, Error>`
}

mod several_crates {
    use super::{handlers as my_app, handlers as reports, mailer, s3};

    queue_worker::main!(my_app, reports; state = mailer; state = s3);
}
