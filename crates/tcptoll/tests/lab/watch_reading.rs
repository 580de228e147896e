//! What a watch reads, next to what `ss`, `nstat` and `/proc` show at the same moment.
//!
//! Each figure must lie between two readings of the other program, one before and one after.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use tcptoll_kernel::namespace::new_network;
use tcptoll_kernel::netlink::Netlink;
use tcptoll_kernel::socket::{ClientOptions, Tcp};
use tcptoll_live::watch::Look;
use tcptoll_live::watch::reader::{NamespaceReader, Network, Options};

use crate::support::{lacks, not_root};
use crate::watch_witness::{Figures, by_others, of_listener};

/// Runs `job` on a thread in a network namespace of its own, with `lo` up.
pub(crate) fn in_own_network(job: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(|| {
        let _stays = new_network().unwrap();
        let mut netlink = Netlink::open().unwrap();
        let lo = netlink.index("lo").unwrap();
        netlink.set_up(lo).unwrap();
        job();
    });
    thread.join().unwrap();
}

/// The figures of [`by_others`] as a look has them, counters and drops included.
fn by_the_look(look: &Look) -> Figures {
    let mut all = Figures::new();
    for one in &look.listeners {
        let key = |figure| of_listener(one.address, one.inode, figure);
        all.insert(key("queue"), one.accept_queue_len.into());
        all.insert(key("limit"), one.accept_queue_limit.into());
        all.insert(key("drops"), one.drops.unwrap().into());
    }
    let table = look.table.as_ref().unwrap();
    assert_eq!(table.destinations_left_out, 0);
    for (name, count) in &table.states {
        all.insert(format!("state {name}"), *count as i64);
    }
    for to in &table.destinations {
        all.insert(format!("ports to {}", to.to), to.ports_in_use.into());
        all.insert(format!("TIME-WAIT to {}", to.to), to.time_wait.into());
    }
    for (name, value) in &look.counters {
        all.insert(format!("nstat {name}"), *value);
    }
    let counted = &look.counted;
    for (name, count) in [("tw", counted.time_wait), ("inuse", counted.sockets)] {
        all.insert(format!("sockstat {name}"), count.unwrap() as i64);
    }
    all
}

#[test]
fn every_figure_of_a_look_is_that_of_ss_nstat_and_proc_at_the_same_moment() {
    if not_root() || lacks(&["ss", "nstat"]) {
        return;
    }
    in_own_network(|| {
        let mut reader = NamespaceReader::open(&Options::default()).unwrap();
        let listen = |at: &str, backlog: i32| {
            let listener = Tcp::listener(at.parse().unwrap(), backlog, false).unwrap();
            let at = listener.local().unwrap();
            (listener, at)
        };
        let on = ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0", "127.0.0.2:0"];
        let listeners: Vec<_> =
            (0..10).map(|number| listen(on[number % 5], number as i32 + 5)).collect();
        // As many wait in the queue of each as its number.
        let reached = |at: SocketAddr| match at {
            SocketAddr::V4(at) if at.ip().is_unspecified() => ([127, 0, 0, 1], at.port()).into(),
            SocketAddr::V6(at) if at.ip().is_unspecified() => ([127, 0, 0, 1], at.port()).into(),
            other => other,
        };
        let waiting: Vec<TcpStream> = (0..10)
            .flat_map(|number| (0..number).map(move |_| number))
            .map(|number| TcpStream::connect(reached(listeners[number].1)).unwrap())
            .collect();
        // Ends in TIME-WAIT on the side that closes first, once by each side, and one half closed.
        let served = TcpListener::bind("127.0.0.1:0").unwrap();
        for by_client in [true, true, false] {
            let mut client = TcpStream::connect(served.local_addr().unwrap()).unwrap();
            let mut server = served.accept().unwrap().0;
            let (first, second) =
                if by_client { (&mut client, &mut server) } else { (&mut server, &mut client) };
            first.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(second.read(&mut [0]).unwrap(), 0);
            second.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(first.read(&mut [0]).unwrap(), 0);
        }
        let half = TcpStream::connect(served.local_addr().unwrap()).unwrap();
        let kept = served.accept().unwrap().0;
        half.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!((&kept).read(&mut [0]).unwrap(), 0);
        // One listener overflows: limit 1 holds two, and each later SYN is dropped, again and again.
        let (full, at) = listen("127.0.0.3:0", 1);
        let refused: Vec<Tcp> = (0..5)
            .map(|_| {
                let socket = Tcp::client(at, &ClientOptions::default()).unwrap();
                let _ = socket.connect(&at.into()).unwrap();
                socket
            })
            .collect();

        let before = by_others(&[]).unwrap();
        let look = reader.look_at_all().unwrap();
        let after = by_others(&[]).unwrap();
        let mut ours = by_the_look(&look);
        // Counters that one of both does not read, such as those of Ip6, are not compared.
        ours.retain(|name, _| !name.starts_with("nstat") || before.contains_key(name));
        assert_eq!(look.listeners.len(), 12);
        assert!(ours.keys().filter(|name| name.starts_with("nstat")).count() > 100);
        for (name, figure) in &ours {
            let ends = (before.get(name).copied(), after.get(name).copied());
            let (Some(first), Some(last)) = ends else { panic!("{name}: {figure}, {ends:?}") };
            assert!(
                (first.min(last)..=first.max(last)).contains(figure),
                "{name}: {figure}, {ends:?}"
            );
        }
        // Nothing is half open.
        let shared = |name: &&String| before.contains_key(*name) && !name.starts_with("nstat");
        let missing: Vec<_> =
            after.keys().filter(shared).filter(|name| !ours.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        // What the test made is what was seen.
        let table = look.table.as_ref().unwrap();
        assert_eq!(table.at_s.to_bits(), look.at_s.to_bits());
        assert_eq!((table.states["TIME-WAIT"], table.states["SYN-SENT"]), (3, 3));
        assert_eq!((table.states["FIN-WAIT-2"], table.states["CLOSE-WAIT"]), (1, 1));
        let overflows = look.listeners.iter().find(|listener| listener.address == at).unwrap();
        assert!(overflows.drops >= Some(3) && overflows.accept_queue_len == 2, "{overflows:?}");
        let mut others = look.listeners.iter().filter(|listener| listener.address != at);
        assert!(others.all(|listener| listener.drops == Some(0)));
        // All are this process's; no request is half open.
        for listener in &look.listeners {
            assert_eq!(listener.process.as_ref().unwrap().pid, std::process::id());
            assert_eq!(listener.syn_queue_len, Some(0));
        }
        // A look that reads no table has the one before, and its half-open requests.
        let next = reader.look().unwrap();
        assert!(next.at_s > look.at_s && next.table.as_ref().unwrap().at_s >= table.at_s);
        assert!(next.listeners.iter().all(|one| one.syn_queue_len == Some(0)));
        assert!(next.cost.cpu_s > look.cost.cpu_s && next.cost.resident_bytes > 1 << 20);
        drop((waiting, half, kept, full, refused, served));
    });
}

/// Gives itself a hostile name, listens, and waits until its standard input ends.
const HOSTILE: &str = "import ctypes,socket,sys
ctypes.CDLL(None).prctl(15, b'\\x1b[2J\\n\"\\xff<b>\\x07 and more', 0, 0, 0)
s=socket.socket()
s.bind(('0.0.0.0',7777))
s.listen(7)
print('ready',flush=True)
sys.stdin.read()";

#[test]
fn a_watch_joins_the_namespace_of_another_process_and_cleans_its_hostile_name() {
    if not_root() || lacks(&["unshare", "python3"]) {
        return;
    }
    let mut holder = Command::new("unshare")
        .args(["-n", "--", "python3", "-c", HOSTILE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = holder.id();
    let look = thread::spawn(move || {
        let options = Options { network: Some(Network::OfProcess(pid)), ..Options::default() };
        NamespaceReader::open(&options).unwrap().look().unwrap()
    });
    let look = look.join().unwrap();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    let [only] = &look.listeners[..] else { panic!("{:?}", look.listeners) };
    assert_eq!(only.address, "0.0.0.0:7777".parse().unwrap());
    assert_eq!((only.accept_queue_limit, only.syn_queue_len), (7, Some(0)));
    let process = only.process.as_ref().unwrap();
    // PR_SET_NAME keeps 15 bytes; the byte that is no UTF-8 is replaced, and what steers a terminal is gone.
    assert_eq!((process.pid, process.name.as_str()), (pid, "·[2J \"\u{fffd}<b>· and"));
    let gone = Options { network: Some(Network::OfProcess(pid)), ..Options::default() };
    let refused = NamespaceReader::open(&gone).unwrap_err().to_string();
    assert_eq!(
        refused,
        format!(
            "open on network namespace of process {pid}: No such file or directory (os error 2) \
             (there is no such process or file)"
        )
    );
}
