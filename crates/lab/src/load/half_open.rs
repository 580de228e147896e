//! A peer that opens half-open requests at a listener and never sends the last ACK.
//!
//! It sends SYNs whose source addresses, within the lab's own prefixes, belong to nobody, so that the
//! server's SYN-ACKs reach no socket and nobody answers with a reset. Every source sends its SYN again after
//! a time: the kernel then answers with another SYN-ACK and keeps the request, or opens it anew if it had
//! timed out. If that time is below 1 s, the number of requests stays, as far as the server holds them.
//!
//! It exists in a lab only. Only the table of a lab's host has the order, and [`HalfOpenPeer::begin`] refuses
//! everything but the lab's server, in a network namespace that has no other device that is up. The socket is
//! bound to the lab's device. Forwarding is off in every host.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{JoinHandle, park_timeout};
use std::time::Duration;

use tcptoll_core::link::lab_network::{Addresses, DEVICE, SILENT_ADDRESSES, silent_address};
use tcptoll_core::tcp::packet::{endpoints, syn};
use tcptoll_kernel::raw_ip::{RawIp, devices_up};
use tcptoll_kernel::socket::errno::{EAGAIN, ENOBUFS};

use super::LoadError;
use crate::clock::monotonic_ns;
use crate::messages::{HalfOpenReport, KeepHalfOpen};

/// Most requests that are kept.
pub const NUMBER_MAX: u64 = 65_536;

/// Most SYNs per second.
pub const RATE_MAX: f64 = 50_000.0;

/// The first SYNs of all sources take no longer.
pub const FIRST_PASS: Duration = Duration::from_secs(30);

/// Each source sends again no sooner. The kernel answers one SYN of a request in 500 ms
/// (`tcp_invalid_ratelimit`), and the first timer of a request runs for 1 s.
pub const AGAIN_MIN: Duration = Duration::from_millis(100);

/// SYNs sent without a pause, where the schedule is behind.
const TOGETHER: usize = 32;

/// A SYN of each source, from its IP header on.
type Packets = Vec<Vec<u8>>;

/// The peer, sending.
#[derive(Debug)]
pub struct HalfOpenPeer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<HalfOpenReport>>,
}

impl HalfOpenPeer {
    /// Begins, and returns when each source has sent its first SYN.
    ///
    /// Errors: `Refused` if the order is too large, or for anything but the server of the lab that this
    /// host is part of.
    pub fn begin(order: &KeepHalfOpen) -> Result<Self, LoadError> {
        check(order, &devices_up()?).map_err(LoadError::Refused)?;
        let ipv6 = order.target.is_ipv6();
        let addresses: Vec<IpAddr> =
            (1..=SILENT_ADDRESSES).map(|number| silent_address(number, ipv6)).collect();
        let packets: Packets = endpoints(&addresses, order.number as usize)
            .into_iter()
            .zip(0..)
            // Any initial sequence number will do, but always the same one of a source: another would be
            // of another connection.
            .filter_map(|(from, number)| syn(from, order.target, number))
            .collect();
        let raw = RawIp::open(DEVICE, order.target.ip())?;
        let stop = Arc::new(AtomicBool::new(false));
        let (passed, first_pass) = sync_channel(1);
        let sender = Sender {
            raw,
            rate_per_s: order.rate_per_s,
            again_ns: order.again_ns,
            stop: Arc::clone(&stop),
            report: HalfOpenReport {
                addresses: packets.len().min(addresses.len()) as u64,
                ..HalfOpenReport::default()
            },
        };
        let thread = std::thread::Builder::new()
            .name("half-open".to_owned())
            .spawn(move || sender.run(&packets, &passed))
            .map_err(|error| LoadError::Refused(format!("no thread can be started: {error}")))?;
        let mut peer = Self { stop, thread: Some(thread) };
        match waited(&first_pass) {
            Ok(()) => Ok(peer),
            Err(why) => {
                let failed = peer.end().failed;
                Err(LoadError::Refused(failed.unwrap_or_else(|| why.to_owned())))
            }
        }
    }

    /// Stops it.
    pub fn end(&mut self) -> HalfOpenReport {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return HalfOpenReport::default() };
        thread.thread().unpark();
        thread.join().unwrap_or_else(|_| HalfOpenReport {
            failed: Some("the thread of half-open requests ended unexpectedly".to_owned()),
            ..HalfOpenReport::default()
        })
    }
}

impl Drop for HalfOpenPeer {
    fn drop(&mut self) {
        self.end();
    }
}

fn waited(first_pass: &Receiver<()>) -> Result<(), &'static str> {
    // The machine may be slow; the schedule itself is within half of it.
    first_pass.recv_timeout(FIRST_PASS + Duration::from_secs(20)).map_err(|_| {
        "the SYNs that open half-open requests could not be sent in time: lower the number of requests"
    })
}

/// Why an order is not carried out in a network namespace where these devices are up.
fn check(order: &KeepHalfOpen, devices: &[String]) -> Result<(), String> {
    let KeepHalfOpen { target, number, rate_per_s, again_ns } = *order;
    let lab = Addresses::new(false, target.is_ipv6());
    if target.ip() != lab.server || target.port() == 0 {
        return Err(format!(
            "half-open requests are opened at the lab's server ({}) only, not at {target}",
            lab.server
        ));
    }
    if let Some(other) = devices.iter().find(|name| !["lo", DEVICE].contains(&name.as_str())) {
        return Err(format!(
            "half-open requests are opened inside a lab only: this network has the device {other}, \
             which is not the lab's"
        ));
    }
    if !devices.iter().any(|name| name == DEVICE) {
        return Err(format!(
            "half-open requests are opened inside a lab only: this network has no device {DEVICE}"
        ));
    }
    if number == 0 || number > NUMBER_MAX {
        return Err(format!("{number} half-open requests: write a number from 1 to {NUMBER_MAX}"));
    }
    if !(rate_per_s > 0.0 && rate_per_s <= RATE_MAX) {
        return Err(format!(
            "{rate_per_s} SYNs per second: write a rate above 0 and at most {RATE_MAX}"
        ));
    }
    if u128::from(again_ns) < AGAIN_MIN.as_nanos() {
        return Err(format!(
            "SYNs again after {again_ns} ns: write a time of at least {} ms",
            AGAIN_MIN.as_millis()
        ));
    }
    if number as f64 / rate_per_s > FIRST_PASS.as_secs_f64() {
        return Err(format!(
            "{number} half-open requests at {rate_per_s} SYNs per second take more than {} s to open: \
             raise the rate",
            FIRST_PASS.as_secs()
        ));
    }
    Ok(())
}

/// What the thread has.
struct Sender {
    raw: RawIp,
    rate_per_s: f64,
    again_ns: u64,
    stop: Arc<AtomicBool>,
    report: HalfOpenReport,
}

impl Sender {
    /// Sends the packets again and again until it is stopped.
    fn run(mut self, packets: &Packets, passed: &SyncSender<()>) -> HalfOpenReport {
        let begun = monotonic_ns();
        let between_ns = 1e9 / self.rate_per_s;
        let mut pass_ns = begun;
        while !self.stop.load(Ordering::Relaxed) && self.report.failed.is_none() {
            for (at, packet) in packets.iter().enumerate() {
                let due = pass_ns + (at as f64 * between_ns) as u64;
                if at.is_multiple_of(TOGETHER) && !self.wait_until(due + self.late_ns(between_ns)) {
                    break;
                }
                if !self.send(packet) {
                    break;
                }
            }
            // Told once; nobody listens any more after that.
            let _ = passed.try_send(());
            let next = pass_ns.saturating_add(self.again_ns).max(monotonic_ns());
            self.wait_until(next);
            pass_ns = next;
        }
        self.report.elapsed_ns = monotonic_ns() - begun;
        self.report
    }

    /// Time that a whole group of packets is due in.
    fn late_ns(&self, between_ns: f64) -> u64 {
        if self.report.syns == 0 { 0 } else { (TOGETHER as f64 * between_ns) as u64 }
    }

    /// Waits; gives whether to go on.
    fn wait_until(&self, at_ns: u64) -> bool {
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return false;
            }
            match at_ns.saturating_sub(monotonic_ns()) {
                0 => return true,
                left => park_timeout(Duration::from_nanos(left)),
            }
        }
    }

    /// Sends one packet; gives whether to go on.
    fn send(&mut self, packet: &[u8]) -> bool {
        match self.raw.send(packet) {
            Ok(()) => self.report.syns += 1,
            Err(error) if matches!(error.raw_os_error(), Some(EAGAIN | ENOBUFS)) => {
                self.report.refused += 1;
            }
            Err(error) => {
                self.report.failed =
                    Some(format!("a SYN of a half-open request could not be sent: {error}"));
                return false;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn order(target: &str, number: u64, rate_per_s: f64) -> KeepHalfOpen {
        let target = target.parse::<SocketAddr>().unwrap();
        KeepHalfOpen { target, number, rate_per_s, again_ns: 600_000_000 }
    }

    fn devices(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn the_server_of_the_lab_is_accepted_and_every_other_target_refused() {
        let lab = devices(&["link0", "lo"]);
        for server in ["10.77.0.2:80", "[fd77::2]:80"] {
            assert_eq!(check(&order(server, 129, 1_000.0), &lab), Ok(()), "{server}");
        }
        for other in [
            "10.77.0.1:80",
            "10.77.0.2:0",
            "10.77.0.3:80",
            "127.0.0.1:80",
            "192.0.2.1:80",
            "0.0.0.0:80",
            "[::1]:80",
            "[fd77::1]:80",
            "[2001:db8::1]:80",
            "[::ffff:10.77.0.2]:80",
        ] {
            let refusal = check(&order(other, 129, 1_000.0), &lab).unwrap_err();
            assert!(refusal.contains("the lab's server"), "{refusal}");
        }
    }

    #[test]
    fn a_network_with_another_device_or_without_the_lab_s_is_refused() {
        let wanted = order("10.77.0.2:80", 129, 1_000.0);
        let machine = check(&wanted, &devices(&["eth0", "link0", "lo"])).unwrap_err();
        assert!(machine.contains("eth0"), "{machine}");
        for without in [&["lo"][..], &[]] {
            let refusal = check(&wanted, &devices(without)).unwrap_err();
            assert!(refusal.contains("no device link0"), "{refusal}");
        }
    }

    #[test]
    fn number_and_rate_are_bounded() {
        let lab = devices(&["link0", "lo"]);
        let refused = |number, rate| check(&order("10.77.0.2:80", number, rate), &lab).is_err();
        assert!(refused(0, 1_000.0) && refused(65_537, 50_000.0) && !refused(65_536, 50_000.0));
        assert!(
            [0.0, -1.0, f64::NAN, f64::INFINITY, 50_001.0].iter().all(|&rate| refused(9, rate))
        );
        assert!(refused(31, 1.0) && !refused(30, 1.0), "30 s");
        let flood = KeepHalfOpen { again_ns: 99_999_999, ..order("10.77.0.2:80", 9, 9.0) };
        assert!(check(&flood, &lab).is_err());
    }

    #[test]
    fn on_the_machine_s_own_network_it_does_not_begin() {
        // Whatever this test runs in, it is no lab.
        let refused = HalfOpenPeer::begin(&order("10.77.0.2:80", 1, 1.0)).unwrap_err();
        assert!(refused.to_string().contains("inside a lab only"), "{refused}");
    }
}
