use tcptoll_core::record::{Cause, DropBalance, HalfOpenPeer, Outcome};
use tcptoll_core::tcp::wire::Wire;

use super::*;
use crate::kit::conclusion::{explain, supported};

const QUEUES: &[&CauseSpec] = &[&ACCEPT_QUEUE_FULL, &SYN_QUEUE_FULL];

fn crowded(counters: &[(&str, i64)], peak: u32) -> Arm {
    Arm {
        name: "a".into(),
        server: Some(HostSummary {
            counters: counters.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            listeners: vec![Listener {
                address: "10.77.0.2".into(),
                port: 80,
                accept_queue_peak: peak,
                accept_queue_limit: 16,
                ..Listener::default()
            }],
            ..HostSummary::default()
        }),
        ..Arm::default()
    }
}

/// The causes of an arm where `waited` handshakes waited for the first retransmission.
fn causes(arm: Arm, waited: u64) -> Vec<Cause> {
    let arm = Arm { syn_retry_ladder_s: vec![1.0, 2.0], rungs: vec![waited, 0], ..arm };
    supported(&arm, QUEUES)
}

#[test]
fn overflows_and_a_ladder_are_a_full_accept_queue() {
    let arm = crowded(&[("TcpExtListenOverflows", 482), ("TcpExtListenDrops", 482)], 17);
    let found = causes(arm, 482);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].id, "accept-queue-full");
    assert!(found[0].text.contains("482 at 1 s"), "{}", found[0].text);
    assert_eq!(found[0].evidence["TcpExtListenOverflows"], 482);
}

#[test]
fn with_cookies_off_the_counter_that_counts_is_another() {
    let found = causes(crowded(&[("TcpExtTCPReqQFullDrop", 482)], 16), 482);
    assert_eq!(found.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["syn-queue-full"]);
}

#[test]
fn a_queue_that_was_full_without_anyone_waiting_is_no_cause() {
    assert!(causes(crowded(&[], 17), 0).is_empty());
}

#[test]
fn lost_syns_on_the_ladder_are_not_blamed_on_a_queue() {
    assert!(causes(crowded(&[], 3), 9).is_empty());
}

fn listener(port: u16, drops: u64) -> ListenerQueue {
    ListenerQueue {
        address: "10.77.0.2".into(),
        port,
        limit: 128,
        peak: if drops > 0 { 129 } else { 1 },
        drops: Some(drops),
        samples: 1_000,
        full_samples: if drops > 0 { 60 } else { 0 },
        slices: 12,
        dropping_slices: u64::from(drops > 0),
        ..ListenerQueue::default()
    }
}

/// 500 connections, of which 246 waited for a second SYN.
fn overflown() -> Arm {
    let queues = Queues {
        listeners: vec![listener(80, 246), listener(81, 0), listener(82, 0)],
        syn_ladder: RetryLadder { at_s: vec![1.0, 2.0], connections: vec![246, 0], off: 0 },
        drops: Some(DropBalance { syns_dropped: 246, ..DropBalance::default() }),
        ..Queues::default()
    };
    Arm {
        name: "a".into(),
        attempts: 500,
        ok: 500,
        syn_retry_ladder_s: vec![1.0, 2.0],
        rungs: vec![246, 0],
        server: Some(HostSummary {
            counters: [("TcpExtListenOverflows".to_owned(), 246)].into(),
            ..HostSummary::default()
        }),
        own: Box::new(queues).into(),
        ..Arm::default()
    }
}

fn queues(arm: &mut Arm) -> &mut Queues {
    arm.own.queues.as_deref_mut().unwrap()
}

fn text(arm: &Arm) -> String {
    accept_queue_full(arm).unwrap().text
}

#[test]
fn on_a_machine_of_the_users_the_listeners_own_row_must_show_it() {
    use tcptoll_core::record::Background;
    let there = |left_out: &[&str], with_row: bool| {
        let mut arm = overflown();
        let left_out = left_out.iter().map(|name| (*name).to_owned()).collect();
        let background = Background { left_out, ..Background::default() };
        let host = arm.server.as_mut().unwrap();
        if !background.left_out.is_empty() {
            host.counters.clear();
        }
        host.background = Some(Box::new(background));
        if !with_row {
            queues(&mut arm).listeners = vec![listener(80, 0)];
        }
        accept_queue_full(&arm).is_some()
    };
    assert!(there(&[], true));
    // Another listener of that machine overflowed.
    assert!(!there(&[], false));
    // Others move the counter, and the connections of the load waited.
    assert!(there(&["TcpExtListenOverflows"], true));
    assert!(!there(&["TcpExtListenOverflows"], false));
}

#[test]
fn a_burst_states_its_listener_its_drops_and_the_steps() {
    let found = accept_queue_full(&overflown()).unwrap();
    assert_eq!(
        found.text,
        "The accept queue of 10.77.0.2:80 (limit 128, holds 129) was full in 6 % of the \
         samples. Of 3 listeners, only this one dropped packets (246). It overflowed in bursts: \
         246 of 500 connections (49.2 %) were delayed or failed, and packets were dropped in 1 \
         of 12 slices of 100 ms. The server dropped 246 SYNs (connected after a retransmitted SYN: \
         246 at 1 s). All connections were served in the end."
    );
    assert_eq!(found.evidence["overflow"], "bursts");
    assert_eq!(found.evidence["listener"], "10.77.0.2:80");
    assert_eq!(found.evidence["drops_of_other_listeners"], 0);
    assert_eq!(found.evidence["TcpExtListenOverflows"], 246);
}

#[test]
fn of_several_listeners_the_one_with_the_most_drops_is_named_wherever_it_stands() {
    let mut arm = overflown();
    queues(&mut arm).listeners = vec![listener(80, 0), listener(81, 246), listener(82, 3)];
    let said = text(&arm);
    assert!(said.starts_with("The accept queue of 10.77.0.2:81"), "{said}");
    assert!(said.contains("It dropped 246 packets, and the other 2 listeners 3."), "{said}");
    queues(&mut arm).listeners[1].address = "fd77::2".into();
    assert!(text(&arm).contains("of [fd77::2]:81 "));
}

#[test]
fn a_rare_overflow_says_that_it_may_be_tolerated_and_a_lasting_one_does_not() {
    let mut rare = Arm { attempts: 100_000, ok: 100_000, rungs: vec![90, 0], ..overflown() };
    queues(&mut rare).syn_ladder.connections = vec![90, 0];
    queues(&mut rare).listeners.truncate(1);
    queues(&mut rare).listeners[0].full_samples = 10;
    let said = text(&rare);
    assert!(
        said.contains("rare and may be tolerated: 90 of 100,000 connections (0.09 %)"),
        "{said}"
    );
    let mut lasting = overflown();
    queues(&mut lasting).listeners[0].full_samples = 900;
    queues(&mut lasting).listeners[0].dropping_slices = 11;
    let said = text(&lasting);
    assert!(said.contains("The overflow lasted: 246 of 500"), "{said}");
}

#[test]
fn syns_last_acks_refused_cookies_and_resets_are_apart() {
    let mut arm = Arm { ok: 420, ..overflown() };
    let outcome = |count, p50_us| Outcome { count, p50_us, ..Outcome::default() };
    let all = queues(&mut arm);
    all.syn_ack_ladder = RetryLadder { at_s: vec![1.0, 3.0], connections: vec![0, 12], off: 0 };
    all.drops = Some(DropBalance {
        syns_dropped: 246,
        acks_dropped: 40,
        cookie_acks_refused: 7,
        resets_sent: 30,
        ..DropBalance::default()
    });
    all.outcomes = [
        ("ok".to_owned(), outcome(420, 900.0)),
        ("reset".to_owned(), outcome(30, 1_200.0)),
        ("timeout".to_owned(), outcome(50, 10e6)),
    ]
    .into();
    let said = text(&arm);
    assert!(
        said.contains("40 last ACKs (connected after a retransmitted SYN-ACK: 12 at 3 s)."),
        "{said}"
    );
    assert!(said.contains("It silently dropped 7 ACKs of SYN cookies."), "{said}");
    assert!(said.contains("30 connections were reset after 1.20 ms (median)."), "{said}");
    assert!(said.contains("50 clients connected, but received no first byte"), "{said}");
    assert!(!said.contains("All connections were served"), "{said}");
}

#[test]
fn a_queue_that_was_full_and_turned_nobody_away_is_no_cause() {
    let mut spared = Arm { rungs: vec![0, 0], ..overflown() };
    spared.server = Some(HostSummary::default());
    assert!(supported(&spared, &[&ACCEPT_QUEUE_FULL]).is_empty());
}

/// A load of 100,000 connections over 20 s, of which `hit` waited for a second SYN.
fn hit_arm(hit: u64) -> Arm {
    let ladder = RetryLadder { at_s: vec![1.0], connections: vec![hit], off: 0 };
    let queues = Queues { syn_ladder: ladder, ..Queues::default() };
    Arm { attempts: 100_000, own: Box::new(queues).into(), ..Arm::default() }
}

#[test]
fn a_connection_that_waited_on_both_ladders_counts_once_where_its_time_is_known() {
    let mut both = hit_arm(40);
    let queues = both.own.queues.as_deref_mut().unwrap();
    queues.syn_ack_ladder = RetryLadder { at_s: vec![1.0], connections: vec![30], off: 0 };
    assert_eq!(hit_by(&both), Some(70), "nothing says which are the same");
    let mut times = Histogram::new();
    for at in 0..1_000_u64 {
        times.record_ns(if at < 50 { 1_002_000_000 } else { 300_000_000 });
    }
    both.histograms.insert("first_byte_us".to_owned(), times.summary_us());
    assert_eq!(hit_by(&both), Some(50));
}

#[test]
fn failures_that_a_full_queue_brings_about_are_hits_and_others_are_not() {
    let errors = [("reset", 3), ("timeout", 4), ("connect-timeout", 5), ("local-ports", 7)];
    let errors = errors.map(|(class, count)| (class.to_owned(), count)).into();
    let failed = Arm { errors, ..hit_arm(10) };
    assert_eq!(hit_by(&failed), Some(22));
    let old = Arm { attempts: 20, rungs: vec![2, 1], ..Arm::default() };
    assert_eq!(hit_by(&old), Some(3), "a record without queues");
    assert_eq!(hit_by(&Arm { attempts: 1, ..old }), Some(1));
}

/// 129 half-open requests of a peer; 40 of 200 clients waited for a retransmitted SYN.
fn pressed(counters: &[(&str, i64)], waited: u64) -> Arm {
    let listener = ListenerQueue {
        limit: 128,
        half_open_peak: Some(129),
        half_open_limit: Some(129),
        ..ListenerQueue::default()
    };
    let queues = Queues {
        listeners: vec![listener],
        half_open_peer: Some(HalfOpenPeer { syns_sent: 900, ..HalfOpenPeer::default() }),
        ..Queues::default()
    };
    Arm {
        attempts: 200,
        ok: 200,
        syn_retry_ladder_s: vec![1.0, 2.0],
        rungs: vec![waited, 0],
        server: Some(HostSummary {
            counters: counters.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
            sysctls: [("net.ipv4.tcp_syncookies".to_owned(), "0".to_owned())].into(),
            ..HostSummary::default()
        }),
        own: Box::new(queues).into(),
        ..Arm::default()
    }
}

#[test]
fn drops_that_clients_felt_are_the_cause_with_the_queue_s_length_and_limit() {
    let drops = [("TcpExtTCPReqQFullDrop", 40), ("TcpExtListenDrops", 40)];
    let found = syn_queue_full(&pressed(&drops, 40)).unwrap();
    assert_eq!(
        found.text,
        "The SYN queue was full (129 half-open requests) and SYN cookies are off, so the server dropped 40 SYNs. Handshakes waited for a retransmitted SYN (40 at 1 s)."
    );
    assert_eq!(found.evidence["half_open_peak"], 129);
    assert_eq!(found.evidence["half_open_limit"], 129);
    assert_eq!(found.evidence["half_open_peer_syns"], 900);
    assert_eq!(found.evidence["TcpExtTCPReqQFullDrop"], 40);
}

#[test]
fn drops_of_the_peer_s_own_syns_or_cookies_are_no_cause() {
    let drops = [("TcpExtTCPReqQFullDrop", 40), ("TcpExtListenDrops", 40)];
    assert_eq!(syn_queue_full(&pressed(&drops, 0)), None);
    let cookies = [("TcpExtTCPReqQFullDoCookies", 200), ("TcpExtSyncookiesSent", 200)];
    assert_eq!(syn_queue_full(&pressed(&cookies, 3)), None);
}

#[test]
fn on_a_lossy_link_drops_explain_at_most_as_many_waits_as_they_are() {
    let mut arm = pressed(&[("TcpExtTCPReqQFullDrop", 40), ("TcpExtListenDrops", 40)], 55);
    arm.errors.insert("connect-timeout".to_owned(), 5);
    arm.wire = Some(Wire { lost_on_purpose: 1, ..Wire::default() });
    let found = syn_queue_full(&arm).unwrap();
    assert_eq!(
        found.text,
        "The SYN queue was full (129 half-open requests) and SYN cookies are off, so the server dropped 40 SYNs. 60 handshakes waited for a retransmitted SYN or timed out. These drops explain at most 40 of them, because the link also loses packets."
    );
    assert_eq!(found.evidence["explained_by_drops_at_most"], 40);
    assert_eq!(found.evidence["delayed_or_gave_up"], 60);
    // More drops than handshakes: several SYNs of one client may have been dropped.
    arm.rungs = vec![10, 0];
    let found = syn_queue_full(&arm).unwrap();
    assert_eq!(found.evidence["explained_by_drops_at_most"], 15);
}

#[test]
fn the_last_quarter_is_told_from_what_no_counter_names() {
    let drops = [("TcpExtListenDrops", 40)];
    let found = syn_queue_full(&pressed(&drops, 40)).unwrap();
    assert!(found.text.starts_with("Three quarters of tcp_max_syn_backlog"), "{}", found.text);
    // What the accept queue dropped is not the SYN queue's.
    let overflows = [("TcpExtListenDrops", 40), ("TcpExtListenOverflows", 40)];
    assert_eq!(syn_queue_full(&pressed(&overflows, 40)), None);
    let mut below = pressed(&drops, 40);
    below.own.queues.as_mut().unwrap().listeners[0].half_open_peak = Some(90);
    assert_eq!(syn_queue_full(&below), None, "the queue was never that long");
}

/// What a run of one arm advises whose queue of 16 was full in so many of the samples.
fn advised(samples: Option<[u64; 2]>, rungs: Vec<u64>) -> Vec<String> {
    let mut arm = crowded(&[("TcpExtListenOverflows", 482), ("TcpExtListenDrops", 482)], 17);
    let listener = &mut arm.server.as_mut().unwrap().listeners[0];
    (listener.full_samples, listener.samples) =
        (samples.map(|[full, _]| full), samples.map(|[_, all]| all));
    (arm.attempts, arm.ok, arm.rungs) = (10_000, 10_000, rungs);
    let mut summary = Summary { arms: vec![arm], ..Summary::default() };
    explain(&mut summary, QUEUES, |_, _| None);
    summary.advice.into_iter().map(|one| one.change).collect()
}

#[test]
fn a_queue_that_stayed_full_asks_for_a_faster_server_and_bursts_for_a_longer_queue() {
    let one = |samples, starts: &str, not_if: &str| {
        let changes = advised(samples, vec![482]);
        let [change] = changes.as_slice() else { panic!("{changes:?}") };
        assert!(change.starts_with(starts) && change.contains(not_if), "{change}");
    };
    one(Some([90, 100]), "Accept faster", "Not if the queue fills in bursts");
    one(Some([10, 100]), "Raise the backlog", "Not if the queue stays full");
    // Full at nearly all of few samples: less than a second is a burst.
    one(Some([90, 99]), "Raise the backlog", "then accept faster");
    // A record that does not have them.
    one(None, "Raise the backlog", "then accept faster");
}

#[test]
fn an_overflow_is_tolerated_only_where_the_waits_were_looked_at() {
    assert!(advised(None, vec![1])[0].starts_with("No change is needed"));
    assert!(advised(None, Vec::new())[0].starts_with("Raise the backlog"));
}

/// 500 connections of this load to a server of the user's on this machine, which accepted `all`.
fn of_users(all: i64) -> Arm {
    let mut arm = crowded(&[("TcpExtListenOverflows", 482), ("TcpPassiveOpens", all)], 17);
    (arm.client, arm.server) = (arm.server.take().unwrap(), None);
    Arm { connections_ok: Some(500), ..arm }
}

#[test]
fn a_load_that_filled_the_queue_of_a_users_server_says_so_first() {
    let said = |arm: &Arm| accept_queue_full(arm).unwrap().text;
    let own = said(&of_users(501));
    assert!(
        own.starts_with(
            "This load itself filled the accept queue (backlog 16): it opened 500 connections, and \
             the host accepted 501 meanwhile."
        ),
        "{own}"
    );
    let others = said(&of_users(9_000));
    assert!(
        others.starts_with("Other clients may fill the accept queue (backlog 16) too"),
        "{others}"
    );
    assert!(said(&of_users(0)).starts_with("The accept queue (backlog 16) was full."));
    // In the lab nobody else connects.
    let lab = crowded(&[("TcpExtListenOverflows", 482), ("TcpPassiveOpens", 500)], 17);
    assert!(said(&lab).starts_with("The accept queue (backlog 16) was full."));
}
