//! What follows from the arms of `time-wait`: the answer in a sentence, causes, advice, what next.

use tcptoll_core::number;
use tcptoll_core::record::{Arm, NextStep, Summary};
use tcptoll_core::units::capital;
use tcptoll_core::verdict::names::Names;

use super::sheet::Supply;
use super::{CAUSES, CONNECT_CPU_MEAN, IDLE_SHARE, IDLE_SHARE_FIRST, IDLE_SHARE_LAST, sheet};
use crate::kit::compared::{failures, headline};
use crate::kit::conclusion::{answer_of, explain, explanations, in_arm, step, value};

/// From this fall of the idle share on, from start to end, it is worth a sentence.
const FELL: f64 = 0.2;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, CAUSES, |_, _| None);
    summary.answer = answer(summary);
    summary.next = next(summary);
}

fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> =
        summary.arms.iter().filter(|arm| arm.failure.is_none() && arm.attempts > 0).collect();
    if measured.is_empty() {
        return "Nothing was measured.".to_owned();
    }
    let alone = measured.len() == 1;
    let mut sentences = Vec::new();
    sentences.extend(failures(summary, &super::SPEC));
    let failed = sentences.len();
    sentences.extend(cliff(&measured).or_else(|| beyond(summary, &measured)));
    if sentences.len() == failed {
        sentences.extend(flat(&measured));
    }
    sentences.extend(headline(summary, &super::SPEC));
    sentences.extend(ran_out(&measured));
    sentences.extend(idle(&measured));
    if let ([arm], Some(supply)) = (measured.as_slice(), Supply::from_arm(measured[0]))
        && alone
        && !matches!(supply, Supply::RanOut(_) | Supply::Left(_))
    {
        sentences.push(format!("Local ports stayed available ({}).", supply.words(arm)));
    }
    answer_of(summary, sentences)
}

fn cliff(arms: &[&Arm]) -> Option<String> {
    let with =
        |arm: &&Arm| Some((sheet::recorded(arm)?.cliff?, sheet::recorded(arm)?.cliff_expected));
    let found = arms.iter().filter_map(|arm| Some((*arm, with(arm)?)));
    let (arm, (cliff, expected)) =
        found.max_by(|(_, (a, _)), (_, (b, _))| a.factor().total_cmp(&b.factor()))?;
    let expected = expected.map_or_else(String::new, |ports| {
        format!(" (expected at {})", number::count(ports.round() as u64))
    });
    let factor = number::three(cliff.factor());
    Some(format!(
        "{}connect(2) takes {} of CPU beyond {} ports in use{expected}, {factor} times the {} below.",
        in_arm(arms, arm),
        number::time(cliff.above_us),
        number::count(cliff.at_ports.round() as u64),
        number::time(cliff.below_us),
    ))
}

/// A run that began beyond the step.
fn beyond(summary: &Summary, arms: &[&Arm]) -> Option<String> {
    let slow = |arm: &&&Arm| {
        summary.causes.iter().any(|one| one.id == "ports-search-slow" && one.arm == arm.name)
    };
    let cpu = |arm: &Arm| value(arm, CONNECT_CPU_MEAN.name);
    let arm = arms
        .iter()
        .filter(slow)
        .max_by(|a, b| cpu(a).unwrap_or(0.0).total_cmp(&cpu(b).unwrap_or(0.0)))?;
    let held = sheet::recorded(arm)?.held_ports;
    Some(format!(
        "{}connect(2) takes {} of CPU with {} ports in TIME-WAIT.",
        in_arm(arms, arm),
        number::time(cpu(arm)?),
        number::count(held)
    ))
}

fn flat(arms: &[&Arm]) -> Option<String> {
    let cpu = |arm: &&Arm| value(arm, CONNECT_CPU_MEAN.name);
    let costs: Vec<f64> = arms.iter().filter_map(cpu).collect();
    let (least, most) =
        (costs.iter().copied().reduce(f64::min)?, costs.iter().copied().reduce(f64::max)?);
    let cost = match (number::time(least), number::time(most)) {
        (least, most) if least == most => least,
        (least, most) => format!("{least} to {most}"),
    };
    let used = sheet::recorded(arms[0])?;
    let expected = used.cliff_expected.filter(|_| arms.len() == 1).map_or_else(String::new, |at| {
        format!(" (expected at {} ports in use)", number::count(at.round() as u64))
    });
    Some(format!("connect(2) takes {cost} of CPU, without a step in this cost{expected}."))
}

/// The idle CPU of a service: over the run, or between arms.
fn idle(arms: &[&Arm]) -> Option<String> {
    let fell = |arm: &&Arm| {
        let first = value(arm, IDLE_SHARE_FIRST.name)?;
        let last = value(arm, IDLE_SHARE_LAST.name)?;
        (first - last >= FELL).then_some((first, last))
    };
    if let Some((arm, (first, last))) = arms.iter().find_map(|arm| Some((*arm, fell(arm)?))) {
        return Some(capital(&format!(
            "{}the client's idle CPU falls from {} to {}.",
            in_arm(arms, arm),
            number::percent(first),
            number::percent(last)
        )));
    }
    let names = Names::new(arms.iter().copied());
    let share = arms.iter().map(|arm| (names.arm(arm), value(arm, IDLE_SHARE.name)));
    let mut shares: Vec<(String, f64)> =
        share.filter_map(|(name, share)| Some((name, share?))).collect();
    shares.sort_by(|a, b| a.1.total_cmp(&b.1));
    let ((low, least), (high, most)) = (shares.first()?, shares.last()?);
    (most - least >= FELL).then(|| {
        format!(
            "The client's CPU is idle {} ({low}) to {} ({high}) of the time.",
            number::percent(*least),
            number::percent(*most)
        )
    })
}

/// Arms whose ports ran out.
fn ran_out(arms: &[&Arm]) -> Option<String> {
    let names = Names::new(arms.iter().copied());
    let out = |arm: &&Arm| match Supply::from_arm(arm) {
        Some(Supply::RanOut(after)) => Some((names.with(arm), after)),
        _ => None,
    };
    let all: Vec<(String, Option<f64>)> = arms.iter().filter_map(out).collect();
    let (name, after) = all.first()?;
    let after = after.map_or_else(String::new, |s| format!(" after {s:.1} s"));
    Some(match all.len() {
        _ if arms.len() == 1 => format!("The local ports ran out{after}."),
        1 => format!("{name}the local ports ran out{after}."),
        count => format!("{name}the local ports ran out{after}, and in {} other arms.", count - 1),
    })
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let mut steps = explanations(summary);
    if summary.study.is_some() {
        return steps;
    }
    let has = |option: &str| summary.arms.iter().any(|arm| arm.factors.contains_key(option));
    let any = |id: &str| summary.causes.iter().any(|cause| cause.id == id);
    if any("ports-search-slow") && !has("sources") && !has("port-range") {
        steps.push(step(
            "tcptoll time-wait --sources 1,2 --count 20000",
            "the same number of connections from one and from two source addresses",
        ));
    }
    if !summary.causes.is_empty() {
        steps.push(step(
            "tcptoll study time-wait-2021",
            "a service at 2,000 requests per second, before and after each fix",
        ));
    }
    steps
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use tcptoll_core::record::{Cliff, Comparison, Metric, PortPoint, PortUse};

    use super::super::CONNECT_CPU_PER_OP;
    use super::*;
    use crate::kit::conclusion::ANSWER_MAX;

    fn arm(name: &str, used: PortUse, metrics: &[(&str, f64)]) -> Arm {
        let metric = |value| Metric { value, unit: String::new(), ci95: None, median: None, n: 1 };
        Arm {
            name: name.to_owned(),
            attempts: 100,
            ok: 100,
            connections_ok: Some(100),
            own: Box::new(used).into(),
            metrics: metrics.iter().map(|(name, value)| ((*name).into(), metric(*value))).collect(),
            ..Arm::default()
        }
    }

    fn concluded(arms: Vec<Arm>, comparisons: Vec<Comparison>) -> Summary {
        let mut summary = tcptoll_core::record::Summary::default();
        (summary.arms, summary.comparisons) = (arms, comparisons);
        conclude(&mut summary);
        assert!(summary.answer.chars().count() <= ANSWER_MAX, "{}", summary.answer);
        summary
    }

    fn with_cliff() -> PortUse {
        PortUse {
            cliff: Some(Cliff { at_ports: 14_120.3, below_us: 7.1, above_us: 852.0 }),
            cliff_expected: Some(14_116.0),
            ..PortUse::default()
        }
    }

    #[test]
    fn of_one_arm_the_answer_is_the_step_and_what_it_did_to_the_idle_cpu() {
        let metrics = [(IDLE_SHARE_FIRST.name, 0.71), (IDLE_SHARE_LAST.name, 0.002)];
        let told = concluded(vec![arm("time-wait", with_cliff(), &metrics)], Vec::new());
        assert_eq!(
            told.answer,
            "connect(2) takes 852 µs of CPU beyond 14,120 ports in use (expected at 14,116), 120 times \
             the 7.10 µs below. The client's idle CPU falls from 71 % to 0.2 %."
        );
        let next: Vec<&str> = told.next.iter().map(|step| step.command.as_str()).collect();
        assert!(next[0].ends_with("explain ports-search-slow") && next.len() == 3, "{next:?}");
    }

    #[test]
    fn an_arm_without_a_step_says_where_it_would_be() {
        let used = PortUse { cliff_expected: Some(28_232.0), ..PortUse::default() };
        let told = concluded(vec![arm("a", used, &[(CONNECT_CPU_MEAN.name, 7.2)])], Vec::new());
        assert_eq!(
            told.answer,
            "connect(2) takes 7.20 µs of CPU, without a step in this cost (expected at 28,232 \
             ports in use)."
        );
    }

    #[test]
    fn an_arm_that_ran_out_of_ports_is_named_and_its_fixes_are_left_to_the_verdicts() {
        let held = PortUse {
            held_ports: 17_000,
            cliff_expected: Some(14_116.0),
            curve: vec![PortPoint { ports: 17_050.0, connections: 100, ..PortPoint::default() }],
            ..PortUse::default()
        };
        let mut was =
            arm("as it was", held, &[(CONNECT_CPU_MEAN.name, 861.0), (IDLE_SHARE.name, 0.01)]);
        was.errors.insert("local-ports".into(), 3);
        let two = [(CONNECT_CPU_MEAN.name, 7.4), (IDLE_SHARE.name, 0.7)];
        let mut two = arm("two sources", PortUse::default(), &two);
        two.factors.insert("sources".into(), Value::from(2));
        let compared = |name: &str, ratio| Comparison {
            metric: CONNECT_CPU_PER_OP.name.into(),
            a: name.into(),
            b: "as it was".into(),
            ratio: Some(ratio),
            ci95: Some([ratio - 0.0005, ratio + 0.0005]),
            ..Comparison::default()
        };
        let compared = vec![compared("two sources", 0.0086), compared("four sources", 0.0084)];
        let told = concluded(vec![was, two], compared);
        assert_eq!(
            told.answer,
            "3 of 100 operations failed in arm \"as it was\". In arm \"as it was\", connect(2) takes 861 µs of CPU \
             with 17,000 ports in TIME-WAIT. In arm \"as it was\", the local ports ran out."
        );
        assert_eq!(told.causes.len(), 2, "{:?}", told.causes);
        assert!(told.advice.iter().any(|one| one.proof.is_some()), "{:?}", told.advice);
    }

    #[test]
    fn without_an_operation_nothing_was_measured() {
        assert_eq!(concluded(Vec::new(), Vec::new()).answer, "Nothing was measured.");
    }
}
