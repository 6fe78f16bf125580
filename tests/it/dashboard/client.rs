//! Minimal HTTP client, which can also send requests that no browser or library would send.

use std::net::{IpAddr, SocketAddr};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpSocket,
};

#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) address: SocketAddr,
    /// Local address that the client connects from.
    from: Option<IpAddr>,
}

/// An HTTP response.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
    /// Number of bytes received, including the head.
    pub(super) bytes: usize,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, from: None }
    }

    /// Returns the same client with another local address.
    pub(super) fn coming_from(&self, ip: IpAddr) -> Self {
        Self { from: Some(ip), ..*self }
    }

    /// Sends the request verbatim and reads until the end of the response.
    pub(super) async fn raw(&self, request: &[u8]) -> Answer {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(ip) = self.from {
            socket.bind((ip, 0).into()).unwrap();
        }
        let mut stream = socket.connect(self.address).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut response = Vec::new();
        // Stop at the end of the response, because not every server closes the connection when requested.
        while !is_whole(&response) && stream.read_buf(&mut response).await.unwrap() > 0 {}
        Answer::read(&response)
    }

    pub(super) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut lines = vec![format!("{method} {path} HTTP/1.1"), "Connection: close".to_owned()];
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            lines.push(format!("Host: {}", self.address));
        }
        lines.extend(headers.iter().map(|(name, value)| format!("{name}: {value}")));
        if !body.is_empty() || method == "POST" {
            lines.push(format!("Content-Length: {}", body.len()));
        }
        let request = lines.join("\r\n");
        self.raw(format!("{request}\r\n\r\n{body}").as_bytes()).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[], "").await
    }

    /// Sends a POST request with a JSON body.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, &[("Content-Type", "application/json")], &body.to_string()).await
    }
}

/// Returns whether the response is complete according to its head.
fn is_whole(response: &[u8]) -> bool {
    let Some(end) = response.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&response[..end]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|length| response.len() >= end + 4 + length)
}

impl Answer {
    fn read(response: &[u8]) -> Self {
        let end =
            response.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(response)));
        let head = std::str::from_utf8(&response[..end]).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> =
            lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())).collect();
        let answer = Self { status, headers, body: response[end + 4..].to_vec(), bytes: response.len() };
        assert_ne!(answer.header("transfer-encoding"), Some("chunked"), "a response has a length");
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
