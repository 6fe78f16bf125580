//! As much of PostgreSQL's protocol as it takes to tell that a commit has happened and the client has not heard of it.

/// What the server said, cut into messages.
#[derive(Default)]
pub(super) struct Replies {
    buffer: Vec<u8>,
    /// Messages kept back: from a command's end on, until the server says whether a transaction is still open.
    held: Vec<u8>,
    /// The commands that `held` tells of.
    tags: Vec<String>,
    /// What the server calls the client by now.
    renamed: Option<String>,
}

/// What may go to the client now.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Ready {
    pub(super) bytes: Vec<u8>,
    /// Whether they tell of a commit worth cutting at.
    pub(super) committed: bool,
}

impl Replies {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes the whole messages. While `armed`, what follows the end of a command waits for the state of its transaction.
    pub(super) fn ready(&mut self, armed: bool, application: &str) -> Ready {
        let mut ready = Ready::default();
        let mut at = 0;
        while let Some(length) = length(&self.buffer[at..]) {
            let message = &self.buffer[at..at + length];
            at += length;
            if let Some(name) = renamed(message) {
                self.renamed = Some(name);
            }
            if message[0] == b'C' && armed {
                self.tags.push(String::from_utf8_lossy(&message[5..length - 1]).into_owned());
            }
            if self.tags.is_empty() {
                ready.bytes.extend_from_slice(message);
                continue;
            }
            self.held.extend_from_slice(message);
            if message[0] == b'Z' {
                let open = message[5] != b'I';
                ready.committed |= !open && self.tags.drain(..).any(|tag| changes(&tag, self.renamed.as_deref().unwrap_or(application)));
                self.tags.clear();
                ready.bytes.append(&mut self.held);
            }
        }
        self.buffer.drain(..at);
        ready
    }
}

/// The length of the message that these bytes begin with, if it is there as a whole.
fn length(bytes: &[u8]) -> Option<usize> {
    let length = 1 + u32::from_be_bytes(bytes.get(1..5)?.try_into().ok()?) as usize;
    (length <= bytes.len()).then_some(length)
}

/// Whether a command with this tag has written something. Of a worker only claims and settles do: with one statement each.
fn changes(tag: &str, application: &str) -> bool {
    match application {
        "queue-worker settle" => true,
        "queue-worker claim" | "queue-worker limits" => tag.strip_prefix("SELECT ").is_some_and(|rows| rows != "0"),
        "producer" => tag == "COMMIT" || tag == "SELECT 1",
        _ => false,
    }
}

/// What the server calls the client from now on, if that is what a message says: a worker's connection goes from one of its loops to another.
fn renamed(message: &[u8]) -> Option<String> {
    let said = message.strip_prefix(b"S")?.get(4..)?;
    let mut words = said.strip_prefix(b"application_name\0")?.split(|byte| *byte == 0);
    words.next().map(|name| String::from_utf8_lossy(name).into_owned())
}

/// The application that a connection's first message names.
pub(super) fn application(startup: &[u8]) -> String {
    let mut words = startup.get(8..).unwrap_or_default().split(|byte| *byte == 0);
    words
        .find(|word| *word == b"application_name")
        .and_then(|_| words.next())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .unwrap_or_default()
}
