//! The dashboard's settings, from options, environment and file.

use std::net::SocketAddr;

use serde::Deserialize;

use super::values::address;
use crate::dashboard::Options;

/// What a dashboard needs.
#[derive(clap::Args, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct DashboardSettings {
    /// Serve the dashboard here, as `127.0.0.1:7070`; default: `run` serves none
    #[arg(long = "dashboard", env = "QUEUE_DASHBOARD", value_name = "ADDR", value_parser = address)]
    #[serde(rename = "addr")]
    dashboard: Option<SocketAddr>,
    /// What browsers and programs have to say to come in, at least 16 characters; better said in the environment, where nobody else sees it
    #[arg(long, env = "QUEUE_DASHBOARD_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    #[serde(rename = "token")]
    dashboard_token: Option<String>,
    /// A name under which browsers may ask for it, besides this machine's own; may be repeated
    #[arg(long, env = "QUEUE_DASHBOARD_HOST", value_delimiter = ',', value_name = "NAME")]
    #[serde(rename = "hosts")]
    dashboard_host: Option<Vec<String>>,
    /// Let nothing be changed
    #[arg(long, env = "QUEUE_DASHBOARD_READ_ONLY", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        value_name = "true|false")]
    #[serde(rename = "read_only")]
    dashboard_read_only: Option<bool>,
}

impl DashboardSettings {
    pub(super) fn over(self, lower: Self) -> Self {
        Self {
            dashboard: self.dashboard.or(lower.dashboard),
            // An empty one is said, and refused: a variable that was to have a value must not open the door.
            dashboard_token: self.dashboard_token.or(lower.dashboard_token),
            dashboard_host: self.dashboard_host.or(lower.dashboard_host),
            dashboard_read_only: self.dashboard_read_only.or(lower.dashboard_read_only),
        }
    }

    /// Where it is served, if that is said.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.dashboard
    }

    pub(super) fn options(&self) -> Options {
        let options = Options::default().read_only(self.dashboard_read_only.unwrap_or(false));
        let options = self.dashboard_token.iter().fold(options, Options::token);
        self.dashboard_host.iter().flatten().filter(|host| !host.is_empty()).fold(options, Options::host)
    }
}
