//! tcptoll beside its peers: `cargo xtask bench NAME [--rounds N]`, which builds and runs this.
//!
//! Prints tables and writes them to the file named by `--out`. Exit status: 0 measured, 2 not. What
//! is compared and how is in `bench/README.md`.

mod contest;
mod http;
mod page;
mod stream;

use std::process::ExitCode;

use anyhow::{Context as _, bail};

use page::Markdown;

/// Rounds unless told otherwise: what an interval needs before one believes that it is narrow.
const ROUNDS: u32 = tcptoll_core::study::stop::MIN_ROUNDS;

/// A comparison, by the name it is asked for.
type Comparison = (&'static str, fn(&mut Markdown, u32) -> anyhow::Result<()>);

const COMPARISONS: &[Comparison] = &[("http", http::run), ("stream", stream::run)];

/// What was asked for.
struct BenchOptions {
    comparison: &'static Comparison,
    rounds: u32,
    out: Option<String>,
}

fn main() -> ExitCode {
    if let Some(status) = tcptoll_lab::lab::reexecuted(std::env::args_os()) {
        return ExitCode::from(u8::try_from(status).unwrap_or(1));
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(ran) = contest::exchange::is_asked_for(&words) {
        return ran;
    }
    let asked = asked(&words)?;
    let mut page = Markdown::default();
    (asked.comparison.1)(&mut page, asked.rounds)?;
    if let Some(out) = asked.out {
        std::fs::write(&out, page.text()).with_context(|| format!("writing {out}"))?;
        eprintln!("{out} is written");
    }
    Ok(())
}

fn asked(words: &[String]) -> anyhow::Result<BenchOptions> {
    let names: Vec<&str> = COMPARISONS.iter().map(|(name, _)| *name).collect();
    let names = names.join(" and ");
    let mut words = words.iter();
    let name = words.next().with_context(|| format!("name a comparison: {names}"))?;
    let comparison = COMPARISONS.iter().find(|(known, _)| known == name);
    let comparison = comparison
        .with_context(|| format!("{name}: there is no such comparison; available: {names}"))?;
    let mut asked = BenchOptions { comparison, rounds: ROUNDS, out: None };
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} takes a value"));
        match word.as_str() {
            "--rounds" => {
                let value = value?;
                let rounds = value.parse().ok().filter(|rounds| *rounds > 0);
                asked.rounds =
                    rounds.with_context(|| format!("--rounds {value}: a number from 1 on"))?;
            }
            "--out" => asked.out = Some(value?.clone()),
            _ => bail!("{word}: write --rounds N or --out FILE"),
        }
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn what_is_asked_for_is_understood_or_named() {
        let read = |line: &str| {
            asked(&words(line)).map(|asked| (asked.comparison.0, asked.rounds, asked.out))
        };
        assert_eq!(read("http").unwrap(), ("http", ROUNDS, None));
        assert_eq!(read("stream --rounds 3 --out f").unwrap(), ("stream", 3, Some("f".to_owned())));
        for line in ["", "htpt", "http --rounds", "http --rounds 0", "http --rounds x", "http -n 3"]
        {
            assert!(read(line).is_err(), "{line}");
        }
    }
}
