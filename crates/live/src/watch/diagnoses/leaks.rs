//! Connections that a program here does not close.

use tcptoll_core::number;

use super::{evidence, rounded};
use crate::watch::Unclosed;
use crate::watch::state::State;
use tcptoll_core::finding::{Finding, Remedy, Severity};

pub(super) const LEAK: &str = "close-wait-leak";
/// The state's name.
pub(crate) const CLOSE_WAIT: &str = "CLOSE-WAIT";
/// So many for a minute are a leak: a pool that closes a connection only when it wants to use it again has a few.
pub(crate) const MANY: u32 = 10;

/// Connections that the peer closed a minute ago or earlier.
pub(super) fn close_wait(state: &State) -> Vec<Finding> {
    let old = state.unclosed.iter().filter(|one| one.minute_old >= MANY);
    old.map(leak).collect()
}

fn leak(one: &Unclosed) -> Finding {
    let who = one
        .process
        .as_ref()
        .map_or("a program".to_owned(), |own| format!("{} ({})", own.name, own.pid));
    let text = format!(
        "{} connections that peers closed are not closed by {who}; the oldest for {}",
        number::count(one.minute_old),
        number::duration(one.oldest_s)
    );
    let pid = one.process.as_ref().map(|own| own.pid);
    let evidence = evidence([
        ("close_wait", Some(one.connections.into())),
        ("close_wait_over_60_s", Some(one.minute_old.into())),
        ("oldest_s", Some(rounded(one.oldest_s))),
        ("pid", pid.map(Into::into)),
        ("program", one.process.as_ref().map(|own| own.name.clone().into())),
    ]);
    let pid = pid.map_or("PID".to_owned(), |pid| pid.to_string());
    Finding {
        id: LEAK.into(),
        severity: Severity::Warning,
        subject: one.on.clone(),
        text,
        evidence,
        remedies: vec![Remedy::named(LEAK, "close").with("PID", pid)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::Process;

    #[test]
    fn connections_unclosed_for_a_minute_are_a_leak_and_a_few_are_none() {
        let with = |minute_old, process| {
            let one = Unclosed {
                on: "port 8080".into(),
                process,
                connections: 40,
                minute_old,
                oldest_s: 180.0,
                inode: 7,
            };
            close_wait(&State { unclosed: vec![one], ..State::default() })
        };
        let java = || Some(Process { pid: 7, name: "java".into() });
        let [one] = &with(10, java())[..] else { panic!("one") };
        assert!(
            one.text.contains("10 connections that peers closed are not closed by java (7)"),
            "{}",
            one.text
        );
        assert_eq!((one.subject.as_str(), &one.evidence["close_wait"]), ("port 8080", &40.into()));
        assert!(one.fix().unwrap().commands.iter().any(|line| line.contains("/proc/7/fd")));
        let longest = Some(Process { pid: u32::MAX, name: "x".repeat(16) });
        assert!(with(u32::MAX, longest)[0].text.chars().count() <= super::super::TEXT_MAX);
        assert!(with(9, java()).is_empty());
        assert_eq!(with(10, None).len(), 1);
    }
}
