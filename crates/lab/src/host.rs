//! A host: waits for the parent's orders on its control channel and carries them out one by one.
//!
//! `orders` is the table of all that it carries out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_kernel::socket::Stamping;
use tcptoll_kernel::{SysError, clock, cpu, process};

use crate::channel::{Channel, ChannelError, Orders, Refusal};
use crate::clock::monotonic_ns;
use crate::load::half_open::HalfOpenPeer;
use crate::load::hold::{self, Holder};
use crate::load::idle::group::Group;
use crate::load::page::{self, visits};
use crate::load::{
    browser, clocks, connect, exchange, greet, http, probes, short, socket_memory, transfer,
};
use crate::messages::{
    Answers, AskClock, AskRoute, BackendSpec, Check, ConnectLoad, CountClosed, Echo, End,
    EndHalfOpen, Exchange, Faulted, Forget, Freeze, FrontSpec, Greet, GroupAnswer, HoldAccept,
    HoldConnect, HoldEnd, HoldFill, HoldListen, HoldLook, HoldPorts, HttpLoad, KeepHalfOpen,
    Launch, Leave, LoadPage, LoadVisits, Look, LookAway, Make, Now, Observe, Order, PageUser,
    Perform, Ping, ReadCpu, ReadMemory, ReadQueue, ReadSocketMemory, ReadSysctls, Ready, Reflect,
    Reply, Rest, Rows, Run, ServerSpec, SetSysctls, Settle, ShiftClock, ShortLoad, Sink, Snapshot,
    SocketMemory, Stall, TakeWorkers, ToGroup, Train, Transfer, TransferServer, Upload, VisitPart,
    WatchListener, WatchQueues, WatchWorkers,
};
use crate::observe::{Observer, Pulse, closed, cpu_times, read_sysctl, set_sysctls};
use crate::servers::{self, Pool, Running, WorkersWatch, command};

/// A real server must listen within this.
pub const LAUNCH_LIMIT: Duration = Duration::from_secs(30);

/// Longest text that is uploaded in pieces, bytes: a million requests of an access log.
const UPLOADED_MAX: usize = 512 << 20;

/// Which end a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Opens connections, inside the lab.
    Client,
    /// Opens connections from the machine's own network: carries out nothing that belongs to the lab
    /// alone.
    Outside,
    /// Accepts them; its listening sockets are looked at while it does.
    Server,
    /// Accepts them on the network of a machine that is not ours to change: sets no sysctl.
    OutsideServer,
}

/// Serves the parent until it is gone; gives the exit status of the process.
pub fn run(mut channel: Channel, cpu_number: Option<u32>, role: Role) -> i32 {
    let all_cpus = cpu::allowed();
    let pinned_cpu = cpu_number.filter(|&number| cpu::pin(number).is_ok());
    let _ = cpu::exact_timers();
    let _ = process::adopt_orphans();
    if channel.send(&Reply::<()>::Ready(Ready::new(pinned_cpu, false))).is_err() {
        return 1;
    }
    let pool = Pool::new(all_cpus.clone());
    let cpus = all_cpus.clone();
    let observer = match role {
        Role::Client | Role::Outside => Observer::idle(),
        Role::OutsideServer => Observer::of_new_listeners(all_cpus),
        Role::Server => Observer::start(pinned_cpu.map_or(all_cpus, |cpu| vec![cpu])),
    };
    // Begun long before a load that wants its packets stamped: the kernel takes its time.
    let accepts = matches!(role, Role::Server | Role::OutsideServer);
    let _stamping = (!accepts).then(Stamping::begin);
    let mut host = Host {
        observer,
        pulse: Pulse::begin(),
        pool,
        children: Vec::new(),
        servers: Vec::new(),
        watch: None,
        cpus,
        groups: BTreeMap::new(),
        holder: Holder::default(),
        half_open: None,
        uploaded: String::new(),
        shares_network: role == Role::OutsideServer,
    };
    let orders = orders(role);
    loop {
        match orders.carry_out_next(&mut host, &mut channel) {
            Ok(()) => {}
            // The parent has ended: so does the host, and with the last host the lab.
            Err(ChannelError::Closed) => return 0,
            Err(_) => return 1,
        }
    }
}

struct Host {
    observer: Observer,
    pulse: Pulse,
    children: Vec<Child>,
    /// Those known by name.
    servers: Vec<Running>,
    /// Reads the status of the last of them.
    watch: Option<WorkersWatch>,
    /// CPUs of the lab, on which it does.
    cpus: Vec<u32>,
    /// Blocking workers, or the backend that they call.
    pool: Pool,
    /// Groups of connections that stay open, by name.
    groups: BTreeMap<String, Group>,
    /// Connections that are held for their memory.
    holder: Holder,
    /// The peer that opens half-open requests, while it does.
    half_open: Option<HalfOpenPeer>,
    /// A long text that the next order refers to, as far as it has come.
    uploaded: String,
    /// Whether others listen on its network, too.
    shares_network: bool,
}

/// Everything that a host carries out.
fn orders(role: Role) -> Orders<Host> {
    let orders = Orders::new("host")
        .on(|_: &mut Host, ReadSysctls(names), _| {
            let read = |name: String| read_sysctl(&name).ok().map(|value| (name, value));
            Ok(names.into_iter().filter_map(read).collect())
        })
        .on(|host, Observe, _| {
            let standstill = host.pulse.seen();
            Ok(Snapshot { standstill, ..host.observer.snapshot() })
        })
        .on(|host, LookAway, _| {
            host.observer.look_away();
            Ok(())
        })
        .on(|host, WatchListener(at), _| {
            host.observer = Observer::of_listener(at);
            Ok(())
        })
        .on(|host, wanted: WatchQueues, _| Ok(host.observer.record(wanted)?))
        .on(|host, ReadQueue(number), _| Ok(host.observer.recorded(number)))
        .on(|host, Forget, _| {
            host.observer.forget();
            Ok(())
        })
        .on(|_, Settle { limit_ns }, _| Ok(settle(limit_ns)?))
        .on(|_, wanted: CountClosed, _| Ok(closed::count(&wanted)))
        .on(|_, ReadCpu, _| Ok(cpu_times()))
        .on(|_, ReadSocketMemory, _| {
            let (sockets, bytes_each) = socket_memory()?;
            Ok(SocketMemory { sockets, bytes_each })
        })
        .on(|_, ping: Ping, _| Ok(probes::ping(&ping)?))
        .on(|_, reflect: Reflect, channel| Ok(clocks::reflect(&reflect, channel)?))
        .on(|_, order: AskClock, _| Ok(clocks::ask(&order)?))
        .on(|_, order: AskRoute, _| Ok(clocks::route(&order)))
        .on(|_, ShiftClock { ns }, _| {
            clock::shift(ns);
            Ok(())
        })
        .on(|_, Now, _| Ok(monotonic_ns()))
        .on(|_, sink: Sink, channel| Ok(probes::sink(&sink, channel)?))
        .on(|_, train: Train, _| Ok(probes::train(&train)?))
        .on(|host, greet: Greet, channel| {
            let look = || host.observer.look_now();
            let (report, rows) = greet::run(&greet, channel, look)?;
            channel.rows(&rows, Rows::Server)?;
            Ok(report)
        })
        .on(|_, load: ConnectLoad, channel| {
            let (report, rows) = connect::run(&load, channel)?;
            channel.rows(&rows, Rows::Client)?;
            Ok(report)
        })
        .on(|_, answers: Answers, channel| Ok(exchange::answer(&answers, channel)?))
        .on(|_, exchange: Exchange, channel| Ok(exchange::run(&exchange, channel)?))
        .on(|_, echo: Echo, channel| Ok(short::run_echo(&echo, channel)?))
        .on(|_, hold: HoldPorts, channel| Ok(short::hold::run(&hold, channel)?))
        .on(|_, load: ShortLoad, channel| {
            let (report, histograms) = short::run(&load, channel)?;
            for (name, histogram) in histograms.named() {
                channel.histogram(name, histogram)?;
            }
            Ok(report)
        })
        .on(|_, order: TransferServer, channel| Ok(transfer::serve(&order, channel)?))
        .on(|_, order: Transfer, channel| Ok(transfer::run(&order, channel)?))
        .on(|host, Upload(piece), _| host.upload(&piece))
        .on(|host, load: HttpLoad, channel| {
            let requests = std::mem::take(&mut host.uploaded);
            let http::Done { report, histograms, groups } = http::run(&load, &requests, channel)?;
            for (name, histogram) in histograms {
                channel.histogram(name, histogram)?;
            }
            for group in groups {
                channel.send(&Reply::<()>::Rows(Rows::Group(Box::new(group))))?;
            }
            Ok(report)
        })
        .on(|host, order: LoadPage, channel| {
            let uploaded = std::mem::take(&mut host.uploaded);
            let visit = match order.user {
                PageUser::Tcptoll => page::run(&order, &uploaded, channel)?,
                PageUser::Chromium => browser::run(&order, channel)?,
            };
            let (rows, report) = visit.rows();
            for row in rows {
                channel.send(&Reply::<()>::Rows(row))?;
            }
            Ok(report)
        })
        .on(|host, order: LoadVisits, channel| {
            let uploaded = std::mem::take(&mut host.uploaded);
            let visits::VisitCounts { pages, connections, report } =
                visits::run(&order, &uploaded, channel)?;
            for part in VisitPart::parts(&pages, &connections) {
                channel.send(&Reply::<()>::Rows(Rows::Visit(part)))?;
            }
            Ok(report)
        })
        .on(|host, listen: HoldListen, _| Ok(host.holder.listen(&listen)?))
        .on(|host, connect: HoldConnect, channel| Ok(host.holder.connect(&connect, channel)?))
        .on(|host, accept: HoldAccept, channel| Ok(host.holder.accept(accept, channel)?))
        .on(|host, HoldLook, _| Ok(host.holder.look()?))
        .on(|host, fill: HoldFill, channel| Ok(host.holder.fill(fill, channel)?))
        .on(|host, HoldEnd, _| Ok(host.holder.end()))
        .on(|_, read: ReadMemory, _| Ok(hold::memory(read)?))
        .on(|host, launch: Launch, _| host.launch(&launch).map_err(Refusal))
        .on(|_, Run(launch), _| {
            let failed = |error| Refusal(format!("{}: {error}", launch.words.join(" ")));
            let status = command(&launch).status().map_err(failed)?;
            let signal = status.signal().map_or(1, |signal| 128 + signal);
            Ok(status.code().unwrap_or(signal))
        })
        .on(|_, perform: Perform, channel| servers::perform(&perform, channel))
        .on(|host, ToGroup { group, order: Make(spec) }, _| {
            host.groups.entry(group).or_default().make(spec).map_err(Refusal)
        })
        .on(to_group::<Check>)
        .on(to_group::<Faulted>)
        .on(to_group::<Leave>)
        .on(to_group::<Look>)
        .on(to_group::<Rest>)
        .on(|host, ToGroup { group, order: Freeze }, _| {
            Ok(host.groups.entry(group).or_default().freeze()?)
        })
        .on(|host, ToGroup { group, order: End }, _| {
            let mut group = host.groups.remove(&group).unwrap_or_default();
            Ok(group.end())
        });
    match role {
        Role::Outside => orders,
        Role::OutsideServer => of_server(orders),
        Role::Server => sets_sysctls(of_server(orders)),
        Role::Client => sets_sysctls(orders)
            .on(|host, order: KeepHalfOpen, _| {
                // The former one ends first.
                host.half_open = None;
                host.half_open = Some(HalfOpenPeer::begin(&order)?);
                Ok(())
            })
            .on(|host, EndHalfOpen, _| {
                let peer = host.half_open.take();
                Ok(peer.map(|mut peer| peer.end()).unwrap_or_default())
            })
            .on(|host, spec: FrontSpec, _| host.pool.start_front(&spec))
            .on(|host, order: WatchWorkers, _| host.pool.watch(order))
            .on(|host, order: TakeWorkers, _| host.pool.take(order)),
    }
}

/// With what a host of the lab may do to its own network namespace.
fn sets_sysctls(orders: Orders<Host>) -> Orders<Host> {
    orders.on(|_, SetSysctls(wanted), _| set_sysctls(&wanted).map_err(Refusal))
}

/// With what a host carries out that accepts connections.
fn of_server(orders: Orders<Host>) -> Orders<Host> {
    orders
        .on(|host, mut spec: ServerSpec, _| {
            if spec.site_uploaded {
                let text = std::mem::take(&mut host.uploaded);
                let site = serde_json::from_str(&text);
                spec.site = Some(site.map_err(|error| Refusal(format!("the site: {error}")))?);
            }
            let (running, serving) = servers::start(&spec).map_err(Refusal)?;
            host.servers.push(running);
            Ok(serving)
        })
        .on(|host, order: WatchWorkers, _| host.watch_server(order))
        .on(|host, order: TakeWorkers, _| {
            let none = || Refusal("the host does not watch a server".to_owned());
            Ok(host.watch.as_mut().ok_or_else(none)?.take(order.from))
        })
        .on(|host, spec: BackendSpec, _| host.pool.start_backend(&spec))
        .on(|host, order: Stall, channel| host.pool.stall(order, channel))
}

/// Hands an order to every process of a group.
fn to_group<O: Order<Answer: GroupAnswer>>(
    host: &mut Host,
    to: ToGroup<O>,
    _: &mut Channel,
) -> Result<O::Answer, Refusal> {
    host.groups.entry(to.group).or_default().order(&to.order).map_err(Refusal)
}

impl Host {
    /// Begins to read the status of the server that was started last.
    fn watch_server(&mut self, order: WatchWorkers) -> Result<(), Refusal> {
        let none = || Refusal("the host has no server to watch".to_owned());
        let server = self.servers.last().ok_or_else(none)?;
        self.watch = Some(server.watch(order, self.cpus.clone()).map_err(Refusal)?);
        Ok(())
    }

    /// Keeps a piece of a text that the following order refers to.
    fn upload(&mut self, piece: &str) -> Result<(), Refusal> {
        if self.uploaded.len() + piece.len() > UPLOADED_MAX {
            self.uploaded = String::new();
            return Err(Refusal(format!("more than {UPLOADED_MAX} bytes were uploaded")));
        }
        self.uploaded.push_str(piece);
        Ok(())
    }

    /// Starts a real server and waits until it listens.
    fn launch(&mut self, launch: &Launch) -> Result<SocketAddr, String> {
        let name = launch.words.join(" ");
        let failed = |error: std::io::Error| format!("--server {name}: {error}");
        // What a server says is for people; standard output is the run's own.
        let stderr = std::io::stderr().as_fd().try_clone_to_owned().map_err(failed)?;
        let mut diag = SockDiag::open().map_err(|error: SysError| error.to_string())?;
        let listeners = diag.listeners().map_err(|error| error.to_string())?;
        let before: BTreeSet<u64> = listeners.iter().map(|one| one.inode).collect();
        let mut child =
            command(launch).stdin(Stdio::null()).stdout(stderr).spawn().map_err(failed)?;
        let begun = Instant::now();
        loop {
            let listeners = diag.listeners().map_err(|error| error.to_string())?;
            let mut new = listeners.iter().filter(|one| !before.contains(&one.inode));
            // Others may begin to listen meanwhile, where the network is not the host's alone.
            let found = if self.shares_network {
                let ours = process::socket_inodes(&cpu::descendants());
                new.find(|one| ours.contains(&one.inode))
            } else {
                new.next()
            };
            if let Some(listener) = found {
                self.children.push(child);
                return Ok(listener.address);
            }
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                let advice = match status.code() {
                    // The shell's own.
                    Some(127) => ": there is no such program; write a server's name or a command",
                    _ if !name.contains(' ') => {
                        ": write the whole command, with what makes it listen, in quotes"
                    }
                    _ => "",
                };
                return Err(format!(
                    "--server {name}: it ended before it listened ({status}){advice}"
                ));
            }
            if begun.elapsed() > LAUNCH_LIMIT {
                let _ = child.kill();
                return Err(format!("--server {name}: it listens on no TCP port after 30 s"));
            }
            // Not for luck: the question is asked again until it is answered or time is up.
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Waits until no connection is being closed any more, at most so long.
///
/// Not for luck: the question is asked again until it is answered or time is up. Connections that
/// nobody closes, of a server that keeps them, do not count.
fn settle(limit_ns: u64) -> Result<(), SysError> {
    /// FIN-WAIT-1, FIN-WAIT-2, LAST-ACK and CLOSING of `include/net/tcp_states.h`.
    const CLOSING: [u8; 4] = [4, 5, 9, 11];
    let deadline = monotonic_ns() + limit_ns;
    let mut diag = SockDiag::open()?;
    while monotonic_ns() < deadline {
        let mut closing = 0;
        for state in CLOSING {
            closing += diag.count_in_state(state, None)?;
        }
        if closing == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_the_lab_alone_is_not_carried_out_on_the_machines_own_network() {
        let (client, server) = (orders(Role::Client), orders(Role::Server));
        let outside = orders(Role::Outside);
        for name in [
            BackendSpec::NAME,
            EndHalfOpen::NAME,
            FrontSpec::NAME,
            KeepHalfOpen::NAME,
            ServerSpec::NAME,
            SetSysctls::NAME,
            Stall::NAME,
            TakeWorkers::NAME,
            WatchWorkers::NAME,
        ] {
            assert!(client.knows(name) || server.knows(name), "{name}");
            assert!(!outside.knows(name), "{name}");
        }
        assert!(outside.knows(HttpLoad::NAME));
        assert!(!orders(Role::OutsideServer).knows(SetSysctls::NAME));
    }
}
