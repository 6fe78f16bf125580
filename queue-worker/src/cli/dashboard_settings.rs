//! Dashboard settings, read from options, environment and settings file.

use std::net::SocketAddr;

use serde::Deserialize;

use super::values::address;
use crate::dashboard::Options;

/// Settings of the dashboard, each `None` if not set.
#[derive(clap::Args, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DashboardSettings {
    /// Serve the dashboard on this address, such as `127.0.0.1:7070`; `run` serves no dashboard by default
    #[arg(long = "dashboard", env = "QUEUE_DASHBOARD", value_name = "ADDR", value_parser = address)]
    #[serde(rename = "addr")]
    dashboard: Option<SocketAddr>,
    /// Access token for browsers and programs, at least 16 characters; prefer the environment variable, which other users cannot read
    #[arg(long, env = "QUEUE_DASHBOARD_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    #[serde(rename = "token")]
    dashboard_token: Option<String>,
    /// Additional host name that browsers may use besides the names of this machine; may be repeated
    #[arg(long, env = "QUEUE_DASHBOARD_HOST", value_delimiter = ',', value_name = "NAME")]
    #[serde(rename = "hosts")]
    dashboard_host: Option<Vec<String>>,
    /// Make the dashboard read-only
    #[arg(long, env = "QUEUE_DASHBOARD_READ_ONLY", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_name = "true|false")]
    #[serde(rename = "read_only")]
    dashboard_read_only: Option<bool>,
}

impl DashboardSettings {
    pub(super) fn with_fallback(self, lower: Self) -> Self {
        Self {
            dashboard: self.dashboard.or(lower.dashboard),
            // An empty token is kept here and rejected later. Otherwise an accidentally empty variable would turn off authentication.
            dashboard_token: self.dashboard_token.or(lower.dashboard_token),
            dashboard_host: self.dashboard_host.or(lower.dashboard_host),
            dashboard_read_only: self.dashboard_read_only.or(lower.dashboard_read_only),
        }
    }

    /// Returns the address to serve the dashboard on, or `None` if no address is set.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.dashboard
    }

    pub(super) fn options(&self) -> Options {
        let options = Options::default().read_only(self.dashboard_read_only.unwrap_or(false));
        let options = self.dashboard_token.iter().fold(options, Options::token);
        self.dashboard_host.iter().flatten().filter(|host| !host.is_empty()).fold(options, Options::host)
    }
}
