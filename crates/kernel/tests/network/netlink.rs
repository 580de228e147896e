//! Links, addresses, routes and rates by netlink.

use std::{net::UdpSocket, os::fd::AsFd};

use tcptoll_kernel::netlink::Netlink;

use crate::hosts::{Host, MAC, ip, transfer};

#[test]
fn a_veth_pair_has_the_macs_asked_for_and_carries_tcp_in_both_families() {
    let Some((client, server)) = Host::pair(1500) else { return };
    for (side, host) in [&client, &server].into_iter().enumerate() {
        let mac = host.run(|| {
            let mut netlink = Netlink::open().unwrap();
            let index = netlink.index("eth0").unwrap();
            netlink.mac(index).unwrap()
        });
        assert_eq!(mac, MAC[side]);
    }
    for family in 0..2 {
        transfer(&client, &server, family, 1 << 20);
    }
}

#[test]
fn what_is_missing_or_there_already_is_an_error_that_names_it() {
    let Some((client, server)) = Host::pair(1500) else { return };
    let far = server.netns.try_clone().unwrap();
    client.run(move || {
        let mut netlink = Netlink::open().unwrap();
        let missing = netlink.index("nothing0").unwrap_err();
        assert_eq!(missing.source.raw_os_error(), Some(libc::ENODEV), "{missing}");
        assert!(missing.on.contains("nothing0"), "{missing}");

        let taken = netlink.add_veth("eth0", "eth7", far.as_fd(), 1500, (MAC[0], MAC[1]));
        assert_eq!(taken.unwrap_err().source.raw_os_error(), Some(libc::EEXIST));

        let index = netlink.index("eth0").unwrap();
        let huge = netlink.set_mtu(index, 1_000_000).unwrap_err();
        assert!(huge.on.contains("mtu"), "the kernel's own sentence is kept: {huge}");
        // After errors the socket still answers in step.
        assert_eq!(netlink.index("eth0").unwrap(), index);
    });
}

#[test]
fn mtu_and_routes_are_set() {
    let Some((client, _server)) = Host::pair(1500) else { return };
    client.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.index("eth0").unwrap();
        netlink.set_mtu(index, 4000).unwrap();
        netlink.add_route(index, "192.0.2.77".parse().unwrap(), 24).unwrap();
        netlink.add_route(index, "2001:db8::77".parse().unwrap(), 32).unwrap();
        let again = netlink.add_route(index, "192.0.2.1".parse().unwrap(), 24).unwrap_err();
        assert_eq!(again.source.raw_os_error(), Some(libc::EEXIST));

        for (to, from) in [("192.0.2.9:9", ip(0, 0)), ("[2001:db8::9]:9", ip(0, 1))] {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            socket.connect(to).unwrap(); // ENETUNREACH without the route
        }
        let routes = std::fs::read_to_string("/proc/thread-self/net/route").unwrap();
        assert!(routes.contains("\t000200C0\t"), "host bits are cleared: {routes}");
        // The bucket must hold a packet of the MTU that was set, with its Ethernet header.
        let error = netlink.add_tbf(index, 1e6, 4013, 100_000, 24).unwrap_err();
        assert_eq!(error.source.kind(), std::io::ErrorKind::InvalidInput);
        netlink.add_tbf(index, 1e6, 4014, 100_000, 24).unwrap();
    });
}

/// 1500-byte packets with timestamps carry 1448 bytes (IPv6: 1428) and take 1538 on Ethernet.
///
/// The bucket starts full, which lets 5 kB of megabytes through at once. The upper bound is the
/// kernel's word; the lower one also needs a CPU that is free now and then, and is not asked for at
/// 1 Gbit/s.
#[test]
fn tbf_with_24_bytes_of_overhead_gives_ethernet_line_rate() {
    let cases = [
        (20.0, 5_000, 2, 0.95..1.01),
        (100.0, 5_000, 10, 0.9..1.01),
        (1000.0, 62_500, 40, 0.0..1.01),
    ];
    for (megabit, burst, megabytes, allowed) in cases {
        for (family, payload) in [1448.0, 1428.0].into_iter().enumerate() {
            let Some((client, server)) = Host::pair(1500) else { return };
            client.run(move || {
                let mut netlink = Netlink::open().unwrap();
                let index = netlink.index("eth0").unwrap();
                netlink.add_tbf(index, 1e6, 9_000, 100_000, 0).unwrap();
                let rate = megabit * 1e6;
                netlink.add_tbf(index, rate, burst, 3_000_000, 24).expect("replaces the other");
            });
            let rate = transfer(&client, &server, family, megabytes << 20);
            let ratio = rate * 8.0 / (megabit * 1e6 * payload / 1538.0);
            eprintln!("tbf {megabit} Mbit/s, family {family}: {ratio:.4} of line rate");
            assert!(allowed.contains(&ratio), "{megabit} Mbit/s: {ratio} of line rate");
        }
    }
}

#[test]
fn rates_beyond_32_bits_are_taken() {
    let Some((client, server)) = Host::pair(1500) else { return };
    client.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.index("eth0").unwrap();
        netlink.add_tbf(index, 100e9, 1 << 20, 10_000_000, 24).unwrap(); // 12.5e9 bytes/s > 2^32
    });
    let rate = transfer(&client, &server, 0, 64 << 20);
    assert!(rate > 12_500_000.0, "{rate} bytes/s: the rate was cut to its low 32 bits");
}
