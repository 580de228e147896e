use serde_json::Value;

use tcptoll_core::experiment::option::Only;
use tcptoll_core::study::PlannedArm;

use super::*;
use crate::kit::settings::check_together;

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
