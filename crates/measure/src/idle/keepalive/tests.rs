//! What the settings of `keepalive` mean, and what it concludes.

use std::collections::BTreeMap;
use std::time::Duration;

use super::SPEC;
use super::findings::{conclude, dead_peer_unnoticed};
use super::settings::{Fault, KeepaliveSettings, Side, WARM_UP, WINDOW};
use crate::kit::settings::check_together;
use serde_json::Value;
use tcptoll_core::experiment::option::Only;
use tcptoll_core::finding::Finding;
use tcptoll_core::record::{Arm, Deaths, Keepalive, Metric, Summary};
use tcptoll_core::stats::HistogramSummary;
use tcptoll_core::study::{PlannedArm, Settings};
use tcptoll_core::tcp::checking::{Checking, Evidence, Mechanism, Path};
use tcptoll_core::tcp::wire::Traffic;

fn read(pairs: &[(&str, &str)]) -> Result<KeepaliveSettings, String> {
    let settings =
        pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect::<Settings>();
    KeepaliveSettings::from(&settings).map_err(|error| error.to_string())
}

fn refused(pairs: &[(&str, &str)], starts: &str, has: &str) {
    let error = read(pairs).expect_err(starts);
    assert!(error.starts_with(starts) && error.contains(has), "{error}");
}

#[test]
fn a_slip_is_refused_with_the_names_there_are() {
    refused(&[("scokets", "5")], "scokets: ", "sockets");
}

#[test]
fn nothing_said_is_a_thousand_connections_next_door_that_nobody_checks() {
    let settings = read(&[]).unwrap();
    assert_eq!((settings.sockets, settings.idle_sockets(), settings.writer), (1_000, 999, true));
    assert_eq!(settings.checking, Checking::default());
    assert_eq!((settings.side, settings.message_bytes, settings.rate), (Side::Server, 1_000, None));
    assert!(settings.lab.link.is_emulated() && settings.to.is_none());
    assert_eq!((settings.faulted(), settings.arriving()), (0, 0));
    assert_eq!((settings.watched(), settings.checking.known_within_s()), (Duration::ZERO, None));
}

#[test]
fn each_mechanism_has_its_own_settings_and_no_other_s() {
    let checking = |mechanism| read(&[("mechanism", mechanism)]).unwrap().checking;
    let tcp = checking("tcp");
    assert_eq!((tcp.idle_s, tcp.interval_s, tcp.probes), (Some(1.0), Some(1.0), Some(3)));
    assert_eq!(
        (tcp.answer_within_s, tcp.evidence, tcp.null_bytes, tcp.tick_s),
        (None, None, None, None)
    );
    let heartbeat = checking("heartbeat");
    assert_eq!((heartbeat.idle_s, heartbeat.answer_within_s), (Some(1.0), Some(1.0)));
    assert_eq!((heartbeat.interval_s, heartbeat.probes), (None, None));
    assert_eq!(heartbeat.evidence, Some(tcptoll_core::tcp::checking::Evidence::Acknowledged));
    assert_eq!((heartbeat.null_bytes, heartbeat.tick_s), (Some(4), Some(0.01)));
    let lazy = checking("lazy");
    assert_eq!((lazy.idle_s, lazy.interval_s, lazy.answer_within_s), (None, None, Some(1.0)));
    let write = checking("write");
    assert_eq!((write.idle_s, write.interval_s, write.evidence), (None, Some(1.0), None));
}

#[test]
fn what_is_left_to_the_kernel_is_absent_until_the_host_is_asked() {
    let left = ["idle", "interval", "probes"].map(|key| (key, "kernel"));
    let settings = read(&[&[("mechanism", "tcp")], &left[..]].concat()).unwrap();
    let checking = &settings.checking;
    assert_eq!((checking.idle_s, checking.interval_s, checking.probes), (None, None, None));
    // A check in two hours is not waited for.
    assert_eq!((settings.warmup, settings.duration), (WARM_UP, WINDOW));
    refused(&[("mechanism", "heartbeat"), ("idle", "kernel")], "--idle kernel: ", "time");
}

#[test]
fn warm_up_and_window_last_one_round_of_checks_where_that_is_short() {
    let lasts = |mechanism: &str, idle: &str| {
        let settings = read(&[("mechanism", mechanism), ("idle", idle)]).unwrap();
        (settings.warmup, settings.duration)
    };
    // The kernel may be an eighth late.
    let period = Duration::from_millis(7_875);
    assert_eq!(lasts("tcp", "7s"), (period, period));
    assert_eq!(lasts("none", "7s"), (period, period), "as long as the arms it stands beside");
    assert_eq!(lasts("heartbeat", "20ms"), (Duration::from_millis(1_125), WINDOW), "at least");
    assert_eq!(lasts("heartbeat", "10m"), (WARM_UP, WINDOW), "none is due within the window");
    assert_eq!(read(&[("warmup", "0")]).unwrap().warmup, Duration::ZERO);
    assert_eq!(read(&[("warmup", "3s")]).unwrap().warmup, Duration::from_secs(3));
    refused(&[("warmup", "5")], "--warmup 5: ", "ms");
}

#[test]
fn a_fault_strikes_a_tenth_and_loss_strikes_all() {
    let cut = read(&[("fault", "cut"), ("sockets", "201")]).unwrap();
    assert_eq!((cut.idle_sockets(), cut.faulted()), (200, 20));
    let loss = read(&[("fault", "loss=5%"), ("sockets", "201")]).unwrap();
    assert_eq!((loss.faulted(), loss.fault), (200, Some(("loss=5%".into(), Fault::Loss(0.05)))));
    let half = read(&[("fault", "reset"), ("fault-share", "50%"), ("sockets", "201")]).unwrap();
    assert_eq!(half.faulted(), 100);
    assert_eq!(read(&[("fault", "none")]).unwrap().fault, None);
}

#[test]
fn a_death_is_watched_until_everybody_has_to_know_and_a_second_more() {
    let tcp = [("mechanism", "tcp"), ("fault", "cut"), ("idle", "2s"), ("probes", "4")];
    let settings = read(&tcp).unwrap();
    // 2 s and four intervals of 1 s; an eighth of that and a jiffy late.
    assert!((settings.checking.known_within_s().unwrap() - (6.0 * 1.125 + 0.01)).abs() < 1e-9);
    assert!((settings.watched().as_secs_f64() - 7.76).abs() < 1e-6);
    let none = read(&[("mechanism", "none"), ("fault", "cut")]).unwrap();
    assert_eq!((none.checking.known_within_s(), none.watched()), (None, Duration::from_secs(5)));
    let said = read(&[&tcp[..], &[("watch", "1s")]].concat()).unwrap();
    assert_eq!(said.watched(), Duration::from_secs(1));
}

#[test]
fn lazy_reaping_gets_as_many_arrivals_in_two_seconds_as_die() {
    let settings = read(&[("mechanism", "lazy"), ("fault", "cut"), ("sockets", "201")]).unwrap();
    assert_eq!((settings.faulted(), settings.arrivals), (20, Some(10.0)));
    assert_eq!(settings.arriving(), 20, "as many as died");
    let said = read(&[("mechanism", "lazy"), ("arrivals", "7"), ("duration", "3s")]).unwrap();
    assert_eq!(said.arriving(), 21);
    assert_eq!(read(&[("mechanism", "lazy")]).unwrap().arrivals, None);
}

#[test]
fn the_variants_of_lazy_reaping_are_told_apart() {
    let lazy =
        |pairs: &[(&str, &str)]| read(&[&[("mechanism", "lazy")], pairs].concat()).unwrap().lazy;
    let plain = lazy(&[]);
    assert_eq!((plain.most, plain.at_once, plain.unused_for_ns), (0, 64, None));
    assert!(!plain.whole_set && !plain.by_age);
    let other = lazy(&[("until", "all-tested"), ("order", "age"), ("unused-for", "2s")]);
    assert!(other.whole_set && other.by_age);
    assert_eq!(other.unused_for_ns, Some(2_000_000_000));
    let same = lazy(&[("until", "below"), ("order", "last-use")]);
    assert!(!same.whole_set && !same.by_age);
}

#[test]
fn a_wanted_detection_time_chooses_a_setting_that_keeps_it() {
    for mechanism in ["tcp", "heartbeat"] {
        let settings = read(&[("mechanism", mechanism), ("detect-within", "30s")]).unwrap();
        let limit_s = settings.checking.known_within_s().unwrap();
        assert!(limit_s <= 30.0, "{mechanism}: {limit_s} s");
        assert!(limit_s > 25.0, "{mechanism}: {limit_s} s, dearer than need be");
    }
    let lazy = read(&[("mechanism", "lazy"), ("detect-within", "30s")]).unwrap();
    assert_eq!(lazy.checking.known_within_s(), None, "it knows of no time");
    refused(
        &[("mechanism", "tcp"), ("detect-within", "1s")],
        "--detect-within 1s: ",
        "tcp needs at least 5.70 s",
    );
}

#[test]
fn the_kernel_s_probes_take_whole_seconds() {
    let tcp = |key, typed| read(&[("mechanism", "tcp"), (key, typed)]);
    for key in ["idle", "interval"] {
        for typed in ["500ms", "1500ms", "0", "32768s"] {
            let error = tcp(key, typed).expect_err(typed);
            assert!(error.starts_with(&format!("--{key} {typed}: the kernel takes")), "{error}");
        }
        assert!(
            tcp(key, "1s").is_ok() && tcp(key, "32767s").is_ok() && tcp(key, "60000ms").is_ok()
        );
    }
    for typed in ["0", "128"] {
        assert!(tcp("probes", typed).expect_err(typed).contains("from 1 to 127"));
    }
    assert!(read(&[("mechanism", "heartbeat"), ("idle", "500ms")]).is_ok());
}

#[test]
fn a_server_of_somebody_else_s_is_checked_from_the_client_and_nobody_writes_to_it() {
    let settings = read(&[("to", "127.0.0.1:7001")]).unwrap();
    assert_eq!((settings.side, settings.writer, settings.sockets), (Side::Client, false, 1_000));
    let public = |settings: &KeepaliveSettings| settings.to.as_ref().unwrap().seems_public();
    assert!(!public(&settings));
    assert!(public(&read(&[("to", "192.0.2.1:7001")]).unwrap()));
    for option in SPEC.options.iter().filter(|option| option.only.contains(&Only::Lab)) {
        let key = option.name;
        refused(&[("to", "127.0.0.1:7001"), (key, "1")], &format!("--{key} needs the lab"), "--to");
    }
}

#[test]
fn a_null_message_of_a_protocol_that_has_one_is_as_long_as_it_is() {
    let to = [("to", "127.0.0.1:7001"), ("mechanism", "heartbeat"), ("null", r"PING\r\n")];
    let settings = read(&to).unwrap();
    assert_eq!(settings.null, b"PING\r\n");
    assert_eq!(settings.checking.null_bytes, Some(6));
    refused(&[("null", "PING")], "--null ", "--to HOST:PORT");
}

#[test]
fn a_setting_without_effect_is_an_error_that_names_the_other() {
    refused(&[("fault-share", "5%")], "--fault-share ", "--fault");
    refused(&[("writer", "off"), ("message", "5")], "--message ", "--writer off");
    refused(&[("writer", "off"), ("rate", "5")], "--rate ", "--writer off");
    refused(&[("fault", "cut"), ("link", "direct")], "--fault cut ", "--link rtt=");
    refused(&[("fault", "loss=5%"), ("link", "direct")], "--fault loss=5% ", "--link rtt=");
    refused(&[("mechanism", "lazy"), ("side", "client")], "--side client: ", "--side server");
    // A process is stopped, and a RST sent, on any link.
    for fault in ["freeze", "reset", "close"] {
        assert!(read(&[("fault", fault), ("link", "direct")]).is_ok(), "{fault}");
    }
    assert!(read(&[("mechanism", "lazy"), ("side", "both")]).is_ok());
}

#[test]
fn a_value_out_of_range_says_what_to_write() {
    refused(&[("mechanism", "probes")], "--mechanism probes: ", "heartbeat");
    refused(&[("fault", "explode")], "--fault explode: ", "freeze");
    refused(&[("fault", "loss=2")], "--fault loss=2: ", "100%");
    refused(&[("sockets", "0")], "--sockets 0: ", "from 1");
    refused(&[("duration", "0")], "--duration 0: ", "above 0");
    refused(&[("message", "0")], "--message 0: ", "from 1");
    refused(&[("message", "1025K")], "--message 1025K: ", "1M");
    assert_eq!(read(&[("message", "1M")]).unwrap().message_bytes, 1 << 20);
    refused(&[("arrivals", "-3")], "--arrivals -3: ", "above 0");
    refused(&[("arrivals", "NaN")], "--arrivals NaN: ", "above 0");
    refused(&[("side", "left")], "--side left: ", "both");
    refused(&[("sockets", "1"), ("fault", "cut")], "--fault: ", "--sockets");
    refused(&[("mechanism", "heartbeat"), ("idle", "0")], "--idle", "above 0");
}

#[test]
fn the_forecast_counts_what_is_waited_for() {
    let settings = read(&[("mechanism", "tcp"), ("duration", "10s"), ("idle", "5s")]).unwrap();
    assert!((15.0..17.0).contains(&settings.expected_s()), "{}", settings.expected_s());
    let more = read(&[("sockets", "50000"), ("duration", "10s"), ("warmup", "0")]).unwrap();
    assert!(more.expected_s() > 15.0, "{}", more.expected_s());
    let fault = read(&[("duration", "1s"), ("fault", "cut"), ("watch", "30s")]).unwrap();
    assert!(fault.expected_s() > 31.0, "{}", fault.expected_s());
    let told = read(&[("duration", "1s"), ("fault", "reset")]).unwrap();
    assert!(told.expected_s() < 5.0, "who is reset knows at once: {}", told.expected_s());
}

#[test]
fn an_option_of_a_mechanism_that_no_arm_has_is_an_error_that_names_the_mechanism() {
    let arm = |pairs: &[(&str, &str)]| PlannedArm {
        name: "an arm".to_owned(),
        factors: Settings::new(),
        settings: pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect(),
        failures_allowed: 0.01,
    };
    let told = |arms: &[PlannedArm]| check_together(&SPEC, arms).map_err(|error| error.to_string());
    let tcp = arm(&[("mechanism", "tcp"), ("most", "100")]);
    let lazy = arm(&[("mechanism", "lazy"), ("most", "100")]);
    let alone = told(std::slice::from_ref(&tcp)).unwrap_err();
    assert_eq!(alone, "--most has no effect without --mechanism lazy");
    assert_eq!(told(&[tcp, lazy]), Ok(()));
    let silent = told(&[arm(&[("side", "both")])]).unwrap_err();
    assert_eq!(
        silent,
        "--side has no effect without --mechanism tcp or heartbeat or lazy or write"
    );
    assert_eq!(told(&[arm(&[("sockets", "5")])]), Ok(()));
}

#[test]
fn what_was_wanted_chooses_the_settings_for_the_link_that_is_there() {
    let wants = |pairs: &[(&str, &str)]| {
        let wanted = [("mechanism", "tcp"), ("detect-within", "30s")];
        read(&[&wanted[..], pairs].concat()).unwrap()
    };
    let near = wants(&[]);
    assert_eq!(near.assumed, Path::ASSUMED, "no shorter a path than assumed");
    assert_eq!((near.checking.idle_s, near.checking.probes), (Some(22.0), Some(4)));
    let far = wants(&[("link", "rtt=2s")]);
    assert_eq!((far.checking.idle_s, far.checking.probes), (Some(20.0), Some(6)));
    let lossy = wants(&[("assumed-loss", "5%")]);
    assert_eq!((lossy.assumed.loss, lossy.checking.probes), (0.05, Some(6)));
    let tcp = ("mechanism", "tcp");
    let soon = [tcp, ("detect-within", "5s")];
    refused(&soon, "--detect-within 5s: tcp needs at least 5.70 s", "write a longer time");
    refused(&[tcp, ("assumed-loss", "5%")], "--assumed-loss has no effect", "--detect-within");
    for chosen in ["idle", "interval", "probes", "answer-within", "tick", "user-timeout"] {
        let pairs = [tcp, ("detect-within", "30s"), (chosen, "1s")];
        refused(&pairs, &format!("--{chosen} has no effect with --detect-within"), "leave one of");
    }
}

#[test]
fn what_cannot_be_or_has_no_effect_is_an_error() {
    let heartbeat = ("mechanism", "heartbeat");
    refused(&[("watch", "5s")], "--watch has no effect", "--fault");
    refused(&[heartbeat, ("tick", "10h")], "--tick 10h: ", "at most 1s");
    refused(&[heartbeat, ("user-timeout", "500ms")], "--user-timeout", "--answer-within");
    refused(
        &[heartbeat, ("fault", "cut"), ("side", "both")],
        "--side both has no meaning with --fault: ",
        "server or client",
    );
    let late = [heartbeat, ("link", "rtt=300ms"), ("answer-within", "100ms")];
    refused(&late, "every test would time out: ", "--answer-within");
}

#[test]
fn as_many_arrive_as_died_and_are_watched_until_all_have_room() {
    let reaped = |sockets: &str| {
        read(&[("mechanism", "lazy"), ("fault", "cut"), ("sockets", sockets)]).unwrap()
    };
    let few = reaped("1001");
    assert_eq!((few.faulted(), few.arriving(), few.arrivals), (100, 100, Some(50.0)));
    // Two rounds of 64 tests at once, a second each, after the 2 s in which they arrive.
    assert_eq!(few.watched(), Duration::from_secs(5));
    assert_eq!(reaped("20001").watched(), Duration::from_secs(35));
}

fn summary(arms: Vec<Arm>) -> Summary {
    Summary { experiment: "keepalive".into(), arms, valid: true, ..Summary::default() }
}

fn concluded(arms: Vec<Arm>) -> Summary {
    let mut summary = summary(arms);
    conclude(&mut summary);
    summary
}

fn checking(mechanism: Mechanism) -> Checking {
    let plain = Checking { mechanism, ..Checking::default() };
    match mechanism {
        Mechanism::Tcp => {
            Checking { idle_s: Some(1.0), interval_s: Some(1.0), probes: Some(3), ..plain }
        }
        Mechanism::Heartbeat => Checking {
            idle_s: Some(1.0),
            answer_within_s: Some(1.0),
            evidence: Some(Evidence::Acknowledged),
            null_bytes: Some(4),
            tick_s: Some(0.01),
            ..plain
        },
        _ => plain,
    }
}

fn metrics(values: &[(&str, f64)]) -> BTreeMap<String, Metric> {
    let metric = |value| Metric { value, unit: String::new(), ci95: None, median: None, n: 1 };
    values.iter().map(|(name, value)| ((*name).to_owned(), metric(*value))).collect()
}

fn arm(mechanism: Mechanism, packets_per_hour: f64) -> Arm {
    let checking = checking(mechanism);
    let keepalive =
        Keepalive { checking, window_s: 2.0, idle_sockets: 1_000, ..Keepalive::default() };
    Arm {
        name: format!("mechanism {mechanism}"),
        own: keepalive.into(),
        metrics: metrics(&[("checking_packets_per_hour_per_socket", packets_per_hour)]),
        ..Arm::default()
    }
}

/// 100 of 1,000 died; the last of those known was known after so many seconds.
fn dying(mechanism: Mechanism, fault: &str, known: u64, last_s: f64) -> Arm {
    let mut arm = arm(mechanism, 7_200.0);
    let checked = arm.own.keepalive.as_mut().unwrap();
    checked.deaths = Some(Deaths {
        fault: fault.into(),
        stricken: 100,
        dead: 100,
        known,
        watched_s: 5.0,
        bound_s: checked.checking.bound_s(),
        granularity_s: checked.checking.granularity_s(),
        alive: 900,
        ..Deaths::default()
    });
    if known > 0 {
        let detection = HistogramSummary {
            count: known,
            min: Some(last_s * 0.9e6),
            max: Some(last_s * 1e6),
            ..HistogramSummary::default()
        };
        arm.histograms.insert("detection_us".to_owned(), detection);
    }
    arm
}

fn deaths(arm: &mut Arm) -> &mut Deaths {
    arm.own.keepalive.as_mut().unwrap().deaths.as_mut().unwrap()
}

#[test]
fn mechanisms_that_detected_deaths_are_stated_with_time_and_cost_and_those_that_did_not() {
    let told = concluded(vec![
        dying(Mechanism::None, "cut", 0, 0.0),
        dying(Mechanism::Tcp, "cut", 100, 4.0),
    ]);
    assert_eq!(
        told.answer,
        "Kernel probes detected all 100 dead connections after 3.60 to 4.00 s (expected: within 4.51 s). With reading alone, 100 of 100 dead connections were not detected within 5.00 s: nothing is sent that could fail."
    );
}

#[test]
fn where_nothing_is_sent_the_answer_says_how_long_connections_stayed_open() {
    let idle = Arm { ok: 5, attempts: 5, ..arm(Mechanism::None, 0.0) };
    let says = "5 of 5 idle connections stayed open for 2.00 s, and nothing was sent on them: a dead peer would stay undetected.";
    assert_eq!(concluded(vec![idle]).answer, says);
}

#[test]
fn a_stopped_process_is_explained_by_its_kernel() {
    let told = concluded(vec![dying(Mechanism::Tcp, "freeze", 0, 0.0)]);
    assert!(told.answer.contains("the stopped peer's kernel answers probes"), "{}", told.answer);
    // Probes cannot be the advice then, and an acknowledgment is no evidence.
    let changes: Vec<&str> = told.advice.iter().map(|advice| advice.change.as_str()).collect();
    assert_eq!(changes.len(), 1);
    assert!(changes[0].contains("Evidence::Answered"), "{}", changes[0]);
}

#[test]
fn unnoticed_deaths_bring_the_cheapest_settings_for_half_a_minute() {
    let told = concluded(vec![dying(Mechanism::None, "cut", 0, 0.0)]);
    assert_eq!(told.causes[0].id, "dead-peer-unnoticed");
    assert_eq!(told.advice.len(), 2);
    let probes = &told.advice[0];
    assert!(
        probes.change.contains("SO_KEEPALIVE=1, TCP_KEEPIDLE=22, TCP_KEEPINTVL=1"),
        "{probes:?}"
    );
    assert!(probes.change.contains("net.ipv4.tcp_keepalive_time=22"), "{probes:?}");
    // 3600 s / 22 s, a probe and its answer each; 52 bytes a packet.
    // A test of four tries fails 1.6e-7 of the time where each try fails with 0.0199.
    assert_eq!(
        probes.cost,
        "327 packets and 17,018 bytes per hour for each idle connection; 90.9 packets/s and 37.8 kbit/s for 1,000 connections. With 1 % independent packet loss each way and a round trip of at most 200 ms, 0.0257 of 1,000 live connections are closed per hour. An interruption of 4.00 s closes connections that are just being tested, one of 26.0 s closes all."
    );
    // (22 + 4) s, an eighth and 10 ms: not before the timers of the probes.
    assert!(probes.change.contains("TCP_USER_TIMEOUT=29300 (ms) too."), "{probes:?}");
    assert!(probes.undo.contains("TCP_USER_TIMEOUT=0"), "{probes:?}");
    assert!(probes.proof.is_none());
    assert!(told.advice[1].change.contains("Timing::new(Duration::from_millis("));
    assert_eq!(told.next[0].command, "tcptoll explain dead-peer-unnoticed");
    assert_eq!(told.next[1].command, "tcptoll keepalive --detect-within 30s");
}

#[test]
fn a_wanted_detection_time_brings_settings_with_cost_and_proof() {
    let mut arm = dying(Mechanism::Tcp, "cut", 100, 4.0);
    arm.own.keepalive.as_mut().unwrap().detect_within_s = Some(5.0);
    let told = concluded(vec![arm]);
    let [advice] = told.advice.as_slice() else { panic!("{:?}", told.advice) };
    assert!(
        advice.change.starts_with(
            "To detect a dead peer within 5.00 s with kernel probes, set SO_KEEPALIVE=1"
        ),
        "{}",
        advice.change
    );
    assert!(advice.cost.contains("idle connection (measured: 7,200 packets); "), "{}", advice.cost);
    assert_eq!(
        advice.proof.as_deref(),
        Some(
            "arm mechanism tcp: all 100 dead connections detected, the last after 4.00 s (computed bound: 4.00 s, plus 510 ms for timers); 0 of 900 live connections closed"
        )
    );
}

#[test]
fn what_was_detected_late_proves_nothing() {
    let mut arm = dying(Mechanism::Tcp, "cut", 100, 9.0);
    arm.own.keepalive.as_mut().unwrap().detect_within_s = Some(5.0);
    deaths(&mut arm).late = 3;
    let mut cruel = dying(Mechanism::Tcp, "cut", 100, 4.0);
    cruel.own.keepalive.as_mut().unwrap().detect_within_s = Some(5.0);
    deaths(&mut cruel).wrongly_closed = 1;
    assert_eq!(concluded(vec![cruel]).advice[0].proof, None, "a live one was closed");
    let told = concluded(vec![arm]);
    assert_eq!(told.advice[0].proof, None);
    assert!(told.answer.contains("3 of them too late"), "{}", told.answer);
}

#[test]
fn a_wanted_detection_time_is_answered_by_its_settings_first() {
    let wanted = |mut arm: Arm| {
        arm.own.keepalive.as_mut().unwrap().detect_within_s = Some(5.0);
        concluded(vec![arm]).answer
    };
    let says = "To detect a dead peer within 5.00 s with kernel probes, set SO_KEEPALIVE=1, TCP_KEEPIDLE=1, \
                TCP_KEEPINTVL=1, TCP_KEEPCNT=3. ";
    for answer in
        [wanted(arm(Mechanism::Tcp, 7_120.0)), wanted(dying(Mechanism::Tcp, "cut", 100, 4.0))]
    {
        assert!(answer.starts_with(says), "{answer}");
    }
}

#[test]
fn false_alarms_are_stated_with_the_expected_number() {
    let mut arm = dying(Mechanism::Tcp, "loss=5%", 0, 0.0);
    let lossy = deaths(&mut arm);
    (lossy.dead, lossy.alive, lossy.wrongly_closed) = (0, 1_000, 3);
    lossy.expected_wrongly = Some([0.0, 4.25, 10.0]);
    arm.errors.insert("closed-alive".to_owned(), 3);
    assert_eq!(
        concluded(vec![arm]).answer,
        "Kernel probes closed 3 of 1,000 live connections (expected: 4.25; 0 to 10 in 99 of 100 runs)."
    );
}

#[test]
fn live_connections_that_were_closed_without_any_loss_are_stated() {
    let mut arm = arm(Mechanism::Heartbeat, 7_128.0);
    arm.errors.insert("closed-alive".to_owned(), 2);
    let told = concluded(vec![arm]);
    assert!(
        told.answer.starts_with("Heartbeats closed 2 live connections (false alarms). "),
        "{}",
        told.answer
    );
    assert!(told.valid, "it is a finding");
}

#[test]
fn without_deaths_packets_and_cpu_are_stated() {
    let cpu = |arm: Arm, us| {
        let mut arm = arm;
        arm.metrics.extend(metrics(&[("machine_cpu_us_per_s_per_1000_sockets", us)]));
        arm
    };
    let mut told = summary(vec![
        cpu(arm(Mechanism::None, 0.0), 900.0),
        cpu(arm(Mechanism::Tcp, 7_120.0), 5_100.0),
    ]);
    conclude(&mut told);
    assert_eq!(
        told.answer,
        "An idle connection costs 7,120 packets per hour with kernel probes. CPU per 1,000 idle connections (whole machine): 900 µs/s unchecked, 5.10 ms/s with kernel probes."
    );
    assert_eq!(told.next[0].command, "tcptoll keepalive --fault cut");
    assert!(told.advice.is_empty());
}

#[test]
fn probes_that_were_never_due_are_stated() {
    let mut arm = arm(Mechanism::Tcp, 0.0);
    arm.metrics.clear();
    let checked = arm.own.keepalive.as_mut().unwrap();
    checked.probes = Some(Traffic::default());
    let checking = &mut checked.checking;
    (checking.idle_s, checking.interval_s, checking.probes) = (Some(7_200.0), Some(75.0), Some(9));
    assert_eq!(
        concluded(vec![arm]).answer,
        "No probe was sent because the idle time of 7,200 s is longer than any trial."
    );
}

#[test]
fn what_a_short_window_could_not_count_is_computed() {
    let mut arm = dying(Mechanism::Tcp, "cut", 100, 4.0);
    arm.metrics.clear();
    let answer = concluded(vec![arm]).answer;
    assert!(
        answer.contains("costs 7,200 packets per hour (computed) with kernel probes"),
        "{answer}"
    );
}

#[test]
fn of_many_arms_the_fastest_and_the_slowest_are_stated() {
    let arms = (1..=6).map(|s| {
        let mut arm = dying(Mechanism::Tcp, "cut", 100, f64::from(s));
        arm.name = format!("idle {s}s");
        arm
    });
    let answer = concluded(arms.collect()).answer;
    assert!(
        answer.starts_with(
            "Of 6 arms, the fastest was idle 1s, which detected all 100 dead connections after 900 ms to 1.00 s"
        ),
        "{answer}"
    );
    assert!(answer.contains("the slowest idle 6s, after 5.40 to 6.00 s"), "{answer}");
    assert!(!answer.contains("idle 3s"), "{answer}");
}

#[test]
fn lazy_reaping_detects_deaths_when_places_are_needed_and_has_no_price() {
    let mut arm = dying(Mechanism::Lazy, "cut", 100, 2.0);
    arm.metrics = metrics(&[("checking_packets_per_hour_per_socket", 0.0)]);
    assert_eq!(
        concluded(vec![arm]).answer,
        "Lazy reaping detected all 100 dead connections after 1.80 to 2.00 s (when new connections needed places)."
    );
}

#[test]
fn a_reset_reports_itself_and_has_no_price() {
    let mut arm = dying(Mechanism::None, "reset", 100, 0.001);
    deaths(&mut arm).bound_s = None;
    assert_eq!(
        concluded(vec![arm]).answer,
        "Reading alone detected all 100 dead connections after 900 µs to 1.00 ms."
    );
}

fn cause(checking: Checking, deaths: Deaths) -> Option<Finding> {
    let keepalive = Keepalive { checking, deaths: Some(deaths), ..Keepalive::default() };
    dead_peer_unnoticed(&Arm { own: keepalive.into(), ..Arm::default() })
}

fn dead(fault: &str, known: u64) -> Deaths {
    Deaths { fault: fault.into(), dead: 100, known, watched_s: 5.0, ..Deaths::default() }
}

fn plain(mechanism: Mechanism) -> Checking {
    Checking { mechanism, ..Checking::default() }
}

#[test]
fn deaths_that_were_all_detected_are_no_cause() {
    assert_eq!(cause(plain(Mechanism::Tcp), dead("cut", 100)), None);
    assert_eq!(dead_peer_unnoticed(&Arm::default()), None);
}

#[test]
fn a_side_that_sends_nothing_detects_nothing() {
    let cause = cause(plain(Mechanism::None), dead("cut", 0)).unwrap();
    assert_eq!(
        cause.text,
        "100 of 100 dead connections were not detected within 5.00 s: nothing is sent that could fail."
    );
    assert_eq!(cause.evidence["dead"], 100);
}

#[test]
fn the_kernel_of_a_stopped_process_speaks_for_it_unless_the_program_is_asked() {
    let text = |checking| cause(checking, dead("freeze", 0)).unwrap().text;
    assert!(text(plain(Mechanism::Tcp)).contains("kernel answers probes"));
    assert!(text(plain(Mechanism::Heartbeat)).contains("kernel acknowledges heartbeats"));
    let asked = Checking { evidence: Some(Evidence::Answered), ..plain(Mechanism::Heartbeat) };
    assert!(!text(asked).contains("kernel"));
}

#[test]
fn a_bound_beyond_the_watched_time_is_stated() {
    let deaths = Deaths { bound_s: Some(925.4), ..dead("cut", 0) };
    let text = cause(plain(Mechanism::Write), deaths).unwrap().text;
    assert!(text.contains("retransmits, for up to 925 s after the death"), "{text}");
}
