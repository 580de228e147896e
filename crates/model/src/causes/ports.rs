//! The cause that lies in the client's local ports.

use std::collections::BTreeMap;

use serde_json::Value;

use super::spec::{CauseSpec, Finding, Remedy};
use crate::record::Arm;
use crate::units::human_count;

/// The client ran out of local ports.
pub const LOCAL_PORTS_SCARCE: CauseSpec = CauseSpec {
    id: "local-ports-scarce",
    test: local_ports_scarce,
    remedy: Remedy::Setting {
        change: "Keep connections open and use them again; or widen net.ipv4.ip_local_port_range, or add source addresses (--bind).",
        cost: "A wider range may take ports that servers on this machine want to listen on.",
        undo: "net.ipv4.ip_local_port_range = 32768 60999",
    },
};

fn local_ports_scarce(arm: &Arm) -> Option<Finding> {
    let refused = arm.errors.get("local-ports").copied().filter(|&count| count > 0)?;
    // Those of this destination, where they were counted apart; the host's own are all there are in
    // the lab.
    let counted = arm.metrics.get("client_time_wait").map(|sockets| sockets.value.round() as u64);
    let of_host = || arm.client.sockstat.get("TCP_tw").copied().unwrap_or(0);
    let waiting = counted.unwrap_or_else(of_host);
    let name = if counted.is_some() { "client_time_wait" } else { "TCP_tw" };
    let mut evidence = BTreeMap::from([
        ("local-ports".to_owned(), Value::from(refused)),
        (name.to_owned(), Value::from(waiting)),
    ]);
    let mut text = format!(
        "The client ran out of local ports {} times; {} of them were in TIME-WAIT",
        human_count(refused),
        human_count(waiting)
    );
    if let Some(ports) = &arm.ports {
        evidence.insert("usable_ports".into(), ports.usable.into());
        evidence.insert("connections_at_once".into(), ports.at_once.into());
        evidence.insert("held_s".into(), ports.held_s.into());
        text += &format!(
            ". It has {} connections to give, {} from each source address",
            human_count(ports.at_once),
            human_count(ports.usable)
        );
        if let Some(per_s) = ports.sustained_per_s {
            evidence.insert("sustained_per_s".into(), per_s.into());
            text += &format!(
                ", and each closed one holds its port for {:.0} s: {per_s:.0} a second can go on for ever",
                ports.held_s
            );
        }
    }
    Some(Finding { text: text + ".", evidence })
}
