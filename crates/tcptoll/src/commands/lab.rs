//! `tcptoll lab -- COMMAND`: any command on the client host, over an emulated link.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use anyhow::bail;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tcptoll_core::link::LinkSpec;
use tcptoll_core::number;
use tcptoll_lab::host::LAUNCH_LIMIT;
use tcptoll_lab::lab::certification::{Tolerance, certify};
use tcptoll_lab::lab::{Handle, HostSource as _, Interrupt, LabError, Machine, Plan};
use tcptoll_lab::messages::{Count, Launch, Run, SetSysctls, Watch};
use tcptoll_lab::observe::parse_sysctl;

use crate::cli::LabArgs;
use crate::exit::{Status, say};
use crate::stdout;

pub(crate) fn run(args: &LabArgs) -> anyhow::Result<Status> {
    if args.apparmor_profile {
        return apparmor_profile();
    }
    if args.command.is_empty() {
        bail!("tcptoll lab: no command; write it after --, like: tcptoll lab --link metro -- bash");
    }
    let spec = LinkSpec::parse(&args.link)?;
    let tolerance = match &args.link_tolerance {
        Some(text) => Tolerance::parse(text).map_err(anyhow::Error::msg)?,
        None => Tolerance::default(),
    };
    let plan = Plan {
        link: args.link.clone(),
        ipv6: args.ipv6,
        seed: spec.seed.unwrap_or(args.seed),
        force_packet: args.packet_relay,
        // The commands are not ours to pin.
        client_cpu: None,
        server_cpu: None,
        client_addresses: Vec::new(),
        silent_addresses: false,
    };
    // The terminal's interrupt is the command's: it goes to its whole group. Other signals end the
    // lab, and the command with it.
    let interrupt = Interrupt::new();
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(signal, interrupt.flag(), signal as usize)?;
    }
    signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)))?;
    let mut hosts = Machine::default().lab(&plan, &spec)?;
    let mut certificate = certify(&mut hosts, &spec, tolerance, &interrupt)?;
    if args.link_tolerance.is_some() {
        certificate = certificate.accepted()?;
    } else if let Some(why) = &certificate.refusal {
        // Nothing is measured here: whether that is good enough is for the user to say.
        say(&format!("warning: {why}"));
    }
    if !args.quiet {
        let rtt = certificate.measured.rtt_us.as_ref().and_then(|rtt| rtt.p50);
        say(&format!(
            "lab · {} · round trip {} · client {} · server {}",
            args.link,
            rtt.map_or("not measured".to_owned(), number::time),
            hosts.addresses.client,
            hosts.addresses.server
        ));
    }
    let environment = hosts.addresses.variables();
    sysctls(&mut hosts.client, &args.client_sysctl)?;
    sysctls(hosts.server()?, &args.server_sysctl)?;
    if let Some(line) = &args.server {
        let launch = Launch {
            words: vec![line.clone()],
            shell: true,
            environment: environment.clone(),
            ordinary_user: true,
        };
        let waits = (!args.quiet).then(|| waiting_for(line)).transpose()?;
        let launched = hosts.server()?.ask(&launch);
        drop(waits);
        launched?;
    }
    if let Some(path) = &args.pcap {
        let pcap = Some(std::path::absolute(path)?.display().to_string());
        hosts.link()?.ask(&Watch { pcap, ..Watch::default() })?;
    }
    let launch =
        Launch { words: args.command.clone(), shell: false, environment, ordinary_user: false };
    let begun = hosts.client.begin(&Run(launch))?;
    let status = match hosts.client.wait(begun, &interrupt, &mut |_| {}) {
        Err(LabError::Interrupted) => {
            let signal = interrupt.signal().unwrap_or(0);
            return Ok(Status::Stopped(u8::try_from(signal).unwrap_or(0)));
        }
        answered => answered?.answer,
    };
    if args.pcap.is_some() {
        hosts.link()?.ask(&Count)?;
    }
    Ok(Status::Command(u8::try_from(status).unwrap_or(1)))
}

/// A server that listens sooner is not waited for.
const WAITS_AFTER: Duration = Duration::from_secs(1);

/// Says what is waited for, from a second on, until what it gives is dropped.
fn waiting_for(line: &str) -> std::io::Result<mpsc::Sender<()>> {
    let (waits, ended) = mpsc::channel();
    let most_s = LAUNCH_LIMIT.as_secs();
    let what = tcptoll_show::printable_line(line);
    let wait = move || {
        if ended.recv_timeout(WAITS_AFTER) == Err(mpsc::RecvTimeoutError::Timeout) {
            say(&format!("waiting for it to listen, for at most {most_s} s: {what}"));
        }
    };
    std::thread::Builder::new().name("waits".to_owned()).spawn(wait)?;
    Ok(waits)
}

fn sysctls(host: &mut Handle, typed: &[String]) -> anyhow::Result<()> {
    let pairs = typed
        .iter()
        .map(|text| {
            parse_sysctl(text).ok_or_else(|| {
                LabError::Refused(format!(
                    "sysctl {text}: write NAME=VALUE, like net.core.somaxconn=128"
                ))
            })
        })
        .collect::<Result<Vec<_>, _>>()?;
    if !pairs.is_empty() {
        host.ask(&SetSysctls(pairs))?;
    }
    Ok(())
}

/// A path as AppArmor reads it between quotes, where some characters stand for others.
fn pattern(path: &str) -> String {
    let mut pattern = String::new();
    for c in path.chars() {
        if "*?[]{}^\"\\".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// Ubuntu since 23.10 lets only programs with a profile of their own make user namespaces.
fn apparmor_profile() -> anyhow::Result<Status> {
    let path = std::env::current_exe()?;
    let text = format!(
        "# Write this to /etc/apparmor.d/tcptoll, then: sudo apparmor_parser -r /etc/apparmor.d/tcptoll\n\
         abi <abi/4.0>,\ninclude <tunables/global>\n\n\
         profile tcptoll \"{}\" flags=(unconfined) {{\n  userns,\n\n  include if exists <local/tcptoll>\n}}\n",
        pattern(&path.to_string_lossy())
    );
    stdout::data(&text)?;
    Ok(Status::Met)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_characters_that_stand_for_others_is_escaped() {
        assert_eq!(pattern("/a b/tcptoll"), "/a b/tcptoll");
        assert_eq!(pattern("/x[1]*\"/t"), "/x\\[1\\]\\*\\\"/t");
    }
}
