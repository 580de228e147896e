//! `tcptoll --version --verbose`: which binary is this?

use std::fmt::Write as _;

use tcptoll_lab::passport;

/// What the environment of the build said of it. None: it was built by hand.
const COMMIT: Option<&str> = option_env!("TCPTOLL_COMMIT");

/// The profile of a build that is released.
const PROFILE: Option<&str> = option_env!("TCPTOLL_PROFILE");

/// The version; `verbose`: with commit, target, C library and what this kernel offers it.
pub(super) fn text(verbose: bool) -> String {
    let mut text = format!("tcptoll {}\n", env!("CARGO_PKG_VERSION"));
    if verbose {
        let by_hand = if cfg!(debug_assertions) { "debug" } else { "release" };
        let profile = PROFILE.unwrap_or(by_hand);
        let rows = [
            ("commit", COMMIT.unwrap_or("not recorded, built by hand").to_owned()),
            ("build", format!("{profile}, for {}", target())),
            ("libc", passport::libc().unwrap_or_else(|| "not known".to_owned())),
            ("features", features()),
        ];
        for (name, value) in rows {
            let _ = writeln!(text, "{name:<9} {value}");
        }
    }
    text
}

/// Architecture, system and C library that it was compiled for.
fn target() -> String {
    let env = if cfg!(target_env = "musl") { "musl, static" } else { "glibc" };
    format!("{} {} ({env})", std::env::consts::ARCH, std::env::consts::OS)
}

/// What is compiled in, and whether this machine allows what it may refuse.
fn features() -> String {
    let io_uring = match passport::io_uring() {
        Ok(()) => "io_uring (usable here)".to_owned(),
        Err(why) => format!("io_uring (not usable here: {why}; epoll is used)"),
    };
    format!("TLS, HTTP/2, {io_uring}")
}
