//! When a peer dies: who knows it, in time, and by what; and is nobody taken for dead who lives?

use std::collections::BTreeMap;

use tcptoll_core::record::{Arm, Deaths};

use crate::keepalive::{keepalive, told};
use crate::support::{counter, errors, no_lab, only};

/// What is short, and finite, for each mechanism.
const CUT: [&str; 2] = ["--fault", "cut"];

/// Runs one arm with a fault. The window before it is short: checks have spread out in the warm-up.
fn struck(args: &[&str]) -> Arm {
    only(&keepalive(&[args, &["--duration", "200ms"]].concat())).clone()
}

fn deaths(arm: &Arm) -> &Deaths {
    told(arm).deaths.as_ref().expect("there was a fault")
}

fn by(how: &str, count: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([(how.to_owned(), count)])
}

/// Every dead connection is known, in time, in one way; nobody else is touched.
fn all_known(arm: &Arm, dead: u64, how: &str) {
    let deaths = deaths(arm);
    assert_eq!((deaths.stricken, deaths.dead, deaths.known), (dead, dead, dead), "{}", arm.name);
    assert_eq!(deaths.known_by, by(how, dead), "{}", arm.name);
    assert_eq!(
        (deaths.late, deaths.wrongly_closed),
        (0, 0),
        "{}: {:?} us, due {:?} s, behind {:?} s",
        arm.name,
        arm.histograms["detection_us"].max,
        deaths.due_s(),
        deaths.behind_s
    );
    assert_eq!(arm.histograms["detection_us"].count, dead, "{}", arm.name);
    nobody_else(arm, dead);
}

/// Those that nothing happened to live.
fn nobody_else(arm: &Arm, dead: u64) {
    assert_eq!((arm.ok, errors(arm)), (arm.attempts, 0), "{}: {:?}", arm.name, arm.errors);
    assert_eq!(deaths(arm).alive, told(arm).idle_sockets - dead, "{}", arm.name);
    assert_eq!(deaths(arm).wrongly_closed, 0, "{}", arm.name);
}

/// The bound by arithmetic, s.
fn bounded(arm: &Arm, bound_s: f64) {
    let bound = deaths(arm).bound_s.expect("it is bounded");
    assert!((bound - bound_s).abs() < 1e-6, "{}: {bound} s, not {bound_s} s", arm.name);
}

#[test]
fn probes_of_the_kernel_find_every_cut_connection_in_time() {
    if no_lab() {
        return;
    }
    let arm = struck(&["--mechanism", "tcp", "--probes", "2", CUT[0], CUT[1]]);
    all_known(&arm, 20, "ETIMEDOUT");
    bounded(&arm, 3.0);
    // The error comes once; a program that reads on is told that the stream has ended.
    assert_eq!(deaths(&arm).read_said, by("ETIMEDOUT, then 0", 20));
}

#[test]
fn heartbeats_find_every_cut_connection_in_time_by_either_evidence() {
    if no_lab() {
        return;
    }
    for (evidence, how) in [("acknowledged", "no acknowledgment"), ("answered", "no answer")] {
        let arm = struck(&["--mechanism", "heartbeat", "--evidence", evidence, CUT[0], CUT[1]]);
        all_known(&arm, 20, how);
        bounded(&arm, 2.0);
        // The kernel still sends again: until it gives up it has nothing to tell.
        assert_eq!(deaths(&arm).read_said, by("EAGAIN", 20), "{evidence}");
    }
}

#[test]
fn a_write_is_told_of_a_cut_once_the_user_timeout_is_over() {
    if no_lab() {
        return;
    }
    let arm = struck(&["--mechanism", "write", "--user-timeout", "1s", CUT[0], CUT[1]]);
    all_known(&arm, 20, "ETIMEDOUT");
}

#[test]
fn a_write_is_told_of_a_cut_once_the_kernel_has_sent_often_enough() {
    if no_lab() {
        return;
    }
    let retries = ["--server-sysctl", "net.ipv4.tcp_retries2=2", "--watch", "6s"];
    let arm = struck(&[&["--mechanism", "write"], &CUT[..], &retries].concat());
    all_known(&arm, 20, "ETIMEDOUT");
    // Two retries are 1.4 s (0.2 + 0.4 + 0.8). On a free CPU it takes 3.2 s: sent at 0, 0.2, 0.4, 0.8, 1.6 s;
    // at 3.2 s those 1.4 s have passed since 0.4 s.
    let least_s = arm.histograms["detection_us"].min.unwrap() / 1e6;
    assert!(least_s >= 1.4, "{least_s} s");
}

#[test]
fn who_only_reads_never_learns_of_a_cut() {
    if no_lab() {
        return;
    }
    let arm = struck(&["--mechanism", "none", "--watch", "3s", CUT[0], CUT[1]]);
    let deaths = deaths(&arm);
    assert_eq!((deaths.dead, deaths.known, deaths.bound_s), (20, 0, None));
    assert!(deaths.known_by.is_empty() && deaths.read_said.is_empty(), "{deaths:?}");
    assert_eq!(deaths.traffic.unwrap().packets, 0);
    nobody_else(&arm, 20);
}

#[test]
fn a_client_that_checks_knows_of_a_cut_as_a_server_does() {
    if no_lab() {
        return;
    }
    for (mechanism, how) in [("tcp", "ETIMEDOUT"), ("heartbeat", "no acknowledgment")] {
        let options = ["--mechanism", mechanism, "--side", "client", "--probes", "1"];
        // What has no effect on a heartbeat is not said.
        let options = if mechanism == "tcp" { &options[..] } else { &options[..4] };
        let arm = struck(&[options, &CUT[..]].concat());
        all_known(&arm, 20, how);
    }
}

#[test]
fn the_kernel_of_a_stopped_process_answers_for_it() {
    if no_lab() {
        return;
    }
    let frozen = ["--fault", "freeze", "--watch", "3s"];
    for mechanism in ["tcp", "heartbeat"] {
        let arm = struck(&[&["--mechanism", mechanism], &frozen[..]].concat());
        let deaths = deaths(&arm);
        assert_eq!((deaths.dead, deaths.known, deaths.bound_s), (20, 0, None), "{mechanism}");
        nobody_else(&arm, 20);
    }
}

#[test]
fn an_answer_of_the_program_is_missed_when_it_is_stopped() {
    if no_lab() {
        return;
    }
    let arm = struck(&["--mechanism", "heartbeat", "--evidence", "answered", "--fault", "freeze"]);
    all_known(&arm, 20, "no answer");
    bounded(&arm, 2.0);
}

#[test]
fn a_reset_and_a_close_tell_of_themselves_whatever_checks() {
    if no_lab() {
        return;
    }
    for (fault, how) in [("reset", "ECONNRESET"), ("close", "read returned 0")] {
        // None of them waits for a check, so the checks need no time to spread out.
        let args = ["--mechanism", "none,tcp,heartbeat,lazy,write", "--fault", fault];
        let short = ["--warmup", "100ms", "--duration", "200ms"];
        let summary = keepalive(&[&args[..], &short].concat());
        assert_eq!(summary.arms.len(), 5);
        for arm in &summary.arms {
            if told(arm).checking.mechanism.name() == "lazy" {
                // Those that arrive may find room before all have been heard of.
                let of_lazy = deaths(arm);
                assert_eq!((of_lazy.known, of_lazy.known_by.clone()), (20, by(how, 20)), "{fault}");
                assert_eq!(of_lazy.wrongly_closed, 0, "{fault}");
                continue;
            }
            // By the fault itself, and in time: not by a check, of which `none` has none.
            all_known(arm, 20, how);
        }
    }
}

/// Lazy reaping after a cut: arrivals make room.
fn reaped(more: &[&str]) -> Arm {
    let args = ["--mechanism", "lazy", "--answer-within", "500ms", "--watch", "5s"];
    struck(&[&args[..], &CUT[..], more].concat())
}

/// All dead ones make room, nobody else does, and who arrived came in.
fn all_reaped(arm: &Arm) {
    let deaths = deaths(arm);
    assert_eq!((deaths.dead, deaths.known), (20, 20), "{}: {deaths:?}", arm.name);
    assert_eq!(deaths.known_by, by("no acknowledgment", 20), "{}", arm.name);
    assert_eq!((deaths.wrongly_closed, deaths.late, deaths.bound_s), (0, 0, None), "{}", arm.name);
    assert_eq!(deaths.read_said, by("EAGAIN", 20), "{}", arm.name);
    assert!(!arm.errors.contains_key("closed-alive"), "{}: {:?}", arm.name, arm.errors);
    let arrived = &arm.histograms["arrival_us"];
    assert!(deaths.arrivals > 0 && arrived.count > 0, "{}: {arrived:?}", arm.name);
    // The first found no room: tests had to be waited for.
    assert!(arrived.max.unwrap() >= 500e3, "{}: {arrived:?}", arm.name);
}

#[test]
fn those_that_arrive_have_the_dead_reaped_and_nobody_else() {
    if no_lab() {
        return;
    }
    all_reaped(&reaped(&[]));
}

#[test]
fn lazy_reaping_finds_the_dead_in_each_of_its_variants() {
    if no_lab() {
        return;
    }
    for variant in [
        &["--until", "all-tested"][..],
        &["--order", "age"],
        &["--unused-for", "100ms"],
        &["--until", "all-tested", "--order", "age", "--unused-for", "100ms", "--at-once", "200"],
    ] {
        let arm = reaped(variant);
        all_reaped(&arm);
        let words = told(&arm).checking.variant.clone().unwrap_or_default();
        let has = |option: &str, word: &str| variant.contains(&option) == words.contains(word);
        assert!(has("--until", "all are tested") && has("--order", "oldest"), "{words}");
        assert!(has("--unused-for", "idle for 0.1 s"), "{words}");
    }
}

#[test]
fn who_arrives_beyond_the_room_waits_in_the_backlog() {
    if no_lab() {
        return;
    }
    // 200 live connections, room for 200, and nobody dies: no one is let in, no one is closed.
    let summary = keepalive(&["--mechanism", "lazy", "--arrivals", "20"]);
    let arm = only(&summary);
    assert!(!arm.errors.contains_key("closed-alive"), "{:?}", arm.errors);
    assert_eq!(arm.histograms.get("arrival_us").map_or(0, |h| h.count), 0, "nobody was let in");
    let server = arm.server.as_ref().unwrap();
    // The kernel made the handshakes: they wait where nobody accepts them.
    assert!(counter(&server.counters, "TcpPassiveOpens") > 200);
    assert!(arm.attempts > 200 && arm.attempts == arm.ok, "{:?}", arm.errors);

    // With room for ten more, ten come in at once.
    let summary = keepalive(&["--mechanism", "lazy", "--arrivals", "20", "--most", "211"]);
    let arm = only(&summary);
    let arrived = &arm.histograms["arrival_us"];
    assert!(arrived.count >= 9, "{arrived:?}");
    // The quickest did not wait for a test of another connection.
    assert!(arrived.min.unwrap() < 500e3, "{arrived:?}");
}

#[test]
fn with_loss_as_many_live_connections_are_closed_as_arithmetic_says() {
    if no_lab() {
        return;
    }
    let lossy = ["--fault", "loss=5%", "--sockets", "500", "--watch", "3s"];
    let arm = struck(&[&["--mechanism", "tcp", "--probes", "1"], &lossy[..]].concat());
    let deaths = deaths(&arm);
    assert_eq!((deaths.stricken, deaths.dead, deaths.known, deaths.alive), (500, 0, 0, 500));
    // Nobody died: nothing was due, and nothing was found out.
    assert_eq!((deaths.bound_s, deaths.late), (None, 0));
    assert!(!arm.histograms.contains_key("detection_us"));
    let [least, mean, most] = deaths.expected_wrongly.unwrap();
    let wrongly = deaths.wrongly_closed as f64;
    assert!(wrongly > 0.0 && (least..=most).contains(&wrongly), "{wrongly}: {least} {mean} {most}");
    assert_eq!(arm.errors, by("closed-alive", deaths.wrongly_closed));
    assert_eq!(arm.attempts, arm.ok + deaths.wrongly_closed);
    // One of 500 in two tries: 1 - (1 - 0.05)².
    let chance = deaths.test_probability.unwrap();
    assert!((chance - 0.0975).abs() < 1e-9, "{chance}");
}

#[test]
fn three_probes_close_fewer_live_connections_than_one() {
    if no_lab() {
        return;
    }
    let lossy = ["--fault", "loss=5%", "--sockets", "500", "--watch", "3s"];
    let arm = struck(&[&["--mechanism", "tcp", "--probes", "3"], &lossy[..]].concat());
    let deaths = deaths(&arm);
    let [_, _, most] = deaths.expected_wrongly.unwrap();
    assert!(deaths.wrongly_closed as f64 <= most, "{} of {most}", deaths.wrongly_closed);
    assert!(most < 10.0, "0.0975³ a test: {most}");
}

#[test]
fn a_null_sent_more_often_than_an_answer_is_waited_for_finds_deaths_no_sooner() {
    if no_lab() {
        return;
    }
    let arm = struck(&["--mechanism", "heartbeat", "--idle", "300ms", CUT[0], CUT[1]]);
    all_known(&arm, 20, "no acknowledgment");
    // While a test runs no other begins: the last sign of life may be a second old at the next.
    bounded(&arm, 2.0);
    let deaths = deaths(&arm);
    let unlost = (deaths.tests, deaths.test_probability, deaths.expected_wrongly);
    assert_eq!(unlost, (None, None, None), "nothing was lost");
}

#[test]
fn deaths_of_one_trial_are_spread_over_the_time_that_they_may_take() {
    if no_lab() {
        return;
    }
    // Over a long path the server has the last connections later than the client.
    for (link, sockets, dead) in [("rtt=0.25ms", "500", 50), ("rtt=150ms", "200", 20)] {
        let args = ["--mechanism", "heartbeat", "--link", link, "--sockets", sockets];
        let arm = struck(&[&args[..], &CUT].concat());
        all_known(&arm, dead, "no acknowledgment");
        // Between 1 s and 2 s, as the last sign of life is old or new; all of one moment would tell
        // nothing of the others.
        let detection = &arm.histograms["detection_us"];
        let [least_s, most_s] = [detection.min, detection.max].map(|us| us.unwrap() / 1e6);
        assert!(most_s - least_s > 0.3, "{link}: {least_s} s to {most_s} s");
    }
}
