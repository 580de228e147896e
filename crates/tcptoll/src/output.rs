//! Runs a study and puts its results where the user wants them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::{Timestamp, Zoned};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tcptoll_core::experiment::options::is_over_ssh;
use tcptoll_core::number;
use tcptoll_core::record::Summary;
use tcptoll_core::study::Study;
use tcptoll_core::study::stop::Target;
use tcptoll_lab::files::{Mark, open_own, write_own};
use tcptoll_lab::lab::Interrupt;
use tcptoll_lab::lab::certification::Tolerance;
use tcptoll_measure::experiments::{REPORTS, SPECS};
use tcptoll_measure::kit::plan::PublicLoad;
use tcptoll_measure::limit;
use tcptoll_measure::limit::{Held, Limit, broken};
use tcptoll_measure::record::Recorder;
use tcptoll_measure::runner;
use tcptoll_measure::runner::{Progress, Run, RunError, RunOptions, Schedule, StartAt};
use tcptoll_show::{sheet, shell_argument};

use crate::cli::{Format, OutputArgs};
use crate::exit::{Status, say};
use crate::progress::ProgressLine;
use crate::screen;
use crate::stdout;

/// Runs a study, prints its result, writes what was asked for.
pub(crate) fn run(study: &Study, args: &OutputArgs) -> anyhow::Result<Status> {
    let Checked { mut schedule, limits, tolerance, start } = check(study, args)?;
    schedule.resolve(&[])?;
    let record = match &args.out {
        Some(path) => path.clone(),
        None => record_in_folder(study)?,
    };
    announce(&schedule);
    let time = expected(&schedule).filter(|_| !args.quiet);
    if let Some(load) = schedule.load().filter(|_| screen::shows_progress(args.quiet)) {
        say(&load);
    }
    let computed = schedule.computed();
    if args.format == Format::Text && !computed.is_empty() {
        stdout::text(&sheet::parts(
            &tcptoll_show::computed(&computed, args.details),
            screen::style(),
        ))?;
        if !args.quiet {
            let round_s = schedule.round_s();
            say(&format!(
                "The proof follows: a lab run of at least {round_s:.0} s; --no-proof leaves it out."
            ));
        }
    }
    let options = RunOptions {
        record,
        record_is_named: args.out.is_some(),
        seed: args.seed.unwrap_or_else(any_seed),
        tolerance,
        tolerance_text: args.link_tolerance.clone(),
        pcap: args.pcap.as_ref().map(|path| path.display().to_string()),
        vantage: args.vantage.clone(),
        start,
        ..options()?
    };
    carry_out(args, &limits, time, |interrupt, progress| {
        runner::run(schedule, &options, interrupt, progress)
    })
}

/// Time of the first load. Machines that begin together must not decide by themselves how many rounds they run.
fn start(schedule: &Schedule, args: &OutputArgs) -> anyhow::Result<Option<StartAt>> {
    let Some((start, every)) = args.start_at.clone().zip(args.every) else { return Ok(None) };
    if schedule.rule.target != Target::Rounds {
        bail!(
            "--start-at needs a fixed number of rounds, so that all machines run the same: add --rounds N"
        );
    }
    Ok(Some(StartAt {
        at: start.at,
        every,
        clock_ahead_s: args.clock_ahead.unwrap_or(0.0),
        at_text: start.text,
    }))
}

/// Runs a study and stores its record where records go; prints progress on stderr, and nothing else. Without a
/// seed it gets one that no other run has.
///
/// The signals are the caller's.
pub(crate) fn measure(
    study: &Study,
    tolerance_text: Option<&str>,
    quiet: bool,
    seed: Option<u64>,
    interrupt: &Interrupt,
) -> anyhow::Result<Run> {
    let mut schedule = Schedule::from_study(study)?;
    schedule.prepare()?;
    let options = RunOptions {
        record: record_in_folder(study)?,
        seed: seed.unwrap_or_else(any_seed),
        tolerance: tolerance(tolerance_text)?,
        tolerance_text: tolerance_text.map(str::to_owned),
        ..options()?
    };
    schedule.resolve(&[])?;
    announce(&schedule);
    let line = ProgressLine::new(quiet);
    Ok(runner::run(schedule, &options, interrupt, &mut |progress| line.show(progress))?)
}

/// What can be known before a name is resolved or anything measured.
pub(crate) struct Checked {
    pub(crate) schedule: Schedule,
    limits: Vec<Limit>,
    tolerance: Tolerance,
    start: Option<StartAt>,
}

/// Checks the study, what it needs of this machine, limits, tolerance, files.
pub(crate) fn check(study: &Study, args: &OutputArgs) -> anyhow::Result<Checked> {
    let mut schedule = Schedule::from_study(study)?;
    schedule.prepare()?;
    if args.pcap.is_some() && (schedule.has_target() || is_over_ssh(study)) {
        bail!(
            "--pcap needs the lab: on networks of yours no packets are captured. Leave it out, or use tcpdump"
        );
    }
    let limits = limits(&args.fail_if, &schedule)?;
    let tolerance = tolerance(args.link_tolerance.as_deref())?;
    let start = start(&schedule, args)?;
    check_files(args, &[])?;
    Ok(Checked { schedule, limits, tolerance, start })
}

/// Informs the user of load on somebody else's server, before it begins.
pub(crate) fn announce(schedule: &Schedule) {
    for load in schedule.public_loads() {
        say(&notice(&load));
    }
}

/// A wait is announced from this time on, s.
const ANNOUNCED_S: f64 = 10.0;

/// How long a run takes, where that is a wait: from its fewest rounds on, to all or to its limit of time.
pub(crate) fn expected(schedule: &Schedule) -> Option<String> {
    let [_, least_s, most_s] = spans(schedule);
    let rounds = schedule.rule.fewest();
    let rounds = if rounds > 1 { format!(", {rounds} rounds or more") } else { String::new() };
    let [least, most] = [least_s, most_s].map(about);
    let time = if least == most { least } else { format!("{least} to {most}") };
    (least_s >= ANNOUNCED_S).then(|| format!("this run takes about {time}{rounds}"))
}

/// How long a plan takes, s: a round, the fewest rounds, all rounds.
pub(crate) fn spans(schedule: &Schedule) -> [f64; 3] {
    let rule = &schedule.rule;
    let round = schedule.round_s();
    // The limit of time holds from the second round on.
    let limit = rule.max_time.map_or(f64::INFINITY, |time| time.as_secs_f64().max(round));
    let most = (round * f64::from(rule.max)).min(limit);
    [round, (round * f64::from(rule.fewest())).min(most), most]
}

/// An estimate in few characters: `24 s`, `4 min`, `2.8 h`.
pub(crate) fn about(s: f64) -> String {
    match s {
        s if s < 120.0 => number::duration(s),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3_600.0),
    }
}

fn notice(load: &PublicLoad) -> String {
    let PublicLoad { target, load, options, .. } = load;
    format!("notice: {target} is a public address: {load}; make sure you may do this ({options})")
}

/// Goes on with the run of a record, which is of this experiment where one is named.
pub(crate) fn resume(
    path: &Path,
    experiment: Option<&str>,
    args: &OutputArgs,
) -> anyhow::Result<Status> {
    let name = path.display().to_string();
    let given = [
        ("--out", args.out.is_some()),
        ("--pcap", args.pcap.is_some()),
        ("--link-tolerance", args.link_tolerance.is_some()),
        ("--seed", args.seed.is_some()),
        ("--vantage", args.vantage.is_some()),
        ("--start-at", args.start_at.is_some()),
    ];
    if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
        bail!("{option} has no effect with --resume, which keeps all settings: leave it out");
    }
    let (record, recorder) = Recorder::resume(path).with_context(|| format!("record {name}"))?;
    let header = record.header().with_context(|| format!("record {name}: it has no header"))?;
    let its_study = || format!("record {name}: its study");
    if let Some(other) = experiment.filter(|name| *name != header.study.experiment) {
        bail!(
            "{other} --resume: the record {name} is of {}; continue it with tcptoll study --resume {name}",
            header.study.experiment
        );
    }
    if record.summary().is_some_and(|summary| !summary.partial) {
        say("this run was complete, so there is nothing to continue. Its result:");
    }
    let mut schedule = Schedule::from_study(&header.study).with_context(its_study)?;
    schedule.prepare().with_context(its_study)?;
    let given =
        if args.fail_if.is_empty() { limit::stated(&header.command) } else { args.fail_if.clone() };
    let limits = limits(&given, &schedule)?;
    let began: Timestamp = header
        .started_at
        .parse()
        .with_context(|| format!("record {name}: started_at {}", header.started_at))?;
    check_files(args, &[path.to_path_buf()])?;
    let fresh = options()?;
    let now: Timestamp = fresh.started_at.parse()?;
    let options = RunOptions {
        record: path.to_owned(),
        seed: header.seed,
        tolerance: tolerance(header.link_tolerance.as_deref())?,
        after_s: (now - began).total(jiff::Unit::Second)?.max(0.0),
        ..fresh
    };
    carry_out(args, &limits, None, |interrupt, progress| {
        runner::resume(&record, recorder, schedule, &options, interrupt, progress)
    })
}

/// What every run has, with the rest at what nobody asked for.
fn options() -> anyhow::Result<RunOptions> {
    Ok(RunOptions {
        command: std::env::args().collect(),
        record: PathBuf::new(),
        record_is_named: false,
        seed: 0,
        tolerance: Tolerance::default(),
        tolerance_text: None,
        pcap: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        vantage: None,
        start: None,
        started_at: Timestamp::now().round(jiff::Unit::Second)?.to_string(),
        after_s: 0.0,
    })
}

/// A seed that no other run has. It is short, to be typed again.
pub(crate) fn any_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    // Keyed from the system's randomness, anew for each.
    RandomState::new().hash_one(std::process::id()) >> 32
}

fn limits(texts: &[String], schedule: &Schedule) -> anyhow::Result<Vec<Limit>> {
    let read = |text: &String| {
        let limit = Limit::parse(text, schedule.spec).map_err(anyhow::Error::msg)?;
        limit
            .check(&schedule.pairs, schedule.operations_max(), schedule.spec)
            .map_err(anyhow::Error::msg)?;
        Ok(limit)
    };
    texts.iter().map(read).collect()
}

fn tolerance(text: Option<&str>) -> anyhow::Result<Tolerance> {
    text.map_or(Ok(Tolerance::default()), |text| Tolerance::parse(text).map_err(anyhow::Error::msg))
}

type Going<'a> = &'a mut dyn FnMut(&Progress<'_>);

/// Measures under the eyes of the user, and puts what came of it where it was asked for.
fn carry_out(
    args: &OutputArgs,
    limits: &[Limit],
    expected: Option<String>,
    measure: impl FnOnce(&Interrupt, Going<'_>) -> Result<Run, RunError>,
) -> anyhow::Result<Status> {
    let interrupt = on_signals()?;
    if args.stop_on_eof {
        stop_on_eof(&interrupt)?;
    }
    let run = {
        let line = ProgressLine::new(args.quiet).after(expected);
        measure(&interrupt, &mut |progress| line.show(progress))
    };
    let run = match (run, interrupt.signal()) {
        (Err(error), Some(signal)) if error.is_interrupt() => {
            say("stopped before anything was measured: there is no record");
            return Ok(Status::Stopped(u8::try_from(signal).unwrap_or(0)));
        }
        (run, _) => run?,
    };
    let record = run.not_stored.is_none().then_some(run.record.as_path());
    let printed = print(&run.summary, record, args.format, args.details);
    let html = args.html.as_ref().map_or(Ok(()), |path| write_html(&run.summary, path));
    if let Err(error) = html {
        say(&format!("error: {error:#}; {}", stored(&run)));
        return Ok(Status::NotStored);
    }
    if let Err(error) = printed {
        return not_printed(error, &run);
    }
    if !args.quiet {
        args.html.iter().chain(&args.pcap).for_each(|path| wrote(path));
    }
    status(&run, limits, args)
}

/// What was measured is stored, but standard output takes nothing. A reader that has seen enough
/// closes a pipe: that is no failure.
fn not_printed(error: anyhow::Error, run: &Run) -> anyhow::Result<Status> {
    let cause = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    if cause.is_none_or(|kind| kind == std::io::ErrorKind::BrokenPipe) {
        return Err(error);
    }
    say(&format!("error: {}; standard output cannot be written: {error:#}", stored(run)));
    Ok(Status::NotStored)
}

/// Where the record is, or why there is none.
fn stored(run: &Run) -> String {
    let record = run.record.display();
    match &run.not_stored {
        None => format!("the record is in {record}"),
        Some(why) => format!("the record {record} {why}"),
    }
}

/// Prints a summary on stdout: on one screen, or with all details.
pub(crate) fn print(
    summary: &Summary,
    record: Option<&Path>,
    format: Format,
    details: bool,
) -> anyhow::Result<()> {
    let text = match format {
        Format::Text if details => REPORTS.text(summary, record, screen::style()),
        Format::Text => REPORTS.brief(summary, &shows_all(record), screen::style()),
        Format::Json => serde_json::to_string(summary)? + "\n",
    };
    stdout::print(&text, format)?;
    Ok(())
}

/// The command that shows everything of the run that has just ended.
fn shows_all(record: Option<&Path>) -> String {
    let Some(path) = record else { return "the same command with --details".to_owned() };
    let in_folder = record_folder().is_ok_and(|folder| path.parent() == Some(&folder));
    let name = if in_folder { "latest".into() } else { path.to_string_lossy() };
    format!("tcptoll report {}", shell_argument(&name))
}

/// Writes the HTML report.
fn write_html(summary: &Summary, path: &Path) -> anyhow::Result<()> {
    write_own(path, &REPORTS.html(summary), Mark::Markup)
        .with_context(|| format!("--html {}", path.display()))
}

/// Says which file was written.
pub(crate) fn wrote(path: &Path) {
    say(&format!("wrote {}", path.display()));
}

/// How often the signals' thread looks.
const LOOK: Duration = Duration::from_millis(100);
/// A second signal within this time is the first one again.
const INSIST_AFTER: Duration = Duration::from_secs(1);

/// A signal stops the run with what it has; a second one, a second later, ends it at once.
pub(crate) fn on_signals() -> anyhow::Result<Interrupt> {
    let interrupt = Interrupt::new();
    let insisted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(
            signal,
            128 + signal,
            Arc::clone(&insisted),
        )?;
        signal_hook::flag::register_usize(signal, interrupt.flag(), signal as usize)?;
    }
    let first = interrupt.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while first.signal().is_none() {
            std::thread::sleep(LOOK);
        }
        // timeout(1) and terminals send one signal twice: to the program and to its group.
        std::thread::sleep(INSIST_AFTER);
        insisted.store(true, Ordering::SeqCst);
    })?;
    Ok(interrupt)
}

/// The end of standard input stops the run like SIGTERM. A pipe ends with the process that holds its other end,
/// however that process ends.
fn stop_on_eof(interrupt: &Interrupt) -> anyhow::Result<()> {
    let interrupt = interrupt.clone();
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        // What is written there has no meaning. An error is an end, too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        interrupt.flag().store(SIGTERM as usize, Ordering::SeqCst);
    })?;
    Ok(())
}

fn status(run: &Run, limits: &[Limit], args: &OutputArgs) -> anyhow::Result<Status> {
    if let Some(nothing) = &run.nothing {
        say(&format!("error: {nothing}"));
        return Ok(Status::NotMeasured);
    }
    if run.not_stored.is_some() {
        say(&format!(
            "error: {}; of this run only the summary above is left. Choose another place with --out FILE, or with the \
             variable XDG_DATA_HOME",
            stored(run)
        ));
        return Ok(Status::NotStored);
    }
    if let Some(cut) = run.summary.warnings.iter().find(|w| w.id == "pcap-incomplete") {
        say(&format!("error: {}", cut.text));
        return Ok(Status::NotStored);
    }
    if let Some(signal) = run.signal {
        return Ok(Status::Stopped(u8::try_from(signal).unwrap_or(0)));
    }
    let held: Vec<Held> = limits.iter().map(|limit| limit.of_run(&run.summary)).collect();
    // The text begins with those of the command.
    let printed =
        if args.format == Format::Text { broken(&run.summary, SPECS) } else { Vec::new() };
    let all_broken = held.iter().flat_map(|held| &held.broken);
    all_broken.filter(|one| !printed.contains(one)).for_each(|sentence| say(sentence));
    held.iter()
        .filter(|_| !args.quiet)
        .filter_map(|held| held.met.as_ref())
        .for_each(|sentence| say(sentence));
    let broken = held.iter().any(|held| !held.broken.is_empty());
    let absent: Vec<String> = held.into_iter().filter_map(|held| held.absent).collect();
    if broken {
        for sentence in &absent {
            say(sentence);
        }
    } else if !absent.is_empty() {
        bail!(absent.join("; "));
    }
    let failed = run.summary.arms.iter().any(|arm| arm.failure.is_some())
        || run.summary.rounds.as_ref().is_some_and(|rounds| rounds.failed > 0);
    Ok(if broken || failed || !run.summary.valid { Status::Missed } else { Status::Met })
}

/// Where records go unless `--out` says other; it may not be there yet.
pub(crate) fn record_folder() -> anyhow::Result<PathBuf> {
    let folder = std::env::var_os("XDG_DATA_HOME")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".local/share")))
        .context(
            "no folder for the record: set HOME or XDG_DATA_HOME, or name a file with --out",
        )?;
    Ok(folder.join("tcptoll"))
}

/// A file in the folder for records that no other run has. Neither may be there yet.
fn record_in_folder(study: &Study) -> anyhow::Result<PathBuf> {
    let folder = record_folder()?;
    let name = if study.name.is_empty() { &study.experiment } else { &study.name };
    // Two runs may begin in one second.
    let stamp = Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let process = std::process::id();
    Ok(folder.join(format!("{name}-{stamp}-{process}.jsonl")))
}

fn check_files(args: &OutputArgs, read: &[PathBuf]) -> anyhow::Result<()> {
    check_apart(read, &[("--out", &args.out), ("--html", &args.html), ("--pcap", &args.pcap)])?;
    for (option, path) in [("--html", &args.html), ("--pcap", &args.pcap)] {
        if let Some(path) = path {
            check_writable(path).with_context(|| format!("{option} {}", path.display()))?;
        }
    }
    Ok(())
}

/// Whether an option names a file in a folder that exists, and no folder. `option`: as it was typed.
pub(crate) fn check_place(option: &str, path: &Path) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        bail!("{option}: there is no folder {}; create it first", folder.display());
    }
    if path.is_dir() {
        bail!("{option}: this is a folder; name a file in it");
    }
    Ok(())
}

/// Whether each file that is written is one of its own, and none that is read.
pub(crate) fn check_apart(
    read: &[PathBuf],
    written: &[(&str, &Option<PathBuf>)],
) -> anyhow::Result<()> {
    let of_record = |path: &PathBuf| Some((own_place(path)?, "the record"));
    let mut known: Vec<(PathBuf, &str)> = read.iter().filter_map(of_record).collect();
    for (option, path) in written {
        let Some(path) = path else { continue };
        let Some(place) = own_place(path) else { continue };
        if let Some((_, other)) = known.iter().find(|(taken, _)| *taken == place) {
            bail!(
                "{option} {}: this is also the file of {other}: name another one",
                path.display()
            );
        }
        known.push((place, option));
    }
    Ok(())
}

/// Where a file is or would be; `None`: it is a device or the like, or its folder is not there.
fn own_place(path: &Path) -> Option<PathBuf> {
    if let Ok(place) = path.canonicalize() {
        return place.is_file().then_some(place);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    Some(folder.unwrap_or(Path::new(".")).canonicalize().ok()?.join(path.file_name()?))
}

/// Opens the file as it will be opened, so that what is there stays until there is something to write.
pub(crate) fn check_writable(path: &Path) -> std::io::Result<()> {
    let existed = path.exists();
    open_own(path)?;
    if !existed {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::Resolved;

    use super::*;
    use crate::studies::tests::study;

    fn notices(study: &Study, address: Option<&str>) -> Vec<String> {
        let mut schedule = Schedule::from_study(study).unwrap();
        if let Some(address) = address {
            // With a port of its own: no name is looked up here.
            let entry = |name: &str| Resolved {
                name: name.to_owned(),
                addresses: vec![address.to_owned()],
                used: address.to_owned(),
            };
            schedule.resolve(&[entry("db.example:80")]).unwrap();
        }
        schedule.public_loads().iter().map(notice).collect()
    }

    fn notices_for(line: &str, address: Option<&str>) -> Vec<String> {
        notices(&study(line).unwrap(), address)
    }

    #[test]
    fn load_on_a_public_address_is_announced_with_its_rate_and_on_our_own_is_not() {
        // An address for documentation (RFC 5737): nothing is sent to it here.
        assert_eq!(
            notices_for("http http://192.0.2.1/", None),
            [
                "notice: http://192.0.2.1/ is a public address: up to 20 requests per second will be \
              sent to it; make sure you may do this (--rate and --requests set other figures)"
            ]
        );
        assert!(notices_for("http http://127.0.0.1:8080/", None).is_empty());
        assert!(notices_for("http http://db.example/", Some("10.0.0.1")).is_empty());
        assert_eq!(notices_for("http http://db.example/", Some("192.0.2.1")).len(), 1);
        // Nothing is known of a name that has not been resolved.
        assert!(notices_for("http http://db.example/", None).is_empty());
        assert!(notices_for("http", None).is_empty());
    }

    #[test]
    fn of_several_arms_the_one_with_the_most_load_is_announced() {
        let [said] = &notices_for("http --rate 5,300,20 http://192.0.2.1/", None)[..] else {
            panic!()
        };
        assert!(said.contains("up to 300 requests per second"), "{said}");
        let [said] = &notices_for("connect --to 192.0.2.1:80 --rate 5,50", None)[..] else {
            panic!()
        };
        assert!(
            said.contains(": 100 connections at 50 per second will be opened to it; "),
            "{said}"
        );
        let [said] = &notices_for("keepalive --to 192.0.2.1:80 --sockets 9,90", None)[..] else {
            panic!()
        };
        assert!(said.contains(": 90 connections will be held open to it; "), "{said}");
    }
}
