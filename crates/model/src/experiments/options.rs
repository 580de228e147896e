//! Options that several experiments have.

use serde_json::Value;

use super::option::{Only, Opt};
use crate::study::{NamedArm, RoundsAsked, Study};

/// Heading of where the two ends are.
pub const PLACE: &str = "Place";
/// Heading of what is done, and how fast.
pub const LOAD: &str = "Load";

/// The emulated link.
pub const LINK: Opt = Opt::each(
    PLACE,
    "link",
    "LINK",
    "Link between the two hosts: a name (see `tcptoll links`) or rtt=37ms,rate=1gbit,loss=0.1%, \
     jitter=1ms,queue=100p; given again, or several names: one arm each",
)
.split(links)
.by_default("direct")
.only(&[Only::Lab]);

/// IPv6 in the lab.
pub const IPV6: Opt = Opt::flag(PLACE, "ipv6", "Use IPv6 in the lab").only(&[Only::Lab]);

/// Another way to emulate a link.
pub const PACKET_RELAY: Opt = Opt::flag(
    PLACE,
    "packet-relay",
    "Relay the emulated link over AF_PACKET even where /dev/net/tun can be opened",
)
.only(&[Only::Lab]);

/// Sysctls of the server host.
pub const SERVER_SYSCTL: Opt = Opt::together(
    PLACE,
    "server-sysctl",
    "NAME=VALUE",
    "Sysctl of the server host, like net.core.somaxconn=128; may be given again",
)
.only(&[Only::Lab]);

/// Sysctls of the client host.
pub const CLIENT_SYSCTL: Opt = Opt::together(
    PLACE,
    "client-sysctl",
    "NAME=VALUE",
    "Sysctl of the client host, like net.ipv4.tcp_wmem='4096 16384 4194304'; may be given again",
)
.only(&[Only::Lab]);

/// Sysctls of the client host, where connections are opened.
pub const CLIENT_SYSCTL_RETRIES: Opt = CLIENT_SYSCTL
    .worded("Sysctl of the client host, like net.ipv4.tcp_syn_retries=2; may be given again");

/// Number of connections of a load that opens them.
pub const CONNECT_COUNT: Opt = Opt::each(LOAD, "count", "N", "Connections in all").number();

/// Connections that may be in progress at a time.
pub const CONCURRENCY: Opt =
    Opt::each(LOAD, "concurrency", "N", "Connections being opened at once, at most")
        .alias(&["connections"]);

/// Connections begun on a schedule.
pub const CONNECT_RATE: Opt = Opt::each(
    LOAD,
    "rate",
    "PER_SECOND",
    "Connections begun per second, whether or not others have ended; latency counts from \
     when each was due",
)
.number();

/// Connections between two pauses.
pub const PAUSE_EVERY: Opt =
    Opt::each(LOAD, "pause-every", "N", "Pause after so many connections").number();

/// Length of a pause.
pub const PAUSE: Opt = Opt::each(LOAD, "pause", "TIME", "Length of that pause")
    .by_default("1s")
    .only(&[Only::With("pause-every", "N")]);

/// Time limit of a connection.
pub const CONNECT_TIMEOUT: Opt = Opt::each(
    LOAD,
    "timeout",
    "TIME",
    "Time limit of one connection, from its start to the first byte",
)
.by_default("10s");

/// Heading of a server's listener.
pub const LISTENER: &str = "Listener";

/// Backlog of a listener.
pub const BACKLOG: Opt = Opt::each(
    LISTENER,
    "backlog",
    "N",
    "Backlog of listen(2). The kernel clamps it to net.core.somaxconn; the accept queue holds one \
     connection more",
)
.number();

/// `net.core.somaxconn` as levels.
pub const SOMAXCONN: Opt =
    Opt::each(LISTENER, "somaxconn", "N", "net.core.somaxconn of the server host")
        .number()
        .derived("the kernel's own");

/// `net.ipv4.tcp_max_syn_backlog` as levels.
pub const MAX_SYN_BACKLOG: Opt =
    Opt::each(LISTENER, "max-syn-backlog", "N", "net.ipv4.tcp_max_syn_backlog of the server host")
        .number()
        .derived("the kernel's own");

/// `net.ipv4.tcp_syncookies` as levels.
pub const SYNCOOKIES: Opt = Opt::each(
    LISTENER,
    "syncookies",
    "0,1,2",
    "net.ipv4.tcp_syncookies of the server host: 0 never, 1 when the SYN queue is full, 2 always",
)
.derived("the kernel's own");

/// `net.ipv4.tcp_abort_on_overflow` as levels.
pub const ABORT_ON_OVERFLOW: Opt = Opt::each(
    LISTENER,
    "abort-on-overflow",
    "on,off",
    "net.ipv4.tcp_abort_on_overflow of the server host. on: a connection whose last ACK meets a \
     full accept queue is reset",
)
.alone("on")
.by_default("off");

/// Further listeners.
pub const LISTENERS: Opt = Opt::one(
    LISTENER,
    "listeners",
    "N",
    "Listeners of the server, 1 to 8. The load goes to the first; each of the others gets one \
     connection every 100 ms",
)
.number()
.by_default("1");

/// Work before each accept(2).
pub const ACCEPT_DELAY: Opt =
    Opt::each(LISTENER, "accept-delay", "TIME", "Time that the server works before each accept(2)");

/// Schedule of connections.
pub const ARRIVALS: Opt = Opt::each(
    LOAD,
    "arrivals",
    "even,poisson",
    "Spacing of connections: even, or at random (poisson), as independent clients connect",
)
.by_default("even");

/// Whether a connection lasts until the server has spoken.
pub const FIRST_BYTE: Opt = Opt::each(
    LOAD,
    "first-byte",
    "on,off",
    "Wait for the server's first byte before closing; off: close once connected, as a loop of \
     connect and close",
)
.alone("on")
.by_default("on");

/// Packet tap on a link that is not emulated.
pub const TAP: Opt = Opt::flag(
    "Output",
    "tap",
    "On a link without emulation: watch the measured trial with a packet tap (it costs CPU)",
)
.only(&[Only::Lab]);

/// Source addresses.
pub const BIND: Opt = Opt::one(
    LOAD,
    "bind",
    "ADDRESS,…",
    "Source addresses, taken in turn; the lab's client host is given them",
);

/// Congestion control.
pub const CONGESTION: Opt =
    Opt::each(LOAD, "congestion", "NAME", "Congestion control of the client's sockets");

/// Heading of socket options.
pub const SOCKETS: &str = "Sockets";

/// Both buffers of both hosts.
pub const WINDOW: Opt = Opt::each(
    SOCKETS,
    "window",
    "auto|SIZE",
    "Socket buffers of both hosts (SO_SNDBUF and SO_RCVBUF), like 256K; auto: the kernel tunes \
     them",
)
.by_default("auto");

/// Congestion control of both ends, where either may send.
pub const CONGESTION_OF_BOTH: Opt =
    Opt::each(SOCKETS, "congestion", "NAME", "Congestion control of both hosts: cubic, bbr, reno")
        .derived("the kernel's own");

/// Whether a study states its arms itself: a value of one of these options, or arms with names.
pub(super) fn is_chosen(study: &Study, options: &[&str]) -> bool {
    let stated = options.iter().any(|option| !study.values(option).is_empty());
    stated || !study.named_arms.is_empty()
}

/// The arms of a run without a choice, each a name with the settings that it changes; one round unless
/// rounds were asked for.
pub(super) fn run_once(study: &mut Study, arms: &[(&str, &[(&str, &str)])]) {
    study.named_arms = arms
        .iter()
        .map(|(name, settings)| NamedArm {
            name: (*name).to_owned(),
            settings: settings
                .iter()
                .map(|(option, value)| ((*option).to_owned(), Value::from(*value)))
                .collect(),
            ..NamedArm::default()
        })
        .collect();
    if study.rounds == RoundsAsked::default() {
        study.rounds.fixed = Some(1);
    }
}

/// Arms are compared with the first, unless each runs once.
pub(super) fn unless_each_runs_once(study: &Study) -> bool {
    study.rounds.fixed != Some(1)
}

/// `metro,loss=1%,direct` is two links: a word without `=` begins the next.
pub fn links(text: &str) -> Vec<String> {
    let mut links: Vec<String> = Vec::new();
    for part in text.split(',') {
        match links.last_mut() {
            Some(link) if part.contains('=') => {
                link.push(',');
                link.push_str(part);
            }
            _ => links.push(part.to_owned()),
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_without_an_equals_sign_begins_the_next_link() {
        assert_eq!(links("rtt=37ms,loss=1%"), ["rtt=37ms,loss=1%"]);
        assert_eq!(links("metro,loss=1%,direct"), ["metro,loss=1%", "direct"]);
    }
}
