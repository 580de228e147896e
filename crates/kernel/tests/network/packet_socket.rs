//! The `AF_PACKET` relay between two veth pairs, and the tap.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tcptoll_kernel::netlink::Netlink;
use tcptoll_kernel::packet_socket::{PacketSocket, Tap, TappedPacket};
use tcptoll_kernel::tun::{Tun, offloads_off};

use crate::hosts::{Host, MAC, ip, transfer};

/// Copies frames between the two sockets; returns how many were refused by the device's queue.
fn relay(ends: &[PacketSocket; 2], stop: &AtomicBool, longest: &AtomicUsize) -> u64 {
    let mut buffer = vec![0; PacketSocket::VNET_HEADER + 14 + 65_536];
    let mut refused = 0;
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
                let ip_len = len - PacketSocket::VNET_HEADER - 14;
                longest.fetch_max(ip_len, Ordering::Relaxed);
                refused += u64::from(ends[to].write(&buffer[..len]).is_err());
            }
        }
    }
    refused
}

/// Client and server each have a veth to a third namespace, where a relay joins them.
fn through_a_relay(super_packets: bool, family: usize) -> Option<usize> {
    let hosts = [Host::new()?, Host::new()?];
    let middle = Host::new()?;
    let ends = [0, 1].map(|side: usize| {
        let far = middle.netns.try_clone().unwrap();
        let name = ["left", "right"][side];
        hosts[side].run(move || {
            let mut netlink = Netlink::open().unwrap();
            let macs = (MAC[side], [2, 0, 0, 0, 1, side as u8]);
            netlink.add_veth("eth0", name, far.as_fd(), 1500, macs).unwrap();
            if !super_packets {
                offloads_off("eth0").unwrap();
            }
        });
        let end = middle.run(move || {
            let mut netlink = Netlink::open().unwrap();
            let index = netlink.index(name).unwrap();
            netlink.set_up(index).unwrap();
            if !super_packets {
                offloads_off(name).unwrap();
            }
            PacketSocket::open(index).unwrap()
        });
        hosts[side].configure("eth0", side);
        end
    });
    let stop = Arc::new(AtomicBool::new(false));
    let longest = Arc::new(AtomicUsize::new(0));
    let relaying = {
        let (stop, longest) = (stop.clone(), longest.clone());
        thread::spawn(move || {
            let refused = relay(&ends, &stop, &longest);
            (refused, ends.map(|end| end.drops().unwrap()))
        })
    };
    let rate = transfer(&hosts[0], &hosts[1], family, 16 << 20);
    stop.store(true, Ordering::Relaxed);
    let lost = relaying.join().unwrap();
    let longest = longest.load(Ordering::Relaxed);
    eprintln!(
        "relay, super-packets {super_packets}, family {family}: {longest} bytes, {:.2} Gbit/s, lost {lost:?}",
        rate * 8e-9
    );
    Some(longest)
}

#[test]
fn a_relay_carries_tcp_with_and_without_super_packets() {
    for family in 0..2 {
        let Some(longest) = through_a_relay(true, family) else { return };
        assert!(longest > 1500, "{longest}");
        let Some(longest) = through_a_relay(false, family) else { return };
        assert_eq!(longest, 1500);
    }
}

/// TCP payload bytes and packets by direction, from the headers a tap kept.
#[derive(Debug, Default)]
struct Sums {
    packets: BTreeMap<bool, u64>,
    payload: BTreeMap<bool, u64>,
    longest: u32,
    gso_size: u32,
}

impl Sums {
    fn add(&mut self, seen: TappedPacket<'_>) {
        let ip_header = match seen.bytes[0] >> 4 {
            4 => 20,
            6 => 40,
            other => panic!("version {other}"),
        };
        let protocol = if ip_header == 20 { seen.bytes[9] } else { seen.bytes[6] };
        if protocol != 6 {
            return; // neighbour discovery and the like
        }
        let tcp_header = u32::from(seen.bytes[ip_header + 12] >> 4) * 4;
        *self.packets.entry(seen.outgoing).or_default() += 1;
        *self.payload.entry(seen.outgoing).or_default() +=
            u64::from(seen.ip_len - ip_header as u32 - tcp_header);
        self.longest = self.longest.max(seen.ip_len);
        self.gso_size = self.gso_size.max(seen.gso_size);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        assert!((now - 20_000_000_000..=now).contains(&seen.at_realtime_ns));
        assert_eq!(seen.bytes.len(), seen.ip_len.min(96) as usize);
    }
}

#[test]
fn a_tap_sees_every_byte_in_its_direction_and_says_what_is_a_super_packet() {
    const BYTES: usize = 8 << 20;
    for family in 0..2 {
        for super_packets in [true, false] {
            let Some((client, server)) = Host::pair(1500) else { return };
            if !super_packets {
                client.run(|| offloads_off("eth0").unwrap());
            }
            let mut tap = client.run(|| {
                let index = Netlink::open().unwrap().index("eth0").unwrap();
                Tap::open(index, 96, 32 << 20).unwrap()
            });
            transfer(&client, &server, family, BYTES);
            let mut sums = Sums::default();
            let count = tap.flush_wait(Duration::from_secs(2), |seen| sums.add(seen)).unwrap();
            eprintln!("tap, family {family}, super-packets {super_packets}: {count}, {sums:?}");
            assert_eq!(tap.drops().unwrap(), 0);
            assert!(count >= sums.packets[&true] + sums.packets[&false]);
            assert!(sums.payload[&true] >= BYTES as u64, "retransmissions may add");
            assert_eq!(sums.payload[&false], 0);
            if super_packets {
                assert!(sums.longest > 1500);
                assert_eq!(sums.gso_size, [1448, 1428][family]);
            } else {
                assert_eq!((sums.longest, sums.gso_size), (1500, 0));
            }
            assert_eq!(tap.for_each(|_| panic!("nothing is given twice")).unwrap(), 0);
        }
    }
}

#[test]
fn on_loopback_every_packet_is_seen_going_and_coming() {
    let Some(host) = Host::new() else { return };
    host.run(|| {
        let index = Netlink::open().unwrap().index("lo").unwrap();
        let mut tap = Tap::open(index, 96, 1 << 20).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let pair = (
            std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap(),
            listener.accept().unwrap(),
        );
        let mut sums = Sums::default();
        tap.flush_wait(Duration::from_secs(2), |seen| sums.add(seen)).unwrap();
        assert_eq!(sums.packets, BTreeMap::from([(false, 3), (true, 3)]), "SYN, SYN-ACK, ACK");
        drop(pair);
    });
}

#[test]
fn on_a_device_without_ethernet_the_ip_header_comes_first_too() {
    let Some(host) = Host::new() else { return };
    let _tun = host.run(|| Tun::open("tun0", true).unwrap());
    host.configure("tun0", 0);
    host.run(|| {
        let index = Netlink::open().unwrap().index("tun0").unwrap();
        let mut tap = Tap::open(index, 24, 1 << 20).unwrap();
        let socket = std::net::UdpSocket::bind((ip(0, 0), 0)).unwrap();
        socket.send_to(b"hello", (ip(1, 0), 9)).unwrap();
        let mut found = 0;
        tap.flush_wait(Duration::from_secs(2), |seen| {
            if seen.bytes[0] == 0x45 && seen.bytes[9] == 17 {
                assert_eq!((seen.outgoing, seen.ip_len, seen.bytes.len()), (true, 33, 24));
                found += 1;
            }
        })
        .unwrap();
        assert_eq!(found, 1);
    });
}

#[test]
fn a_ring_that_is_too_small_counts_what_it_lost() {
    let Some((client, server)) = Host::pair(1500) else { return };
    client.run(|| offloads_off("eth0").unwrap());
    let mut tap = client.run(|| {
        let index = Netlink::open().unwrap().index("eth0").unwrap();
        Tap::open(index, 96, 1).unwrap()
    });
    transfer(&client, &server, 0, 32 << 20);
    let mut seen = 0;
    let count = tap.flush_wait(Duration::from_secs(2), |_| seen += 1).unwrap();
    let drops = tap.drops().unwrap();
    assert_eq!(count, seen);
    assert!(drops > 10_000, "{drops} lost, {seen} seen");
    assert_eq!(tap.drops().unwrap(), drops, "reading does not reset it");
    // 32 MiB are 23,173 full segments; each is either seen or counted as lost.
    assert!(seen + drops >= 23_173, "{seen} + {drops}");
}
