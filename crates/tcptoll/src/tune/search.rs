//! A search: what a worker weighs, stage after stage, and the found setting next to others.
//!
//! Workers that fit are weighed by their PSS without a limit, and 5 % of the memory stay free, because the
//! kernel counts sockets and files read to the group as well. If it kills a process all the same, the search
//! goes on with 15 % fewer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::TuneRequest;
use super::found::{Behind, Compared, Found, Note, Stage, Weight};
use super::load::{Load, search, setting};
use super::setting::{Cell, Measured, Setting};
use super::snippet::Snippet;
use super::strategy::{Batch, Strategy, knee};
use crate::exit::say;
use crate::output;
use tcptoll_core::number;
use tcptoll_core::record::{Arm, Summary};
use tcptoll_core::study::{Compare, NamedArm, RoundsAsked, Settings, Study};
use tcptoll_core::units::{parse_time, text_time};
use tcptoll_lab::lab::Interrupt;
use tcptoll_measure::pages::Server;
use tcptoll_measure::runner::{Run, Schedule};

/// Workers of the two trials that weigh one; both numbers are held whole. Threads come in processes of 25, one of which
/// answers for the status page.
const WEIGHED: [u64; 2] = [4, 12];
const WEIGHED_THREADS: [u64; 2] = [24, 74];

/// What these trials have in place of the load: visitors that each hold one worker, which has run PHP.
const WEIGHING: [(&str, &str); 7] = [
    ("connections-per-origin", "1"),
    ("duration", "3s"),
    ("keepalive-timeout", "15s"),
    ("pages", "1"),
    ("peak-factor", "1"),
    ("think", "1s"),
    ("warmup", "6s"),
];

/// Visitors per second in them, for each of the workers: all are held before the window begins.
const WEIGHING_RATE: f64 = 1.0 / 3.0;

/// The name of the found setting in a comparison.
const FOUND: &str = "found";

/// Rounds of a comparison: fewer allow no interval, and a verdict is rarely later.
const COMPARE_ROUNDS: [u32; 2] = [5, 15];

/// Visitors of a comparison follow from this seed: no stage had them.
const COMPARE_SEED: u64 = 1_000;

/// Stages in a row of which nothing could be measured, at most.
const EMPTY_MAX: u32 = 2;

/// Sentences about what went wrong, at most.
const DOUBTS_MAX: usize = 20;

/// A search under way.
pub(super) struct Search<'a> {
    pub(super) load: &'a Load,
    /// How far the link may be from what is asked.
    pub(super) tolerance: &'a str,
    pub(super) quiet: bool,
    pub(super) interrupt: &'a Interrupt,
    pub(super) found: &'a mut Found,
}

impl Search<'_> {
    /// Workers that the memory has room for, by weighing some.
    ///
    /// Errors: nothing was measured, as where the server is not installed.
    pub(super) fn weigh(&mut self) -> anyhow::Result<Option<Weight>> {
        let begun = Instant::now();
        let threads = self.found.server != Server::ApachePrefork;
        let weighed = if threads { WEIGHED_THREADS } else { WEIGHED };
        self.tell(&format!("weighing a worker: {} and {} of them", weighed[0], weighed[1]));
        let arm = |workers: u64| {
            let rate = workers as f64 * WEIGHING_RATE;
            let rate = Value::from(format!("{rate:.1}"));
            named(&format!("{workers} workers"), [("max-workers", workers.into()), ("rate", rate)])
        };
        let arms: Vec<NamedArm> = weighed.map(arm).into();
        let mut study = self.study(arms, RoundsAsked { fixed: Some(1), ..RoundsAsked::default() });
        for (name, value) in WEIGHING {
            study.settings.insert(name.to_owned(), Value::from(value));
        }
        // Weighed without the limit: with it, the heaviest would be killed.
        study.settings.remove("memory");
        let run = self.measure(&study, self.found.seed)?;
        self.take_notes(&run.summary);
        let bytes = |arm: &Arm| arm.server.as_ref()?.memory_bytes;
        let held = |arm: &Arm| arm.metrics.get("workers_held_peak").map(|metric| metric.value);
        let weights: Vec<(u64, u64)> = run
            .summary
            .arms
            .iter()
            .zip(weighed)
            .filter(|(arm, workers)| held(arm).is_some_and(|held| held >= *workers as f64))
            .filter_map(|(arm, workers)| Some((workers, bytes(arm)?)))
            .collect();
        let weight = match weights[..] {
            [few, more] => Weight::from_memory(self.found.memory_bytes, [few, more]),
            _ => None,
        };
        self.found.trials += weighed.len() as u32;
        self.found.stages.push(Stage {
            why: match &weight {
                Some(weight) => format!(
                    "a worker takes {}, the server without workers {}: {} fit",
                    number::bytes(weight.worker_bytes as f64),
                    number::bytes(weight.base_bytes as f64),
                    weight.fits
                ),
                None => "a worker could not be weighed".to_owned(),
            },
            took_s: begun.elapsed().as_secs_f64(),
            record: stored(&run),
            ..Stage::default()
        });
        Ok(weight)
    }

    /// Measures stage after stage until the strategy has ended, a signal came, or nothing can be measured.
    ///
    /// Errors: the first stage measured nothing.
    pub(super) fn run(&mut self, strategy: &mut dyn Strategy) -> anyhow::Result<()> {
        let mut measured = Measured::default();
        let mut empty = 0;
        while let Some(batch) = strategy.next(&measured) {
            let begun = Instant::now();
            let study = self.batch(&batch);
            self.tell_stage(&batch, &study);
            let seed = self.found.seed + u64::from(batch.visitors(&measured));
            let run = match self.measure(&study, seed) {
                Ok(run) => run,
                Err(error) if self.found.cells.is_empty() && self.interrupt.signal().is_none() => {
                    return Err(error);
                }
                Err(error) => {
                    if self.interrupt.signal().is_none() {
                        self.doubt(format!("{}: not measured: {error:#}.", batch.why));
                    }
                    empty += 1;
                    if self.interrupt.signal().is_some() || empty >= EMPTY_MAX {
                        break;
                    }
                    continue;
                }
            };
            let cells = self.cells(&batch, &run.summary);
            empty = if cells.is_empty() { empty + 1 } else { 0 };
            for cell in &cells {
                measured.take(cell.clone());
            }
            self.found.trials += batch.settings.len() as u32 * batch.rounds;
            if let Some(best) = strategy.choice(&measured) {
                self.tell(&format!("best so far: {}", best.name(self.found.server)));
            }
            self.found.stages.push(Stage {
                why: batch.why,
                cells,
                notes: notes(&run.summary),
                took_s: begun.elapsed().as_secs_f64(),
                record: stored(&run),
            });
            self.found.cells = measured.cells().cloned().collect();
            if self.interrupt.signal().is_some() || empty >= EMPTY_MAX {
                break;
            }
        }
        self.found.partial = self.interrupt.signal().is_some();
        if empty >= EMPTY_MAX {
            self.doubt("The search ended early: nothing could be measured any more.".to_owned());
        }
        self.found.choice = strategy.choice(&measured);
        self.found.knee_workers =
            self.found.choice.as_ref().and_then(|choice| knee(&measured, choice));
        Ok(())
    }

    /// The found setting next to others, with visitors that no stage had, until each verdict is found.
    pub(super) fn compare(
        &mut self,
        others: &[(String, Setting)],
        time: Duration,
    ) -> anyhow::Result<()> {
        let Some(choice) = self.found.choice else { return Ok(()) };
        let server = self.found.server;
        let mut arms = vec![named(FOUND, choice.options(server))];
        let mut run_as: BTreeMap<Setting, String> = [(choice, "the found one".to_owned())].into();
        for (name, setting) in others {
            let same_as = run_as.get(setting).cloned();
            if same_as.is_none() {
                run_as.insert(*setting, name.clone());
                arms.push(named(name, setting.options(server)));
            }
            let compared =
                Compared { name: name.clone(), setting: *setting, same_as, ..Compared::default() };
            self.found.compared.push(compared);
        }
        if arms.len() == 1 {
            return Ok(());
        }
        let [min, max] = COMPARE_ROUNDS;
        let mut study = self.study(
            arms,
            RoundsAsked {
                target: Some("verdict".to_owned()),
                min: Some(min),
                max: Some(max),
                max_time: Some(text_time(time)),
                ..RoundsAsked::default()
            },
        );
        study.compare = vec![Compare { against: Some(Value::from(FOUND)), ..Compare::default() }];
        self.tell(&format!(
            "comparing the found setting with others ({}), at most {}",
            study.named_arms.len() - 1,
            text_time(time)
        ));
        let run = self.measure(&study, self.found.seed + COMPARE_SEED)?;
        self.take_notes(&run.summary);
        let arm = |name: &str| run.summary.arms.iter().find(|arm| arm.name == name);
        self.found.compared_choice = arm(FOUND).and_then(|arm| Cell::from_arm(choice, arm));
        for compared in self.found.compared.iter_mut().filter(|one| one.same_as.is_none()) {
            compared.cell = arm(&compared.name)
                .filter(|arm| excluded(&run.summary, &arm.name).is_none())
                .and_then(|arm| Cell::from_arm(compared.setting, arm));
            let is_of_compared = |one: &&tcptoll_core::record::Comparison| one.a == compared.name;
            compared.comparison = run.summary.comparisons.iter().find(is_of_compared).cloned();
        }
        self.found.compared_record = stored(&run);
        Ok(())
    }

    /// The arms of a study as settings.
    pub(super) fn others(&mut self) -> Vec<(String, Setting)> {
        let workers = self.found.workers_limit;
        let mut settings = Vec::new();
        let load = self.load;
        for (name, arm) in &load.others {
            match setting(arm, self.found.server, workers) {
                Ok(setting) => settings.push((name.clone(), setting)),
                Err(why) => self.doubt(format!("{name} is not compared: {why}.")),
            }
        }
        settings
    }

    /// The study of a batch.
    pub(super) fn batch(&self, batch: &Batch) -> Study {
        let server = self.found.server;
        let arm = |setting: &Setting| named(&setting.name(server), setting.options(server));
        let rounds = RoundsAsked { fixed: Some(batch.rounds), ..RoundsAsked::default() };
        self.study(batch.settings.iter().map(arm).collect(), rounds)
    }

    /// A study of the load with these arms.
    pub(super) fn study(&self, arms: Vec<NamedArm>, rounds: RoundsAsked) -> Study {
        let mut study = search();
        study.settings = self.load.settings.clone();
        study.settings.insert("server".to_owned(), Value::from(self.found.server.name()));
        study.named_arms = arms;
        study.rounds = rounds;
        study
    }

    fn measure(&self, study: &Study, seed: u64) -> anyhow::Result<Run> {
        output::measure(study, Some(self.tolerance), self.quiet, Some(seed), self.interrupt)
    }

    /// What was measured of a batch; what was not is a doubt.
    fn cells(&mut self, batch: &Batch, summary: &Summary) -> Vec<Cell> {
        self.take_notes(summary);
        let mut cells = Vec::new();
        for setting in &batch.settings {
            let name = setting.name(self.found.server);
            let arm = summary.arms.iter().find(|arm| arm.name == name);
            // What is excluded may not be used; what was stopped is not whole.
            let excluded = excluded(summary, &name);
            let cell = arm.filter(|arm| !arm.partial).and_then(|arm| Cell::from_arm(*setting, arm));
            // Nobody but a server that is gone refuses a connection: a full queue drops it.
            let refused = arm.is_some_and(|arm| arm.errors.contains_key("connect-refused"));
            let died = refused && cell.as_ref().is_some_and(|cell| cell.kills == 0);
            let died = died.then(|| "the server died during its trial".to_owned());
            let excluded = excluded.or(died);
            match cell.filter(|_| excluded.is_none()) {
                Some(cell) => cells.push(cell),
                None if self.interrupt.signal().is_some() => {}
                None => {
                    let failure = arm.and_then(|arm| arm.failure.clone()).or(excluded);
                    let why = failure.unwrap_or_else(|| "no page was asked for in this stage: give it a longer --duration or a higher --rate".to_owned());
                    self.doubt(format!("{name} was not measured: {why}."));
                }
            }
        }
        cells
    }

    /// Version of the server, who limited its memory, and what a reader must know of a run.
    fn take_notes(&mut self, summary: &Summary) {
        for arm in &summary.arms {
            let version = arm.server.as_ref().and_then(|server| server.version.clone());
            self.found.server_version = self.found.server_version.take().or(version);
            let limit = arm.own.site_visits.as_deref().and_then(|v| v.memory_limit.as_ref());
            let Some(limit) = limit else { continue };
            if self.found.memory_limited_by.is_none() {
                self.found.memory_limited_by = Some(limit.by.clone());
                if let Some(why) = &limit.why {
                    self.doubt(format!(
                        "The kernel did not limit the memory ({why}): a watch summed up the memory of all processes \
                         four times a second, and killed the largest worker above the limit."
                    ));
                }
            }
        }
    }

    fn doubt(&mut self, sentence: String) {
        if self.found.doubts.len() < DOUBTS_MAX && !self.found.doubts.contains(&sentence) {
            self.found.doubts.push(sentence);
        }
    }

    fn tell_stage(&self, batch: &Batch, study: &Study) {
        let trials = batch.settings.len() as u32 * batch.rounds;
        let each_s = Schedule::from_study(study)
            .map_or(0.0, |schedule| schedule.round_s() / study.named_arms.len().max(1) as f64);
        let word = if trials == 1 { "trial" } else { "trials" };
        let time = Duration::from_secs_f64((each_s * f64::from(trials)).round());
        self.tell(&format!("{}: {trials} {word}, about {}", batch.why, text_time(time)));
    }

    fn tell(&self, sentence: &str) {
        if !self.quiet {
            say(sentence);
        }
    }
}

/// What went wrong with settings, and why: failed pages by class, and causes that a run names.
fn notes(summary: &Summary) -> Vec<Note> {
    let failed = summary.arms.iter().filter(|arm| arm.attempts > arm.ok).map(|arm| {
        let classes: Vec<String> =
            arm.errors.iter().map(|(class, count)| format!("{count} {class}")).collect();
        let (failed, all) = (arm.attempts - arm.ok, arm.attempts);
        Note {
            id: "pages-failed".to_owned(),
            setting: arm.name.clone(),
            text: format!("{failed} of {all} pages failed ({}).", classes.join(", ")),
        }
    });
    let causes = summary.causes.iter().map(|cause| Note {
        id: cause.id.clone(),
        setting: cause.arm.clone(),
        text: cause.text.clone(),
    });
    failed.chain(causes).collect()
}

/// Why all trials of an arm are excluded. None: one of them counts.
fn excluded(summary: &Summary, arm: &str) -> Option<String> {
    let of_arm = || summary.excluded.iter().filter(|one| one.arm == arm);
    let (first, trials) = (of_arm().next()?, of_arm().map(|one| one.trials).sum::<u32>());
    (trials >= first.of).then(|| first.reason.clone())
}

/// An arm with these settings.
fn named<N: Into<String>>(name: &str, settings: impl IntoIterator<Item = (N, Value)>) -> NamedArm {
    let settings: Settings =
        settings.into_iter().map(|(name, value)| (name.into(), value)).collect();
    NamedArm { name: name.to_owned(), settings, ..NamedArm::default() }
}

/// Where the record of a run is. None: it was not stored.
pub(super) fn stored(run: &Run) -> Option<String> {
    run.not_stored.is_none().then(|| run.record.display().to_string())
}

// What follows from the measured cells: the snippet, the balancer's rule, doubts about the setting.

/// Fewer pages in a trial than this have no p95 to speak of.
const PAGES_MIN: u64 = 20;

/// Whatever follows from the cells alone: snippet, balancer, doubts about the setting.
pub(super) fn conclude(asked: &TuneRequest<'_>, found: &mut Found) {
    let Some(choice) = found.choice else { return };
    let earlier_ms = found.behind.as_ref().map(|behind| behind.balancer_ms);
    found.behind = asked.behind_ms.or(earlier_ms).map(|ms| Behind::new(ms, &choice));
    let chosen = found.chosen().cloned();
    // A clause a line, so that the lines are no longer than those of other configurations.
    let behind = found.behind.as_ref().map(|behind| behind.words(found.server));
    let texts = [Some(found.answer()), behind].into_iter().flatten();
    let clauses = |text: String| -> Vec<String> {
        text.split_inclusive([';', '.']).fold(Vec::new(), |mut lines: Vec<String>, piece| {
            match lines.last_mut() {
                // No clause begins without a blank before it: `1.5 s`.
                Some(last) if !piece.starts_with(' ') => last.push_str(piece),
                _ => lines.push(piece.trim_start().to_owned()),
            }
            lines
        })
    };
    let mut comments =
        vec![format!("Found by tcptoll {} on {}.", found.tcptoll_version, found.started_at)];
    comments.extend(texts.flat_map(clauses));
    let cost = cost(found, chosen.as_ref().map_or(0.0, |cell| cell.workers_held_mean));
    let comments = (&comments[..], cost.as_str());
    found.snippet = Some(Snippet::new(found.server, asked.distribution, &choice, comments));
    if asked.args.from.is_some() {
        return;
    }
    if let (Some(ms), Some(warmup_s)) = (choice.timeout_ms, warmup_s(found))
        && ms as f64 / 1e3 > warmup_s
    {
        found.doubts.push(format!(
            "The timeout ({}) is longer than the warm-up ({warmup_s} s): connections held were still growing. A \
             longer --warmup shows where they end.",
            number::tick(ms as f64, "ms")
        ));
    }
    if let Some(cell) = &chosen {
        let each = cell.pages / u64::from(cell.rounds.max(1));
        if each < PAGES_MIN {
            found.doubts.push(format!(
                "A trial of the found setting had {each} pages, so its p95 is about the slowest one. A longer \
                 --duration or a higher --rate shows more."
            ));
        }
        if cell.is_full() && found.server.idle_holds() {
            found.doubts.push(
                "All workers were taken at times with the found setting too: visitors wait then. More memory, lighter \
                 workers, or a server whose idle connections hold none (event with PHP-FPM, nginx) is the way out."
                    .to_owned(),
            );
        }
    }
    if let Some(cell) = chosen
        .filter(|_| found.server.idle_holds())
        .filter(|cell| !cell.is_full() && cell.page_us_p95 > cell.page_us_mean.map(|us| us * 2.0))
    {
        let us = |us: Option<f64>| us.map_or_else(String::new, number::time);
        found.doubts.push(format!(
            "The p95 ({}) is more than twice the mean ({}) although workers were left. Pages may have waited while \
             the server started processes: then StartServers and MinSpareServers, which are not searched, matter.",
            us(cell.page_us_p95),
            us(cell.page_us_mean)
        ));
    }
}

fn warmup_s(found: &Found) -> Option<f64> {
    parse_time(found.load.get("warmup")?).ok().map(|time| time.as_secs_f64())
}

/// What the setting costs, in a sentence.
fn cost(found: &Found, held: f64) -> String {
    let Some(setting) = &found.choice else { return String::new() };
    let memory = found.weight.as_ref().map(|weight| {
        format!(
            "if all {} {} are in use, they take {}",
            setting.workers,
            found.server.workers(),
            number::bytes(weight.bytes(setting.workers) as f64)
        )
    });
    let idle = match setting.timeout_ms {
        None => "each file of a page is a connection of its own, with a handshake".to_owned(),
        Some(_) if found.server.idle_holds() => {
            format!("idle connections hold workers, {held:.0} of them on average in the lab")
        }
        Some(_) => "idle connections hold memory of the kernel and of the server".to_owned(),
    };
    [Some(idle), memory].into_iter().flatten().collect::<Vec<_>>().join("; ")
}
