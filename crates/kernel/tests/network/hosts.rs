//! A network namespace with a thread that lives in it, and a TCP transfer between two of them.

use std::{
    fs::File,
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use nix::sched::{CloneFlags, unshare};
use tcptoll_kernel::netlink::Netlink;

/// One host: closures given to [`run`](Self::run) are executed inside its network namespace.
pub(crate) struct Host {
    jobs: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    pub(crate) netns: File,
}

impl Host {
    /// Makes a host with `lo` up, or says why the test is skipped.
    pub(crate) fn new() -> Option<Self> {
        let (jobs, inbox) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (ready, made) = mpsc::channel();
        thread::spawn(move || {
            let netns = unshare(CloneFlags::CLONE_NEWNET)
                .map(|()| File::open("/proc/thread-self/ns/net").expect("own namespace opens"));
            let failed = netns.is_err();
            ready.send(netns).unwrap();
            if !failed {
                for job in inbox {
                    job();
                }
            }
        });
        match made.recv().unwrap() {
            Ok(netns) => {
                let host = Self { jobs, netns };
                host.run(|| {
                    let mut netlink = Netlink::open().unwrap();
                    let lo = netlink.index("lo").unwrap();
                    netlink.set_up(lo).unwrap();
                });
                Some(host)
            }
            Err(errno) if std::env::var("LAB").as_deref() == Ok("required") => {
                panic!("lab required but unavailable: unshare: {errno}")
            }
            Err(errno) => {
                eprintln!("SKIPPED (lab): unshare: {errno}");
                None
            }
        }
    }

    /// Two hosts joined by a veth pair `eth0`, with the addresses of [`ip`] and [`MAC`].
    pub(crate) fn pair(mtu: u32) -> Option<(Self, Self)> {
        let (client, server) = (Self::new()?, Self::new()?);
        let far = server.netns.try_clone().unwrap();
        client.run(move || {
            let mut netlink = Netlink::open().unwrap();
            netlink.add_veth("eth0", "eth0", far.as_fd(), mtu, (MAC[0], MAC[1])).unwrap();
        });
        client.configure("eth0", 0);
        server.configure("eth0", 1);
        Some((client, server))
    }

    /// Gives the interface the addresses of `side` and sets it up, with the other side's MAC.
    pub(crate) fn configure(&self, name: &'static str, side: usize) {
        self.run(move || {
            let mut netlink = Netlink::open().unwrap();
            let index = netlink.index(name).unwrap();
            netlink.set_up(index).unwrap();
            for family in 0..2 {
                let prefix = [24, 64][family];
                netlink.add_address(index, ip(side, family), prefix).unwrap();
                if netlink.mac(index).is_ok() {
                    netlink.add_neighbour(index, ip(1 - side, family), MAC[1 - side]).unwrap();
                }
            }
        });
    }

    /// Runs `job` inside the host and waits for it. Panics if it panics.
    pub(crate) fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (answer, result) = mpsc::channel();
        self.jobs
            .send(Box::new(move || {
                let _ = answer.send(job());
            }))
            .expect("the host's thread lives");
        result.recv().expect("the job panicked")
    }
}

/// The MAC addresses of client and server.
pub(crate) const MAC: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// The address of `side` (0 client, 1 server) in `family` (0 IPv4, 1 IPv6).
pub(crate) fn ip(side: usize, family: usize) -> IpAddr {
    [["10.0.0.1", "fd00::1"], ["10.0.0.2", "fd00::2"]][side][family].parse().unwrap()
}

/// Sends `bytes` from client to server over TCP; returns bytes/s of goodput as the reader saw it.
pub(crate) fn transfer(client: &Host, server: &Host, family: usize, bytes: usize) -> f64 {
    let listener = server.run(move || TcpListener::bind((ip(1, family), 0)).unwrap());
    let address = listener.local_addr().unwrap();
    let reader = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut buffer = vec![0; 1 << 16];
        let (mut got, mut first) = (0, None);
        loop {
            match stream.read(&mut buffer).unwrap() {
                0 => break,
                n => got += n,
            }
            first.get_or_insert((Instant::now(), got));
        }
        let (start, head) = first.unwrap();
        assert_eq!(got, bytes);
        (got - head) as f64 / start.elapsed().as_secs_f64()
    });
    let mut stream = connect(client, address);
    stream.write_all(&vec![7; bytes]).unwrap();
    drop(stream);
    reader.join().unwrap()
}

/// Connects from inside `client`; 10 s at most.
pub(crate) fn connect(client: &Host, to: SocketAddr) -> TcpStream {
    client.run(move || TcpStream::connect_timeout(&to, Duration::from_secs(10)).unwrap())
}
