//! What a worker says of itself to whoever keeps it running: whether it lives, and whether it works. On a listener and a thread of its own, so that
//! neither a handler nor a loop that stands still keeps it from saying so.

mod judge;
mod listen;

pub(crate) use self::{
    judge::Health,
    listen::{Asked, listen},
};
