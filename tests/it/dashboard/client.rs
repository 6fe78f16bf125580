//! HTTP by hand, so that what no browser and no library would send can be sent.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) address: SocketAddr,
}

/// What was answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// How many bytes came, head and body.
    pub(super) bytes: usize,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    /// As it is said, to the end of the answer.
    pub(super) async fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        Answer::read(&said)
    }

    pub(super) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            request += &format!("Host: {}\r\n", self.address);
        }
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        if !body.is_empty() || method == "POST" {
            request += &format!("Content-Length: {}\r\n", body.len());
        }
        self.raw(format!("{request}\r\n{body}").as_bytes()).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    /// As the API wants it.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[("Content-Type", "application/json")], &body.to_string()).await
    }
}

impl Answer {
    fn read(said: &[u8]) -> Self {
        let end = said.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(said)));
        let head = std::str::from_utf8(&said[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> =
            lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
        let answer = Self { status, headers, body: said[end + 4..].to_vec(), bytes: said.len() };
        assert_ne!(answer.header("transfer-encoding"), Some("chunked"), "an answer says how long it is");
        answer
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.status, String::from_utf8_lossy(&self.body)))
    }
}
