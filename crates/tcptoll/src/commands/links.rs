//! `tcptoll links`: the named links, and where each figure is from.

use tcptoll_model::link::PROFILES;

use crate::exit::Status;

pub(crate) fn run() -> Status {
    let name = PROFILES.iter().map(|p| p.name.len()).max().unwrap_or(0);
    for profile in PROFILES {
        println!("{:name$}  {}", profile.name, profile.what);
        if profile.spec != profile.name {
            println!("{:name$}  --link {}", "", profile.spec);
        }
        println!("{:name$}  from: {}", "", profile.source);
    }
    println!("\nA name may be followed by keys to change: --link metro,loss=1%");
    Status::Met
}
