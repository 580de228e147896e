//! `tcptoll links`: the named links, and where each figure is from.

use std::fmt::Write as _;

use tcptoll_model::link::PROFILES;

use crate::exit::Status;

pub(crate) fn run() -> anyhow::Result<Status> {
    let name = PROFILES.iter().map(|p| p.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for profile in PROFILES {
        let _ = writeln!(text, "{:name$}  {}", profile.name, profile.what);
        if profile.spec != profile.name {
            let _ = writeln!(text, "{:name$}  --link {}", "", profile.spec);
        }
        let _ = writeln!(text, "{:name$}  from: {}", "", profile.source);
    }
    text += "\nA name may be followed by keys to change: --link metro,loss=1%\n";
    crate::stdout::text(&text)?;
    Ok(Status::Met)
}
