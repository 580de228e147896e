//! Servers that are known by name.

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
}
