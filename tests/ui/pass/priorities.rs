//! A priority can be a literal or any constant expression.

use queue_core::{JobType, Priority, job};
use serde::{Deserialize, Serialize};

const BASE: i16 = 40;

const fn above(base: i16) -> i16 {
    base + 1
}

macro_rules! sends {
    ($name:ident, $priority:expr) => {
        #[job(send_only, priority = $priority)]
        #[derive(Serialize, Deserialize)]
        struct $name;
    };
}

sends!(Literal, 7);
sends!(Lowest, -32768);
sends!(Highest, 32_767_i16);
sends!(Named, Priority::EXPLICIT);
sends!(Negated, -BASE);
sends!(Sum, BASE + 2);
sends!(Called, above(BASE));
sends!(Least, i16::MIN);

fn main() {
    assert_eq!(Literal::OPTIONS.priority, 7);
    assert_eq!(Lowest::OPTIONS.priority, i16::MIN);
    assert_eq!(Highest::OPTIONS.priority, i16::MAX);
    assert_eq!(Named::OPTIONS.priority, 150);
    assert_eq!(Negated::OPTIONS.priority, -40);
    assert_eq!(Sum::OPTIONS.priority, 42);
    assert_eq!(Called::OPTIONS.priority, 41);
    assert_eq!(Least::OPTIONS.priority, i16::MIN);
}
