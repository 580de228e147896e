//! Whatever a machine has, findings are whole.

use proptest::prelude::*;
use tcptoll_core::units::host_port;

use super::*;

/// Of the kernel: always an address.
const ADDRESSES: [&str; 6] =
    ["0.0.0.0", "::", "127.0.0.1", "::1", "10.0.0.1", "2001:1db8:1111:2222:3333:4444:5555:6666"];

/// Of a file: anything.
fn address() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "0.0.0.0",
        "::",
        "127.0.0.1",
        "::1",
        "10.0.0.1",
        "2001:1db8:1111:2222:3333:4444:5555:6666",
        "localhost",
        "/run/x",
        "\u{1b}[31mevil\nname.example",
        "",
    ])
    .prop_map(str::to_owned)
}

prop_compose! {
    fn sourced()(value in any::<u64>(), small in 0_u64..70_000, pick in any::<bool>(), at in 0_usize..4)
        -> Option<Sourced<u64>> {
        let value = if pick { small } else { value };
        match at {
            0 => None,
            1 => default(value),
            2 => line(value, 7),
            _ => Some(Sourced { value, at: ConfigPosition { file: "/e\u{1b}\n".repeat(99), line: Some(u32::MAX) } }),
        }
    }
}

fn time() -> impl Strategy<Value = Option<Sourced<f64>>> {
    (sourced(), prop::sample::select(vec![0.0, 1.0, 60.0, 1e9, f64::NAN, f64::INFINITY, -1.0]))
        .prop_map(|(sourced, value)| sourced.map(|one| Sourced { value, at: one.at }))
}

prop_compose! {
    fn any_server()(
        program in prop::sample::select(Program::ALL.to_vec()),
        host in address(), port in 0_u16..3, backlog in sourced(), workers in sourced(),
        closes in time(), probes in time(), receive in sourced(), idle in time(),
        reuses in prop::option::of(any::<bool>()), fastcgi in any::<bool>(), name in ".{0,300}",
        target in address(),
    ) -> ServerConfig {
        let (ports, brackets) = ([80, 443, 65_535], host.contains(':'));
        let port = ports[usize::from(port)];
        let full = |host: &str| if brackets { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let listen = Listen {
            on: full(&host), backlog: backlog.clone(), section: Some(name.clone()),
            keepalive_timeout_s: closes, tcp_keepalive_s: probes, workers: workers.clone(),
            request_timeout_s: None,
            buffers: Some(Buffers { receive: receive.clone(), send: workers.clone() }),
        };
        let upstream = Upstream {
            name, servers: vec![full(&target), target], idle_connections: backlog,
            idle_timeout_s: idle, fastcgi,
            reuses: reuses.map(|value| Sourced { value, at: ConfigPosition::default() }),
            ..Upstream::default()
        };
        let idle_holds_worker = fastcgi;
        ServerConfig { workers, idle_holds_worker, upstreams: vec![upstream], ..server(program, vec![listen]) }
    }
}

prop_compose! {
    fn any_machine()(
        servers in prop::collection::vec(any_server(), 0..4),
        sockets in prop::collection::vec((0_usize..6, 0_u16..3, any::<u32>(), any::<u32>()), 0..6),
        somaxconn in any::<u32>(), ports in prop::option::of(any::<u32>()), reuse in 0_u32..3,
        rates in prop::collection::vec(prop::num::f64::ANY, 4),
        levels in prop::collection::vec(any::<u32>(), 6),
        counts in prop::collection::vec(any::<u64>(), 6),
        routed in prop::option::of(any::<bool>()),
        text in ".{0,40}",
    ) -> Machine {
        let port = |at: u16| [80, 443, 65_535][usize::from(at)];
        let listeners = sockets.into_iter().map(|(ip, at, limit, peak)| ListenerState {
            accept_queue_peak: peak, accept_queue_recent_peak: peak, accept_queue_len: peak,
            overflows_per_s: Some(rates[0].abs()),
            ..listener(ADDRESSES[ip], port(at), limit)
        });
        let mut all = machine(servers, listeners.collect());
        all.sysctls.insert("net.core.somaxconn".into(), somaxconn.to_string());
        all.sysctls.insert("net.core.rmem_max".into(), text);
        all.state.limits.somaxconn = Some(somaxconn);
        all.state.limits.local_ports = ports;
        all.state.limits.tw_reuse = Some(reuse);
        all.state.limits.tracked_max = Some(counts[0]);
        all.state.counted.tracked = Some(counts[1]);
        let longest = "2001:1db8:1111:2222:3333:4444:5555:6666";
        all.state.destinations = vec![DestinationState {
            address: longest.into(), port: 65_535, ports_in_use: levels[0], time_wait: levels[1],
            ..DestinationState::default()
        }];
        let to = host_port(longest, 65_535);
        all.openings = vec![Opening { to, ports_per_s: rates[1], time_wait_per_s: rates[2] }];
        all.tracked_per_s = Some(rates[3]);
        all.standing = vec![StandingQueue {
            on: "0.0.0.0:80".into(), shortest: levels[2], longest: levels[3], limit: levels[4], looks: levels[5],
        }];
        all.neighbours = [Some(80), None].map(|local_port| Neighbour {
            local_port, remote: host_port(longest, 65_535), connections: counts[2],
            with_keepalive: counts[3], unprotected: counts[4], unprotected_idle: counts[5],
            unprotected_idle_max_s: Some(rates[0]), probe_after_max_s: Some(rates[1]),
            waiting: counts[4], idle_max_s: None, routed,
        }).into();
        all.state.diagnoses = live::find(&all.state);
        all
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_a_machine_has_each_finding_is_whole_short_and_of_one_line(machine in any_machine()) {
        let found = diagnose(&machine);
        prop_assert!(found.is_sorted_by_key(|one| one.severity));
        for (at, one) in found.iter().enumerate() {
            prop_assert!(one.text.chars().count() <= TEXT_MAX, "{} {}", one.text, one.text.chars().count());
            prop_assert!(!one.evidence.is_empty() && !one.subject.is_empty());
            prop_assert!(ids().any(|id| id == one.id));
            let shown = serde_json::to_string(&one.evidence).unwrap() + &one.text + &one.subject;
            prop_assert!(!shown.chars().any(char::is_control) && !shown.contains("\\u001b"), "{shown}");
            let same = found[..at].iter().any(|other| (&other.id, &other.subject) == (&one.id, &one.subject));
            prop_assert!(!same, "{} of {} twice", one.id, one.subject);
            if let Some(fix) = one.fix() {
                let parts = [&fix.change, &fix.effect, &fix.cost, &fix.undo];
                prop_assert!(parts.iter().all(|part| !part.is_empty()), "{fix:?}");
                prop_assert!(!fix.commands.is_empty() && fix.commands.iter().all(|line| !line.is_empty()));
                let lines = fix.commands.iter().chain(parts).any(|line| line.chars().any(char::is_control));
                prop_assert!(!lines, "{fix:?}");
            }
        }
    }
}
