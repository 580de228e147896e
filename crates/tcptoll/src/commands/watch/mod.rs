//! `watch`: what the connections of this live machine do, and what is wrong with them.
//!
//! One loop looks and hands each state to the [`Sink`]s that were asked for: the screen or the lines
//! of text, the record, the metrics.

mod endpoint;
mod lines;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tcptoll_engine::watch::{Network, Options, Watch};
use tcptoll_model::units::parse_time;
use tcptoll_model::watch::{State, WatchSummary};

use crate::cli::{Format, WatchArgs};
use crate::exit::{Status, say};

const INTERVAL: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_hours(1);
/// A stop is looked for this often.
const STOP_EVERY: Duration = Duration::from_millis(50);
/// Looks that may fail one after another.
const FAILURES_MAX: u32 = 5;

/// Where states go.
trait Sink {
    /// Takes a state.
    fn state(&mut self, state: &State) -> anyhow::Result<()>;
    /// A look failed.
    fn failed(&mut self) {}
    /// The watch has ended.
    fn end(&mut self, summary: &WatchSummary) -> anyhow::Result<()>;
}

/// Does what `tcptoll watch …` says.
pub(super) fn run(args: &WatchArgs) -> anyhow::Result<Status> {
    let interval = interval(&args.interval)?;
    let lasts = args.duration.as_deref().map(|text| parse_time(text).context("--duration"));
    let lasts = lasts.transpose()?;
    // Before the namespace is joined: the metrics are served where this program was started.
    let endpoint = args.listen.map(|at| endpoint::Bound::new(at, &args.allow_host)).transpose()?;
    // Before any thread: see Reader::open.
    let options = Options { network: network(args.netns.as_deref())?, owners: !args.no_owners };
    let mut watch = Watch::open(&options).context("this network namespace cannot be watched")?;
    if args.once {
        return once(&mut watch, interval, args.format);
    }
    let stopped = stops()?;
    let mut sinks: Vec<Box<dyn Sink>> = vec![Box::new(lines::Lines::default())];
    if let Some(endpoint) = endpoint {
        sinks.push(Box::new(endpoint.serve(interval)?));
    }
    let began = Instant::now();
    let mut due = began;
    let mut summary = WatchSummary::default();
    let mut failures = 0;
    let signal = loop {
        let signal = stopped.load(Ordering::SeqCst);
        if signal != 0 || lasts.is_some_and(|lasts| began.elapsed() >= lasts) {
            break signal;
        }
        let left = due.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            std::thread::sleep(left.min(STOP_EVERY));
            continue;
        }
        match watch.look() {
            Ok(state) => {
                failures = 0;
                summary.looks += 1;
                for sink in &mut sinks {
                    sink.state(state)?;
                }
            }
            Err(error) if failures < FAILURES_MAX => {
                failures += 1;
                summary.missed += 1;
                for sink in &mut sinks {
                    sink.failed();
                }
                say(&format!("a look failed: {error}"));
            }
            Err(error) => return Err(error).context("looks fail again and again"),
        }
        due += interval;
        while due + interval < Instant::now() {
            due += interval;
            summary.missed += 1;
        }
    };
    summary.lasted_s = began.elapsed().as_secs_f64();
    for sink in &mut sinks {
        sink.end(&summary)?;
    }
    Ok(if signal == 0 { Status::Met } else { Status::Stopped(signal as u8) })
}

/// Two looks, and what they say together.
fn once(watch: &mut Watch, interval: Duration, format: Format) -> anyhow::Result<Status> {
    watch.look_at_all()?;
    std::thread::sleep(interval);
    let state = watch.look_at_all()?;
    match format {
        Format::Json => super::study::print(&(serde_json::to_string(state)? + "\n"))?,
        Format::Text => super::study::print(&lines::text(state))?,
    };
    Ok(Status::Met)
}

fn interval(text: &str) -> anyhow::Result<Duration> {
    let interval = parse_time(text).context("--interval")?;
    if !INTERVAL.contains(&interval) {
        bail!("--interval {text}: write a time from 100ms to 1h");
    }
    Ok(interval)
}

/// The network namespace that a user names.
pub(super) fn network(text: Option<&str>) -> anyhow::Result<Option<Network>> {
    let Some(text) = text else { return Ok(None) };
    match Network::parse(text) {
        Some(network) => Ok(Some(network)),
        None => bail!("--netns {text}: write a process id, or a file like /run/netns/NAME"),
    }
}

/// The number of the signal that asked to stop; 0: none did.
fn stops() -> anyhow::Result<Arc<AtomicUsize>> {
    let stopped = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(signal, Arc::clone(&stopped), signal as usize)?;
    }
    Ok(stopped)
}
