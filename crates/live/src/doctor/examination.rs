//! What `doctor` prints: what was examined, what was not, and what is wrong.
//!
//! The text, the JSON and the page are made from this one type. It is stable: a later version adds
//! fields, and [`REPORT_VERSION`] rises only where an older reader would be misled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Machine, Proof, ServerConfig};
use crate::watch::{ListenerState, State};
use tcptoll_core::finding::{Finding, Severity};
use tcptoll_core::printable::line;
use tcptoll_core::units::plural;

/// Version of the object that `doctor --format json` prints.
const REPORT_VERSION: u32 = 1;

/// One examination of a machine, or of one of its network namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Examination {
    /// Version of this object: 1.
    pub report_version: u32,
    /// Version of the program.
    pub tcptoll_version: String,
    /// Wall-clock time of its end, RFC 3339.
    pub time: String,
    /// Host name, as the kernel has it.
    pub host: String,
    /// The network namespace that was asked for with `--netns`; absent: the one of the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// Time between the first look and the last, s. Rates and peaks are of this time.
    pub lasted_s: f64,
    /// What the examination cost this machine, without `--prove`.
    pub cost: ExaminationCost,
    /// What was looked at, and what was not.
    pub examined: Examined,
    /// What is wrong, problems first.
    pub findings: Vec<Finding>,
    /// What the lab showed of the findings, with `--prove`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proofs: Vec<Proof>,
}

/// What an examination cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExaminationCost {
    /// CPU time of this process, s.
    pub cpu_s: f64,
    /// Its share of one CPU over the examination, 0 to 1.
    pub cpu_share: f64,
    /// Its resident memory at the end, bytes.
    pub resident_bytes: u64,
}

/// What an examination looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Examined {
    /// Listening TCP sockets.
    pub listeners: u64,
    /// TCP connections in any state but TIME-WAIT; absent: they could not be listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// Connections in TIME-WAIT; absent like `connections`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_wait: Option<u64>,
    /// SYNs and ACKs that met a full accept queue since this namespace began
    /// (`TcpExtListenOverflows`); absent: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflows_before: Option<u64>,
    /// Sysctls that were read.
    pub sysctls: u64,
    /// Servers that run here, with the settings that were read.
    pub servers: Vec<ServerConfig>,
    /// Listeners with their queues, at most 1,024: those with a finding or a queue first.
    pub queues: Vec<ListenerState>,
    /// What was not looked at: no finding says nothing about it.
    pub not_examined: Vec<NotExamined>,
}

/// A part of the machine that was not looked at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotExamined {
    /// What it is.
    pub what: String,
    /// Why it was not looked at.
    pub why: String,
    /// What to type to have it examined; absent: there is no way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Whether no examination like this one looks at it, on any machine.
    #[serde(default)]
    pub by_design: bool,
}

impl Examination {
    /// What was seen of a machine, or of this namespace of it, and what is wrong with it.
    pub fn new(machine: &Machine, netns: Option<&str>, mut findings: Vec<Finding>) -> Self {
        if let Some(netns) = netns {
            findings.iter_mut().flat_map(|one| &mut one.remedies).for_each(|fix| fix.enter(netns));
        }
        let state = &machine.state;
        let listed = was_listed(state);
        let time_wait = state.states.get("TIME-WAIT").copied().unwrap_or(0);
        let all: u64 = state.states.values().sum();
        Self {
            report_version: REPORT_VERSION,
            tcptoll_version: env!("CARGO_PKG_VERSION").to_owned(),
            time: state.time.clone(),
            host: state.host.clone(),
            netns: netns.map(line),
            lasted_s: state.interval_s,
            cost: ExaminationCost {
                cpu_s: state.cost.cpu_s,
                cpu_share: state.cost.cpu_share,
                resident_bytes: state.cost.resident_bytes,
            },
            examined: Examined {
                listeners: state.listeners.len() as u64 + state.listeners_left_out,
                connections: listed.then(|| all.saturating_sub(time_wait)),
                time_wait: listed.then_some(time_wait),
                overflows_before: state.totals.overflows,
                sysctls: machine.sysctls.len() as u64,
                servers: machine.servers.clone(),
                queues: state.listeners.clone(),
                not_examined: not_examined(machine, netns),
            },
            findings,
            proofs: Vec::new(),
        }
    }

    /// The command that re-creates a finding of this machine, or of the namespace that was examined, one
    /// element an argument.
    pub fn prove_command(&self, finding: &str) -> Vec<String> {
        prove_command(self.netns.as_deref(), finding)
    }

    /// How many findings harm connections now.
    pub fn problems(&self) -> usize {
        self.findings.iter().filter(|one| one.severity == Severity::Problem).count()
    }
}

/// The command that re-creates a finding of this namespace, one element an argument.
pub fn prove_command(netns: Option<&str>, finding: &str) -> Vec<String> {
    let netns = netns.into_iter().flat_map(|netns| ["--netns", netns]);
    let words = ["tcptoll", "doctor"].into_iter().chain(netns).chain(["--prove", finding]);
    words.map(str::to_owned).collect()
}

/// What was not looked at: first what could not be, then what no examination looks at.
fn not_examined(machine: &Machine, netns: Option<&str>) -> Vec<NotExamined> {
    let state = &machine.state;
    let namespace = netns
        .map(|netns| format!(" --netns {}", tcptoll_core::printable::shell_argument(&line(netns))));
    let again = format!("tcptoll doctor{}", namespace.as_deref().unwrap_or_default());
    let sudo = (!machine.by_root).then(|| format!("sudo {again}"));
    let mut parts = Vec::new();
    let mut part = |what: String, why: &str, remedy: Option<String>| {
        parts.push(NotExamined { what, why: why.to_owned(), remedy, by_design: false });
    };
    for server in &machine.servers {
        for reason in &server.unread {
            let (why, refused) = match reason.split_once(DENIED) {
                // The remedy says the rest.
                Some((path, _)) if sudo.is_some() => (format!("{path}{DENIED}"), true),
                _ => (reason.clone(), false),
            };
            part(
                format!("configuration of {} (PID {})", server.program.name(), server.pid),
                &why,
                sudo.clone().filter(|_| refused),
            );
        }
    }
    for note in &machine.notes {
        part("this examination".to_owned(), note, None);
    }
    let nameless = state.listeners.iter().filter(|one| one.process.is_none()).count();
    if nameless > 0 {
        part(
            format!(
                "processes of {nameless} of {}",
                plural(state.listeners.len() as u64, "listener")
            ),
            if machine.by_root { HIDDEN_FROM_ROOT } else { HIDDEN },
            sudo,
        );
    }
    if state.listeners_left_out > 0 {
        part(
            plural(state.listeners_left_out, "more listener"),
            "only listeners with a finding or a queue are listed",
            None,
        );
    }
    if !was_listed(state) {
        part(
            "connections and local ports".to_owned(),
            "the kernel did not list its sockets",
            Some(again.clone()),
        );
    }
    if state.rates.is_none() {
        part(
            "rates of drops, overflows and retransmissions".to_owned(),
            "the kernel's counters did not continue from the first look to the last",
            Some(again),
        );
    }
    parts.extend(by_design(namespace.as_deref().unwrap_or_default()));
    parts
}

/// Whether the kernel listed its sockets.
fn was_listed(state: &State) -> bool {
    state.table_age_s.is_some() || !state.states.is_empty()
}

/// Why a listener has no process.
const HIDDEN: &str =
    "their /proc/PID/fd may not be read, or they are new; findings name only ports";
/// The same, where root looked.
const HIDDEN_FROM_ROOT: &str = "they are in another PID namespace, or root has no CAP_SYS_PTRACE here, or they \
                                are new; findings name only ports";

/// How a reason begins that privileges remove.
const DENIED: &str = "permission denied";

/// What no examination looks at.
fn by_design(namespace: &str) -> [NotExamined; 3] {
    let part = |what: &str, why: &str, remedy: Option<String>| NotExamined {
        what: what.to_owned(),
        why: why.to_owned(),
        remedy,
        by_design: true,
    };
    [
        part(
            "faults at other times",
            "a queue that overflows once an hour needs a longer look",
            Some(format!("tcptoll watch{namespace} --record night.jsonl")),
        ),
        part(
            "other network namespaces",
            "containers have listeners and counters of their own",
            Some("tcptoll doctor --netns PID".to_owned()),
        ),
        part(
            "configuration of other programs",
            "only files of nginx, Apache, Redis, HAProxy, PHP-FPM and MariaDB are read",
            None,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Program;
    use crate::watch::Process;

    fn machine() -> Machine {
        let mut machine = Machine::default();
        machine.state.table_age_s = Some(0.0);
        machine.state.rates = Some(crate::watch::Rates::default());
        machine
    }

    #[test]
    fn the_command_of_a_proof_looks_where_the_finding_was() {
        let command =
            |netns| Examination::new(&machine(), netns, Vec::new()).prove_command("close-race");
        assert_eq!(command(None).join(" "), "tcptoll doctor --prove close-race");
        assert_eq!(
            command(Some("4711")).join(" "),
            "tcptoll doctor --netns 4711 --prove close-race"
        );
        assert_eq!(command(Some("/run/netns/a\u{202e}"))[3], "/run/netns/a");
    }

    #[test]
    fn connections_in_time_wait_are_counted_apart() {
        let mut machine = machine();
        machine.state.states = [("ESTABLISHED", 7), ("SYN-SENT", 2), ("TIME-WAIT", 40)]
            .map(|(state, count)| (state.to_owned(), count))
            .into();
        let examined = Examination::new(&machine, None, Vec::new()).examined;
        assert_eq!((examined.connections, examined.time_wait), (Some(9), Some(40)));
    }

    #[test]
    fn connections_that_were_not_listed_are_absent_and_named() {
        let mut machine = machine();
        machine.state.table_age_s = None;
        let examined = Examination::new(&machine, None, Vec::new()).examined;
        assert_eq!((examined.connections, examined.time_wait), (None, None));
        assert!(examined.not_examined[0].what.starts_with("connections"));
    }

    #[test]
    fn root_is_told_what_is_missing_and_not_to_become_root() {
        let mut machine = Machine { by_root: true, ..machine() };
        let mut server = ServerConfig::new(Program::Nginx, 7);
        let why = "/etc/nginx/a.conf: permission denied: root has no CAP_DAC_READ_SEARCH here";
        server.unread = vec![why.to_owned()];
        machine.servers = vec![server];
        machine.state.listeners = vec![ListenerState::default()];
        let parts = Examination::new(&machine, None, Vec::new()).examined.not_examined;
        assert_eq!((parts[0].why.as_str(), parts[0].remedy.as_ref()), (why, None));
        assert_eq!(parts[1].what, "processes of 1 of 1 listener");
        assert!(parts[1].why.contains("no CAP_SYS_PTRACE") && parts[1].remedy.is_none());
        assert!(parts.iter().all(|one| !format!("{one:?}").contains("sudo")), "{parts:?}");
    }

    #[test]
    fn an_unread_file_and_a_nameless_listener_are_named_with_their_remedy() {
        let mut machine = machine();
        let mut server = ServerConfig::new(Program::Nginx, 7);
        server.unread = vec!["/etc/nginx/a.conf: permission denied: run with sudo".to_owned()];
        machine.servers = vec![server];
        let process = Some(Process { pid: 7, name: "nginx".to_owned() });
        machine.state.listeners =
            vec![ListenerState { process, ..ListenerState::default() }, ListenerState::default()];
        let parts = Examination::new(&machine, Some("42"), Vec::new()).examined.not_examined;
        assert_eq!(parts.len(), 2 + by_design("").len());
        assert_eq!(parts[0].what, "configuration of nginx (PID 7)");
        assert_eq!(parts[0].why, "/etc/nginx/a.conf: permission denied");
        assert_eq!(parts[1].what, "processes of 1 of 2 listeners");
        assert!(
            parts[..2]
                .iter()
                .all(|one| one.remedy.as_deref() == Some("sudo tcptoll doctor --netns 42"))
        );
    }
}
