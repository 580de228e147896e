//! tcptoll beside its peers: built in release, run alone on the machine, kept in `bench/RESULTS.md`.
//!
//! What is compared stands in `crates/tcptoll/examples/bench/`, and for people in
//! `bench/README.md`.

use crate::process::{Line, Outcome};

const RESULTS: &str = "bench/RESULTS.md";

/// What can be compared.
const NAMES: &[(&str, &str)] = &[(
    "http",
    "client CPU per request and per connection, requests/s and memory per idle connection: wrk, ab, \
     h2load, hey, and oha and fortio where they are",
)];

/// `cargo xtask bench [NAME] [--rounds N]`.
pub(crate) fn run(words: &[String]) -> anyhow::Result<Outcome> {
    let Some(name) = words.first() else {
        print!("{}", list());
        return Ok(Outcome::Passed);
    };
    if NAMES.iter().all(|(known, _)| known != name) {
        anyhow::bail!("{name}: there is no such comparison; there are\n{}", list());
    }
    let release =
        |subcommand| Line::cargo(subcommand).args(["--release", "--package", "tcptoll"]).locked();
    if release("build").args(["--example", "bench"]).run()? != Outcome::Passed {
        return Ok(Outcome::NotPossible);
    }
    let line = release("run").args(["--quiet", "--example", "bench", "--"]).args(words.to_vec());
    if line.args(["--out", RESULTS]).run()? != Outcome::Passed {
        eprintln!("{RESULTS} is left as it was");
        return Ok(Outcome::NotPossible);
    }
    Ok(Outcome::Passed)
}

fn list() -> String {
    let lines: Vec<String> =
        NAMES.iter().map(|(name, what)| format!("  {name}  {what}\n")).collect();
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_name_the_names_are_listed() {
        assert_eq!(run(&[]).unwrap(), Outcome::Passed);
        assert!(list().contains("  http  "));
    }

    #[test]
    fn an_unknown_comparison_is_named() {
        let error = run(&["htpt".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("htpt"), "{error}");
    }
}
