//! A link is measured before it is trusted: delay by ICMP echo, rate and loss by trains of
//! datagrams, each with a witness at the receiving host. A link out of tolerance is refused.

use std::net::{IpAddr, SocketAddr};

use tcptoll_model::link::{LinkSpec, line_bytes};
use tcptoll_model::record::{LinkKind, LinkMeasured, LossMeasured};
use tcptoll_model::stats::{Histogram, exact_interval, nearest_rank};
use tcptoll_model::units::{human_rate, human_us, parse_share, parse_time};

use super::{Handle, Interrupt, LabError, Place};
use crate::messages::{Arrivals, Ask, Ping, Tell, Train, Watch};

/// How far a link may be from what was asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Of the median round trip, µs.
    pub delay_us: f64,
    /// Of the rate, as a share.
    pub rate: f64,
}

impl Default for Tolerance {
    fn default() -> Self {
        Self { delay_us: 100.0, rate: 0.02 }
    }
}

impl Tolerance {
    /// Reads `delay=100us,rate=2%`; either may be left out.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut tolerance = Self::default();
        for part in text.split(',') {
            let say = |error: &dyn std::fmt::Display| format!("--link-tolerance {text}: {error}");
            match part.trim().split_once('=') {
                Some(("delay", value)) => {
                    tolerance.delay_us =
                        parse_time(value).map_err(|error| say(&error))?.as_nanos() as f64 / 1e3;
                }
                Some(("rate", value)) => {
                    tolerance.rate = parse_share(value).map_err(|error| say(&error))?;
                }
                _ => {
                    return Err(say(&format!("\"{part}\" is neither delay=TIME nor rate=PERCENT")));
                }
            }
        }
        Ok(tolerance)
    }
}

/// A link that was measured, and what its emulator was told to do better.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// What goes into the record.
    pub measured: LinkMeasured,
    /// Taken off each direction's delay, ns.
    pub early_ns: u64,
}

/// Steady state of a train, at least: four fifths of what is sent, a quarter too fast.
const TRAIN_S: f64 = 0.19;

/// Payload of a datagram that fills a packet at MTU 1500, with IPv6's header to be safe.
const FULL_PAYLOAD: usize = 1_400;
/// IPv4 and UDP headers.
const HEADERS: usize = 28;

/// Measures the link of a fresh lab, calibrates its delay once, and refuses it if it is not what
/// was asked for.
pub fn certify(
    place: &mut Place,
    spec: &LinkSpec,
    tolerance: Tolerance,
    interrupt: &Interrupt,
) -> Result<Certificate, LabError> {
    let ipv6 = place.addresses.server.is_ipv6();
    let mut early_ns: i64 = 0;
    // Caches and branch predictors of three processes: the first echoes are no measurement.
    echoes(place, 30, 1_000_000, interrupt)?;
    if spec.is_emulated() && !spec.rtt.is_zero() {
        // An echo wakes the link up on its way there and perhaps on its way back: correcting by
        // 0.7 of the error converges in either case, to 0.03 or to 0.06 of it after three turns.
        for _ in 0..3 {
            let late_ns = median(&echoes(place, 60, 2_300_000, interrupt)?)
                .map_or(0, |ns| ns as i64 - echo_ns(spec, ipv6) as i64);
            early_ns = (early_ns + late_ns * 7 / 10).clamp(0, spec.rtt.as_nanos() as i64 / 3);
            place.link()?.ask(&Ask::Calibrate { early_ns: early_ns as u64 })?;
        }
    }
    let rtt = echoes(place, 100, 3_000_000, interrupt)?;
    let mut rates = [None, None];
    if let Some(rate) = spec.rate_bit_per_s {
        for (way, slot) in rates.iter_mut().enumerate() {
            *slot = Some(measure_rate(place, way, rate, spec, interrupt)?);
        }
    }
    let loss = (spec.loss > 0.0).then(|| measure_loss(place, spec, interrupt)).transpose()?;
    // The certification's losses are not the run's: a seed gives each arm the same ones.
    place.link()?.ask(&Ask::Calibrate { early_ns: early_ns as u64 })?;
    let fallback = place.link()?.ready.packet_fallback;
    let kind = match (spec.loopback, spec.is_emulated(), fallback) {
        (true, ..) => LinkKind::Loopback,
        (_, false, _) => LinkKind::Direct,
        (_, true, false) => LinkKind::EmulatedTun,
        (_, true, true) => LinkKind::EmulatedPacket,
    };
    let measured = LinkMeasured {
        kind,
        asked: spec.asked(),
        rtt_us: Some(histogram(&rtt).summary_us()),
        rate_client_to_server_bit_per_s: rates[0],
        rate_server_to_client_bit_per_s: rates[1],
        loss,
        lateness_us: None,
        unwanted_drops: 0,
    };
    refuse(spec, &measured, &rtt, ipv6, tolerance)?;
    Ok(Certificate { measured, early_ns: early_ns as u64 })
}

/// The round trip of an echo: the link's, and the time its packets take at the link's rate.
fn echo_ns(spec: &LinkSpec, ipv6: bool) -> f64 {
    let line_bits = line_bytes(if ipv6 { 104 } else { 84 }) as f64 * 8.0;
    spec.rtt.as_nanos() as f64
        + spec.rate_bit_per_s.map_or(0.0, |rate| 2.0 * line_bits / rate * 1e9)
}

fn refuse(
    spec: &LinkSpec,
    measured: &LinkMeasured,
    rtt: &[u64],
    ipv6: bool,
    tolerance: Tolerance,
) -> Result<(), LabError> {
    let out = |sentence: String| Err(LabError::OutOfTolerance(sentence));
    let asked_us = echo_ns(spec, ipv6) / 1e3;
    let Some(median_us) = median(rtt).map(|ns| ns as f64 / 1e3) else {
        return if spec.loss < 0.5 {
            out("the link carries no echo: none of 100 came back".to_owned())
        } else {
            Ok(())
        };
    };
    let allowed = tolerance.delay_us + spec.jitter.as_nanos() as f64 / 1e3 / 2.0;
    if spec.is_emulated() && (median_us - asked_us).abs() > allowed {
        return out(format!(
            "the link's round trip is {}, {} was asked: quieten the machine, or allow it with --link-tolerance delay={:.0}us",
            human_us(median_us),
            human_us(asked_us),
            (median_us - asked_us).abs().ceil() * 1.5
        ));
    }
    let rates =
        [measured.rate_client_to_server_bit_per_s, measured.rate_server_to_client_bit_per_s];
    for (got, asked) in
        rates.into_iter().flatten().zip([spec.rate_bit_per_s; 2].into_iter().flatten())
    {
        let off = (got / asked - 1.0).abs();
        // The first and the last packet of a train may each be early or late by the jitter.
        if off > tolerance.rate + spec.jitter.as_secs_f64() / TRAIN_S {
            return out(format!(
                "the link's rate is {}, {} was asked: lower it, quieten the machine, or allow it with --link-tolerance rate={:.0}%",
                human_rate(got),
                human_rate(asked),
                (off * 150.0).ceil()
            ));
        }
    }
    if let Some(loss) = measured.loss
        // Wider than the 95 % that the record shows: one honest link in twenty would be refused.
        && exact_interval(loss.lost, loss.sent, 0.9999)
            .is_some_and(|[low, high]| spec.loss < low || spec.loss > high)
    {
        return out(format!(
            "the link lost {} of {} packets, {:.3} % was asked",
            loss.lost,
            loss.sent,
            spec.loss * 100.0
        ));
    }
    Ok(())
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
    place: &mut Place,
    count: u16,
    interval_ns: u64,
    interrupt: &Interrupt,
) -> Result<Vec<u64>, LabError> {
    let target = place.addresses.server;
    let limit_ns = place.echo_limit.as_nanos() as u64;
    place.client.begin(&Ask::Ping(Ping { target, count, interval_ns, limit_ns }))?;
    match place.client.wait(interrupt, &mut |_| {})?.tell {
        Tell::Echoes(rtts) if interrupt.signal().is_none() => Ok(rtts),
        Tell::Echoes(_) => Err(LabError::Interrupted),
        other => Err(place.client.unexpected(&other)),
    }
}

/// Sends a train one way and gives what was sent and what arrived.
pub fn train(
    place: &mut Place,
    way: usize,
    packets: u64,
    payload: usize,
    interval_ns: u64,
    settle_ns: u64,
    interrupt: &Interrupt,
) -> Result<(u64, Arrivals), LabError> {
    let to: IpAddr = [place.addresses.server, place.addresses.client][way];
    // Over AF_PACKET the emulator would see one super-packet of them.
    let together = interval_ns == 0 && !place.link()?.ready.packet_fallback;
    let server = place.server.as_mut().ok_or(LabError::Lost { host: "server host" })?;
    let (sender, receiver): (&mut Handle, &mut Handle) =
        if way == 0 { (&mut place.client, server) } else { (server, &mut place.client) };
    let target = match receiver.ask(&Ask::Sink { at: to })? {
        Tell::Listening { at } => SocketAddr::new(to, at.port()),
        other => return Err(receiver.unexpected(&other)),
    };
    let sent =
        match sender.ask(&Ask::Train(Train { target, packets, payload, interval_ns, together }))? {
            Tell::Sent { packets } => packets,
            other => return Err(sender.unexpected(&other)),
        };
    std::thread::sleep(std::time::Duration::from_nanos(settle_ns));
    if interrupt.signal().is_some() {
        return Err(LabError::Interrupted);
    }
    match receiver.ask(&Ask::Stop)? {
        Tell::Arrivals(arrivals) => Ok((sent, arrivals)),
        other => Err(receiver.unexpected(&other)),
    }
}

fn measure_rate(
    place: &mut Place,
    way: usize,
    rate: f64,
    spec: &LinkSpec,
    interrupt: &Interrupt,
) -> Result<f64, LabError> {
    let line = line_bytes((FULL_PAYLOAD + HEADERS + ipv6_extra(place)) as u32) as f64 * 8.0;
    // A third of a second, or what a device's queue holds.
    let packets = (rate * 0.3 / line).clamp(60.0, 8_000.0);
    let rest_ns = (packets * line / rate * 1e9) as u64 + 50_000_000;
    // A short queue would be filled at once and the rest of the train lost: a quarter too fast is
    // enough to keep it full.
    let gap_ns = if spec.queue.is_some() { (line / rate * 0.8e9) as u64 } else { 0 };
    let (_, arrivals) =
        train(place, way, packets as u64, FULL_PAYLOAD, gap_ns, rest_ns, interrupt)?;
    if arrivals.steady_ns == 0 {
        return Err(LabError::OutOfTolerance("the link carries no datagrams".to_owned()));
    }
    // What is lost on purpose or behind a short queue takes no time on the wire.
    let crossed = if spec.queue.is_some() || spec.loss > 0.0 {
        arrivals.steady_packets
    } else {
        arrivals.steady_span
    };
    Ok(crossed as f64 * line / (arrivals.steady_ns as f64 / 1e9))
}

fn measure_loss(
    place: &mut Place,
    spec: &LinkSpec,
    interrupt: &Interrupt,
) -> Result<LossMeasured, LabError> {
    let payload = 64;
    let line = line_bytes((payload + HEADERS + ipv6_extra(place)) as u32) as f64 * 8.0;
    // At half the rate, so that no queue fills: what is missing was lost on purpose.
    let gap_ns = spec.rate_bit_per_s.map_or(0.0, |rate| line / rate * 2e9).max(50_000.0);
    let packets = (400e6 / gap_ns).clamp(200.0, 8_000.0) as u64;
    let settle = (spec.rtt.as_nanos() as u64) + 20_000_000;
    place.link()?.ask(&Ask::Watch(Watch::default()))?;
    let mut sum = (0, 0);
    for way in [0, 1] {
        let (sent, arrivals) =
            train(place, way, packets, payload, gap_ns as u64, settle, interrupt)?;
        // What the receiving socket had no room for has crossed the link.
        sum = (sum.0 + sent, sum.1 + arrivals.packets + arrivals.no_room);
    }
    // A sender that was held up sends the rest in a burst, which a short queue may drop.
    let queue_drops = match place.link()?.ask(&Ask::Counted)? {
        Tell::Counted(counted) => counted.wire.map_or(0, |wire| wire.queue_drops),
        other => return Err(place.link()?.unexpected(&other)),
    };
    sum.0 -= queue_drops.min(sum.0);
    let lost = sum.0.saturating_sub(sum.1);
    let ci95 = exact_interval(lost, sum.0, 0.95).unwrap_or([0.0, 1.0]);
    Ok(LossMeasured { sent: sum.0, lost, ci95 })
}

/// IPv6's header is this much longer than IPv4's.
fn ipv6_extra(place: &Place) -> usize {
    if place.addresses.server.is_ipv6() { 20 } else { 0 }
}
