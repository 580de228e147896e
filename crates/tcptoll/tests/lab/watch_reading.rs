//! What a watch reads, next to what `ss`, `nstat` and `/proc` show at the same moment.
//!
//! Each figure must lie between two readings of the other program, one before and one after.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;

use tcptoll_engine::watch::{Network, Options, Reader};
use tcptoll_kernel::namespace::new_network;
use tcptoll_kernel::netlink::Netlink;
use tcptoll_kernel::socket::{ClientOptions, Tcp};
use tcptoll_model::watch::Look;

use crate::support::{lacks, not_root, run};

/// Figures by name.
type Figures = BTreeMap<String, i64>;

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

fn output_of(command: &[&str]) -> String {
    let ran = run(Command::new(command[0]).args(&command[1..]));
    assert_eq!(ran.status, Some(0), "{command:?}: {}", ran.stderr);
    ran.stdout
}

/// `*:80` of `ss` is `[::]:80`.
fn address(shown: &str) -> SocketAddr {
    shown.replace("*:", "[::]:").parse().unwrap()
}

/// Queue, limit and drops of each listener as `ss` has them, sockets by state and by destination, all
/// counters of `nstat`, and the TCP lines of sockstat.
fn by_others() -> Figures {
    let mut all = Figures::new();
    for line in output_of(&["ss", "-HltnmO"]).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let drops = words.iter().find_map(|word| word.strip_prefix("skmem:("));
        let drops = drops.unwrap().trim_end_matches(')').rsplit(",d").next().unwrap();
        let at = address(words[3]);
        for (name, figure) in [("queue", words[1]), ("limit", words[2]), ("drops", drops)] {
            all.insert(format!("{at} {name}"), figure.parse().unwrap());
        }
    }
    let listening: Vec<u16> = all.keys().map(|key| port_of(key)).collect();
    for line in output_of(&["ss", "-Htan"]).lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let state = match words[0] {
            "LISTEN" => continue,
            "ESTAB" => "ESTABLISHED",
            "SYN-RECV" => "SYN-RECEIVED",
            other => other,
        };
        *all.entry(format!("state {state}")).or_default() += 1;
        if !listening.contains(&address(words[3]).port()) {
            *all.entry(format!("to {}", address(words[4]))).or_default() += 1;
        }
    }
    for line in output_of(&["nstat", "-asz"]).lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        all.insert(format!("nstat {}", words[0]), words[1].parse().unwrap());
    }
    for file in ["sockstat", "sockstat6"] {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
        for line in text.lines().filter(|line| line.starts_with("TCP")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            for pair in words[1..].chunks(2) {
                all.insert(format!("{}{}", words[0], pair[0]), pair[1].parse().unwrap());
            }
        }
    }
    all
}

fn port_of(key: &str) -> u16 {
    key.split(' ').next().unwrap().parse::<SocketAddr>().unwrap().port()
}

/// The same figures as a watch has them.
fn by_the_watch(look: &Look, others: &Figures) -> Figures {
    let mut all = Figures::new();
    for listener in &look.listeners {
        let at = listener.address;
        all.insert(format!("{at} queue"), listener.accept_queue_len.into());
        all.insert(format!("{at} limit"), listener.accept_queue_limit.into());
        all.insert(format!("{at} drops"), listener.drops.unwrap().into());
    }
    let table = look.table.as_ref().unwrap();
    for (state, count) in &table.states {
        all.insert(format!("state {state}"), *count as i64);
    }
    assert_eq!(table.destinations_left_out, 0);
    for destination in &table.destinations {
        assert_eq!(destination.sources, 1);
        all.insert(format!("to {}", destination.to), destination.ports_in_use.into());
    }
    // Counters that the watch does not read, such as those of Ip6, are not compared.
    for (name, value) in &look.counters {
        let name = format!("nstat {name}");
        if others.contains_key(&name) {
            all.insert(name, *value);
        }
    }
    let counted = &look.counted;
    let sockets = others["TCP:inuse"] + others["TCP6:inuse"];
    assert_eq!(counted.sockets, Some(sockets as u64));
    all.insert("TCP:tw".to_owned(), counted.time_wait.unwrap() as i64);
    all
}

#[test]
fn every_figure_of_a_look_is_that_of_ss_nstat_and_proc_at_the_same_moment() {
    if not_root() || lacks(&["ss", "nstat"]) {
        return;
    }
    in_own_network(|| {
        let mut reader = Reader::open(&Options::default()).unwrap();
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

        let before = by_others();
        let look = reader.look_at_all().unwrap();
        let after = by_others();
        let ours = by_the_watch(&look, &before);
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
        let shared = |name: &&String| {
            before.contains_key(*name) && !name.starts_with("nstat") && !name.starts_with("TCP")
        };
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
fn a_watch_joins_the_namespace_of_another_process_and_bounds_its_hostile_name() {
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
        Reader::open(&options).unwrap().look().unwrap()
    });
    let look = look.join().unwrap();
    drop(holder.stdin.take());
    holder.wait().unwrap();
    let [only] = &look.listeners[..] else { panic!("{:?}", look.listeners) };
    assert_eq!(only.address, "0.0.0.0:7777".parse().unwrap());
    assert_eq!((only.accept_queue_limit, only.syn_queue_len), (7, Some(0)));
    let process = only.process.as_ref().unwrap();
    // PR_SET_NAME keeps 15 bytes; the byte that is no UTF-8 is replaced.
    assert_eq!((process.pid, process.name.as_str()), (pid, "\u{1b}[2J\n\"\u{fffd}<b>\u{7} and"));
    let gone = Options { network: Some(Network::OfProcess(pid)), ..Options::default() };
    let refused = Reader::open(&gone).unwrap_err().to_string();
    assert_eq!(
        refused,
        format!(
            "open on network namespace of process {pid}: No such file or directory (os error 2) \
             (there is no such process or file)"
        )
    );
}
