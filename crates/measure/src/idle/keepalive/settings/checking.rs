//! From what was typed to how idle connections are checked.

use std::time::Duration;

use tcptoll_core::tcp::checking;
use tcptoll_core::tcp::checking::{Checking, Evidence, Mechanism, Path};
use tcptoll_core::units::{human_share, human_us, parse_share};

use crate::kit::plan::TrialError;
use crate::kit::settings::{SettingsReader, unescape, wrong};

/// The longest tick.
const TICK_MAX: Duration = Duration::from_secs(1);

/// Bytes of a Null message of the library's framing.
const NULL_BYTES: u32 = 4;

/// The Null message of a protocol that has one; empty: that of the library's framing.
pub(super) fn null(reader: &SettingsReader<'_>) -> Vec<u8> {
    unescape(&reader.typed("null").unwrap_or_default())
}

fn mechanism(reader: &SettingsReader<'_>) -> Result<Mechanism, TrialError> {
    let typed = reader.typed("mechanism").unwrap_or_else(|| "none".to_owned());
    let names = Mechanism::ALL.map(Mechanism::name);
    let known = Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == typed);
    known.ok_or_else(|| wrong("mechanism", &typed, format!("write one of {}", names.join(", "))))
}

/// How idle connections are checked, as asked for.
pub(super) fn checking(reader: &SettingsReader<'_>) -> Result<Checking, TrialError> {
    let mechanism = mechanism(reader)?;
    let seconds = |key: &str| reader.time(key).map(|time| Some(time.as_secs_f64()));
    let evidence = match reader.value("evidence")?.as_str() {
        "acknowledged" => Evidence::Acknowledged,
        "answered" => Evidence::Answered,
        other => return Err(wrong("evidence", other, "write acknowledged or answered")),
    };
    let mut checking = Checking {
        mechanism,
        user_timeout_s: reader.typed_time("user-timeout")?.map(|time| time.as_secs_f64()),
        ..Checking::default()
    };
    let judged = matches!(mechanism, Mechanism::Heartbeat | Mechanism::Lazy);
    if judged {
        checking.answer_within_s = seconds("answer-within")?;
        checking.evidence = Some(evidence);
    }
    if judged || mechanism == Mechanism::Write {
        let null = null(reader);
        let framed = null.is_empty();
        checking.null_bytes = Some(if framed { NULL_BYTES } else { null.len() as u32 });
        checking.tick_s = seconds("tick")?;
    }
    match mechanism {
        Mechanism::None | Mechanism::Lazy => {}
        // What is left to the kernel is read from the host's sysctls before the trial.
        Mechanism::Tcp => {
            checking.idle_s = kernel_time(reader, "idle")?;
            checking.interval_s = kernel_time(reader, "interval")?;
            checking.probes = match reader.value("probes")?.as_str() {
                "kernel" => None,
                _ => Some(reader.count("probes", 1, 127)? as u32),
            };
        }
        Mechanism::Heartbeat => checking.idle_s = seconds("idle")?,
        Mechanism::Write => checking.interval_s = seconds("interval")?,
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
        let typed = reader.value("tick")?;
        return Err(wrong(
            "tick",
            &typed,
            "write at most 1s: tests that are due wait for the next tick",
        ));
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
fn kernel_time(reader: &SettingsReader<'_>, key: &str) -> Result<Option<f64>, TrialError> {
    let typed = reader.value(key)?;
    if typed == "kernel" {
        return Ok(None);
    }
    let time = reader.time(key)?;
    let why = "the kernel takes whole seconds from 1s to 32767s; write `kernel` to use its sysctl";
    let refused = || wrong(key, &typed, why);
    checking::probe_seconds(time).ok_or_else(refused).map(Some)
}

/// The cheapest way of this mechanism to know in time.
pub(super) fn cheapest(
    reader: &SettingsReader<'_>,
    within: Duration,
    path: Path,
) -> Result<Checking, TrialError> {
    const CHOSEN: [&str; 7] =
        ["idle", "interval", "probes", "answer-within", "evidence", "tick", "user-timeout"];
    for key in CHOSEN {
        if reader.typed(key).is_some() {
            return Err(TrialError::Setting(format!(
                "--{key} has no effect with --detect-within, which sets it: leave one of them out"
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
            "{} packet loss and a round trip of {}",
            human_share(path.loss),
            human_us(path.rtt_s * 1e6)
        );
        let why = match checking::soonest_s(mechanism, path) {
            Some(s) => format!(
                "{mechanism} needs at least {}: write a longer time. With {path_is}, a shorter time closes live connections in more than one of a million tests",
                human_us(s * 1e6)
            ),
            None => format!("{mechanism} has no setting for {path_is}: lower --assumed-loss"),
        };
        wrong("detect-within", &reader.typed("detect-within").unwrap_or_default(), why)
    })
}

/// The path that settings for a wanted detection time have to stand: not a shorter one than assumed.
pub(super) fn assumed(reader: &SettingsReader<'_>, rtt: Duration) -> Result<Path, TrialError> {
    let loss = reader.read("assumed-loss", parse_share)?;
    Ok(Path { loss, rtt_s: rtt.as_secs_f64().max(Path::ASSUMED.rtt_s) })
}
