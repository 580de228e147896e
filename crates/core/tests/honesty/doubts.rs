//! How often do the diagnostics warn, of honest rounds and of others?

use tcptoll_core::stats::diagnostics;

use crate::source::{Shape, Source};
use crate::{RUNS, share};

#[test]
fn doubts_are_raised_by_at_most_one_in_a_hundred_runs_of_honest_rounds() {
    for n in [8, 9, 11, 15, 30, 100] {
        let mut source = Source::new(n as u64);
        let normal: Vec<Vec<f64>> =
            (0..RUNS).map(|_| (0..n).map(|_| source.round(Shape::Normal)).collect()).collect();
        let uniform: Vec<Vec<f64>> =
            (0..RUNS).map(|_| (0..n).map(|_| source.uniform()).collect()).collect();
        let log_normal: Vec<Vec<f64>> =
            (0..RUNS).map(|_| (0..n).map(|_| source.round(Shape::LogNormal)).collect()).collect();
        let drift = share(&normal, |run| diagnostics::drift(run).unwrap().p < 0.01);
        let alike = share(&normal, |run| diagnostics::autocorrelation(run).unwrap().p < 0.01);
        let far = share(&normal, |run| !diagnostics::outliers(run).is_empty());
        let modes = [&normal, &uniform, &log_normal]
            .map(|runs| share(runs, |run| diagnostics::two_modes(run).is_some()));
        println!(
            "alarms of {n}: drift {drift:.3}, autocorrelation {alike:.3}, outliers {far:.3} \
             (log-normal {:.3}), two modes {modes:?}",
            share(&log_normal, |run| !diagnostics::outliers(run).is_empty())
        );
        // 1 % and three standard deviations of 1,000 runs.
        for alarm in [drift, alike, far, modes[0], modes[1], modes[2]] {
            assert!(alarm <= 0.02, "{n}: {alarm}");
        }
    }
}

#[test]
fn doubts_are_raised_where_there_is_reason() {
    let mut source = Source::new(11);
    let mut runs_of = |round: &dyn Fn(&mut Source, usize) -> f64| -> Vec<Vec<f64>> {
        (0..RUNS).map(|_| (0..30).map(|at| round(&mut source, at)).collect()).collect()
    };
    // 4 % over the run with 2 % of noise; one round of 30 that is 20 % slower; one in five slow.
    let drifting =
        runs_of(&|source, at| source.round(Shape::Normal) * (1.0 + 0.04 * at as f64 / 29.0));
    let far = runs_of(&|source, at| source.round(Shape::Normal) * if at == 7 { 1.2 } else { 1.0 });
    let bimodal = runs_of(&|source, _| source.round(Shape::Bimodal));
    let drift = share(&drifting, |run| diagnostics::drift(run).unwrap().p < 0.01);
    let outlier = share(&far, |run| diagnostics::outliers(run).contains(&7));
    let modes = share(&bimodal, |run| diagnostics::two_modes(run).is_some());
    // Fewer than 5 of 30 are no mode but far values.
    let either = share(&bimodal, |run| {
        diagnostics::two_modes(run).is_some() || !diagnostics::outliers(run).is_empty()
    });
    println!(
        "found: 4 % of drift {drift:.3}, a round 20 % slower {outlier:.3}, two modes {modes:.3}, \
         these or outliers {either:.3}"
    );
    assert!(drift >= 0.5 && outlier >= 0.98, "{drift}, {outlier}");
    assert!(modes >= 0.7 && either >= 0.98, "{modes}, {either}");
}
