//! One setting of a server: what a search varies.
//!
//! A setting has the directive's value. Apache's `MaxKeepAliveRequests` n allows n + 1 responses, nginx's
//! `keepalive_requests` n. The option of `visitors` counts responses, so the translation is in one place
//! (`Setting::options`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use tcptoll_core::study::Settings;
use tcptoll_measure::pages::Server;

/// A setting, with the values of the configuration.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Setting {
    /// Idle timeout, ms: `KeepAliveTimeout`, `keepalive_timeout`. Absent: KeepAlive is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// `MaxKeepAliveRequests`, `keepalive_requests`; 0: no limit. Apache sends one response more than this.
    pub requests: u64,
    /// `MaxRequestWorkers`; for nginx the connections of all processes.
    pub workers: u64,
}

impl Setting {
    /// What the server has before anyone sets something.
    pub fn shipped(server: Server) -> Self {
        Self {
            timeout_ms: Some(server.own_timeout_ms()),
            requests: server.own_requests(),
            workers: server.own_workers(),
        }
    }

    /// A name for people, unique among the settings of a server: `2 s, 100 requests, 22 workers`.
    pub fn name(&self, server: Server) -> String {
        let workers = format!("{} {}", self.workers, server.workers());
        let Some(ms) = self.timeout_ms else { return format!("KeepAlive off, {workers}") };
        let requests = match self.requests {
            0 => "no request limit".to_owned(),
            requests => format!("{requests} requests"),
        };
        format!("{}, {requests}, {workers}", seconds(ms))
    }

    /// The same as options of an arm.
    pub fn options(&self, server: Server) -> Settings {
        let mut options = Settings::new();
        let mut set = |name: &str, value: Value| options.insert(name.to_owned(), value);
        set("max-workers", self.workers.into());
        match self.timeout_ms {
            None => {
                set("keepalive", "off".into());
            }
            Some(ms) => {
                // The option counts responses, and so does nginx; Apache counts those after the first.
                let more = u64::from(self.requests > 0 && server != Server::Nginx);
                set("keepalive-timeout", format!("{ms}ms").into());
                set("keepalive-requests", (self.requests + more).into());
            }
        }
        options
    }
}

/// `2 s`, `1.5 s`.
pub fn seconds(ms: u64) -> String {
    match ms % 1_000 {
        0 => format!("{} s", ms / 1_000),
        _ => format!("{} s", ms as f64 / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_a_name_of_its_own_and_the_options_of_an_arm() {
        let setting = Setting { timeout_ms: Some(1_500), requests: 0, workers: 22 };
        let prefork = Server::ApachePrefork;
        assert_eq!(setting.name(prefork), "1.5 s, no request limit, 22 workers");
        assert_eq!(setting.options(prefork)["keepalive-timeout"], "1500ms");
        assert_eq!(setting.options(prefork)["keepalive-requests"], 0);
        let off = Setting { timeout_ms: None, requests: 100, workers: 22 };
        assert_eq!(off.name(Server::Nginx), "KeepAlive off, 22 connections");
        assert!(!off.options(prefork).contains_key("keepalive-requests"), "it would be refused");
    }

    #[test]
    fn apache_counts_the_requests_after_the_first() {
        let setting = Setting { timeout_ms: Some(1_000), requests: 100, workers: 9 };
        assert_eq!(setting.options(Server::ApacheEvent)["keepalive-requests"], 101);
        assert_eq!(setting.options(Server::Nginx)["keepalive-requests"], 100);
    }
}
