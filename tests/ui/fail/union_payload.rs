//! A payload cannot be a union.

use queue_core::job;

#[job]
union SendEmail {
    now: u8,
    later: u8,
}

fn main() {}
