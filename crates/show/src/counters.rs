//! What did the kernels, the wire and the machine say? Counters, settings, link and passport as rows.

use std::collections::{BTreeMap, BTreeSet};

use tcptoll_core::sheet::{Part, Table};

use crate::number::{ABSENT, Estimate};
use crate::run::{Own, Run};
use crate::{figures, findings, number};
use tcptoll_core::record::{Arm, LinkMeasured, Metric, Passport};

/// What was counted of an arm: in a word, and as tables.
pub(crate) fn counters(arm: &Arm, own: &Own) -> (String, Vec<Part>) {
    let trouble = findings::trouble(arm, own);
    let empty = BTreeMap::new();
    let server = arm.server.as_ref().map_or(&empty, |host| &host.counters);
    let keys: BTreeSet<&String> = arm.client.counters.keys().chain(server.keys()).collect();
    let count = |host: &BTreeMap<String, i64>, key: &String| {
        host.get(key).map_or_else(|| ABSENT.to_owned(), |n| number::count(*n))
    };
    let kernel =
        keys.into_iter().map(|k| vec![k.clone(), count(&arm.client.counters, k), count(server, k)]);
    let kernel: Vec<Vec<String>> = kernel.collect();
    let counted = !arm.client.counters.is_empty() || arm.server.is_some() || arm.wire.is_some();
    // Where no segment was sent, TCP's counters have nothing to tell.
    let counted = counted && arm.client.counters.get("TcpOutSegs").is_none_or(|sent| *sent > 0);
    let summary = match (trouble.is_empty(), counted) {
        (false, _) => trouble.join("; "),
        (true, true) => "no sign of loss or of a full queue".to_owned(),
        (true, false) => "not counted".to_owned(),
    };
    let metrics = if own.lists_metrics { metrics(arm) } else { Vec::new() };
    let rows = |heads: &[&str], rows: Vec<Vec<String>>| {
        (!rows.is_empty()).then(|| Part::Table(Table::texts(heads, &[], rows)))
    };
    let pairs = notes(arm, own);
    let parts = [
        rows(&["kernel counter", "client", "server"], kernel),
        rows(&["packets", "client → server", "server → client"], wire(arm)),
        (!pairs.is_empty()).then_some(Part::Pairs { pairs }),
        rows(&["figure", "value", "of"], metrics),
    ];
    (summary, parts.into_iter().flatten().collect())
}

/// Every single figure with its interval and the number of values behind it.
fn metrics(arm: &Arm) -> Vec<Vec<String>> {
    let row = |(name, m): (&String, &Metric)| {
        let text = Estimate::new(m.value, m.ci95, &m.unit).text();
        vec![name.clone(), text, number::count(m.n)]
    };
    arm.metrics.iter().map(row).collect()
}

fn wire(arm: &Arm) -> Vec<Vec<String>> {
    let Some(wire) = &arm.wire else { return Vec::new() };
    let (out, back) = (&wire.client_to_server, &wire.server_to_client);
    let rows = [
        ("SYN", out.syn, back.syn),
        ("SYN-ACK", out.syn_ack, back.syn_ack),
        ("retransmitted", out.retransmission, back.retransmission),
        ("keep-alive probes", out.keepalive_probe, back.keepalive_probe),
        ("answers to probes", out.keepalive_ack, back.keepalive_ack),
        ("pure ACK", out.pure_ack, back.pure_ack),
        ("with data", out.data, back.data),
        ("FIN", out.fin, back.fin),
        ("RST", out.rst, back.rst),
        ("all packets", out.packets, back.packets),
        ("bytes", out.bytes, back.bytes),
    ];
    rows.map(|(kind, a, b)| vec![kind.to_owned(), number::count(a), number::count(b)]).into()
}

/// Settings, sockets and listeners of both hosts.
fn notes(arm: &Arm, own: &Own) -> Vec<[String; 2]> {
    let mut notes = (own.counted)(arm);
    notes.extend(arm.io.clone().map(|io| ["client I/O".to_owned(), io]));
    for (side, host) in [("client", Some(&arm.client)), ("server", arm.server.as_ref())] {
        let Some(host) = host else { continue };
        notes.extend(host.sysctls.iter().map(|(k, v)| [format!("{side} {k}"), v.clone()]));
        notes.extend(
            host.sockstat
                .iter()
                .map(|(k, v)| [format!("{side} {k} at the end"), number::count(*v)]),
        );
        for l in &host.listeners {
            let text =
                format!("peak {} of {}", l.accept_queue_peak, u64::from(l.accept_queue_limit) + 1);
            notes.push([format!("{side} accept queue of {}:{}", l.address, l.port), text]);
        }
        notes.extend(
            host.rss_peak_bytes.map(|n| [format!("{side} peak memory"), number::bytes(n as f64)]),
        );
        notes.extend(host.processes.map(|n| [format!("{side} processes"), number::count(n)]));
        notes.extend(host.memory_bytes.map(|n| {
            [format!("{side} memory, shared pages counted once"), number::bytes(n as f64)]
        }));
    }
    if let Some(softirq) = &arm.softirq {
        notes.push(["softirq, all CPUs, per operation".into(), number::time(softirq.us_per_op)]);
    }
    if let Some(wire) =
        arm.wire.as_ref().filter(|w| w.lost_on_purpose + w.queue_drops + w.tap_drops > 0)
    {
        let text = format!(
            "{} by emulated loss, {} by the queue limit, {} missed by the tap",
            wire.lost_on_purpose, wire.queue_drops, wire.tap_drops
        );
        notes.push(["packets lost".into(), text]);
    }
    if !arm.syn_retry_ladder_s.is_empty() {
        let ladder: Vec<String> =
            arm.syn_retry_ladder_s.iter().map(|s| number::plain(*s)).collect();
        notes.push([
            "this kernel retransmits a SYN after".into(),
            format!("{} s", ladder.join(", ")),
        ]);
    }
    notes
}

/// The machine; of hosts of the user's each.
pub(crate) fn passport(summary: &Run) -> Vec<[String; 2]> {
    let (client, server) = figures::machines(summary);
    let mut rows = Vec::new();
    match server {
        Some(server) => {
            for (end, passport) in [("client", client), ("server", server)] {
                let with_end = |[name, value]: [String; 2]| [format!("{end}'s {name}"), value];
                rows.extend(machine(passport).into_iter().map(with_end));
            }
        }
        None => rows.extend(machine(&summary.passport)),
    }
    let [servers, engines] = [figures::servers(summary), figures::engines(summary)];
    rows.extend(servers.into_iter().map(|version| ["server".to_owned(), version]));
    rows.extend(engines.into_iter().map(|engine| ["client I/O".to_owned(), engine]));
    rows
}

fn machine(p: &Passport) -> Vec<[String; 2]> {
    let mut rows = vec![
        ["kernel", &p.kernel].map(str::to_owned),
        ["CPU".to_owned(), format!("{} × {}", p.cpus, p.cpu)],
        ["memory".to_owned(), number::bytes(p.memory_bytes as f64)],
        ["clock", &p.clock_source].map(str::to_owned),
    ];
    rows.extend(p.governor.clone().map(|g| ["frequency governor".to_owned(), g]));
    rows.extend(p.steal.map(|s| ["CPU stolen by a hypervisor".to_owned(), number::percent(s)]));
    rows.extend(p.congestion_control.clone().map(|c| ["congestion control".to_owned(), c]));
    rows.extend(p.load_1min.map(|l| ["load average at the start".to_owned(), number::three(l)]));
    rows.extend(p.libc.clone().map(|libc| ["C library".to_owned(), libc]));
    rows.push(["user id".to_owned(), p.uid.to_string()]);
    rows
}

/// Machines in one line.
pub(crate) fn machines(run: &Run) -> String {
    let line = |p: &Passport| {
        let cpu = format!("{} × {}", p.cpus, p.cpu);
        let mut words = vec![
            p.kernel.clone(),
            cpu,
            number::bytes(p.memory_bytes as f64),
            p.clock_source.clone(),
        ];
        words.extend(p.governor.clone());
        words.join(" · ")
    };
    let (client, server) = figures::machines(run);
    [Some(client), server].into_iter().flatten().map(line).collect::<Vec<_>>().join("; ")
}

/// What was asked of the links, and what was measured. None: there are none.
pub(crate) fn links(run: &Run) -> Option<Table> {
    let heads = [
        "arm",
        "link",
        "RTT asked",
        "RTT measured",
        "rate out / back",
        "loss asked",
        "lost, 95 % interval",
        "late p99",
        "unintended drops",
    ];
    let rows = run.arms.iter().filter_map(|arm| Some(link(arm, arm.link.as_ref()?)));
    let rows: Vec<Vec<String>> = rows.collect();
    (!rows.is_empty()).then(|| Table::texts(&heads, &[0, 1], rows))
}

/// Arm, kind, asked, RTT asked and measured, rate, loss, lateness, drops.
fn link(arm: &Arm, link: &LinkMeasured) -> Vec<String> {
    let rates = [link.rate_client_to_server_bit_per_s, link.rate_server_to_client_bit_per_s];
    let rate =
        rates.map(|rate| rate.map_or_else(|| ABSENT.to_owned(), number::bit_rate)).join(" / ");
    let loss = link.loss.map_or_else(
        || ABSENT.to_owned(),
        |l| {
            let [low, high] = l.ci95.map(|share| number::three(share * 100.0));
            format!("{} of {} [{low}, {high}] %", number::count(l.lost), number::count(l.sent))
        },
    );
    let late = link.lateness_us.as_ref().and_then(|h| h.p99);
    vec![
        arm.name.clone(),
        format!("{}: {}", figures::link_kind(link.kind), link.asked.spec),
        number::time(link.asked.rtt_us),
        figures::measured_rtt(link).map_or_else(|| ABSENT.to_owned(), number::exact_time),
        rate,
        number::percent(link.asked.loss),
        loss,
        late.map_or_else(|| ABSENT.to_owned(), number::time),
        number::count(link.unwanted_drops),
    ]
}
