//! How fast, how many, how long: what follows from the settings of `http` before anything is sent.

use std::time::Duration;

use super::requests::LabServer;
use super::settings::{HttpSettings, PUBLIC_REQUESTS, Tls};
use crate::kit::hosts::{OVERHEAD_S, PORT_S};
use crate::kit::plan::SplitPlan;
use crate::kit::settings::WarmUp;
use crate::kit::target::{PUBLIC_RATE_PER_S, Target};
use tcptoll_core::http::reuse::Reuse;
use tcptoll_core::number;
use tcptoll_core::study::points;
use tcptoll_core::study::points::Share;
use tcptoll_core::units::plural;
use tcptoll_lab::messages::{Io, ServerKind};

/// Warm-up and measured time of a trial, unless told otherwise.
const WARM_UP: Duration = Duration::from_millis(200);
const DURATION: Duration = Duration::from_secs(1);

/// The ramp begins so many connections per second.
const RAMP_PER_S: f64 = 10_000.0;

/// Up to so many connections may begin at once where packets have no distance: fewer than any
/// backlog of our servers holds.
const AT_ONCE: u64 = 1_000;

/// A closed loop asks no more than this with one thread: on connections that are used again, on
/// new ones, and on new ones with a full handshake of TLS. Upper bounds for what ports are needed
/// and how long a number of requests takes, not measurements.
const REUSED_MAX_PER_S: f64 = 100_000.0;
const NEW_MAX_PER_S: f64 = 25_000.0;
const TLS_MAX_PER_S: f64 = 2_500.0;

/// How much is sent, and when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pace {
    /// Requests per second; absent: closed loop.
    pub(super) rate: Option<f64>,
    pub(super) requests: Option<u64>,
    pub(super) duration: Option<Duration>,
    pub(super) warmup: WarmUp,
    pub(super) ramp: Duration,
}

impl HttpSettings {
    /// How much is sent, and when. A server that may belong to somebody else gets little unless the
    /// user asked for more.
    pub(super) fn pace(&self) -> Pace {
        let public = self.target().is_some_and(Target::seems_public);
        let load = &self.load;
        let rate = load.rate.or(public.then_some(PUBLIC_RATE_PER_S));
        let (requests, duration) = match (load.requests, load.duration) {
            (None, None) if public => (Some(PUBLIC_REQUESTS), None),
            (None, None) => (None, Some(DURATION)),
            asked => asked,
        };
        // A part of a load ends after its part of the requests, so that all parts together are the whole.
        let (requests, duration) = match self.whole_requests(rate, requests, duration) {
            Some((share, whole)) => (Some(share.count(whole)), None),
            None => (requests, duration),
        };
        let rate = rate.map(|rate| load.share.map_or(rate, |share| share.rate(rate)));
        let rtt = self.lab().map_or(Duration::ZERO, |lab| lab.spec.link.rtt);
        let near = self.lab().is_none_or(|lab| lab.spec.link.rtt.is_zero());
        let ramp = match load.ramp {
            Some(ramp) => ramp,
            None if rate.is_some() || near && load.connections <= AT_ONCE => Duration::ZERO,
            None => Duration::from_secs_f64(load.connections as f64 / RAMP_PER_S).max(rtt),
        };
        // A number of requests is the number that the server gets, and so is what a server that is not ours is asked.
        let all_measured = public || load.requests.is_some();
        let otherwise = if all_measured { Duration::ZERO } else { WARM_UP + ramp };
        let warmup = load.warmup.unwrap_or(WarmUp::Time(otherwise));
        Pace { rate, requests, duration, warmup, ramp }
    }

    /// The part of a split load, and the requests of the whole.
    fn whole_requests(
        &self,
        rate: Option<f64>,
        requests: Option<u64>,
        duration: Option<Duration>,
    ) -> Option<(Share, u64)> {
        let (share, rate) = self.load.share.zip(rate)?;
        let scheduled = duration.map(|long| points::scheduled(rate, long.as_secs_f64()));
        let whole = [requests, scheduled].into_iter().flatten().min()?;
        Some((share, whole))
    }

    /// Of a split load: its parts, and the requests of the whole in each trial.
    pub(super) fn split(&self) -> Option<SplitPlan> {
        let load = &self.load;
        let duration = if load.requests.is_none() && load.duration.is_none() {
            Some(DURATION)
        } else {
            load.duration
        };
        let (share, operations) = self.whole_requests(load.rate, load.requests, duration)?;
        Some(SplitPlan { share, operations })
    }

    /// How long after the others' beginning this part of a split load begins.
    pub(super) fn turn(&self) -> Duration {
        let turn = self.load.share.zip(self.load.rate).map(|(share, rate)| share.after_s(rate));
        turn.map_or(Duration::ZERO, Duration::from_secs_f64)
    }

    /// `50 connections, closed loop, 10.0 s, 1 thread, io_uring if the kernel allows it`.
    pub(super) fn load_in_words(&self) -> String {
        let pace = self.pace();
        let rate = match pace.rate {
            Some(rate) => format!("{} requests/s (open loop)", number::three(rate)),
            None => "closed loop".to_owned(),
        };
        let requests = pace.requests.map(|requests| plural(requests, "request"));
        let time = pace.duration.map(|time| number::time(time.as_secs_f64() * 1e6));
        let length: Vec<String> = requests.into_iter().chain(time).collect();
        let io = match self.load.io {
            Io::Auto => "io_uring if the kernel allows it",
            Io::Epoll => "epoll",
            Io::IoUring => "io_uring",
        };
        format!(
            "{}, {rate}, {}, {}, {io}",
            plural(self.load.connections, "connection"),
            length.join(" or "),
            plural(self.load.threads, "thread")
        )
    }

    fn work(&self) -> Duration {
        match self.lab().map(|lab| &lab.server) {
            Some(LabServer::Known(server)) => server.work,
            _ => Duration::ZERO,
        }
    }

    /// Time of one request if all goes well, s.
    fn one_s(&self) -> f64 {
        let mut trips = 1.0;
        if self.load.reuse.is_short() {
            trips += if self.tls == Tls::Off { 1.0 } else { 2.0 };
        }
        let rtt = self.lab().map_or(0.0, |lab| lab.spec.link.rtt.as_secs_f64());
        let idle = match self.load.reuse {
            Reuse::Idle(ns) => ns as f64 / 1e9,
            _ => 0.0,
        };
        rtt * trips + self.work().as_secs_f64() + idle
    }

    /// Requests per second, at most.
    fn per_s(&self, pace: &Pace) -> f64 {
        let threads = self.load.threads as f64;
        let most = match (self.load.reuse.is_short(), self.tls) {
            (true, Tls::Full) => TLS_MAX_PER_S,
            (true, _) => NEW_MAX_PER_S,
            (false, _) => REUSED_MAX_PER_S,
        };
        let closed = self.load.connections as f64 / self.one_s().max(1e-6);
        closed.min(most * threads).min(pace.rate.unwrap_or(f64::INFINITY))
    }

    /// Requests of one connection, if the server lets it; `None`: any number.
    fn per_connection(&self) -> Option<f64> {
        match self.load.reuse {
            Reuse::Requests(count) => Some(count as f64),
            Reuse::Lifetime(ns) => Some((ns as f64 / 1e9 / self.one_s().max(1e-4)).max(1.0)),
            reuse if reuse.is_short() => Some(1.0),
            _ => None,
        }
    }

    /// Measured requests, if all goes well.
    pub(super) fn expected_requests(&self, pace: &Pace) -> u64 {
        let in_time = |long: Duration| (long.as_secs_f64() * self.per_s(pace)).ceil().max(1.0);
        let most = pace.duration.map_or(f64::INFINITY, in_time);
        pace.requests.map_or(most, |count| most.min(count as f64)) as u64
    }

    /// Requests before these.
    fn expected_warmup(&self, pace: &Pace) -> f64 {
        match pace.warmup {
            WarmUp::Operations(count) => count as f64,
            WarmUp::Time(long) => long.as_secs_f64() * self.per_s(pace),
        }
    }

    /// Connections that will be made, at most, if all goes well.
    pub(super) fn expected_connections(&self, pace: &Pace) -> u64 {
        let requests = self.expected_requests(pace) as f64 + self.expected_warmup(pace);
        let again = self.per_connection().map_or(0.0, |each| requests / each);
        (again.ceil() as u64).max(self.load.connections)
    }

    /// Connections that will all be open at a time for certain: those of a closed loop with as many
    /// requests; in an open loop as few as the schedule needs.
    pub(super) fn open_at_once(&self, pace: &Pace) -> u64 {
        match (pace.rate, pace.requests, pace.warmup) {
            (Some(_), ..) => 1,
            (None, Some(requests), WarmUp::Operations(before)) => {
                self.load.connections.min(requests.saturating_add(before))
            }
            (None, Some(requests), WarmUp::Time(long)) if long.is_zero() => {
                self.load.connections.min(requests)
            }
            _ => self.load.connections,
        }
    }

    /// Local ports in use at once, at most: those open, and those that the client's closing holds
    /// for a minute.
    pub(super) fn ports(&self, pace: &Pace) -> u64 {
        let open = self.load.connections;
        if !self.load.reuse.client_closes() {
            return open;
        }
        let per_s = self.per_s(pace) / self.per_connection().unwrap_or(f64::INFINITY);
        let last_minute = (per_s * PORT_S).ceil() as u64;
        self.expected_connections(pace).min(last_minute).max(open)
    }

    /// How long the arm will take, seconds, if all goes well; the certification of its link, once
    /// in a run, comes on top.
    pub(super) fn expected_s(&self) -> f64 {
        let pace = self.pace();
        let per_s = self.per_s(&pace);
        let measured = match (pace.duration, pace.requests) {
            (Some(long), None) => long.as_secs_f64(),
            (long, Some(count)) => {
                long.map_or(f64::INFINITY, |l| l.as_secs_f64()).min(count as f64 / per_s)
            }
            (None, None) => 0.0,
        };
        let rtt = self.lab().map_or(0.0, |lab| lab.spec.link.rtt.as_secs_f64());
        // A server takes a while to start, by the kind of it.
        let start_s = match self.lab().map(|lab| &lab.server) {
            Some(LabServer::Known(server)) => match server.kind {
                ServerKind::Puma => 0.7,
                ServerKind::Null => 0.0,
                _ => 0.1,
            },
            Some(LabServer::Command(..)) => 0.3,
            None => 0.0,
        };
        let warm_s = self.expected_warmup(&pace) / per_s.max(1e-3);
        let place_s = if self.lab().is_some() { OVERHEAD_S + 4.0 * rtt } else { 0.4 };
        warm_s + measured + self.one_s() + start_s + place_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use tcptoll_core::study::Settings;

    fn read(pairs: &[(&str, &str)]) -> HttpSettings {
        let settings =
            pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect::<Settings>();
        HttpSettings::from(&settings).unwrap()
    }

    #[test]
    fn a_trial_lasts_a_second_after_a_fifth_of_one_and_a_number_of_requests_has_no_warm_up() {
        let pace = read(&[]).pace();
        assert_eq!((pace.rate, pace.requests, pace.duration), (None, None, Some(DURATION)));
        assert_eq!((pace.warmup, pace.ramp), (WarmUp::Time(WARM_UP), Duration::ZERO));
        let counted = read(&[("requests", "10"), ("warmup", "7")]).pace();
        assert_eq!((counted.requests, counted.duration), (Some(10), None));
        assert_eq!(counted.warmup, WarmUp::Operations(7));
        let all = read(&[("requests", "10"), ("link", "rtt=10ms")]).pace();
        assert_eq!(all.warmup, WarmUp::Time(Duration::ZERO));
    }

    #[test]
    fn a_public_target_gets_little_unless_told_otherwise() {
        let url = ("url", "http://192.0.2.1/");
        let modest = read(&[url]).pace();
        assert_eq!((modest.rate, modest.requests), (Some(20.0), Some(200)));
        assert_eq!((modest.duration, modest.warmup), (None, WarmUp::Time(Duration::ZERO)));
        assert_eq!(read(&[("url", "http://db.example/")]).pace(), modest);
        assert_eq!(read(&[("url", "http://127.0.0.1/")]).pace(), read(&[]).pace());
        let told = read(&[url, ("rate", "500"), ("duration", "2s")]).pace();
        assert_eq!((told.rate, told.requests), (Some(500.0), None));
    }

    #[test]
    fn many_connections_begin_one_after_the_other_and_never_faster_than_a_round_trip() {
        let ramp = |pairs: &[(&str, &str)]| read(pairs).pace().ramp;
        assert_eq!(ramp(&[("connections", "1000")]), Duration::ZERO);
        assert_eq!(ramp(&[("connections", "20k")]), Duration::from_secs(2));
        assert_eq!(ramp(&[("link", "rtt=10ms")]), Duration::from_millis(10));
        assert_eq!(ramp(&[("link", "rtt=10ms"), ("ramp", "0")]), Duration::ZERO);
        assert_eq!(ramp(&[("connections", "20k"), ("rate", "10")]), Duration::ZERO);
        // All of them are there before anything is measured.
        let warm = read(&[("connections", "20k")]).pace().warmup;
        assert_eq!(warm, WarmUp::Time(Duration::from_millis(2_200)));
    }

    #[test]
    fn ports_are_held_only_by_a_client_that_closes() {
        let ports = |pairs: &[(&str, &str)]| {
            let settings = read(pairs);
            settings.ports(&settings.pace())
        };
        assert_eq!(ports(&[("reuse", "server-close")]), 2);
        assert_eq!(ports(&[("connections", "20000")]), 20_000);
        assert!(ports(&[("reuse", "client-close")]) > 14_116);
        let few = [("reuse", "client-close"), ("requests", "1000"), ("warmup", "0")];
        assert_eq!(ports(&few), 1_000);
        let slow = [("reuse", "client-close"), ("rate", "10"), ("duration", "10m")];
        assert_eq!(ports(&slow), 600);
        let tens = [("reuse", "requests=10"), ("requests", "1000"), ("warmup", "0")];
        assert_eq!(ports(&tens), 100);
    }

    #[test]
    fn only_a_closed_loop_with_as_many_requests_opens_all_its_connections() {
        let open = |pairs: &[(&str, &str)]| {
            let settings = read(pairs);
            settings.open_at_once(&settings.pace())
        };
        let many = ("connections", "50k");
        assert_eq!(open(&[many]), 50_000);
        assert_eq!(open(&[many, ("rate", "10")]), 1);
        assert_eq!(open(&[many, ("requests", "100"), ("warmup", "7")]), 107);
        assert_eq!(open(&[many, ("requests", "100")]), 100);
        let timed = [many, ("requests", "100"), ("warmup", "1s")];
        assert_eq!(open(&timed), 50_000, "a warm-up by time opens all");
    }

    #[test]
    fn the_expected_time_is_bounded_by_time_or_by_number() {
        let near = read(&[("duration", "2s"), ("server", "null")]).expected_s();
        assert!((2.2..2.6).contains(&near), "{near}");
        let paced = read(&[("rate", "100"), ("requests", "300"), ("server", "null")]).expected_s();
        assert!((3.0..3.4).contains(&paced), "{paced}");
    }
}
