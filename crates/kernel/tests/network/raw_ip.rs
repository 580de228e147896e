//! Does a listener hold a half-open request for each SYN that a raw socket sends?

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use tcptoll_core::tcp::packet::{endpoints, syn};
use tcptoll_core::tcp::syn::HalfOpenSettings;
use tcptoll_kernel::netlink::Netlink;
use tcptoll_kernel::raw_ip::{RawIp, devices_up};
use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_kernel::socket::Tcp;

use crate::hosts::{Host, MAC, connect, ip};

/// `TCP_SYN_RECV` of the kernel.
const SYN_RECEIVED: u8 = 3;

/// An address that no host has, and that the server reaches over the link.
fn nobody(family: usize) -> IpAddr {
    ["10.0.0.200", "fd00::200"][family].parse().unwrap()
}

/// Half-open requests that a listener holds after `sent` SYNs of nobody; `set`: its host's sysctls.
fn held(family: usize, backlog: i32, set: &'static [(&str, &str)], sent: usize) -> Option<u64> {
    let (client, server) = Host::pair(1500)?;
    let at = server.run(move || {
        for (name, value) in set {
            std::fs::write(format!("/proc/sys/net/{name}"), value).unwrap();
        }
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.index("eth0").unwrap();
        netlink.add_neighbour(index, nobody(family), MAC[0]).unwrap();
        let listener = Tcp::listener(SocketAddr::new(ip(1, family), 0), backlog, false).unwrap();
        let at = listener.local().unwrap();
        std::mem::forget(listener);
        at
    });
    let before = carries(&client, &server, family);
    client.run(move || {
        let raw = RawIp::open("eth0", at.ip()).unwrap();
        for from in endpoints(&[nobody(family)], sent) {
            raw.send(&syn(from, at, 7).unwrap()).unwrap();
        }
    });
    Some(server.run(move || {
        let begun = Instant::now();
        while segments_received() < before + sent as u64
            && begun.elapsed() < Duration::from_secs(10)
        {
            thread::sleep(Duration::from_millis(1));
        }
        SockDiag::open().unwrap().count_in_state(SYN_RECEIVED, Some(at.port())).unwrap()
    }))
}

/// Waits until the link carries packets: a new device drops them for a moment, and a raw socket reports
/// nothing. Gives the segments that the server has received.
fn carries(client: &Host, server: &Host, family: usize) -> u64 {
    let other =
        server.run(move || std::net::TcpListener::bind(SocketAddr::new(ip(1, family), 0)).unwrap());
    let stream = connect(client, other.local_addr().unwrap());
    server.run(move || {
        let (accepted, _) = other.accept().unwrap();
        let before = segments_received();
        std::mem::forget((accepted, stream, other));
        before
    })
}

/// TCP segments that have come to this thread's network namespace.
fn segments_received() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let tcp: Vec<&str> = text.lines().filter(|line| line.starts_with("Tcp:")).collect();
    let at = tcp[0].split(' ').position(|name| name == "InSegs").unwrap();
    tcp[1].split(' ').nth(at).unwrap().parse().unwrap()
}

#[test]
fn a_listener_holds_a_request_for_each_syn_of_nobody() {
    for family in 0..2 {
        let Some(held) = held(family, 64, &[], 40) else { return };
        assert_eq!(held, 40, "family {family}");
    }
}

#[test]
fn a_full_queue_holds_what_the_settings_say() {
    const OFF: (&str, &str) = ("ipv4/tcp_syncookies", "0");
    const ON: (&str, &str) = ("ipv4/tcp_syncookies", "1");
    const ALWAYS: (&str, &str) = ("ipv4/tcp_syncookies", "2");
    const SHORT: (&str, &str) = ("ipv4/tcp_max_syn_backlog", "16");
    const LONG: (&str, &str) = ("ipv4/tcp_max_syn_backlog", "1024");
    for (set, syncookies, max_syn_backlog) in [
        (&[OFF, SHORT], 0, 16),
        (&[OFF, LONG], 0, 1_024),
        (&[ON, SHORT], 1, 16),
        (&[ALWAYS, SHORT], 2, 16),
    ] {
        for backlog in [1_u32, 4, 64] {
            let settings = HalfOpenSettings { backlog, max_syn_backlog, syncookies };
            let Some(held) = held(0, backlog as i32, set, 100) else { return };
            assert_eq!(held, u64::from(settings.holds()), "{settings:?}");
        }
    }
}

#[test]
fn packets_leave_through_the_device_that_the_socket_is_bound_to_and_no_other() {
    let Some((client, server)) = Host::pair(1500) else { return };
    let at = server.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.index("eth0").unwrap();
        netlink.add_neighbour(index, nobody(0), MAC[0]).unwrap();
        let listener = Tcp::listener(SocketAddr::new(ip(1, 0), 0), 64, false).unwrap();
        let at = listener.local().unwrap();
        std::mem::forget(listener);
        at
    });
    let before = carries(&client, &server, 0);
    client.run(move || {
        let error = RawIp::open("eth7", at.ip()).unwrap_err();
        assert!(error.to_string().contains("eth7"), "{error}");
        assert_eq!(devices_up().unwrap(), ["eth0", "lo"]);
        let elsewhere = RawIp::open("lo", at.ip()).unwrap();
        let from = SocketAddr::new(nobody(0), 9);
        // The kernel may refuse it, for lack of a route through `lo`.
        let _ = elsewhere.send(&syn(from, at, 7).unwrap());
    });
    // One that goes the right way comes after it, and comes alone.
    client.run(move || {
        let raw = RawIp::open("eth0", at.ip()).unwrap();
        raw.send(&syn(SocketAddr::new(nobody(0), 10), at, 7).unwrap()).unwrap();
    });
    let seen = server.run(move || {
        let begun = Instant::now();
        while segments_received() == before && begun.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(1));
        }
        SockDiag::open().unwrap().count_in_state(SYN_RECEIVED, None).unwrap()
    });
    assert_eq!(seen, 1);
}
