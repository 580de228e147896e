//! How the program is linked where it is built quickly: unoptimised, it has three times the relocations and
//! half more code.

use std::env::var;
use std::io::Write;
use std::process::{Command, Stdio};

/// Nothing to relocate at each start (3.5 ms of 9); and functions that are equal once (a sixth of the size).
const ARGUMENTS: [&str; 2] = ["-no-pie", "-Wl,--icf=all"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name, value| var(name).is_ok_and(|is| is == value);
    if is("PROFILE", "release") && is("OPT_LEVEL", "0") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        for argument in ARGUMENTS.iter().filter(|argument| links_with(argument).is_some()) {
            println!("cargo::rustc-link-arg-bins={argument}");
        }
    }
}

/// `Some`: the linker that is here knows the argument. Not every one folds functions.
fn links_with(argument: &str) -> Option<()> {
    let mut command = Command::new(var("RUSTC").ok()?);
    command.args(["-", "--crate-name=probe", "--target", &var("TARGET").ok()?]);
    command.args(["--out-dir", &var("OUT_DIR").ok()?, "-C", &format!("link-arg={argument}")]);
    command.args(var("RUSTC_LINKER").map(|linker| format!("-Clinker={linker}")));
    let flags = var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    command.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    let mut probe = command.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    probe.stdin.take()?.write_all(b"fn main() {}").ok()?;
    probe.wait().ok()?.success().then_some(())
}
