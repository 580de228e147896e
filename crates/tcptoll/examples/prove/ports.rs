//! Is connect(2) slow where arithmetic says, and what does each fix change?

use anyhow::{Context as _, ensure};
use tcptoll_core::record::{Arm, PortUse};

use crate::http::{only, summary};
use crate::table::Table;

/// The step may be off by this share of where it is expected.
const OFF_MAX: f64 = 0.02;

fn port_use(arm: &Arm) -> anyhow::Result<&PortUse> {
    let found = arm.own.port_use.as_deref();
    found.with_context(|| format!("{}: nothing recorded", arm.name))
}

fn value(arm: &Arm, metric: &str) -> Option<f64> {
    arm.metrics.get(metric).map(|metric| metric.value)
}

/// The step in the CPU time of connect(2) over the ports in use, with one source address and with two.
pub(crate) fn cliff(table: &mut Table) -> anyhow::Result<()> {
    let long = ["--rounds", "1", "--duration", "60s"];
    let (run, _) = summary(&["time-wait"], &long)?;
    let arm = only(&run)?;
    let ports = port_use(arm)?;
    let expected = ports.cliff_expected.context("no step is expected")?;
    let found = ports.cliff.context("no step was found")?;
    let off = found.at_ports / expected - 1.0;
    table.row(
        "CPU of connect(2) over ports in use, default range, one source address",
        "step within 2 % of half the range",
        &format!(
            "step at {:.0}, {expected:.0} computed ({:+.2} %); {:.1} µs below, {:.0} µs above: × {:.0}",
            found.at_ports,
            off * 100.0,
            found.below_us,
            found.above_us,
            found.factor()
        ),
        off.abs() <= OFF_MAX,
    );
    // As many connections as before.
    let count = arm.ok.to_string();
    let (run, _) =
        summary(&["time-wait"], &[&long[..], &["--sources", "2", "--count", &count]].concat())?;
    let arm = only(&run)?;
    let cpu = value(arm, "connect_cpu_us_per_op").context("no CPU of connect(2)")?;
    table.row(
        &format!("{count} connections from two source addresses"),
        "no step",
        &format!("{:?}; mean CPU of connect(2) {cpu:.1} µs", port_use(arm)?.cliff),
        port_use(arm)?.cliff.is_none(),
    );
    Ok(())
}

/// The service of the document: idle CPU before and after each fix.
pub(crate) fn service(table: &mut Table) -> anyhow::Result<()> {
    const STUDY: &str = "time-wait-2021";
    let (run, _) = summary(&["study", "run", STUDY], &[])?;
    ensure!(!run.comparisons.is_empty(), "{STUDY}: nothing was compared");
    for arm in &run.arms {
        let figure =
            |metric| value(arm, metric).map_or("—".to_owned(), |value| format!("{value:.3}"));
        Table::fact(
            &format!("{STUDY}: {}", arm.name),
            &format!(
                "idle CPU {}, {} requests/s, connect(2) {} µs of CPU; {} of {} ok",
                figure("client_idle_share"),
                figure("operations_per_s"),
                figure("connect_cpu_us_mean"),
                arm.ok,
                arm.attempts
            ),
        );
    }
    for one in &run.comparisons {
        let interval = one.ci95.map_or("no interval".to_owned(), |[low, high]| {
            format!("95 % CI {low:.4} to {high:.4}")
        });
        let ratio = one.ratio.map_or("no ratio".to_owned(), |ratio| format!("{ratio:.4}"));
        table.row(
            &format!("{STUDY}: {} of {} against {}", one.metric, one.a, one.b),
            "a factor with its interval",
            &format!("× {ratio} ({interval}), {}", one.verdict),
            one.ratio.is_some() && one.ci95.is_some(),
        );
    }
    Ok(())
}
