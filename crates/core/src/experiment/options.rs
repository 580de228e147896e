//! Options that several experiments have.

use serde_json::Value;

use super::option::{Only, Opt};
use crate::study::{Compare, NamedArm, RoundsAsked, Study, level_text};

/// Heading of where the two ends are.
pub const PLACE: &str = "Hosts and link";
/// Heading of what is done, and how fast.
pub const LOAD: &str = "Load";

/// Where an option applies that is about the lab's own network.
const OWN_NETWORK: &[Only] = &[Only::Lab, Only::OwnNetwork];

/// The emulated link.
pub const LINK: Opt = Opt::each(
    PLACE,
    "link",
    "LINK",
    "Link between the lab's client and server: a name or values (see `tcptoll links`), like \
     rtt=37ms,jitter=1ms,rate=1gbit,loss=0.1%,queue=100p. Repeat the option, or list several \
     (metro,cross-region or rtt=1ms,rtt=20ms), to compare links",
)
.split(links)
.by_default("direct")
.only(OWN_NETWORK);

/// IPv6 in the lab.
pub const IPV6: Opt = Opt::flag(PLACE, "ipv6", "Use IPv6 in the lab").only(OWN_NETWORK);

/// Another way to emulate a link.
pub const PACKET_RELAY: Opt = Opt::flag(
    PLACE,
    "packet-relay",
    "Relay packets of the emulated link with AF_PACKET sockets, even if /dev/net/tun is available",
)
.only(OWN_NETWORK);

/// Sysctls of the server host.
pub const SERVER_SYSCTL: Opt = Opt::together(
    PLACE,
    "server-sysctl",
    "NAME=VALUE",
    "Set a sysctl on the server host, e.g. net.core.somaxconn=128; may be repeated",
)
.only(&[Only::Lab]);

/// Sysctls of the client host.
pub const CLIENT_SYSCTL: Opt = Opt::together(
    PLACE,
    "client-sysctl",
    "NAME=VALUE",
    "Set a sysctl on the client host, e.g. net.ipv4.tcp_wmem='4096 16384 4194304'; may be repeated",
)
.only(&[Only::Lab]);

/// Sysctls of the client host, where connections are opened.
pub const CLIENT_SYSCTL_RETRIES: Opt = CLIENT_SYSCTL
    .worded("Set a sysctl on the client host, e.g. net.ipv4.tcp_syn_retries=2; may be repeated");

/// Heading of hosts that are reached over ssh.
const REMOTE: &str = "Hosts of yours, over ssh";

/// How a value of `--server` begins that is a host and no command.
pub const SSH: &str = "ssh://";

/// The server's host where an experiment has no other `--server`.
pub const SERVER_HOST: Opt = Opt::one(
    PLACE,
    "server",
    "ssh://HOST",
    "Run the server on this host instead of in the lab: ssh://[USER@]HOST[:PORT]",
);

/// Options of hosts that are reached over ssh.
pub const CLIENT_HOST: Opt = Opt::one(
    REMOTE,
    "client",
    "ssh://HOST",
    "Run the client on this host; without it, on this machine",
)
.only(OVER_SSH);

/// The real server of a host.
pub const SERVE: Opt = Opt::one(
    REMOTE,
    "serve",
    "COMMAND",
    "What runs on the server's host, as --server in the lab; without it, what the lab would run",
)
.only(OVER_SSH);

/// Address of the measured path.
pub const SERVER_ADDRESS: Opt = Opt::one(
    REMOTE,
    "server-address",
    "ADDRESS",
    "Address of the server's host that the client connects to",
)
.derived("the one that ssh uses")
.only(OVER_SSH);

/// Address of the measured path.
pub const CLIENT_ADDRESS: Opt = Opt::one(
    REMOTE,
    "client-address",
    "ADDRESS",
    "Address of the client's host that connections come from",
)
.derived("the kernel's choice")
.only(OVER_SSH);

/// The user's ssh.
pub const SSH_COMMAND: Opt = Opt::one(
    REMOTE,
    "ssh",
    "COMMAND",
    "How a host is reached: a command that takes a host and a command, e.g. 'ssh -F my_config'",
)
.by_default("ssh")
.only(OVER_SSH);

/// The program on hosts to which it is not copied.
pub const REMOTE_BINARY: Opt = Opt::one(
    REMOTE,
    "remote-binary",
    "PATH",
    "Path of tcptoll on the hosts, of the same version; without it, this program is copied to them once",
)
.only(OVER_SSH);

/// Silence after which a host is lost.
pub const DEAD_AFTER: Opt = Opt::one(
    REMOTE,
    "dead-after",
    "TIME",
    "Silence of the connection over ssh after which each end takes the other for dead: the run ends, and on \
     the hosts everything that it began",
)
.by_default("10s")
.only(OVER_SSH);

/// Whether the server's host is one of the user's, in any arm.
pub fn is_over_ssh(study: &Study) -> bool {
    study
        .values("server")
        .iter()
        .any(|host| host.as_str().is_some_and(|host| host.starts_with(SSH)))
}

/// Where options of hosts that are reached over ssh apply.
const OVER_SSH: &[Only] = &[Only::OverSsh];

/// Number of connections of a load that opens them.
pub const CONNECT_COUNT: Opt =
    Opt::each(LOAD, "count", "N", "Total number of connections to open").letters(&['n']).number();

/// Connections that may be in progress at a time.
pub const CONCURRENCY: Opt =
    Opt::each(LOAD, "concurrency", "N", "Maximum number of concurrent connections")
        .letters(&['c'])
        .alias(&["connections"]);

/// Connections begun on a schedule.
pub const CONNECT_RATE: Opt = Opt::each(
    LOAD,
    "rate",
    "PER_SECOND",
    "Connections to start per second, whether or not earlier ones have ended (open loop). Latency \
     counts from the scheduled start of each",
)
.number();

/// Connections between two pauses.
pub const PAUSE_EVERY: Opt =
    Opt::each(LOAD, "pause-every", "N", "Pause after every N connections").number();

/// Length of a pause.
pub const PAUSE: Opt = Opt::each(LOAD, "pause", "TIME", "Length of each pause")
    .by_default("1s")
    .only(&[Only::With("pause-every", "N")]);

/// Time limit of a connection.
pub const CONNECT_TIMEOUT: Opt = Opt::each(
    LOAD,
    "timeout",
    "TIME",
    "Timeout of one connection, from its start to the first byte",
)
.by_default("10s");

/// Heading of a server's listener.
pub const LISTENER: &str = "Listener";

/// Backlog of a listener.
pub const BACKLOG: Opt = Opt::each(
    LISTENER,
    "backlog",
    "N",
    "Backlog passed to listen(2), which the kernel limits to net.core.somaxconn. The accept queue \
     holds one connection more",
)
.number();

/// `net.core.somaxconn` as levels.
pub const SOMAXCONN: Opt =
    Opt::each(LISTENER, "somaxconn", "N", "net.core.somaxconn of the server host")
        .number()
        .derived("kernel default");

/// `net.ipv4.tcp_max_syn_backlog` as levels.
pub const MAX_SYN_BACKLOG: Opt =
    Opt::each(LISTENER, "max-syn-backlog", "N", "net.ipv4.tcp_max_syn_backlog of the server host")
        .number()
        .derived("kernel default");

/// `net.ipv4.tcp_syncookies` as levels.
pub const SYNCOOKIES: Opt = Opt::each(
    LISTENER,
    "syncookies",
    "0,1,2",
    "net.ipv4.tcp_syncookies of the server host: 0 (never), 1 (when the SYN queue is full) or 2 \
     (always)",
)
.derived("kernel default");

/// `net.ipv4.tcp_abort_on_overflow` as levels.
pub const ABORT_ON_OVERFLOW: Opt = Opt::each(
    LISTENER,
    "abort-on-overflow",
    "on,off",
    "net.ipv4.tcp_abort_on_overflow of the server host. If on, a final ACK that meets a full \
     accept queue is answered with a reset",
)
.alone("on")
.by_default("off");

/// Further listeners.
pub const LISTENERS: Opt = Opt::one(
    LISTENER,
    "listeners",
    "N",
    "Number of listening sockets, from 1 to 8. The load goes to the first, and each other one gets \
     one connection every 100ms",
)
.number()
.by_default("1");

/// Work before each accept(2).
pub const ACCEPT_DELAY: Opt = Opt::each(
    LISTENER,
    "accept-delay",
    "TIME",
    "Time that the server spends before each accept(2), e.g. 2ms",
);

/// Schedule of connections.
pub const ARRIVALS: Opt = Opt::each(
    LOAD,
    "arrivals",
    "even,poisson",
    "Spacing of connections: even, or random like independent clients (poisson)",
)
.by_default("even");

/// Whether a connection lasts until the server has spoken.
pub const FIRST_BYTE: Opt = Opt::each(
    LOAD,
    "first-byte",
    "on,off",
    "Wait for the server's first byte before closing. If off, close as soon as the connection is \
     established",
)
.alone("on")
.by_default("on");

/// Packet tap on a link that is not emulated.
pub const TAP: Opt = Opt::flag(
    "Output",
    "tap",
    "In the lab, on a direct link or loopback, capture packets in the measured trial (costs CPU)",
)
.only(OWN_NETWORK);

/// Source addresses.
pub const BIND: Opt = Opt::one(
    LOAD,
    "bind",
    "ADDRESS,…",
    "Source addresses to use in turn. In the lab they are added to the client host",
);

/// Congestion control.
pub const CONGESTION: Opt =
    Opt::each(LOAD, "congestion", "NAME", "Congestion control of the client's sockets, e.g. bbr");

/// Heading of socket options.
pub const SOCKETS: &str = "Socket options";

/// Both buffers of both hosts.
pub const WINDOW: Opt = Opt::each(
    SOCKETS,
    "window",
    "auto|SIZE",
    "Size of the socket buffers on both hosts (SO_SNDBUF and SO_RCVBUF), e.g. 256K. auto leaves \
     them to the kernel's autotuning",
)
.by_default("auto");

/// Congestion control of both ends, where either may send.
pub const CONGESTION_OF_BOTH: Opt =
    Opt::each(SOCKETS, "congestion", "NAME", "Congestion control on both hosts, e.g. cubic or bbr")
        .derived("net.ipv4.tcp_congestion_control");

/// Whether a study states its arms itself: a value of one of these options, or arms with names.
pub fn is_chosen(study: &Study, options: &[&str]) -> bool {
    let stated = options.iter().any(|option| !study.values(option).is_empty());
    stated || !study.named_arms.is_empty()
}

/// The arms of a run without a choice, each a name with the settings that it changes; one round unless
/// rounds were asked for.
pub fn run_once(study: &mut Study, arms: &[(&str, &[(&str, &str)])]) {
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
pub fn unless_each_runs_once(study: &Study) -> bool {
    study.rounds.fixed != Some(1)
}

/// `metro,loss=1%,direct` and `rtt=1ms,loss=1%,rtt=20ms` are two links: a word without `=` begins the next, and
/// so does a second round trip.
pub fn links(text: &str) -> Vec<String> {
    let is_rtt = |part: &str| part.trim_start().starts_with("rtt=");
    let mut links: Vec<String> = Vec::new();
    for part in text.split(',') {
        let goes_on = |link: &&mut String| {
            part.contains('=') && !(is_rtt(part) && link.split(',').any(is_rtt))
        };
        match links.last_mut().filter(goes_on) {
            Some(link) => {
                link.push(',');
                link.push_str(part);
            }
            None => links.push(part.to_owned()),
        }
    }
    links
}

/// Several servers are an arm each, named as they were typed and compared with the first.
pub fn an_arm_each(study: &mut Study, option: &str) {
    let servers: Vec<String> = study
        .values(option)
        .iter()
        .flat_map(|value| {
            let text = level_text(value);
            text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let [first, _, ..] = servers.as_slice() else { return };
    study.factors.remove(option);
    study.settings.remove(option);
    study.compare =
        vec![Compare { against: Some(Value::from(first.as_str())), ..Compare::default() }];
    study.named_arms = servers
        .iter()
        .map(|server| NamedArm {
            name: server.clone(),
            settings: [(option.to_owned(), Value::from(server.as_str()))].into(),
            ..NamedArm::default()
        })
        .collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_without_an_equals_sign_or_a_second_round_trip_begins_the_next_link() {
        assert_eq!(links("rtt=37ms,loss=1%"), ["rtt=37ms,loss=1%"]);
        assert_eq!(links("rtt=1ms,rtt=20ms"), ["rtt=1ms", "rtt=20ms"]);
        assert_eq!(links("rtt=1ms,loss=1%,rtt=20ms"), ["rtt=1ms,loss=1%", "rtt=20ms"]);
        assert_eq!(
            links("metro,rtt=2ms,rate=1gbit,rtt=9ms"),
            ["metro,rtt=2ms,rate=1gbit", "rtt=9ms"]
        );
        // Two losses are a slip, which the reader of links names.
        assert_eq!(links("loss=1%,loss=2%"), ["loss=1%,loss=2%"]);
        assert_eq!(links("metro,loss=1%,direct"), ["metro,loss=1%", "direct"]);
    }
}
