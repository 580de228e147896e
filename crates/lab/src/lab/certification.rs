//! A link is measured before it is trusted: delay by ICMP echo, rate and loss by trains of
//! datagrams, each with a witness at the receiving host. What is out of tolerance is measured again
//! before it is refused: a stall of the machine passes, a link that cannot keep up does not.
//!
//! Datagrams are numbered, and the rate counts what was sent between the first and the last arrival. The
//! receiving socket's buffer is small, and `rmem_max` cannot be set in a namespace, so the socket drops
//! datagrams that the wire did carry: counting arrivals read the rate 0.7 to 2.4 % low.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tcptoll_core::link::{LinkSpec, line_bytes};
use tcptoll_core::number;
use tcptoll_core::record::{LinkKind, LinkMeasured, LossMeasured};
use tcptoll_core::stats::{Histogram, exact_interval, nearest_rank};
use tcptoll_core::units::{parse_share, parse_time};

use super::{Handle, Hosts, Interrupt, LabError};
use crate::messages::{Arrivals, Calibrate, Count, Ping, Sink, Train, Watch};

/// How far a link may be from what was asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Of the median round trip, µs, whatever the link; `None`: as the link's round trip asks for.
    pub delay_us: Option<f64>,
    /// Of the rate, as a share.
    pub rate: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { delay_us: None, rate: 0.02 }
    }
}

impl Tolerance {
    /// The link is not measured, and no trial is excluded because it was late.
    pub const OFF: Self = Self { delay_us: Some(f64::INFINITY), rate: f64::INFINITY };

    /// Of the median round trip of a link with this one, µs: what was asked for, else the larger of
    /// 100 µs and 1 %. Nothing that takes 200 ms is decided by 0.1 ms.
    pub fn delay_us(&self, rtt: Duration) -> f64 {
        let rtt_us = rtt.as_nanos() as f64 / 1e3;
        self.delay_us.unwrap_or((rtt_us * 0.01).max(100.0))
    }
}

impl Tolerance {
    /// Reads `delay=100us,rate=2%`, of which either may be left out, or `off`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tolerance = Self::default();
        if text.trim() == "off" {
            return Ok(Self::OFF);
        }
        for part in text.split(',') {
            let say = |error: &dyn std::fmt::Display| format!("--link-tolerance {text}: {error}");
            match part.trim().split_once('=') {
                Some(("delay", value)) => {
                    let time = parse_time(value).map_err(|error| say(&error))?;
                    tolerance.delay_us = Some(time.as_nanos() as f64 / 1e3);
                }
                Some(("rate", value)) => {
                    tolerance.rate = parse_share(value).map_err(|error| say(&error))?;
                }
                _ if part.trim() == "off" => {
                    return Err(say(&"off stands alone: leave out the rest"));
                }
                _ => {
                    let not = format!("\"{part}\" is neither delay=TIME nor rate=PERCENT, nor off");
                    return Err(say(&not));
                }
            }
        }
        Ok(tolerance)
    }
}

/// A link that was measured, and what its emulator corrects.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// What goes into the record.
    pub measured: LinkMeasured,
    /// Taken off each direction's delay where a packet woke the emulator, ns.
    pub early_ns: u64,
    /// Why the link is not what was asked for, with what helps; `None`: it is.
    pub refusal: Option<String>,
}

impl Certificate {
    /// Only a link that is what was asked for.
    ///
    /// Errors: out of tolerance.
    pub fn accepted(self) -> Result<Self, LabError> {
        match self.refusal {
            Some(why) => Err(LabError::OutOfTolerance(why)),
            None => Ok(self),
        }
    }
}

/// What is out of tolerance is measured again this often, at most.
const AGAIN_MAX: usize = 3;

/// The correction of a wake-up is at most this, ns, and at most a third of the round trip.
///
/// No packet is released before its time by more than that, see [`tcptoll_core::link::clocks`]. Wake-ups
/// take 15 to 75 µs (Linux 6.18, a virtual machine); what is above 100 µs is a busy machine, which is
/// to be seen and not to be taken off.
const EARLY_MAX_NS: i64 = 100_000;

/// Steady state of a train, at least: four fifths of what is sent, a quarter too fast.
const TRAIN_S: f64 = 0.19;

/// Payload of a datagram that fills a packet at MTU 1500, with IPv6's header to be safe.
const FULL_PAYLOAD: usize = 1_400;
/// IPv4 and UDP headers.
const HEADERS: usize = 28;

/// Measures the link of a fresh lab, and calibrates its delay; what is out of tolerance, up to
/// `AGAIN_MAX` times more.
pub fn certify(
    hosts: &mut Hosts,
    spec: &LinkSpec,
    tolerance: Tolerance,
    interrupt: &Interrupt,
) -> Result<Certificate, LabError> {
    let fallback = hosts.link()?.ready.packet_fallback;
    let kind = match (spec.loopback, spec.is_emulated(), fallback) {
        (true, ..) => LinkKind::Loopback,
        (_, false, _) => LinkKind::Direct,
        (_, true, false) => LinkKind::EmulatedTun,
        (_, true, true) => LinkKind::EmulatedPacket,
    };
    let mut measured = LinkMeasured {
        kind,
        asked: spec.asked(),
        rtt_us: None,
        rate_client_to_server_bit_per_s: None,
        rate_server_to_client_bit_per_s: None,
        loss: None,
        lateness_us: None,
        unwanted_drops: 0,
    };
    if tolerance == Tolerance::OFF {
        return Ok(Certificate { measured, early_ns: 0, refusal: None });
    }
    let asked_us = echo_ns(spec, hosts.addresses.server.is_ipv6()) / 1e3;
    let mut early_ns = 0;
    // Caches and branch predictors of three processes: the first echoes are no measurement.
    echoes(hosts, 30, 1_000_000, interrupt)?;
    // An echo wakes the link up on its way there and perhaps on its way back: correcting by 0.7 of
    // the error converges in either case, to 0.03 or to 0.06 of it after three turns.
    for _ in 0..3 {
        calibrate(hosts, spec, &mut early_ns, interrupt)?;
    }
    let (rtt, delay_refusal) = repeated(|again| {
        if again {
            calibrate(hosts, spec, &mut early_ns, interrupt)?;
        }
        let rtt = echoes(hosts, 100, 3_000_000, interrupt)?;
        let refusal = delay_off(spec, median(&rtt), asked_us, tolerance);
        Ok((rtt, refusal))
    })?;
    measured.rtt_us = Some(histogram(&rtt).summary_us());
    let mut refusals = vec![delay_refusal];
    if let Some(asked) = spec.rate_bit_per_s {
        let rates = [
            &mut measured.rate_client_to_server_bit_per_s,
            &mut measured.rate_server_to_client_bit_per_s,
        ];
        for (way, slot) in rates.into_iter().enumerate() {
            let (rate, refusal) = repeated(|_| {
                let rate = measure_rate(hosts, way, asked, spec, interrupt)?;
                Ok((rate, rate_off(spec, rate, asked, tolerance)))
            })?;
            *slot = rate;
            refusals.push(refusal);
        }
    }
    if spec.loss > 0.0 {
        let (loss, refusal) = repeated(|_| {
            let loss = measure_loss(hosts, spec, interrupt)?;
            let refusal = loss_off(spec, &loss);
            Ok((loss, refusal))
        })?;
        measured.loss = Some(loss);
        refusals.push(refusal);
    }
    // The certification's losses are not the run's: a seed gives each arm the same ones.
    hosts.link()?.ask(&Calibrate { early_ns })?;
    Ok(Certificate { measured, early_ns, refusal: refusals.into_iter().flatten().next() })
}

/// Measures until it is within tolerance, `1 + AGAIN_MAX` times at most; gives what was measured last, and
/// why it is refused. `measure` is called with whether it is a repetition.
fn repeated<T>(
    mut measure: impl FnMut(bool) -> Result<(T, Option<String>), LabError>,
) -> Result<(T, Option<String>), LabError> {
    let mut last = measure(false)?;
    for _ in 0..AGAIN_MAX {
        if last.1.is_none() {
            break;
        }
        last = measure(true)?;
    }
    Ok(last)
}

/// One turn of the calibration; nothing on a link without delay.
fn calibrate(
    hosts: &mut Hosts,
    spec: &LinkSpec,
    early_ns: &mut u64,
    interrupt: &Interrupt,
) -> Result<(), LabError> {
    if !spec.is_emulated() || spec.rtt.is_zero() {
        return Ok(());
    }
    let asked_ns = echo_ns(spec, hosts.addresses.server.is_ipv6()) as i64;
    let (count, interval_ns) = turn(spec.rtt);
    let late_ns =
        median(&echoes(hosts, count, interval_ns, interrupt)?).map_or(0, |ns| ns as i64 - asked_ns);
    *early_ns = corrected_ns(*early_ns, late_ns, spec.rtt);
    hosts.link()?.ask(&Calibrate { early_ns: *early_ns })?;
    Ok(())
}

/// Echoes of a turn of the calibration, and the time between two, ns; together they take the same time on any link.
///
/// A closed loop sends more seldom over a longer link, and a CPU that was idle for longer wakes up later: of
/// connects over 20 ms, 85 to 146 µs were the emulator's with echoes every 2.3 ms, over 1 ms at most 28.
fn turn(rtt: Duration) -> (u16, u64) {
    const DENSE_NS: u64 = 2_300_000;
    const SPARSE_NS: u64 = 9_300_000;
    let interval_ns = (rtt.as_nanos() as u64 / 4).clamp(DENSE_NS, SPARSE_NS);
    ((60 * DENSE_NS / interval_ns) as u16, interval_ns)
}

/// The correction after echoes that were late by `late_ns`.
fn corrected_ns(early_ns: u64, late_ns: i64, rtt: Duration) -> u64 {
    let most_ns = EARLY_MAX_NS.min(rtt.as_nanos() as i64 / 3);
    (early_ns as i64 + late_ns * 7 / 10).clamp(0, most_ns) as u64
}

/// The round trip of an echo: the link's, and the time its packets take at the link's rate.
fn echo_ns(spec: &LinkSpec, ipv6: bool) -> f64 {
    let line_bits = line_bytes(if ipv6 { 104 } else { 84 }) as f64 * 8.0;
    spec.rtt.as_nanos() as f64
        + spec.rate_bit_per_s.map_or(0.0, |rate| 2.0 * line_bits / rate * 1e9)
}

/// Why the delay is refused, if it is.
fn delay_off(
    spec: &LinkSpec,
    median_ns: Option<u64>,
    asked_us: f64,
    tolerance: Tolerance,
) -> Option<String> {
    let Some(median_us) = median_ns.map(|ns| ns as f64 / 1e3) else {
        return (spec.loss < 0.5)
            .then(|| "the link is broken: none of 100 pings was answered".to_owned());
    };
    // Five standard errors of the median of 100 echoes, each of two even parts.
    let allowed_us = tolerance.delay_us(spec.rtt) + spec.jitter.as_nanos() as f64 / 1e3 / 4.0;
    let off_us = (median_us - asked_us).abs();
    (spec.is_emulated() && off_us > allowed_us).then(|| {
        format!(
            "the link's round trip is {} instead of {}: reduce the load on this machine, or allow it with --link-tolerance delay={:.0}us",
            number::time(median_us),
            number::time(asked_us),
            off_us.ceil() * 1.5
        )
    })
}

/// Why a rate is refused, if it is; `None` as the rate: no datagram came through.
fn rate_off(
    spec: &LinkSpec,
    measured: Option<f64>,
    asked: f64,
    tolerance: Tolerance,
) -> Option<String> {
    let Some(got) = measured else {
        return Some(
            "the link carried no datagram in time: lower its rate, or reduce the machine's load"
                .to_owned(),
        );
    };
    let off = (got / asked - 1.0).abs();
    // With a twentieth to spare, in whole Mbit/s where there are some.
    let held = match got * 0.95 {
        held if held >= 10e6 => format!("{:.0}mbit", held / 1e6),
        held => format!("{:.0}kbit", held / 1e3),
    };
    let offer = if got < asked {
        format!("write rate={held}, which it holds")
    } else {
        "change the rate".to_owned()
    };
    // The first and the last packet of a train may each be early or late by the jitter.
    (off > tolerance.rate + spec.jitter.as_secs_f64() / TRAIN_S).then(|| {
        format!(
            "the link's rate is {} instead of {} on this machine now: {offer}, reduce its load, or allow it with --link-tolerance rate={:.0}%",
            number::bit_rate(got),
            number::bit_rate(asked),
            (off * 150.0).ceil().min(100.0)
        )
    })
}

/// Why the loss is refused, if it is.
fn loss_off(spec: &LinkSpec, loss: &LossMeasured) -> Option<String> {
    // Wider than the 95 % that the record shows: one honest link in twenty would be refused.
    exact_interval(loss.lost, loss.sent, 0.9999)
        .is_some_and(|[low, high]| spec.loss < low || spec.loss > high)
        .then(|| {
            format!(
                "the link lost {} of {} packets instead of {:.3} %",
                loss.lost,
                loss.sent,
                spec.loss * 100.0
            )
        })
}

/// The middle value, ns; exact, where a histogram of three digits is off by 100 µs at 200 ms.
pub fn median(rtts: &[u64]) -> Option<u64> {
    let mut sorted = rtts.to_vec();
    sorted.sort_unstable();
    nearest_rank(&sorted, 1, 2)
}

/// The same values as a histogram, for the record.
pub fn histogram(rtts: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    for &ns in rtts {
        histogram.record_ns(ns);
    }
    histogram
}

/// Echo round trips from the client, ns.
pub fn echoes(
    hosts: &mut Hosts,
    count: u16,
    interval_ns: u64,
    interrupt: &Interrupt,
) -> Result<Vec<u64>, LabError> {
    let target = hosts.addresses.server;
    let limit_ns = hosts.echo_limit.as_nanos() as u64;
    let begun = hosts.client.begin(&Ping { target, count, interval_ns, limit_ns })?;
    let rtts = hosts.client.wait(begun, interrupt, &mut |_| {})?.answer;
    if interrupt.signal().is_none() { Ok(rtts) } else { Err(LabError::Interrupted) }
}

/// Sends a train one way and gives what was sent and what arrived.
pub fn train(
    hosts: &mut Hosts,
    way: usize,
    packets: u64,
    payload: usize,
    interval_ns: u64,
    settle_ns: u64,
    interrupt: &Interrupt,
) -> Result<(u64, Arrivals), LabError> {
    let to: IpAddr = [hosts.addresses.server, hosts.addresses.client][way];
    // Over AF_PACKET the emulator would see one super-packet of them.
    let together = interval_ns == 0 && !hosts.link()?.ready.packet_fallback;
    let server = hosts.server.as_mut().ok_or(LabError::Lost { host: "server host" })?;
    let (sender, receiver): (&mut Handle, &mut Handle) =
        if way == 0 { (&mut hosts.client, server) } else { (server, &mut hosts.client) };
    let (at, sink) = receiver.start(&Sink { at: to })?;
    let target = SocketAddr::new(to, at.port());
    let sent = sender.ask(&Train { target, packets, payload, interval_ns, together })?;
    hosts.time.pause(Duration::from_nanos(settle_ns));
    if interrupt.signal().is_some() {
        return Err(LabError::Interrupted);
    }
    Ok((sent, receiver.stop(sink)?.answer))
}

fn measure_rate(
    hosts: &mut Hosts,
    way: usize,
    rate: f64,
    spec: &LinkSpec,
    interrupt: &Interrupt,
) -> Result<Option<f64>, LabError> {
    let line = line_bytes((FULL_PAYLOAD + HEADERS + ipv6_extra(hosts)) as u32) as f64 * 8.0;
    // A third of a second, or what a device's queue holds.
    let packets = (rate * 0.3 / line).clamp(60.0, 8_000.0);
    let rest_ns = (packets * line / rate * 1e9) as u64 + 50_000_000;
    // A short queue would be filled at once and the rest of the train lost: a quarter too fast is
    // enough to keep it full.
    let gap_ns = if spec.queue.is_some() { (line / rate * 0.8e9) as u64 } else { 0 };
    let (_, arrivals) =
        train(hosts, way, packets as u64, FULL_PAYLOAD, gap_ns, rest_ns, interrupt)?;
    if arrivals.steady_ns == 0 {
        return Ok(None);
    }
    // What is lost on purpose or behind a short queue takes no time on the wire.
    let crossed = if spec.queue.is_some() || spec.loss > 0.0 {
        arrivals.steady_packets
    } else {
        arrivals.steady_span
    };
    Ok(Some(crossed as f64 * line / (arrivals.steady_ns as f64 / 1e9)))
}

fn measure_loss(
    hosts: &mut Hosts,
    spec: &LinkSpec,
    interrupt: &Interrupt,
) -> Result<LossMeasured, LabError> {
    let payload = 64;
    let line = line_bytes((payload + HEADERS + ipv6_extra(hosts)) as u32) as f64 * 8.0;
    // At half the rate, so that no queue fills: what is missing was lost on purpose.
    let gap_ns = spec.rate_bit_per_s.map_or(0.0, |rate| line / rate * 2e9).max(50_000.0);
    let packets = (400e6 / gap_ns).clamp(200.0, 8_000.0) as u64;
    let settle = (spec.rtt.as_nanos() as u64) + 20_000_000;
    hosts.link()?.ask(&Watch::default())?;
    let mut sum = (0, 0);
    for way in [0, 1] {
        let (sent, arrivals) =
            train(hosts, way, packets, payload, gap_ns as u64, settle, interrupt)?;
        // What the receiving socket had no room for has crossed the link.
        sum = (sum.0 + sent, sum.1 + arrivals.packets + arrivals.no_room);
    }
    // A sender that was held up sends the rest in a burst, which a short queue may drop.
    let queue_drops = hosts.link()?.ask(&Count)?.wire.map_or(0, |wire| wire.queue_drops);
    sum.0 -= queue_drops.min(sum.0);
    let lost = sum.0.saturating_sub(sum.1);
    let ci95 = exact_interval(lost, sum.0, 0.95).unwrap_or([0.0, 1.0]);
    Ok(LossMeasured { sent: sum.0, lost, ci95 })
}

/// IPv6's header is this much longer than IPv4's.
fn ipv6_extra(hosts: &Hosts) -> usize {
    if hosts.addresses.server.is_ipv6() { 20 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn link(text: &str) -> LinkSpec {
        LinkSpec::parse(text).unwrap()
    }

    #[test]
    fn a_turn_of_the_calibration_takes_the_same_time_on_any_link() {
        let turn_at = |ms| turn(Duration::from_millis(ms));
        assert_eq!(
            [turn_at(1), turn_at(20), turn_at(300)],
            [(60, 2_300_000), (27, 5_000_000), (14, 9_300_000)]
        );
    }

    #[test]
    fn the_delay_may_be_off_by_100_us_or_1_percent_unless_a_time_is_given() {
        let usual = Tolerance::default();
        let allowed = [MS / 4, MS, 10 * MS, 37 * MS, 200 * MS].map(|rtt| usual.delay_us(rtt));
        let allowed = allowed.map(|us| us.round() as u64);
        assert_eq!(allowed, [100, 100, 100, 370, 2_000]);
        let given = Tolerance::parse("delay=50us").unwrap();
        assert_eq!((given.delay_us(MS), given.delay_us(200 * MS)), (50.0, 50.0));
        let rate_alone = Tolerance::parse("rate=5%").unwrap();
        assert_eq!((rate_alone.delay_us(200 * MS), rate_alone.rate), (2_000.0, 0.05));
    }

    #[test]
    fn a_long_link_is_not_refused_for_a_thousandth() {
        let far = link("rtt=200ms");
        let off = |median_us: u64, tolerance| {
            delay_off(&far, Some(median_us * 1_000), 200_000.0, tolerance)
        };
        assert_eq!(off(200_192, Tolerance::default()), None);
        assert!(off(202_001, Tolerance::default()).is_some());
        let why = off(200_192, Tolerance::parse("delay=100us").unwrap()).unwrap();
        assert!(why.contains("--link-tolerance delay=288us"), "{why}");
    }

    #[test]
    fn the_correction_stays_below_its_bound() {
        assert_eq!(corrected_ns(0, 60_000, 37 * MS), 42_000);
        assert_eq!(corrected_ns(42_000, -90_000, 37 * MS), 0);
        assert_eq!(corrected_ns(90_000, 5_000_000, 37 * MS), EARLY_MAX_NS as u64);
        assert_eq!(corrected_ns(50_000, 5_000_000, MS / 4), 83_333);
    }

    #[test]
    fn a_tolerance_is_of_delay_and_rate_or_off_alone() {
        assert_eq!(Tolerance::parse("off"), Ok(Tolerance::OFF));
        // A late link spoils no trial.
        assert!(Tolerance::OFF.delay_us(MS).is_infinite());
        let both = Tolerance { delay_us: Some(1e3), rate: 0.05 };
        assert_eq!(Tolerance::parse("delay=1ms,rate=5%"), Ok(both));
        let why = Tolerance::parse("off,rate=2%").unwrap_err();
        assert_eq!(why, "--link-tolerance off,rate=2%: off stands alone: leave out the rest");
    }

    #[test]
    fn what_is_out_of_tolerance_is_measured_four_times_and_what_is_within_once() {
        let run = |good_at: usize| {
            let mut calls = Vec::new();
            let (last, refusal) = repeated(|again| {
                calls.push(again);
                let refusal = (calls.len() < good_at).then(|| "off".to_owned());
                Ok((calls.len(), refusal))
            })
            .unwrap();
            (last, refusal.is_some(), calls)
        };
        assert_eq!(run(1), (1, false, vec![false]));
        assert_eq!(run(3), (3, false, vec![false, true, true]));
        assert_eq!(run(9), (4, true, vec![false, true, true, true]));
    }
}
