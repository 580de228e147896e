//! What to set so that dead peers are detected in time, with cost and proof, for each mechanism.

use tcptoll_core::number;
use tcptoll_core::record::{Advice, Arm, Keepalive, Summary};
use tcptoll_core::tcp::checking;
use tcptoll_core::tcp::checking::{Checking, Evidence, Mechanism, Path, Setting, SettingPlace};

/// The cause that all of it answers.
pub(super) const UNNOTICED: &str = "dead-peer-unnoticed";

/// The detection time that is advised for where none was asked for, s.
const WANTED_S: f64 = 30.0;

/// What to set where dead peers were not detected: what the arms were set to, if a detection time
/// was asked for, else the cheapest settings for [`WANTED_S`].
pub(super) fn advise(summary: &Summary) -> Vec<Advice> {
    let asked = asked_for(summary);
    if asked.is_empty() { cheapest(summary) } else { asked }
}

/// What the arms were set to that a wanted detection time chose.
pub(super) fn asked_for(summary: &Summary) -> Vec<Advice> {
    summary.arms.iter().filter_map(of_arm).collect()
}

/// What a wanted detection time chooses, before anything is measured.
///
/// None: these settings detect nothing.
pub(crate) fn chosen(
    checking: &Checking,
    within_s: f64,
    path: Path,
    connections: u64,
) -> Option<Advice> {
    checking.bound_s()?;
    let wanted = Wanted { within_s, asked: true, path, connections };
    Some(advice(checking, wanted, None, None))
}

/// The cheapest settings for [`WANTED_S`].
fn cheapest(summary: &Summary) -> Vec<Advice> {
    let unnoticed = |arm: &&Arm| {
        summary.causes.iter().any(|cause| cause.id == UNNOTICED && cause.arm == arm.name)
    };
    let frozen = summary.arms.iter().filter(unnoticed).any(|arm| {
        let deaths = arm.own.keepalive.as_ref().and_then(|checked| checked.deaths.as_ref());
        deaths.is_some_and(|deaths| deaths.fault == "freeze")
    });
    [Mechanism::Tcp, Mechanism::Heartbeat]
        .into_iter()
        .filter_map(|mechanism| {
            let mut checking = checking::cheapest(mechanism, WANTED_S, Path::ASSUMED)?;
            if frozen {
                // Only the program's own answer shows a stopped process.
                checking.evidence = Some(Evidence::Answered);
                if mechanism == Mechanism::Tcp {
                    return None;
                }
            }
            let connections = summary.arms.iter().find_map(|arm| arm.own.keepalive.as_ref());
            let wanted = Wanted {
                within_s: WANTED_S,
                asked: false,
                path: Path::ASSUMED,
                connections: connections.map_or(1, |checked| checked.idle_sockets),
            };
            Some(advice(&checking, wanted, None, None))
        })
        .collect()
}

/// The settings of an arm that a wanted detection time chose, and what it showed.
fn of_arm(arm: &Arm) -> Option<Advice> {
    let checked = arm.own.keepalive.as_ref()?;
    let within_s = checked.detect_within_s?;
    checked.checking.bound_s()?;
    let measured =
        arm.metrics.get("checking_packets_per_hour_per_socket").map(|metric| metric.value);
    let wanted = Wanted {
        within_s,
        asked: true,
        path: checked.assumed.unwrap_or(Path::ASSUMED),
        connections: checked.idle_sockets,
    };
    Some(advice(&checked.checking, wanted, measured, proof(arm, checked)))
}

/// All dead connections detected in time, in this run.
fn proof(arm: &Arm, checked: &Keepalive) -> Option<String> {
    let deaths = checked.deaths.as_ref().filter(|deaths| deaths.dead > 0)?;
    let bound_s = deaths.bound_s?;
    if deaths.known < deaths.dead || deaths.late > 0 || deaths.wrongly_closed > 0 {
        return None;
    }
    let max = arm.histograms.get("detection_us")?.max?;
    Some(format!(
        "arm {}: all {} dead connections detected, the last after {} (computed bound: \
         {}, plus {} for timers); 0 of {} live connections closed",
        arm.name,
        number::count(deaths.dead),
        number::time(max),
        number::time(bound_s * 1e6),
        number::time(deaths.granularity_s.unwrap_or(0.0) * 1e6),
        number::count(deaths.alive)
    ))
}

/// What settings are for.
#[derive(Clone, Copy)]
struct Wanted {
    /// Dead peers are to be detected within this.
    within_s: f64,
    /// Whether the user said so.
    asked: bool,
    /// What has to be stood.
    path: Path,
    /// Number of idle connections.
    connections: u64,
}

fn advice(
    checking: &Checking,
    wanted: Wanted,
    measured: Option<f64>,
    proof: Option<String>,
) -> Advice {
    let settings = checking.settings();
    let listed = |place| {
        let of_place = settings.iter().filter(|setting| setting.place == place);
        of_place.map(written).collect::<Vec<String>>().join(", ")
    };
    let (socket, sysctl) = (listed(SettingPlace::Socket), listed(SettingPlace::Sysctl));
    let goal = format!(
        "{} detect a dead peer within {}",
        if wanted.asked { "To" } else { "For example, to" },
        number::time(wanted.within_s * 1e6)
    );
    let (change, undo) = match checking.mechanism {
        Mechanism::Tcp => (
            format!(
                "{goal} with kernel probes, set {socket} on each connection, or {sysctl} for \
                 programs that only set SO_KEEPALIVE (times in s). Probes are not sent while data \
                 is unacknowledged. If the connections also carry data, set \
                 TCP_USER_TIMEOUT={:.0} (ms) too. It then replaces TCP_KEEPCNT, and also closes \
                 peers that stop reading for that long. The sysctls apply to every program of the \
                 host that only sets SO_KEEPALIVE, and to sockets that set it after the change.",
                (checking.known_within_s().unwrap_or(wanted.within_s) * 10.0).ceil() * 100.0
            ),
            "Set SO_KEEPALIVE=0 and TCP_USER_TIMEOUT=0. Restore the previous sysctls; the defaults \
             are net.ipv4.tcp_keepalive_time=7200, net.ipv4.tcp_keepalive_intvl=75, \
             net.ipv4.tcp_keepalive_probes=9."
                .to_owned(),
        ),
        Mechanism::Heartbeat => (
            format!(
                "{goal} with heartbeats, set {}{} in tcp-heartbeat, or use the same times in your \
                 own program.",
                listed(SettingPlace::Library),
                match checking.evidence {
                    Some(Evidence::Answered) => " and Evidence::Answered",
                    _ => "",
                }
            ),
            "Use Timing::default() (45 s and 10 s), or stop the heartbeats.".to_owned(),
        ),
        _ => (
            format!(
                "{goal} by writing, {}{}{socket}.",
                listed(SettingPlace::Program),
                if socket.is_empty() { "" } else { " and set " }
            ),
            "Set TCP_USER_TIMEOUT=0. The kernel's own limit, net.ipv4.tcp_retries2, then applies."
                .to_owned(),
        ),
    };
    Advice {
        cause: UNNOTICED.to_owned(),
        change,
        cost: cost(checking, wanted, measured),
        undo,
        proof,
    }
}

/// `TCP_KEEPIDLE=20`; values of the library are written as in a program.
fn written(setting: &Setting) -> String {
    let Setting { place, name, value } = setting;
    match place {
        SettingPlace::Library => format!("{name} = {value}"),
        SettingPlace::Program => format!("{name} {value}"),
        SettingPlace::Socket | SettingPlace::Sysctl => format!("{name}={value}"),
    }
}

fn cost(checking: &Checking, wanted: Wanted, measured: Option<f64>) -> String {
    let per_hour = |count: Option<f64>| count.map(|count| number::count(count.round() as u64));
    let packets = per_hour(checking.packets_per_hour()).unwrap_or_default();
    let bytes = per_hour(checking.bytes_per_hour());
    let bytes = bytes.map_or_else(String::new, |bytes| format!(" and {bytes} bytes"));
    let ours = per_hour(measured);
    let ours = ours.map_or_else(String::new, |ours| format!(" (measured: {ours} packets)"));
    let mut text = format!("{packets} packets{bytes} per hour for each idle connection{ours}");
    let Wanted { connections, .. } = wanted;
    if let Some((packets, bytes)) = checking.packets_per_hour().zip(checking.bytes_per_hour())
        && connections > 1
    {
        let per_s = |an_hour: f64| an_hour * connections as f64 / 3_600.0;
        text += &format!(
            "; {:.1} packets/s and {} for {} connections",
            per_s(packets),
            number::bit_rate(per_s(bytes) * 8.0),
            number::count(connections)
        );
    }
    text.push('.');
    text.extend(risk(checking, wanted));
    text
}

/// What closes live connections all the same.
fn risk(checking: &Checking, wanted: Wanted) -> Option<String> {
    let Wanted { path, connections, .. } = wanted;
    let (period_s, bound_s) = (checking.period_s()?, checking.bound_s()?);
    let fails = checking.false_alarm(path.loss, path.rtt_s)?;
    let wrongly = 3_600.0 / period_s * fails * connections as f64;
    Some(format!(
        " With {} independent packet loss each way and a round trip of at most {}, {} of {} live \
         connections are closed per hour. An interruption of {} closes connections that are just being tested, \
         one of {} closes all.",
        number::percent(path.loss),
        number::time(path.rtt_s * 1e6),
        number::three(wrongly),
        number::count(connections),
        number::time((bound_s - period_s) * 1e6),
        number::time(bound_s * 1e6)
    ))
}
