//! Options that several experiments have.

use super::option::{Only, Opt};

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
