//! `keepalive`: load on somebody else's server is said before.

use tcptoll_engine::experiments::keepalive::settings::KeepaliveSettings;
use tcptoll_model::record::Resolved;
use tcptoll_model::study::Study;

use super::{is_public, public_notice};

/// What is said if any arm holds connections to a public address.
pub(super) fn notice(typed: &Study, resolved: &[Resolved]) -> anyhow::Result<Option<String>> {
    for arm in typed.arms()? {
        let settings = KeepaliveSettings::from(&arm.settings, resolved)?;
        if let Some(to) = settings.to.as_ref().filter(|to| is_public(to)) {
            let load = format!("{} connections will be held open to it", settings.sockets);
            let options = "--sockets sets another number";
            return Ok(Some(public_notice(&to.typed, &load, options)));
        }
    }
    Ok(None)
}
