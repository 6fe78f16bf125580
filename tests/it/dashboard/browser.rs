//! Headless browser for tests of the dashboard's pages, with real clicks and key presses, two window widths, and both themes.

use std::{
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use tests::{beyond_tier_one, skipped};

use super::client::Client;

/// Browser session. The browser and its driver end with the test.
pub(super) struct Browser {
    driver: Child,
    client: Client,
    session: String,
    profile: PathBuf,
}

/// Command-line flags for a headless browser without background activity.
const FLAGS: [&str; 9] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
];

/// Key of element ids in the WebDriver protocol.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

fn binary(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).flat_map(|folder| names.iter().map(move |name| folder.join(name))).find(|file| file.is_file())
}

impl Browser {
    /// Starts a browser. If none is installed, reports the skipped test and returns `None`.
    pub(super) async fn start(what: &str) -> Option<Self> {
        beyond_tier_one("starts a browser");
        let found = binary(&["chromedriver"]).zip(binary(&["chromium", "chromium-browser", "google-chrome"]));
        let Some((driver, browser)) = found else {
            skipped(what, "there is no chromium with its chromedriver");
            return None;
        };
        let mut driver =
            Command::new(driver).arg("--port=0").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let line =
            lines.find_map(|line| line.ok().filter(|line| line.contains("successfully on port "))).expect("the driver prints its port");
        let port: String = line.rsplit("on port ").next().unwrap().chars().take_while(char::is_ascii_digit).collect();
        std::thread::spawn(move || lines.for_each(drop));
        let client = Client::new(([127, 0, 0, 1], port.parse().unwrap()).into());
        let profile = std::env::temp_dir().join(format!("queue-browser-{}-{port}", std::process::id()));
        let arguments: Vec<String> =
            FLAGS.map(str::to_owned).into_iter().chain([format!("--user-data-dir={}", profile.display())]).collect();
        let expected = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": { "binary": browser, "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let mut this = Self { driver, client, session: String::new(), profile };
        let made = this.send("POST", "/session", &expected).await;
        made["sessionId"].as_str().unwrap_or_else(|| panic!("{made}")).clone_into(&mut this.session);
        Some(this)
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let headers = [("Content-Type", "application/json"), ("Host", "localhost")];
        self.client.ask(method, path, &headers, &body).await.json()["value"].take()
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let value = self.send("POST", &format!("/session/{}/{path}", self.session), &body).await;
        assert!(value["error"].is_null(), "{path} {body}: {value}");
        value
    }

    pub(super) async fn open(&self, url: &str) {
        self.post("url", json!({ "url": url })).await;
    }

    pub(super) async fn script(&self, script: &str) -> Value {
        self.post("execute/sync", json!({ "script": script, "args": [] })).await
    }

    pub(super) async fn wait_script(&self, script: &str) -> Value {
        self.post("execute/async", json!({ "script": script, "args": [] })).await
    }

    async fn element(&self, selector: &str) -> String {
        let found = self.post("element", json!({ "using": "css selector", "value": selector })).await;
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    pub(super) async fn click(&self, selector: &str) {
        let element = self.element(selector).await;
        self.post(&format!("element/{element}/click"), json!({})).await;
    }

    /// Sends keys to the focused element.
    pub(super) async fn keys(&self, keys: &str) {
        let pressed = keys.chars().flat_map(|key| [json!({ "type": "keyDown", "value": key }), json!({ "type": "keyUp", "value": key })]);
        let actions: Vec<Value> = pressed.collect();
        self.post("actions", json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] })).await;
    }

    pub(super) async fn address(&self) -> String {
        self.send("GET", &format!("/session/{}/url", self.session), &Value::Null).await.as_str().unwrap_or_default().to_owned()
    }

    /// Accepts the open dialog. Returns its text.
    pub(super) async fn accept(&self) -> String {
        let response = self.send("GET", &format!("/session/{}/alert/text", self.session), &Value::Null).await;
        self.post("alert/accept", json!({})).await;
        response.as_str().unwrap_or_default().to_owned()
    }

    pub(super) async fn has_dialog(&self) -> bool {
        self.send("GET", &format!("/session/{}/alert/text", self.session), &Value::Null).await.is_string()
    }

    /// Sets the window width and the theme.
    pub(super) async fn set_view(&self, width: u32, theme: &str) {
        let cdp = async |cmd: &str, params: Value| self.post("goog/cdp/execute", json!({ "cmd": cmd, "params": params })).await;
        let metrics = json!({ "width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 600 });
        cdp("Emulation.setDeviceMetricsOverride", metrics).await;
        cdp("Emulation.setEmulatedMedia", json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] })).await;
    }

    /// Returns the errors and warnings in the browser's console.
    pub(super) async fn complaints(&self) -> Vec<String> {
        let log = self.post("se/log", json!({ "type": "browser" })).await;
        let errors = log.as_array().unwrap().iter().filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING");
        errors.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Saves a screenshot in the build folder for inspection.
    pub(super) async fn picture(&self, name: &str) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/screenshots");
        std::fs::create_dir_all(&folder).unwrap();
        let picture = self.send("GET", &format!("/session/{}/screenshot", self.session), &Value::Null).await;
        std::fs::write(folder.join(format!("{name}.b64")), picture.as_str().unwrap()).unwrap();
        let file = |end: &str| folder.join(format!("{name}.{end}"));
        let decoded = Command::new("base64").arg("-d").arg(file("b64")).output().unwrap().stdout;
        std::fs::remove_file(file("b64")).unwrap();
        std::fs::write(file("png"), decoded).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser on request, but not when the driver is killed.
        let request = format!("DELETE /session/{} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", self.session);
        if let Ok(mut stream) = std::net::TcpStream::connect(self.client.address) {
            let _ = std::io::Write::write_all(&mut stream, request.as_bytes());
            let _ = stream.set_read_timeout(Some(std::time::Duration::from_secs(10)));
            let _ = std::io::Read::read(&mut stream, &mut [0; 64]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
