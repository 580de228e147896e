//! A lab made for one trial, and what every experiment asks of its hosts.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tcptoll_core::record::{HostSummary, LinkKind};
use tcptoll_core::tcp::syn::{SynSysctls, syn_ack_ladder, syn_ladder};
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::certification::{Certificate, Tolerance, certify};
use tcptoll_lab::lab::{Addresses, Handle, Hosts, Interrupt, LabError, Plan, client_address};
use tcptoll_lab::messages::{
    Calibrate, Count, Counted, Launch, Observe, ReadSysctls, Rows, SetSysctls, Settle, Snapshot,
    TakeWorkers, WorkersSeen,
};

use super::TrialError;
use super::notes::Notes;
use super::plan::Context;
use super::settings::LabSpec;

/// Echoes on a quiet link and the time between two, ns, where the trial looks closer and where it
/// does not: there are many such trials, and what they have adds up.
pub(super) const ECHOES: [(u16, u64); 2] = [(50, 2_000_000), (10, 1_000_000)];

/// What a trial in the lab takes besides its load and its server, s: namespaces, hosts, echoes,
/// counters (measured: 0.055 on a quiet machine, 0.12 on a busy one).
pub(crate) const OVERHEAD_S: f64 = 0.1;

/// A local port is free again after this, s: TIME-WAIT.
pub(crate) const PORT_S: f64 = 60.0;

/// Ports of the kernel's default range, 32768 to 60999.
pub(crate) const DEFAULT_PORTS: u64 = 28_232;

/// Most source addresses that are added.
const SOURCES_MAX: u64 = 200;

const PORT_RANGE: &str = "net.ipv4.ip_local_port_range";

/// A range that leaves the ports below 5000 to servers.
const WIDE_RANGE: &str = "5000 65000";

/// Ends the readings of a service's workers on this host, and gives all that they showed.
pub(crate) fn workers_seen(host: &mut Handle) -> Result<WorkersSeen, LabError> {
    let mut seen = WorkersSeen::default();
    loop {
        let part = host.ask(&TakeWorkers { from: seen.samples.len() as u64 })?;
        let none = part.samples.is_empty();
        seen.samples.extend(part.samples);
        (seen.missed, seen.beyond, seen.killed) = (part.missed, part.beyond, part.killed);
        seen.first_error = part.first_error.or(seen.first_error.take());
        if part.left == 0 || none {
            return Ok(seen);
        }
    }
}

/// What a trial in the lab needs of the client's ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortsNeeded {
    /// In use at a time.
    pub(crate) at_a_time: u64,
    pub(crate) connections: u64,
}

impl Notes {
    /// A lab with enough ports, its link certified and its sysctls set.
    pub(super) fn lab(
        &mut self,
        mut lab: LabSpec,
        ports: PortsNeeded,
        context: &mut Context<'_>,
    ) -> Result<Hosts, TrialError> {
        self.spread_ports(&mut lab, ports);
        let LabSpec {
            link,
            ipv6,
            packet_relay,
            silent_addresses,
            client_sysctls,
            server_sysctls,
            ..
        } = lab;
        let link = &link;
        self.tolerance_us = context.tolerance.delay_us(link.rtt);
        let cpus = tcptoll_kernel::cpu::allowed();
        let pair = if cpus.len() > 1 { (Some(cpus[0]), Some(cpus[1])) } else { (None, None) };
        let plan = Plan {
            link: link.text.clone(),
            ipv6,
            seed: link.seed.unwrap_or(context.seed),
            force_packet: packet_relay,
            client_cpu: pair.0,
            server_cpu: pair.1,
            client_addresses: further_addresses(&self.sources, link.loopback, ipv6),
            silent_addresses,
        };
        let mut hosts = context.hosts.lab(&plan, link)?;
        let key = format!("{} {} {}", plan.link, plan.ipv6, plan.force_packet);
        let certificate: Certificate = match context.certificates.get(&key) {
            Some(known) => {
                hosts.link()?.ask(&Calibrate { early_ns: known.early_ns })?;
                known.clone()
            }
            None => certify(&mut hosts, link, context.tolerance, context.interrupt)?.accepted()?,
        };
        context.certificates.insert(key, certificate.clone());
        if certificate.measured.kind == LinkKind::EmulatedPacket && !packet_relay {
            self.warn(&Warning::PacketFallback);
        }
        let asked = link.is_emulated() || link.rate_bit_per_s.is_some();
        if context.tolerance == Tolerance::OFF && asked {
            self.warn(&Warning::LinkNotMeasured);
        }
        self.arm.link = Some(certificate.measured);
        self.arm.client.pinned_cpu = hosts.client.ready.pinned_cpu;
        self.arm.client.sysctls = set_sysctls(&mut hosts.client, client_sysctls)?;
        let server = hosts.server()?;
        let server_sysctls = set_sysctls(server, server_sysctls)?;
        self.arm.server = Some(HostSummary {
            sysctls: server_sysctls,
            pinned_cpu: server.ready.pinned_cpu,
            ..HostSummary::default()
        });
        Ok(hosts)
    }

    /// Where one address's ports would become scarce, the lab's client takes more addresses: past
    /// half of the range the kernel searches long for a port (measured on Linux 6.18: 50,000 from
    /// one address cost 0.9 ms of CPU each, from four 0.05 ms). On loopback, where the addresses
    /// are one, the range is widened.
    fn spread_ports(&mut self, lab: &mut LabSpec, needed: PortsNeeded) {
        let per_address = DEFAULT_PORTS / 2;
        let PortsNeeded { at_a_time: ports, connections } = needed;
        let sysctls = &mut lab.client_sysctls;
        let told = sysctls.iter().any(|(name, _)| name == PORT_RANGE) || !self.sources.is_empty();
        if told || ports <= per_address {
            return;
        }
        let (name, value) = if lab.link.loopback {
            if ports <= DEFAULT_PORTS {
                return;
            }
            sysctls.push((PORT_RANGE.to_owned(), WIDE_RANGE.to_owned()));
            (PORT_RANGE.to_owned(), WIDE_RANGE.to_owned())
        } else {
            let addresses = ports.div_ceil(per_address).min(SOURCES_MAX);
            self.sources = (1..=addresses).map(|n| client_address(n as u16, lab.ipv6)).collect();
            ("--bind".to_owned(), format!("{addresses} source addresses"))
        };
        self.warn(&Warning::SettingMade {
            name,
            value,
            why: format!(
                "one address has too few local ports for {connections} connections (to choose yourself: --bind or --client-sysctl)"
            ),
        });
    }
}

/// Source addresses that the client host does not have yet, each once. On loopback there is no
/// device to give them to.
fn further_addresses(sources: &[IpAddr], loopback: bool, ipv6: bool) -> Vec<IpAddr> {
    if loopback {
        return Vec::new();
    }
    let own = Addresses::new(loopback, ipv6).client;
    let mut further: Vec<IpAddr> = Vec::new();
    for &address in sources {
        if address != own && !further.contains(&address) {
            further.push(address);
        }
    }
    further
}

/// Starts a real server by a line for the shell and waits until it listens; `port` where it
/// listens on several.
pub(crate) fn launch(
    hosts: &mut Hosts,
    line: &str,
    port: Option<u16>,
) -> Result<SocketAddr, TrialError> {
    let launch = Launch {
        words: vec![line.to_owned()],
        shell: true,
        environment: hosts.addresses.variables(),
        // On a machine of the user's it is that user.
        ordinary_user: !hosts.is_remote(),
    };
    let address = hosts.addresses.server;
    let server = hosts.server()?;
    let at = server.ask(&launch)?;
    Ok(SocketAddr::new(address, port.unwrap_or(at.port())))
}

/// Waits until the last FINs have come through, so that they are counted.
///
/// Round trip of the path, and how much longer a way may take.
pub(super) fn settle(
    hosts: &mut Hosts,
    round_trip: Duration,
    jitter: Duration,
) -> Result<(), LabError> {
    // A server that is slow to close is not waited for longer.
    let limit = round_trip * 2 + jitter + Duration::from_millis(30);
    hosts.client.ask(&Settle { limit_ns: limit.as_nanos() as u64 })?;
    // The client has the server's FIN; its ACK is on the way.
    hosts.time.pause(round_trip / 2 + jitter + Duration::from_millis(2));
    Ok(())
}

/// What the link counted, and the rows that came before.
pub(crate) fn count(link: &mut Handle) -> Result<(Counted, Vec<Rows>), TrialError> {
    let begun = link.begin(&Count)?;
    let answered = link.wait(begun, &Interrupt::new(), &mut |_| {})?;
    Ok((answered.answer, answered.rows))
}

fn set_sysctls(
    host: &mut Handle,
    wanted: Vec<(String, String)>,
) -> Result<BTreeMap<String, String>, LabError> {
    if wanted.is_empty() {
        return Ok(BTreeMap::new());
    }
    Ok(host.ask(&SetSysctls(wanted))?.into_iter().collect())
}

/// Reads sysctls of a host; what it does not have is absent.
pub(crate) fn read_sysctls(
    host: &mut Handle,
    names: &[&str],
) -> Result<BTreeMap<String, String>, LabError> {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Ok(host.ask(&ReadSysctls(names))?.into_iter().collect())
}

pub(crate) fn observe(host: &mut Handle) -> Result<Snapshot, LabError> {
    host.ask(&Observe)
}

/// The retry ladder of this host, from its own sysctls.
pub(crate) fn ladder_of(host: &mut Handle) -> Result<Vec<Duration>, LabError> {
    const RETRIES: &str = "net.ipv4.tcp_syn_retries";
    const LINEAR: &str = "net.ipv4.tcp_syn_linear_timeouts";
    let got = read_sysctls(host, &[RETRIES, LINEAR])?;
    let number = |name: &str| got.get(name).and_then(|text| text.parse().ok());
    Ok(syn_ladder(&SynSysctls {
        syn_retries: number(RETRIES).unwrap_or(6),
        linear_timeouts: number(LINEAR).unwrap_or(0),
    }))
}

/// The ladder of this host's retransmitted SYN-ACKs, from its own sysctls.
pub(crate) fn syn_ack_ladder_of(host: &mut Handle) -> Result<Vec<Duration>, LabError> {
    const RETRIES: &str = "net.ipv4.tcp_synack_retries";
    let got = read_sysctls(host, &[RETRIES])?;
    Ok(syn_ack_ladder(got.get(RETRIES).and_then(|text| text.parse().ok()).unwrap_or(5)))
}

/// A file of root certificates for the client; it goes with the trial.
pub(crate) struct RootsFile(PathBuf);

impl RootsFile {
    pub(crate) fn write(pem: &str, seed: u64) -> Result<Self, TrialError> {
        let name = format!("tcptoll-{}-{seed:016x}.pem", std::process::id());
        let path = std::env::temp_dir().join(name);
        let refuse = |error: std::io::Error| {
            TrialError::Lab(LabError::Refused(format!("{}: {error}", path.display())))
        };
        // Of this user alone, and nobody else's file of the same name.
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(refuse)?;
        let roots = Self(path.clone());
        file.write_all(pem.as_bytes()).map_err(refuse)?;
        Ok(roots)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RootsFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_the_client_has_already_is_not_given_to_it_again() {
        let addresses = |texts: &[&str]| -> Vec<IpAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let bound = addresses(&["10.77.0.1", "10.77.0.11", "10.77.0.11"]);
        assert_eq!(further_addresses(&bound, false, false), addresses(&["10.77.0.11"]));
        assert!(further_addresses(&bound, true, false).is_empty());
        assert!(further_addresses(&addresses(&["fd77::1"]), false, true).is_empty());
    }
}
