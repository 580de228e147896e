use super::*;

const DEFAULT_ROUTE: &str = "Iface\n\
    eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";

fn held(local: &str, remote: &str, timer: KeepAlive, idle_s: f64) -> Held {
    let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
    Held { local, remote, timer, idle_s: Some(idle_s) }
}

fn groups(all: &[Held]) -> Vec<Neighbour> {
    let routes = Routes::read(DEFAULT_ROUTE, "", "", "");
    let listening = [6_379].into();
    let mut neighbours = Neighbours::new(&listening, &routes, CLOUDS);
    for one in all {
        neighbours.add(one);
    }
    neighbours.finish().0
}

#[test]
fn clients_of_a_port_are_grouped_by_address_and_own_connections_by_destination() {
    let off = KeepAlive::Off;
    let all = groups(&[
        held("192.0.2.2:6379", "198.51.100.7:1000", off, 1.0),
        held("192.0.2.2:6379", "198.51.100.7:1001", off, 500.0),
        held("192.0.2.2:40000", "198.51.100.7:5432", KeepAlive::After(60.0), 9.0),
    ]);
    let [clients, own] = &all[..] else { panic!("{all:?}") };
    assert_eq!((clients.local_port, clients.remote.as_str()), (Some(6_379), "198.51.100.7"));
    assert_eq!((clients.connections, clients.unprotected, clients.unprotected_idle), (2, 2, 1));
    assert_eq!((clients.idle_max_s, clients.routed), (Some(500.0), Some(true)));
    assert_eq!((own.local_port, own.remote.as_str()), (None, "198.51.100.7:5432"));
    assert_eq!((own.with_keepalive, own.unprotected, own.probe_after_max_s), (1, 0, Some(60.0)));
}

#[test]
fn a_connection_is_unprotected_without_a_timer_or_with_a_late_one() {
    for (timer, expected) in [
        (KeepAlive::Off, 1),
        (KeepAlive::After(300.0), 0),
        (KeepAlive::After(350.9), 0),
        (KeepAlive::After(352.0), 1),
        (KeepAlive::Hidden, 0),
    ] {
        let all = groups(&[held("192.0.2.2:6379", "198.51.100.7:1000", timer, 240.0)]);
        assert_eq!(
            (all[0].unprotected, all[0].unprotected_idle),
            (expected, expected),
            "{timer:?}"
        );
    }
}

#[test]
fn groups_have_a_bound_and_those_at_risk_come_first() {
    let routes = Routes::default();
    let listening = [6_379].into();
    let mut neighbours = Neighbours::new(&listening, &routes, CLOUDS);
    for n in 0..3_000_u32 {
        let timer = if n == 900 { KeepAlive::Off } else { KeepAlive::Hidden };
        let ip = std::net::Ipv4Addr::from(0x0a00_0000 + n);
        neighbours.add(&held("10.1.0.1:6379", &format!("{ip}:1000"), timer, 1.0));
    }
    let (given, left_out) = neighbours.finish();
    assert_eq!((given.len(), left_out), (256, 3_000 - 256));
    assert_eq!((given[0].unprotected, given[0].routed), (1, None));
}
