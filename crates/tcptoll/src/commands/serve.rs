//! `serve`: servers that run on their own, until they are stopped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tcptoll_core::number;
use tcptoll_core::tcp::checking::{Checking, Mechanism, probe_seconds};
use tcptoll_core::units::parse_time;
use tcptoll_lab::load::idle::group::Group;
use tcptoll_lab::messages::{Check, IdleReport, IdleSpec, Look};
use tcptoll_lab::observe::read_sysctl;

use crate::cli::{Serve, ServeArgs, ServeKeepaliveArgs};
use crate::exit::{Status, say};
use crate::stdout;

/// A stop is looked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// What has changed is told this often.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// The two ports, in their order.
const KINDS: [&str; 2] = ["off", "on"];

/// Does what `tcptoll serve …` says.
pub(super) fn run(args: &ServeArgs) -> anyhow::Result<Status> {
    match &args.what {
        Serve::Keepalive(args) => keepalive(args),
    }
}

/// Two ports, one of whose connections the kernel probes.
fn keepalive(args: &ServeKeepaliveArgs) -> anyhow::Result<Status> {
    let [off, on] = args.ports[..] else {
        bail!("--ports: write two, like 7001,7002; only the second has SO_KEEPALIVE on");
    };
    let checking = Checking {
        mechanism: Mechanism::Tcp,
        idle_s: seconds("idle", args.idle.as_deref())?,
        interval_s: seconds("interval", args.interval.as_deref())?,
        probes: args.probes.map(u32::from),
        ..Checking::default()
    };
    let stopped = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(signal, Arc::clone(&stopped), signal as usize)?;
    }
    let mut group = Group::default();
    let spec = IdleSpec::Listen {
        at: [off, on].map(|port| SocketAddr::new(args.listen, port)).to_vec(),
        sockets: args.connections,
        greet: false,
        shared: false,
    };
    let at = group.make(spec).map_err(anyhow::Error::msg)?.listening;
    let settings = at.last().map(|on| in_effect(&checking, *on)).unwrap_or_default();
    let check = Check { checking, second_only: true, ..Check::default() };
    group.order(&check).map_err(anyhow::Error::msg)?;
    let ports = at.iter().zip(KINDS).map(|(at, what)| format!("keepalive {what} {at}\n"));
    stdout::text(&ports.collect::<String>())?;
    say(&settings);
    say("serving until Ctrl-C; data is discarded, heartbeats that request an answer get one");
    let mut before = look(&mut group)?;
    let mut looked = Instant::now();
    let signal = loop {
        let signal = stopped.load(Ordering::SeqCst);
        if signal != 0 {
            break signal;
        }
        std::thread::sleep(LOOK_EVERY);
        if looked.elapsed() >= TELL_EVERY {
            let now = look(&mut group)?;
            if let Some(sentence) = changed(&before, &now) {
                say(&sentence);
            }
            (before, looked) = (now, Instant::now());
        }
    };
    say(&told(&look(&mut group)?));
    Ok(Status::Stopped(signal as u8))
}

/// The settings of the second port: what was not given is the host's.
fn in_effect(checking: &Checking, at: SocketAddr) -> String {
    let given = [checking.idle_s, checking.interval_s, checking.probes.map(f64::from)];
    let named = [("idle", "time", " s"), ("interval", "intvl", " s"), ("probes", "probes", "")];
    let mut values = Vec::new();
    let mut of_host = Vec::new();
    for (given, (what, name, unit)) in given.into_iter().zip(named) {
        let value = given.map(|value| value.to_string()).or_else(|| {
            of_host.push(name);
            read_sysctl(&format!("net.ipv4.tcp_keepalive_{name}")).ok()
        });
        values.push(format!("{what} {}{unit}", value.as_deref().unwrap_or("—")));
    }
    let from = match of_host.join(", _") {
        none if none.is_empty() => none,
        names => format!(" (net.ipv4.tcp_keepalive_{names})"),
    };
    format!("settings of {at}: {}{from}", values.join(", "))
}

fn look(group: &mut Group) -> anyhow::Result<IdleReport> {
    group.order(&Look).map_err(anyhow::Error::msg)
}

/// A time of the kernel's probes, s.
fn seconds(option: &str, typed: Option<&str>) -> anyhow::Result<Option<f64>> {
    let Some(typed) = typed else { return Ok(None) };
    let time = parse_time(typed).with_context(|| format!("--{option}"))?;
    let Some(seconds) = probe_seconds(time) else {
        bail!("--{option} {typed}: the kernel takes whole seconds from 1s to 32767s");
    };
    Ok(Some(seconds))
}

/// What was served.
fn told(report: &IdleReport) -> String {
    format!(
        "{} connections accepted, {} bytes read, {} open at the end{}",
        number::count(report.made),
        number::count(report.bytes_read),
        number::count(report.open[0] + report.open[1]),
        ended(&IdleReport::default(), report)
    )
}

/// What is open, and what has ended since it was said last; `None`: all is as it was.
fn changed(before: &IdleReport, now: &IdleReport) -> Option<String> {
    let same = (before.made, before.open, &before.ended) == (now.made, now.open, &now.ended);
    let [off, on] = now.open.map(number::count);
    let open = || format!("open: {off} keepalive off, {on} keepalive on{}", ended(before, now));
    (!same).then(open)
}

/// `; ended: 3 keepalive on: ETIMEDOUT`, of those ended since `before`; empty without any.
fn ended(before: &IdleReport, now: &IdleReport) -> String {
    let mut ended = Vec::new();
    for ((before, now), what) in before.ended.iter().zip(&now.ended).zip(KINDS) {
        for (how, count) in now {
            let more = count - before.get(how).copied().unwrap_or(0);
            if more > 0 {
                ended.push(format!("{} keepalive {what}: {how}", number::count(more)));
            }
        }
    }
    if ended.is_empty() { String::new() } else { format!("; ended: {}", ended.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_were_not_given_are_the_host_s() {
        let at = "127.0.0.1:7002".parse().unwrap();
        let mut checking =
            Checking { idle_s: Some(45.0), interval_s: Some(5.0), ..Checking::default() };
        let said = in_effect(&checking, at);
        assert!(said.starts_with("settings of 127.0.0.1:7002: idle 45 s, interval 5 s, probes "));
        assert!(said.ends_with(" (net.ipv4.tcp_keepalive_probes)"), "{said}");
        checking.probes = Some(3);
        let said = in_effect(&checking, at);
        assert_eq!(said, "settings of 127.0.0.1:7002: idle 45 s, interval 5 s, probes 3");
        let said = in_effect(&Checking::default(), at);
        assert!(said.ends_with(" (net.ipv4.tcp_keepalive_time, _intvl, _probes)"), "{said}");
    }

    #[test]
    fn what_has_changed_is_said_and_nothing_if_nothing_has() {
        let mut before = IdleReport { made: 5, open: [2, 3], ..IdleReport::default() };
        before.ended[1].insert("ETIMEDOUT".into(), 1);
        let mut now = IdleReport { bytes_read: 7, ..before.clone() };
        assert_eq!(changed(&before, &now), None, "what is read is no change");
        now.open = [2, 1];
        now.ended[1].insert("ETIMEDOUT".into(), 3);
        let says = "open: 2 keepalive off, 1 keepalive on; ended: 2 keepalive on: ETIMEDOUT";
        assert_eq!(changed(&before, &now).as_deref(), Some(says));
        assert!(told(&now).ends_with("; ended: 3 keepalive on: ETIMEDOUT"), "{}", told(&now));
    }
}
