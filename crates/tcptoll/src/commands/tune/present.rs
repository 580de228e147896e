//! The setting that a server has before any search: the user's own, and what Debian ships.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use tcptoll_engine::doctor::servers::begun_by;
use tcptoll_model::doctor::{Program, ServerConfig};
use tcptoll_model::tune::server::Server;
use tcptoll_model::tune::setting::Setting;
use tcptoll_model::tune::strategy::REQUESTS_USUAL;

use super::WORKERS_UNWEIGHED;

/// What Debian ships.
pub(super) fn shipped(server: Server) -> Setting {
    match server {
        Server::Nginx => Setting { timeout_ms: Some(75_000), requests: 1_000, workers: 1_536 },
        _ => Setting {
            timeout_ms: Some(5_000),
            requests: REQUESTS_USUAL,
            workers: WORKERS_UNWEIGHED,
        },
    }
}

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

pub(super) fn setting_of(config: &ServerConfig, workers: u64) -> Setting {
    let usual = if config.program == Program::Nginx { 1_000 } else { REQUESTS_USUAL };
    let timeout_s = config.keepalive_timeout_s.as_ref().map(|one| one.value);
    let requests = config.keepalive_requests.as_ref().map(|one| one.value);
    Setting {
        timeout_ms: match timeout_s {
            Some(s) if s <= 0.0 => None,
            Some(s) => Some((s * 1e3).round() as u64),
            None => Some(if config.program == Program::Nginx { 75_000 } else { 5_000 }),
        },
        requests: requests.unwrap_or(usual),
        workers: config.workers.as_ref().map_or(workers, |one| one.value.max(1)),
    }
}
