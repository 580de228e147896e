//! `keepalive`: a command line becomes a study, and load on somebody else's server is said before.

use tcptoll_engine::experiments::keepalive_settings::KeepaliveSettings;

use super::{public_notice, study};
use crate::cli::KeepaliveArgs;
use crate::exit::{Status, say};
use crate::{output, studies};

/// Does what `tcptoll keepalive …` says.
pub(super) fn run(args: &KeepaliveArgs) -> anyhow::Result<Status> {
    let typed = studies::from_keepalive(args)?;
    if let Some(record) = &args.rounds.resume {
        studies::check_alone(&typed, &studies::from_keepalive(&KeepaliveArgs::default())?)?;
        return output::resume(record, &args.output);
    }
    if let Some(to) = &args.to {
        for arm in typed.arms()? {
            let settings = KeepaliveSettings::from(&arm.settings)?;
            if settings.is_public() {
                let load = format!("{} connections will be held open to it", settings.sockets);
                say(&public_notice(to, &load, "--sockets sets another number"));
                break;
            }
        }
    }
    study::start(&typed, &args.rounds, &args.output)
}
