//! What does a mode cost that was not seen yet?

use tcptoll_core::study::stop::MIN_ROUNDS;

use crate::source::{Shape, SlowMode, Source};
use crate::{MARGIN, ROUNDS, RUNS, Stop, Verdict, figure, log_ratios, mean_rounds, ours, share};

/// Stops at the first round with a verdict, from `from` rounds on; "within the margin" counts from
/// `within_from` rounds. What a study says, by the intervals alone, which is much faster.
pub(crate) fn stop(log_ratios: &[f64], from: usize, within_from: usize) -> Stop {
    let margin = MARGIN.ln_1p();
    let mut last = None;
    for rounds in from..=*ROUNDS.end() {
        let interval = ours(&log_ratios[..rounds]);
        let inside = interval[0] > -margin && interval[1] < margin;
        let apart = interval[0] > 0.0 || interval[1] < 0.0;
        let verdict = match (inside, rounds >= within_from) {
            (true, true) => Verdict::Within,
            (false, _) if apart => Verdict::Differs,
            _ => Verdict::Open,
        };
        last = Some(Stop { verdict, rounds, interval });
        if verdict != Verdict::Open {
            break;
        }
    }
    last.expect("five rounds and more")
}

fn runs_of(shapes: [Shape; 2], ratio: f64, within_from: usize) -> Vec<Stop> {
    let mut source = Source::new(2024 + shapes[0] as u64);
    (0..RUNS).map(|_| stop(&log_ratios(&mut source, shapes, ratio), 5, within_from)).collect()
}

/// Runs of one arm that stop when its interval reaches 5 % to each side, `fewest` rounds at least:
/// the share whose interval holds the true mean, and the mean number of rounds.
fn one_arm(shape: Shape, fewest: usize) -> (f64, f64) {
    let mut source = Source::new(7);
    let runs: Vec<Stop> = (0..RUNS)
        .map(|_| {
            let values: Vec<f64> = (0..*ROUNDS.end()).map(|_| source.round(shape)).collect();
            let reached = |rounds: &usize| {
                let [least, greatest] = ours(&values[..*rounds]);
                (greatest - least) / 2.0 <= 0.05 * f64::midpoint(least, greatest)
            };
            let rounds = (fewest..=*ROUNDS.end()).find(reached).unwrap_or(*ROUNDS.end());
            Stop { verdict: Verdict::Open, rounds, interval: ours(&values[..rounds]) }
        })
        .collect();
    (share(&runs, |run| run.holds(shape.mean())), mean_rounds(&runs))
}

#[test]
fn an_arms_own_interval_holds_its_mean_if_it_runs_15_rounds_before_it_may_stop() {
    for shape in [Shape::Normal, Shape::LogNormal, Shape::Bimodal] {
        let (covers, rounds) = one_arm(shape, 15);
        figure(
            &format!(
                "one arm until its interval reaches 5 % to each side, {shape:?}: interval holds its mean"
            ),
            "at least 94 %",
            &format!("{:.1} % ({rounds:.1} rounds)", covers * 100.0),
            covers >= 0.94,
        );
        assert!(covers >= 0.94, "{shape:?}: {covers}");
    }
}

#[test]
fn a_mode_not_seen_yet_is_left_out_by_what_stops_after_5_rounds() {
    // Why the 15: 0.8^5 = 33 % of runs see no slow round in five, 0.8^15 = 3.5 % none in fifteen. No
    // interval of a mean survives it without knowing how slow a round can be.
    let (normal, _) = one_arm(Shape::Normal, 5);
    let (bimodal, rounds) = one_arm(Shape::Bimodal, 5);
    println!(
        "one arm from 5 rounds: Normal {normal:.3}, Bimodal {bimodal:.3} ({rounds:.1} rounds)"
    );
    assert!(normal >= 0.94 && (0.65..0.85).contains(&bimodal), "{normal}, {bimodal}");
    // The same for a comparison in which one arm alone has slow rounds, and little other noise.
    let truth = 0.2 * 1.5_f64.ln();
    for (within_from, expected) in [(5, 0.55..0.80), (15, 0.94..1.0)] {
        let runs = runs_of([Shape::QuietBimodal, Shape::Quiet], 1.0, within_from);
        let covers = share(&runs, |run| run.holds(truth));
        let within = share(&runs, |run| run.verdict == Verdict::Within);
        println!(
            "slow rounds in one arm, within from {within_from}: interval holds the ratio \
             {covers:.3}, wrongly within the margin {within:.3}"
        );
        assert!(expected.contains(&covers), "{within_from}: {covers}, {within}");
    }
}

#[test]
fn a_mode_not_seen_yet_in_one_arm_alone_fakes_a_difference() {
    // The true ratio is 1: where the slow rounds do not come up, the arm that has them is faster. So
    // no less than the runs that see none in so many rounds are wrong, and hardly any others.
    for (share_of_slow, times) in [(0.2, 1.5), (0.1, 3.0), (0.05, 10.0)] {
        let mode = SlowMode { share: share_of_slow, times };
        for noise in [0.002, 0.02] {
            let wrong = [5, MIN_ROUNDS as usize].map(|min| {
                let mut source = Source::new(31);
                let runs: Vec<Stop> = (0..RUNS)
                    .map(|_| {
                        let rounds: Vec<f64> = (0..*ROUNDS.end())
                            .map(|_| source.log_with(mode, noise) - noise * source.normal())
                            .collect();
                        stop(&rounds, min, 15)
                    })
                    .collect();
                share(&runs, |run| run.verdict == Verdict::Differs)
            });
            let unseen = mode.unseen(MIN_ROUNDS);
            let met = (unseen - 0.04..unseen + 0.06).contains(&wrong[1]) && wrong[0] > wrong[1];
            figure(
                &format!(
                    "ratio 1, one arm with {:.0} % of its rounds ×{times}, {:.1} % of noise: told \
                     apart from 5 rounds on; from {MIN_ROUNDS}",
                    share_of_slow * 100.0,
                    noise * 100.0
                ),
                "its cost stated",
                &format!(
                    "{:.1} %; {:.1} % (a mode not seen in {MIN_ROUNDS} rounds: {:.1} %)",
                    wrong[0] * 100.0,
                    wrong[1] * 100.0,
                    unseen * 100.0
                ),
                met,
            );
            assert!(met, "{mode:?}, {noise}: {wrong:?}, {unseen}");
        }
    }
}
