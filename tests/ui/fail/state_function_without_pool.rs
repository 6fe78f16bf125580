//! A state function that does not take the pool causes one error.

use queue_core as _;

struct Mailer;

async fn mailer() -> Result<Mailer, std::io::Error> {
    Ok(Mailer)
}

queue_worker::main!(; state = mailer);
