//! `--memory`: the kernel memory of open connections, idle and filled, at both ends.
//!
//! It is a plan of its own, as no data is timed. Connections are opened in batches that fit the
//! accept queue, and held; memory is read; the client writes until no socket takes more, while the
//! server reads nothing; memory is read again. What is counted, and what the kernel rounds, is in
//! the page of the experiment.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use tcptoll_core::record::{Buffer, ConnectionMemory, MemoryHeld, MemorySockets, MemoryState};
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::files::Shared;
use tcptoll_lab::lab::{Hosts, LabError};
use tcptoll_lab::messages::{
    Filled, Held, HoldAccept, HoldConnect, HoldEnd, HoldFill, HoldListen, HoldLook, MemoryPicture,
    ReadMemory, SocketSettings, SocketsGot, Watch,
};
use tcptoll_lab::observe::read_sysctl;

use super::{
    CLIENT_FILLED_MEMORY, CLIENT_IDLE_MEMORY, SERVER_FILLED_MEMORY, SERVER_IDLE_MEMORY, SPEC,
};
use crate::carry::transfer::buffer;
use crate::kit::TrialError;
use crate::kit::hosts::{OVERHEAD_S, PortsNeeded};
use crate::kit::notes::Notes;
use crate::kit::plan::{Context, Outcome, Plan};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::kit::settings::{LabSpec, SettingsReader, check_congestion, time_above_zero};

/// The most connections; the limit of open files is usually below.
const CONNECTIONS_MAX: u64 = 100_000;

/// Handshakes of one batch: no burst of SYNs and no default queue is longer.
const BATCH: u32 = 256;

/// Connections are full when they take nothing for this long and two round trips: longer than an ACK
/// may be delayed (`TCP_DELACK_MAX`, 200 ms).
const QUIET: Duration = Duration::from_millis(250);

/// Connections that are opened per second without distance, to estimate how long a trial takes
/// (measured: 20,000 to 40,000).
const CONNECTIONS_PER_S: f64 = 20_000.0;

/// Bytes per second that connections are filled with without a limit by the link, for the same.
const FILLED_PER_S: f64 = 5e8;

/// A filled connection with tuned buffers takes about this many bytes, for the same.
const TUNED_BYTES: u32 = 300_000;

/// The options that apply.
const APPLY: &[&str] = &[
    "client-sysctl",
    "congestion",
    "connections",
    "ipv6",
    "link",
    "memory",
    "packet-relay",
    "receive-buffer",
    "send-buffer",
    "server-sysctl",
    "timeout",
    "window",
];

/// Whether an arm measures memory.
pub(super) fn is_asked(settings: &Settings) -> Result<bool, TrialError> {
    SettingsReader::new(&SPEC, settings)?.flag("memory")
}

/// The settings of one arm, checked.
#[derive(Clone, Debug)]
pub(super) struct MemorySettings {
    lab: LabSpec,
    connections: u64,
    /// Of both hosts.
    sockets: SocketSettings,
    /// Limit of the handshakes of a batch, and of filling.
    timeout: Duration,
    limits: Option<Limits>,
}

/// From `net.ipv4.tcp_mem`, which hosts of the lab do not have: it is the whole machine's. Bytes.
#[derive(Clone, Copy, Debug)]
struct Limits {
    pressure: u64,
    limit: u64,
}

impl MemorySettings {
    /// Checks the settings of one arm.
    pub(super) fn from(settings: &Settings) -> Result<Self, TrialError> {
        let reader = SettingsReader::new(&SPEC, settings)?;
        if let Some(other) = settings.keys().find(|name| !APPLY.contains(&name.as_str())) {
            return Err(TrialError::Setting(format!(
                "--{other} has no effect with --memory, which opens connections and fills their \
                 buffers: leave one of them out"
            )));
        }
        let window = buffer(&reader, "window")?.flatten();
        Ok(Self {
            lab: LabSpec::from(&reader)?,
            connections: reader.count("connections", 1, CONNECTIONS_MAX)?,
            sockets: SocketSettings {
                send_buffer: buffer(&reader, "send-buffer")?.unwrap_or(window),
                receive_buffer: buffer(&reader, "receive-buffer")?.unwrap_or(window),
                congestion: reader.typed("congestion"),
                ..SocketSettings::default()
            },
            timeout: reader.read("timeout", time_above_zero)?,
            limits: None,
        })
    }

    /// Nothing is taken for this long: the connections are full.
    fn quiet(&self) -> Duration {
        QUIET + (self.lab.link.rtt + self.lab.link.jitter) * 2
    }

    /// A quarter of what the link carries in that time: less does not mean that it has work left.
    fn moved_bytes(&self) -> u64 {
        let rate = self.lab.link.rate_bit_per_s;
        rate.map_or(u64::MAX, |bits| (bits / 8.0 * self.quiet().as_secs_f64() / 4.0) as u64)
    }
}

impl Limits {
    fn read() -> Option<Self> {
        let text = read_sysctl("net.ipv4.tcp_mem").ok()?;
        let pages: Vec<u64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
        let &[_, pressure, limit] = pages.as_slice() else { return None };
        let page = tcptoll_kernel::slab::page_bytes();
        Some(Self { pressure: pressure.saturating_mul(page), limit: limit.saturating_mul(page) })
    }
}

impl Plan for MemorySettings {
    fn prepare(&mut self, _files: &mut Shared) -> Result<(), TrialError> {
        self.limits = Limits::read();
        check_congestion(self.sockets.congestion.as_deref())
    }

    fn expected_s(&self) -> f64 {
        let connections = self.connections as f64;
        let trips = (connections / f64::from(BATCH)).ceil() * 2.0;
        let opening = connections / CONNECTIONS_PER_S + trips * self.lab.link.rtt.as_secs_f64();
        let buffers = [self.sockets.send_buffer, self.sockets.receive_buffer];
        let each: f64 =
            buffers.map(|asked| f64::from(asked.unwrap_or(TUNED_BYTES / 2))).iter().sum();
        let rate = self.lab.link.rate_bit_per_s.map_or(FILLED_PER_S, |bits| bits / 8.0);
        let filling = connections * each / rate.min(FILLED_PER_S);
        let filling = filling.min(self.timeout.as_secs_f64());
        OVERHEAD_S + opening + filling + self.quiet().as_secs_f64()
    }

    fn trial(&self, arm: &PlannedArm, context: &mut Context<'_>) -> Result<Outcome, TrialError> {
        let mut trial = MemoryTrial {
            settings: self,
            notes: Notes::new(&arm.name, &[]),
            at: None,
            queue: 1,
            before: MemoryPicture::default(),
        };
        let ports = PortsNeeded { at_a_time: self.connections, connections: self.connections };
        procedure::run(&mut trial, Site::Lab(self.lab.clone(), ports), context)?;
        Ok(trial.notes.into_outcome(&arm.factors))
    }
}

struct MemoryTrial<'a> {
    settings: &'a MemorySettings,
    notes: Notes,
    at: Option<SocketAddr>,
    /// Limit of the listener's accept queue.
    queue: u32,
    /// The machine before the connections.
    before: MemoryPicture,
}

/// Both hosts at one moment, one after the other.
struct Picture {
    client: MemoryPicture,
    server: MemoryPicture,
}

/// What was done, and what memory it took.
struct Report {
    attempts: u64,
    ok: u64,
    errors: BTreeMap<String, u64>,
    client: SocketsGot,
    server: SocketsGot,
    idle: Picture,
    filled: Picture,
    fill: Filled,
}

impl MemoryTrial<'_> {
    /// Opens all connections; gives how many both hosts hold, and the errors.
    fn open(
        &self,
        hosts: &mut Hosts,
        context: &mut Context<'_>,
        target: SocketAddr,
    ) -> Result<(u64, BTreeMap<String, u64>), TrialError> {
        let settings = self.settings;
        let all = settings.connections;
        let (mut begun, mut ok) = (0, 0);
        let mut errors = BTreeMap::new();
        while begun < all {
            let batch = u64::from(BATCH.min(self.queue)).min(all - begun) as u32;
            let connect = HoldConnect {
                target,
                connections: batch,
                before: begun,
                all,
                bind: self.notes.sources.clone(),
                sockets: settings.sockets.clone(),
                timeout_ns: settings.timeout.as_nanos() as u64,
            };
            let connecting = hosts.client.begin(&connect)?;
            let connected = hosts.client.wait(connecting, context.interrupt, &mut |_| {})?.answer;
            let timeout_ns = settings.timeout.as_nanos() as u64;
            let accept = HoldAccept { connections: connected.held as u32, timeout_ns };
            let server = hosts.server()?;
            let accepting = server.begin(&accept)?;
            let accepted = server.wait(accepting, context.interrupt, &mut |_| {})?.answer;
            if context.interrupt.signal().is_some() {
                return Err(LabError::Interrupted.into());
            }
            add(&mut errors, &connected.errors);
            begun += u64::from(batch);
            ok += accepted.held;
            add(&mut errors, &not_accepted(&connected, &accepted));
            (context.progress)(begun.into(), all);
        }
        Ok((ok, errors))
    }

    fn picture(&self, hosts: &mut Hosts) -> Result<Picture, TrialError> {
        let port = self.at.map_or(0, |at| at.port());
        let read = |connected| ReadMemory { port, ipv6: self.settings.lab.ipv6, connected };
        Ok(Picture {
            client: hosts.client.ask(&read(true))?,
            server: hosts.server()?.ask(&read(false))?,
        })
    }

    /// One state, of the pictures and the payload in it.
    fn state(&self, picture: &Picture, payload: u64) -> MemoryState {
        let grown = |now: u64, before: u64| now as f64 - before as f64;
        let Picture { client, server } = picture;
        MemoryState {
            client: held(client),
            server: held(server),
            payload_bytes: payload as f64,
            machine_tcp_bytes: grown(server.machine_tcp, self.before.machine_tcp),
            machine_slab_bytes: grown(server.machine_slab, self.before.machine_slab),
        }
    }

    fn take_memory(&mut self, report: &Report) {
        let settings = self.settings;
        let idle = self.state(&report.idle, 0);
        let filled = report.fill.full.then(|| self.state(&report.filled, report.fill.bytes));
        let memory = ConnectionMemory {
            connections: report.idle.client.sockets,
            client: sockets(&settings.sockets, &report.client, report.idle.client.structures),
            server: sockets(&settings.sockets, &report.server, report.idle.server.structures),
            idle,
            filled,
            machine_limit_bytes: settings.limits.map(|limits| limits.limit),
            machine_pressure_bytes: settings.limits.map(|limits| limits.pressure),
            pressure: self.was_pressed(report),
        };
        let n = memory.connections;
        let notes = &mut self.notes;
        notes.metric(&CLIENT_IDLE_MEMORY, memory.at_client(Some(&memory.idle)), n);
        notes.metric(&SERVER_IDLE_MEMORY, memory.at_server(Some(&memory.idle)), n);
        notes.metric(&CLIENT_FILLED_MEMORY, memory.at_client(memory.filled.as_ref()), n);
        notes.metric(&SERVER_FILLED_MEMORY, memory.at_server(memory.filled.as_ref()), n);
        if memory.pressure {
            notes.warn(&Warning::MemoryPressure {
                reached_bytes: report.filled.server.machine_tcp,
                pressure_bytes: settings.limits.map(|limits| limits.pressure),
            });
        }
        if !report.fill.full {
            notes.warn(&Warning::NotFilled { limit_s: settings.timeout.as_secs_f64() });
        }
        notes.arm.own.connection_memory = Some(memory);
    }

    /// Whether the kernel came under memory pressure in either host, or was under it when the
    /// connections were full: then whoever brought it there is another namespace, which has counted.
    fn was_pressed(&self, report: &Report) -> bool {
        const PRESSURES: &str = "TcpExtTCPMemoryPressures";
        let arm = &self.notes.arm;
        let counted = [Some(&arm.client), arm.server.as_ref()].into_iter().flatten();
        let mut counted = counted.filter_map(|host| host.counters.get(PRESSURES));
        let limits = self.settings.limits;
        let over = |limits: Limits| report.filled.server.machine_tcp > limits.pressure;
        counted.any(|times| *times > 0) || limits.is_some_and(over)
    }
}

fn add(errors: &mut BTreeMap<String, u64>, more: &BTreeMap<String, u64>) {
    for (class, connections) in more {
        *errors.entry(class.clone()).or_default() += connections;
    }
}

/// Connections of a batch that only the client believes in: by the server's errors, as far as it has
/// any; the rest did not reach it in time.
fn not_accepted(connected: &Held, accepted: &Held) -> BTreeMap<String, u64> {
    let mut left = connected.held.saturating_sub(accepted.held);
    let mut errors = BTreeMap::new();
    for (class, connections) in &accepted.errors {
        let connections = left.min(*connections);
        if connections > 0 {
            errors.insert(class.clone(), connections);
            left -= connections;
        }
    }
    if left > 0 {
        *errors.entry("connect-timeout".to_owned()).or_default() += left;
    }
    errors
}

fn held(picture: &MemoryPicture) -> MemoryHeld {
    MemoryHeld {
        received_bytes: picture.received as f64,
        queued_bytes: picture.queued as f64,
        reserved_bytes: picture.reserved as f64,
        receive_limit_bytes: picture.receive_limit as f64,
        send_limit_bytes: picture.send_limit as f64,
    }
}

fn sockets(asked: &SocketSettings, got: &SocketsGot, structures: Option<f64>) -> MemorySockets {
    MemorySockets {
        send_buffer: Buffer::new(asked.send_buffer.map(u64::from), got.send_buffer),
        receive_buffer: Buffer::new(asked.receive_buffer.map(u64::from), got.receive_buffer),
        congestion: got.congestion.clone(),
        structures_bytes: structures,
    }
}

impl Trial for MemoryTrial<'_> {
    type Report = Report;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let at = SocketAddr::new(hosts.addresses.server, 0);
        let (sockets, all) = (self.settings.sockets.clone(), self.settings.connections);
        let listening = hosts.server()?.ask(&HoldListen { at, sockets, all })?;
        (self.at, self.queue) = (Some(listening.at), listening.queue);
        self.before = self.picture(hosts)?.server;
        Ok(Watch::default())
    }

    fn load(&mut self, hosts: &mut Hosts, context: &mut Context<'_>) -> Result<Report, TrialError> {
        let nowhere = || TrialError::Target("there is no server to connect to".to_owned());
        let at = self.at.ok_or_else(nowhere)?;
        let (ok, mut errors) = self.open(hosts, context, at)?;
        let client = hosts.client.ask(&HoldLook)?;
        let server = hosts.server()?.ask(&HoldLook)?;
        let idle = self.picture(hosts)?;
        let quiet = self.settings.quiet();
        let fill = HoldFill {
            port: at.port(),
            quiet_ns: quiet.as_nanos() as u64,
            moved_bytes: self.settings.moved_bytes(),
            limit_ns: (self.settings.timeout + quiet).as_nanos() as u64,
        };
        let filling = hosts.client.begin(&fill)?;
        let fill = hosts.client.wait(filling, context.interrupt, &mut |_| {})?.answer;
        let filled = self.picture(hosts)?;
        // The side that has most to free goes first: its resets end the other's connections too.
        hosts.client.ask(&HoldEnd)?;
        hosts.server()?.ask(&HoldEnd)?;
        if context.interrupt.signal().is_some() {
            return Err(LabError::Interrupted.into());
        }
        let lost = fill.errors.values().sum::<u64>();
        add(&mut errors, &fill.errors);
        let attempts = self.settings.connections;
        let ok = ok.saturating_sub(lost);
        Ok(Report { attempts, ok, errors, client, server, idle, filled, fill })
    }

    fn take(&mut self, report: &Report, _seen: &LoadObservation<'_>) -> JudgementBasis {
        let arm = &mut self.notes.arm;
        arm.attempts = report.attempts;
        arm.ok = report.ok;
        arm.errors.clone_from(&report.errors);
        self.take_memory(report);
        JudgementBasis { operations: report.attempts, stamped: false }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn read(settings: &[(&str, &str)]) -> Result<MemorySettings, String> {
        let memory = ("memory".to_owned(), Value::from(true));
        let typed = settings.iter().map(|(name, text)| ((*name).to_owned(), Value::from(*text)));
        MemorySettings::from(&typed.chain([memory]).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_window_is_of_both_buffers_and_one_of_them_can_differ() {
        let buffers = |settings: &[(&str, &str)]| {
            let sockets = read(settings).unwrap().sockets;
            (sockets.send_buffer, sockets.receive_buffer)
        };
        assert_eq!(buffers(&[]), (None, None));
        assert_eq!(buffers(&[("window", "64K")]), (Some(65_536), Some(65_536)));
        assert_eq!(buffers(&[("window", "64K"), ("send-buffer", "auto")]), (None, Some(65_536)));
        assert_eq!(buffers(&[("receive-buffer", "8K")]), (None, Some(8_192)));
    }

    #[test]
    fn what_has_no_effect_or_cannot_be_had_is_an_error_that_names_it() {
        let error = |settings| read(settings).map(drop).unwrap_err();
        assert!(error(&[("message", "1K")]).starts_with("--message has no effect with --memory"));
        assert!(error(&[("window", "2G")]).starts_with("--window 2G: write auto, or a size"));
        assert!(error(&[("window", "0")]).starts_with("--window 0: "));
        assert!(error(&[("connections", "0")]).starts_with("--connections 0: "));
    }

    #[test]
    fn every_connection_that_the_server_did_not_accept_has_its_error() {
        let held = |held, errors: &[(&str, u64)]| Held {
            held,
            errors: errors.iter().map(|(class, n)| ((*class).to_owned(), *n)).collect(),
        };
        let errors = not_accepted(&held(10, &[]), &held(7, &[("local-fds", 1)]));
        assert_eq!(errors, held(0, &[("connect-timeout", 2), ("local-fds", 1)]).errors);
        assert!(not_accepted(&held(10, &[]), &held(10, &[("other", 1)])).is_empty());
    }

    #[test]
    fn what_is_expected_is_bounded_by_the_time_limit() {
        let expected = |settings: &[(&str, &str)]| read(settings).unwrap().expected_s();
        let slow = [("link", "rtt=1ms,rate=1mbit"), ("connections", "100"), ("window", "1M")];
        assert!(expected(&slow) > 10.0 && expected(&slow) < 11.0);
        assert!(expected(&[("connections", "100")]) < 1.0);
    }
}
