//! What can no column say? How an arm checked, and what became of the deaths that were never known,
//! known late, or were none.

use tcptoll_core::record::{Arm, Deaths, Keepalive};
use tcptoll_core::tcp::checking::{Checking, Evidence, Mechanism, Setting, SettingPlace};

use super::{counted, deaths, due_s, keepalive};
use tcptoll_show::figures::plural;
use tcptoll_show::number;
use tcptoll_show::own::Note;

/// Seconds in a sentence: `10 s`, `0.5 s`.
fn seconds(s: f64) -> String {
    if s < 0.01 { format!("{} s", number::three(s)) } else { format!("{} s", number::trimmed(s)) }
}

/// How an arm checked: `server: probes after 10 s of silence, 3 of them, 1 s apart`.
pub(super) fn settings(keepalive: &Keepalive) -> String {
    let how = setting(&keepalive.checking);
    match keepalive.side.as_str() {
        // Who sends nothing does so on both sides.
        _ if keepalive.checking.mechanism == Mechanism::None => how,
        "" => how,
        side => format!("{side}: {how}"),
    }
}

/// A setting alone, without who checks.
pub(super) fn setting(checking: &Checking) -> String {
    let mut parts: Vec<String> = Vec::new();
    let evidence = match checking.evidence.unwrap_or_default() {
        Evidence::Acknowledged => "an acknowledgment",
        Evidence::Answered => "an answer",
    };
    let judged = checking
        .answer_within_s
        .map(|s| format!("dead if {evidence} takes more than {}", seconds(s)));
    match checking.mechanism {
        Mechanism::None => parts.push("nothing is sent".to_owned()),
        Mechanism::Tcp => {
            parts
                .extend(checking.idle_s.map(|s| format!("probes after {} of silence", seconds(s))));
            let apart = checking.interval_s.map(|s| format!(", {} apart", seconds(s)));
            // With a user timeout the kernel does not count its probes.
            let many = checking.probes.filter(|_| checking.user_timeout_s.is_none());
            parts.extend(many.map(|n| {
                format!("dead after {}{}", plural(n.into(), "probe"), apart.unwrap_or_default())
            }));
        }
        Mechanism::Heartbeat => {
            let null = checking.null_bytes.map(|n| format!(" of {}", plural(n.into(), "byte")));
            parts.extend(checking.idle_s.map(|s| {
                format!("a heartbeat{} after {} of silence", null.unwrap_or_default(), seconds(s))
            }));
            parts.extend(judged);
        }
        Mechanism::Lazy => {
            let most = checking.most.map(|n| format!(" from {} on", plural(n, "connection")));
            let variant = checking.variant.as_ref().map(|words| format!(": {words}"));
            parts.push(format!(
                "tests idle connections{}{}",
                most.unwrap_or_default(),
                variant.unwrap_or_default()
            ));
            parts.extend(judged);
        }
        Mechanism::Write => {
            parts.extend(checking.interval_s.map(|s| format!("a message every {}", seconds(s))));
            parts.extend(
                checking
                    .retransmission_s
                    .filter(|_| checking.user_timeout_s.is_none())
                    .map(|s| format!("retransmission gives up after {}", seconds(s))),
            );
        }
    }
    parts.extend(checking.user_timeout_s.map(|s| format!("TCP_USER_TIMEOUT {}", seconds(s))));
    parts.join("; ")
}

/// What has to be set for each way of checking, once: who checks so, where to set it, its name and
/// value.
pub(super) fn to_set(arms: &[Arm]) -> Vec<[String; 4]> {
    let mut known: Vec<(Vec<Setting>, Vec<&str>)> = Vec::new();
    for arm in arms {
        let Some(keepalive) = keepalive(arm) else { continue };
        let settings = keepalive.checking.settings();
        match known.iter_mut().find(|(one, _)| *one == settings) {
            Some((_, names)) => names.push(&arm.name),
            None => known.push((settings, vec![&arm.name])),
        }
    }
    let rows = known.into_iter().flat_map(|(settings, names)| {
        let names = names.join("; ");
        settings.into_iter().map(move |s| {
            let place = match s.place {
                SettingPlace::Socket => "setsockopt(2)",
                SettingPlace::Sysctl => "or sysctl",
                SettingPlace::Library => "tcp-heartbeat",
                SettingPlace::Program => "the program",
            };
            [names.clone(), place.to_owned(), s.name, s.value]
        })
    });
    rows.collect()
}

/// What is to be said of the deaths of all arms; what several share is said once.
pub(super) fn notes(arms: &[Arm]) -> Vec<Note> {
    let mut said: Vec<(Note, Vec<&str>)> = Vec::new();
    for arm in arms {
        let Some(deaths) = deaths(arm) else { continue };
        for note in of_deaths(arm, deaths) {
            match said.iter_mut().find(|(known, _)| *known == note) {
                Some((_, names)) => names.push(&arm.name),
                None => said.push((note, vec![&arm.name])),
            }
        }
    }
    let named = |(note, names): (Note, Vec<&str>)| match arms.len() {
        1 => note,
        _ => Note { text: format!("{}: {}", who(&names), note.text), ..note },
    };
    said.into_iter().map(named).collect()
}

/// The arms that something is said of; of many the first three.
pub(super) fn who(names: &[&str]) -> String {
    match names {
        [one, another, third, rest @ ..] if !rest.is_empty() => {
            format!("{one}; {another}; {third} and {} more", rest.len())
        }
        few => few.join("; "),
    }
}

fn of_deaths(arm: &Arm, d: &Deaths) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut note = |bad: bool, text: String| notes.push(Note { text, bad });
    let mut by = counted(&d.known_by).map(|by| format!("reported as {by}"));
    if let Some(said) = counted(&d.read_said) {
        let read = format!("read(2) on them returned {said}");
        by = Some(by.map_or(read.clone(), |by| format!("{by}; {read}")));
    }
    if let Some(by) = by {
        note(false, by);
    }
    if let Some(never) = never(d) {
        note(true, never);
    }
    if d.late > 0 {
        let due = due_s(arm).map_or_else(String::new, |s| format!(" than {}", seconds(s)));
        let text = format!("{} of {} were detected later{due}", number::count(d.late), of_dead(d));
        note(true, text);
    }
    let most = d.expected_wrongly.map_or(0.0, |[_, _, most]| most);
    if d.wrongly_closed as f64 > most {
        let text = format!(
            "{} closed, but at most {} are expected",
            plural(d.wrongly_closed, "live connection"),
            number::three(most)
        );
        note(true, text);
    }
    notes
}

fn of_dead(d: &Deaths) -> String {
    plural(d.dead, "dead connection")
}

/// Deaths that nobody learned of; why is told by the cause.
fn never(d: &Deaths) -> Option<String> {
    if d.dead == 0 || d.known >= d.dead {
        return None;
    }
    let known = if d.known == 0 { "none".to_owned() } else { number::count(d.known) };
    Some(format!("{known} of {} detected within {}", of_dead(d), seconds(d.watched_s)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(checking: Checking, deaths: Deaths) -> [Arm; 1] {
        let keepalive = Keepalive { checking, deaths: Some(deaths), ..Keepalive::default() };
        [Arm { name: "a".into(), own: keepalive.into(), ..Arm::default() }]
    }

    fn dead(fault: &str, dead: u64, known: u64) -> Deaths {
        Deaths { fault: fault.into(), dead, known, watched_s: 60.0, ..Deaths::default() }
    }

    fn checking(mechanism: Mechanism) -> Checking {
        Checking { mechanism, ..Checking::default() }
    }

    #[test]
    fn deaths_that_nobody_learned_of_are_a_fault() {
        let of_known = |known| notes(&arm(checking(Mechanism::Tcp), dead("freeze", 100, known)));
        assert_eq!(of_known(100), []);
        let note = |text: &str| [Note { text: text.to_owned(), bad: true }];
        assert_eq!(of_known(0), note("none of 100 dead connections detected within 60 s"));
        assert_eq!(of_known(2), note("2 of 100 dead connections detected within 60 s"));
    }

    #[test]
    fn false_alarms_count_as_a_fault_only_beyond_what_is_expected() {
        let of_closed = |wrongly_closed| {
            let expected_wrongly = Some([0.0, 2.0, 6.0]);
            let deaths = Deaths { wrongly_closed, expected_wrongly, ..dead("loss=5%", 0, 0) };
            notes(&arm(checking(Mechanism::Tcp), deaths)).len()
        };
        assert_eq!([of_closed(6), of_closed(7)], [0, 1]);
    }

    #[test]
    fn every_way_of_checking_is_said_with_its_settings() {
        let tcp = Checking {
            idle_s: Some(10.0),
            interval_s: Some(1.0),
            probes: Some(3),
            ..checking(Mechanism::Tcp)
        };
        assert_eq!(setting(&tcp), "probes after 10 s of silence; dead after 3 probes, 1 s apart");
        let heartbeat = Checking {
            idle_s: Some(10.0),
            answer_within_s: Some(2.5),
            null_bytes: Some(4),
            ..checking(Mechanism::Heartbeat)
        };
        assert_eq!(
            setting(&heartbeat),
            "a heartbeat of 4 bytes after 10 s of silence; dead if an acknowledgment takes more than \
             2.5 s"
        );
        let write = Checking {
            interval_s: Some(1.0),
            user_timeout_s: Some(30.0),
            retransmission_s: Some(924.6),
            ..checking(Mechanism::Write)
        };
        assert_eq!(setting(&write), "a message every 1 s; TCP_USER_TIMEOUT 30 s");
        assert_eq!(setting(&checking(Mechanism::None)), "nothing is sent");
    }
}
