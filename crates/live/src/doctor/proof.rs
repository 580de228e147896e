//! What the lab showed of a finding: the fault re-created, without and with its fix.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tcptoll_core::experiment::spec::{Better, Spec, Specs};
use tcptoll_core::record::{Arm, Comparison, Summary, Verdict};
use tcptoll_core::units::human_count;

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
        spec.and_then(|spec| spec.metrics.iter().find(|one| one.name == &comparison.metric));
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
        let (failed, all) = (human_count(arm.failed), human_count(arm.attempts));
        format!("{failed} of {all} ({})", arm.name)
    };
    let all: Vec<String> = arms.iter().map(failures).collect();
    format!("Failures: {}.", all.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use tcptoll_core::experiment::figures::{CONNECT_MEAN, CONNECTIONS_RATE, IN_FLIGHT};

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
}
