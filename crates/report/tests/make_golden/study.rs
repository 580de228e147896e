//! A study: four numbers of connections times keep-alive or not, in twelve rounds.

use super::*;

const CONNECTIONS: [u32; 4] = [1, 8, 64, 512];
const REUSE: [&str; 2] = ["keep-alive", "none"];
const ROUNDS: u32 = 12;

/// Requests per second without noise: reuse pays, less the more connections wait side by side, and
/// with 512 hardly at all.
fn truth(connections: u32, reuse: &str) -> f64 {
    let at = CONNECTIONS.iter().position(|n| *n == connections).unwrap();
    let kept = [3_900.0, 11_200.0, 13_500.0, 12_800.0][at];
    if reuse == "keep-alive" { kept } else { kept * [0.52, 0.75, 0.999, 1.03][at] }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// An interval of the right width for invented figures: 2.2 standard errors.
fn interval(values: &[f64]) -> [f64; 2] {
    let m = mean(values);
    let n = values.len() as f64;
    let variance = values.iter().map(|v| (v - m).powi(2)).sum::<f64>() / (n - 1.0);
    let half = 2.2 * (variance / n).sqrt();
    let round = |v: f64| (v * 1e4).round() / 1e4;
    [round(m - half), round(m + half)]
}

fn arm(dice: &mut Dice, connections: u32, reuse: &str, place: usize) -> Arm {
    let base = truth(connections, reuse);
    let spread = if connections == 512 { 0.06 } else { 0.008 };
    let mut rounds: Vec<Round> = (0..ROUNDS)
        .map(|round| {
            let drift = 1.0 - 0.001 * f64::from(round);
            let value = base * drift * (1.0 + spread * (dice.unit() - 0.5) * 2.0);
            let began = f64::from(round) * 4.6 + place as f64 * 0.55;
            Round {
                round,
                began_s: (began * 100.0).round() / 100.0,
                left_out: None,
                metrics: [("requests_per_s".to_owned(), (value * 10.0).round() / 10.0)].into(),
            }
        })
        .collect();
    if connections == 64 && reuse == "none" {
        rounds[4].left_out = Some("the client was the bottleneck: its CPU was 99 % busy".into());
        rounds[4].metrics.insert("requests_per_s".into(), base * 0.93);
    }
    if connections == 1 && reuse == "none" {
        rounds[7].left_out = Some("failed: the server did not start".into());
        rounds[7].metrics.clear();
    }
    let counted = |r: &&Round| r.left_out.is_none();
    let values: Vec<f64> =
        rounds.iter().filter(counted).map(|r| r.metrics["requests_per_s"]).collect();
    let mut sorted = values.clone();
    sorted.sort_by(f64::total_cmp);
    let rate = Metric {
        value: (mean(&values) * 10.0).round() / 10.0,
        unit: "1/s".into(),
        ci95: Some(interval(&values)),
        median: Some(sorted[sorted.len() / 2]),
        n: values.len() as u64,
    };
    let requests = 4_000;
    let latency = f64::from(connections) / base * 1e6;
    let mut whole = histogram(dice, requests, (latency * 0.8, latency * 0.2, (0.002, latency)));
    whole.hdr = None;
    let mut before = histogram(dice, 20, (latency * 1.4, latency, (0.0, 0.0)));
    before.hdr = None;
    Arm {
        name: format!("connections {connections}, reuse {reuse}"),
        factors: [
            ("connections".to_owned(), json!(connections)),
            ("reuse".to_owned(), json!(reuse)),
        ]
        .into(),
        metrics: [("requests_per_s".to_owned(), rate)].into(),
        histograms: [("latency_us".to_owned(), whole)].into(),
        attempts: u64::from(requests * ROUNDS),
        ok: u64::from(requests * ROUNDS),
        client: host(8.1, 22.9, &[]),
        rounds,
        warmup: Some(Warmup {
            attempts: 20,
            ok: 20,
            elapsed_s: 0.1,
            histograms: [("latency_us".to_owned(), before)].into(),
            ..Warmup::default()
        }),
        elapsed_s: 0.5,
        ..Arm::default()
    }
}

/// Pairs within rounds; the verdict is that of the interval against the margin.
fn compare(a: &Arm, b: &Arm, connections: u32) -> Comparison {
    let counts = |arm: &Arm, at: usize| {
        let round = &arm.rounds[at];
        let value = round.metrics.get("requests_per_s").copied();
        value.filter(|_| round.left_out.is_none())
    };
    let pairs: Vec<(f64, f64)> =
        (0..ROUNDS as usize).filter_map(|at| Some((counts(a, at)?, counts(b, at)?))).collect();
    let logs: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
    let differences: Vec<f64> = pairs.iter().map(|(a, b)| a - b).collect();
    // Four comparisons share the level, so each interval is wider.
    let middle = mean(&logs);
    let [low, high] = interval(&logs).map(|end| (middle + (end - middle) * 1.3).exp());
    let margin: f64 = 0.01;
    let verdict = match (low, high) {
        (low, high) if high <= 1.0 + margin && low >= 1.0 / (1.0 + margin) => Verdict::NoDifference,
        (low, _) if low > 1.0 => Verdict::Higher,
        (_, high) if high < 1.0 => Verdict::Lower,
        _ => Verdict::NotEnough,
    };
    let round = |v: f64| (v * 1e5).round() / 1e5;
    Comparison {
        metric: "requests_per_s".into(),
        a: a.name.clone(),
        b: b.name.clone(),
        per: [("connections".to_owned(), json!(connections))].into(),
        ratio: Some(round(middle.exp())),
        ci95: Some([round(low), round(high)]),
        difference: Some(Metric {
            value: round(mean(&differences)),
            unit: "1/s".into(),
            ci95: Some(interval(&differences)),
            median: None,
            n: pairs.len() as u64,
        }),
        margin,
        rounds: pairs.len() as u32,
        alpha: 0.0125,
        verdict,
        rank_test_p: None,
    }
}

/// The whole study, with one comparison of each verdict.
pub(super) fn study(dice: &mut Dice) -> Summary {
    let mut s = summary(
        "How much does keeping connections open save, and up to how many connections?",
        "",
        "tcptoll study run keep-alive-2019 --seed 7",
    );
    s.experiment = "http".into();
    s.study = Some("keep-alive-2019".into());
    s.primary_metric = Some("requests_per_s".into());
    for (n, connections) in CONNECTIONS.into_iter().enumerate() {
        for (m, reuse) in REUSE.into_iter().enumerate() {
            s.arms.push(arm(dice, connections, reuse, n * 2 + m));
        }
    }
    for (n, connections) in CONNECTIONS.into_iter().enumerate() {
        s.comparisons.push(compare(&s.arms[2 * n + 1], &s.arms[2 * n], connections));
    }
    let across = Comparison {
        per: BTreeMap::new(),
        a: s.arms[2].name.clone(),
        b: s.arms[0].name.clone(),
        metric: "requests_per_s".into(),
        ratio: Some(2.871),
        ci95: Some([2.842, 2.902]),
        difference: Some(Metric {
            value: 7_296.4,
            unit: "1/s".into(),
            ci95: Some([7_220.0, 7_371.0]),
            median: None,
            n: 12,
        }),
        margin: 0.01,
        rounds: 12,
        alpha: 0.0125,
        verdict: Verdict::Higher,
        rank_test_p: None,
    };
    let none_yet = Comparison {
        a: s.arms[4].name.clone(),
        b: s.arms[6].name.clone(),
        ratio: Some(1.05),
        ci95: None,
        difference: None,
        verdict: Verdict::NotEnough,
        rounds: 1,
        ..across.clone()
    };
    s.comparisons.extend([across, none_yet]);
    s.answer = format!(
        "Without keep-alive one connection serves {:.2} of the requests, 8 connections {:.2}; with \
         64 there is no difference that matters.",
        s.comparisons[0].ratio.unwrap(),
        s.comparisons[1].ratio.unwrap()
    );
    let publish = |at: usize, value: f64| Published {
        arm: s.arms[at].name.clone(),
        metric: "requests_per_s".into(),
        value,
        sd: None,
        source: "keep-alive, 2019".into(),
        note: None,
    };
    s.published = vec![publish(2, 13_577.0), publish(3, 10_185.0), publish(4, 13_577.0)];
    s.rounds = Some(Rounds {
        done: ROUNDS,
        most: 30,
        rule: "until every verdict is found, at most 60 s".into(),
        stopped: "60 s were up".into(),
        elapsed_s: 60.4,
        excluded: 1,
        failed: 1,
    });
    s.warnings = vec![WarningEntry {
        id: "drift".into(),
        arm: Some(s.arms[0].name.clone()),
        text: "requests per second fell by 1 % from the first round to the last".into(),
    }];
    s
}
