//! How each finding is re-created in the lab, or why it cannot be: one file a fault.

use tcptoll_live::diagnosis::Diagnosis;
use tcptoll_live::doctor::Template;

/// Name and text of each file of `studies/doctor`. The first that fits a finding is taken.
const TEMPLATES: &[(&str, &str)] = &[
    (
        "accept-queue-lasting.toml",
        include_str!("../../../../studies/doctor/accept-queue-lasting.toml"),
    ),
    (
        "accept-queue-standing.toml",
        include_str!("../../../../studies/doctor/accept-queue-standing.toml"),
    ),
    ("accept-queue.toml", include_str!("../../../../studies/doctor/accept-queue.toml")),
    ("backlog.toml", include_str!("../../../../studies/doctor/backlog.toml")),
    ("buffers.toml", include_str!("../../../../studies/doctor/buffers.toml")),
    ("close-race.toml", include_str!("../../../../studies/doctor/close-race.toml")),
    ("conntrack.toml", include_str!("../../../../studies/doctor/conntrack.toml")),
    ("keepalive.toml", include_str!("../../../../studies/doctor/keepalive.toml")),
    ("memory.toml", include_str!("../../../../studies/doctor/memory.toml")),
    ("port-range.toml", include_str!("../../../../studies/doctor/port-range.toml")),
    ("ports-time-wait.toml", include_str!("../../../../studies/doctor/ports-time-wait.toml")),
    ("ports.toml", include_str!("../../../../studies/doctor/ports.toml")),
    ("retransmissions.toml", include_str!("../../../../studies/doctor/retransmissions.toml")),
    ("syn-queue.toml", include_str!("../../../../studies/doctor/syn-queue.toml")),
    ("syn-queue-cookies.toml", include_str!("../../../../studies/doctor/syn-queue-cookies.toml")),
    ("time-wait-overflow.toml", include_str!("../../../../studies/doctor/time-wait-overflow.toml")),
    ("tw-reuse.toml", include_str!("../../../../studies/doctor/tw-reuse.toml")),
    ("upstream.toml", include_str!("../../../../studies/doctor/upstream.toml")),
    ("workers-too-few.toml", include_str!("../../../../studies/doctor/workers-too-few.toml")),
];

/// Findings that the lab can hold.
pub(crate) const PROVABLE: &[&str] = &[
    "accept-queue-full",
    "accept-queue-near",
    "backlog-not-in-effect",
    "backlog-over-somaxconn",
    "buffers-over-cap",
    "close-race",
    "keepalive-beyond-nat",
    "local-ports-scarce",
    "port-range-too-small",
    "ports-search-slow",
    "syn-queue-full",
    "tw-reuse-loopback-only",
    "upstream-not-reused",
];

/// All templates, in their order.
///
/// Errors: a file is wrong, which a test rules out.
fn all() -> impl Iterator<Item = anyhow::Result<Template>> {
    TEMPLATES.iter().map(|(name, text)| {
        Template::from_toml(text).map_err(|why| anyhow::anyhow!("studies/doctor/{name}: {why}"))
    })
}

/// How to re-create a finding; none: nobody has thought of it.
pub(super) fn find(finding: &Diagnosis) -> anyhow::Result<Option<Template>> {
    all().find(|one| one.as_ref().map_or(true, |template| template.fits(finding))).transpose()
}

/// Why the lab cannot hold a finding of this name; none: it can, or there is no such finding.
pub(crate) fn why_not(id: &str) -> Option<String> {
    let mut of_id = all().filter_map(Result::ok).filter(|one| one.findings.iter().any(|f| f == id));
    if PROVABLE.contains(&id) { None } else { of_id.next()?.cannot }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use serde_json::json;
    use tcptoll_core::experiment::spec::Better;
    use tcptoll_live::diagnosis::Severity;
    use tcptoll_live::doctor::Filled;
    use tcptoll_live::doctor::rules::ids;
    use tcptoll_measure::experiments;
    use tcptoll_measure::runner::Schedule;

    use super::*;

    /// A finding with evidence of every kind that a template takes.
    fn finding(id: &str, figure: u64) -> Diagnosis {
        let evidence = [
            ("accept_queue_limit", json!(figure)),
            ("backlog", json!(figure.saturating_mul(4))),
            ("local_ports", json!(figure)),
            ("ports_in_use", json!(figure / 10 * 9)),
            ("time_wait", json!(figure / 10 * 9)),
            ("tcp_syncookies", json!(0)),
        ];
        Diagnosis {
            id: id.into(),
            severity: Severity::Problem,
            subject: "10.0.0.7:80".into(),
            text: "it is so".into(),
            evidence: evidence.map(|(name, value)| (name.to_owned(), value)).into(),
            fix: None,
        }
    }

    #[test]
    fn every_finding_has_a_study_or_a_sentence_why_not() {
        let templates: Vec<Template> = all().collect::<Result<_, _>>().unwrap();
        let named: BTreeSet<&str> =
            templates.iter().flat_map(|one| one.findings.iter().map(String::as_str)).collect();
        assert_eq!(named, ids().collect::<BTreeSet<_>>());
        for id in ids() {
            let template = find(&finding(id, 100)).unwrap().unwrap();
            assert_eq!(template.cannot.is_none(), PROVABLE.contains(&id), "{id}");
            assert_eq!(why_not(id).is_none(), PROVABLE.contains(&id), "{id}");
        }
        assert!(PROVABLE.is_sorted());
    }

    #[test]
    fn every_study_is_right_with_the_smallest_and_the_largest_figures_and_ends_in_time() {
        for id in PROVABLE {
            for figure in [0, 1, 7, 128, 4_096, 28_232, u64::MAX] {
                for evidence in ["all", "little", "lasting"] {
                    let mut finding = finding(id, figure);
                    if evidence == "lasting" {
                        finding.evidence.insert("overload".into(), json!("lasting"));
                    }
                    if evidence == "little" {
                        finding.evidence.retain(|name, _| name == "tcp_syncookies");
                        finding.evidence.insert("time_wait".into(), json!(9));
                        finding.evidence.insert("ports_in_use".into(), json!(10));
                    }
                    let Some(template) = find(&finding).unwrap() else {
                        panic!("{id} with {figure}: nothing fits")
                    };
                    if template.cannot.is_some() {
                        continue;
                    }
                    let Filled { study, scaled } = template.fill(&finding).unwrap();
                    // The lab is never this machine: a proof says what differs.
                    assert!(!scaled.is_empty(), "{id} with {figure}");
                    assert!(scaled.iter().all(|one| !one.contains('$')), "{scaled:?}");
                    let mut schedule = Schedule::from_study(&study).unwrap();
                    schedule.prepare().unwrap_or_else(|error| panic!("{id} {figure}: {error}"));
                    let whole_s = schedule.round_s() * f64::from(schedule.rule.max);
                    // A run stops after 50 s, and a proof may take 60 s.
                    assert!(whole_s < 45.0, "{id} with {figure}: {whole_s} s");
                    let (fault, fixes) = schedule.arms.split_first().unwrap();
                    assert_eq!(fault.name, "as it is");
                    assert_eq!(schedule.pairs.len(), fixes.len(), "each fix next to the fault");
                    assert!(schedule.pairs.iter().all(|pair| pair.b == 0 && pair.a > 0), "{id}");
                    let spec = experiments::find(&study.experiment).unwrap();
                    let metric = spec.metrics.iter().find(|one| one.name == schedule.metric);
                    assert!(metric.is_some_and(|one| one.better != Better::Neither), "{id}");
                    assert!(study.answer.is_some_and(|answer| !answer.contains('$')), "{id}");
                    assert!(!study.question.contains('$'), "{id}");
                }
            }
        }
    }

    #[test]
    fn a_lasting_overload_is_proven_with_a_server_that_accepts_faster() {
        let arms = |finding: &Diagnosis| -> Vec<String> {
            let study = find(finding).unwrap().unwrap().fill(finding).unwrap().study;
            study.arms().unwrap().into_iter().map(|arm| arm.name).collect()
        };
        let mut full = finding("accept-queue-full", 100);
        assert_eq!(arms(&full), ["as it is", "longer queue"]);
        full.evidence.insert("overload".into(), json!("lasting"));
        assert_eq!(arms(&full), ["as it is", "accepts faster"]);
    }

    #[test]
    fn the_burst_of_a_proof_is_what_the_guide_says() {
        let full = finding("accept-queue-full", 100);
        let study = find(&full).unwrap().unwrap().fill(&full).unwrap().study;
        assert_eq!(study.arms().unwrap()[0].settings["count"], 2 * 100 + 100);
        let guide = include_str!("../../../../../../docs/guide/prove.md");
        assert!(guide.contains("a burst of twice the queue's limit plus 100"), "{guide}");
    }

    #[test]
    fn a_finding_that_nobody_knows_has_no_template() {
        let unknown = Diagnosis { evidence: BTreeMap::new(), ..finding("no-such-fault", 1) };
        assert!(find(&unknown).unwrap().is_none());
        assert_eq!(why_not("no-such-fault"), None);
    }
}
