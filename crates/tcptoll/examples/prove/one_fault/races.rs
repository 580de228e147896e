//! Proxies in front of application servers that close idle connections earlier, and a full table of tracked connections:
//! named, silent when mended, and what clients felt.

use std::fs;

use anyhow::Context as _;
use tcptoll_core::finding::Finding;

use super::Felt;
use super::views::Bench;
use crate::links::tcptoll;
use crate::machines::Machine;
use crate::table::Proofs;

/// Servers, and after how many seconds each closes an idle connection.
const SERVERS: &[(&str, &str)] =
    &[("gunicorn", "2"), ("node", "5"), ("puma", "2"), ("uvicorn", "2"), ("tomcat", "2")];
const PROXIES: &[&str] = &["nginx", "haproxy"];

/// Requests in bursts that come when the server begins to close idle connections.
pub(super) const RACE: Felt<'_> =
    Felt { words: &["race", "8080", "8081", "640", "64"], bad: &["502"], of: 640 };

/// What `doctor` finds on a machine.
fn findings(machine: &Machine) -> anyhow::Result<Vec<Finding>> {
    let examined =
        machine.examine(std::process::Command::new(tcptoll()?), &["--duration", "3s"])?;
    Ok(examined.examination.findings)
}

fn texts(found: &[Finding]) -> String {
    let texts: Vec<String> =
        found.iter().map(|one| format!("{} \"{}\"", one.id, one.text)).collect();
    if texts.is_empty() { "nothing".to_owned() } else { texts.join(", ") }
}

/// Real servers behind real proxies: `doctor` names both times, and the remedy ends the 502s: 10 minutes.
pub(crate) fn races(table: &mut Proofs) -> anyhow::Result<()> {
    let bench = Bench::new()?;
    for (server, closes_s) in SERVERS {
        for proxy in PROXIES {
            let name = format!("race-{server}-{proxy}");
            let planted = Machine::begin(&name, "planted").context("it needs its programs")?;
            let found = findings(&planted)?;
            let before = super::felt(&planted, &bench, &RACE, None)?;
            drop(planted);
            let machine = Machine::begin(&name, "mended")?;
            let after = super::felt(&machine, &bench, &RACE, before.period_s)?;
            let silent = findings(&machine)?;
            let both = |one: &Finding| {
                let has = |s: &str| one.text.contains(&format!("{s} s"));
                one.id == "close-race" && has(closes_s) && has("60")
            };
            let named = matches!(&found[..], [one] if both(one));
            table.row(
                &format!("close race: {server} ({closes_s} s) behind {proxy} (60 s): doctor"),
                "close-race with both times; mended: nothing",
                &format!("{}; mended: {}", texts(&found), texts(&silent)),
                named && silent.is_empty(),
            );
            let period = before.period_s.map(|s| format!(", {s} s apart")).unwrap_or_default();
            table.row(
                &format!("close race: {server} behind {proxy}: 502 of 640 requests"),
                "before: some; mended: none",
                &format!("{} → {}{period}", before.bad, after.bad),
                before.bad > 0 && after.bad == 0,
            );
        }
    }
    Ok(())
}

/// Packets that were dropped because the table of tracked connections was full; a column of each CPU.
fn dropped(machine: &Machine) -> anyhow::Result<u64> {
    let path = format!("/proc/{}/net/stat/nf_conntrack", machine.pid);
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let mut lines = text.lines();
    let heads = lines.next().unwrap_or_default();
    let column =
        heads.split_whitespace().position(|name| name == "drop").context("no column drop")?;
    let of = |line: &str| u64::from_str_radix(line.split_whitespace().nth(column)?, 16).ok();
    lines.map(|line| of(line).with_context(|| line.to_owned())).sum()
}

/// A table of tracked connections at 90 % and full: named, and what is dropped: 2 minutes.
pub(crate) fn tracked(table: &mut Proofs) -> anyhow::Result<()> {
    const CONNECTS: Felt<'_> = Felt {
        words: &["connects", "127.0.0.1", "8081", "50", "10"],
        bad: &["failed", "waited"],
        of: 50,
    };
    let bench = Bench::new()?;
    for (machine, share, drops) in
        [("conntrack-ninety", "90 %", false), ("conntrack-full", "100 %", true)]
    {
        let mut measured = Vec::new();
        for state in ["planted", "mended"] {
            let own = Machine::begin(machine, state)?;
            let found = findings(&own)?;
            let count = super::felt(&own, &bench, &CONNECTS, None)?;
            measured.push((found, count, dropped(&own)?));
        }
        let [(found, before, lost), (after_found, after, after_lost)] = &measured[..] else {
            anyhow::bail!("two states");
        };
        let named = matches!(&found[..], [one] if one.id == "conntrack-near-full" && one.text.contains(share));
        table.row(
            &format!("tracked connections at {share}: doctor"),
            &format!("conntrack-near-full, {share}; with room: nothing"),
            &format!("{}; with room: {}", texts(found), texts(after_found)),
            named && after_found.is_empty(),
        );
        let some = |bad: bool| if drops { bad } else { !bad };
        table.row(
            &format!("tracked connections at {share}: packets dropped, and 50 clients"),
            if drops { "some; with room: none" } else { "none; with room: none" },
            &format!(
                "{lost} dropped, {} → {after_lost} dropped, {}, of {}",
                before.words, after.words, CONNECTS.of
            ),
            some(*lost > 0 && before.bad > 0) && *after_lost == 0 && after.bad == 0,
        );
    }
    Ok(())
}
