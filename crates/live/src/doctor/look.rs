//! One examination of a machine: looks over some seconds, sysctls, neighbours, servers. It only reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tcptoll_core::units::host_port;

use tcptoll_kernel::SysError;
use tcptoll_kernel::connections::{Connection, Silence, Timer};
use tcptoll_kernel::sock_diag::SockDiag;
use tcptoll_lab::observe::read_sysctl;

use super::neighbours::{Forgets, Held, KeepAlive, Neighbours, Routes, forgets};
use super::rules::SYSCTLS;
use super::{Machine, Neighbour, Opening, StandingQueue, servers};
use crate::watch::diagnoses::DIAGNOSES_MAX;
use crate::watch::diagnoses::queues::{FULL, UNKNOWN};
use crate::watch::reader::{NamespaceReader, Options, is_root, new_history};
use crate::watch::{History, Look, Standing, State, diagnoses};
use tcptoll_core::finding::Finding;

/// Time between two looks; of a short examination, a quarter of it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A stop is looked for this often.
const STOP_EVERY: Duration = Duration::from_millis(50);
/// Notes, at most.
const NOTES_MAX: usize = 32;

/// How far an examination is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Time since it began.
    pub passed: Duration,
    /// Time that it lasts.
    pub lasts: Duration,
    /// Looks so far.
    pub looks: u32,
    /// Diagnoses of the state so far.
    pub diagnoses: usize,
}

/// Looks at the machine for this long, each second, and calls `progress` after each look.
///
/// As soon as `stopped` says so it ends, and gives what was seen until then. All sockets are dumped
/// three times: at the beginning, in the middle and at the end.
///
/// Must be called before any thread is started. Errors: as [`NamespaceReader::open`] and [`NamespaceReader::look`].
pub fn examine(
    options: &Options,
    lasts: Duration,
    stopped: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Machine, SysError> {
    let mut reader = NamespaceReader::open(options)?;
    // One of all looks, for peaks and what is seen between; one of the first and the last, for rates.
    let (mut all, mut whole) = (new_history(), new_history());
    let mut seen = StateSums::new();
    let settings = sysctls();
    let every = LOOK_EVERY.min(lasts / 4).max(Duration::from_millis(1));
    let first = reader.look_at_all()?;
    let began = Instant::now();
    whole.push(first.clone());
    let mut last = take(&mut seen, &mut all, first, true);
    let mut is_halved = false;
    loop {
        progress(Progress {
            passed: began.elapsed(),
            lasts,
            looks: seen.looks(),
            diagnoses: seen.diagnoses(),
        });
        let is_last = began.elapsed() + every >= lasts;
        pause(began + (began.elapsed() + every).min(lasts), stopped);
        let ends = is_last || stopped();
        let half = !is_halved && began.elapsed() * 2 >= lasts;
        is_halved |= half;
        let look = if ends || half { reader.look_at_all()? } else { reader.look()? };
        last = if ends { look.clone() } else { last };
        take(&mut seen, &mut all, look, ends || half);
        if ends {
            break;
        }
    }
    let state = whole.push(last).clone();
    progress(Progress {
        passed: began.elapsed(),
        lasts,
        looks: seen.looks(),
        diagnoses: seen.diagnoses(),
    });
    let mut summary = seen.finish(state);
    let routes = routes();
    let now = sysctls();
    let forgets = forgets(&now, summary.state.counted.tracked);
    let (neighbours, left_out) = neighbours(&routes, forgets)?;
    let servers = servers::configured(&summary.state.listeners);
    // The dump of connections and the files were the largest part.
    summary.state.cost = reader.cost();
    let mut notes = changed(&settings, &now);
    if left_out > 0 {
        notes.push(format!(
            "{left_out} connections to further peers were not examined individually"
        ));
    }
    notes.truncate(NOTES_MAX);
    Ok(Machine {
        by_root: is_root(),
        state: summary.state,
        sysctls: now,
        neighbours,
        servers,
        addresses: routes.own(),
        standing: summary.standing,
        openings: summary.openings,
        tracked_per_s: summary.tracked_per_s,
        notes,
    })
}

/// Puts a look into the summary; gives it back.
fn take(seen: &mut StateSums, all: &mut History, look: Look, dumped: bool) -> Look {
    let state = all.push(look.clone());
    seen.see(state);
    if dumped {
        seen.dump(state);
    }
    look
}

/// Waits until then, or until it is stopped.
fn pause(until: Instant, stopped: &dyn Fn() -> bool) {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stopped() {
            return;
        }
        sleep(left.min(STOP_EVERY));
    }
}

/// The sysctls that rules look at; those that this namespace does not have are absent.
fn sysctls() -> BTreeMap<String, String> {
    let value = |name: &&str| Some(((*name).to_owned(), read_sysctl(name).ok()?));
    SYSCTLS.iter().filter_map(value).collect()
}

/// A note for each setting that was changed during the examination.
fn changed(before: &BTreeMap<String, String>, after: &BTreeMap<String, String>) -> Vec<String> {
    let absent = || "absent".to_owned();
    let names = SYSCTLS.iter().filter(|name| before.get(**name) != after.get(**name));
    names
        .map(|name| {
            let [from, to] =
                [before, after].map(|all| all.get(*name).cloned().unwrap_or_else(absent));
            format!(
                "{name} changed from {from} to {to} during the examination; the findings use {to}. Examine again."
            )
        })
        .collect()
}

/// Routes and own addresses; those of a family that cannot be read are absent.
pub(super) fn routes() -> Routes {
    let text = |file: &str| {
        fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default()
    };
    Routes::read(&text("route"), &text("ipv6_route"), &text("fib_trie"), &text("if_inet6"))
}

/// Established connections, grouped; and how many there was no room for.
///
/// Cost: one dump of all established connections with their `tcp_info`.
///
/// Errors: the kernel refused the dump.
pub(super) fn neighbours(
    routes: &Routes,
    forgets: Forgets,
) -> Result<(Vec<Neighbour>, u64), SysError> {
    let mut diag = SockDiag::open()?;
    let listening: BTreeSet<u16> =
        diag.listeners()?.iter().map(|socket| socket.address.port()).collect();
    let mut all = Neighbours::new(&listening, routes, forgets);
    diag.silences(|connection, silence| all.add(&held(connection, silence)))?;
    Ok(all.finish())
}

fn held(connection: &Connection, silence: Option<Silence>) -> Held {
    let timer = match (connection.timer, silence) {
        (None, _) => KeepAlive::Off,
        // Probes that are not answered come by another time.
        (Some(Timer::KeepAlive), Some(silence)) if connection.retransmits == 0 => {
            KeepAlive::After((silence.of_peer() + connection.expires).as_secs_f64())
        }
        // Without its silence it is not known when it began.
        (Some(_), _) => KeepAlive::Hidden,
    };
    Held {
        local: connection.local,
        remote: connection.remote,
        timer,
        idle_s: silence.map(|silence| silence.of_data().as_secs_f64()),
    }
}

/// Sockets that are followed: eight times what a state has.
const SOCKETS_MAX: usize = 8_192;

/// Sums up the states of an examination, one after the other, in bounded memory.
#[derive(Debug, Default)]
pub(super) struct StateSums {
    looks: u32,
    found: BTreeMap<(String, String), Finding>,
    /// By inode: a socket that is made anew is another.
    queues: BTreeMap<u64, Queue>,
    /// Ports in use and in TIME-WAIT by destination, of each dump of all sockets.
    dumps: Vec<(f64, Ports)>,
    tracked: Vec<(f64, u64)>,
}

/// Ports in use and in TIME-WAIT, by destination.
type Ports = BTreeMap<String, (u32, u32)>;

/// The queue of one socket.
#[derive(Debug)]
struct Queue {
    lengths: StandingQueue,
    peak: u32,
    drops: Option<u64>,
    /// Of all looks so far: the state of the first and the last knows two.
    stands: Option<Box<Standing>>,
}

impl StateSums {
    /// None yet.
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Looks so far.
    pub(super) fn looks(&self) -> u32 {
        self.looks
    }

    /// Diagnoses so far.
    pub(super) fn diagnoses(&self) -> usize {
        self.found.len()
    }

    /// Takes one state.
    pub(super) fn see(&mut self, state: &State) {
        self.looks = self.looks.saturating_add(1);
        let active = state.diagnoses.iter().filter(|one| !one.evidence.contains_key("ended_s_ago"));
        for one in active {
            self.name(one);
        }
        for one in &state.listeners {
            let length = one.accept_queue_len;
            if self.queues.len() >= SOCKETS_MAX && !self.queues.contains_key(&one.inode) {
                continue;
            }
            let entry = self.queues.entry(one.inode).or_insert_with(|| Queue {
                lengths: StandingQueue {
                    on: host_port(&one.address, one.port),
                    shortest: length,
                    ..StandingQueue::default()
                },
                peak: 0,
                drops: None,
                stands: None,
            });
            let queue = &mut entry.lengths;
            queue.shortest = queue.shortest.min(length);
            queue.longest = queue.longest.max(length);
            queue.limit = one.accept_queue_limit;
            queue.looks = queue.looks.saturating_add(1);
            entry.peak = entry.peak.max(one.accept_queue_peak).max(length);
            entry.drops = one.drops.or(entry.drops);
            entry.stands.clone_from(&one.stands);
        }
    }

    /// Takes the dump of all sockets in a state whose look made one, and what is tracked then.
    pub(super) fn dump(&mut self, state: &State) {
        let used = state
            .destinations
            .iter()
            .map(|one| (host_port(&one.address, one.port), (one.ports_in_use, one.time_wait)));
        self.dumps.push((state.at_s, used.collect()));
        if let Some(tracked) = state.counted.tracked {
            self.tracked.push((state.at_s, tracked));
        }
    }

    /// The stronger of two of the same name and subject stays; of equals the later.
    fn name(&mut self, one: &Finding) {
        let key = (one.id.clone(), one.subject.clone());
        match self.found.get(&key) {
            Some(known) if known.severity < one.severity => {}
            None if self.found.len() >= DIAGNOSES_MAX => {}
            _ => {
                self.found.insert(key, one.clone());
            }
        }
    }

    /// Completes the state that the first and the last look make together: peaks and diagnoses of all
    /// looks between them are put into it.
    pub(super) fn finish(mut self, mut whole: State) -> Summary {
        for one in &mut whole.listeners {
            let Some(seen) = self.queues.get(&one.inode) else { continue };
            one.accept_queue_peak = one.accept_queue_peak.max(seen.peak);
            one.accept_queue_recent_peak = one.accept_queue_recent_peak.max(seen.peak);
            one.drops = one.drops.or(seen.drops);
            one.stands.clone_from(&seen.stands);
        }
        // With its rates over all looks and the peaks it says the same as the single looks, and better.
        let of_whole = diagnoses::find(&whole);
        for one in &of_whole {
            self.name(one);
        }
        let mut found: Vec<Finding> = std::mem::take(&mut self.found).into_values().collect();
        // One look may tell which listener it was where another one does not.
        if found.iter().any(|one| one.id == FULL && one.subject != UNKNOWN) {
            found.retain(|one| one.id != FULL || one.subject != UNKNOWN);
        }
        diagnoses::sort(&mut found);
        whole.diagnoses_left_out = found.len().saturating_sub(DIAGNOSES_MAX) as u64;
        found.truncate(DIAGNOSES_MAX);
        whole.diagnoses = found;
        let looks = self.looks;
        let stands = |queue: &StandingQueue| queue.shortest > 0 && queue.looks == looks;
        let standing =
            self.queues.values().map(|one| &one.lengths).filter(|queue| stands(queue)).cloned();
        Summary {
            standing: standing.collect(),
            openings: self.openings(),
            tracked_per_s: self.tracked_per_s(),
            state: whole,
        }
    }

    /// Destinations whose ports in use rose in both halves.
    fn openings(&self) -> Vec<Opening> {
        let [(from_s, from), (mid_s, mid), (to_s, to)] = &self.dumps[..] else { return Vec::new() };
        let none = (0, 0);
        let opening = |(name, last): (&String, &(u32, u32))| {
            let first = from.get(name).unwrap_or(&none);
            let middle = mid.get(name).unwrap_or(&none);
            let ports = lesser([(*from_s, first.0), (*mid_s, middle.0), (*to_s, last.0)])?;
            let time_wait = lesser([(*from_s, first.1), (*mid_s, middle.1), (*to_s, last.1)])?;
            Some(Opening { to: name.clone(), ports_per_s: ports, time_wait_per_s: time_wait })
        };
        to.iter().filter_map(opening).collect()
    }

    fn tracked_per_s(&self) -> Option<f64> {
        let [from, mid, to] = self.tracked[..] else { return None };
        lesser([from, mid, to])
    }
}

/// The lesser of the rates of both halves; none unless it rose in both.
fn lesser<T: Into<u64> + Copy>(marks: [(f64, T); 3]) -> Option<f64> {
    let [from, mid, to] = marks.map(|(at_s, level)| (at_s, level.into()));
    let rate = |(from_s, from): (f64, u64), (to_s, to): (f64, u64)| {
        let rise = to.checked_sub(from).filter(|rise| *rise > 0)?;
        let s = to_s - from_s;
        (s > 0.0).then(|| rise as f64 / s)
    };
    Some(rate(from, mid)?.min(rate(mid, to)?))
}

/// What an examination's looks come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Summary {
    /// See [`Machine::state`](super::Machine::state).
    pub state: State,
    /// See [`Machine::standing`](super::Machine::standing).
    pub standing: Vec<StandingQueue>,
    /// See [`Machine::openings`](super::Machine::openings).
    pub openings: Vec<Opening>,
    /// See [`Machine::tracked_per_s`](super::Machine::tracked_per_s).
    pub tracked_per_s: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::{DestinationState, ListenerState, Rates};
    use tcptoll_core::finding::Severity;

    #[test]
    fn a_setting_that_changed_meanwhile_is_noted_with_both_values() {
        let sysctls = |value: Option<&str>| {
            let value = value.map(|value| ("net.core.somaxconn".to_owned(), value.to_owned()));
            value.into_iter().collect::<BTreeMap<_, _>>()
        };
        assert!(changed(&sysctls(Some("128")), &sysctls(Some("128"))).is_empty());
        let [note] = &changed(&sysctls(Some("128")), &sysctls(Some("4096")))[..] else {
            panic!("one note")
        };
        assert!(note.contains("from 128 to 4096"), "{note}");
        let [note] = &changed(&sysctls(None), &sysctls(Some("4096")))[..] else {
            panic!("one note")
        };
        assert!(note.contains("from absent to 4096"), "{note}");
    }

    #[test]
    fn a_pause_ends_as_soon_as_it_is_stopped() {
        let asked = std::cell::Cell::new(0);
        let stopped = || {
            asked.set(asked.get() + 1);
            asked.get() > 2
        };
        pause(Instant::now() + Duration::from_hours(1), &stopped);
        assert_eq!(asked.get(), 3);
    }

    fn diagnosis(id: &str, subject: &str, severity: Severity, figure: u32) -> Finding {
        Finding {
            id: id.into(),
            severity,
            subject: subject.into(),
            text: figure.to_string(),
            evidence: [("figure".to_owned(), figure.into())].into(),
            remedies: Vec::new(),
        }
    }

    fn state(at_s: f64, diagnoses: Vec<Finding>) -> State {
        State { at_s, diagnoses, ..State::default() }
    }

    fn texts(summary: &Summary) -> Vec<(&str, &str)> {
        let pairs =
            summary.state.diagnoses.iter().map(|one| (one.subject.as_str(), one.text.as_str()));
        pairs.collect()
    }

    #[test]
    fn of_what_was_seen_the_strongest_stays_and_of_equals_the_latest() {
        let id = "memory-pressure";
        let mut seen = StateSums::new();
        seen.see(&state(1.0, vec![diagnosis(id, "a", Severity::Warning, 1)]));
        let problem = diagnosis(id, "a", Severity::Problem, 2);
        let other = diagnosis(id, "b", Severity::Warning, 3);
        seen.see(&state(2.0, vec![problem, other]));
        let mut ended = diagnosis(id, "c", Severity::Problem, 4);
        ended.evidence.insert("ended_s_ago".into(), 1.into());
        let later = diagnosis(id, "b", Severity::Warning, 6);
        seen.see(&state(3.0, vec![diagnosis(id, "a", Severity::Warning, 5), later, ended]));
        assert_eq!((seen.looks(), seen.diagnoses()), (3, 2));
        let summary = seen.finish(State::default());
        assert_eq!(texts(&summary), [("a", "2"), ("b", "6")]);
    }

    #[test]
    fn a_listener_that_one_look_named_is_not_named_as_unknown_too() {
        let mut seen = StateSums::new();
        let unknown = diagnosis(FULL, UNKNOWN, Severity::Problem, 1);
        seen.see(&state(1.0, vec![unknown.clone()]));
        assert_eq!(texts(&seen.finish(State::default())), [(UNKNOWN, "1")]);
        let mut seen = StateSums::new();
        seen.see(&state(1.0, vec![unknown]));
        seen.see(&state(2.0, vec![diagnosis(FULL, "10.0.0.1:80", Severity::Problem, 2)]));
        let near = diagnosis("accept-queue-near", "10.0.0.1:80", Severity::Warning, 3);
        seen.see(&state(3.0, vec![near]));
        assert_eq!(
            texts(&seen.finish(State::default())),
            [("10.0.0.1:80", "2")],
            "full says near too"
        );
    }

    fn queue(inode: u64, length: u32) -> ListenerState {
        ListenerState {
            address: "10.0.0.1".into(),
            port: 80,
            inode,
            accept_queue_len: length,
            accept_queue_peak: length,
            accept_queue_limit: 100,
            ..ListenerState::default()
        }
    }

    #[test]
    fn a_queue_stands_only_if_it_was_empty_at_no_look() {
        let mut seen = StateSums::new();
        for (at_s, lengths) in [(1.0, [3, 2, 5]), (2.0, [9, 0, 5]), (3.0, [4, 7, 5])] {
            let mut one = state(at_s, vec![]);
            one.listeners =
                (1..).zip(lengths).map(|(inode, length)| queue(inode, length)).collect();
            // A socket that came later.
            if at_s < 2.0 {
                one.listeners.pop();
            }
            seen.see(&one);
        }
        let mut whole = State { listeners: vec![queue(1, 4), queue(2, 7)], ..State::default() };
        whole.listeners[0].accept_queue_limit = 10;
        let summary = seen.finish(whole);
        let [one] = &summary.standing[..] else { panic!("{:?}", summary.standing) };
        assert_eq!(
            (one.shortest, one.longest, one.looks, one.on.as_str()),
            (3, 9, 3, "10.0.0.1:80")
        );
        // The peak between the first look and the last is in the state, and in what is said of it.
        assert_eq!(summary.state.listeners[0].accept_queue_peak, 9);
        let [near] = &summary.state.diagnoses[..] else { panic!("{:?}", summary.state.diagnoses) };
        assert_eq!(
            (near.id.as_str(), &near.evidence["accept_queue_recent_peak"]),
            ("accept-queue-near", &9.into())
        );
    }

    #[test]
    fn ports_and_tracked_connections_rise_at_the_lesser_rate_of_both_halves() {
        let rates = |marks: &[(f64, u32, u64)]| {
            let mut seen = StateSums::new();
            for &(at_s, ports_in_use, tracked) in marks {
                let mut one = state(at_s, vec![]);
                one.counted.tracked = Some(tracked);
                one.destinations = vec![DestinationState {
                    address: "10.0.0.9".into(),
                    port: 80,
                    ports_in_use,
                    time_wait: ports_in_use / 2,
                    ..DestinationState::default()
                }];
                seen.dump(&one);
            }
            let summary = seen.finish(State { rates: Some(Rates::default()), ..State::default() });
            let opening =
                summary.openings.first().map(|one| (one.ports_per_s, one.time_wait_per_s));
            (opening, summary.tracked_per_s)
        };
        assert_eq!(
            rates(&[(0.0, 0, 10), (2.0, 400, 30), (4.0, 600, 130)]),
            (Some((100.0, 50.0)), Some(10.0))
        );
        assert_eq!(rates(&[(0.0, 0, 10), (2.0, 400, 10), (4.0, 400, 30)]), (None, None), "a burst");
        assert_eq!(rates(&[(0.0, 0, 10), (2.0, 400, 30)]), (None, None), "two dumps");
        assert_eq!(
            rates(&[(0.0, 0, 1), (0.0, 400, 2), (4.0, 600, 3)]),
            (None, None),
            "no time passed"
        );
    }
}
