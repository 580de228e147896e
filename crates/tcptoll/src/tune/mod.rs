//! `tune`: the KeepAlive setting of a web server that gives its visitors the shortest pages within its memory.
//!
//! The way: `load` (who comes, what they load) → `search` (what a worker weighs, stages, comparison, conclusion), which
//! asks a `strategy` what to measure next (`narrowing` is ours, the other that of a document of 2016) → `found` →
//! `--prove` on a server of the user's (`machine`, which also reads what it is like here) → `sheet`, with its `picture`.
//! `setting` is what is varied and what was measured of it, `snippet` a setting as configuration. Nothing of the
//! user's is written but the files that were asked for.

mod brief;
pub mod found;
pub(crate) mod load;
mod machine;
pub(crate) mod narrowing;
mod picture;
mod search;
pub mod setting;
mod sheet;
pub mod snippet;
pub(crate) mod strategy;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum as _;
use jiff::Timestamp;

use self::found::{Found, STRATEGY, VERSION};
use self::load::Load;
use self::machine::{Wanted, present, setting_of};
use self::narrowing::Narrowing;
use self::search::{Search, conclude};
use self::setting::{Cell, Measured, Setting};
use self::snippet::Distribution;
use self::strategy::{Example, Procedure, Strategy};
use crate::cli::{Format, TuneArgs, TuneDistribution, TuneServer, TuneStrategy};
use crate::exit::{Status, say};
use crate::{output, screen, stdout};
use tcptoll_core::http::url::Url;
use tcptoll_core::number;
use tcptoll_core::units::{parse_size, parse_time, text_size};
use tcptoll_lab::files::{Mark, read_at_most, write_own};
use tcptoll_lab::lab::Interrupt;
use tcptoll_lab::servers::connections_held;
use tcptoll_live::doctor::ServerConfig;
use tcptoll_measure::pages::Server;
use tcptoll_measure::runner::RunError;
use tcptoll_measure::runner::Schedule;

/// Limits of the number of workers from which a search begins.
const WORKERS: [u64; 2] = [1, 20_000];

/// How long a connection may be held with the longest timeout that is tried, s: where an idle one holds a worker, and
/// where it does not.
const LONGEST_S: [f64; 2] = [16.0, 66.0];

/// Longest result of an earlier search that is read.
const FROM_MAX: u64 = 16 << 20;

/// What `tune` is asked to do, checked.
struct TuneRequest<'a> {
    args: &'a TuneArgs,
    server: Server,
    /// Why it is this one, if nobody said so.
    server_why: Option<String>,
    distribution: Distribution,
    compare_time: Duration,
    behind_ms: Option<u64>,
    prove: Option<Wanted<'a>>,
}

/// Does what `tcptoll tune …` says.
pub(super) fn run(args: &TuneArgs) -> anyhow::Result<Status> {
    let asked = TuneRequest::from_args(args)?;
    let earlier = args.from.as_deref().map(|path| from(path, asked.server)).transpose()?;
    let mut load = Load::read(args, asked.server)?;
    if let Some(found) = &earlier {
        // The visitors of that search, unless others are typed.
        for (name, value) in &found.load {
            load.settings.entry(name.clone()).or_insert_with(|| value.clone().into());
        }
    }
    load.take_defaults();
    let present = args.present.as_deref().map(|path| present(path, asked.server)).transpose()?;
    let first = check(&asked, &load)?;
    if args.dry_run {
        return stdout::text(&plan(&asked, &load));
    }
    if let (Some(first), None) = (first, &earlier) {
        first.installed().map_err(|error| of_load(error, asked.server_why.as_deref()))?;
    }
    let interrupt = output::on_signals()?;
    if let (None, false) = (&earlier, args.quiet) {
        say(&format!("{}: {}", asked.server.name(), expected(&asked, &load)));
    }
    let mut found = match earlier {
        Some(found) => found,
        None => match searched(&asked, &mut load, present, &interrupt) {
            Err(_) if interrupt.signal().is_some() => Found::default(),
            outcome => outcome?,
        },
    };
    if let (Some(signal), true) = (interrupt.signal(), found.cells.is_empty()) {
        say("stopped before anything was measured: there is no result");
        return Ok(Status::Stopped(u8::try_from(signal).unwrap_or(0)));
    }
    conclude(&asked, &mut found);
    let mut stored = write_snippet(args, &found);
    if let (Some(wanted), None) = (&asked.prove, interrupt.signal()) {
        found.proof = None;
        match wanted.run(&load, args, &interrupt) {
            Ok(proof) => found.proof = Some(proof),
            Err(error) => found.doubts.push(format!("--prove {}: {error:#}.", wanted.url)),
        }
    }
    let (is_written, result) = write(args, &found);
    stored &= is_written;
    let text = match args.format {
        Format::Text if args.details => {
            tcptoll_show::sheet::text(&sheet::found_sheet(&found), screen::style())
        }
        Format::Text => {
            let details = details(args, result.as_deref());
            brief::brief(&found, &details, screen::style())
        }
        Format::Json => serde_json::to_string(&found)? + "\n",
    };
    stdout::print(&text, args.format)?;
    let broken = found.behind.as_ref().filter(|behind| !behind.holds);
    if let (Format::Json, Some(behind)) = (args.format, broken) {
        say(&behind.words(found.server));
    }
    Ok(status(&asked, &found, stored, &interrupt))
}

fn status(asked: &TuneRequest<'_>, found: &Found, stored: bool, interrupt: &Interrupt) -> Status {
    let refuses = found.chosen().is_none_or(Cell::refuses);
    let balancer = found.behind.as_ref().is_some_and(|behind| !behind.holds);
    let worse = found.proof.as_ref().is_some_and(machine::is_worse);
    let unproved = asked.prove.is_some() && found.proof.is_none();
    match interrupt.signal() {
        _ if !stored => Status::NotStored,
        Some(signal) => Status::Stopped(u8::try_from(signal).unwrap_or(0)),
        None if found.choice.is_none() || unproved => Status::NotMeasured,
        None if refuses || balancer || worse => Status::Missed,
        None => Status::Met,
    }
}

impl<'a> TuneRequest<'a> {
    fn from_args(args: &'a TuneArgs) -> anyhow::Result<Self> {
        let time = |option: &str, text: &str| {
            parse_time(text).map_err(|error| anyhow::anyhow!("--{option} {text}: {error}"))
        };
        let (server, server_why) = server(args)?;
        let behind = args.behind_timeout.as_deref().map(|text| time("behind-timeout", text));
        let behind_ms = behind.transpose()?.map(|time| time.as_millis() as u64);
        if behind_ms == Some(0) {
            bail!("--behind-timeout 0s: write the balancer's idle timeout, like 60s");
        }
        let prove_time = time("prove-time", &args.prove_time)?;
        let switches = args.switch_found.as_deref().zip(args.switch_present.as_deref());
        let prove = args.prove.as_deref().zip(switches).map(|(url, (found, present))| Wanted {
            url,
            switches: [found, present],
            time: prove_time,
        });
        let own = || machine::distribution(Path::new("/"));
        let distribution = match args.distribution {
            Some(TuneDistribution::Debian) => Distribution::Debian,
            Some(TuneDistribution::RedHat) => Distribution::RedHat,
            None => own().unwrap_or_default(),
        };
        let compare_time = time("compare-time", &args.compare_time)?;
        Ok(Self { args, server, server_why, distribution, compare_time, behind_ms, prove })
    }
}

/// The server that is meant, and why if nobody said so.
fn server(args: &TuneArgs) -> anyhow::Result<(Server, Option<String>)> {
    let server = match args.server {
        TuneServer::ApachePrefork => Server::ApachePrefork,
        TuneServer::ApacheWorker => Server::ApacheWorker,
        TuneServer::ApacheEvent => Server::ApacheEvent,
        TuneServer::Nginx => Server::Nginx,
        TuneServer::Apache => {
            if let Some(mpm) = &args.mpm {
                let server = Server::of_mpm(mpm);
                let unknown = || format!("--mpm {mpm}: write prefork, worker or event");
                return Ok((server.with_context(unknown)?, None));
            }
            return Ok(match machine::apache(Path::new("/")) {
                Some((server, file)) => {
                    let why = format!("this machine has the module {} ({file})", server.name());
                    (server, Some(why))
                }
                None => (
                    Server::ApachePrefork,
                    Some(
                        "no configuration of Apache is on this machine: its module prefork is searched, in which \
                         an idle connection holds a process (--mpm names another)"
                            .to_owned(),
                    ),
                ),
            });
        }
    };
    if args.mpm.is_some() {
        bail!("--mpm goes with `tune apache`: {} says which module already", server.name());
    }
    Ok((server, None))
}

/// Checks the load with a setting, the proof, and the places of files. Gives what is measured first.
fn check(asked: &TuneRequest<'_>, load: &Load) -> anyhow::Result<Option<Schedule>> {
    let args = asked.args;
    let mut found = Found { server: asked.server, ..Found::default() };
    let (tolerance, quiet) = (args.link_tolerance.as_str(), true);
    let interrupt = &Interrupt::new();
    let search = Search { load, tolerance, quiet, interrupt, found: &mut found };
    let mut strategy = strategy(asked, WORKERS[0]);
    let batch = strategy.next(&Measured::default());
    let prepared = batch.map(|batch| {
        let mut schedule = Schedule::from_study(&search.batch(&batch))?;
        schedule.prepare().map(|()| schedule)
    });
    let prepared = prepared.transpose();
    let first = prepared.map_err(|error| of_load(error, asked.server_why.as_deref()))?;
    if let Some(wanted) = &asked.prove {
        wanted.check(load)?;
    }
    let files = [("--out", &args.out), ("--snippet", &args.snippet), ("--html", &args.html)];
    output::check_apart(&[], &files)?;
    for (option, path) in files {
        if let Some(path) = path {
            let named = format!("{option} {}", path.display());
            output::check_place(&named, path)?;
            output::check_writable(path).context(named)?;
        }
    }
    if let Some(url) = &args.url {
        let parsed = Url::typed(url);
        parsed.map_err(|error| anyhow::anyhow!("--url {url}: {error}"))?;
    }
    let size =
        |name: &str| load.settings.get(name)?.as_str().and_then(|text| parse_size(text).ok());
    if let (Some(worker), Some(all)) = (size("worker-memory"), size("memory"))
        && worker >= all
    {
        bail!(
            "--worker-memory: not one worker of {} fits into --memory {}",
            text_size(worker),
            text_size(all)
        );
    }
    if args.present.is_some() && (args.from.is_some() || asked.compare_time.is_zero()) {
        bail!(
            "--present is for the comparison after a search: leave out --from and --compare-time 0s"
        );
    }
    if let (Some(name), true, None) =
        (args.load.typed.keys().next(), args.from.is_some(), &args.prove)
    {
        bail!(
            "--{name} has no effect with --from, which has measured already: leave one of them out"
        );
    }
    if args.from.is_some()
        && (args.study.is_some() || args.access_log.is_some() || args.url.is_some())
    {
        bail!(
            "--from takes the result of an earlier search: leave out --study, --access-log and --url"
        );
    }
    Ok(first)
}

/// A message about the load is not about one of the arms. It names the server where nobody did.
fn of_load(error: RunError, server_why: Option<&str>) -> anyhow::Error {
    let error: anyhow::Error = match error {
        RunError::Arm { error, .. } => error.into(),
        other => other.into(),
    };
    match server_why {
        Some(why) => anyhow::anyhow!("{error} ({why}; --mpm prefork, worker or event chooses)"),
        None => error,
    }
}

fn strategy(asked: &TuneRequest<'_>, workers: u64) -> Box<dyn Strategy> {
    match asked.args.strategy {
        TuneStrategy::Search => Box::new(Narrowing::new(workers, asked.server.idle_holds())),
        TuneStrategy::Vps2016 => Box::new(Procedure::new(Example::Vps, workers)),
        TuneStrategy::Dedicated2016 => Box::new(Procedure::new(Example::Dedicated, workers)),
    }
}

fn strategy_name(strategy: TuneStrategy) -> &'static str {
    match strategy {
        TuneStrategy::Search => STRATEGY,
        TuneStrategy::Vps2016 => "vps-2016",
        TuneStrategy::Dedicated2016 => "dedicated-2016",
    }
}

/// Searches, and compares what was found.
fn searched(
    asked: &TuneRequest<'_>,
    load: &mut Load,
    present: Option<ServerConfig>,
    interrupt: &Interrupt,
) -> anyhow::Result<Found> {
    let args = asked.args;
    if let Some(url) = &args.url {
        load.copy(url, args, interrupt)?;
    }
    let typed = load.settings.get("memory").and_then(|value| value.as_str()).map(parse_size);
    let memory_bytes = match typed.transpose()? {
        Some(bytes) => bytes,
        None => machine::memory_bytes().context("/proc/meminfo: the memory of this machine")?,
    };
    let mut found = Found {
        tune_version: VERSION,
        tcptoll_version: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: Timestamp::now().round(jiff::Unit::Second)?.to_string(),
        command: std::env::args().collect(),
        server: asked.server,
        strategy: strategy_name(args.strategy).to_owned(),
        // Seeds of stages follow.
        seed: args.seed.unwrap_or_else(output::any_seed).min(u64::from(u32::MAX)),
        load: load.texts(),
        traffic: load.traffic.clone(),
        memory_bytes,
        doubts: load.doubts.clone(),
        ..Found::default()
    };
    if let (Some(why), false) = (&asked.server_why, args.quiet) {
        say(&format!("{}: {why}", asked.server.name()));
    }
    let is_static =
        load.settings.contains_key("site") || load.time_s("work").is_some_and(|s| s <= 0.0);
    if is_static && load.settings.contains_key("worker-memory") {
        found.doubts.push(
            "No file of this page is made by PHP, so no worker takes the memory of --worker-memory: more workers \
             fit here than on a server whose application runs in them."
                .to_owned(),
        );
    }
    let swapped = machine::swapped();
    let begun = std::time::Instant::now();
    let (tolerance, quiet) = (args.link_tolerance.as_str(), args.quiet);
    let mut search = Search { load, tolerance, quiet, interrupt, found: &mut found };
    let need = need(load, asked.server);
    if asked.server.idle_holds() {
        let weight = search.weigh()?;
        let unweighed = asked.server.own_workers();
        if weight.is_none() {
            search.found.doubts.push(format!(
                "A worker could not be weighed: the search begins with {unweighed} workers, as Debian ships \
                 prefork."
            ));
        }
        if let Some(weight) = weight.as_ref().filter(|weight| weight.fits == 0) {
            bail!(
                "not one worker fits into the memory: the server takes {} without workers, and a worker {} (weighed); \
                 give it more --memory than {}, or make workers lighter",
                number::bytes(weight.base_bytes as f64),
                number::bytes(weight.worker_bytes as f64),
                number::bytes(memory_bytes as f64)
            );
        }
        let fits = weight.as_ref().map_or(unweighed, |weight| weight.fits);
        search.found.weight = weight;
        search.found.workers_limit = fits.min(need).clamp(WORKERS[0], WORKERS[1]);
    } else {
        let held = connections_held().clamp(WORKERS[0], WORKERS[1]);
        search.found.workers_limit = need.clamp(WORKERS[0], held);
    }
    let mut strategy = strategy(asked, search.found.workers_limit);
    search.run(&mut *strategy)?;
    search.found.search_s = begun.elapsed().as_secs_f64();
    if interrupt.signal().is_none() && !asked.compare_time.is_zero() {
        let mut others = search.others();
        if let Some(config) = present {
            others.insert(
                0,
                (
                    "present".to_owned(),
                    setting_of(&config, asked.server, search.found.workers_limit),
                ),
            );
        }
        if others.is_empty() {
            others.push(("as shipped".to_owned(), Setting::shipped(asked.server)));
        }
        if let Err(error) = search.compare(&others, asked.compare_time)
            && interrupt.signal().is_none()
        {
            search.found.doubts.push(format!("The comparison was not made: {error:#}."));
        }
    }
    if machine::swapped() > swapped {
        found.doubts.push(
            "This machine wrote memory to swap during the search: page times may be longer than without. Give it \
             less --memory or stop other programs."
                .to_owned(),
        );
    }
    Ok(found)
}

/// Workers beyond which none would ever be needed: all connections of the highest rate, held for the longest timeout.
fn need(load: &Load, server: Server) -> u64 {
    let longest_s = if server.idle_holds() { LONGEST_S[0] } else { LONGEST_S[1] };
    let number = |name: &str| load.number(name);
    let pages = number("rate") * number("peak-factor").max(1.0) * number("pages");
    (pages * number("connections-per-origin") * longest_s).ceil().min(1e9) as u64
}

/// The result of an earlier search.
fn from(path: &Path, server: Server) -> anyhow::Result<Found> {
    let name = format!("--from {}", path.display());
    if !fs::metadata(path).with_context(|| name.clone())?.is_file() {
        bail!("{name}: it is not a regular file");
    }
    let bytes = read_at_most(path, FROM_MAX).with_context(|| name.clone())?;
    let found: Found = serde_json::from_slice(&bytes)
        .with_context(|| format!("{name}: it is no result of tune (--format json, or --out)"))?;
    if found.tune_version != VERSION {
        bail!("{name}: its version is {}, and this program reads {VERSION}", found.tune_version);
    }
    if found.server != server {
        bail!("{name}: it is of {}, not of {}", found.server.name(), server.name());
    }
    if let Some(why) = found.damage() {
        bail!("{name}: it is damaged: {why}");
    }
    Ok(found)
}

/// Writes the configuration where it was asked for; whether that went well.
fn write_snippet(args: &TuneArgs, found: &Found) -> bool {
    let (Some(path), Some(snippet)) = (&args.snippet, &found.snippet) else { return true };
    put("--snippet", path, &snippet.text(), Mark::Comment, args.quiet)
}

/// The command that prints all of a result.
fn details(args: &TuneArgs, result: Option<&Path>) -> String {
    let server = args.server.to_possible_value();
    let server = server.as_ref().map_or("SERVER", |value| value.get_name());
    let from = args.from.as_deref().or(result).map_or_else(
        || "FILE".to_owned(),
        |path| tcptoll_core::printable::shell_argument(&path.display().to_string()),
    );
    format!("tcptoll tune {server} --from {from} --details")
}

/// Writes the result and the page; whether that went well, and where the result is.
fn write(args: &TuneArgs, found: &Found) -> (bool, Option<PathBuf>) {
    let json = serde_json::to_string(found).unwrap_or_default() + "\n";
    let place = || -> anyhow::Result<PathBuf> {
        let folder = output::record_folder()?;
        fs::create_dir_all(&folder)?;
        let stamp = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
        Ok(folder.join(format!("tune-{stamp}-{}.json", std::process::id())))
    };
    let (mut stored, result) = match args.out.clone().map_or_else(place, Ok) {
        Ok(path) => (put("--out", &path, &json, Mark::Beginning, args.quiet), Some(path)),
        Err(error) => {
            say(&format!("error: the result is not stored: {error:#}"));
            (false, None)
        }
    };
    let result = result.filter(|_| stored);
    if let Some(path) = &args.html {
        let page = sheet::found_sheet(found);
        let page = tcptoll_show::sheet::html(page, found);
        stored &= put("--html", path, &page, Mark::Markup, args.quiet);
    }
    (stored, result)
}

fn put(option: &str, path: &Path, text: &str, mark: Mark, quiet: bool) -> bool {
    let outcome = write_own(path, text, mark);
    match &outcome {
        Err(error) => {
            say(&format!(
                "error: measured, but {option} {} cannot be written: {error}",
                path.display()
            ));
        }
        Ok(()) if !quiet => say(&format!("wrote {}", path.display())),
        Ok(()) => {}
    }
    outcome.is_ok()
}

// `--dry-run`: what a search would do, and how long it would take.

/// Trials of a search, about, and the time of one with the start of the server, s.
fn trials(asked: &TuneRequest<'_>, load: &Load) -> (f64, f64) {
    let time_s = |name: &str| load.time_s(name).unwrap_or_default();
    let trials = match asked.args.strategy {
        TuneStrategy::Search => 20.0,
        TuneStrategy::Vps2016 | TuneStrategy::Dedicated2016 => 5.0,
    };
    (trials, time_s("warmup") + time_s("duration") + 1.5)
}

/// How long a search takes in all.
fn expected(asked: &TuneRequest<'_>, load: &Load) -> String {
    let (trials, trial_s) = trials(asked, load);
    let minutes = (trials * trial_s / 60.0).ceil();
    let then = if asked.compare_time.is_zero() {
        String::new()
    } else {
        format!("; then at most {} to compare the found setting", asked.args.compare_time)
    };
    format!("about {minutes:.0} min, some {trials:.0} settings × {trial_s:.0} s{then}")
}

/// What would be done, without doing it.
fn plan(asked: &TuneRequest<'_>, load: &Load) -> String {
    let (trials, trial_s) = trials(asked, load);
    let mut text = format!("server    {}\n", asked.server.name());
    if let Some(why) = &asked.server_why {
        text += &format!("          {why}\n");
    }
    text += "load";
    for (at, (name, value)) in load.texts().iter().enumerate() {
        let label = if at == 0 { "      " } else { "          " };
        text += &format!("{label}{name} {value}\n");
    }
    if let Some(traffic) = &load.traffic {
        text += &format!(
            "log       {} visits with {} pages in {:.0} s; the busiest minute has {:.3} visitors per second\n",
            traffic.visits, traffic.pages, traffic.span_s, traffic.rate_per_s_busiest
        );
    }
    text += &format!(
        "search    about {trials:.0} trials, {trial_s:.0} s each with the start of the server: {:.0} min\n",
        (trials * trial_s / 60.0).ceil()
    );
    text += &if asked.compare_time.is_zero() {
        "compared  with nothing (--compare-time 0s)\n".to_owned()
    } else {
        format!("compared  at most {}\n", asked.args.compare_time)
    };
    for doubt in &load.doubts {
        text += &format!("unknown   {doubt}\n");
    }
    text
}
