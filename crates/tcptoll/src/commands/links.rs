//! `tcptoll links`: the named links, and where each figure is from.

use std::fmt::Write as _;

use tcptoll_core::link::{KEYS, PROFILES};

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
    text += "\nKeys, alone or after a name (--link metro,loss=1%):\n";
    for (key, what, how) in KEYS {
        let _ = writeln!(text, "{key:name$}  {what}\n{:name$}  {how}", "");
    }
    crate::stdout::text(&text)?;
    Ok(Status::Met)
}
