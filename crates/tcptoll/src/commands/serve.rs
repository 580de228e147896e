//! `serve`: servers that run on their own, until they are stopped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tcptoll_engine::load::fleet::group::Group;
use tcptoll_engine::messages::{Check, FleetAsk, FleetReport, FleetSpec, FleetTell};
use tcptoll_model::keepalive::{Checking, Mechanism, probe_seconds};
use tcptoll_model::units::{human_count, parse_time};

use crate::cli::{Serve, ServeArgs, ServeKeepaliveArgs};
use crate::exit::{Status, say};

/// A stop is looked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Does what `tcptoll serve …` says.
pub(super) fn run(args: &ServeArgs) -> anyhow::Result<Status> {
    match &args.what {
        Serve::Keepalive(args) => keepalive(args),
    }
}

/// Two ports, one of whose connections the kernel probes.
fn keepalive(args: &ServeKeepaliveArgs) -> anyhow::Result<Status> {
    let [off, on] = args.ports[..] else {
        bail!("--ports: write two, like 7001,7002; the first is without SO_KEEPALIVE");
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
    let spec = FleetSpec::Listen {
        at: [off, on].map(|port| SocketAddr::new(args.listen, port)).to_vec(),
        sockets: args.connections,
        greet: false,
        shared: false,
    };
    let at = match ask(&mut group, FleetAsk::Make(spec))? {
        FleetTell::Listening(at) => at,
        other => bail!("the server answered out of turn: {other:?}"),
    };
    let check = Check { checking, second_only: true, ..Check::default() };
    ask(&mut group, FleetAsk::Check(Box::new(check)))?;
    let ports = at.iter().zip(["off", "on"]).map(|(at, what)| format!("keepalive {what} {at}\n"));
    super::study::print(&ports.collect::<String>())?;
    say("serving until Ctrl-C; what arrives is read and thrown away");
    let signal = loop {
        let signal = stopped.load(Ordering::SeqCst);
        if signal != 0 {
            break signal;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    if let FleetTell::Report(report) = ask(&mut group, FleetAsk::Look)? {
        say(&told(&report));
    }
    Ok(Status::Stopped(signal as u8))
}

fn ask(group: &mut Group, ask: FleetAsk) -> anyhow::Result<FleetTell> {
    group.answer(ask).map_err(anyhow::Error::msg)
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
fn told(report: &FleetReport) -> String {
    let ended: Vec<String> = report
        .ended
        .iter()
        .zip(["off", "on"])
        .flat_map(|(ended, what)| {
            ended
                .iter()
                .map(move |(how, count)| format!("{} with {what}: {how}", human_count(*count)))
        })
        .collect();
    format!(
        "{} connections accepted, {} bytes read, {} open at the end{}{}",
        human_count(report.made),
        human_count(report.bytes_read),
        human_count(report.open[0] + report.open[1]),
        if ended.is_empty() { "" } else { "; ended: " },
        ended.join(", ")
    )
}
