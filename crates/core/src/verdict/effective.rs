//! Which arms were asked to differ, and do not, because the kernel made their values the same?
//!
//! An experiment says what took effect in an arm; this file finds the arms that share it.

use std::collections::BTreeMap;

use crate::record::{Arm, Buffer, BufferLimit, Own};
use crate::study::level_text;
use crate::verdict::warning::Warning;

/// Arms that asked for different values of an option, and have the same one. `effective` gives the
/// value of an arm with its reason; none of an arm whose value counts as what was asked for.
pub fn same_effective(
    arms: &[Arm],
    option: &str,
    effective: impl Fn(&Arm) -> Option<String>,
) -> Vec<Warning> {
    let mut by_value: BTreeMap<String, Vec<(&str, String)>> = BTreeMap::new();
    for arm in arms {
        if let (Some(value), Some(asked)) = (effective(arm), arm.factors.get(option)) {
            by_value.entry(value).or_default().push((&arm.name, level_text(asked)));
        }
    }
    let same = |(value, arms): (String, Vec<(&str, String)>)| {
        let differ = arms.iter().any(|(_, asked)| *asked != arms[0].1);
        differ.then(|| Warning::SameEffectiveValue {
            option: option.to_owned(),
            arms: arms.into_iter().map(|(name, _)| name.to_owned()).collect(),
            value,
        })
    };
    by_value.into_iter().filter_map(same).collect()
}

/// Socket buffers: above `net.core.wmem_max` and `rmem_max`, or below the kernel's smallest, all are
/// the same.
pub fn same_buffers(arms: &[Arm]) -> Vec<Warning> {
    let options: [(&str, &[Which]); 3] =
        [("window", &BOTH), ("send-buffer", &BOTH[..1]), ("receive-buffer", &BOTH[1..])];
    options
        .into_iter()
        .flat_map(|(option, which)| same_effective(arms, option, |arm| all_changed(arm, which)))
        .collect()
}

/// The socket buffers that the kernel changed. None: it granted all as asked for.
pub fn changed_buffers(own: &Own) -> Option<Warning> {
    let ends = ends(own)?;
    let mut changes = Vec::new();
    let mut capped = false;
    for which in &BOTH {
        let [client, server] = ends.map(|end| end[which.at]);
        let hosts = match (client.changed_by, server.changed_by) {
            (Some(_), Some(_)) if client == server => vec![("both hosts", client)],
            _ => vec![("the client", client), ("the server", server)],
        };
        for (host, buffer) in hosts {
            let (Some(asked), Some(limit)) = (buffer.asked_bytes, buffer.changed_by) else {
                continue;
            };
            capped |= limit == BufferLimit::Maximum;
            let got = buffer.effective_bytes;
            let option = which.option;
            changes.push(match limit {
                BufferLimit::Maximum => format!(
                    "{option} of {host}: {} of {asked} bytes granted ({})",
                    got / 2,
                    which.sysctl
                ),
                BufferLimit::Minimum => format!(
                    "{option} of {host}: {asked} bytes requested, {got} granted in all (the kernel's minimum)"
                ),
            });
        }
    }
    (!changes.is_empty()).then_some(Warning::BufferChanged { changes, capped })
}

/// One of a socket's buffers.
struct Which {
    option: &'static str,
    /// What limits it.
    sysctl: &'static str,
    /// Its place among the buffers of an end.
    at: usize,
}

const BOTH: [Which; 2] = [
    Which { option: "SO_SNDBUF", sysctl: "net.core.wmem_max", at: 0 },
    Which { option: "SO_RCVBUF", sysctl: "net.core.rmem_max", at: 1 },
];

/// These buffers of both hosts, each size once.
///
/// None: the kernel left one of them as asked for, or tunes it.
fn all_changed(arm: &Arm, which: &[Which]) -> Option<String> {
    let mut parts: Vec<String> = Vec::new();
    for end in ends(&arm.own)? {
        for Which { option, sysctl, at } in which {
            let buffer = end[*at];
            let why = match buffer.changed_by? {
                BufferLimit::Maximum => sysctl,
                BufferLimit::Minimum => "the kernel's minimum",
            };
            let part = format!("{option} {} bytes ({why})", buffer.effective_bytes);
            if !parts.contains(&part) {
                parts.push(part);
            }
        }
    }
    Some(parts.join(", "))
}

/// Send and receive buffer of the sockets of both hosts.
fn ends(own: &Own) -> Option<[[Buffer; 2]; 2]> {
    if let Some(transfer) = &own.transfer {
        let ends = [&transfer.client, &transfer.server];
        return Some(ends.map(|end| [end.send_buffer, end.receive_buffer]));
    }
    let memory = own.connection_memory.as_ref()?;
    Some([&memory.client, &memory.server].map(|end| [end.send_buffer, end.receive_buffer]))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::record::{SocketEnd, Transfer};

    fn arm(name: &str, option: &str, asked: Option<u64>, send: u64, receive: u64) -> Arm {
        let end = SocketEnd {
            send_buffer: Buffer::new(asked, send),
            receive_buffer: Buffer::new(asked, receive),
            ..SocketEnd::default()
        };
        let transfer = Transfer { client: end.clone(), server: end, ..Transfer::default() };
        Arm {
            name: name.to_owned(),
            factors: [(option.to_owned(), Value::from(name))].into(),
            own: transfer.into(),
            ..Arm::default()
        }
    }

    #[test]
    fn arms_whose_buffers_were_made_the_same_are_named_with_the_limit() {
        let arms = vec![
            arm("auto", "window", None, 16_384, 131_072),
            arm("64K", "window", Some(65_536), 131_072, 131_072),
            arm("1M", "window", Some(1 << 20), 425_984, 425_984),
            arm("4M", "window", Some(4 << 20), 425_984, 425_984),
            arm("1K", "window", Some(1 << 10), 4_608, 2_304),
        ];
        let warnings = same_buffers(&arms);
        let value = "SO_SNDBUF 425984 bytes (net.core.wmem_max), \
                     SO_RCVBUF 425984 bytes (net.core.rmem_max)";
        let expected = Warning::SameEffectiveValue {
            option: "window".to_owned(),
            arms: vec!["1M".to_owned(), "4M".to_owned()],
            value: value.to_owned(),
        };
        assert_eq!(warnings, [expected]);
    }

    #[test]
    fn one_buffer_alone_decides_about_its_own_option() {
        // Two sends below the smallest; the receive buffers took effect.
        let one = |name, asked: u64| {
            let mut arm = arm(name, "send-buffer", Some(asked), 4_608, asked * 2);
            let end = arm.own.transfer.as_mut().unwrap();
            end.client.receive_buffer.changed_by = None;
            arm
        };
        let warnings = same_buffers(&[one("1K", 1 << 10), one("2K", 2 << 10)]);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].to_string().contains("SO_SNDBUF 4608 bytes (the kernel's minimum)"));
    }

    #[test]
    fn each_buffer_that_was_changed_is_stated_once_with_its_limit() {
        let end = |asked: u64, send, receive| SocketEnd {
            send_buffer: Buffer::new(Some(asked), send),
            receive_buffer: Buffer::new(Some(asked), receive),
            ..SocketEnd::default()
        };
        let text = |client: &SocketEnd, server: &SocketEnd| {
            let (client, server) = (client.clone(), server.clone());
            let own = Transfer { client, server, ..Transfer::default() }.into();
            changed_buffers(&own).map(|warning| warning.to_string())
        };
        let granted = end(1 << 20, 2 << 20, 2 << 20);
        assert_eq!(text(&granted, &granted), None);
        let capped = end(1 << 20, 425_984, 2 << 20);
        assert_eq!(
            text(&capped, &capped).unwrap(),
            "the kernel changed the requested socket buffers: SO_SNDBUF of both hosts: 212992 of \
             1048576 bytes granted (net.core.wmem_max). Raise the limit on this machine, outside \
             the lab, or request less"
        );
        let raised = end(1, 2, 2_304);
        assert_eq!(
            text(&granted, &raised).unwrap(),
            "the kernel changed the requested socket buffers: SO_RCVBUF of the server: 1 bytes \
             requested, 2304 granted in all (the kernel's minimum)"
        );
    }
}
