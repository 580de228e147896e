//! From what was typed to how idle connections are checked.

use std::time::Duration;

use tcptoll_model::checking::{self, Checking, Evidence, Mechanism, Path};
use tcptoll_model::study::PlannedArm;
use tcptoll_model::units::{human_share, human_us, parse_share};

use super::{IDLE, TICK};
use crate::experiments::TrialError;
use crate::experiments::bench::settings::unescape;
use crate::experiments::bench::settings::{Reader, wrong};

/// Settings where none are asked for. Short, so that a trial is: what checking costs grows as the
/// times shrink.
const INTERVAL: Duration = Duration::from_secs(1);
const PROBES: u64 = 3;
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// The longest tick.
const TICK_MAX: Duration = Duration::from_secs(1);

/// Bytes of a Null message of the library's framing.
const NULL_BYTES: u32 = 4;

/// Options that are of some mechanisms only.
const OF: &[(&str, &[Mechanism])] = {
    use Mechanism::{Heartbeat, Lazy, Tcp, Write};
    &[
        ("answer-within", &[Heartbeat, Lazy]),
        ("at-once", &[Lazy]),
        ("detect-within", &[Tcp, Heartbeat, Write]),
        ("evidence", &[Heartbeat, Lazy]),
        // Lazy: of the client, whose heartbeat it is where both sides check.
        ("idle", &[Tcp, Heartbeat, Lazy]),
        ("interval", &[Tcp, Write]),
        ("most", &[Lazy]),
        ("null", &[Heartbeat, Write]),
        ("order", &[Lazy]),
        ("probes", &[Tcp]),
        ("side", &[Tcp, Heartbeat, Lazy, Write]),
        ("tick", &[Heartbeat, Lazy, Write]),
        ("unused-for", &[Lazy]),
        ("until", &[Lazy]),
        ("user-timeout", &[Tcp, Heartbeat, Lazy, Write]),
    ]
};

/// Refuses an option whose mechanism is in none of the arms that have it.
pub(in crate::experiments) fn check_together(arms: &[PlannedArm]) -> Result<(), TrialError> {
    for (option, of) in OF {
        let having = || arms.iter().filter(|arm| arm.settings.contains_key(*option));
        let mut used = having().next().is_none();
        for arm in having() {
            used |= of.contains(&mechanism(&Reader(&arm.settings))?);
        }
        if !used {
            let names: Vec<&str> = of.iter().map(|mechanism| mechanism.name()).collect();
            return Err(TrialError::Setting(format!(
                "--{option} has no effect without --mechanism {}",
                names.join(" or ")
            )));
        }
    }
    Ok(())
}

/// The Null message of a protocol that has one; empty: that of the library's framing.
pub(super) fn null(reader: &Reader<'_>) -> Vec<u8> {
    unescape(&reader.get("null").unwrap_or_default())
}

fn mechanism(reader: &Reader<'_>) -> Result<Mechanism, TrialError> {
    let typed = reader.get("mechanism").unwrap_or_else(|| "none".to_owned());
    let names = Mechanism::ALL.map(Mechanism::name);
    let known = Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == typed);
    known.ok_or_else(|| wrong("mechanism", &typed, format!("write one of {}", names.join(", "))))
}

/// How idle connections are checked, as asked for.
pub(super) fn checking(reader: &Reader<'_>) -> Result<Checking, TrialError> {
    let mechanism = mechanism(reader)?;
    let seconds = |key: &str, otherwise: Duration| -> Result<Option<f64>, TrialError> {
        Ok(Some(reader.time(key)?.unwrap_or(otherwise).as_secs_f64()))
    };
    let evidence = match reader.get("evidence").as_deref() {
        None | Some("acknowledged") => Evidence::Acknowledged,
        Some("answered") => Evidence::Answered,
        Some(other) => return Err(wrong("evidence", other, "write acknowledged or answered")),
    };
    let mut checking = Checking {
        mechanism,
        user_timeout_s: reader.time("user-timeout")?.map(|time| time.as_secs_f64()),
        ..Checking::default()
    };
    let judged = matches!(mechanism, Mechanism::Heartbeat | Mechanism::Lazy);
    if judged {
        checking.answer_within_s = seconds("answer-within", ANSWER_WITHIN)?;
        checking.evidence = Some(evidence);
    }
    if judged || mechanism == Mechanism::Write {
        let null = null(reader);
        let framed = null.is_empty();
        checking.null_bytes = Some(if framed { NULL_BYTES } else { null.len() as u32 });
        checking.tick_s = seconds("tick", TICK)?;
    }
    match mechanism {
        Mechanism::None | Mechanism::Lazy => {}
        // What is left to the kernel is read from the host's sysctls before the trial.
        Mechanism::Tcp => {
            checking.idle_s = kernel_time(reader, "idle", IDLE)?;
            checking.interval_s = kernel_time(reader, "interval", INTERVAL)?;
            checking.probes = match reader.get("probes").as_deref() {
                Some("kernel") => None,
                _ => Some(reader.count("probes", 1, 127)?.unwrap_or(PROBES) as u32),
            };
        }
        Mechanism::Heartbeat => checking.idle_s = seconds("idle", IDLE)?,
        Mechanism::Write => checking.interval_s = seconds("interval", INTERVAL)?,
    }
    if judged
        && let Some((limit, within)) = checking.user_timeout_s.zip(checking.answer_within_s)
        && limit < within
    {
        return Err(TrialError::Setting(
            "--user-timeout must not be shorter than --answer-within: the kernel would give up first".to_owned(),
        ));
    }
    if checking.tick_s.is_some_and(|tick| tick > TICK_MAX.as_secs_f64()) {
        let typed = reader.get("tick").unwrap_or_default();
        return Err(wrong("tick", &typed, "1s is the longest: until then nothing else is done"));
    }
    if [checking.idle_s, checking.interval_s, checking.answer_within_s]
        .into_iter()
        .flatten()
        .any(|time| time <= 0.0)
    {
        return Err(TrialError::Setting(
            "--idle, --interval and --answer-within must be above 0".to_owned(),
        ));
    }
    Ok(checking)
}

/// A time of the kernel's probes: whole seconds, or `kernel` for what the host's sysctl says.
fn kernel_time(
    reader: &Reader<'_>,
    key: &str,
    otherwise: Duration,
) -> Result<Option<f64>, TrialError> {
    if reader.get(key).as_deref() == Some("kernel") {
        return Ok(None);
    }
    let time = reader.time(key)?.unwrap_or(otherwise);
    let why = "the kernel takes whole seconds from 1s to 32767s, or `kernel` for its sysctl";
    let refused = || wrong(key, &reader.get(key).unwrap_or_default(), why);
    checking::probe_seconds(time).ok_or_else(refused).map(Some)
}

/// The cheapest way of this mechanism to know in time.
pub(super) fn cheapest(
    reader: &Reader<'_>,
    within: Duration,
    path: Path,
) -> Result<Checking, TrialError> {
    const CHOSEN: [&str; 7] =
        ["idle", "interval", "probes", "answer-within", "evidence", "tick", "user-timeout"];
    for key in CHOSEN {
        if reader.get(key).is_some() {
            return Err(TrialError::Setting(format!(
                "--{key} has no effect with --detect-within, which chooses it: leave one out"
            )));
        }
    }
    let mechanism = mechanism(reader)?;
    // They know of no time: as they are.
    if matches!(mechanism, Mechanism::None | Mechanism::Lazy) {
        return checking(reader);
    }
    checking::cheapest(mechanism, within.as_secs_f64(), path).ok_or_else(|| {
        let path_is = format!(
            "{} of packets are lost and a round trip takes {}",
            human_share(path.loss),
            human_us(path.rtt_s * 1e6)
        );
        let why = match checking::soonest_s(mechanism, path) {
            Some(s) => format!(
                "{mechanism} needs {} at least, so that where {path_is} one test in a million closes a live connection: raise it",
                human_us(s * 1e6)
            ),
            None => format!("{mechanism} has no setting where {path_is}: lower --assumed-loss"),
        };
        wrong("detect-within", &reader.get("detect-within").unwrap_or_default(), why)
    })
}

/// The path that settings for a wanted detection time have to stand: not a shorter one than assumed.
pub(super) fn assumed(reader: &Reader<'_>, rtt: Duration) -> Result<Path, TrialError> {
    let loss = reader.read("assumed-loss", parse_share)?;
    if loss.is_some() && reader.get("detect-within").is_none() {
        return Err(TrialError::Setting(
            "--assumed-loss has no effect without --detect-within".to_owned(),
        ));
    }
    let assumed = Path::ASSUMED;
    Ok(Path { loss: loss.unwrap_or(assumed.loss), rtt_s: rtt.as_secs_f64().max(assumed.rtt_s) })
}
