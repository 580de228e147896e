//! Servers that are known by name; and a pool of blocking workers in front of a backend: which kinds
//! there are, and when a failed call of the backend is repeated.
//!
//! Chance comes in as an argument. The front services of the lab follow [`Retries`]; the one in
//! PHP repeats its formula.

use serde::{Deserialize, Serialize};

/// Servers known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ServerKind {
    /// nginx.
    Nginx,
    /// Apache with `mpm_event`.
    ApacheEvent,
    /// Apache with `mpm_worker`.
    ApacheWorker,
    /// Apache with `mpm_prefork`.
    ApachePrefork,
    /// Puma with a Rack application.
    Puma,
    /// tcptoll's own, which does nothing but answer: for calibration.
    Null,
}

/// Each name with its server; some servers have two.
const KNOWN: [(&str, ServerKind); 7] = [
    ("nginx", ServerKind::Nginx),
    ("apache", ServerKind::ApacheEvent),
    ("apache-event", ServerKind::ApacheEvent),
    ("apache-worker", ServerKind::ApacheWorker),
    ("apache-prefork", ServerKind::ApachePrefork),
    ("puma", ServerKind::Puma),
    ("null", ServerKind::Null),
];

/// Every name.
pub const NAMES: [&str; KNOWN.len()] = {
    let mut names = [""; KNOWN.len()];
    let mut index = 0;
    while index < KNOWN.len() {
        names[index] = KNOWN[index].0;
        index += 1;
    }
    names
};

impl ServerKind {
    /// The server of this name; `None`: no server is known by it.
    pub fn named(name: &str) -> Option<Self> {
        KNOWN.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }
}

/// `nginx,puma` is two servers; a command may hold commas of its own.
pub fn split(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.iter().all(|part| NAMES.contains(part)) {
        parts.into_iter().map(str::to_owned).collect()
    } else {
        vec![text.to_owned()]
    }
}

/// Longest pause before a retry, ns: 1 min. Doubling stops there.
pub const PAUSE_MAX_NS: u64 = 60_000_000_000;

/// A front service with blocking workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FrontKind {
    /// tcptoll's own: a thread per worker.
    Workers,
    /// PHP-FPM behind nginx: a process per worker.
    PhpFpm,
}

/// A server that a front service calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BackendKind {
    /// Redis.
    Redis,
    /// MariaDB.
    Mariadb,
}

/// How a worker connects to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Connection {
    /// A connection for each request.
    PerRequest,
    /// A connection that each worker keeps between requests.
    Pooled,
}

impl FrontKind {
    /// All, in the order in which help lists them.
    pub const ALL: [Self; 2] = [Self::Workers, Self::PhpFpm];

    /// As users type it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Workers => "workers",
            Self::PhpFpm => "php-fpm",
        }
    }

    /// The front service of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl BackendKind {
    /// All, in the order in which help lists them.
    pub const ALL: [Self; 2] = [Self::Redis, Self::Mariadb];

    /// As users type it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::Mariadb => "mariadb",
        }
    }

    /// The backend of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl Connection {
    /// All, in the order in which help lists them.
    pub const ALL: [Self; 2] = [Self::PerRequest, Self::Pooled];

    /// As users type it.
    pub fn name(self) -> &'static str {
        match self {
            Self::PerRequest => "per-request",
            Self::Pooled => "pooled",
        }
    }

    /// The way to connect of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// When a failed call is repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Further attempts after one that failed.
    pub count: u64,
    /// Pause before the first retry, ns. Each further pause is twice as long, at most
    /// [`PAUSE_MAX_NS`]. 0: no pause.
    pub backoff_ns: u64,
    /// Each pause is drawn evenly from 0 to its full length.
    pub jitter: bool,
}

impl Retries {
    /// Pause before a retry, ns. None: no further attempt is made.
    ///
    /// Range: `failed`, attempts so far, from 1; `drawn` from 0 to 1, used with jitter only.
    pub fn pause_ns(self, failed: u64, drawn: f64) -> Option<u64> {
        if failed == 0 || failed > self.count {
            return None;
        }
        let doublings = u32::try_from(failed - 1).unwrap_or(u32::MAX).min(63);
        let full = self.backoff_ns.saturating_mul(1 << doublings).min(PAUSE_MAX_NS);
        let share = if self.jitter { drawn.clamp(0.0, 1.0) } else { 1.0 };
        Some((full as f64 * share) as u64)
    }

    /// All pauses of a request whose attempts all fail, mean, ns.
    pub fn pauses_mean_ns(self) -> u64 {
        // Beyond this every pause has its full length.
        let doubling = self.count.min(64);
        let sum = (1..=doubling).filter_map(|failed| self.pause_ns(failed, 0.5));
        let rest = (self.count - doubling).saturating_mul(self.pause_ns(64, 0.5).unwrap_or(0));
        sum.fold(rest, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_by_name_are_levels_and_a_command_with_commas_is_one() {
        assert_eq!(split("nginx, puma,null"), ["nginx", "puma", "null"]);
        assert_eq!(split("apache"), ["apache"]);
        for command in ["nginx,lighttpd", "sh -c 'a,b'", "gunicorn -w 2,nginx", ""] {
            assert_eq!(split(command), [command]);
        }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn each_kind_is_found_by_its_name_and_written_so() {
        for kind in FrontKind::ALL {
            assert_eq!(FrontKind::named(kind.name()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        for kind in BackendKind::ALL {
            assert_eq!(BackendKind::named(kind.name()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        for kind in Connection::ALL {
            assert_eq!(Connection::named(kind.name()), Some(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
        assert_eq!(FrontKind::named("apache"), None);
    }

    #[test]
    fn pauses_double_and_end_with_the_last_retry() {
        let retries = Retries { count: 3, backoff_ns: 100 * MS, jitter: false };
        let pauses: Vec<_> = (0..5).map(|failed| retries.pause_ns(failed, 0.3)).collect();
        assert_eq!(pauses, [None, Some(100 * MS), Some(200 * MS), Some(400 * MS), None]);
        assert_eq!(retries.pauses_mean_ns(), 700 * MS);
    }

    #[test]
    fn jitter_draws_each_pause_from_0_to_its_full_length() {
        let retries = Retries { count: 2, backoff_ns: 100 * MS, jitter: true };
        let second = |drawn| retries.pause_ns(2, drawn);
        assert_eq!([0.0, 0.25, 1.0].map(second), [Some(0), Some(50 * MS), Some(200 * MS)]);
        assert_eq!(retries.pauses_mean_ns(), 150 * MS);
    }

    #[test]
    fn without_a_back_off_a_retry_follows_immediately() {
        let retries = Retries { count: 2, backoff_ns: 0, jitter: true };
        assert_eq!((retries.pause_ns(1, 0.9), retries.pauses_mean_ns()), (Some(0), 0));
    }

    #[test]
    fn no_pause_is_longer_than_a_minute_however_many_retries_there_are() {
        let retries = Retries { count: u64::MAX, backoff_ns: u64::MAX, jitter: false };
        assert_eq!(retries.pause_ns(u64::MAX, 1.0), Some(PAUSE_MAX_NS));
        assert_eq!(retries.pauses_mean_ns(), u64::MAX);
    }
}
