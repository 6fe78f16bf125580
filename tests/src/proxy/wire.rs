//! Subset of PostgreSQL's protocol for detecting a commit whose reply has not reached the client.

/// Parser that splits the bytes from the server into messages.
#[derive(Default)]
pub(super) struct Replies {
    buffer: Vec<u8>,
    /// Messages that are withheld until the transaction status arrives. The first one reports the completion of a command.
    held: Vec<u8>,
    /// Tags of the commands in `held`.
    tags: Vec<String>,
    /// Application name that the server last reported to the client.
    renamed: Option<String>,
}

/// Messages that may be forwarded now.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Ready {
    pub(super) bytes: Vec<u8>,
    /// Whether the messages report a commit at which the proxy may cut the connection.
    pub(super) committed: bool,
}

impl Replies {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the complete messages. If `armed`, withholds the message that completes a command and all later messages until the
    /// transaction status arrives.
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

/// Returns the length of the first message, if it is complete.
fn length(bytes: &[u8]) -> Option<usize> {
    let length = 1 + u32::from_be_bytes(bytes.get(1..5)?.try_into().ok()?) as usize;
    (length <= bytes.len()).then_some(length)
}

/// Returns whether a command with this tag has written data. For a worker, only claims and settles count, each of which is a single
/// statement.
fn changes(tag: &str, application: &str) -> bool {
    match application {
        "queue-worker settle" => true,
        "queue-worker claim" | "queue-worker limits" => tag.strip_prefix("SELECT ").is_some_and(|rows| rows != "0"),
        "producer" => tag == "COMMIT" || tag == "SELECT 1",
        _ => false,
    }
}

/// Returns the new application name if a message reports one. The loops of a worker share connections, and each loop sets its own name.
fn renamed(message: &[u8]) -> Option<String> {
    let rest = message.strip_prefix(b"S")?.get(4..)?;
    let mut words = rest.strip_prefix(b"application_name\0")?.split(|byte| *byte == 0);
    words.next().map(|name| String::from_utf8_lossy(name).into_owned())
}

/// Returns the application name in a connection's startup message.
pub(super) fn application(startup: &[u8]) -> String {
    let mut words = startup.get(8..).unwrap_or_default().split(|byte| *byte == 0);
    words
        .find(|word| *word == b"application_name")
        .and_then(|_| words.next())
        .map(|name| String::from_utf8_lossy(name).into_owned())
        .unwrap_or_default()
}
