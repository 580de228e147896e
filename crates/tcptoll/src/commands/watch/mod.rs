//! `watch`: what the connections of this live machine do, and what is wrong with them.
//!
//! One loop looks and hands each state to the [`Sink`]s that were asked for: the lines of text, the
//! record, the metrics. The [`Screen`] is drawn from the memory of the last minutes, and the loop waits
//! for its keys between two looks.

mod endpoint;
mod figures;
mod request;
mod screen;
mod sinks;
mod table;
mod text;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tcptoll_core::units::parse_time;
use tcptoll_live::watch::reader::{Network, Options, SysError, Watch, is_root};
use tcptoll_live::watch::{State, WatchSummary};
use tcptoll_show::sheet;

use self::screen::{After, Screen};
use self::text::Watched;
use crate::cli::{Format, WatchArgs};
use crate::exit::{Status, say};
use crate::progress::StatusLine;
use crate::screen::style;

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
    /// Whether nobody takes its states any more: then the watch ends.
    fn is_over(&self) -> bool {
        false
    }
    /// The watch has ended.
    fn end(&mut self, summary: &WatchSummary) -> anyhow::Result<()>;
}

/// Does what `tcptoll watch …` says.
pub(super) fn run(args: &WatchArgs) -> anyhow::Result<Status> {
    let interval = interval(&args.interval)?;
    let lasts = args.duration.as_deref().map(duration).transpose()?;
    // Before the namespace is joined: the metrics are served where this program was started.
    let endpoint = args.listen.as_deref().map(|at| endpoint::Bound::new(at, &args.allow_host));
    let endpoint = endpoint.transpose()?;
    // Before any thread: see NamespaceReader::open.
    let options = Options { network: network(args.netns.as_deref())?, owners: !args.no_owners };
    let mut watch = Watch::open(&options).map_err(|error| refused(args.netns.as_deref(), error))?;
    let watched =
        Watched { network: args.netns.clone(), owners: !args.no_owners, by_root: is_root() };
    if args.once {
        return once(&mut watch, interval, args.format, &watched);
    }
    let stopped = stops()?;
    let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
    let is_text = args.format == Format::Text;
    let on_screen = is_text && !args.no_screen && args.listen.is_none() && screen::is_there();
    if !on_screen {
        sinks.push(Box::new(sinks::Lines::new(interval, args.netns.as_deref())));
    }
    if !is_text {
        sinks.push(Box::new(sinks::JsonLines::default()));
    }
    if let Some(endpoint) = endpoint {
        sinks.push(Box::new(endpoint.serve(interval)?));
    }
    if let Some(path) = &args.record {
        sinks.push(Box::new(sinks::Record::create(path, args, interval.as_secs_f64())?));
    }
    // The last that can fail before the loop: then the terminal is still as it was.
    let mut screen = on_screen.then(|| Screen::open(&watched)).transpose()?;
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
            let Some(screen) = &mut screen else {
                std::thread::sleep(left.min(STOP_EVERY));
                continue;
            };
            let ends = lasts.map_or(left, |lasts| lasts.saturating_sub(began.elapsed()));
            match screen.wait(left.min(ends), watch.history())? {
                After::GoOn => continue,
                After::Quit => break 0,
                After::Signal(signal) => break signal as usize,
            }
        }
        match watch.look() {
            Ok(state) => {
                failures = 0;
                summary.looks += 1;
                for sink in &mut sinks {
                    sink.state(state)?;
                }
                if sinks.iter().any(|sink| sink.is_over()) {
                    break 0;
                }
            }
            Err(error) if failures < FAILURES_MAX => {
                failures += 1;
                summary.missed += 1;
                for sink in &mut sinks {
                    sink.failed();
                }
                let sentence = format!("a look failed: {error}");
                match &mut screen {
                    Some(screen) => screen.say(&sentence),
                    None => say(&sentence),
                }
            }
            Err(error) => return Err(error).context("too many looks failed in a row"),
        }
        if let Some(screen) = &mut screen {
            screen.draw(watch.history())?;
        }
        due += interval;
        while due + interval < Instant::now() {
            due += interval;
            summary.missed += 1;
        }
    };
    // What sinks say at the end is for the normal screen.
    drop(screen);
    summary.lasted_s = began.elapsed().as_secs_f64();
    // Each ends, whatever another one says.
    let ended: Vec<_> = sinks.iter_mut().map(|sink| sink.end(&summary)).collect();
    ended.into_iter().collect::<anyhow::Result<()>>()?;
    Ok(if signal == 0 { Status::Met } else { Status::Stopped(signal as u8) })
}

/// Two looks, and what they say together.
fn once(
    watch: &mut Watch,
    interval: Duration,
    format: Format,
    watched: &Watched,
) -> anyhow::Result<Status> {
    let stopped = stops()?;
    watch.look_at_all()?;
    let until = Instant::now() + interval;
    // A shorter wait needs no progress.
    let waiting = StatusLine::new(interval >= Duration::from_millis(1_500));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match stopped.load(Ordering::SeqCst) {
            0 if left.is_zero() => break,
            0 => {}
            signal => return Ok(Status::Stopped(signal as u8)),
        }
        let seconds = left.as_secs_f64().ceil() as u64;
        waiting.say(&format!("looking · {:02}:{:02} left", seconds / 60, seconds % 60));
        std::thread::sleep(left.min(STOP_EVERY));
    }
    drop(waiting);
    let state = watch.look_at_all()?;
    let text = match format {
        Format::Json => serde_json::to_string(state)? + "\n",
        Format::Text => sheet::text(&text::whole(state, watched, style().width), style()),
    };
    sinks::print(&text, format)?;
    Ok(Status::Met)
}

fn duration(text: &str) -> anyhow::Result<Duration> {
    let duration = parse_time(text).map_err(|error| {
        anyhow::anyhow!("--duration {text}: {}; write a time like 8h", error.problem())
    })?;
    if duration.is_zero() {
        bail!("--duration {text}: the watch would end before its first look; write a time like 8h");
    }
    Ok(duration)
}

fn interval(text: &str) -> anyhow::Result<Duration> {
    let interval = parse_time(text).map_err(|error| {
        anyhow::anyhow!("--interval {text}: {}; write a time from 100ms to 1h", error.problem())
    })?;
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

/// Why the sockets of a network namespace cannot be read, and what to do.
pub(super) fn refused(netns: Option<&str>, error: SysError) -> anyhow::Error {
    let refusal = netns.and_then(|netns| refusal(netns, &error, is_root()));
    let whole = "the sockets of this network namespace cannot be read";
    refusal.unwrap_or_else(|| anyhow::Error::new(error).context(whole))
}

fn refusal(netns: &str, error: &SysError, by_root: bool) -> Option<anyhow::Error> {
    let process = netns.parse::<u32>().is_ok();
    let why = match (error.source.kind(), process) {
        (ErrorKind::PermissionDenied, _) if by_root && error.op == "setns" => {
            "root has no CAP_SYS_ADMIN in the user namespace that owns this network namespace, as in a \
             container. Run tcptoll outside of the container, or give the container that capability"
        }
        (ErrorKind::PermissionDenied, true) if by_root => {
            "root has no CAP_SYS_PTRACE over that process, as in a container. Run tcptoll outside of the \
             container, or give the container that capability"
        }
        (ErrorKind::PermissionDenied, false) if by_root => {
            "root may not read that file, because it belongs to another user namespace. Run tcptoll outside of \
             the container"
        }
        (ErrorKind::PermissionDenied, true) => {
            "this user may not enter the network namespace of that process. Use sudo, or run as the \
             user that started the process or its container"
        }
        (ErrorKind::PermissionDenied, false) => {
            "this user may not enter that network namespace. Use sudo"
        }
        (ErrorKind::NotFound, true) => {
            "there is no such process. Write the id of a running process, as this machine sees it: \
             for a container, `docker inspect -f '{{.State.Pid}}' NAME`"
        }
        (ErrorKind::NotFound, false) => {
            "there is no such file. `ip netns list` prints the names in /run/netns"
        }
        (ErrorKind::InvalidInput, _) => {
            "this is not a network namespace. Write a process id, or a file like /run/netns/NAME"
        }
        _ => return None,
    };
    Some(anyhow::anyhow!("--netns {netns}: {why}"))
}

/// The number of the signal that asked to stop; 0: none did.
fn stops() -> anyhow::Result<Arc<AtomicUsize>> {
    let stopped = Arc::new(AtomicUsize::new(0));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_usize(signal, Arc::clone(&stopped), signal as usize)?;
    }
    Ok(stopped)
}
