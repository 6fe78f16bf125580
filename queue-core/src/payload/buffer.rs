//! Buffer that holds the text, the nesting depth and the first fault of a payload during encoding.
//!
//! The formatter and the checking serializer share the buffer. After a fault, the buffer rejects further text, so the text ends at the
//! fault. The path of the fault is computed from the text, so encoding a valid payload does not track paths. The buffer does not
//! interpret JSON; see `jsonb` and `path`.

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

/// Kind of a [`PayloadError`], without the path.
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

    /// Returns the encoded text, or the first fault with its path.
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

    pub(super) fn append(&self, bytes: &[u8]) -> io::Result<()> {
        if self.fault.get().is_some() {
            return Err(invalid_data());
        }
        let mut text = self.text.borrow_mut();
        let size = text.len().saturating_add(bytes.len());
        if size > self.limit {
            return Err(self.fail(Fault::TooLarge { size }));
        }
        text.extend_from_slice(bytes);
        Ok(())
    }

    pub(super) fn enter(&self) -> io::Result<()> {
        if self.depth.get() == MAX_DEPTH {
            return Err(self.fail(Fault::TooDeep));
        }
        self.depth.set(self.depth.get() + 1);
        Ok(())
    }

    pub(super) fn leave(&self) {
        self.depth.set(self.depth.get().saturating_sub(1));
    }

    /// Records the fault, unless a fault is already recorded. Returns the error that stops the serializer.
    pub(super) fn fail(&self, fault: Fault) -> io::Error {
        if self.fault.get().is_none() {
            self.fault.set(Some(fault));
        }
        invalid_data()
    }
}

impl io::Write for &PayloadBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.append(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn invalid_data() -> io::Error {
    io::ErrorKind::InvalidData.into()
}
