//! One trial of messages that a JVM sends to another: `studies/java/Messages.java`, on both hosts.
//!
//! The JVMs measure, each its own window, and report in a line of JSON. Here these lines become the
//! reports that the native programs make, so that everything after is the same for both. The
//! connection belongs to the JVM: nothing reads its `TCP_INFO`.
//!
//! Each host is pinned to one CPU, and its JVM with it: compiler and garbage collector share that CPU
//! with the thread that sends or receives, as they share it with the kernel of the native program.
//!
//! JVMs are warmed up by encoding, 1.5 s for raw bytes and 4 s for XML: only then is the rate of the receiver
//! steady. The JVM's own CPU time is compared with the kernel's.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tcptoll_core::study::PlannedArm;
use tcptoll_core::verdict::warning::Warning;
use tcptoll_lab::lab::{Begun, Handle, Hosts, LabError};
use tcptoll_lab::messages::{Carried, Launch, Perform, Rows, SocketsGot, TransferReport, Watch};

use super::settings::{Encoding, MessagesSettings};
use super::trial;
use super::trial::bulk;
use crate::carry::transfer;
use crate::carry::transfer::{EndReports, not_started, round_trip};
use crate::kit::TrialError;
use crate::kit::hosts::{PortsNeeded, read_sysctls};
use crate::kit::notes::{Notes, Span};
use crate::kit::plan::{Context, Outcome};
use crate::kit::procedure;
use crate::kit::procedure::{JudgementBasis, LoadObservation, Site, Trial};
use crate::kit::settings::LabSpec;

/// The program, as it comes with tcptoll.
const SOURCE: &str = include_str!("../../../java/Messages.java");

/// Name of its file.
const FILE: &str = "Messages.java";

/// Debian's package of the JDK.
const PACKAGE: &str = "default-jdk-headless";

/// The same for every machine. Without these, a JVM chooses heap and collector by the machine's CPUs
/// and memory; `-UsePerfData` spares a file that is written to in the background.
const JVM_OPTIONS: [&str; 4] = ["-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:-UsePerfData"];

/// A JVM compiles the program and is ready within this, on a busy machine too: 0.8 s on a quiet one.
const READY_LIMIT: Duration = Duration::from_secs(40);

/// Beyond the phases of a trial, the JVM may take this long: a slow receiver reads what is on its way.
const END_SLACK: Duration = Duration::from_mins(1);

/// The longest that `--timeout` makes a JVM wait for its connection.
const CONNECT_MAX: Duration = Duration::from_mins(1);

/// The sender goes on for this long beyond a round trip: a garbage collection must not leave the
/// receiver's window short.
const TAIL: Duration = Duration::from_millis(200);

/// Share of a JVM's CPU time in the window that other threads than the one that sends or receives may
/// have. A young collection takes some per cent; a compiler at work takes half.
const OTHER_THREADS_MAX: f64 = 0.25;

/// Of the window itself, they must have had this share: the CPU time has steps of 10 ms.
const OTHER_THREADS_MIN: f64 = 0.05;

/// The JVM and its kernel count the same CPU time in steps of 10 ms each, and what follows the JVM's
/// last look at its own is in the kernel's alone.
const CPU_TOLERANCE: (f64, f64) = (0.1, 400_000.0);

/// Congestion control of new connections. A JVM cannot set a socket's own.
const CONGESTION: &str = "net.ipv4.tcp_congestion_control";

/// The last line of either end.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Line {
    messages: u64,
    bytes: u64,
    calls: u64,
    elapsed_ns: u64,
    send_buffer: u64,
    receive_buffer: u64,
    java: String,
    /// CPU time of the process since it began.
    cpu_ns: u64,
    /// Absent: the data ended before the window.
    #[serde(flatten)]
    window: Option<WindowLine>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct WindowLine {
    #[serde(rename = "window_ns")]
    ns: u64,
    #[serde(rename = "window_messages")]
    messages: u64,
    #[serde(rename = "window_bytes")]
    bytes: u64,
    #[serde(rename = "window_calls")]
    calls: u64,
    #[serde(rename = "window_cpu_ns")]
    cpu_ns: u64,
    #[serde(rename = "window_thread_cpu_ns")]
    thread_cpu_ns: u64,
}

impl Line {
    fn read(result: Value) -> Result<Self, TrialError> {
        serde_json::from_value(result).map_err(|error| {
            LabError::Refused(format!("java: its result cannot be read: {error}")).into()
        })
    }

    /// The report that a native program would make. `sends`: its data is what it sent.
    fn report(&self, sends: bool, congestion: &str) -> TransferReport {
        let mut carried = Carried {
            bytes: self.bytes,
            messages: self.messages,
            calls: self.calls,
            ..Carried::default()
        };
        let mut report = TransferReport {
            attempts: 1,
            ok: 1,
            sockets: SocketsGot {
                send_buffer: self.send_buffer,
                receive_buffer: self.receive_buffer,
                congestion: congestion.to_owned(),
            },
            elapsed_ns: self.elapsed_ns,
            cpu_us: (self.cpu_ns / 1_000, 0),
            ..TransferReport::default()
        };
        if let Some(window) = self.window {
            carried.window_bytes = window.bytes;
            carried.window_messages = window.messages;
            carried.window_calls = window.calls;
            carried.window_ns = window.ns;
            report.window_cpu_us = (window.cpu_ns / 1_000, 0);
            report.cpu_window_ns = window.ns;
        }
        if sends {
            report.sent = carried;
        } else {
            report.received = carried;
        }
        report
    }

    /// Share of the CPU time in the window that other threads used: compiler and garbage collector.
    ///
    /// None: too little to matter.
    fn other_threads(&self) -> Option<f64> {
        let window = self.window.filter(|window| window.cpu_ns > 0)?;
        let others = window.cpu_ns.saturating_sub(window.thread_cpu_ns) as f64;
        let matters = others > OTHER_THREADS_MIN * window.ns as f64;
        matters.then(|| others / window.cpu_ns as f64)
    }
}

pub(super) struct JavaTrial<'a> {
    settings: &'a MessagesSettings,
    encoding: Encoding,
    notes: Notes,
    /// The receiver, while it runs, and where it listens.
    server: Option<(Begun<Perform>, SocketAddr)>,
    /// What it reports at its end.
    received: Option<Line>,
    /// Congestion control of both hosts: client, server.
    congestion: [String; 2],
}

impl<'a> JavaTrial<'a> {
    /// Runs a trial of an arm.
    pub(super) fn outcome(
        arm: &PlannedArm,
        (settings, encoding): (&'a MessagesSettings, Encoding),
        context: &mut Context<'_>,
    ) -> Result<Outcome, TrialError> {
        let mut trial = Self {
            settings,
            encoding,
            notes: Notes::new(&arm.name, &[]),
            server: None,
            received: None,
            congestion: Default::default(),
        };
        trial.notes.arm.own.message = Some(trial::way(settings));
        let ports = PortsNeeded { at_a_time: 1, connections: 1 };
        let site = Site::Lab(lab(settings), ports);
        procedure::run(&mut trial, site, context)?;
        Ok(trial.notes.into_outcome(&arm.factors))
    }

    /// The order of one end.
    fn perform(&self, role: &str, host: IpAddr, port: u16) -> Perform {
        let settings = self.settings;
        let (tail, work) = match role {
            "sender" => (round_trip(&settings.lab.link) + TAIL, settings.work),
            _ => (Duration::ZERO, settings.receiver_work),
        };
        // The receiver also waits for the sender's JVM.
        let timeout = settings.timeout.min(CONNECT_MAX) + READY_LIMIT;
        let buffer = |asked: Option<u32>| asked.map_or("auto".to_owned(), |size| size.to_string());
        let sockets = &settings.sockets;
        let options = [
            ("host", host.to_string()),
            ("port", port.to_string()),
            ("encoding", self.encoding.name().to_owned()),
            ("message", settings.message_bytes.to_string()),
            ("nagle", if sockets.no_delay { "off" } else { "on" }.to_owned()),
            ("send-buffer", buffer(sockets.send_buffer)),
            ("receive-buffer", buffer(sockets.receive_buffer)),
            ("timeout", timeout.as_millis().to_string()),
            ("warmup", settings.warmup.as_millis().to_string()),
            ("duration", settings.duration.as_millis().max(1).to_string()),
            ("tail", tail.as_millis().to_string()),
            ("work", work.as_nanos().to_string()),
        ];
        let mut words = vec!["java".to_owned()];
        words.extend(JVM_OPTIONS.map(str::to_owned));
        words.extend([FILE.to_owned(), role.to_owned()]);
        words.extend(options.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]));
        let phases = settings.warmup + settings.duration + tail;
        let end = phases * 2 + timeout + END_SLACK;
        Perform {
            launch: Launch { words, shell: false, environment: Vec::new(), ordinary_user: true },
            package: PACKAGE.to_owned(),
            files: vec![(FILE.to_owned(), SOURCE.to_owned())],
            ready_limit_ns: READY_LIMIT.as_nanos() as u64,
            end_limit_ns: end.as_nanos() as u64,
        }
    }

    /// Ends the receiver of a sender that failed; the error of either that says more.
    fn failed(&mut self, hosts: &mut Hosts, error: LabError) -> TrialError {
        let Some((receiving, _)) = self.server.take() else { return error.into() };
        let LabError::Refused(sender) = error else { return error.into() };
        match hosts.server().map(|server| server.stop(receiving)) {
            Ok(Err(LabError::Refused(receiver))) => {
                LabError::Refused(format!("receiver: {receiver}\nsender: {sender}")).into()
            }
            _ => LabError::Refused(format!("sender: {sender}")).into(),
        }
    }

    /// Warns of a JVM that did not only send or receive, and of CPU times that disagree.
    fn judge(&mut self, host: &'static str, line: &Line, span: Span<'_>) {
        if let Some(share) = line.other_threads().filter(|share| *share > OTHER_THREADS_MAX) {
            self.notes.warn(&Warning::JvmBusy { host, share });
        }
        let (user, system) = span.children_cpu_us();
        let (ours, kernel) = (line.cpu_ns / 1_000, user + system);
        let apart = ours.abs_diff(kernel) as f64;
        if apart > CPU_TOLERANCE.0 * kernel as f64 + CPU_TOLERANCE.1 {
            let what = format!("CPU time of the {host}'s JVM, µs");
            self.notes.warn(&Warning::WitnessDisagrees { what, ours, witness: kernel });
        }
    }
}

/// The lab with the congestion control that was asked for: a JVM has the host's default.
fn lab(settings: &MessagesSettings) -> LabSpec {
    let mut lab = settings.lab.clone();
    if let Some(name) = &settings.sockets.congestion {
        for sysctls in [&mut lab.client_sysctls, &mut lab.server_sysctls] {
            sysctls.push((CONGESTION.to_owned(), name.clone()));
        }
    }
    lab
}

fn congestion_of(host: &mut Handle) -> Result<String, LabError> {
    Ok(read_sysctls(host, &[CONGESTION])?.remove(CONGESTION).unwrap_or_default())
}

/// The port of the receiver's first line.
fn port_of(line: &Value) -> Result<u16, TrialError> {
    let port = line.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
    port.filter(|port| *port > 0).ok_or_else(|| {
        LabError::Refused(format!("java: no port in the receiver's first line: {line}")).into()
    })
}

impl Trial for JavaTrial<'_> {
    type Report = Line;

    fn notes(&mut self) -> &mut Notes {
        &mut self.notes
    }

    fn prepare(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<(), TrialError> {
        self.congestion = [congestion_of(&mut hosts.client)?, congestion_of(hosts.server()?)?];
        Ok(())
    }

    fn listen(&mut self, hosts: &mut Hosts, _context: &Context<'_>) -> Result<Watch, TrialError> {
        let address = hosts.addresses.server;
        let order = self.perform("receiver", address, 0);
        let (ready, receiving) = hosts.server()?.start(&order)?;
        self.server = Some((receiving, SocketAddr::new(address, port_of(&ready)?)));
        Ok(Watch { tap: self.settings.lab.tap, ..Watch::default() })
    }

    fn load(&mut self, hosts: &mut Hosts, context: &mut Context<'_>) -> Result<Line, TrialError> {
        let Some((_, at)) = &self.server else { return Err(not_started()) };
        let order = self.perform("sender", at.ip(), at.port());
        let sent = hosts
            .client
            .start(&order)
            .and_then(|(_, sending)| hosts.client.wait(sending, context.interrupt, &mut |_| {}));
        let sent = match sent {
            Ok(sent) => sent.answer.result.ok_or(LabError::Interrupted)?,
            Err(error) => return Err(self.failed(hosts, error)),
        };
        // It has read to the end: the sender waited for that.
        if let Some((receiving, _)) = self.server.take() {
            let ended = hosts.server()?.wait(receiving, context.interrupt, &mut |_| {})?;
            let result = ended.answer.result.ok_or(LabError::Interrupted)?;
            self.received = Some(Line::read(result)?);
        }
        Line::read(sent)
    }

    fn server_done(&mut self, _hosts: &mut Hosts, _wire: Vec<Rows>) -> Result<(), TrialError> {
        Ok(())
    }

    fn take(&mut self, sent: &Line, seen: &LoadObservation<'_>) -> JudgementBasis {
        let settings = self.settings;
        if let Some(received) = self.received.take() {
            let [client, server] = &self.congestion;
            let ended = EndReports {
                client: &sent.report(true, client),
                server: &received.report(false, server),
            };
            let lab = &settings.lab;
            transfer::take(&mut self.notes, &bulk(settings), ended, (&lab.link, lab.ipv6));
            trial::take_one_way(&mut self.notes, ended, seen);
            if sent.window.is_none() || received.window.is_none() {
                self.notes.exclude("the data ended before the measured window did");
            }
            self.judge("client", sent, seen.client);
            if let Some(span) = seen.server {
                self.judge("server", &received, span);
            }
        }
        if let Some(way) = &mut self.notes.arm.own.message {
            way.program_version = Some(sent.java.clone());
            way.encoded_bytes =
                (sent.messages > 0).then(|| sent.bytes as f64 / sent.messages as f64);
        }
        JudgementBasis { operations: self.notes.arm.attempts, stamped: seen.tapped }
    }

    fn compare(&mut self, _seen: &LoadObservation<'_>) {
        self.notes.compare_syns();
        transfer::compare(&mut self.notes);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line() -> Value {
        json!({
            "role": "sender", "messages": 100, "content_bytes": 6_400, "bytes": 6_800, "calls": 100,
            "window_ns": 1_000, "window_messages": 50, "window_bytes": 3_400, "window_calls": 50,
            "window_cpu_ns": 800, "window_thread_cpu_ns": 600, "elapsed_ns": 3_000,
            "send_buffer": 87_040, "receive_buffer": 65_536, "java": "17", "cpu_ns": 9_000,
        })
    }

    #[test]
    fn a_line_becomes_the_report_of_a_native_program() {
        let report = Line::read(line()).unwrap().report(true, "cubic");
        assert_eq!((report.attempts, report.ok, report.received.bytes), (1, 1, 0));
        assert_eq!((report.sent.bytes, report.sent.window_messages), (6_800, 50));
        assert_eq!(report.sockets.congestion, "cubic");
        let report = Line::read(line()).unwrap().report(false, "bbr");
        assert_eq!((report.sent.bytes, report.received.window_bytes), (0, 3_400));
    }

    #[test]
    fn data_that_ended_before_the_window_has_none() {
        let mut short = line();
        short.as_object_mut().unwrap().retain(|name, _| !name.starts_with("window"));
        let line = Line::read(short).unwrap();
        assert!(line.window.is_none() && line.other_threads().is_none());
        assert_eq!(line.report(true, "").sent.window_ns, 0);
    }

    #[test]
    fn a_result_without_its_counts_is_an_error() {
        assert!(Line::read(json!({ "messages": 1 })).is_err());
        assert!(Line::read(json!({ "messages": -1, "bytes": 2 })).is_err());
    }

    #[test]
    fn the_share_of_other_threads_is_of_the_window() {
        assert_eq!(Line::read(line()).unwrap().other_threads(), Some(0.25));
        // A receiver that hardly did anything.
        let mut idle = line();
        idle["window_cpu_ns"] = json!(50);
        idle["window_thread_cpu_ns"] = json!(10);
        assert_eq!(Line::read(idle).unwrap().other_threads(), None);
    }

    #[test]
    fn a_port_is_read_from_the_first_line_and_nothing_else_is_one() {
        assert_eq!(port_of(&json!({ "port": 5_001 })).unwrap(), 5_001);
        for wrong in [json!({}), json!({ "port": 0 }), json!({ "port": 65_536 }), json!(["port"])] {
            assert!(port_of(&wrong).is_err(), "{wrong}");
        }
    }
}
