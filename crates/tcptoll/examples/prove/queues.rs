//! Do full queues hold what they should, and is every drop attributed?

use anyhow::{Context as _, ensure};

use crate::http::{only, summary};
use crate::table::Proofs;
use tcptoll_core::record::{Arm, Comparison, PortUse, Queues, Summary, WorkerPool};

const BALANCE_ARMS: &[(&str, &[&str])] = &[
    ("direct link", &["--backlog", "16", "--count", "300", "--concurrency", "300"]),
    (
        "10 ms, handshakes in flight",
        &["--link", "rtt=10ms", "--backlog", "64", "--rate", "1000", "--count", "400"],
    ),
    (
        "10 ms, SYN cookies off",
        &[
            "--link",
            "rtt=10ms",
            "--backlog",
            "64",
            "--rate",
            "1000",
            "--count",
            "400",
            "--syncookies",
            "0",
        ],
    ),
];

fn queues(arm: &Arm) -> anyhow::Result<&Queues> {
    arm.own.queues.as_deref().context("no queues were recorded")
}

fn counter(arm: &Arm, name: &str) -> u64 {
    let count = arm.server.as_ref().and_then(|host| host.counters.get(name));
    count.and_then(|count| u64::try_from(*count).ok()).unwrap_or(0)
}

/// A full queue of limit n holds n + 1; drops belong to one listener of three, and to steps.
pub(crate) fn accept(table: &mut Proofs) -> anyhow::Result<()> {
    for backlog in [1_u64, 4, 128, 4_096] {
        let (count, limit) = ((backlog + 100).to_string(), backlog.to_string());
        // Nothing is accepted before all have arrived.
        let (run, _) = summary(
            &["accept-queue"],
            &[
                "--rounds",
                "1",
                "--backlog",
                &limit,
                "--count",
                &count,
                "--concurrency",
                &count,
                "--accept-delay",
                "2s",
                "--timeout",
                "2500ms",
                "--warmup",
                "0",
            ],
        )?;
        let arm = only(&run)?;
        let queue = queues(arm)?.listeners.first().context("a listener")?;
        // Who was not turned away was in the queue: its handshake was never retransmitted.
        let held = arm.attempts - queues(arm)?.drops.as_ref().map_or(0, first_dropped(arm));
        table.row(
            &format!("a queue of limit {backlog}: connections held"),
            &format!("{}", backlog + 1),
            &format!("{} (sock_diag), {held} (handshakes without a dropped SYN)", queue.peak),
            u64::from(queue.peak) == backlog + 1 && held == backlog + 1,
        );
    }
    let (run, _) = summary(
        &["accept-queue"],
        &[
            "--rounds",
            "1",
            "--listeners",
            "3",
            "--backlog",
            "8",
            "--count",
            "1200",
            "--rate",
            "800",
            "--accept-delay",
            "5ms",
        ],
    )?;
    let arm = only(&run)?;
    let drops: Vec<Option<u64>> = queues(arm)?.listeners.iter().map(|one| one.drops).collect();
    let counted = counter(arm, "TcpExtListenDrops");
    table.row(
        "overflow attributed to the right listener of three",
        "all drops at the first",
        &format!("drops {drops:?}; TcpExtListenDrops {counted}"),
        drops == [Some(counted), Some(0), Some(0)] && counted > 0,
    );
    for (what, args) in BALANCE_ARMS {
        balance(table, what, args)?;
    }
    abort(table)
}

/// How many connections had their first SYN dropped: those at a step, those that waited off the steps,
/// and those that gave up.
fn first_dropped(arm: &Arm) -> impl Fn(&tcptoll_core::record::DropBalance) -> u64 + '_ {
    |_| {
        let gave_up = arm.errors.get("connect-timeout").copied().unwrap_or(0);
        let ladder = arm.own.queues.as_ref().map(|queues| &queues.syn_ladder);
        let stepped = ladder.map_or(0, |one| one.connections.iter().sum::<u64>() + one.off);
        gave_up + stepped
    }
}

fn balance(table: &mut Proofs, what: &str, args: &[&str]) -> anyhow::Result<()> {
    let common = ["--rounds", "1", "--accept-delay", "5ms", "--timeout", "4500ms"];
    let (run, _) = summary(&["accept-queue"], &[&common[..], args].concat())?;
    let arm = only(&run)?;
    let queues = queues(arm)?;
    let drops = queues.drops.as_ref().context("no balance of drops")?;
    let overflows = counter(arm, "TcpExtListenOverflows");
    let sum = drops.syns_dropped + drops.acks_dropped + drops.cookie_acks_refused;
    let met = drops.syns_unanswered == drops.syns_dropped + drops.syns_dropped_half_open
        && sum == overflows
        && queues.syn_ladder.off == 0
        && queues.syn_ack_ladder.off == 0
        && overflows > 0;
    table.row(
        &format!("slow connects matched with counted drops, {what}"),
        "equal; none off the steps",
        &format!(
            "SYN steps {:?}, off {}; SYN-ACK steps {:?}, off {}; {} SYNs unanswered, {} + {} dropped; {} last ACKs dropped, {} cookie ACKs refused; ListenOverflows {overflows}",
            queues.syn_ladder.connections,
            queues.syn_ladder.off,
            queues.syn_ack_ladder.connections,
            queues.syn_ack_ladder.off,
            drops.syns_unanswered,
            drops.syns_dropped,
            drops.syns_dropped_half_open,
            drops.acks_dropped,
            drops.cookie_acks_refused,
        ),
        met,
    );
    Ok(())
}

/// With `tcp_abort_on_overflow`, last ACKs that meet a full queue are answered with a reset.
fn abort(table: &mut Proofs) -> anyhow::Result<()> {
    const RTT_US: f64 = 10_000.0;
    for cookies in ["0", "1"] {
        let (run, _) = summary(
            &["accept-queue"],
            &[
                "--rounds",
                "1",
                "--link",
                "rtt=10ms",
                "--backlog",
                "64",
                "--rate",
                "1000",
                "--count",
                "400",
                "--accept-delay",
                "10ms",
                "--timeout",
                "4500ms",
                "--abort-on-overflow",
                "on",
                "--syncookies",
                cookies,
            ],
        )?;
        let arm = only(&run)?;
        let queues = queues(arm)?;
        let drops = queues.drops.as_ref().context("no balance of drops")?;
        let seen = arm.errors.get("reset").copied().unwrap_or(0);
        let latest = queues.reset_at_once.as_ref().map_or(f64::NAN, |one| one.max_us);
        table.row(
            &format!("tcp_abort_on_overflow, 10 ms, tcp_syncookies={cookies}"),
            "resets = last ACKs that met a full queue; within 2 RTT + 1 ms",
            &format!(
                "{} last ACKs, {} resets on the wire, {seen} at clients, the last {:.2} ms after its SYN; silent: {} SYNs, {} cookie ACKs",
                drops.acks_dropped,
                drops.resets_sent,
                latest / 1e3,
                drops.syns_dropped,
                drops.cookie_acks_refused,
            ),
            drops.acks_dropped == drops.resets_sent
                && drops.resets_sent == seen
                && seen > 0
                && latest <= 2.0 * RTT_US + 1e3,
        );
    }
    Ok(())
}

// Is connect(2) slow where arithmetic says, and what does each fix change?

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
pub(crate) fn cliff(table: &mut Proofs) -> anyhow::Result<()> {
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
pub(crate) fn service(table: &mut Proofs) -> anyhow::Result<()> {
    const STUDY: &str = "time-wait-2021";
    let (run, _) = summary(&["study", "run", STUDY], &[])?;
    ensure!(!run.comparisons.is_empty(), "{STUDY}: nothing was compared");
    for arm in &run.arms {
        let figure =
            |metric| value(arm, metric).map_or("—".to_owned(), |value| format!("{value:.3}"));
        Proofs::fact(
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

// Are the workers that wait for a stopped backend as many as arithmetic says, by how much do other
// requests slow down, and what does each fix change?

/// Workers may be off by this share of what arithmetic says.
const POOL_OFF_MAX: f64 = 0.10;

/// The pool of the document, on both front services: a queue of 5, a stall of 2 s.
const POOL: &[&str] = &["--workers", "100", "--rate", "400", "--stall", "2s"];

/// A setting with what it changes, in words.
type Setting = (&'static str, &'static [&'static str]);

/// Settings whose waiting is known, on 100 workers.
const WAITS: &[Setting] = &[
    ("100 ms", &["--connect-timeout", "100ms"]),
    ("225 ms", &["--connect-timeout", "225ms"]),
    ("100 ms, 2 retries", &["--connect-timeout", "100ms", "--retries", "2"]),
    (
        "100 ms, 1 retry after 100 ms",
        &["--connect-timeout", "100ms", "--retries", "1", "--backoff", "100ms", "--jitter", "off"],
    ),
    ("none", &[]),
];

fn pool(arm: &Arm) -> anyhow::Result<&WorkerPool> {
    let pool = arm.own.worker_pool.as_deref();
    pool.with_context(|| format!("{}: nothing recorded", arm.name))
}

fn run(args: &[&str]) -> anyhow::Result<Summary> {
    Ok(summary(&["worker-pool"], args)?.0)
}

/// Workers stuck, by the front services' own status pages.
pub(crate) fn stuck(table: &mut Proofs) -> anyhow::Result<()> {
    for front in ["workers", "php-fpm"] {
        for (what, limits) in WAITS {
            let args = [POOL, &["--front", front, "--rounds", "1"], limits].concat();
            let found = run(&args)?;
            let pool = pool(crate::http::only(&found)?)?;
            let expected = pool.stuck_expected.context("nothing is expected")?;
            let measured = pool.stuck_measured.context("the status page was not read")?;
            let off = measured / expected - 1.0;
            table.row(
                &format!("{front}: stuck of 100 workers, 200 calls/s, connect time-out {what}"),
                "within 10 % of arrivals × waiting, at most 100",
                &format!("{measured:.1}, {expected:.1} from arithmetic: {:+.1} %", off * 100.0),
                off.abs() <= POOL_OFF_MAX,
            );
        }
    }
    Ok(())
}

/// The study of the document: how much slower requests are that never call the backend, and each
/// fix's factor.
pub(crate) fn avalanche(table: &mut Proofs) -> anyhow::Result<()> {
    const STUDY: &str = "avalanche-2021";
    let found = summary(&["study", "run", STUDY], &[])?.0;
    ensure!(found.valid, "{STUDY}: the run is invalid: {:?}", found.warnings);
    ensure!(!found.comparisons.is_empty(), "{STUDY}: nothing was compared");
    for compared in &found.comparisons {
        table.row(
            &format!("{STUDY}: {} of {} against {}", compared.metric, compared.a, compared.b),
            "a factor with its interval",
            &factor(compared),
            compared.ratio.is_some() && compared.ci95.is_some(),
        );
    }
    for arm in &found.arms {
        let pool = pool(arm)?;
        let groups: Vec<String> = pool
            .groups
            .iter()
            .map(|(name, group)| format!("{name}: {} of {} ok", group.ok, group.attempts))
            .collect();
        let stuck = pool.stuck_measured.zip(pool.stuck_expected);
        let stuck = stuck.map_or("not steady".to_owned(), |(measured, expected)| {
            let most = pool.stuck_expected_max.unwrap_or(expected);
            format!("{measured:.1} workers busy, {expected:.1} to {most:.1} from arithmetic")
        });
        Proofs::fact(&format!("{STUDY}: {}", arm.name), &format!("{stuck}; {}", groups.join("; ")));
    }
    Ok(())
}

fn factor(compared: &Comparison) -> String {
    let interval = compared
        .ci95
        .map_or("no interval".to_owned(), |[low, high]| format!("95 % CI {low:.3} to {high:.3}"));
    let ratio = compared.ratio.map_or("no ratio".to_owned(), |ratio| format!("{ratio:.3}"));
    format!("× {ratio} ({interval}), {}", compared.verdict)
}
