//! What an examination reads of a machine that is made for it: peers, queues, ports, settings.

use std::cell::Cell;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tcptoll_kernel::namespace::{enter_network, new_network};
use tcptoll_kernel::netlink::Netlink;
use tcptoll_kernel::socket::{ClientOptions, Probing, Tcp};
use tcptoll_live::doctor::look::examine;
use tcptoll_live::doctor::{Machine, Neighbour, diagnose, rules};
use tcptoll_live::watch::reader::Options;

use crate::support::{lacks, not_root, run};

const OPTIONS: Options = Options { network: None, owners: false };

/// Runs `job` on a thread in a network namespace of its own, with `lo` up.
fn in_own_network(job: impl FnOnce(OwnedFd) + Send + 'static) {
    let thread = thread::spawn(|| {
        let own = new_network().unwrap();
        lo_up();
        job(own);
    });
    thread.join().unwrap();
}

fn lo_up() {
    let mut netlink = Netlink::open().unwrap();
    let lo = netlink.index("lo").unwrap();
    netlink.set_up(lo).unwrap();
}

fn set(sysctl: &str, value: &str) {
    fs::write(format!("/proc/sys/{}", sysctl.replace('.', "/")), value).unwrap();
}

fn look_for(lasts: Duration) -> Machine {
    examine(&OPTIONS, lasts, &|| false, &mut |_| {}).unwrap()
}

/// Opens a connection from this address, in the namespace of this thread.
fn connect(from: &str, to: SocketAddr) -> Tcp {
    let bind = Some(from.parse().unwrap());
    let client = Tcp::client(to, &ClientOptions { bind, ..ClientOptions::default() }).unwrap();
    let _ = client.connect(&to.into()).unwrap();
    client
}

/// Waits for a connection.
fn accept(listener: &Tcp) -> Tcp {
    loop {
        if let Some((socket, _)) = listener.accept().unwrap() {
            return socket;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn neighbour<'m>(machine: &'m Machine, remote: &str) -> &'m Neighbour {
    machine.neighbours.iter().find(|one| one.remote == remote).unwrap()
}

#[test]
fn peers_are_grouped_with_their_keep_alive_timers_and_the_way_to_them() {
    if not_root() || lacks(&["ip"]) {
        return;
    }
    in_own_network(|far| {
        // Here 10.1.0.1; there 10.1.0.2, and behind it as a router 10.9.0.2.
        let near = new_network().unwrap();
        lo_up();
        let mut netlink = Netlink::open().unwrap();
        let macs = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        netlink.add_veth("near", "far", far.as_fd(), 1_500, macs).unwrap();
        let device = netlink.index("near").unwrap();
        netlink.add_address(device, "10.1.0.1".parse().unwrap(), 24).unwrap();
        netlink.set_up(device).unwrap();
        enter_network(&far).unwrap();
        let mut netlink = Netlink::open().unwrap();
        let device = netlink.index("far").unwrap();
        netlink.add_address(device, "10.1.0.2".parse().unwrap(), 24).unwrap();
        netlink.set_up(device).unwrap();
        let lo = netlink.index("lo").unwrap();
        netlink.add_address(lo, "10.9.0.2".parse().unwrap(), 32).unwrap();
        enter_network(&near).unwrap();
        let route = ["route", "add", "10.9.0.0/24", "via", "10.1.0.2"];
        assert_eq!(run(Command::new("ip").args(route)).status, Some(0));
        let at: SocketAddr = "10.1.0.1:6379".parse().unwrap();
        let listener = Tcp::listener(at, 16, false).unwrap();

        enter_network(&far).unwrap();
        let routed: Vec<Tcp> = (0..4).map(|_| connect("10.9.0.2", at)).collect();
        enter_network(&near).unwrap();
        let served: Vec<Tcp> = (0..4).map(|_| accept(&listener)).collect();
        for (socket, idle_s) in served.iter().zip([60, 300, 7_200]) {
            let idle = Some(Duration::from_secs(idle_s));
            socket.probe(&Probing { idle, ..Probing::default() }).unwrap();
        }
        enter_network(&far).unwrap();
        let direct = connect("10.1.0.2", at);
        enter_network(&near).unwrap();
        let served_direct = accept(&listener);

        let machine = look_for(Duration::from_millis(400));
        let over_router = neighbour(&machine, "10.9.0.2");
        assert_eq!((over_router.local_port, over_router.routed), (Some(6_379), Some(true)));
        assert_eq!((over_router.connections, over_router.with_keepalive), (4, 3));
        // One without a timer, one with two hours.
        assert_eq!((over_router.unprotected, over_router.unprotected_idle), (2, 0));
        let due_s = over_router.probe_after_max_s.unwrap();
        assert!((7_199.0..=7_201.0).contains(&due_s), "{due_s}");
        assert!(over_router.unprotected_idle_max_s >= Some(0.3), "{over_router:?}");
        let on_link = neighbour(&machine, "10.1.0.2");
        assert_eq!((on_link.connections, on_link.unprotected), (1, 1));
        assert_eq!((on_link.routed, on_link.probe_after_max_s), (Some(false), None));
        for own in ["127.0.0.1", "10.1.0.1"] {
            assert!(machine.addresses.contains(&own.parse().unwrap()), "{:?}", machine.addresses);
        }
        // Short pauses of connections without a probe are no finding.
        assert_eq!(diagnose(&machine), []);
        drop((routed, direct, served, served_direct));
    });
}

#[test]
fn settings_are_read_and_a_change_meanwhile_is_noted() {
    if not_root() {
        return;
    }
    in_own_network(|_| {
        set("net.core.somaxconn", "77");
        set("net.ipv4.tcp_keepalive_time", "99");
        let looks = Cell::new(0);
        let mut progress = |at: tcptoll_live::doctor::look::Progress| {
            assert!(at.looks >= looks.get());
            looks.set(at.looks);
            if at.looks == 2 {
                set("net.core.somaxconn", "78");
            }
        };
        let lasts = Duration::from_millis(800);
        let machine = examine(&OPTIONS, lasts, &|| false, &mut progress).unwrap();
        assert!(looks.get() >= 3, "{}", looks.get());
        assert!(machine.state.interval_s >= 0.8 && machine.state.rates.is_some());
        assert_eq!(machine.sysctls["net.core.somaxconn"], "78");
        assert_eq!(machine.number("net.ipv4.tcp_keepalive_time"), Some(99));
        let notes: Vec<_> = machine.notes.iter().filter(|note| note.contains("changed")).collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("net.core.somaxconn changed from 77 to 78"), "{notes:?}");
    });
}

#[test]
fn an_examination_that_is_stopped_gives_what_was_seen() {
    if not_root() {
        return;
    }
    in_own_network(|_| {
        let _listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stopped = Cell::new(false);
        let mut progress = |_| stopped.set(true);
        let lasts = Duration::from_hours(1);
        let machine = examine(&OPTIONS, lasts, &|| stopped.get(), &mut progress).unwrap();
        assert_eq!(machine.state.listeners.len(), 1);
    });
}

#[test]
fn a_queue_that_stands_and_ports_that_run_out_are_seen_over_the_whole_examination() {
    if not_root() {
        return;
    }
    in_own_network(|own| {
        set("net.ipv4.ip_local_port_range", "40000 41999");
        let mut netlink = Netlink::open().unwrap();
        let lo = netlink.index("lo").unwrap();
        netlink.add_address(lo, "10.1.0.1".parse().unwrap(), 32).unwrap();
        // A queue of five at a limit of five: near full, and never empty.
        let full = Tcp::listener("127.0.0.1:0".parse().unwrap(), 5, false).unwrap();
        let at = full.local().unwrap();
        let waiting: Vec<TcpStream> = (0..5).map(|_| TcpStream::connect(at).unwrap()).collect();
        // Every 5 ms a connection that this side closes first: 200/s, 60 s each, 2,000 ports.
        let served = TcpListener::bind("10.1.0.1:0").unwrap();
        let to = served.local_addr().unwrap();
        let ends = AtomicBool::new(false);
        let machine = thread::scope(|scope| {
            scope.spawn(|| {
                enter_network(&own).unwrap();
                while !ends.load(Ordering::SeqCst) {
                    let client = TcpStream::connect(to).unwrap();
                    let server = served.accept().unwrap().0;
                    client.shutdown(std::net::Shutdown::Both).unwrap();
                    drop(client);
                    drop(server);
                    thread::sleep(Duration::from_millis(5));
                }
            });
            let machine = look_for(Duration::from_secs(2));
            ends.store(true, Ordering::SeqCst);
            machine
        });
        let [queue] = &machine.standing[..] else { panic!("{:?}", machine.standing) };
        assert_eq!((queue.on.as_str(), queue.shortest, queue.longest), (&*at.to_string(), 5, 5));
        assert!(queue.looks >= 3, "{queue:?}");
        let [opening] = &machine.openings[..] else { panic!("{:?}", machine.openings) };
        assert_eq!(opening.to, to.to_string());
        let found = diagnose(&machine);
        let count = |id: &str| found.iter().filter(|one| one.id == id).count();
        assert_eq!(count("accept-queue-near"), 1, "{found:?}");
        assert_eq!(
            (count(rules::PORT_RANGE_TOO_SMALL), count(rules::TW_REUSE_LOOPBACK_ONLY)),
            (1, 1)
        );
        assert_eq!(found.len(), 3, "{found:?}");
        drop(waiting);
    });
}
