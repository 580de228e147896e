//! Prints the figures tcptoll is accepted by, each beside its goal: `cargo xtask prove [NAME…]`.
//!
//! They depend on a quiet machine, so they are no tests. Every row is measured in the run that
//! prints it. Exit status: 0 every goal met, 1 one missed, 2 something could not be measured.

#[path = "../../tests/records/answers.rs"]
mod answers;
mod closing;
#[path = "../bench/contest/mod.rs"]
mod contest;
mod doctor;
#[path = "../../tests/lab/first_fin.rs"]
mod first_fin;
#[path = "../../tests/lab/hosts/mod.rs"]
mod hosts;
mod http;
mod http_wire;
mod keepalive;
mod links;
#[path = "../../tests/lab/machines/mod.rs"]
mod machines;
mod one_fault;
mod opening;
mod page;
mod program;
mod queues;
mod remote;
mod remote_cleanup;
mod stream;
mod studies;
mod support;
mod table;
mod truth;
mod tune;
mod watch;
mod watch_cost;
mod watch_equal;
#[path = "../../tests/lab/watch_witness.rs"]
mod watch_witness;

use std::process::ExitCode;

use table::Proofs;

/// A group of rows, by the name it is asked for.
type Group = (&'static str, fn(&mut Proofs) -> anyhow::Result<()>);

const GROUPS: &[Group] = &[
    ("rtt", links::rtt),
    ("rate", links::rate),
    ("loss", links::loss),
    ("throughput", links::throughput),
    ("links", links::links),
    ("jitter", links::jitter),
    ("stalls", opening::stalls),
    ("latency", opening::latency),
    ("long-links", opening::long_links),
    ("fifty-thousand", opening::fifty_thousand),
    ("queue", opening::queue),
    ("nobody", opening::nobody),
    ("servers", opening::servers),
    ("study", opening::study),
    ("truth", truth::truth),
    ("truth-nginx", truth::nginx),
    ("overload", truth::overload),
    ("least-latency", http_wire::least),
    ("http-cpu", http::cpu),
    ("http-exact", http_wire::exact),
    ("closing", closing::first_fins),
    ("http-memory", http::idle_memory),
    ("http-hundred-thousand", http::hundred_thousand),
    ("http-open-loop", http::open_loop),
    ("http-stall", http::stall),
    ("http-ports", http::ports),
    ("http-faults", http_wire::faults),
    ("http-study", http::study),
    ("connection-memory", closing::connections),
    ("keepalive-probes", keepalive::probes),
    ("keepalive-many", keepalive::many),
    ("keepalive-deaths", keepalive::deaths),
    ("keepalive-2003", keepalive::study),
    ("keepalive-670s", keepalive::as_long_as_published),
    ("heartbeat-library", keepalive::library),
    ("stream-iperf3", stream::iperf3),
    ("exchange-peers", stream::exchanges),
    ("stream-window", stream::windows),
    ("stream-bytes", stream::bytes),
    ("messages-small", stream::small_messages),
    ("write-write-read", stream::write_write_read),
    ("accept-queue", queues::accept),
    ("port-cliff", queues::cliff),
    ("port-fixes", queues::service),
    ("pool-stuck", queues::stuck),
    ("pool-avalanche", queues::avalanche),
    ("page-browser", page::browser),
    ("page-forecast", page::forecast),
    ("page-2016", page::study),
    ("page-loss", page::loss),
    ("page-real", page::real),
    ("visitors-held", tune::held),
    ("visitors-requests", tune::requests),
    ("tune-vps", tune::vps),
    ("tune-dedicated", tune::dedicated),
    ("tune-vps-grid", tune::vps_grid),
    ("tune-dedicated-grid", tune::dedicated_grid),
    ("tune-snippets", tune::snippets),
    ("tour", program::tour),
    ("shipped", program::cost),
    ("watch-equal", watch::equal),
    ("watch-overflow", watch::overflow),
    ("watch-cost", watch::cost),
    ("watch-day", watch::day),
    ("watch-prometheus", watch::prometheus),
    ("doctor-twelve", doctor::twelve),
    ("doctor-prove", doctor::prove),
    ("one-fault", one_fault::table),
    ("close-races", one_fault::races::races),
    ("conntrack-drops", one_fault::races::tracked),
    ("remote-ready", remote::ready),
    ("remote-kills", remote::kills),
    ("remote-cut", remote::cut),
    ("remote-bytes", remote::bytes),
    ("remote-clock", remote::offsets),
    ("remote-lab", remote::lab),
    ("remote-traffic", remote::traffic),
    ("fleet-kills", program::fleet_kills),
    ("fleet-split", program::split),
    ("fleet-workers", program::workers),
    ("fleet-frames", program::frames),
    ("kills", program::kills),
    ("honesty", studies::honesty),
    ("itself", studies::itself),
    ("power", studies::power),
    ("resume", studies::resume),
    ("stops", studies::stops),
    ("shorter", studies::shorter),
    ("clone", program::clone),
];

fn main() -> ExitCode {
    if let Some(status) = tcptoll_lab::lab::reexecuted(std::env::args_os()) {
        return ExitCode::from(u8::try_from(status).unwrap_or(1));
    }
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if let Some(ran) = contest::exchange::is_asked_for(&wanted) {
        return ran.map_or(ExitCode::from(2), |()| ExitCode::SUCCESS);
    }
    if let Some(ran) = watch::is_asked_for(&wanted) {
        return ran.map_or_else(
            |error| {
                eprintln!("error: {error:#}");
                ExitCode::from(2)
            },
            |()| ExitCode::SUCCESS,
        );
    }
    if let Some(unknown) = wanted.iter().find(|w| GROUPS.iter().all(|(name, _)| name != w)) {
        let names: Vec<&str> = GROUPS.iter().map(|(name, _)| *name).collect();
        eprintln!("error: {unknown}: there is no such figure; available: {}", names.join(", "));
        return ExitCode::from(2);
    }
    let mut table = Proofs::begin();
    let mut broken = false;
    for (name, group) in GROUPS {
        if (wanted.is_empty() || wanted.iter().any(|w| w == name))
            && let Err(error) = group(&mut table)
        {
            table.note(&format!("{name}: not measured: {error:#}"));
            broken = true;
        }
    }
    table.end();
    ExitCode::from(if broken { 2 } else { u8::from(!table.all_met()) })
}
