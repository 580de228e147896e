//! From what the fleets and the link reported to the arm that is recorded.
//!
//! A trial in which a process of the lab could not run is excluded, if that lasted longer than a quarter of
//! the time in which a peer has to answer. On a virtual machine that stood still for 2 s, heartbeats closed
//! 1,000 of 1,000 live connections immediately, and rightly so.
//!
//! How late the machine was is measured and not guessed: a death is late beyond bound, granularity and twice
//! the longest time from when the checking program had asked to be woken to when it had done what was due. An
//! allowance of 5 ms for a wake-up was too small where all cores were busy: a missing answer was detected
//! 15 ms late, and nothing was wrong. A fault begins when it is in effect: a stopped process is waited for.

use super::settings::{Fault, Side};
use super::stage::Ports;
use super::trial::{FaultResult, KeepaliveTrial, StageObservation};
use super::{
    ARRIVAL, BYTES, CLIENT_IDLE_CPU, CLIENT_KERNEL_MEMORY, CLIENT_MEMORY, DEATHS_KNOWN,
    DEATHS_UNNOTICED, DETECTION, HEARTBEATS, LINK_CPU, MACHINE_CPU, PACKETS, PROBES, PROBES_RATE,
    RATE, SERVER_IDLE_CPU, SERVER_KERNEL_MEMORY, SERVER_MEMORY,
};
use crate::kit::notes::path_sample;
use tcptoll_core::experiment::figures::GOODPUT;
use tcptoll_core::link::ETHERNET_OVERHEAD;
use tcptoll_core::record::{Deaths, HostSummary, Keepalive};
use tcptoll_core::stats::Histogram;
use tcptoll_core::tcp::checking::{Mechanism, expected_false_alarms};
use tcptoll_core::tcp::wire::{QuietCounts, Traffic, Wire};
use tcptoll_core::verdict::validity;
use tcptoll_lab::messages::{Counted, IdleReport};

/// From so many connections on the CPU of the machine is told for each thousand.
const MANY: u64 = 10_000;

/// From so many connections on, what a program uses is not its start and its ticks alone.
const SOME: u64 = 100;

/// A connection that was alive and was closed by its own side.
const CLOSED_ALIVE: &str = "closed-alive";

/// A connection that the peer closed or reset while it idled, and no fault was the reason.
const CLOSED_BY_PEER: &str = "closed-by-peer";

impl KeepaliveTrial<'_> {
    pub(super) fn take_seen(&mut self, seen: &StageObservation, ports: Ports) {
        self.judge_machine(seen);
        self.take_connections(seen);
        self.take_writer(seen);
        let checked = self.checked(seen, ports);
        self.take_costs(seen, &checked);
        self.notes.arm.elapsed_s = (seen.ends.client.at_ns - seen.begins.client.at_ns) as f64 / 1e9
            + seen.faulted.as_ref().map_or(0.0, |faulted| faulted.watched.as_secs_f64());
        if let Some((Deaths { dead: dead @ 1.., known, .. }, faulted)) =
            checked.deaths.as_ref().zip(seen.faulted.as_ref())
        {
            let (dead, known) = (*dead, *known);
            self.notes.histogram(&DETECTION, &faulted.after.detection);
            for (metric, count) in
                [(&DEATHS_KNOWN, known), (&DEATHS_UNNOTICED, dead.saturating_sub(known))]
            {
                self.notes.metric(metric, Some(count as f64), dead);
            }
        }
        let arrivals =
            seen.faulted.as_ref().map_or(&seen.ends.arrived.arrival, |s| &s.arrived.arrival);
        self.notes.histogram(&ARRIVAL, arrivals);
        self.notes.arm.own = checked.into();
    }

    /// Whether everything could run when it wanted to: a peer that could not answer is not dead.
    fn judge_machine(&mut self, seen: &StageObservation) {
        let link = |counted: Option<&Counted>| counted.map_or(0, |counted| counted.overslept_ns);
        let mut longest_ns = link(seen.ends.counted.as_ref())
            .max(seen.ends.client.overslept_ns)
            .max(seen.ends.server.overslept_ns);
        if let Some(faulted) = &seen.faulted {
            longest_ns =
                longest_ns.max(link(faulted.wire_after.as_ref())).max(faulted.after.overslept_ns);
        }
        let answer_s = match self.checking.mechanism {
            Mechanism::Tcp => self.checking.interval_s,
            Mechanism::Heartbeat | Mechanism::Lazy => self.checking.answer_within_s,
            Mechanism::None | Mechanism::Write => None,
        };
        self.notes.found(validity::peers_unheard(longest_ns as f64 / 1e9, answer_s));
    }

    /// Every connection is an attempt; one that was closed while it lived is an error.
    fn take_connections(&mut self, seen: &StageObservation) {
        let (client, writer) = (&seen.ends.client, &seen.ends.writer);
        let arrived = seen.faulted.as_ref().map_or(&seen.ends.arrived, |faulted| &faulted.arrived);
        let mut all = client.clone();
        all.add(writer.clone());
        all.add(arrived.clone());
        let [wrongly, by_peer] = self.closed_alive(seen);
        let arm = &mut self.notes.arm;
        arm.attempts = all.attempted;
        arm.errors = all.errors;
        // Still on their way when the trial ended.
        let known: u64 = arm.errors.values().sum();
        let unfinished = all.attempted.saturating_sub(all.made + known);
        if unfinished > 0 {
            arm.errors.insert("interrupted".to_owned(), unfinished);
        }
        if wrongly > 0 {
            arm.errors.insert(CLOSED_ALIVE.to_owned(), wrongly);
        }
        if by_peer > 0 {
            arm.errors.insert(CLOSED_BY_PEER.to_owned(), by_peer);
        }
        arm.ok = all.made.saturating_sub(wrongly + by_peer);
        for (host, report) in
            [(Some(&mut arm.client), client), (arm.server.as_mut(), &seen.ends.server)]
        {
            if let Some(host) = host {
                host.tcp_info = path_sample(&report.tcp_info, &report.congestion);
            }
        }
        if all.made < all.attempted {
            self.notes.exclude("some connections could not be opened");
        }
        if seen.ends.server.errors.values().sum::<u64>() > 0 {
            self.notes.exclude("the server could not accept or check every connection");
        }
        // What the client holds and the server does not was refused behind the client's back.
        let served = &seen.begins.server;
        let open = |report: &IdleReport| report.open[0] + report.open[1];
        if self.settings.to.is_none() && open(served) < self.settings.idle_sockets() {
            self.notes.exclude("connections were lost before the measured window began");
        }
    }

    /// Connections that nothing had happened to, and that ended: given up by their own side, and
    /// closed by the peer.
    fn closed_alive(&self, seen: &StageObservation) -> [u64; 2] {
        let checking = match self.settings.side {
            Side::Client => &seen.ends.client,
            Side::Server | Side::Both => &seen.ends.server,
        };
        let (healthy, faulted) = match &seen.faulted {
            None => (checking, checking),
            Some(faulted) if matches!(faulted.fault, Fault::Loss(_)) => {
                (&faulted.after, &faulted.after)
            }
            Some(faulted) => (&faulted.after, &faulted.before),
        };
        let given_up = healthy.given_up(0) + faulted.given_up(1);
        [given_up, healthy.ended(0) + faulted.ended(1) - given_up]
    }

    /// Messages per second: what the server's kernel acknowledged.
    fn take_writer(&mut self, seen: &StageObservation) {
        if !self.settings.writer {
            return;
        }
        let (before, after) = (&seen.begins.writer, &seen.ends.writer);
        let bytes = after.bytes_acked.saturating_sub(before.bytes_acked);
        let time_s = after.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
        let messages = bytes / self.settings.message_bytes;
        let per_s = bytes as f64 / self.settings.message_bytes as f64 / time_s;
        self.notes.metric(&RATE, Some(per_s), messages);
        self.notes.metric(&GOODPUT, Some(bytes as f64 / time_s), messages);
        let client_us = after.cpu_since(before);
        let server_us = seen.ends.sink.cpu_since(&seen.begins.sink);
        self.notes.client_cpu(client_us, messages, messages);
        self.notes.server_cpu(server_us, messages, messages);
    }

    /// What checking did in the window, and what it found out.
    fn checked(&self, seen: &StageObservation, ports: Ports) -> Keepalive {
        let settings = self.settings;
        let window_ns = seen.ends.client.at_ns.saturating_sub(seen.begins.client.at_ns);
        let wire = wire_between(seen.begins.counted.as_ref(), seen.ends.counted.as_ref());
        let quiet =
            wire.as_ref().map(|wire| on_ports(wire, &[ports.healthy.port(), ports.faulted.port()]));
        let both = quiet.as_ref().map(|[to_server, to_client]| to_server.plus(to_client));
        let nulls = |report: &IdleReport| report.nulls + report.answers;
        let nulls_sent = nulls(&seen.ends.client) + nulls(&seen.ends.server)
            - nulls(&seen.begins.client)
            - nulls(&seen.begins.server);
        let wakeups = seen.ends.client.wakeups + seen.ends.server.wakeups
            - seen.begins.client.wakeups
            - seen.begins.server.wakeups;
        Keepalive {
            checking: self.checking.clone(),
            detect_within_s: settings.detect_within.map(|time| time.as_secs_f64()),
            assumed: settings.detect_within.map(|_| settings.assumed),
            side: settings.side.name().to_owned(),
            ipv6: match &settings.to {
                Some(to) => to.known_address().is_some_and(|address| address.is_ipv6()),
                None => settings.lab.ipv6,
            },
            sockets: settings.sockets,
            idle_sockets: settings.idle_sockets(),
            processes: seen.processes,
            window_s: window_ns as f64 / 1e9,
            probes: both.map(|counts| counts.probes),
            probe_answers: both.map(|counts| counts.probe_answers),
            heartbeats: both.map(|counts| counts.heartbeats),
            heartbeat_acks: both.map(|counts| counts.acks),
            heartbeat_retransmissions: both.map_or(0, |counts| counts.heartbeat_retransmissions),
            nulls_sent,
            wakeups,
            link_share: quiet.zip(settings.lab.link.rate_bit_per_s).map(|(directions, rate)| {
                let line = directions.map(|counts| line_bytes(counts.all));
                line.into_iter().max().unwrap_or(0) as f64 * 8.0 / (rate * window_ns as f64 / 1e9)
            }),
            deaths: seen.faulted.as_ref().map(|faulted| self.deaths(faulted, ports)),
        }
    }

    fn deaths(&self, faulted: &FaultResult, ports: Ports) -> Deaths {
        let typed = self.settings.fault.as_ref().map_or(String::new(), |(typed, _)| typed.clone());
        let loss = match faulted.fault {
            Fault::Loss(share) => Some(share),
            _ => None,
        };
        let count = faulted.before.open[1];
        let ended = faulted.after.ended(1).saturating_sub(faulted.before.ended(1));
        let dead = if loss.is_some() { 0 } else { count };
        let (bound_s, granularity_s) = (self.checking.bound_s(), self.checking.granularity_s());
        // A RST or a FIN tells of itself; no mechanism has to find out.
        let told = matches!(faulted.fault, Fault::Reset | Fault::Close);
        let due = dead > 0 && !told && self.can_know(faulted.fault);
        let bound_s = bound_s.filter(|_| due);
        let behind_s = 2.0 * faulted.after.behind_ns as f64 / 1e9;
        let healthy = faulted.before.open[0];
        let given_up = |kind| faulted.after.given_up(kind) - faulted.before.given_up(kind);
        let wrongly = given_up(0) + if loss.is_some() { given_up(1) } else { 0 };
        let wire = wire_between(faulted.wire_before.as_ref(), faulted.wire_after.as_ref());
        let quiet = wire.as_ref().map(|wire| on_ports(wire, &[ports.faulted.port()]));
        let rtt_s = self.settings.lab.link.rtt.as_secs_f64();
        let tests = loss.and_then(|loss| {
            let (tested, nulls) = faulted.tested.as_ref()?;
            let wire = wire_between(faulted.wire_before.as_ref(), tested.as_ref());
            let sent = match self.checking.mechanism {
                Mechanism::Tcp => {
                    let [a, b] = on_ports(wire.as_ref()?, &[ports.faulted.port()]);
                    a.plus(&b).probes.packets
                }
                _ => nulls.saturating_sub(faulted.before.nulls),
            };
            self.checking.tests_of(sent, loss)
        });
        let probability = loss.and_then(|loss| self.checking.false_alarm(loss, rtt_s));
        let mut deaths = Deaths {
            fault: typed,
            stricken: count,
            dead,
            known: if loss.is_some() { 0 } else { ended },
            known_by: faulted.after.ended[1].clone(),
            read_said: faulted.after.read_said.clone(),
            watched_s: faulted.watched.as_secs_f64(),
            bound_s,
            granularity_s: bound_s.and(granularity_s),
            behind_s: bound_s.map(|_| behind_s),
            late: 0,
            alive: healthy + if loss.is_some() { count } else { 0 },
            wrongly_closed: wrongly,
            tests,
            test_probability: probability,
            expected_wrongly: tests.zip(probability).map(|(n, p)| expected_false_alarms(n, p)),
            traffic: quiet.map(|[a, b]| a.plus(&b).all),
            arrivals: faulted.arrived.attempted,
        };
        if let Some(due) = deaths.due_s() {
            deaths.late = beyond(&faulted.after.detection, due + behind_s);
        }
        deaths
    }

    /// Whether the mechanism can know of such a death at all.
    fn can_know(&self, fault: Fault) -> bool {
        use tcptoll_core::tcp::checking::Evidence;
        match fault {
            // The kernel of a stopped process answers probes and acknowledges data.
            Fault::Freeze => self.checking.evidence == Some(Evidence::Answered),
            _ => true,
        }
    }

    /// Probes that both kernels say they sent. None: others on those machines send some, too.
    pub(super) fn probes_sent(&self) -> Option<u64> {
        let sent = |host: &HostSummary| Some(host.counter("TcpExtTCPKeepAlive")?.max(0) as u64);
        let arm = &self.notes.arm;
        Some(sent(&arm.client)? + arm.server.as_ref().map_or(Some(0), sent)?)
    }

    fn take_costs(&mut self, seen: &StageObservation, checked: &Keepalive) {
        let idle = checked.idle_sockets;
        let window_s = checked.window_s;
        let per_hour = 3600.0 / window_s / idle.max(1) as f64;
        let traffic =
            [checked.probes, checked.probe_answers, checked.heartbeats, checked.heartbeat_acks];
        let all: Option<Vec<Traffic>> = traffic.into_iter().collect();
        if let Some(all) = &all {
            let packets: u64 = all.iter().map(|traffic| traffic.packets).sum();
            let bytes: u64 = all.iter().map(|traffic| traffic.bytes).sum();
            let probes = checked.probes.unwrap_or_default().packets;
            let nulls = checked.heartbeats.unwrap_or_default().packets;
            self.notes.metric(&PROBES_RATE, Some(probes as f64 / window_s), probes);
            self.notes.metric(&HEARTBEATS, Some(nulls as f64 / window_s), nulls);
            // In a window shorter than that a connection may be checked or not, as it happens.
            let whole = checked.checking.period_s().is_none_or(|period| period <= window_s);
            if idle > 0 && whole {
                let [packets, bytes] = [packets, bytes].map(|count| Some(count as f64 * per_hour));
                self.notes.metric(&PACKETS, packets, idle);
                self.notes.metric(&BYTES, bytes, idle);
            }
        }
        let probes = self.probes_sent();
        self.notes.metric(&PROBES, probes.map(|probes| probes as f64), 1);
        if idle == 0 {
            return;
        }
        let per_1000 = 1e3 / idle as f64 / window_s;
        let cpu = |before: &IdleReport, after: &IdleReport| {
            let (user, system) = after.cpu_since(before);
            (user + system) as f64
        };
        let machine_us = seen.ends.machine.used_us(&seen.begins.machine);
        let pump_us = match (&seen.begins.counted, &seen.ends.counted) {
            (Some(before), Some(after)) => after.cpu_us.saturating_sub(before.cpu_us) as f64,
            _ => 0.0,
        };
        let fleets = [
            (&CLIENT_IDLE_CPU, cpu(&seen.begins.client, &seen.ends.client)),
            (&SERVER_IDLE_CPU, cpu(&seen.begins.server, &seen.ends.server)),
        ];
        let has_server = self.settings.to.is_none();
        let told = match (idle >= SOME, has_server) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 2,
        };
        for (metric, us) in fleets.into_iter().take(told) {
            self.notes.metric(metric, Some(us * per_1000), idle);
        }
        // With a writer, or of few connections, it would be the CPU of other things.
        if !self.settings.writer && has_server && idle >= MANY {
            // What a packet costs the host that receives it is in the link's share: the kernel does
            // that work where the link's program hands the packet over.
            for (metric, us) in
                [(&MACHINE_CPU, (machine_us - pump_us).max(0.0)), (&LINK_CPU, pump_us)]
            {
                self.notes.metric(metric, Some(us * per_1000), idle);
            }
        }
        let each = |bytes: u64| Some(bytes as f64 / idle as f64);
        for (metric, value) in [
            (&CLIENT_MEMORY, each(seen.ends.client.resident_bytes)),
            (&SERVER_MEMORY, each(seen.ends.server.resident_bytes).filter(|_| has_server)),
            (&CLIENT_KERNEL_MEMORY, seen.memory.client),
            (&SERVER_KERNEL_MEMORY, seen.memory.server),
        ] {
            self.notes.metric(metric, value, idle);
        }
    }
}

fn wire_between(before: Option<&Counted>, after: Option<&Counted>) -> Option<Wire> {
    Some(after?.wire.as_ref()?.since(before?.wire.as_ref()?))
}

/// Counts of these ports together, to the server and to the client.
fn on_ports(wire: &Wire, ports: &[u16]) -> [QuietCounts; 2] {
    let mut sums = [QuietCounts::default(); 2];
    let mut ports = ports.to_vec();
    ports.dedup();
    for quiet in ports.iter().filter_map(|port| wire.quiet_on(*port)) {
        sums[0] = sums[0].plus(&quiet.client_to_server);
        sums[1] = sums[1].plus(&quiet.server_to_client);
    }
    sums
}

/// What packets take on an Ethernet line.
fn line_bytes(traffic: Traffic) -> u64 {
    traffic.bytes + traffic.packets * u64::from(ETHERNET_OVERHEAD)
}

/// Values above so many seconds.
fn beyond(histogram: &Histogram, seconds: f64) -> u64 {
    let limit_ns = (seconds * 1e9) as u64;
    histogram
        .buckets_ns()
        .into_iter()
        .filter(|(ns, _)| *ns > limit_ns)
        .map(|(_, count)| count)
        .sum()
}
