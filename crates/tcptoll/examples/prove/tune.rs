//! What do waiting visitors hold, and is the setting that a search finds as good as the best of a grid?

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, bail};
use tcptoll::tune::found::Found;
use tcptoll::tune::setting::Setting;
use tcptoll::tune::snippet::{Distribution, Snippet};
use tcptoll_core::record::{Arm, Comparison, Summary, Verdict};
use tcptoll_measure::pages::Server;

use crate::http::summary;
use crate::links::tcptoll;
use crate::table::Folder;
use crate::table::Proofs;

/// What is sought.
const P95: &str = "page_us_p95";

fn value(arm: &Arm, metric: &str) -> anyhow::Result<f64> {
    let metric = arm.metrics.get(metric).with_context(|| format!("{metric} of {}", arm.name))?;
    Ok(metric.value)
}

/// Workers that `mod_status` shows against arrivals × (service + timeout).
pub(crate) fn held(table: &mut Proofs) -> anyhow::Result<()> {
    let load = ["--memory", "512M", "--worker-memory", "5M", "--max-workers", "80"];
    let visitors = ["--rate", "1", "--pages", "1", "--duration", "30s", "--warmup", "10s"];
    let arms = ["--keepalive-timeout", "1s,2s,3s,5s,8s", "--rounds", "1"];
    let (run, _) = summary(&["visitors"], &[&load[..], &visitors, &arms].concat())?;
    for arm in &run.arms {
        let held = value(arm, "workers_held_mean")?;
        let visits = arm.own.site_visits.as_deref().context("what visitors did")?;
        let expected = visits.held_expected.context("what is expected")?;
        let off = held / expected - 1.0;
        table.row(
            &format!("prefork, mod_php, 512 MB, {}: workers held", arm.name),
            "arrivals × (service + timeout) within 10 %",
            &format!("{held:.1} by mod_status, {expected:.1} by arithmetic: {:+.1} %", off * 1e2),
            off.abs() <= 0.10,
        );
    }
    Ok(())
}

/// The belief that `MaxKeepAliveRequests` divided by 6 is the number of visitors.
pub(crate) fn requests(table: &mut Proofs) -> anyhow::Result<()> {
    let (run, _) = summary(&["study", "run", "requests-per-visitor"], &["--rounds", "4"])?;
    let arm = |name: &str| {
        let found = run.arms.iter().find(|arm| arm.name == name);
        found.with_context(|| format!("no arm {name}"))
    };
    let many = value(arm("120 requests")?, "workers_held_mean")?;
    for name in ["120 requests", "300 requests", "12 requests", "6 requests", "2 requests"] {
        let one = arm(name)?;
        let held = value(one, "workers_held_mean")?;
        let per_page = value(one, "connections_per_page")?;
        Proofs::fact(
            &format!("MaxKeepAliveRequests, {name}"),
            &format!(
                "{per_page:.2} connections per page, {held:.1} workers held, {} of {} pages whole",
                one.ok, one.attempts
            ),
        );
    }
    let few = value(arm("12 requests")?, "workers_held_mean")?;
    table.row(
        "12 requests would be 2 visitors (12 workers) if the belief were true",
        "as many workers held as with 120, within 10 %",
        &format!("{few:.1} against {many:.1}: {:+.1} %", (few / many - 1.0) * 1e2),
        (few / many - 1.0).abs() <= 0.10,
    );
    Ok(())
}

/// The example for little memory: the found setting, and the document's values next to it.
pub(crate) fn vps(table: &mut Proofs) -> anyhow::Result<()> {
    verdicts(table, "vps-2016")
}

/// The example for much memory and visitors in peaks.
pub(crate) fn dedicated(table: &mut Proofs) -> anyhow::Result<()> {
    verdicts(table, "dedicated-2016")
}

/// The found setting of the first example against a grid.
pub(crate) fn vps_grid(table: &mut Proofs) -> anyhow::Result<()> {
    against_grid(table, "vps-2016")
}

/// The same of the second.
pub(crate) fn dedicated_grid(table: &mut Proofs) -> anyhow::Result<()> {
    against_grid(table, "dedicated-2016")
}

/// Timeouts of a grid: a name, and the line of its arm.
const GRID: [(&str, &str); 6] = [
    ("off", "keepalive = \"off\""),
    ("100ms", "keepalive-timeout = \"100ms\""),
    ("1s", "keepalive-timeout = \"1s\""),
    ("2s", "keepalive-timeout = \"2s\""),
    ("5s", "keepalive-timeout = \"5s\""),
    ("15s", "keepalive-timeout = \"15s\""),
];

/// Searches with the load of a study.
fn searched(folder: &Folder, study: &str) -> anyhow::Result<Found> {
    let out = folder.path("found.json");
    let status = Command::new(tcptoll()?)
        .args(["tune", "apache-prefork", "--study", study, "--quiet", "--format", "json"])
        // Five rounds of six settings, of which some take all workers.
        .args(["--compare-time", "30m", "--out", &out])
        .stdout(std::process::Stdio::null())
        .status()?;
    serde_json::from_slice(&std::fs::read(&out)?)
        .with_context(|| format!("tune --study {study}: {status}"))
}

fn verdicts(table: &mut Proofs, study: &str) -> anyhow::Result<()> {
    let folder = Folder::new(study)?;
    let found = searched(&folder, study)?;
    compared(table, study, &found);
    Ok(())
}

/// The answer, and a row for each setting that was compared with it.
fn compared(table: &mut Proofs, study: &str, found: &Found) {
    Proofs::fact(&format!("{study}: tune"), &found.answer());
    for one in &found.compared {
        let setting = one.setting.name(found.server);
        let interval = one.comparison.as_ref().and_then(|comparison| comparison.ci95);
        table.row(
            &format!("{study}: {} ({setting}) next to the found one", one.name),
            "a verdict with its interval",
            &one.words(),
            one.same_as.is_some() || interval.is_some(),
        );
    }
}

fn against_grid(table: &mut Proofs, study: &str) -> anyhow::Result<()> {
    let folder = Folder::new(study)?;
    let found = searched(&folder, study)?;
    let chosen = found.chosen().context("a setting")?;
    compared(table, study, &found);
    // The grid is run afterwards, with other visitors.
    let begun = Instant::now();
    let grid = grid(&folder, &found)?;
    let grid_s = begun.elapsed().as_secs_f64();
    table.row(
        &format!("{study}: time of the search"),
        "≤ 1/5 of a grid of 24 cells × 5 rounds × 20 s",
        &format!("{:.0} s of {grid_s:.0} s: 1/{:.1}", found.search_s, grid_s / found.search_s),
        found.search_s <= grid_s / 5.0,
    );
    let mut best: Option<(&Arm, f64)> = None;
    for arm in &grid.arms {
        let us = geometric(arm);
        Proofs::fact(
            &format!("{study}: grid, {}", arm.name),
            &format!(
                "p95 {}, {} of {} pages whole, {:.1} held",
                us.map_or("—".to_owned(), |us| format!("{:.0} ms", us / 1e3)),
                arm.ok,
                arm.attempts,
                value(arm, "workers_held_mean").unwrap_or_default()
            ),
        );
        if let Some(us) = us.filter(|_| arm.ok == arm.attempts)
            && best.is_none_or(|(_, least)| us < least)
        {
            best = Some((arm, us));
        }
    }
    let (best, best_us) = best.context("a cell that refuses nobody")?;
    let duel = duel(&folder, &found, chosen.setting, best)?;
    let ratio = duel.ratio.context("a ratio")?;
    let interval =
        duel.ci95.map_or_else(String::new, |[low, high]| format!(" [{low:.3}, {high:.3}]"));
    table.row(
        &format!("{study}: the found setting against the best of the grid"),
        "not higher by more than the margin of 10 %",
        &format!(
            "{} against {} ({:.0} ms in the grid): ×{ratio:.3}{interval}, {} rounds: {}",
            chosen.setting.name(found.server),
            best.name,
            best_us / 1e3,
            duel.rounds,
            words(duel.verdict)
        ),
        duel.verdict != Verdict::Higher && ratio <= 1.10,
    );
    Ok(())
}

fn words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Higher => "higher",
        Verdict::Lower => "lower",
        Verdict::NoDifference => "no difference found",
        Verdict::NotEnough => "not enough evidence",
    }
}

/// Geometric mean of the p95 of the rounds, µs. None: a round has none.
fn geometric(arm: &Arm) -> Option<f64> {
    let rounds: Vec<f64> = arm
        .rounds
        .iter()
        .filter(|round| round.left_out.is_none())
        .map(|round| round.metrics.get(P95).copied().unwrap_or(f64::NAN).ln())
        .collect();
    let mean = rounds.iter().sum::<f64>() / rounds.len() as f64;
    mean.is_finite().then(|| mean.exp())
}

/// The load of a search as the settings of a study.
fn settings(found: &Found) -> String {
    let line = |(name, value): (&String, &String)| format!("{name} = {value:?}\n");
    let load: String = found.load.iter().map(line).collect();
    format!("[settings]\nserver = \"{}\"\n{load}", found.server.name())
}

/// The head of a study of these settings.
fn head(name: &str) -> String {
    format!(
        "name = \"{name}\"\nquestion = \"Which setting has the least p95?\"\nexperiment = \"visitors\"\n\
         metric = \"{P95}\"\nmargin = \"10%\"\nfailures = \"expected\"\n"
    )
}

fn run(folder: &Folder, name: &str, text: &str) -> anyhow::Result<Summary> {
    let file = folder.file(name, text)?;
    let (run, _) = summary(&["study", "run", &file], &[])?;
    Ok(run)
}

/// 24 cells, five rounds.
fn grid(folder: &Folder, found: &Found) -> anyhow::Result<Summary> {
    let limit = found.workers_limit;
    let workers = [limit / 4, limit / 2, limit * 3 / 4, limit];
    let mut text = head("grid") + &settings(found);
    text += &format!("[factors]\nmax-workers = {workers:?}\n");
    for (name, line) in GRID {
        text += &format!("[[arm]]\nname = \"{name}\"\n{line}\n");
    }
    text += "[rounds]\nfixed = 5\n";
    run(folder, "grid.toml", &text)
}

/// The found setting and a cell of the grid, in turn.
fn duel(folder: &Folder, found: &Found, choice: Setting, best: &Arm) -> anyhow::Result<Comparison> {
    let options = choice.options(found.server);
    let mut text = head("duel") + &settings(found);
    text += "[[arm]]\nname = \"found\"\n";
    for (name, value) in &options {
        text += &format!("{name} = {value}\n");
    }
    let (timeout, workers) = best.name.split_once(", max-workers ").context("a cell's name")?;
    let line = GRID.iter().find(|(name, _)| *name == timeout).context("a timeout of the grid")?.1;
    text += &format!("[[arm]]\nname = \"best\"\n{line}\nmax-workers = {workers}\n");
    text += "[[compare]]\nagainst = \"best\"\n[rounds]\ntarget = \"verdict\"\nmin = 6\nmax = 15\nmax_time = \"12m\"\n";
    let run = run(folder, "duel.toml", &text)?;
    match run.comparisons.into_iter().next() {
        Some(comparison) => Ok(comparison),
        None => bail!("no comparison"),
    }
}

/// Every configuration against the check of the installed server, in the files of the distribution.
pub(crate) fn snippets(table: &mut Proofs) -> anyhow::Result<()> {
    let folder = Folder::new("snippets")?;
    for server in Server::ALL {
        let mut taken = 0;
        let mut all = 0;
        let mut refused = String::new();
        for timeout_ms in [None, Some(100), Some(2_000), Some(65_000)] {
            for (requests, workers) in [(100, 22), (0, 380), (30, 1_200)] {
                let setting = Setting { timeout_ms, requests, workers };
                let snippet = Snippet::new(server, Distribution::Debian, &setting, (&[], "none"));
                all += 1;
                match takes(&folder, server, &snippet)? {
                    None => taken += 1,
                    Some(why) => refused = why,
                }
            }
        }
        let command = if server == Server::Nginx { "nginx -t" } else { "apachectl configtest" };
        table.row(
            &format!("configurations for {} taken by `{command}`", server.name()),
            &format!("{all} of {all}"),
            &format!("{taken} of {all} {refused}"),
            taken == all,
        );
    }
    Ok(())
}

/// Why the server refuses a configuration; None: it takes it. Its distribution's files are copied, and not touched.
fn takes(folder: &Folder, server: Server, snippet: &Snippet) -> anyhow::Result<Option<String>> {
    let copy = folder.path("etc");
    let _ = std::fs::remove_dir_all(&copy);
    let mut command = match server.mpm() {
        Some(mpm) => apache(mpm, &copy)?,
        None => nginx(&copy, snippet)?,
    };
    let place = if server == Server::Nginx { "conf.d" } else { "conf-enabled" };
    std::fs::create_dir_all(format!("{copy}/{place}"))?;
    let text = snippet.pieces[0].lines.join("\n") + "\n";
    std::fs::write(format!("{copy}/{place}/zz-tcptoll.conf"), text)?;
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    Ok((!output.status.success()).then(|| why.lines().next().unwrap_or_default().to_owned()))
}

/// A copy of Debian's files with this module, and the command that checks it.
fn apache(mpm: &str, copy: &str) -> anyhow::Result<Command> {
    copied("/etc/apache2", copy)?;
    let enabled = format!("{copy}/mods-enabled");
    for entry in std::fs::read_dir(&enabled)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // mod_php needs prefork.
        if name.starts_with("mpm_") || name.starts_with("php") {
            std::fs::remove_file(path)?;
        }
    }
    for ending in ["load", "conf"] {
        let file = format!("mpm_{mpm}.{ending}");
        std::fs::copy(format!("{copy}/mods-available/{file}"), format!("{enabled}/{file}"))?;
    }
    let mut command = Command::new("apachectl");
    command.arg("configtest").env("APACHE_CONFDIR", copy);
    Ok(command)
}

/// The same of nginx, with the line of its main file replaced.
fn nginx(copy: &str, snippet: &Snippet) -> anyhow::Result<Command> {
    copied("/etc/nginx", copy)?;
    let main = format!("{copy}/nginx.conf");
    let text = std::fs::read_to_string(&main)?;
    let events = snippet.pieces.last().context("a piece")?.lines.join("\n");
    let is_it = |line: &str| line.trim().starts_with("worker_connections");
    let lines: Vec<&str> =
        text.lines().map(|line| if is_it(line) { events.as_str() } else { line }).collect();
    let text = lines.join("\n").replace("/etc/nginx/", &format!("{copy}/"));
    std::fs::write(&main, text)?;
    let mut command = Command::new("nginx");
    command.args(["-t", "-c", &main]);
    Ok(command)
}

fn copied(from: &str, to: &str) -> anyhow::Result<()> {
    let status = Command::new("cp").args(["-rL", from, to]).status()?;
    if !status.success() {
        bail!("cp -rL {from} {to}: {status}");
    }
    Ok(())
}
