//! How long do pages of a site take, and what do their visitors need of a server?

mod content;
pub(crate) mod page;
pub(crate) mod visitors;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A server, and how its connections are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// A process for each connection.
    #[default]
    ApachePrefork,
    /// A thread for each connection.
    ApacheWorker,
    /// A thread for each request.
    ApacheEvent,
    /// No thread for a connection or request.
    Nginx,
}

impl Server {
    pub const ALL: [Self; 4] =
        [Self::ApachePrefork, Self::ApacheWorker, Self::ApacheEvent, Self::Nginx];

    /// As an option of an experiment names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::ApachePrefork => "apache-prefork",
            Self::ApacheWorker => "apache-worker",
            Self::ApacheEvent => "apache-event",
            Self::Nginx => "nginx",
        }
    }

    /// The one of this name. None: there is none.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|server| server.name() == name)
    }

    /// Apache's module; none of nginx.
    pub fn mpm(self) -> Option<&'static str> {
        self.name().strip_prefix("apache-")
    }

    /// Apache with a module of this name. None: it has none.
    pub fn of_mpm(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|server| server.mpm() == Some(name))
    }

    /// Whether an idle connection holds a worker: then memory limits the connections.
    pub fn idle_holds(self) -> bool {
        matches!(self, Self::ApachePrefork | Self::ApacheWorker)
    }

    /// The directives that are searched: idle timeout, responses per connection, limit of workers.
    pub fn directives(self) -> [&'static str; 3] {
        match self {
            Self::Nginx => ["keepalive_timeout", "keepalive_requests", "worker_connections"],
            _ => ["KeepAliveTimeout", "MaxKeepAliveRequests", "MaxRequestWorkers"],
        }
    }

    /// How long an idle connection is kept where nothing is set, ms: Debian's configuration, nginx itself.
    pub fn own_timeout_ms(self) -> u64 {
        if self == Self::Nginx { 75_000 } else { 5_000 }
    }

    /// Requests of a connection where nothing is set.
    pub fn own_requests(self) -> u64 {
        if self == Self::Nginx { 1_000 } else { 100 }
    }

    /// Limit of workers where nothing is set: prefork's in Debian's configuration, Debian's two processes of nginx.
    pub fn own_workers(self) -> u64 {
        if self == Self::Nginx { 1_536 } else { 150 }
    }

    /// What `workers` of a setting are: `workers`, `connections`.
    pub fn workers(self) -> &'static str {
        if self == Self::Nginx { "connections" } else { "workers" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_found_by_name_and_by_module() {
        for server in Server::ALL {
            assert_eq!(Server::named(server.name()), Some(server));
            assert_eq!(server.mpm().and_then(Server::of_mpm).unwrap_or(Server::Nginx), server);
        }
        assert_eq!(Server::named("apache"), None);
        assert_eq!(Server::of_mpm("itk"), None);
    }
}
