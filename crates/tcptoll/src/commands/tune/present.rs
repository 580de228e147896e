//! The setting that a server of the user's has before any search.

use std::fs;
use std::path::Path;

use crate::tune::setting::Setting;
use anyhow::{Context as _, bail};
use tcptoll_live::doctor::servers::begun_by;
use tcptoll_live::doctor::{Program, ServerConfig};
use tcptoll_measure::pages::Server;

/// The configuration that the user has.
///
/// Errors: it cannot be read whole.
pub(super) fn present(path: &Path, server: Server) -> anyhow::Result<ServerConfig> {
    let name = format!("--present {}", path.display());
    let file = fs::canonicalize(path).with_context(|| name.clone())?;
    let program = if server == Server::Nginx { Program::Nginx } else { Program::Apache };
    let config = begun_by(program, &file);
    if let Some(why) = config.unread.first() {
        bail!("{name}: {why}: the present setting is not known for sure");
    }
    let at = |is: Option<bool>| is == Some(true);
    let set = at(config.keepalive_timeout_s.as_ref().map(|one| !one.at.is_default()))
        || at(config.keepalive_requests.as_ref().map(|one| !one.at.is_default()))
        || at(config.workers.as_ref().map(|one| !one.at.is_default()));
    if !set {
        let [timeout, requests, workers] = server.directives();
        bail!(
            "{name}: it sets none of {timeout}, {requests} and {workers} for {}: is it a configuration of this server?",
            program.name()
        );
    }
    Ok(config)
}

/// The same as a setting. What is not set is the server's own; `workers`: their number where none is set.
pub(super) fn setting_of(config: &ServerConfig, server: Server, workers: u64) -> Setting {
    let timeout_s = config.keepalive_timeout_s.as_ref().map(|one| one.value);
    let requests = config.keepalive_requests.as_ref().map(|one| one.value);
    Setting {
        timeout_ms: match timeout_s {
            Some(s) if s <= 0.0 => None,
            Some(s) => Some((s * 1e3).round() as u64),
            None => Some(server.own_timeout_ms()),
        },
        requests: requests.unwrap_or(server.own_requests()),
        workers: config.workers.as_ref().map_or(workers, |one| one.value.max(1)),
    }
}
