//! In the expansion of a `macro_rules!` macro, the error points at the tokens passed to the macro.

use queue_core::job;
use serde::{Deserialize, Serialize};

macro_rules! sends {
    ($name:ident, $wait:literal) => {
        #[job(send_only, timeout = $wait)]
        #[derive(Serialize, Deserialize)]
        struct $name;
    };
}

sends!(Right, "1m30s");
sends!(Wrong, "1m 30s");

fn main() {}
