//! A union has no payload that could be read.

use queue_core::job;

#[job]
union SendEmail {
    now: u8,
    later: u8,
}

fn main() {}
