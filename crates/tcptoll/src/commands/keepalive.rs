//! `keepalive`: a command line becomes a study, and load on somebody else's server is said before.

use tcptoll_engine::experiments::keepalive::settings::KeepaliveSettings;
use tcptoll_model::record::Resolved;
use tcptoll_model::study::Study;

use super::{is_public, public_notice, study};
use crate::cli::KeepaliveArgs;
use crate::exit::Status;
use crate::{output, studies};

/// Does what `tcptoll keepalive …` says.
pub(super) fn run(args: &KeepaliveArgs) -> anyhow::Result<Status> {
    let typed = studies::from_keepalive(args)?;
    if let Some(record) = &args.rounds.resume {
        studies::check_alone(&typed, &studies::from_keepalive(&KeepaliveArgs::default())?)?;
        return output::resume(record, &args.output);
    }
    study::start(&typed, &args.rounds, &args.output, &|resolved| notice(&typed, resolved))
}

/// What is said if any arm holds connections to a public address.
fn notice(typed: &Study, resolved: &[Resolved]) -> anyhow::Result<Option<String>> {
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
