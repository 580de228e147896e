//! What the lab showed of a finding: the fault re-created, without and with its fix.
//!
//! A finding becomes a study by a [`Template`], whose places are filled with the finding's own figures. One file a fault (`studies/doctor/*.toml`); the program has a table of them. A file has:
//!
//! ```toml
//! findings = ["accept-queue-full"]   # ids of findings
//! when = { tcp_syncookies = 0 }      # only with this evidence; the first file that fits is taken
//! mostly = ["time_wait", "ports_in_use"]   # only where the first is more than half of the second
//! cannot = "…"                       # why the lab cannot hold it; then nothing else follows
//!
//! [takes.limit]                      # `$limit` in the study
//! evidence = "accept_queue_limit"    # the first of these names that is a number
//! share_of = "local_ports"           # divided by this evidence
//! times = 2                          # what becomes of it
//! plus = 50
//! least = 8                          # bounds of the lab
//! most = 512
//! otherwise = 128                    # where there is no such evidence
//! words = "the queue's limit"        # says what was scaled
//!
//! [study]                            # as in a study file
//! ```

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tcptoll_core::experiment::spec::{Better, Spec, Specs};
use tcptoll_core::number;
use tcptoll_core::record::{Arm, Comparison, Summary, Verdict};
use tcptoll_core::study::Study;

use tcptoll_core::finding::Finding;

/// A finding, re-created in the lab.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Proof {
    /// The finding's `id`.
    pub finding: String,
    /// The finding's `subject`; empty: it was asked for, and not found here.
    pub subject: String,
    /// What came of it.
    pub verdict: ProofVerdict,
    /// Fault and fix in a sentence, with their figures; or why there is no verdict.
    pub text: String,
    /// Arms, the one with the fault first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arms: Vec<ProofArm>,
    /// Each fix, compared with the fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fixes: Vec<ProvenFix>,
    /// What is not as on this machine, one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaled: Vec<String>,
    /// The command that repeats it, one element an argument; empty: the lab cannot hold it.
    pub command: Vec<String>,
    /// Where its record is; absent: it was not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
    /// Time it took, s.
    pub took_s: f64,
}

impl Proof {
    /// What is said of a finding that was asked for and is not there.
    pub fn not_found(finding: &str) -> Self {
        let text = format!("{finding} was not found here, so nothing was proved.");
        Self { finding: finding.to_owned(), text, ..Self::default() }
    }
}

/// What came of a proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProofVerdict {
    /// The fault was there without the fix, and not with it.
    Shown,
    /// The lab ran, and did not show it.
    NotShown,
    /// The lab cannot hold this finding, or did not run.
    #[default]
    NotRun,
}

/// One side of a proof.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProofArm {
    /// `as it is`, or the fix.
    pub name: String,
    /// The metric that is compared; absent: no trial has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Operations begun, over all rounds.
    pub attempts: u64,
    /// Of those, failed.
    pub failed: u64,
}

/// A fix next to the fault.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProvenFix {
    /// The arm with the fix.
    pub arm: String,
    /// The metric that is compared.
    pub metric: String,
    /// With the fix / as it is; absent where one of them is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// 95 % interval of the ratio; absent like `ratio`, and with too few rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The upper end of that interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// With the fix − as it is, in the metric's unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<f64>,
    /// What the interval says.
    pub verdict: Verdict,
    /// Whether it helps: the metric is better by more than the margin, and no larger share fails.
    pub works: bool,
}

/// What a run of a proof's study says: every comparison is of a fix with the fault.
pub fn judge(summary: &Summary, specs: Specs) -> (ProofVerdict, Vec<ProofArm>, Vec<ProvenFix>) {
    let metric = summary.primary_metric.as_deref().unwrap_or_default();
    let arms: Vec<ProofArm> = summary
        .arms
        .iter()
        .map(|arm| ProofArm {
            name: arm.name.clone(),
            value: arm.metrics.get(metric).map(|metric| metric.value),
            attempts: arm.attempts,
            failed: failed(arm),
        })
        .collect();
    let fixes: Vec<ProvenFix> = summary
        .comparisons
        .iter()
        .map(|one| fix(specs.find(&summary.experiment), &arms, one))
        .collect();
    let shown = summary.valid && !summary.partial && fixes.iter().any(|fix| fix.works);
    let verdict = if shown { ProofVerdict::Shown } else { ProofVerdict::NotShown };
    (verdict, arms, fixes)
}

fn failed(arm: &Arm) -> u64 {
    arm.errors.values().sum()
}

fn fix(spec: Option<&Spec>, arms: &[ProofArm], comparison: &Comparison) -> ProvenFix {
    let metric =
        spec.and_then(|spec| spec.metrics.iter().find(|one| one.name == comparison.metric));
    let better = match metric.map(|metric| metric.better) {
        Some(Better::Lower) => comparison.verdict == Verdict::Lower,
        Some(Better::Higher) => comparison.verdict == Verdict::Higher,
        Some(Better::Neither) | None => false,
    };
    let arm = |name: &str| arms.iter().find(|arm| arm.name == name);
    // Shares, without a division by the arm that began nothing.
    let no_more_fail = arm(&comparison.a).zip(arm(&comparison.b)).is_some_and(|(fixed, ill)| {
        u128::from(fixed.failed) * u128::from(ill.attempts)
            <= u128::from(ill.failed) * u128::from(fixed.attempts)
    });
    ProvenFix {
        arm: comparison.a.clone(),
        metric: comparison.metric.clone(),
        ratio: comparison.ratio,
        low: comparison.ci95.map(|[low, _]| low),
        high: comparison.ci95.map(|[_, high]| high),
        difference: comparison.difference.as_ref().map(|difference| difference.value),
        verdict: comparison.verdict,
        works: better && no_more_fail,
    }
}

/// `Failures: 570 of 876 (as it is), 0 of 876 (fixed).`; empty where nothing failed.
pub fn failures(arms: &[ProofArm]) -> String {
    if arms.iter().all(|arm| arm.failed == 0) {
        return String::new();
    }
    let failures = |arm: &ProofArm| {
        let (failed, all) = (number::count(arm.failed), number::count(arm.attempts));
        format!("{failed} of {all} ({})", arm.name)
    };
    let all: Vec<String> = arms.iter().map(failures).collect();
    format!("Failures: {}.", all.join(", "))
}

/// A fault as the lab can hold it, or why it cannot.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Ids of the findings that it re-creates.
    pub findings: Vec<String>,
    /// Evidence that it is for.
    #[serde(default)]
    when: BTreeMap<String, Value>,
    /// Only where the first of this evidence is more than half of the second.
    #[serde(default)]
    mostly: Option<[String; 2]>,
    /// Why the lab cannot hold these.
    #[serde(default)]
    pub cannot: Option<String>,
    /// What stands for `$name` in the study.
    #[serde(default)]
    takes: BTreeMap<String, Take>,
    /// What is not as on the machine, next to what is scaled; `$name` as in the study.
    #[serde(default)]
    differs: Vec<String>,
    /// Arms: the first as it is, each other a fix.
    #[serde(default)]
    study: Option<toml::Table>,
}

/// A figure from the evidence.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Take {
    evidence: Vec<String>,
    #[serde(default)]
    share_of: Option<String>,
    #[serde(default = "one")]
    times: f64,
    #[serde(default)]
    plus: f64,
    least: u32,
    most: u32,
    otherwise: u32,
    #[serde(default)]
    words: Option<String>,
}

fn one() -> f64 {
    1.0
}

/// A study with a finding's figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Filled {
    /// What is run: the first arm is as it is, the others are fixes.
    pub study: Study,
    /// What is not as on the machine, one sentence each.
    pub scaled: Vec<String>,
}

impl Template {
    /// From the text of a file.
    ///
    /// Errors: what is wrong with it.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let template: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        match (&template.cannot, &template.study) {
            (Some(_), None) | (None, Some(_)) => Ok(template),
            _ => Err("write either `cannot` or `[study]`".to_owned()),
        }
    }

    /// Whether this is how to re-create a finding.
    pub fn fits(&self, finding: &Finding) -> bool {
        let has = |(name, wanted): (&String, &Value)| finding.evidence.get(name) == Some(wanted);
        let mostly = self.mostly.as_ref().is_none_or(|[part, all]| {
            let both = number(finding, part).zip(number(finding, all));
            both.is_some_and(|(part, all)| part * 2.0 > all)
        });
        self.findings.contains(&finding.id) && self.when.iter().all(has) && mostly
    }

    /// The study, with the finding's figures.
    ///
    /// Errors: why the lab cannot hold it, or what is wrong with the template.
    pub fn fill(&self, finding: &Finding) -> Result<Filled, String> {
        let Some(study) = &self.study else {
            return Err(self.cannot.clone().unwrap_or_default());
        };
        let mut scaled = Vec::new();
        let mut figures = BTreeMap::new();
        for (name, take) in &self.takes {
            let (figure, note) = take.figure(finding);
            figures.insert(name.as_str(), figure);
            scaled.extend(note);
        }
        for one in &self.differs {
            let mut text = toml::Value::String(one.clone());
            put(&mut text, &figures);
            scaled.extend(text.as_str().map(str::to_owned));
        }
        let mut study = study.clone();
        for (_, value) in &mut study {
            put(value, &figures);
        }
        let text = toml::to_string(&study).map_err(|error| error.to_string())?;
        let study = Study::from_toml(&text).map_err(|error| error.to_string())?;
        Ok(Filled { study, scaled })
    }
}

/// Evidence that is a number.
fn number(finding: &Finding, name: &str) -> Option<f64> {
    finding.evidence.get(name)?.as_f64().filter(|one| one.is_finite())
}

impl Take {
    /// The figure for the lab, and what it stands for where that is another one.
    fn figure(&self, finding: &Finding) -> (u32, Option<String>) {
        let found = self.evidence.iter().find_map(|name| number(finding, name));
        let whole = self.share_of.as_ref().map_or(Some(1.0), |name| number(finding, name));
        let Some((found, whole)) = found.zip(whole.filter(|whole| *whole > 0.0)) else {
            let note = |words: &String| {
                format!("{words} is unknown here and {} in the lab", number::count(self.otherwise))
            };
            return (self.otherwise, self.words.as_ref().map(note));
        };
        let wanted = (found / whole).mul_add(self.times, self.plus).round();
        // The cast saturates, and the bounds are of the type.
        let figure = (wanted as u32).clamp(self.least, self.most);
        let differs = (f64::from(figure) - found).abs() >= 1.0;
        let note = |words: &String| {
            let real = number::count(found.max(0.0).round() as u64);
            format!("{words} is {real} here and {} in the lab", number::count(figure))
        };
        (figure, self.words.as_ref().filter(|_| differs).map(note))
    }
}

/// Puts figures in the place of `$name`; one that stands alone becomes a number.
fn put(value: &mut toml::Value, figures: &BTreeMap<&str, u32>) {
    match value {
        toml::Value::String(text) => {
            if let Some(figure) = text.strip_prefix('$').and_then(|name| figures.get(name)) {
                *value = toml::Value::Integer(i64::from(*figure));
            } else {
                // The longest name first: `$held` is no part of `$held_most`.
                for (name, figure) in figures.iter().rev() {
                    *text = text.replace(&format!("${name}"), &figure.to_string());
                }
            }
        }
        toml::Value::Array(all) => all.iter_mut().for_each(|one| put(one, figures)),
        toml::Value::Table(table) => table.iter_mut().for_each(|(_, one)| put(one, figures)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use tcptoll_core::experiment::figures::{CONNECT_MEAN, CONNECTIONS_RATE, IN_FLIGHT};

    use super::*;
    use tcptoll_core::finding::Severity;

    const SAMPLE: Spec = Spec {
        name: "sample",
        metrics: &[&CONNECT_MEAN, &CONNECTIONS_RATE, &IN_FLIGHT],
        ..Spec::BARE
    };
    const SPECS: Specs = Specs(&[&SAMPLE]);

    fn arm(name: &str, attempts: u64, failed: u64) -> Arm {
        let errors = BTreeMap::from([("timeout".to_owned(), failed)]);
        Arm { name: name.into(), attempts, ok: attempts - failed, errors, ..Arm::default() }
    }

    fn summary(metric: &str, verdict: Verdict, failed: [u64; 2]) -> Summary {
        Summary {
            experiment: SAMPLE.name.to_owned(),
            primary_metric: Some(metric.to_owned()),
            arms: vec![arm("as it is", 100, failed[0]), arm("fixed", 200, failed[1])],
            comparisons: vec![Comparison {
                metric: metric.to_owned(),
                a: "fixed".into(),
                b: "as it is".into(),
                ratio: Some(0.5),
                ci95: Some([0.4, 0.6]),
                verdict,
                ..Comparison::default()
            }],
            valid: true,
            ..Summary::default()
        }
    }

    #[test]
    fn a_fix_is_shown_where_its_metric_is_better_by_more_than_the_margin() {
        let (verdict, arms, fixes) =
            judge(&summary("connect_us_mean", Verdict::Lower, [50, 0]), SPECS);
        assert_eq!(verdict, ProofVerdict::Shown);
        assert_eq!((arms[0].attempts, arms[0].failed, arms[1].failed), (100, 50, 0));
        assert_eq!((fixes[0].low, fixes[0].high, fixes[0].works), (Some(0.4), Some(0.6), true));
        for verdict in [Verdict::Higher, Verdict::NotEnough, Verdict::NoDifference] {
            let (not, _, _) = judge(&summary("connect_us_mean", verdict, [50, 0]), SPECS);
            assert_eq!(not, ProofVerdict::NotShown, "{verdict}");
        }
        let (verdict, _, _) = judge(&summary("connections_per_s", Verdict::Higher, [0, 0]), SPECS);
        assert_eq!(verdict, ProofVerdict::Shown, "more is better");
        let (verdict, _, _) = judge(&summary("in_flight_mean", Verdict::Lower, [0, 0]), SPECS);
        assert_eq!(verdict, ProofVerdict::NotShown, "neither is better");
    }

    #[test]
    fn a_fix_that_makes_a_larger_share_fail_is_none() {
        let (verdict, _, fixes) = judge(&summary("connect_us_mean", Verdict::Lower, [1, 3]), SPECS);
        assert_eq!((verdict, fixes[0].works), (ProofVerdict::NotShown, false));
        let (verdict, _, _) = judge(&summary("connect_us_mean", Verdict::Lower, [1, 2]), SPECS);
        assert_eq!(verdict, ProofVerdict::Shown, "the same share");
    }

    #[test]
    fn a_run_that_is_not_valid_or_not_whole_shows_nothing() {
        let mut run = summary("connect_us_mean", Verdict::Lower, [0, 0]);
        run.valid = false;
        assert_eq!(judge(&run, SPECS).0, ProofVerdict::NotShown);
        run = summary("connect_us_mean", Verdict::Lower, [0, 0]);
        run.partial = true;
        assert_eq!(judge(&run, SPECS).0, ProofVerdict::NotShown);
    }

    #[test]
    fn failures_are_said_where_there_are_any() {
        let (_, arms, _) = judge(&summary("connect_us_mean", Verdict::Lower, [50, 0]), SPECS);
        assert_eq!(failures(&arms), "Failures: 50 of 100 (as it is), 0 of 200 (fixed).");
        let (_, arms, _) = judge(&summary("connect_us_mean", Verdict::Lower, [0, 0]), SPECS);
        assert_eq!(failures(&arms), "");
    }

    const TEXT: &str = r#"
    findings = ["queue-short"]
    differs = ["The link is direct.", "$limit_burst come."]
    [takes.limit]
    evidence = ["no_such", "limit"]
    least = 8
    most = 512
    otherwise = 128
    words = "the limit"
    [takes.limit_burst]
    evidence = ["limit"]
    times = 2
    plus = 50
    least = 8
    most = 1000
    otherwise = 300
    [study]
    question = "Does a limit of $limit, with $limit_burst at once, matter?"
    experiment = "connect"
    [study.settings]
    count = "$limit_burst"
    [[study.arm]]
    name = "as it is"
    backlog = "$limit"
    [[study.arm]]
    name = "fixed"
    backlog = 4096
    [[study.compare]]
    against = "as it is"
    "#;

    fn finding(limit: Value) -> Finding {
        Finding {
            id: "queue-short".into(),
            severity: Severity::Problem,
            subject: "10.0.0.7:80".into(),
            text: "it is full".into(),
            evidence: BTreeMap::from([("limit".to_owned(), limit)]),
            remedies: Vec::new(),
        }
    }

    #[test]
    fn the_findings_own_figures_become_settings() {
        let template = Template::from_toml(TEXT).unwrap();
        let Filled { study, scaled } = template.fill(&finding(16.into())).unwrap();
        assert_eq!(study.question, "Does a limit of 16, with 82 at once, matter?");
        let arms = study.arms().unwrap();
        assert_eq!(
            (&arms[0].settings["backlog"], &arms[1].settings["backlog"]),
            (&16.into(), &4096.into())
        );
        assert_eq!(arms[0].settings["count"], 82);
        assert_eq!(scaled, ["The link is direct.", "82 come."]);
    }

    #[test]
    fn what_the_lab_cannot_hold_is_scaled_and_said() {
        let template = Template::from_toml(TEXT).unwrap();
        let Filled { study, scaled } = template.fill(&finding(65_535.into())).unwrap();
        assert_eq!(study.arms().unwrap()[0].settings["backlog"], 512);
        assert_eq!(scaled[0], "the limit is 65,535 here and 512 in the lab");
        for unknown in [Value::Null, "16".into(), f64::NAN.into()] {
            let Filled { study, scaled } = template.fill(&finding(unknown)).unwrap();
            assert_eq!(study.arms().unwrap()[0].settings["backlog"], 128);
            assert_eq!(scaled[0], "the limit is unknown here and 128 in the lab");
        }
        let study = template.fill(&finding((-7).into())).unwrap().study;
        assert_eq!(study.arms().unwrap()[0].settings["backlog"], 8);
    }

    #[test]
    fn a_template_fits_its_findings_with_its_evidence() {
        let text = TEXT.replace("differs", "when = { limit = 16 }\ndiffers");
        let template = Template::from_toml(&text).unwrap();
        assert!(template.fits(&finding(16.into())) && !template.fits(&finding(17.into())));
        let other = Finding { id: "other".into(), ..finding(16.into()) };
        assert!(!template.fits(&other));
    }

    #[test]
    fn a_share_of_the_machine_becomes_the_same_share_of_the_lab() {
        let text = TEXT.replace("times = 2\n", "times = 1000\nshare_of = \"range\"\n");
        let template = Template::from_toml(&text).unwrap();
        let mut ports = finding(150.into());
        ports.evidence.insert("range".into(), 200.into());
        let study = template.fill(&ports).unwrap().study;
        assert_eq!(study.arms().unwrap()[0].settings["count"], 800, "75 % of 1,000, and 50");
        ports.evidence.insert("range".into(), 0.into());
        let study = template.fill(&ports).unwrap().study;
        assert_eq!(
            study.arms().unwrap()[0].settings["count"],
            300,
            "a share of nothing is not known"
        );
        let text = TEXT.replace("differs =", "mostly = [\"limit\", \"range\"]\ndiffers =");
        let template = Template::from_toml(&text).unwrap();
        for (range, fits) in [(200, true), (300, false)] {
            ports.evidence.insert("range".into(), range.into());
            assert_eq!(template.fits(&ports), fits, "150 of {range}");
        }
    }

    #[test]
    fn what_the_lab_cannot_hold_says_why() {
        let text = "findings = ['queue-short']\ncannot = 'It takes a week.'\n";
        let template = Template::from_toml(text).unwrap();
        assert_eq!(template.fill(&finding(16.into())).unwrap_err(), "It takes a week.");
        assert!(Template::from_toml("findings = ['queue-short']\n").is_err());
        assert!(Template::from_toml(&format!("cannot = 'no'\n{TEXT}")).is_err());
    }
}
