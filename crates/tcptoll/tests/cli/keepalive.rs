//! Wrong input to `keepalive` and `serve keepalive`: refused before anything is opened, by name.

use crate::refused::refused;
use crate::tcptoll;

#[test]
fn an_impossible_setting_of_keepalive_is_named_with_what_to_write() {
    for (args, names) in [
        (&["--mechanism", "probes"][..], "--mechanism probes: write one of none, tcp"),
        (&["--mechanism", "tcp,tcp"], "twice"),
        (&["--side", "left"], "--side left: write server, client or both"),
        (&["--sockets", "0"], "--sockets 0: write a number from 1"),
        (&["--sockets", "100,99999999"], "--sockets 99999999"),
        (&["--sockets", "20,000"], "--sockets 20,000: a comma separates values; write 20000"),
        (&["--duration", "0"], "--duration 0"),
        (&["--duration", "soon"], "--duration soon"),
        (&["--warmup", "some"], "--warmup some"),
        (&["--writer", "perhaps"], "--writer perhaps: write on or off"),
        (&["--rate", "0"], "--rate 0: write messages per second"),
        (&["--message", "0"], "--message 0"),
        (&["--message", "5gb"], "--message 5gb"),
        (&["--user-timeout", "soon"], "--user-timeout soon"),
        (&["--link", "moon"], "profiles: direct"),
        (&["--client-sysctl", "net.ipv4.tcp_retries2"], "write NAME=VALUE"),
        (&["--arrivals", "0"], "--arrivals 0: write connections per second"),
        (&["--fault", "explode"], "--fault explode: write cut, freeze, reset, close or loss=5%"),
        (&["--fault", "loss=200%"], "--fault loss=200%"),
        (&["--fault", "loss="], "--fault loss="),
        (&["--fault", "cut", "--fault-share", "200%"], "--fault-share 200%"),
        (
            &["--fail-if", "p99(telepathy) > 1"],
            "there is no distribution telepathy; this experiment has arrival_us, detection_us",
        ),
    ] {
        refused(&[&["keepalive"], args].concat(), names);
    }
}

#[test]
fn a_setting_that_a_mechanism_cannot_have_is_named_with_its_limit() {
    for (mechanism, args, names) in [
        ("tcp", ["--idle", "500ms"], "--idle 500ms: the kernel takes whole seconds"),
        ("tcp", ["--idle", "40000s"], "--idle 40000s: the kernel takes whole seconds"),
        ("tcp", ["--interval", "1500ms"], "--interval 1500ms: the kernel takes"),
        ("tcp", ["--probes", "0"], "--probes 0: write a number from 1 to 127"),
        ("tcp", ["--probes", "128"], "--probes 128: write a number from 1 to 127"),
        ("heartbeat", ["--idle", "0"], "--idle"),
        ("heartbeat", ["--idle", "kernel"], "--idle kernel"),
        ("heartbeat", ["--answer-within", "0"], "--answer-within"),
        ("heartbeat", ["--evidence", "some"], "write acknowledged or answered"),
        ("lazy", ["--until", "never"], "--until never: write below or all-tested"),
        ("lazy", ["--order", "name"], "--order name: write last-use or age"),
        ("lazy", ["--at-once", "0"], "--at-once 0"),
        ("lazy", ["--most", "0"], "--most 0"),
        ("lazy", ["--side", "client"], "--side client: lazy reaping"),
        ("tcp", ["--detect-within", "1s"], "--detect-within 1s: tcp needs at least 5.70 s"),
    ] {
        refused(&[&["keepalive", "--mechanism", mechanism], &args[..]].concat(), names);
    }
}

#[test]
fn two_settings_of_keepalive_that_do_not_go_together_are_named() {
    let to = ["--to", "127.0.0.1:9", "--mechanism", "tcp"];
    for (args, names) in [
        (&["--fault", "cut", "--link", "direct"][..], "add a delay, like --link rtt="),
        (&["--fault", "loss=5%", "--link", "direct"], "--fault loss=5% needs an emulated link"),
        (&["--fault-share", "5%"], "--fault-share has no effect without --fault"),
        (&["--message", "5", "--writer", "off"], "--message has no effect with --writer off"),
        (&["--rate", "5", "--writer", "off"], "--rate has no effect with --writer off"),
        (&["--null", "PING"], "it needs --to HOST:PORT"),
        (&["--sockets", "1", "--fault", "cut"], "of 0 idle connections"),
        (&["--fault", "cut", "--fault-share", "0"], "--fault-share"),
        (&["--detect-within", "30s", "--idle", "5s"], "--idle has no effect with --detect-within"),
        (&["--detect-within", "30s", "--probes", "5"], "--probes has no effect"),
    ] {
        refused(&[&["keepalive", "--mechanism", "tcp"], args].concat(), names);
    }
    for (args, names) in [
        (["--fault", "cut"], "--fault needs the lab"),
        (["--link", "metro"], "--link needs the lab"),
        (["--server-sysctl", "net.ipv4.tcp_retries2=3"], "--server-sysctl needs the lab"),
        (["--watch", "3s"], "--watch needs the lab"),
        (["--arrivals", "3"], "--arrivals needs the lab"),
    ] {
        refused(&[&["keepalive"], &to[..], &args].concat(), names);
    }
    refused(&["keepalive", "--to", "nohost", "--mechanism", "tcp"], "write HOST:PORT");
}

#[test]
fn an_impossible_setting_of_a_server_of_its_own_is_named() {
    for (args, names) in [
        (["--ports", "1"], "--ports: write two"),
        (["--ports", "1,2,3"], "--ports: write two"),
        (["--ports", "70000,0"], "--ports"),
        (["--idle", "500ms"], "--idle 500ms: the kernel takes whole seconds"),
        (["--interval", "soon"], "--interval"),
        (["--probes", "0"], "--probes"),
        (["--probes", "128"], "--probes"),
        (["--listen", "here"], "--listen"),
        // An address for documentation: of no machine.
        (["--listen", "203.0.113.9"], "203.0.113.9"),
    ] {
        refused(&[&["serve", "keepalive"], &args[..]].concat(), names);
    }
    // What can be served is said instead.
    let ran = tcptoll(&["serve"]);
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""));
    assert!(ran.stderr.contains("keepalive"), "{}", ran.stderr);
}

#[test]
fn what_a_hostile_user_types_into_keepalive_does_not_reach_the_terminal_raw() {
    const EVIL: &str = "\u{1b}[31mx\u{7}";
    for option in ["--mechanism", "--fault", "--idle", "--side", "--until", "--to", "--evidence"] {
        refused(&["keepalive", option, EVIL], "x");
    }
    refused(&["serve", "keepalive", "--idle", EVIL], "x");
}
