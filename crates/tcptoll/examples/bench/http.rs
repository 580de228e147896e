//! `bench http`: what a request, a connection and an idle connection cost each load generator.

use tcptoll_kernel::cpu;
use tcptoll_lab::messages::Io;

use crate::contest::Ratio;
use crate::contest::peers::{PEERS, Peer, named};
use crate::contest::{
    BATCHED, CONNECTIONS, Case, Contest, Contestant, Ours, PLAIN, POLLED, Sample, arena,
    ring_refused,
};
use crate::page::{HEAD, Markdown, environment, row};

/// Length of one contestant's turn.
const SECONDS: u64 = 2;

/// Idle connections: as many as one process may have files, and beyond.
const HELD: u64 = 10_000;
const HELD_MANY: u64 = 50_000;

/// Peers whose memory is compared: those that take 10,000 connections.
const HOLDERS: &[&str] = &["wrk", "h2load"];

/// Memory hardly differs from round to round: so many are enough for an interval.
const MEMORY_ROUNDS: u32 = 5;

/// Runs every case and puts it on the page.
pub(crate) fn run(page: &mut Markdown, rounds: u32) -> anyhow::Result<()> {
    page.say("<!-- Written by `cargo xtask bench http`. -->");
    page.say("# tcptoll beside its peers: HTTP");
    let programs: Vec<_> = PEERS.iter().map(|peer| (peer.program, peer.package)).collect();
    environment(page, &programs);
    let present: Vec<&'static Peer> =
        PEERS.iter().filter(|peer| peer.version().is_some()).collect();
    let ring = ring_refused()?;
    if let Some(why) = &ring {
        page.say(&format!("Without io_uring: {why}."));
    }
    let ours = [PLAIN, BATCHED, POLLED];
    for (case, title, unit) in [
        (Case::KeepAlive, "connections that are used again", "request"),
        (Case::ServerClose, "a connection for each request, closed by the server", "connection"),
    ] {
        page.say(&format!(
            "## {CONNECTIONS} at once, {title}\n\n{SECONDS} s each, one thread, {rounds} rounds, \
             in an order of its own each round."
        ));
        let peers = present.iter().copied().filter(|peer| peer.line(case, "", 1).is_some());
        let contestants: Vec<Contestant> = ours
            .iter()
            .copied()
            .map(Contestant::Ours)
            .chain(peers.map(Contestant::Theirs))
            .collect();
        let contest = Contest::run(case, &contestants, rounds, SECONDS)?;
        entries(page, &contest, unit);
        let mut rows = Vec::new();
        for ours in &ours {
            rows.extend(compared(&contest, *ours, unit));
        }
        page.table(HEAD, &rows);
    }
    idle(page, &present, rounds.min(MEMORY_ROUNDS), ring.is_none())
}

/// What each did, for itself.
fn entries(page: &mut Markdown, contest: &Contest, unit: &str) {
    let rows: Vec<Vec<String>> = contest
        .entries()
        .map(|(contestant, samples)| {
            let mean = |figure: fn(&Sample) -> f64| -> f64 {
                samples.iter().map(figure).sum::<f64>() / samples.len() as f64
            };
            vec![
                contestant.name().to_owned(),
                format!("{:.2} µs", mean(|sample| sample.cpu_us)),
                format!("{:.0}", mean(|sample| sample.per_s)),
                samples.iter().map(|sample| sample.ok).sum::<u64>().to_string(),
                samples.iter().map(|sample| sample.errors).sum::<u64>().to_string(),
            ]
        })
        .collect();
    page.say(&format!("Server: {}, one worker. Means of the rounds:", contest.server));
    let cpu = format!("client CPU per {unit}");
    page.table(&["client", &cpu, "requests/s", "ok", "errors"], &rows);
}

/// One of ours against each peer.
fn compared(contest: &Contest, ours: Ours, unit: &str) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (contestant, _) in contest.entries() {
        let Contestant::Theirs(peer) = contestant else { continue };
        let cpu = contest.ratio(ours.name, peer.program, |sample| sample.cpu_us);
        let rate = contest.ratio(ours.name, peer.program, |sample| sample.per_s);
        let what = format!("client CPU per {unit}");
        rows.extend(
            cpu.map(|ratio| {
                row(&what, ours.name, peer.program, &ratio, |us| format!("{us:.2} µs"))
            }),
        );
        rows.extend(rate.map(|ratio| {
            row("requests/s", ours.name, peer.program, &ratio, |per_s| format!("{per_s:.0}"))
        }));
    }
    rows
}

/// Memory of connections that are held open.
fn idle(
    page: &mut Markdown,
    present: &[&'static Peer],
    rounds: u32,
    ring: bool,
) -> anyhow::Result<()> {
    page.say(&format!(
        "## Connections that are held open\n\nClient memory for each, {rounds} rounds, a new lab \
         each time. tcptoll's is all that the load added to its process, and its connections \
         are idle. Of a peer it is what {HELD} connections take above one, and it uses them all the \
         time, since it cannot let them rest."
    ));
    let kib = |bytes: f64| format!("{:.3} KiB", bytes / 1024.0);
    let what = format!("memory per connection, {HELD} open");
    let holders: Vec<&Peer> = HOLDERS
        .iter()
        .filter_map(|name| named(name))
        .filter(|peer| present.iter().any(|other| other.program == peer.program))
        .collect();
    let mut held = Vec::new();
    let mut of_peers = vec![Vec::new(); holders.len()];
    for _ in 0..rounds {
        held.push(arena::ours(HELD, Io::Epoll)?);
        for (peer, of_peer) in holders.iter().zip(&mut of_peers) {
            of_peer.push(arena::theirs(peer, HELD)?);
        }
    }
    let mut rows: Vec<Vec<String>> = holders
        .iter()
        .zip(&of_peers)
        .filter_map(|(peer, theirs)| {
            Some(row(&what, PLAIN.name, peer.program, &Ratio::between(&held, theirs)?, kib))
        })
        .collect();
    if ring {
        let mut many = Vec::new();
        for _ in 0..rounds {
            many.push(arena::ours(HELD_MANY, Io::IoUring)?);
        }
        if let Some(alone) = Ratio::between(&many, &many) {
            let files = cpu::file_limit().unwrap_or_default();
            let peer =
                format!("none: {HELD_MANY} connections need as many files, the limit is {files}");
            rows.push(vec![
                format!("memory per connection, {HELD_MANY} open"),
                PLAIN.name.to_owned(),
                peer,
                "—".to_owned(),
                "—".to_owned(),
                kib(alone.ours),
                "—".to_owned(),
                alone.rounds.to_string(),
            ]);
        }
    }
    page.table(HEAD, &rows);
    Ok(())
}
