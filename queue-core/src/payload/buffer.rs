//! The buffer a payload is written on: its text so far, how deep it stands, and the first fault found.
//!
//! The serializer that writes and the one that checks share it. After a fault it takes no more, so its text ends where the fault is,
//! and the path is read from that text; nothing is tracked while all goes well. It knows no JSON: see `stored` and `path`.

use std::cell::{Cell, RefCell};
use std::io;

use super::{
    error::{MAX_DEPTH, PayloadError},
    path,
};

#[derive(Debug)]
pub(super) struct PayloadBuffer {
    limit: usize,
    text: RefCell<Vec<u8>>,
    depth: Cell<usize>,
    fault: Cell<Option<Fault>>,
}

/// A [`PayloadError`] that does not know its path yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    Nul,
    LoneSurrogate,
    NotFinite,
    NumberTooLarge,
    TooDeep,
    TooLarge { size: usize },
}

impl PayloadBuffer {
    pub(super) fn new(limit: usize) -> Self {
        let text = RefCell::new(Vec::with_capacity(limit.min(256)));
        Self { limit, text, depth: Cell::new(0), fault: Cell::new(None) }
    }

    /// The text, or what was wrong with it.
    pub(super) fn finish(self) -> Result<Vec<u8>, PayloadError> {
        let text = self.text.into_inner();
        let Some(fault) = self.fault.get() else { return Ok(text) };
        Err(match fault {
            Fault::Nul => PayloadError::Nul { path: path::end_of(&text) },
            Fault::LoneSurrogate => PayloadError::LoneSurrogate { path: path::end_of(&text) },
            Fault::NotFinite => PayloadError::NotFinite { path: path::end_of(&text) },
            Fault::NumberTooLarge => PayloadError::NumberTooLarge { path: path::end_of(&text) },
            Fault::TooDeep => PayloadError::TooDeep { limit: MAX_DEPTH },
            Fault::TooLarge { size } => PayloadError::TooLarge { size, limit: self.limit },
        })
    }

    pub(super) fn put(&self, bytes: &[u8]) -> io::Result<()> {
        if self.fault.get().is_some() {
            return Err(refusal());
        }
        let mut text = self.text.borrow_mut();
        let size = text.len().saturating_add(bytes.len());
        if size > self.limit {
            return Err(self.refuse(Fault::TooLarge { size }));
        }
        text.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn enter(&self) -> io::Result<()> {
        if self.depth.get() == MAX_DEPTH {
            return Err(self.refuse(Fault::TooDeep));
        }
        self.depth.set(self.depth.get() + 1);
        Ok(())
    }

    pub(super) fn leave(&self) {
        self.depth.set(self.depth.get().saturating_sub(1));
    }

    /// Notes the fault, if it is the first, and gives the error that stops the serializer.
    pub(super) fn refuse(&self, fault: Fault) -> io::Error {
        if self.fault.get().is_none() {
            self.fault.set(Some(fault));
        }
        refusal()
    }
}

impl io::Write for &PayloadBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn refusal() -> io::Error {
    io::ErrorKind::InvalidData.into()
}
