//! Inside the lab: from one re-executed process to two hosts and what joins them.
//!
//! ```text
//! tcptoll ── lab process ── init (PID 1 of its own PID namespace)
//!                            ├─ client host   (network namespace A)
//!                            ├─ server host   (network namespace B; A too on loopback)
//!                            └─ link          (pump of the emulated link, or packet taps)
//! ```
//!
//! Every process asks the kernel to die with its parent, and the init's death takes the whole PID
//! namespace along. The namespaces have no name and go with their last process.
//!
//! So `kill -9` of the parent leaves nothing: no process, no device, no name in `/run/netns`. There is
//! nothing to clean up, because nothing outside was ever named. `PR_SET_PDEATHSIG` follows the thread that
//! forked, not its process.
//!
//! The lab process is re-executed because `unshare(CLONE_NEWUSER)` wants a process with a single thread, and
//! forking one with several is unsound. It starts with one thread and does this first.
//!
//! A link without delay, jitter, loss or queue limit is a veth pair with no program between the hosts, and
//! `tbf` if a rate was asked for. Every other link is our own emulator (`pump`).

use std::net::IpAddr;
use std::os::fd::OwnedFd;

use tcptoll_core::link::{ETHERNET_OVERHEAD, LinkSpec};
use tcptoll_kernel::namespace::{self, Refusal, enter_network, new_network};
use tcptoll_kernel::netlink::Netlink;
use tcptoll_kernel::packet_socket::PacketSocket;
use tcptoll_kernel::process::{self, Fork};
use tcptoll_kernel::socket::errno::{EINVAL, EROFS};
use tcptoll_kernel::tun::{Tun, offloads_off};
use tcptoll_kernel::{SysError, cpu};

use super::pump::{self, Port};
use super::{Addresses, DEVICE, DEVICE_QUEUE, MTU, Plan, SILENT_ADDRESSES, silent_address, tap};
use crate::channel::Channel;
use crate::host;
use crate::messages::{Ready, Reply};

/// The hosts' devices have these addresses, so that neighbours can be entered before either is up.
const CLIENT_MAC: [u8; 6] = [2, 0x77, 0, 0, 0, 1];
const SERVER_MAC: [u8; 6] = [2, 0x77, 0, 0, 0, 2];
const RELAY_MACS: [[u8; 6]; 2] = [[2, 0x77, 0, 0, 1, 1], [2, 0x77, 0, 0, 1, 2]];

/// tbf sees 14 bytes of Ethernet header on top of the IP packet; line rate counts all of them.
const TBF_OVERHEAD: u16 = ETHERNET_OVERHEAD as u16 - 14;

/// Control channels of the three children.
pub struct Channels {
    pub client: Channel,
    pub server: Channel,
    pub link: Channel,
}

/// What joins the hosts, made but not yet running.
enum Joint {
    Emulated { client: Port, server: Port, fallback: bool },
    Tapped(tap::Ends),
}

/// Becomes the lab: never returns while the lab lives. Errors are told over the link's channel.
pub fn run(plan: &Plan, mut channels: Channels) -> i32 {
    // A terminal's interrupt reaches the whole group; when the lab stops is the parent's to say.
    if process::ignore_stop_signals().is_err() {
        return 1;
    }
    match enter(plan, &mut channels.link) {
        Ok(Some(network)) => settle(plan, network, channels),
        // The process outside the PID namespace only waits for the init.
        Ok(None) => {
            drop(channels);
            while process::reap().is_some() {}
            0
        }
        Err(error) => {
            let _ = channels.link.refuse(error);
            1
        }
    }
}

struct Network {
    client: OwnedFd,
    server: OwnedFd,
    joint: Joint,
}

/// Leaves the machine and makes both networks; `None` in the process that stays outside.
fn enter(plan: &Plan, link: &mut Channel) -> Result<Option<Network>, String> {
    let spec = LinkSpec::parse(&plan.link).map_err(|error| error.to_string())?;
    namespace::leave_machine().map_err(|error| explain(&error))?;
    if let Fork::Parent(_) = process::fork().map_err(|error| error.to_string())? {
        process::set_name("tcptoll-lab");
        return Ok(None);
    }
    let made = (|| {
        process::die_with_parent()?;
        process::set_name("tcptoll-init");
        // Refused in some containers: ps then shows the machine's processes, nothing else changes.
        let _ = namespace::mount_proc();
        make_network(plan, &spec)
    })();
    match made {
        Ok(network) => Ok(Some(network)),
        Err(error) => {
            let _ = link.refuse(explain(&error));
            std::process::exit(1);
        }
    }
}

/// A refusal with its remedy, or the error as it is.
fn explain(error: &SysError) -> String {
    // Ubuntu 24.04 lets unshare succeed and then refuses to write the maps or to mount.
    let refused = error.op == "unshare"
        || error.on.starts_with("/ as private")
        || (error.op == "write" && error.on.starts_with("/proc/self/"));
    if error.errno() == Some(EROFS) {
        return format!(
            "the lab cannot be made: {error}\n  \
             a container that mounts /proc/sys read-only: docker run --security-opt systempaths=unconfined …\n  \
             with podman:  podman run --security-opt unmask=ALL …\n  \
             without lab:  tcptoll connect --to HOST:PORT"
        );
    }
    // Only a mount point can be made private.
    if error.on.starts_with("/ as private") && error.errno() == Some(EINVAL) {
        return format!(
            "the lab cannot be made: {error}; / is not a mount point, so this is a chroot\n  \
             for now:      systemd-nspawn -D ROOT, or podman run --rootfs ROOT\n  \
             without lab:  tcptoll connect --to HOST:PORT"
        );
    }
    if !refused {
        return format!("the lab cannot be made: {error}");
    }
    let (why, now, good) = match Refusal::from_errno(error.errno()) {
        Refusal::AppArmor => (
            "AppArmor restricts user namespaces",
            "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0",
            "install the profile that `tcptoll lab --apparmor-profile` prints",
        ),
        Refusal::UsernsClone => (
            "kernel.unprivileged_userns_clone is 0",
            "sudo sysctl kernel.unprivileged_userns_clone=1",
            "put that line into /etc/sysctl.d/",
        ),
        Refusal::MaxNamespaces => (
            "one of user.max_user_namespaces, max_net_namespaces, max_mnt_namespaces and max_pid_namespaces is reached",
            "sudo sysctl user.max_user_namespaces=10000 user.max_net_namespaces=10000 \
             user.max_mnt_namespaces=10000 user.max_pid_namespaces=10000",
            "put these into /etc/sysctl.d/",
        ),
        Refusal::Container => (
            "a container's seccomp filter or policy forbids it",
            "docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt \
             systempaths=unconfined …, or: podman run --security-opt seccomp=unconfined --security-opt unmask=ALL …",
            "allow unshare and clone of namespaces in the container's seccomp profile",
        ),
    };
    format!(
        "the lab cannot be made, because this user may not make network namespaces here ({}; {why})\n  \
         for now:      {now}\n  \
         for good:     {good}\n  \
         without lab:  tcptoll connect --to HOST:PORT",
        error.source
    )
}

fn make_network(plan: &Plan, spec: &LinkSpec) -> Result<Network, SysError> {
    let addresses = Addresses::new(spec.loopback, plan.ipv6);
    let client = new_network()?;
    loopback_up()?;
    quiet(plan.ipv6)?;
    if spec.loopback {
        let again = namespace::current_network()?;
        let joint = Joint::Tapped(tap::Ends { namespaces: vec![namespace::current_network()?] });
        return Ok(Network { client, server: again, joint });
    }
    let server = new_network()?;
    loopback_up()?;
    quiet(plan.ipv6)?;
    let joint = if spec.is_emulated() {
        emulated(plan, spec, &client, &server, addresses)?
    } else {
        direct(spec, &client, &server, addresses)?;
        let namespaces = vec![dup(&client)?, dup(&server)?];
        Joint::Tapped(tap::Ends { namespaces })
    };
    enter_network(&client)?;
    for &address in &plan.client_addresses {
        let mut netlink = Netlink::open()?;
        let index = netlink.index(DEVICE)?;
        netlink.add_address(index, address, addresses.prefix)?;
        enter_network(&server)?;
        reach(&[address], &joint)?;
        enter_network(&client)?;
    }
    if plan.silent_addresses {
        let silent: Vec<IpAddr> =
            (1..=SILENT_ADDRESSES).map(|number| silent_address(number, plan.ipv6)).collect();
        enter_network(&server)?;
        reach(&silent, &joint)?;
        enter_network(&client)?;
    }
    Ok(Network { client, server, joint })
}

/// Routes addresses over the link of the calling thread's host, the server, to the client.
fn reach(addresses: &[IpAddr], joint: &Joint) -> Result<(), SysError> {
    let mut netlink = Netlink::open()?;
    let index = netlink.index(DEVICE)?;
    for &address in addresses {
        // Also an address of another network than the link's is reached over the link.
        let whole = if address.is_ipv4() { 32 } else { 128 };
        netlink.add_route(index, address, whole)?;
        // A TUN device has no neighbours.
        if !matches!(joint, Joint::Emulated { fallback: false, .. }) {
            netlink.add_neighbour(index, address, CLIENT_MAC)?;
        }
    }
    Ok(())
}

fn emulated(
    plan: &Plan,
    spec: &LinkSpec,
    client: &OwnedFd,
    server: &OwnedFd,
    addresses: Addresses,
) -> Result<Joint, SysError> {
    let gso = !spec.must_segment();
    let tun_at = |namespace: &OwnedFd, address| -> Result<Tun, SysError> {
        enter_network(namespace)?;
        let tun = Tun::open(DEVICE, gso)?;
        let mut netlink = Netlink::open()?;
        let index = netlink.index(DEVICE)?;
        netlink.set_mtu(index, MTU)?;
        netlink.set_tx_queue_len(index, DEVICE_QUEUE)?;
        netlink.set_up(index)?;
        netlink.add_address(index, address, addresses.prefix)?;
        Ok(tun)
    };
    if !plan.force_packet {
        match tun_at(client, addresses.client) {
            Ok(at_client) => {
                let at_server = tun_at(server, addresses.server)?;
                return Ok(Joint::Emulated {
                    client: Port::Tun(at_client),
                    server: Port::Tun(at_server),
                    fallback: false,
                });
            }
            Err(error) if error.op == "open" => {}
            Err(error) => return Err(error),
        }
    }
    let relay = new_network()?;
    let hosts = [(client, "relay0", CLIENT_MAC), (server, "relay1", SERVER_MAC)];
    for (number, (namespace, outer, mac)) in hosts.into_iter().enumerate() {
        enter_network(namespace)?;
        Netlink::open()?.add_veth(DEVICE, outer, as_fd(&relay), MTU, (mac, RELAY_MACS[number]))?;
        if !gso {
            offloads_off(DEVICE)?;
        }
        bring_up(addresses, number)?;
    }
    enter_network(&relay)?;
    quiet(false)?;
    let socket = |name: &str| -> Result<Port, SysError> {
        let mut netlink = Netlink::open()?;
        let index = netlink.index(name)?;
        netlink.set_tx_queue_len(index, DEVICE_QUEUE)?;
        netlink.set_up(index)?;
        if !gso {
            offloads_off(name)?;
        }
        Ok(Port::Packet(PacketSocket::open(index)?))
    };
    Ok(Joint::Emulated { client: socket("relay0")?, server: socket("relay1")?, fallback: true })
}

fn direct(
    spec: &LinkSpec,
    client: &OwnedFd,
    server: &OwnedFd,
    addresses: Addresses,
) -> Result<(), SysError> {
    enter_network(client)?;
    Netlink::open()?.add_veth(DEVICE, DEVICE, as_fd(server), MTU, (CLIENT_MAC, SERVER_MAC))?;
    for (number, namespace) in [client, server].into_iter().enumerate() {
        enter_network(namespace)?;
        if let Some(rate) = spec.rate_bit_per_s {
            let mut netlink = Netlink::open()?;
            let index = netlink.index(DEVICE)?;
            // 1 ms of the rate, at least one full packet: 5 kB is the most at 10 Mbit/s.
            let burst = (rate / 8.0 / 1000.0).clamp(3_200.0, 200_000.0) as u32;
            // The queue a host's device has when nobody set one: 1000 full packets.
            netlink.add_tbf(index, rate, burst, 1_000 * (MTU + 38), TBF_OVERHEAD)?;
        }
        bring_up(addresses, number)?;
    }
    Ok(())
}

/// Brings the device of host `number` up, with its address and its neighbour's.
fn bring_up(addresses: Addresses, number: usize) -> Result<(), SysError> {
    let own = [addresses.client, addresses.server];
    let macs = [CLIENT_MAC, SERVER_MAC];
    let mut netlink = Netlink::open()?;
    let index = netlink.index(DEVICE)?;
    netlink.set_tx_queue_len(index, DEVICE_QUEUE)?;
    netlink.set_up(index)?;
    netlink.add_address(index, own[number], addresses.prefix)?;
    // ARP or neighbour discovery would cost the first connection a round trip of its own.
    netlink.add_neighbour(index, own[1 - number], macs[1 - number])
}

fn loopback_up() -> Result<(), SysError> {
    let mut netlink = Netlink::open()?;
    let index = netlink.index("lo")?;
    netlink.set_up(index)
}

/// No packets but those of the run: no router solicitation, no duplicate address detection.
fn quiet(ipv6: bool) -> Result<(), SysError> {
    let value = if ipv6 { "0" } else { "1" };
    for (name, value) in [
        ("net.ipv6.conf.all.disable_ipv6", value),
        ("net.ipv6.conf.default.disable_ipv6", value),
        ("net.ipv6.conf.default.accept_ra", "0"),
        ("net.ipv6.conf.default.accept_dad", "0"),
        ("net.ipv6.conf.default.router_solicitations", "0"),
        ("net.ipv6.conf.default.addr_gen_mode", "1"),
        // A machine that forwards hands that on to new namespaces; a host of the lab forwards nothing.
        ("net.ipv4.ip_forward", "0"),
    ] {
        let path = crate::observe::sysctl_path(name);
        // A kernel without IPv6 has no such file and sends no such packets.
        if std::path::Path::new(&path).exists() {
            std::fs::write(&path, value).map_err(|error| SysError::new("write", path, error))?;
        }
    }
    // Real servers run as an ordinary user and still want port 80.
    let path = "/proc/sys/net/ipv4/ip_unprivileged_port_start";
    std::fs::write(path, "0").map_err(|error| SysError::new("write", path, error))
}

fn as_fd(fd: &OwnedFd) -> std::os::fd::BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(fd)
}

fn dup(fd: &OwnedFd) -> Result<OwnedFd, SysError> {
    fd.try_clone().map_err(|error| SysError::new("dup", "network namespace", error))
}

/// Forks the three children and waits until one of them ends; the rest ends with the init.
///
/// Each child drops what belongs to the others: a channel that is open in two processes does not
/// tell when one of them dies.
fn settle(plan: &Plan, network: Network, channels: Channels) -> i32 {
    let Network { client, server, joint } = network;
    let Channels { client: to_client, server: to_server, link: to_link } = channels;
    let mut children = Vec::new();
    let mut begin = |name: &str| match process::fork() {
        Ok(Fork::Parent(pid)) => {
            children.push(pid);
            false
        }
        Ok(Fork::Child) => {
            if process::die_with_parent().is_err() {
                std::process::exit(1);
            }
            process::set_name(name);
            true
        }
        Err(_) => std::process::exit(1),
    };
    if begin("tcptoll-client") {
        drop((to_server, to_link, joint, server));
        std::process::exit(host_in(&client, to_client, plan.client_cpu, host::Role::Client));
    }
    drop((to_client, client));
    if begin("tcptoll-server") {
        drop((to_link, joint));
        std::process::exit(host_in(&server, to_server, plan.server_cpu, host::Role::Server));
    }
    drop((to_server, server));
    if begin("tcptoll-link") {
        let spec = LinkSpec::parse(&plan.link).ok();
        std::process::exit(link(joint, spec, plan.seed, plan.client_cpu, to_link));
    }
    drop((to_link, joint));
    // Also what a server left behind is reaped here, and is no reason to end.
    while let Some((ended, _)) = process::reap() {
        if children.contains(&ended) {
            return 0;
        }
    }
    0
}

fn host_in(namespace: &OwnedFd, channel: Channel, cpu: Option<u32>, role: host::Role) -> i32 {
    match enter_network(namespace) {
        Ok(()) => host::run(channel, cpu, role),
        Err(_) => 1,
    }
}

fn link(
    joint: Joint,
    spec: Option<LinkSpec>,
    seed: u64,
    cpu_number: Option<u32>,
    mut channel: Channel,
) -> i32 {
    let _ = cpu::exact_timers();
    // Other work on this CPU must not hold a release back for a tick.
    let _ = cpu::short_slices();
    // On the client's CPU a packet needs no other CPU to wake up; `pump` has the figures.
    if let Some(cpu) = cpu_number {
        let _ = cpu::pin(cpu);
    }
    let packet_fallback = matches!(&joint, Joint::Emulated { fallback: true, .. });
    if channel.send(&Reply::<()>::Ready(Ready::new(None, packet_fallback))).is_err() {
        return 1;
    }
    let ended = match (joint, spec) {
        (Joint::Emulated { client, server, .. }, Some(spec)) => {
            pump::run(client, server, spec, seed, &mut channel)
        }
        (Joint::Tapped(ends), _) => tap::run(ends, &mut channel),
        (Joint::Emulated { .. }, None) => return 1,
    };
    match ended {
        Ok(()) => 0,
        Err(error) => {
            let _ = channel.refuse(format!("the link stopped: {error}"));
            1
        }
    }
}
