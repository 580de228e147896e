//! What to set so that dead peers are detected in time, with cost and proof, for each mechanism.

use tcptoll_core::finding::Remedy;
use tcptoll_core::number;
use tcptoll_core::record::{Advice, Arm, Keepalive, Summary};
use tcptoll_core::tcp::checking;
use tcptoll_core::tcp::checking::{Checking, Evidence, Mechanism, Path, Setting, SettingPlace};

use crate::kit::conclusion::is_ill;

/// The cause that all of it answers.
pub(super) const UNNOTICED: &str = "dead-peer-unnoticed";

/// The detection time that is advised for where none was asked for, s.
const WANTED_S: f64 = 30.0;

/// What to set where dead peers were not detected: what the arms were set to, if a detection time
/// was asked for, else the cheapest settings for [`WANTED_S`].
pub(super) fn remedies(summary: &Summary) -> Vec<Remedy> {
    let asked = asked_for(summary);
    if asked.is_empty() { cheapest(summary) } else { asked }
}

/// What the arms were set to that a wanted detection time chose.
pub(super) fn asked_for(summary: &Summary) -> Vec<Remedy> {
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
    Some(remedy(checking, wanted, None, None).advice(UNNOTICED))
}

/// The cheapest settings for [`WANTED_S`].
fn cheapest(summary: &Summary) -> Vec<Remedy> {
    let unnoticed = |arm: &&Arm| is_ill(summary, arm, UNNOTICED);
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
            Some(remedy(&checking, wanted, None, None))
        })
        .collect()
}

/// The settings of an arm that a wanted detection time chose, and what it showed.
fn of_arm(arm: &Arm) -> Option<Remedy> {
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
    Some(remedy(&checked.checking, wanted, measured, proof(arm, checked)))
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

/// The settings in the sentence of the page that names them.
fn remedy(
    checking: &Checking,
    wanted: Wanted,
    measured: Option<f64>,
    proof: Option<String>,
) -> Remedy {
    let settings = checking.settings();
    let listed = |place| {
        let of_place = settings.iter().filter(|setting| setting.place == place);
        of_place.map(written).collect::<Vec<String>>().join(", ")
    };
    let (socket, sysctl) = (listed(SettingPlace::Socket), listed(SettingPlace::Sysctl));
    let of = |name: &str| Remedy::named(UNNOTICED, name);
    let remedy = match checking.mechanism {
        Mechanism::Tcp => {
            let within_s = checking.known_within_s().unwrap_or(wanted.within_s);
            let timeout = format!("TCP_USER_TIMEOUT={:.0} (ms)", (within_s * 10.0).ceil() * 100.0);
            of("probes")
                .with("SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL and TCP_KEEPCNT", socket)
                .with("net.ipv4.tcp_keepalive_time, _intvl and _probes", sysctl)
                .with("TCP_USER_TIMEOUT (ms)", timeout)
        }
        Mechanism::Heartbeat => {
            let answered = checking.evidence == Some(Evidence::Answered);
            let also = if answered { " and Evidence::Answered" } else { "" };
            of("heartbeats").with("Timing::new(IDLE, ANSWER)", listed(SettingPlace::Library) + also)
        }
        _ => {
            let also = if socket.is_empty() { String::new() } else { format!(" and set {socket}") };
            of("writes").with(
                "send a message now and then, and set TCP_USER_TIMEOUT",
                listed(SettingPlace::Program) + &also,
            )
        }
    };
    let goal = format!(
        "{} detect a dead peer within {}",
        if wanted.asked { "To" } else { "For example, to" },
        number::time(wanted.within_s * 1e6)
    );
    let remedy = remedy.with("To detect a dead peer in time", goal).proven(proof);
    Remedy { cost: cost(checking, wanted, measured), ..remedy }
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
