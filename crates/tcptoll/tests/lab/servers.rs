//! Real servers and real clients in the lab, and servers that misbehave.

use std::fs;

use tcptoll_core::record::Summary;

use crate::support::{
    Folder, Ran, TOLERANCE, checked_summary, connect, lacks, measured, no_lab, not_root,
    on_a_bare_machine, only, run, tcptoll,
};

/// Runs a shell line on the client host.
fn lab(options: &[&str], line: &str) -> Ran {
    let mut args = vec!["lab", "--quiet", "--link-tolerance", TOLERANCE];
    args.extend(options);
    args.extend(["--", "sh", "-c", line]);
    run(&mut tcptoll(&args))
}

/// A Python server that does `body` with each connection `c`, and a load of 20 on it.
fn misbehaving(body: &str) -> Summary {
    let folder = Folder::new();
    let script = folder.file("server.py");
    fs::write(
        &script,
        format!(
            "import socket, struct\n\
             s = socket.create_server(('', 7777), backlog=64)\n\
             while True:\n    c, _ = s.accept()\n    c.recv(100)\n    {body}\n    c.close()\n"
        ),
    )
    .unwrap();
    let server = format!("python3 {}", script.display());
    connect(&["--server", &server, "--send", "hello", "--count", "20"])
}

#[test]
fn a_server_that_closes_without_a_word_is_truncated_and_never_ok() {
    if lacks(&["python3"]) {
        return;
    }
    let summary = misbehaving("pass");
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (20, 0));
    assert_eq!(arm.errors["truncated"], 20, "{:?}", arm.errors);
    assert_eq!(arm.histograms["connect_of_failed_us"].count, 20);
    let of_success = ["connect_us", "first_byte_us"];
    assert!(of_success.iter().all(|name| !arm.histograms.contains_key(*name)));
}

#[test]
fn a_server_that_resets_is_of_class_reset_and_never_ok() {
    if lacks(&["python3"]) {
        return;
    }
    let linger = "c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))";
    let summary = misbehaving(linger);
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (20, 0));
    assert_eq!(arm.errors["reset"], 20, "{:?}", arm.errors);
}

#[test]
fn a_server_that_ends_before_it_listens_is_said_with_its_command() {
    if no_lab() {
        return;
    }
    for args in [
        vec!["connect", "--quiet", "--out", "/dev/null", "--server", "exit 4"],
        vec!["lab", "--quiet", "--server", "exit 4", "--", "true"],
    ] {
        let ran = run(&mut tcptoll(&args));
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{}", ran.stderr);
        assert!(ran.stderr.contains("--server exit 4: it ended before it listened"));
    }
}

#[test]
fn the_lab_command_ends_with_the_status_of_the_command() {
    if no_lab() {
        return;
    }
    for (line, status) in [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137)] {
        let ran = lab(&[], line);
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(status), ""), "{line}");
    }
    let ran = run(&mut tcptoll(&["lab", "--quiet", "--", "/nonexistent/command", "x"]));
    assert_eq!(ran.status, Some(2));
    assert!(ran.stderr.contains("/nonexistent/command"), "{}", ran.stderr);
}

#[test]
fn both_addresses_are_in_the_environment_and_outside_loopback() {
    if no_lab() {
        return;
    }
    let ran = lab(&[], "echo $TCPTOLL_CLIENT $TCPTOLL_SERVER");
    assert_eq!(ran.stdout, "10.77.0.1 10.77.0.2\n");
    let ran = lab(&["--ipv6"], "echo $TCPTOLL_CLIENT $TCPTOLL_SERVER");
    assert_eq!(ran.stdout, "fd77::1 fd77::2\n");
}

#[test]
fn the_first_example_of_the_help_of_lab_works_as_it_stands() {
    if lacks(&["ping"]) {
        return;
    }
    let help = run(&mut tcptoll(&["lab", "--help"])).stdout;
    let command = help.lines().find_map(|line| line.trim().strip_prefix("tcptoll lab ")).unwrap();
    let binary = env!("CARGO_BIN_EXE_tcptoll");
    let line = format!("{binary} lab --link-tolerance {TOLERANCE} {command}");
    let ran = run(std::process::Command::new("sh").args(["-c", &line]));
    assert_eq!(ran.status, Some(0), "{command}: {}", ran.stderr);
    assert!(ran.stdout.contains(" 0% packet loss"), "{command}: {}", ran.stdout);
}

#[test]
fn without_quiet_the_lab_command_says_on_stderr_what_the_link_measured() {
    if no_lab() {
        return;
    }
    let ran = run(&mut tcptoll(&["lab", "--", "echo", "hello"]));
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(0), "hello\n"));
    assert!(ran.stderr.starts_with("lab · direct · round trip "), "{}", ran.stderr);
}

#[test]
fn an_ordinary_ping_over_20_ms_takes_20_ms() {
    if lacks(&["ping"]) {
        return;
    }
    let ran = lab(&["--link", "rtt=20ms"], "LC_ALL=C ping -q -c 5 -i 0.2 $TCPTOLL_SERVER");
    assert_eq!(ran.status, Some(0), "{}", ran.stderr);
    let (_, figures) = ran.stdout.split_once("mdev = ").unwrap();
    let least: f64 = figures.split('/').next().unwrap().parse().unwrap();
    // The link's own delay is corrected for what it is late, so a packet may be a little early.
    assert!((19.0..40.0).contains(&least), "{least} ms");
}

#[test]
fn redis_answers_its_own_client_and_ours() {
    if lacks(&["redis-server", "redis-cli"]) {
        return;
    }
    let server = "redis-server --port 6379 --save '' --protected-mode no --daemonize no";
    let ran = lab(&["--server", server], "redis-cli -h $TCPTOLL_SERVER ping");
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(0), "PONG\n"), "{}", ran.stderr);

    let folder = Folder::new();
    let record = folder.path("record.jsonl");
    let options = ["connect", "--quiet", "--format", "json", "--out", &record, "--count", "50"];
    let ran = run(tcptoll(&options).args(["--server", server, "--send", "PING\\r\\n"]));
    let summary = crate::support::checked_summary(&ran.stdout);
    let arm = only(&summary);
    assert_eq!((arm.attempts, arm.ok), (50, 50), "{:?}", arm.errors);
    assert_eq!(arm.server.as_ref().unwrap().listeners[0].port, 6379);
}

#[test]
fn nginx_from_the_distribution_serves_as_the_lab_s_server_and_as_a_target() {
    if lacks(&["nginx"]) {
        return;
    }
    let folder = Folder::new();
    let root = folder.0.path().display();
    let configuration = folder.path("nginx.conf");
    fs::write(
        &configuration,
        format!(
            "daemon off; pid {root}/pid; error_log {root}/error.log; \
             events {{ worker_connections 1024; }}\n\
             http {{ access_log off; client_body_temp_path {root}/b; proxy_temp_path {root}/p;\n\
             fastcgi_temp_path {root}/f; uwsgi_temp_path {root}/u; scgi_temp_path {root}/s;\n\
             server {{ listen 8080; location / {{ return 200 hello; }} }} }}\n"
        ),
    )
    .unwrap();
    let server = format!("nginx -e {root}/error.log -c {configuration}");
    let request = "GET / HTTP/1.0\\r\\n\\r\\n";
    let summary = connect(&["--server", &server, "--send", request, "--count", "50"]);
    assert_eq!((only(&summary).attempts, only(&summary).ok), (50, 50));

    // As a target, inside a lab, so that no port of this machine is taken.
    let line = format!(
        "{} connect --quiet --format json --out /dev/null --count 50 --send '{request}' \
         --to $TCPTOLL_SERVER:8080",
        env!("CARGO_BIN_EXE_tcptoll")
    );
    let ran = lab(&["--server", &server], &line);
    let summary = crate::support::checked_summary(&ran.stdout);
    let arm = only(&summary);
    assert!(measured(&ran), "{:?}: {}", ran.status, ran.stderr);
    assert_eq!((arm.attempts, arm.ok), (50, 50), "{}", ran.stderr);
    assert!(arm.server.is_none() && summary.place.target.is_some());
}

#[test]
fn load_on_a_public_address_is_announced_before_it_begins() {
    if no_lab() {
        return;
    }
    // Inside a lab, so that nothing reaches the documentation network of RFC 5737.
    let line = format!(
        "{} connect --quiet --out /dev/null --count 2 --timeout 200ms --to 192.0.2.1:80",
        env!("CARGO_BIN_EXE_tcptoll")
    );
    let ran = lab(&[], &line);
    assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""));
    let (notice, error) = ran.stderr.split_once('\n').unwrap();
    assert!(notice.starts_with("notice: 192.0.2.1:80 is a public address: 2 connections at 20 "));
    assert!(error.starts_with("error: --to 192.0.2.1:80: none of 2 connections"), "{error}");
}

#[test]
fn where_no_server_is_installed_ours_answers_and_says_so() {
    if not_root() || lacks(&["unshare", "mount"]) {
        return;
    }
    let tail = ["--quiet", "--format", "json", "--out", "/dev/null", "--link-tolerance", TOLERANCE];
    let http = ["http", "--duration", "200ms", "--reuse", "server-close"];
    let page = ["page", "--keepalive", "off", "--loads", "1", "--resources", "5", "--work", "20ms"];
    for args in [&http[..], &page[..]] {
        let ran = on_a_bare_machine(&[&[env!("CARGO_BIN_EXE_tcptoll")][..], args, &tail].concat());
        assert!(measured(&ran), "{args:?}: {:?}: {}", ran.status, ran.stderr);
        let summary = checked_summary(&ran.stdout);
        let arm = only(&summary);
        assert!(arm.ok >= 1 && arm.errors.is_empty(), "{args:?}: {:?}", arm.errors);
        let version = arm.server.as_ref().and_then(|server| server.version.as_deref());
        assert!(version.is_some_and(|version| version.starts_with("tcptoll/")), "{version:?}");
        let own = summary.warnings.iter().find(|warning| warning.id == "own-server").unwrap();
        assert!(own.text.contains(" is not installed: apt-get install "), "{}", own.text);
    }
}

#[test]
fn a_server_that_was_asked_for_and_is_not_installed_is_refused_with_its_package() {
    if not_root() || lacks(&["unshare", "mount"]) {
        return;
    }
    let out = ["--out", "/dev/null"];
    for (args, package) in [
        (&["http", "--server", "apache"][..], "apache2-bin"),
        (&["http", "--tls", "full"], "nginx-light"),
        (&["page", "--server", "nginx"], "nginx-light"),
        (&["page", "--compress", "on"], "apache2-bin"),
        (&["visitors", "--server", "nginx"], "nginx-light; php-fpm is not installed"),
        (&["tune", "nginx"], "nginx-light; php-fpm is not installed"),
        (&["worker-pool", "--front", "php-fpm"], "php-fpm; nginx is not installed"),
    ] {
        let ran = on_a_bare_machine(&[&[env!("CARGO_BIN_EXE_tcptoll")][..], args, &out].concat());
        let advice = format!("is not installed: apt-get install {package}");
        assert!(ran.status == Some(2) && ran.stderr.contains(&advice), "{args:?}: {}", ran.stderr);
        // Before anything began, which would have been said.
        assert_eq!(ran.stderr.lines().count(), 1, "{args:?}: {}", ran.stderr);
    }
}
