mod any;

use super::super::config::{
    App, Buffers, ConfigPosition, Listen, Program, ServerConfig, Sourced, Upstream,
};
use super::super::{Neighbour, Opening, StandingQueue};
use super::*;
use crate::watch::diagnoses::TEXT_MAX;
use crate::watch::{DestinationState, Limits, ListenerState, Process, Rates, Standing, State};
use tcptoll_core::finding::Severity;

const NGINX: Program = Program::Nginx;
const APACHE: Program = Program::Apache;
const REDIS: Program = Program::Redis;

#[expect(clippy::unnecessary_wraps)] // as the fields have it
fn line<T>(value: T, line: u32) -> Option<Sourced<T>> {
    Some(Sourced { value, at: ConfigPosition { file: "/etc/conf".into(), line: Some(line) } })
}

#[expect(clippy::unnecessary_wraps)] // as the fields have it
fn default<T>(value: T) -> Option<Sourced<T>> {
    Some(Sourced { value, at: ConfigPosition { file: "the default of it".into(), line: None } })
}

fn listener(address: &str, port: u16, limit: u32) -> ListenerState {
    ListenerState {
        address: address.into(),
        port,
        inode: u64::from(port),
        sockets: 1,
        accept_queue_limit: limit,
        ..ListenerState::default()
    }
}

fn server(program: Program, listens: Vec<Listen>) -> ServerConfig {
    ServerConfig { listens, ..ServerConfig::new(program, 7) }
}

fn on(address: &str, backlog: Option<Sourced<u64>>) -> Listen {
    Listen { on: address.into(), backlog, ..Listen::default() }
}

/// A machine with these servers and these sockets, as Debian sets it up.
pub(super) fn machine(servers: Vec<ServerConfig>, listeners: Vec<ListenerState>) -> Machine {
    let sysctls = [
        ("net.core.somaxconn", "4096"),
        ("net.core.rmem_max", "212992"),
        ("net.core.wmem_max", "212992"),
        ("net.ipv4.tcp_keepalive_time", "7200"),
        ("net.netfilter.nf_conntrack_tcp_timeout_established", "432000"),
        ("net.netfilter.nf_conntrack_tcp_timeout_time_wait", "120"),
    ];
    let limits = Limits {
        somaxconn: Some(4_096),
        local_ports: Some(28_232),
        tw_reuse: Some(2),
        tracked_max: Some(65_536),
        ..Limits::default()
    };
    Machine {
        state: State { listeners, limits, interval_s: 5.0, ..State::default() },
        sysctls: sysctls.map(|(name, value)| (name.into(), value.into())).into(),
        servers,
        addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        ..Machine::default()
    }
}

/// Names and subjects of what is found.
fn found(machine: &Machine) -> Vec<(String, String)> {
    diagnose(machine).into_iter().map(|one| (one.id, one.subject)).collect()
}

pub(super) fn names(machine: &Machine) -> Vec<String> {
    found(machine).into_iter().map(|(id, _)| id).collect()
}

#[test]
fn a_backlog_over_somaxconn_is_named_once_a_line_with_what_the_kernel_made_of_it() {
    let redis =
        server(REDIS, vec![on("0.0.0.0:6379", line(8_192, 3)), on("[::]:6379", line(8_192, 3))]);
    let all =
        machine(vec![redis], vec![listener("0.0.0.0", 6_379, 4_096), listener("::", 6_379, 4_096)]);
    let [one] = &diagnose(&all)[..] else { panic!("{:?}", found(&all)) };
    assert_eq!((one.id.as_str(), one.subject.as_str()), (BACKLOG_OVER_SOMAXCONN, "/etc/conf:3"));
    assert_eq!(one.text, "Redis asks for a backlog of 8,192; somaxconn 4,096 clamps it to 4,096");
    assert_eq!(one.evidence["accept_queue_limit"], 4_096);
    assert_eq!(one.evidence["listeners"].as_array().unwrap().len(), 2);
    let fix = one.fix().unwrap();
    assert_eq!(fix.commands[0], "sysctl -w net.core.somaxconn=8192");
    assert!(fix.undo.starts_with("sysctl -w net.core.somaxconn=4096"));
}

#[test]
fn a_backlog_is_compared_with_the_socket_of_its_own_address() {
    let found = |address: &str, backlog, sockets: &[(&str, u32)]| {
        let sockets = sockets.iter().map(|(address, limit)| listener(address, 80, *limit));
        names(&machine(vec![server(NGINX, vec![on(address, backlog)])], sockets.collect()))
    };
    let over = [BACKLOG_OVER_SOMAXCONN];
    let stale = [BACKLOG_NOT_IN_EFFECT];
    let none: [&str; 0] = [];
    assert_eq!(found("0.0.0.0:80", line(4_097, 1), &[("0.0.0.0", 4_096)]), over);
    assert_eq!(found("0.0.0.0:80", line(4_096, 1), &[("0.0.0.0", 4_096)]), none, "equal");
    assert_eq!(found("0.0.0.0:80", line(4_096, 1), &[("0.0.0.0", 511)]), stale);
    assert_eq!(found("0.0.0.0:80", line(511, 1), &[("0.0.0.0", 511)]), none);
    assert_eq!(found("0.0.0.0:80", line(8_192, 1), &[("0.0.0.0", 8_192)]), none, "granted before");
    assert_eq!(found("0.0.0.0:80", line(8_192, 1), &[("::", 4_096)]), none, "another socket");
    assert_eq!(found("10.0.0.1:80", line(8_192, 1), &[("0.0.0.0", 4_096)]), none);
    assert_eq!(found("[::]:80", line(8_192, 1), &[("::", 4_096), ("0.0.0.0", 511)]), over);
    assert_eq!(found("[::]:80", line(8_192, 1), &[("0.0.0.0", 4_096)]), over, "no IPv6 here");
    assert_eq!(found("localhost:80", line(8_192, 1), &[("::1", 4_096)]), over);
    assert_eq!(found("www.example:80", line(8_192, 1), &[("0.0.0.0", 4_096)]), none);
    assert_eq!(found("/run/s", line(8_192, 1), &[("0.0.0.0", 4_096)]), none);
    assert_eq!(found("0.0.0.0:80", line(8_192, 1), &[]), none, "nobody listens");
    assert_eq!(found("0.0.0.0:80", line(4_096, 1), &[("0.0.0.0", 4_096), ("0.0.0.0", 99)]), stale);
}

#[test]
fn a_default_backlog_and_one_made_of_maxconn_are_no_wish() {
    let mut all = machine(
        vec![server(NGINX, vec![on("0.0.0.0:80", default(511))])],
        vec![listener("0.0.0.0", 80, 128)],
    );
    all.sysctls.insert("net.core.somaxconn".into(), "128".into());
    assert!(names(&all).is_empty());
    all.state.listeners[0].accept_queue_peak = 65;
    assert_eq!(found(&all), [(BACKLOG_OVER_SOMAXCONN.into(), "0.0.0.0:80".into())]);
    let mut haproxy = on("0.0.0.0:80", line(20_000, 2));
    haproxy.workers = line(20_000, 2);
    let all = machine(
        vec![server(Program::Haproxy, vec![haproxy])],
        vec![listener("0.0.0.0", 80, 4_096)],
    );
    assert!(names(&all).is_empty());
}

#[test]
fn a_listener_of_another_program_or_a_file_that_was_not_read_makes_rules_silent() {
    let mut all = machine(
        vec![server(NGINX, vec![on("0.0.0.0:80", line(8_192, 1))])],
        vec![listener("0.0.0.0", 80, 4_096)],
    );
    all.state.listeners[0].process = Some(Process { pid: 9, name: "nginx".into() });
    assert_eq!(names(&all), [BACKLOG_OVER_SOMAXCONN]);
    all.state.listeners[0].process = Some(Process { pid: 9, name: "caddy".into() });
    assert!(names(&all).is_empty());
    all.state.listeners[0].process = None;
    all.servers[0].unread.push("/etc/nginx/secret.conf: permission denied".into());
    assert!(names(&all).is_empty());
    all.servers[0].unread.clear();
    all.sysctls.clear();
    all.state.limits.somaxconn = None;
    assert!(names(&all).is_empty());
}

/// A full queue as a watch names it.
fn full(limit: u32) -> State {
    let mut one = listener("0.0.0.0", 80, limit);
    one.overflows_per_s = Some(5.0);
    one.accept_queue_recent_peak = limit + 1;
    let limits = Limits { somaxconn: Some(4_096), ..Limits::default() };
    let mut state = State { listeners: vec![one], limits, ..State::default() };
    state.diagnoses = live::find(&state);
    state
}

#[test]
fn a_lasting_overload_is_not_answered_with_a_longer_queue() {
    let backlog = vec![on("0.0.0.0:80", line(50, 9))];
    let mut all = machine(vec![server(NGINX, backlog)], vec![]);
    all.state = full(50);
    let stands = Standing {
        looks: 6,
        over_s: 5.0,
        shortest: 48,
        longest: 51,
        nearly_full: 6,
        first: 51,
        last: 51,
        accepted_at_most: Some(50),
        long_looks: 6,
    };
    all.state.interval_s = 5.2;
    all.state.listeners[0].stands = Some(Box::new(stands));
    all.state.diagnoses = live::find(&all.state);
    let [one] = &diagnose(&all)[..] else { panic!("{:?}", found(&all)) };
    assert_eq!(one.evidence["program"], "nginx");
    let fix = one.fix().unwrap();
    assert!(fix.change.starts_with("Accept faster"), "{fix:?}");
    assert!(fix.commands.iter().all(|line| !line.contains("backlog")), "{fix:?}");
    // A standing queue that does not overflow; the workers are why, where they are known.
    all.state.listeners[0].overflows_per_s = Some(0.0);
    all.state.diagnoses = live::find(&all.state);
    assert_eq!(names(&all), ["accept-queue-standing"]);
    let stuck = live::find(&all.state);
    let mut php = on("0.0.0.0:80", line(50, 9));
    php.workers = line(5, 3);
    let mut all =
        machine(vec![server(Program::PhpFpm, vec![php])], vec![listener("0.0.0.0", 80, 50)]);
    all.state.diagnoses = stuck;
    let on = "0.0.0.0:80".to_owned();
    all.standing = vec![StandingQueue { on, shortest: 48, longest: 51, limit: 50, looks: 6 }];
    assert_eq!(names(&all), [WORKERS_TOO_FEW]);
}

#[test]
fn the_fix_of_a_full_queue_names_the_limit_that_is_the_smaller_and_its_line() {
    let fix = |limit, backlog| {
        let mut all = machine(vec![server(NGINX, vec![on("0.0.0.0:80", backlog)])], vec![]);
        all.state = full(limit);
        all.sysctls.insert("net.core.somaxconn".into(), "4096".into());
        let [one] = &diagnose(&all)[..] else { panic!("{:?}", found(&all)) };
        assert_eq!(one.evidence["program"], "nginx");
        one.fix().cloned().unwrap()
    };
    let own = fix(50, line(50, 9));
    assert_eq!(
        own.change,
        "Raise the backlog of listen(2) and net.core.somaxconn, and restart the server. Today the application's backlog limits the queue to 50 (somaxconn is 4096). It stands in /etc/conf:9."
    );
    assert_eq!(own.commands, ["listen 0.0.0.0:80 backlog=4096;", "systemctl restart nginx"]);
    assert!(own.cost.contains("reuseport"), "{own:?}");
    let clamped = fix(4_096, line(4_096, 9));
    assert_eq!(clamped.commands[0], "sysctl -w net.core.somaxconn=8192");
    assert!(
        clamped.change.contains("Today net.core.somaxconn limits the queue to 4096"),
        "{clamped:?}"
    );
    // Nobody knows the server: the advice is the watch's.
    let mut unknown = machine(vec![], vec![]);
    unknown.state = full(50);
    assert_eq!(diagnose(&unknown), unknown.state.diagnoses);
}

fn proxy(program: Program, upstream: Upstream) -> ServerConfig {
    ServerConfig { upstreams: vec![upstream], ..server(program, vec![]) }
}

fn reusing(target: &str, idle: Option<Sourced<f64>>) -> Upstream {
    Upstream {
        name: "app".into(),
        servers: vec![target.into()],
        idle_connections: line(16, 5),
        idle_timeout_s: idle,
        reuses: line(true, 6),
        ..Upstream::default()
    }
}

fn closing(address: &str, s: Option<Sourced<f64>>) -> Listen {
    Listen { on: address.into(), keepalive_timeout_s: s, ..Listen::default() }
}

fn race(front: ServerConfig, back: Listen, sockets: Vec<ListenerState>) -> Vec<String> {
    names(&machine(vec![front, server(APACHE, vec![back])], sockets))
}

#[test]
fn a_server_that_closes_before_its_proxy_gives_up_is_named() {
    let sockets = || vec![listener("127.0.0.1", 8_081, 511)];
    let with = |closes, idle| {
        let front = proxy(NGINX, reusing("127.0.0.1:8081", idle));
        race(front, closing("127.0.0.1:8081", closes), sockets())
    };
    let none: [&str; 0] = [];
    assert_eq!(with(default(5.0), default(60.0)), [CLOSE_RACE]);
    assert_eq!(with(line(60.0, 1), default(60.0)), [CLOSE_RACE], "equal is a race");
    assert_eq!(with(line(61.0, 1), default(60.0)), none);
    assert_eq!(with(line(0.0, 1), default(60.0)), none, "one request a connection");
    assert_eq!(with(None, default(60.0)), none);
    assert_eq!(with(default(5.0), None), none);
    let apache = Upstream { idle_connections: None, ..reusing("127.0.0.1:8081", None) };
    let back = || closing("127.0.0.1:8081", default(75.0));
    assert_eq!(race(proxy(APACHE, apache.clone()), back(), sockets()), [CLOSE_RACE], "no ttl");
    let haproxy = proxy(Program::Haproxy, apache.clone());
    assert_eq!(race(haproxy, back(), sockets()), none, "its idle time is not known");
    let never = Upstream { reuses: line(false, 1), ..apache };
    assert_eq!(race(proxy(APACHE, never), back(), sockets()), none);
    let fastcgi = Upstream { fastcgi: true, ..reusing("127.0.0.1:8081", default(60.0)) };
    assert_eq!(race(proxy(NGINX, fastcgi), back(), sockets()), none);
}

#[test]
fn an_application_server_that_closes_first_is_named_with_both_times_and_both_settings() {
    let with = |app, closes, idle_max_s| {
        let front = proxy(NGINX, reusing("127.0.0.1:8081", default(60.0)));
        let back = ServerConfig {
            pid: 8,
            ..server(Program::App(app), vec![closing("127.0.0.1:8081", closes)])
        };
        let mut all = machine(vec![front, back], vec![listener("127.0.0.1", 8_081, 511)]);
        all.neighbours =
            vec![Neighbour { local_port: Some(8_081), idle_max_s, ..Neighbour::default() }];
        diagnose(&all)
    };
    let [one] = &with(App::Gunicorn, default(2.0), None)[..] else { panic!("one") };
    assert_eq!(
        one.text,
        "gunicorn closes idle connections after 2 s; nginx reuses them for 60 s (app)"
    );
    assert_eq!(
        one.fix().unwrap().commands,
        [
            "gunicorn --keep-alive 70",
            "systemctl restart gunicorn",
            "# or in the upstream of nginx: keepalive_timeout 1s;",
            "tcptoll http --reuse idle=3s -d 15s http://127.0.0.1:8081/"
        ]
    );
    assert_eq!(one.remedies[1].commands[..2], ["keepalive_timeout 1s;", "systemctl reload nginx"]);
    assert!(with(App::Gunicorn, line(75.0, 1), None).is_empty(), "mended");
    let presumed = || {
        let file = "the default of Node.js (presumed: code can set another)".to_owned();
        Some(Sourced { value: 5.0, at: ConfigPosition { file, line: None } })
    };
    let [one] = &with(App::Node, presumed(), Some(4.0))[..] else { panic!("one") };
    assert!(one.text.starts_with("Node.js presumably closes"), "{}", one.text);
    assert_eq!(one.evidence["server_presumed"], true);
    assert!(with(App::Node, presumed(), Some(30.0)).is_empty(), "a client was idle for longer");
}

#[test]
fn a_proxys_target_is_matched_to_the_server_that_the_kernel_would_ask() {
    let with = |target: &str, back: &str, socket: &str| {
        let front = proxy(NGINX, reusing(target, default(60.0)));
        let back = closing(back, default(5.0));
        !race(front, back, vec![listener(socket, 8_081, 511)]).is_empty()
    };
    assert!(with("localhost:8081", "0.0.0.0:8081", "0.0.0.0"));
    assert!(with("localhost:8081", "[::1]:8081", "::1"));
    assert!(with("127.0.0.1:8081", "[::]:8081", "::"));
    assert!(with("10.0.0.1:8081", "0.0.0.0:8081", "0.0.0.0"), "an own address");
    assert!(with("[fd00::1]:8081", "[::]:8081", "::"));
    assert!(!with("10.0.0.2:8081", "0.0.0.0:8081", "0.0.0.0"), "another machine");
    assert!(!with("app.internal:8081", "0.0.0.0:8081", "0.0.0.0"), "a name");
    assert!(!with("127.0.0.1:8082", "0.0.0.0:8081", "0.0.0.0"), "another port");
    assert!(!with("[::1]:8081", "0.0.0.0:8081", "0.0.0.0"), "another family");
    assert!(!with("127.0.0.1:8081", "0.0.0.0:8081", "10.0.0.9"), "nobody listens there");
    // The exact address wins over the wildcard of another server.
    let front = proxy(NGINX, reusing("127.0.0.1:80", default(60.0)));
    let slow = server(NGINX, vec![closing("127.0.0.1:80", default(75.0))]);
    let fast = server(APACHE, vec![closing("0.0.0.0:80", default(5.0))]);
    let sockets = vec![listener("127.0.0.1", 80, 511), listener("0.0.0.0", 80, 511)];
    assert!(names(&machine(vec![front, fast, slow], sockets)).is_empty());
}

#[test]
fn keepalive_of_an_upstream_is_wasted_only_where_somebody_asked_for_it() {
    let with = |keeps, reuses, fastcgi| {
        let upstream = Upstream {
            idle_connections: keeps,
            reuses,
            fastcgi,
            ..reusing("10.9.9.9:80", default(60.0))
        };
        diagnose(&machine(vec![proxy(NGINX, upstream)], vec![]))
    };
    let [one] = &with(line(16, 5), default(false), false)[..] else { panic!("one") };
    assert_eq!((one.id.as_str(), one.subject.as_str()), (UPSTREAM_NOT_REUSED, "/etc/conf:5"));
    assert_eq!(one.fix().unwrap().commands[0], "proxy_http_version 1.1;");
    let [one] = &with(line(16, 5), default(false), true)[..] else { panic!("one") };
    assert_eq!(one.fix().unwrap().commands[0], "fastcgi_keep_conn on;");
    assert!(with(line(16, 5), line(true, 6), false).is_empty());
    assert!(with(line(16, 5), None, false).is_empty(), "a version that is not known");
    assert!(with(default(32), line(false, 6), false).is_empty(), "nginx 1.29.7 and newer");
    assert!(with(None, default(false), false).is_empty());
}

#[test]
fn buffers_are_compared_with_the_cap_before_the_kernel_doubles_them() {
    let with = |receive, send| {
        let buffers = Some(Buffers { receive, send });
        let one = ServerConfig { buffers: buffers.clone(), ..server(NGINX, vec![]) };
        let listens = vec![Listen { buffers, ..on("0.0.0.0:80", None) }];
        diagnose(&machine(vec![ServerConfig { listens, ..one }], vec![]))
    };
    let [one] = &with(line(212_993, 4), None)[..] else { panic!("one line, one finding") };
    assert_eq!(
        (one.id.as_str(), one.subject.as_str()),
        (BUFFERS_OVER_CAP, "/etc/conf:4 SO_RCVBUF")
    );
    assert_eq!(one.evidence["effective"], 425_984);
    assert!(with(line(212_992, 4), line(1, 4)).is_empty(), "equal, and below");
    assert_eq!(with(line(1 << 20, 4), line(1 << 20, 4)).len(), 2);
}

fn client(unprotected: u64, idle: u64, idle_max_s: f64) -> Neighbour {
    Neighbour {
        local_port: Some(6_379),
        remote: "198.51.100.7".into(),
        connections: 9,
        unprotected,
        unprotected_idle: idle,
        unprotected_idle_max_s: Some(idle_max_s),
        routed: Some(true),
        ..Neighbour::default()
    }
}

#[test]
fn idle_connections_over_a_router_are_named_only_after_they_were_idle_for_long() {
    let with =
        |neighbours: Vec<Neighbour>| diagnose(&Machine { neighbours, ..machine(vec![], vec![]) });
    let second = Neighbour { remote: "198.51.100.8".into(), ..client(2, 1, 300.0) };
    let [one] = &with(vec![client(4, 3, 412.0), second])[..] else {
        panic!("one port, one finding")
    };
    assert_eq!(
        (one.id.as_str(), one.subject.as_str()),
        (KEEPALIVE_BEYOND_NAT, "clients of port 6379")
    );
    assert_eq!((&one.evidence["unprotected_idle"], &one.evidence["peers"]), (&4.into(), &2.into()));
    assert!(with(vec![client(4, 0, 239.0)]).is_empty(), "a short pause");
    assert!(with(vec![client(0, 0, 9_999.0)]).is_empty(), "all have probes");
    for routed in [Some(false), None] {
        assert!(with(vec![Neighbour { routed, ..client(4, 4, 9_999.0) }]).is_empty());
    }
    let ssh = |local_port, remote: &str| Neighbour {
        local_port,
        remote: remote.into(),
        ..client(1, 1, 9_999.0)
    };
    assert!(with(vec![ssh(Some(22), "198.51.100.7"), ssh(None, "198.51.100.7:22")]).is_empty());
    assert_eq!(with(vec![ssh(None, "198.51.100.7:5432")])[0].subject, "198.51.100.7:5432");
}

#[test]
fn a_line_that_turns_probes_off_counts_at_once_where_the_server_keeps_idle_clients() {
    let with = |program, probe, closes| {
        let mut one = server(program, vec![closing("0.0.0.0:6379", closes)]);
        one.tcp_keepalive_s = probe;
        let neighbours = vec![client(4, 0, 2.0)];
        let all =
            Machine { neighbours, ..machine(vec![one], vec![listener("0.0.0.0", 6_379, 511)]) };
        diagnose(&all)
    };
    let [one] = &with(REDIS, line(0.0, 8), None)[..] else { panic!("one") };
    assert_eq!(one.text, "4 of 9 connections of clients of port 6379 send no probe within 350 s");
    assert_eq!(one.evidence["configured_at"], "/etc/conf:8");
    assert_eq!(one.fix().unwrap().commands[0], "tcp-keepalive 60");
    assert_eq!(with(REDIS, line(351.0, 8), None).len(), 1);
    assert!(with(REDIS, line(350.0, 8), None).is_empty());
    assert!(with(REDIS, default(0.0), None).is_empty(), "nobody wrote it down");
    assert!(with(NGINX, line(0.0, 8), default(75.0)).is_empty(), "nginx closes them before");
    assert!(with(NGINX, line(0.0, 8), None).is_empty(), "how long it keeps them is not known");
    assert_eq!(with(Program::Mariadb, line(7_200.0, 8), default(28_800.0)).len(), 1);
}

#[test]
fn the_tracking_of_this_host_is_a_limit_only_where_something_is_tracked() {
    let limit = |timeout: &str, tracked| {
        let own = [("net.netfilter.nf_conntrack_tcp_timeout_established".into(), timeout.into())];
        super::super::neighbours::forgets(&own.into(), tracked).probe_s
    };
    assert!((limit("60", Some(5)) - 60.0).abs() < 1e-9);
    for (timeout, tracked) in [("60", Some(0)), ("60", None), ("432000", Some(5)), ("x", Some(5))] {
        assert!((limit(timeout, tracked) - 350.0).abs() < 1e-9, "{timeout} {tracked:?}");
    }
}

#[test]
fn a_queue_that_is_never_empty_is_named_with_the_workers_behind_it() {
    let with = |program, shortest, looks| {
        let mut pool = on("127.0.0.1:9000", None);
        (pool.section, pool.workers) = (Some("www".into()), line(5, 3));
        let mut all =
            machine(vec![server(program, vec![pool])], vec![listener("127.0.0.1", 9_000, 511)]);
        all.standing = vec![StandingQueue {
            on: "127.0.0.1:9000".into(),
            shortest,
            longest: 40,
            limit: 511,
            looks,
        }];
        diagnose(&all)
    };
    let [one] = &with(Program::PhpFpm, 3, 6)[..] else { panic!("one") };
    assert_eq!((one.id.as_str(), one.severity), (WORKERS_TOO_FEW, Severity::Problem));
    assert_eq!(one.text, "3 to 40 clients always wait for one of 5 workers of PHP-FPM (www)");
    assert!(with(Program::PhpFpm, 1, 6).is_empty(), "one that came just now");
    assert!(with(Program::PhpFpm, 3, 2).is_empty(), "two looks");
    assert!(with(NGINX, 3, 6).is_empty(), "its workers accept many");
}

#[test]
fn workers_that_idle_connections_hold_are_not_too_few() {
    let with = |waiting, holds, keeps| {
        let listen = closing("0.0.0.0:8090", keeps);
        let apache = ServerConfig {
            workers: line(4, 3),
            idle_holds_worker: holds,
            ..server(APACHE, vec![listen])
        };
        let mut all = machine(vec![apache], vec![listener("0.0.0.0", 8_090, 8)]);
        let (shortest, longest, limit, looks) = (3, 8, 8, 6);
        all.standing =
            vec![StandingQueue { on: "0.0.0.0:8090".into(), shortest, longest, limit, looks }];
        all.neighbours =
            vec![Neighbour { local_port: Some(8_090), waiting, ..Neighbour::default() }];
        diagnose(&all)
    };
    let [one] = &with(4, true, line(15.0, 9))[..] else { panic!("one") };
    assert_eq!((one.id.as_str(), one.severity), (IDLE_HOLD_WORKERS, Severity::Problem));
    assert_eq!(
        one.text,
        "4 idle connections hold workers of Apache (4 in all) for 15 s each; 3 or more clients wait"
    );
    assert_eq!(one.fix().unwrap().commands[0], "KeepAliveTimeout 2");
    assert_eq!(one.evidence["configured_at"], "/etc/conf:9");
    let id = |found: Vec<Finding>| found[0].id.clone();
    assert_eq!(id(with(1, true, line(15.0, 9))), WORKERS_TOO_FEW, "three of four work");
    assert_eq!(id(with(4, false, line(15.0, 9))), WORKERS_TOO_FEW, "mpm_event");
    assert_eq!(id(with(4, true, line(1.0, 9))), WORKERS_TOO_FEW, "it is short already");
}

#[test]
fn the_second_limit_of_half_open_requests_is_named_without_cookies_only() {
    let with = |syncookies, half_open, drops, overflows| {
        let mut one = listener("0.0.0.0", 80, 4_096);
        one.syn_queue_len = Some(half_open);
        let mut all = machine(vec![], vec![one]);
        all.state.limits.syncookies = Some(syncookies);
        all.state.limits.max_syn_backlog = Some(128);
        all.state.rates =
            Some(Rates { drops_per_s: drops, overflows_per_s: overflows, ..Rates::default() });
        let found = diagnose(&all);
        found.first().map(|one| (one.id.clone(), one.severity, one.text.clone()))
    };
    let (id, severity, text) = with(0, 96, 20.0, 0.0).unwrap();
    assert_eq!((id.as_str(), severity), ("syn-queue-full", Severity::Problem));
    assert_eq!(
        text,
        "20.0 SYNs/s dropped: half-open requests reached three quarters of tcp_max_syn_backlog 128"
    );
    assert_eq!(with(1, 96, 20.0, 0.0), None, "cookies answer them");
    assert_eq!(with(0, 95, 20.0, 0.0), None, "the queue is shorter");
    assert_eq!(with(0, 96, 0.0, 0.0), None, "nothing was dropped");
}

/// All six servers as their packages set them up on Debian, one behind the other.
fn healthy() -> Machine {
    let http = Listen {
        tcp_keepalive_s: default(0.0),
        keepalive_timeout_s: default(75.0),
        ..on("0.0.0.0:80", default(511))
    };
    let keeping = Upstream { idle_timeout_s: line(4.0, 1), ..reusing("127.0.0.1:8080", None) };
    let nginx = ServerConfig {
        upstreams: vec![keeping, Upstream { reuses: default(false), ..Upstream::default() }],
        workers: line(768, 2),
        ..server(NGINX, vec![http])
    };
    let apache = server(APACHE, vec![closing("[::]:8080", default(5.0))]);
    let redis = ServerConfig {
        tcp_keepalive_s: line(300.0, 4),
        ..server(REDIS, vec![on("127.0.0.1:6379", line(511, 4)), on("[::1]:6379", line(511, 4))])
    };
    let haproxy = server(Program::Haproxy, vec![on("0.0.0.0:443", line(4_096, 1))]);
    let mut pool = on("/run/php/php8.2-fpm.sock", None);
    pool.workers = line(5, 5);
    let fpm = server(Program::PhpFpm, vec![pool]);
    let mariadb = ServerConfig {
        keepalive_timeout_s: default(28_800.0),
        tcp_keepalive_s: default(7_200.0),
        ..server(Program::Mariadb, vec![on("127.0.0.1:3306", default(80))])
    };
    let sockets = [
        ("0.0.0.0", 80, 511),
        ("::", 8_080, 511),
        ("127.0.0.1", 6_379, 511),
        ("::1", 6_379, 511),
        ("0.0.0.0", 443, 4_096),
        ("127.0.0.1", 3_306, 80),
        ("0.0.0.0", 22, 128),
    ];
    let sockets = sockets.map(|(address, port, limit)| listener(address, port, limit));
    let mut all = machine(vec![nginx, apache, redis, haproxy, fpm, mariadb], sockets.into());
    // An administrator's session, a browser, an application's pool on the same network.
    let neighbour = |local_port, remote: &str, routed, idle: u64| Neighbour {
        local_port,
        remote: remote.into(),
        connections: 4,
        unprotected: 4,
        unprotected_idle: idle,
        unprotected_idle_max_s: Some(60.0),
        routed: Some(routed),
        ..Neighbour::default()
    };
    all.neighbours = vec![
        neighbour(Some(22), "198.51.100.7", true, 4),
        neighbour(Some(80), "198.51.100.7", true, 0),
        neighbour(Some(6_379), "198.51.100.9", true, 0),
        neighbour(Some(3_306), "10.0.0.7", false, 4),
        neighbour(None, "127.0.0.1:3306", false, 4),
    ];
    all.standing =
        vec![StandingQueue { on: "0.0.0.0:22".into(), shortest: 1, ..StandingQueue::default() }];
    all.openings =
        vec![Opening { to: "10.0.0.9:443".into(), ports_per_s: 90.0, time_wait_per_s: 90.0 }];
    all.tracked_per_s = Some(90.0);
    all.state.counted.tracked = Some(9_000);
    all
}

#[test]
fn servers_as_debian_sets_them_up_give_no_finding() {
    assert_eq!(diagnose(&healthy()), []);
}
