//! Do full queues hold what they should, and is every drop attributed?

use anyhow::Context as _;
use tcptoll_core::record::{Arm, Queues};

use crate::http::{only, summary};
use crate::table::Table;

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
pub(crate) fn accept(table: &mut Table) -> anyhow::Result<()> {
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

fn balance(table: &mut Table, what: &str, args: &[&str]) -> anyhow::Result<()> {
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
fn abort(table: &mut Table) -> anyhow::Result<()> {
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
