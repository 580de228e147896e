//! Does `stream --memory` report what the kernel holds for open connections, idle and filled?
//!
//! What filled sockets hold follows from their buffers: the kernel takes data until its memory
//! exceeds the limit, so it holds at least that limit (of a send buffer), and at most one write or
//! segment of 64 KiB with its overhead more.

use std::path::Path;

use tcptoll_core::record::{Arm, BufferLimit, ConnectionMemory, MemoryState, Summary};

use crate::support::{
    Folder, TOLERANCE, checked_summary, counter, errors, last_line, no_lab, only, run, tcptoll,
};

/// A limit may be exceeded by this much for each socket: a last segment of 64 KiB, and what the
/// kernel keeps in reserve.
const BEYOND: f64 = 80e3;

/// Runs `stream --memory` and gives its summary and its exit status.
fn measured(args: &[&str]) -> (Summary, Option<i32>) {
    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let mut all = vec!["stream", "--memory", "--quiet", "--format", "json", "--out", &record];
    all.extend(["--link-tolerance", TOLERANCE, "--seed", "1"]);
    all.extend(args);
    let ran = run(&mut tcptoll(&all));
    assert!(matches!(ran.status, Some(0..=2)), "{args:?}: {:?}: {}", ran.status, ran.stderr);
    let summary = checked_summary(&ran.stdout);
    assert_eq!(last_line(Path::new(&record)).as_ref(), Some(&summary), "the record's last line");
    (summary, ran.status)
}

fn refused(args: &[&str]) -> String {
    let ran = run(&mut tcptoll(&[&["stream", "--quiet", "--out", "/dev/null"], args].concat()));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {}", ran.stderr);
    ran.stderr
}

fn memory(arm: &Arm) -> &ConnectionMemory {
    arm.own.connection_memory.as_ref().expect("the arm has memory")
}

fn filled(arm: &Arm) -> &MemoryState {
    memory(arm).filled.as_ref().expect("its connections were filled")
}

/// All connections were opened and held, and both kernels agree.
fn all_held(arm: &Arm, connections: u64) {
    assert_eq!((arm.attempts, arm.ok, errors(arm)), (connections, connections, 0));
    assert_eq!(memory(arm).connections, connections);
    assert_eq!(counter(&arm.client.counters, "TcpActiveOpens"), connections);
    let server = arm.server.as_ref().unwrap();
    assert_eq!(counter(&server.counters, "TcpPassiveOpens"), connections);
}

/// Idle sockets hold no buffers; filled ones hold what their buffers allow, and the payload is in it.
fn fills_what_was_asked_for(arm: &Arm, connections: u64, asked: u64) {
    all_held(arm, connections);
    let memory = memory(arm);
    for sockets in [&memory.client, &memory.server] {
        for buffer in [sockets.send_buffer, sockets.receive_buffer] {
            assert_eq!((buffer.asked_bytes, buffer.effective_bytes), (Some(asked), asked * 2));
        }
    }
    assert!(memory.idle.buffers_bytes() < 1.0, "an idle connection holds no buffers");
    let (filled, n) = (filled(arm), connections as f64);
    let limit = 2.0 * asked as f64;
    let queued = filled.client.queued_bytes / n;
    assert!((limit..limit + BEYOND).contains(&queued), "{queued} queued of {limit}");
    // The window closes before the receive buffer is full, by up to what the kernel keeps for overhead.
    let received = filled.server.received_bytes / n;
    assert!((limit * 0.5..limit + BEYOND).contains(&received), "{received} received of {limit}");
    assert_eq!((filled.client.received_bytes, filled.server.queued_bytes), (0.0, 0.0));
    let (payload, held) = (filled.payload_bytes, filled.buffers_bytes());
    assert!(payload > 0.3 * held && payload <= held, "payload {payload}, held {held}");
}

#[test]
fn filled_connections_hold_what_their_buffers_allow_and_idle_ones_hold_none() {
    if no_lab() {
        return;
    }
    let (summary, status) = measured(&["--window", "64K,256K", "--connections", "100"]);
    // 1: the machine had no CPU for any trial; the figures of memory are the same then.
    assert!(matches!(status, Some(0 | 1)), "{status:?}: {:?}", summary.warnings);
    let [small, large] = summary.arms.as_slice() else { panic!("two arms") };
    fills_what_was_asked_for(small, 100, 64 << 10);
    fills_what_was_asked_for(large, 100, 256 << 10);
    assert!(summary.comparisons.is_empty(), "one round says all");
    assert!(summary.answer.starts_with("An idle connection holds "), "{}", summary.answer);
    assert!(summary.answer.contains("× 256K (client)"), "{}", summary.answer);
}

#[test]
fn a_tuned_buffer_begins_small_and_grows_while_it_is_filled() {
    if no_lab() {
        return;
    }
    let (summary, status) = measured(&["--connections", "20"]);
    // 1: the machine had no CPU for any trial; the figures of memory are the same then.
    assert!(matches!(status, Some(0 | 1)), "{status:?}: {:?}", summary.warnings);
    let arm = only(&summary);
    all_held(arm, 20);
    let memory = memory(arm);
    assert_eq!(memory.client.send_buffer.asked_bytes, None);
    let at_first = memory.client.send_buffer.effective_bytes as f64 * 20.0;
    let (limit, queued) = (filled(arm).client.send_limit_bytes, filled(arm).client.queued_bytes);
    assert!(limit >= at_first && queued >= at_first, "{queued} of {limit}, at first {at_first}");
}

#[test]
fn both_ends_in_one_namespace_are_told_apart() {
    if no_lab() {
        return;
    }
    let (summary, _) = measured(&["--link", "loopback", "--connections", "10", "--window", "64K"]);
    let memory = memory(only(&summary));
    assert_eq!(memory.connections, 10);
    let filled = filled(only(&summary));
    assert!(filled.client.queued_bytes > 0.0 && filled.client.received_bytes == 0.0, "{filled:?}");
    assert!(filled.server.received_bytes > 0.0 && filled.server.queued_bytes == 0.0, "{filled:?}");
}

#[test]
fn the_kernels_smallest_buffer_is_named_and_ipv6_works() {
    if no_lab() {
        return;
    }
    let (summary, status) = measured(&["--ipv6", "--connections", "5", "--window", "1"]);
    // 1: the machine had no CPU for any trial; the figures of memory are the same then.
    assert!(matches!(status, Some(0 | 1)), "{status:?}: {:?}", summary.warnings);
    let arm = only(&summary);
    all_held(arm, 5);
    let sockets = &memory(arm).server;
    assert_eq!(sockets.receive_buffer.changed_by, Some(BufferLimit::Minimum));
    assert!(sockets.receive_buffer.effective_bytes > 2);
}

#[test]
fn connections_that_are_not_full_in_time_have_no_figure_of_full_ones() {
    if no_lab() {
        return;
    }
    // 20 × 2 × 512 KiB at 10 Mbit/s take 17 s.
    let args = ["--link", "rtt=1ms,rate=10mbit", "--connections", "20", "--window", "256K"];
    let (summary, _) = measured(&[&args[..], &["--timeout", "300ms"]].concat());
    let arm = only(&summary);
    assert!(memory(arm).filled.is_none(), "{:?}", memory(arm).filled);
    assert!(!arm.metrics.contains_key("client_filled_bytes_per_connection"));
    assert!(summary.warnings.iter().any(|warning| warning.id == "not-filled"));
}

#[test]
fn what_cannot_be_measured_is_refused_by_the_name_of_the_option() {
    if no_lab() {
        return;
    }
    let is_refused = |args: &[&str], text: &str| {
        let error = refused(args);
        assert!(error.contains(text), "{args:?}: {error}");
    };
    is_refused(&["--connections", "10"], "--connections has no effect without --memory");
    is_refused(&["--memory", "--nagle", "off"], "--nagle has no effect with --memory");
    is_refused(&["--memory", "--duration", "1s"], "--duration has no effect with --memory");
    is_refused(&["--memory", "--connections", "0"], "--connections 0: ");
    is_refused(
        &["--memory", "--window", "64 bananas"],
        "--window 64 bananas: write auto, or a size",
    );
    is_refused(&["--memory", "--congestion", "none-such"], "--congestion none-such: ");
    // More than a process may have open: said before anything is opened.
    let error = refused(&["--memory", "--connections", "100000", "--rounds", "1"]);
    let limit = std::fs::read_to_string("/proc/self/limits").unwrap();
    let hard = limit.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let hard: u64 = hard.split_whitespace().nth(4).unwrap().parse().unwrap_or(u64::MAX);
    assert!(hard > 100_000 || error.contains("Raise the limit of open files"), "{error}");
}

mod alone {
    use super::*;

    /// The kernel keeps up to 1 MiB per CPU of TCP memory in reserve, outside the sum in `sockstat`
    /// (`net.core.mem_pcpu_rsv`).
    fn reserve() -> f64 {
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as f64 * 1_048_576.0
    }

    #[test]
    fn what_sockets_hold_is_the_growth_of_the_machines_tcp_memory() {
        if no_lab() {
            return;
        }
        let (summary, _) = measured(&["--window", "256K", "--connections", "100"]);
        let filled = filled(only(&summary));
        let (held, grown) = (filled.buffers_bytes(), filled.machine_tcp_bytes);
        // 100 MB of buffers; other programs may have opened connections meanwhile.
        assert!((held - grown).abs() <= reserve() + 0.05 * held, "held {held}, grown {grown}");
    }
}
