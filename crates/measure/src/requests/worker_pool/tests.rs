//! Arms and runs that the tests of this folder share.

use std::collections::BTreeMap;

use super::{BACKEND, LOCAL, LOCAL_LATENCY_MEAN};
use tcptoll_core::record::{Arm, Comparison, Metric, RequestGroup, Summary, WorkerPool};
use tcptoll_core::stats::Series;

/// 500 requests in 5 s, a stall from 1 s to 3 s, 20 workers. Requests without the backend take 500 µs,
/// and `during_us` in the stall.
pub(super) fn arm(name: &str, busy: f64, during_us: f64) -> Arm {
    let latency = |s: f64| if (1.0..3.0).contains(&s) { during_us } else { 500.0 };
    let points = |value: &dyn Fn(f64) -> f64| Series {
        points: (0..50_i32)
            .map(|tenth| {
                let s = f64::from(tenth) / 10.0;
                [s, value(s), value(s), value(s)]
            })
            .collect(),
    };
    let stalled = |s: f64| (1.0..3.0).contains(&s);
    let group = |latency: &dyn Fn(f64) -> f64| RequestGroup {
        attempts: 250,
        ok: 250,
        rate_per_s: points(&|_| 50.0),
        latency_us: points(latency),
        ..RequestGroup::default()
    };
    let pool = WorkerPool {
        workers: 20,
        front: "workers".to_owned(),
        backend: "redis".to_owned(),
        stalled_s: Some([1.0, 3.0]),
        groups: BTreeMap::from([
            (LOCAL.to_owned(), group(&latency)),
            (BACKEND.to_owned(), group(&latency)),
        ]),
        busy: points(&|s| if stalled(s) { busy } else { 0.1 }),
        backend_queue: points(&|s| if stalled(s) { 5.0 } else { 0.0 }),
        backend_limit: Some(4),
        backend_drops: Some(40),
        stuck_measured: Some(busy),
        stuck_expected: Some(20.0),
        steady_s: Some([1.4, 3.0]),
        wait_expected_s: Some(2.0),
        ..WorkerPool::default()
    };
    let mean = (during_us * 2.0 + 500.0 * 3.0) / 5.0;
    let metric = Metric { value: mean, unit: "us".to_owned(), ci95: None, median: None, n: 250 };
    Arm {
        name: name.to_owned(),
        attempts: 500,
        ok: 500,
        metrics: BTreeMap::from([(LOCAL_LATENCY_MEAN.name.to_owned(), metric)]),
        own: Box::new(pool).into(),
        ..Arm::default()
    }
}

/// A run of these arms, with a comparison of each pair. The first comparison of an arm whose name is a
/// letter or `limit` has the ratio 0.01; of others it is that of the means. Each interval is 0.8 to 1.25
/// times the ratio.
pub(super) fn summary(arms: Vec<Arm>, compared: &[(&str, &str)]) -> Summary {
    let mean = |name: &str| {
        let arm = arms.iter().find(|arm| arm.name == name).expect("an arm of the run");
        arm.metrics[LOCAL_LATENCY_MEAN.name].value
    };
    let comparisons = compared
        .iter()
        .map(|&(a, b)| {
            let plain = a.len() == 1 || a == "limit";
            let ratio = if plain { 0.01 } else { mean(a) / mean(b) };
            Comparison {
                metric: LOCAL_LATENCY_MEAN.name.to_owned(),
                a: a.to_owned(),
                b: b.to_owned(),
                ratio: Some(ratio),
                ci95: Some([ratio * 0.8, ratio * 1.25]),
                ..Comparison::default()
            }
        })
        .collect();
    Summary {
        experiment: super::SPEC.name.to_owned(),
        arms,
        comparisons,
        ..tcptoll_core::record::Summary::default()
    }
}
