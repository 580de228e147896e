//! What `sock_diag` says about sockets whose state is known.

use std::{
    io::Read,
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Socket, Type};
use tcptoll_kernel::{
    netlink::Netlink,
    sock_diag::{Closed, End, SockDiag},
};

use crate::hosts::{Host, connect, ip};

const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const SYN_RECEIVED: u8 = 3;

#[test]
fn listeners_show_their_queue_and_its_limit() {
    let Some(host) = Host::new() else { return };
    host.run(|| {
        let v4 = TcpListener::bind("127.0.0.1:0").unwrap();
        let v6 = TcpListener::bind("[::1]:0").unwrap();
        socket2::SockRef::from(&v4).listen(7).unwrap();
        let waiting: Vec<_> =
            (0..3).map(|_| TcpStream::connect(v4.local_addr().unwrap()).unwrap()).collect();
        let mut diag = SockDiag::open().unwrap();
        for _ in 0..2 {
            let listeners = diag.listeners().unwrap();
            let listener_at = |address: SocketAddr| {
                *listeners.iter().find(|listener| listener.address == address).unwrap()
            };
            assert_eq!(listeners.len(), 2);
            assert_eq!(
                listener_at(v4.local_addr().unwrap()).accept_queue_len,
                waiting.len() as u32
            );
            assert_eq!(listener_at(v4.local_addr().unwrap()).accept_queue_limit, 7);
            assert_eq!(listener_at(v6.local_addr().unwrap()).accept_queue_len, 0);
        }
    });
}

/// Connections that wait at the listener of this port, as `/proc/net/tcp` has it.
fn waiting_by_proc(port: u16) -> u32 {
    let table = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let listener = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|words| words[1].ends_with(&format!(":{port:04X}")) && words[3] == "0A")
        .unwrap();
    u32::from_str_radix(listener[4].split_once(':').unwrap().1, 16).unwrap()
}

#[test]
fn a_queue_of_limit_n_holds_n_and_one_by_every_account_of_the_kernel() {
    let Some(host) = Host::new() else { return };
    host.run(|| {
        for limit in [1_u32, 4, 128] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            socket2::SockRef::from(&listener).listen(limit as i32).unwrap();
            let at = listener.local_addr().unwrap();
            let sockets: Vec<_> = (0..limit + 8)
                .map(|_| {
                    let kind = socket2::Type::STREAM.nonblocking();
                    let socket = socket2::Socket::new(socket2::Domain::IPV4, kind, None).unwrap();
                    let _ = socket.connect(&at.into());
                    socket
                })
                .collect();
            let seen = SockDiag::open().unwrap().listeners().unwrap();
            let seen = seen.iter().find(|listener| listener.address == at).unwrap();
            assert_eq!((seen.accept_queue_limit, seen.accept_queue_len), (limit, limit + 1));
            assert_eq!(waiting_by_proc(at.port()), limit + 1);
            assert_eq!(seen.drops, Some(7));
            drop(sockets);
        }
    });
}

#[test]
fn each_listener_counts_its_own_drops() {
    let Some(host) = Host::new() else { return };
    host.run(|| {
        let full = TcpListener::bind("127.0.0.1:0").unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        socket2::SockRef::from(&full).listen(1).unwrap();
        let _held: Vec<_> =
            (0..2).map(|_| TcpStream::connect(full.local_addr().unwrap()).unwrap()).collect();
        let _other = TcpStream::connect(free.local_addr().unwrap()).unwrap();
        // Each sends one SYN, and the next only after a second.
        let _refused: Vec<_> = (0..3)
            .map(|_| {
                let socket = socket2::Socket::new(
                    socket2::Domain::IPV4,
                    socket2::Type::STREAM.nonblocking(),
                    None,
                )
                .unwrap();
                let _ = socket.connect(&full.local_addr().unwrap().into());
                socket
            })
            .collect();
        let listeners = SockDiag::open().unwrap().listeners().unwrap();
        let drops = |socket: &TcpListener| {
            let at = socket.local_addr().unwrap();
            listeners.iter().find(|listener| listener.address == at).unwrap().drops
        };
        assert_eq!((drops(&full), drops(&free)), (Some(3), Some(0)));
    });
}

#[test]
fn a_thousand_connections_are_counted_over_many_replies() {
    let Some(host) = Host::new() else { return };
    host.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let pairs: Vec<_> = (0..1000)
            .map(|_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap()))
            .collect();
        let mut diag = SockDiag::open().unwrap();
        assert_eq!(diag.count_in_state(ESTABLISHED, None).unwrap(), 2000);
        assert_eq!(diag.count_in_state(ESTABLISHED, Some(address.port())).unwrap(), 1000);
        assert_eq!(diag.count_in_state(SYN_SENT, None).unwrap(), 0);
        assert_eq!(diag.count_in_state(77, None).unwrap(), 0);

        let infos = diag.tcp_info(5).unwrap();
        assert_eq!(infos.len(), 5);
        assert_eq!(diag.tcp_info(usize::MAX).unwrap().len(), 2000, "the rest was read off");
        for (local, remote, info) in infos {
            assert!(local == address || remote == address);
            assert_eq!(info[0], ESTABLISHED);
            assert!(info.len() >= 104, "{} bytes", info.len());
        }
        drop(pairs);
    });
}

#[test]
fn closed_connections_are_found_by_either_end_with_the_time_they_have_left() {
    let Some((client, server)) = Host::pair(1500) else { return };
    // IPv4 on an IPv6 socket counts as IPv4.
    let listener = server.run(|| TcpListener::bind("[::]:0").unwrap());
    let address: SocketAddr = (ip(1, 0), listener.local_addr().unwrap().port()).into();
    let end = |first: &TcpStream, second: TcpStream| {
        first.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!((&second).read(&mut [0]).unwrap(), 0, "the FIN has come");
        drop(second);
        assert_eq!((&*first).read(&mut [0]).unwrap(), 0);
    };
    for by_client in [true, true, true, false] {
        let stream = connect(&client, address);
        let accepted = listener.accept().unwrap().0;
        if by_client { end(&stream, accepted) } else { end(&accepted, stream) }
    }
    let half = connect(&client, address);
    let kept = listener.accept().unwrap().0;
    half.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!((&kept).read(&mut [0]).unwrap(), 0);
    // The last acknowledgement may still be on its way: asked until no more is under way than stays.
    let closed = |end, address, stays| loop {
        let (mut under_way, mut waiting) = (0, 0);
        let count = |socket| match socket {
            Closed::UnderWay | Closed::HalfClosed { .. } => under_way += 1,
            Closed::TimeWait { left, other } => {
                assert!((50.0..=60.1).contains(&left.as_secs_f64()), "{left:?}");
                assert!(other.is_ipv4() && other != address, "{other}");
                waiting += 1;
            }
        };
        SockDiag::open().unwrap().closed(end, address, count).unwrap();
        if under_way <= stays {
            return (under_way, waiting);
        }
        thread::yield_now();
    };
    client.run(move || {
        assert_eq!(closed(End::Remote, address, 1), (1, 3));
        assert_eq!(closed(End::Local, address, 0), (0, 0));
        let other = SocketAddr::new("192.0.2.1".parse().unwrap(), address.port());
        assert_eq!(closed(End::Remote, other, 0), (0, 0));
    });
    server.run(move || {
        assert_eq!(closed(End::Local, address, 0), (0, 1));
        assert_eq!(closed(End::Remote, address, 0), (0, 0));
    });
    drop((half, kept));
}

/// The client's neighbour entry for the server is wrong on the way back: SYN-ACKs get lost.
#[test]
fn half_open_requests_count_as_syn_received_on_their_port() {
    let Some((client, server)) = Host::pair(1500) else { return };
    let address = server.run(|| {
        let mut netlink = Netlink::open().unwrap();
        let index = netlink.index("eth0").unwrap();
        netlink.add_neighbour(index, ip(0, 0), [2, 9, 9, 9, 9, 9]).unwrap();
        let listener = TcpListener::bind((ip(1, 0), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        std::mem::forget(listener);
        address
    });
    let attempt = client.run(move || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_nonblocking(true).unwrap();
        let begun = socket.connect(&address.into()).unwrap_err();
        assert_eq!(begun.raw_os_error(), Some(libc::EINPROGRESS));
        socket
    });
    server.run(move || {
        let mut diag = SockDiag::open().unwrap();
        // The SYN is on its way; the request it makes lasts for a minute.
        let deadline = Instant::now() + Duration::from_secs(30);
        while diag.count_in_state(SYN_RECEIVED, Some(address.port())).unwrap() == 0 {
            assert!(Instant::now() < deadline, "no request");
            thread::yield_now();
        }
        assert_eq!(diag.count_in_state(SYN_RECEIVED, Some(address.port())).unwrap(), 1);
        assert_eq!(diag.count_in_state(SYN_RECEIVED, Some(1)).unwrap(), 0);
    });
    drop(attempt);
}

#[test]
fn ipv4_on_an_ipv6_socket_is_given_as_ipv4() {
    let Some((client, server)) = Host::pair(1500) else { return };
    let listener = server.run(|| TcpListener::bind("[::]:0").unwrap());
    let stream = connect(&client, (ip(1, 0), listener.local_addr().unwrap().port()).into());
    let accepted = listener.accept().unwrap();
    server.run(move || {
        let infos = SockDiag::open().unwrap().tcp_info(10).unwrap();
        assert_eq!(infos.len(), 1);
        assert_eq!(infos[0].0.ip(), ip(1, 0));
        drop(accepted);
    });
    drop(stream);
}
