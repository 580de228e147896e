//! A TCP transfer through two TUN devices and a pump that copies packets unchanged.

use std::{
    io,
    net::UdpSocket,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tcptoll_kernel::{
    netlink::Netlink,
    tun::{Tun, VNET_HEADER, VnetHeader},
};

use crate::hosts::{Host, ip, transfer};

/// What the pump saw: the longest IP packet, and the largest segment size of super-packets.
#[derive(Default)]
struct Longest {
    ip_len: AtomicUsize,
    gso_size: AtomicUsize,
}

fn pump(ends: &[Tun; 2], stop: &AtomicBool, longest: &Longest) {
    let mut buffer = vec![0; VNET_HEADER + 65_536];
    while !stop.load(Ordering::Relaxed) {
        let mut wanted = ends.each_ref().map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN));
        poll(&mut wanted, PollTimeout::from(20_u8)).unwrap();
        for (from, to) in [(0, 1), (1, 0)] {
            loop {
                let len = match ends[from].read(&mut buffer) {
                    Ok(len) => len,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => panic!("read: {error}"),
                };
                let header = VnetHeader::parse(&buffer[..len]).unwrap();
                longest.ip_len.fetch_max(len - VNET_HEADER, Ordering::Relaxed);
                longest.gso_size.fetch_max(header.gso_size.into(), Ordering::Relaxed);
                assert_eq!(ends[to].write(&buffer[..len]).unwrap(), len);
            }
        }
    }
}

/// Returns the longest IP packet and segment size seen, and the goodput in bytes/s.
fn through_a_pump(gso: bool, family: usize) -> Option<(usize, usize, f64)> {
    let hosts = [Host::new()?, Host::new()?];
    let ends = [0, 1].map(|side: usize| {
        let tun = hosts[side].run(move || Tun::open("tun%d", gso).unwrap());
        assert_eq!(tun.name, "tun0");
        hosts[side].configure("tun0", side);
        tun
    });
    let stop = Arc::new(AtomicBool::new(false));
    let longest = Arc::new(Longest::default());
    let pumping = {
        let (stop, longest) = (stop.clone(), longest.clone());
        thread::spawn(move || pump(&ends, &stop, &longest))
    };
    let rate = transfer(&hosts[0], &hosts[1], family, 16 << 20);
    stop.store(true, Ordering::Relaxed);
    pumping.join().unwrap();
    let [ip_len, gso_size] =
        [&longest.ip_len, &longest.gso_size].map(|seen| seen.load(Ordering::Relaxed));
    eprintln!("gso {gso}, family {family}: up to {ip_len} bytes, {:.2} Gbit/s", rate * 8e-9);
    Some((ip_len, gso_size, rate))
}

#[test]
fn with_gso_super_packets_cross_whole_in_both_families() {
    for family in 0..2 {
        let Some((ip_len, gso_size, _)) = through_a_pump(true, family) else { return };
        assert!(ip_len > 1500, "{ip_len}");
        assert_eq!(gso_size, [1448, 1428][family]);
    }
}

#[test]
fn without_gso_no_packet_is_longer_than_the_mtu() {
    for family in 0..2 {
        let Some((ip_len, gso_size, _)) = through_a_pump(false, family) else { return };
        assert_eq!((ip_len, gso_size), (1500, 0));
    }
}

#[test]
fn the_transmit_queue_holds_as_many_packets_as_asked_for() {
    let Some(host) = Host::new() else { return };
    let tun = host.run(|| Tun::open("tun0", false).unwrap());
    host.configure("tun0", 0);
    host.run(move || {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.index("tun0").unwrap();
        netlink.set_tx_queue_len(index, 2000).unwrap();
        let socket = UdpSocket::bind((ip(0, 0), 0)).unwrap();
        for _ in 0..1900 {
            socket.send_to(b"x", (ip(1, 0), 9)).unwrap();
        }
        let mut buffer = vec![0; 2000];
        let mut held = 0;
        while let Ok(len) = tun.read(&mut buffer) {
            held += usize::from(len == VNET_HEADER + 20 + 8 + 1);
        }
        assert_eq!(held, 1900, "the default of 500 holds no more than that");
    });
}

#[test]
fn a_name_that_is_taken_or_too_long_is_refused() {
    let Some(host) = Host::new() else { return };
    host.run(|| {
        let _first = Tun::open("same", false).unwrap();
        let taken = Tun::open("same", false).unwrap_err();
        assert_eq!(
            (taken.op, taken.source.raw_os_error()),
            ("TUNSETIFF", Some(libc::EBUSY)),
            "{taken}"
        );
        let long = Tun::open("sixteen-letters-", false).unwrap_err();
        assert_eq!(long.source.kind(), io::ErrorKind::InvalidInput);
    });
}
