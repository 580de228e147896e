//! Which sections do words mean? Names first, then the keys that a section has, then the text.

use tcptoll_core::study::{did_you_mean, nearest};

use super::Section;

/// Shorter words are in nearly every text.
const SHORTEST: usize = 3;
/// Sections of which only the text has the words.
const OF_TEXT_MAX: usize = 15;

/// What was found.
#[derive(Default)]
pub(super) struct Hits<'a> {
    pub sections: Vec<&'a Section>,
    /// The word that was taken for what was typed; none: the words were found as they are.
    pub of: Option<String>,
}

/// The sections that words mean, the surest kind of hit alone.
pub(super) fn find<'a>(typed: &str, all: &'a [Section]) -> Hits<'a> {
    let typed = typed.trim();
    let words = normal(typed);
    let found = |sections| Hits { sections, of: None };
    if words.trim().is_empty() {
        return Hits::default();
    }
    let of =
        |fits: &dyn Fn(&Section) -> bool| all.iter().filter(|one| fits(one)).collect::<Vec<_>>();
    let name = of(&|one| normal(one.name) == words);
    if !name.is_empty() {
        return found(name);
    }
    // Termination states of HAProxy differ in case alone.
    let as_typed = of(&|one| one.keys.iter().any(|key| key == typed));
    let same = of(&|one| one.keys.iter().any(|key| normal(key) == words));
    // A message of a program has the key in it. The longest says most.
    let held = |one: &Section| {
        let held =
            one.keys.iter().map(|key| normal(key)).filter(|key| words.contains(key.as_str()));
        held.map(|key| key.len()).max().unwrap_or(0)
    };
    let longest = all.iter().map(held).max().unwrap_or(0);
    let message = of(&|one| longest > 0 && held(one) == longest);
    for sections in [as_typed, same, message] {
        if !sections.is_empty() {
            return found(sections);
        }
    }
    let is_searched =
        words.trim().len() >= SHORTEST && !words.chars().all(|c| c.is_numeric() || c == ' ');
    if is_searched {
        let has = |text: &str| normal(text).contains(&words);
        let headed =
            of(&|one| has(one.name) || has(&one.phrase) || one.keys.iter().any(|key| has(key)));
        if !headed.is_empty() {
            return found(headed);
        }
        let mut within: Vec<(usize, &Section)> =
            all.iter().map(|one| (normal(one.body).matches(&words).count(), one)).collect();
        within.retain(|(count, _)| *count > 0);
        within.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        within.truncate(OF_TEXT_MAX);
        if !within.is_empty() {
            return found(within.into_iter().map(|(_, one)| one).collect());
        }
    }
    near(typed, all)
}

/// The sections of the name, or else of the key, that a slip of the finger made the words.
fn near<'a>(typed: &str, all: &'a [Section]) -> Hits<'a> {
    let lower = typed.to_lowercase();
    let names = nearest(&lower, all.iter().map(|one| one.name));
    let keys: Vec<String> =
        all.iter().flat_map(|one| &one.keys).map(|key| key.to_lowercase()).collect();
    // A key that is hardly longer than a slip is near to anything.
    let keys = keys.iter().filter(|key| key.len() > SHORTEST);
    let Some(word) = names.or_else(|| nearest(&lower, keys.map(String::as_str))) else {
        let names: Vec<&str> = all.iter().map(|one| one.name).collect();
        let meant = did_you_mean(typed, &names).unwrap_or_default();
        let sections =
            all.iter().filter(|one| meant.split([' ', ',', '?']).any(|word| word == one.name));
        return Hits { sections: sections.collect(), of: Some(meant) };
    };
    let named = all.iter().filter(|one| one.name == word).collect::<Vec<_>>();
    if !named.is_empty() {
        return Hits { sections: named, of: Some(word.to_owned()) };
    }
    let has_it = |one: &&Section| one.keys.iter().any(|key| key.to_lowercase() == word);
    let sections: Vec<&Section> = all.iter().filter(has_it).collect();
    // As it is written.
    let key = sections.iter().flat_map(|one| &one.keys).find(|key| key.to_lowercase() == word);
    let of = key.cloned().unwrap_or_else(|| word.to_owned());
    Hits { sections, of: Some(of) }
}

/// Words in lower case with a blank before and after each, without marks and without the s of a plural.
fn normal(text: &str) -> String {
    let lower = text.to_lowercase();
    let words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let singular = |word: &str| match word.strip_suffix('s') {
        Some(stem) if stem.len() >= SHORTEST && !stem.ends_with('s') => stem.to_owned(),
        _ => word.to_owned(),
    };
    let words: Vec<String> = words.map(singular).collect();
    format!(" {} ", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::super::SECTIONS;
    use super::*;

    fn names(typed: &str) -> Vec<&'static str> {
        find(typed, &SECTIONS).sections.iter().map(|one| one.name).collect()
    }

    #[test]
    fn what_people_type_is_found_in_every_spelling() {
        for (typed, name) in [
            ("accept_queue_full", "accept-queue-full"),
            ("CLOSE_WAIT", "close-wait-leak"),
            ("CLOSE-WAIT", "close-wait-leak"),
            ("ListenOverflows", "accept-queue-full"),
            ("tcpextlistenoverflows", "accept-queue-full"),
            ("broken pipe", "reset"),
            ("syncookies", "syn-queue-full"),
            ("SYN flood", "syn-queue-full"),
            ("nat", "keepalive-beyond-nat"),
            ("499", "client-gave-up"),
            ("bufferbloat", "bufferbloat"),
            ("BDP", "bandwidth-delay-product"),
            ("zero window", "zero-window"),
            ("coordinated omission", "coordinated-omission"),
            ("head-of-line blocking", "page-head-of-line"),
            ("RTO", "retransmission-timeout"),
            ("SC--", "connect-refused"),
            ("sC--", "connect-timeout"),
            ("EADDRNOTAVAIL", "local-ports"),
            ("Cannot assign requested address (os error 99)", "local-ports"),
            ("[Errno 111] Connection refused", "connect-refused"),
            ("connect EMFILE 10.0.0.1:80", "local-fds"),
            (
                "connect() failed (111: Connection refused) while connecting to upstream",
                "connect-refused",
            ),
            ("1024 worker_connections are not enough", "worker-connections"),
            ("no live upstreams while connecting to upstream", "no-live-upstreams"),
            ("backend web has no server available!", "no-live-upstreams"),
            ("bind() to 0.0.0.0:80 failed (98: Address already in use)", "address-in-use"),
            ("[Errno 98] Address already in use", "address-in-use"),
            ("FIN-WAIT-2", "local-ports-scarce"),
            ("FIN_WAIT2", "local-ports-scarce"),
            ("FIN-WAIT2", "local-ports-scarce"),
            ("Error: read ETIMEDOUT", "dead-peer-unnoticed"),
            ("LR--", "proxy-errors"),
            ("possible SYN flooding on port 80. Sending cookies.", "syn-queue-full"),
        ] {
            assert_eq!(names(typed), [name], "{typed}");
        }
    }

    #[test]
    fn several_hits_are_all_given() {
        for (typed, some) in [
            ("502", &["close-race", "connect-refused", "no-live-upstreams"][..]),
            ("TIME_WAIT", &["local-ports-scarce", "time-wait-overflow"]),
            ("time-wait", &["local-ports-scarce", "tw-reuse-loopback-only"]),
            ("TcpExtListenDrops", &["accept-queue-full", "syn-queue-full"]),
            ("ephemeral ports", &["local-ports-scarce", "local-ports"]),
            ("port exhaustion", &["local-ports-scarce", "port-range-too-small"]),
            ("stale connection", &["close-race", "dead-peer-unnoticed"]),
            ("upstream timed out (110: Connection timed out)", &["timeout", "connect-timeout"]),
            ("recv() failed (104: Connection reset by peer)", &["close-race", "reset"]),
            (
                "upstream prematurely closed connection while reading response header from upstream",
                &["close-race", "truncated"],
            ),
            ("EADDRINUSE", &["address-in-use", "local-ports"]),
            ("read: connection timed out", &["dead-peer-unnoticed", "connect-timeout"]),
            ("cD--", &["zero-window", "dead-peer-unnoticed"]),
            // Of the text alone.
            ("TcpExtTCPAbortOnOverflow", &["reset"]),
            ("keepalive", &["keepalive-inert", "keepalive-beyond-nat"]),
        ] {
            let found = names(typed);
            assert!(some.iter().all(|name| found.contains(name)), "{typed}: {found:?}");
        }
    }

    #[test]
    fn a_slip_of_the_finger_is_taken_for_what_was_meant() {
        for (typed, meant, name) in [
            ("ECONNRFUSED", "ECONNREFUSED", "connect-refused"),
            ("accept-quue-full", "accept-queue-full", "accept-queue-full"),
            ("bufferbloot", "bufferbloat", "bufferbloat"),
        ] {
            let hits = find(typed, &SECTIONS);
            assert_eq!(hits.of.as_deref(), Some(meant), "{typed}");
            assert_eq!(hits.sections.first().map(|one| one.name), Some(name), "{typed}");
        }
        for typed in ["x", "99", "no-such-cause", "zzzyyyxxx", "--", "ä"] {
            assert!(names(typed).is_empty(), "{typed}: {:?}", names(typed));
        }
    }
}
