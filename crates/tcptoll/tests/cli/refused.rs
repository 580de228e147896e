//! Wrong input: status 2, one sentence on stderr that names what to change, nothing on stdout.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::Path;

use tcptoll_core::record::{Header, Line, Passport, RECORD_VERSION};
use tcptoll_core::study::Study;

use crate::tcptoll;

/// Runs what must be refused, and checks what is true of every refusal.
pub(crate) fn refused<S: AsRef<std::ffi::OsStr> + std::fmt::Debug>(args: &[S], names: &str) {
    let ran = tcptoll(args);
    let error = &ran.stderr;
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{args:?}: {error}");
    assert!(error.starts_with("error: "), "{args:?}: {error}");
    assert!(error.contains(names), "{args:?} does not name {names}: {error}");
    assert!(!error.contains("panicked") && !error.contains("Backtrace"), "{error}");
    let odd = error.chars().find(|c| c.is_control() && *c != '\n');
    assert_eq!(odd, None, "{args:?}: a control character reaches the terminal: {error:?}");
    said_once(error);
}

/// No part of the chain of causes repeats another.
fn said_once(error: &str) {
    let mut seen = BTreeSet::new();
    for part in error.split([':', '\n']).map(str::trim).filter(|part| part.len() >= 12) {
        assert!(seen.insert(part), "said twice: {part:?} in {error}");
    }
}

#[test]
fn a_file_that_tcptoll_did_not_write_is_kept_by_every_option_that_writes_one() {
    let folder = tempfile::tempdir().unwrap();
    let (notes, link) = (folder.path().join("notes"), folder.path().join("link"));
    std::os::unix::fs::symlink(&notes, &link).unwrap();
    std::fs::write(&notes, "tcptoll: look at the backlog\n").unwrap();
    let http = ["http", "--server", "null"];
    for [command, option] in [
        [&http[..], &["--out"]],
        [&http, &["--html"]],
        [&http, &["--pcap"]],
        [&["doctor"], &["--html"]],
        [&["tour"], &["--html"]],
        [&["tune", "nginx"], &["--out"]],
        [&["tune", "nginx"], &["--html"]],
        [&["tune", "nginx"], &["--snippet"]],
    ] {
        for path in [&notes, &link] {
            let path = path.display().to_string();
            let args = [command, option, &[path.as_str()]].concat();
            refused(&args, "tcptoll did not write this file");
            let kept = std::fs::read_to_string(&notes).unwrap();
            assert_eq!(kept, "tcptoll: look at the backlog\n", "{args:?}");
        }
    }
}

#[test]
fn what_tcptoll_wrote_is_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("pages").display().to_string();
    for _ in 0..2 {
        assert_eq!(tcptoll(&["man", "--dir", &pages]).status, Some(0));
    }
    let page = folder.path().join("pages/tcptoll.1");
    std::fs::write(&page, "another page\n").unwrap();
    refused(&["man", "--dir", &pages], "tcptoll.1: tcptoll did not write this file");
}

#[test]
fn an_impossible_setting_of_connect_is_named_with_what_to_write() {
    for (args, names) in [
        (&["--link", "rtt=37parsecs"][..], "write a number with us, ms or s"),
        (&["--link", "speed=3"], "keys: rtt, jitter, rate"),
        (&["--link", "queue=10p"], "add a rate"),
        (&["--link", "moon"], "profiles: direct"),
        (&["--link", "loss=200%"], "from 0% to 100%"),
        (&["--link", "loss=0.1"], "write 0.1% or 10%"),
        (&["--link-tolerance", "rate=0.1"], "write 0.1% or 10%"),
        (&["--link", "metro,metro"], "metro"),
        (&["--link", ""], "--link"),
        (&["--link-tolerance", "delay=fast"], "--link-tolerance"),
        (&["--rate", "0"], "--rate 0: write connections per second"),
        (&["--rate", "fast"], "--rate fast"),
        (&["--rate", "1e99"], "at most 1000000"),
        (&["--count", "0"], "--count 0: write a number from 1"),
        (&["--count", "99999999999"], "--count 99999999999"),
        (&["--count", "10,0"], "--count 0"),
        (&["--concurrency", "0"], "--concurrency 0"),
        (&["--timeout", "soon"], "--timeout soon"),
        (&["--backlog=-1"], "--backlog -1"),
        (&["--bind", "here"], "--bind here: write an IP address"),
        (&["--distance-km=-3"], "--distance-km -3"),
        (&["--fast-open", "maybe"], "--fast-open maybe: write on or off"),
        (&["--client-sysctl", "net.core.somaxconn"], "write NAME=VALUE"),
        (&["--pause", "1s"], "--pause-every"),
        (&["--port", "80"], "--server"),
        (&["--fail-if", "nonsense"], "write FIGURE > NUMBER, like 'p99 > 5ms'"),
        (&["--count", "5,5"], "twice"),
        (&["--count", "20,000"], "--count 20,000: a comma separates values; write 20000"),
    ] {
        refused(&[&["connect"], args].concat(), names);
    }
}

#[test]
fn an_impossible_setting_of_http_is_named_with_what_to_write() {
    let url = "http://127.0.0.1:9/";
    for (args, names) in [
        (&["--reuse", "close"][..], "--reuse close"),
        (&["--reuse", "keep-alive,requests=0"], "--reuse requests=0"),
        (&["--reuse", "idle=1s", "--rate", "5"], "--reuse idle="),
        (&["--reuse", "keep-alive,keep-alive"], "twice"),
        (&["--connections", "0"], "--connections 0"),
        (&["--rate", "0"], "--rate 0: write requests per second"),
        (&["--spread", "poisson"], "--rate"),
        (&["--rate", "5", "--spread", "even"], "write constant or poisson"),
        (&["--rate", "5", "--ramp", "1s"], "--ramp 1s"),
        (&["--requests=-1"], "--requests -1"),
        (&["--duration", "soon"], "--duration soon"),
        (&["--timeout", "0"], "--timeout 0"),
        (&["--threads", "3", "--connections", "2"], "--threads 3"),
        (&["--io", "select"], "write auto, epoll or io-uring"),
        (&["--batch", "1m"], "--batch 1m"),
        (&["--tls", "yes"], "write off, full or resumed"),
        (&["--insecure"], "--insecure"),
        (&["--expect-status", "2x"], "--expect-status 2x"),
        (&["--expect-sha256", "abc"], "64 hexadecimal digits"),
        (&["--header", "none"], "--header none"),
        (&["--method", "GET POST"], "--method GET POST"),
        (&["--body", "x", "--method", "GET"], "--body x"),
        (&["--access-log", "/no/such.log"], "--access-log /no/such.log"),
        (&["--path", "here"], "--path here"),
        (&["--port", "80"], "--port 80"),
        (&["--server", "sleep 1", "--work", "5ms"], "--work 5ms"),
        (&["--keepalive", "off", "--keepalive-requests", "3"], "--keepalive-requests 3"),
        (&["--link", "moon"], "profiles: direct"),
        (
            &["--fail-if", "p99(telepathy) > 1"],
            "there is no distribution telepathy; this experiment has connect_us, first_byte_us, \
             idle_close_us, latency_us",
        ),
        (&["--fail-if", "telepathy > 1"], "there is no figure telepathy; this experiment has "),
        (&["ftp://127.0.0.1/"], "ftp://127.0.0.1/"),
        (&["http://127.0.0.1:0/"], "http://127.0.0.1:0/"),
        (&[url, "--server", "nginx"], "--server needs the lab, so it has no effect with a URL"),
        (&[url, "--work", "1ms"], "--work needs the lab, so it has no effect with a URL"),
        (&[url, "--tls", "full"], "--tls full"),
    ] {
        refused(&[&["http"], args].concat(), names);
    }
}

#[test]
fn what_this_machine_does_not_have_is_refused_before_anything_is_measured() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record.jsonl").display().to_string();
    let study = folder.path().join("study.toml");
    let text = "question = 'what?'\nexperiment = 'connect'\n[settings]\ncongestion = 'telepathy'\n";
    std::fs::write(&study, text).unwrap();
    let study = study.display().to_string();
    let refuses = "--congestion telepathy: the kernel refuses it (";
    for experiment in ["connect", "http", "keepalive"] {
        let args = [experiment, "--congestion", "telepathy", "--out", &record];
        refused(&args, refuses);
        refused(&[&args[..], &["--dry-run"]].concat(), refuses);
        let two = [experiment, "--congestion", "reno,telepathy", "--out", &record];
        refused(&two, "error: arm congestion telepathy");
        refused(&two, refuses);
    }
    refused(&["study", "check", &study], &format!("line 4: {refuses}"));
    refused(&["study", "run", &study, "--out", &record], &format!("line 4: {refuses}"));
    for (option, value) in [("--body", "@/no/such"), ("--access-log", "/no/such.log")] {
        let names = format!("{option} {value}: No such file");
        refused(&["http", option, value, "--out", &record], &names);
        refused(&["http", option, value, "--out", &record, "--dry-run"], &names);
    }
    assert!(!Path::new(&record).exists(), "a record of nothing was left");
}

#[test]
fn a_setting_of_visitors_that_cannot_be_is_named_with_what_to_write() {
    for (args, names) in [
        (&["--server", "puma"][..], "write apache, apache-worker, apache-prefork or nginx"),
        (&["--php", "worker", "--server", "nginx"], "needs --server apache-prefork"),
        (
            &["--worker-memory", "10M", "--server", "nginx"],
            "only --php worker runs PHP in a worker",
        ),
        (&["--memory", "1M"], "no server starts with less than 32M"),
        (&["--keepalive", "off", "--keepalive-timeout", "2s"], "no effect with --keepalive off"),
        (&["--peak-factor", "3", "--peak-for", "20s"], "shorter than --peak-every"),
        (&["--rate", "0"], "--rate 0"),
        (&["--rate", "1e9"], "lower --rate or --duration"),
        (&["--pages", "0.5"], "write a number from 1"),
        (&["--max-workers", "0"], "--max-workers 0"),
    ] {
        refused(&[&["visitors"], args].concat(), names);
    }
}

#[test]
fn several_servers_are_an_arm_each_on_the_command_line_and_refused_in_an_arm_of_a_study() {
    let plan = "\narms\n  127.0.0.1:9\n  127.0.0.1:10\ncompared, margin 2 %\n  \
                127.0.0.1:10 / 127.0.0.1:9, requests_per_s\n";
    for urls in [
        &["http://127.0.0.1:9/,HTTP://127.0.0.1:10/"][..],
        &["http://127.0.0.1:9/", "http://127.0.0.1:10/"],
    ] {
        let ran = tcptoll(&[&["http", "--dry-run"], urls].concat());
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{urls:?}");
        assert!(ran.stdout.contains(plan), "{urls:?}: {}", ran.stdout);
    }
    let folder = tempfile::tempdir().unwrap();
    let study = folder.path().join("study.toml");
    for (urls, names) in [
        ("http://127.0.0.1:9/,HTTP://127.0.0.1:10/", "in a study a comma does not separate URLs"),
        ("http://127.0.0.1:9/ http://127.0.0.1:10/", "need the same scheme, host and port"),
    ] {
        let text = format!("question = 'what?'\nexperiment = 'http'\n[settings]\nurl = '{urls}'\n");
        std::fs::write(&study, text).unwrap();
        let study = study.display().to_string();
        let at = format!("line 4: --url {urls}: ");
        for says in [names, "Write an arm for each server:", &at] {
            refused(&["study", "check", &study], says);
            refused(&["study", "run", &study], says);
        }
    }
}

#[test]
fn more_open_connections_than_ports_are_refused_before_anything_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let args = ["http", "--quiet", "--out", "/dev/null", "--connections", "100k", &url];
    refused(&args, "--connections 100000: the client's local ports allow ");
    refused(&args, "ip_local_port_range");
    let begun = listener.accept().unwrap_err();
    assert_eq!(begun.kind(), std::io::ErrorKind::WouldBlock, "no connection was begun");
}

#[test]
fn a_target_that_cannot_be_is_named_with_what_to_write() {
    for (args, names) in [
        (&["--to", "nohost"][..], "write HOST:PORT"),
        (&["--to", "127.0.0.1:0"], "port 0 is not from 1 to 65535"),
        (&["--to", "127.0.0.1:70000"], "port 70000 is not from 1 to 65535"),
        (&["--to", "127.0.0.1:+1"], "write HOST:PORT"),
        (&["--timeout", "0"], "write a time above 0"),
        (&["--to", "name.invalid:80"], "does not resolve"),
        (&["--to", "127.0.0.1:9", "--backlog", "4"], "--backlog needs the lab"),
        (&["--to", "127.0.0.1:9", "--link", "metro"], "--link needs the lab"),
        (&["--to", "127.0.0.1:9", "--ipv6"], "--ipv6 needs the lab"),
        (&["--to", "127.0.0.1:9", "--max-time", "0s"], "--max-time 0"),
    ] {
        refused(&[&["connect"], args].concat(), names);
    }
}

#[test]
fn a_refused_port_is_named_with_its_class_and_what_to_check() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record.jsonl");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let to = format!("127.0.0.1:{port}");
    let out = record.display().to_string();
    for class in ["connect-refused", "nothing listens there", &to] {
        refused(&["connect", "--quiet", "--count", "3", "--to", &to, "--out", &out], class);
    }
    assert!(!record.exists(), "a record of nothing was left");
}

#[test]
fn a_place_that_cannot_be_written_is_named_with_its_option() {
    for (option, path) in [
        ("--out", "/proc/no-such-folder/run.jsonl"),
        ("--out", "/proc"),
        ("--html", "/proc/no-such-folder/report.html"),
        ("--pcap", "/proc/no-such-folder/run.pcapng"),
    ] {
        refused(&["connect", "--count", "5", option, path], option);
        refused(&["connect", "--count", "5", option, path], path);
    }
}

#[test]
fn without_a_place_for_the_record_a_run_is_measured_printed_and_ends_as_not_stored() {
    // The default place is where these tests have put it: nothing can be there.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    let ran = tcptoll(&["connect", "--count", "5", &at]);
    assert_eq!(ran.status, Some(3), "{}", ran.stderr);
    assert!(ran.stdout.contains("all 5") && !ran.stdout.contains(".jsonl"), "{}", ran.stdout);
    for part in ["/proc/no-such-folder", "cannot be created: ", "--out FILE"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
}

#[test]
fn a_study_that_cannot_be_run_is_named_with_its_line_or_its_count() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let head = "question = 'what?'\nexperiment = 'connect'\n";
    let levels = (1..=20).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    let product = format!("{head}[factors]\nbacklog = [{levels}]\ncount = [{levels}]\n");
    let unknown = file("unknown.toml", &format!("{head}rouds = 3\n"));
    for (study, names) in [
        ("no-such-study".to_owned(), "it is neither a file nor a built-in study"),
        ("nowhere".to_owned(), "available: avalanche-2021, backlog, backlog-clients, "),
        (
            "http".to_owned(),
            "did you mean http-keepalive-2019, http-keepalive-jruby or http-reuse?",
        ),
        ("backlgo".to_owned(), "did you mean backlog?"),
        (unknown.clone(), "line 3"),
        (unknown, "rouds"),
        (file("product.toml", &product), "400 arms, at most 256"),
        (file("huge.toml", &format!("{head}{}", "#\n".repeat(1 << 19))), "the limit for a study"),
        ("/dev/zero".to_owned(), "the limit for a study"),
        (file("no.toml", "question = 'what?'\nexperiment = 'telepathy'\n"), "telepathy"),
        (file("key.toml", &format!("{head}[settings]\ncuont = 3\n")), "cuont"),
        (file("value.toml", &format!("{head}[settings]\nrate = -1\n")), "--rate -1"),
        (file("none.toml", &format!("{head}[factors]\ncount = []\n")), "no levels"),
        (file("statement.toml", "question = 'what'\nexperiment = 'connect'\n"), "question mark"),
        (folder.path().display().to_string(), "study "),
    ] {
        refused(&["study", "check", &study], names);
        refused(&["study", "run", &study], names);
    }
}

#[test]
fn a_record_that_cannot_be_read_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let header = serde_json::to_string(&Line::Header(Box::new(Header {
        record_version: RECORD_VERSION,
        experiment: "connect".into(),
        study: Study::default(),
        command: vec!["tcptoll".into()],
        started_at: "2026-01-01T00:00:00Z".into(),
        seed: 1,
        tcptoll_version: String::new(),
        vantage: None,
        start: None,
        link_tolerance: None,
        resolved: Vec::new(),
        passport: Passport::default(),
    })))
    .unwrap();
    let newer = header.replace(
        &format!("\"record_version\":{RECORD_VERSION}"),
        &format!("\"record_version\":{}", RECORD_VERSION + 1),
    );
    assert_ne!(newer, header);
    for (name, text, says) in [
        ("damaged", format!("{header}\nxx\n{header}\n"), "line 2 is damaged"),
        ("torn", format!("{header}\n{{\"line\":\"tri"), "stopped before its first trial ended"),
        ("newer", format!("{newer}\n"), "use a newer tcptoll"),
        ("headless", "{}\n".to_owned(), "headless"),
        ("empty", String::new(), "it is empty"),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        refused(&["report", &path.display().to_string()], says);
    }
    let missing = folder.path().join("missing").display().to_string();
    refused(&["report", &missing], &missing);
    refused(&["report", &missing], "No such file");
}

#[test]
fn a_word_that_is_no_word_of_the_command_line_is_refused() {
    refused(&["explain", "no-such-cause"], "`tcptoll explain` lists all");
    refused(&["lab"], "write it after --");
    refused(&["lab", "--link", "moon", "--", "true"], "profiles: direct");
    refused(&["lab", "--client-sysctl", "x", "--link", "rtt=x", "--", "true"], "rtt=x");
    refused(&["conect"], "connect");
    refused(&["connect", "--cuont", "3"], "--count");
    refused(&["connect", "--format", "yaml"], "json");
    refused(&["completions", "cmd"], "bash");
    refused(&["man", "--dir", "/proc/no-such-folder"], "--dir");
    refused(&["man", "keepalvie"], "did you mean keepalive?");
    refused(&["man", "study", "lits"], "did you mean list?");
    refused(&["man", "links", "all"], "links has no sub-commands");
}

#[test]
fn what_a_hostile_user_types_does_not_reach_the_terminal_raw() {
    const EVIL: &str = "\u{1b}[31mx\u{7}";
    let to = format!("{EVIL}:80");
    for args in [
        ["connect", "--link", EVIL],
        ["connect", "--rate", EVIL],
        ["connect", "--timeout", EVIL],
        ["connect", "--bind", EVIL],
        ["connect", "--fail-if", EVIL],
        ["connect", "--link-tolerance", EVIL],
        ["connect", "--client-sysctl", EVIL],
        ["connect", "--to", &to],
        ["study", "check", EVIL],
        ["explain", "--", EVIL],
        ["man", "--", EVIL],
        ["report", "--", EVIL],
    ] {
        refused(&args, "x");
    }
}

#[test]
fn without_the_right_to_write_nothing_is_created() {
    refused(&["connect", "--out", "/proc/no-such-folder/x/run.jsonl"], "/proc/no-such-folder/x");
    assert!(!Path::new("/proc/no-such-folder").exists());
}

#[test]
fn a_server_named_by_a_wrong_option_is_answered_with_the_right_way() {
    refused(&["http", "--to", "127.0.0.1:80"], "tip: name the server like this: tcptoll http URL");
    for experiment in ["accept-queue", "syn-queue", "time-wait", "worker-pool"] {
        let says = format!("tip: {experiment} measures in the lab only; ");
        refused(&[experiment, "--to", "127.0.0.1:80"], &says);
    }
    let ran = tcptoll(&["accept-queue", "--connect-timeout", "3s"]);
    assert!(!ran.stderr.contains("similar"), "{}", ran.stderr);
}

#[test]
fn no_two_options_write_one_file_and_none_writes_the_record_that_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (record, page, same) = (file("run.jsonl"), file("x.html"), file("./x.html"));
    std::fs::write(&record, "kept").unwrap();
    refused(&["report", &record, "--html", &record], "this is also the file of the record");
    refused(
        &["report", &record, "--csv", &page, "--html", &same],
        "this is also the file of --html",
    );
    refused(&["connect", "--out", &page, "--html", &same], "this is also the file of --out");
    refused(&["http", "--html", &page, "--pcap", &same], "this is also the file of --html");
    refused(&["tune", "nginx", "--out", &page, "--html", &same], "this is also the file of --out");
    assert_eq!(std::fs::read_to_string(&record).unwrap(), "kept");
    assert!(!Path::new(&page).exists());
}
