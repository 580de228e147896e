//! The studies that come with the program, and how a command line becomes one.

use anyhow::{Context as _, bail};
use serde_json::Value;
use tcptoll_model::study::Study;

use crate::cli::ConnectArgs;

/// Name and text of each study built in.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("connect-2021", include_str!("../../../studies/connect-2021.toml")),
    ("tour", include_str!("../../../studies/tour.toml")),
];

/// Longest study file that is read.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// The text of a study by its built-in name or file.
pub fn text(name: &str) -> anyhow::Result<String> {
    if let Some((_, text)) = BUILT_IN.iter().find(|(built_in, _)| *built_in == name) {
        return Ok((*text).to_owned());
    }
    let path = std::path::Path::new(name);
    if !path.exists() {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        bail!("study {name}: neither a file nor one of {}", names.join(", "));
    }
    let length = path.metadata().with_context(|| format!("study {name}"))?.len();
    if length > FILE_MAX_BYTES {
        bail!("study {name}: {length} bytes; a study is at most {FILE_MAX_BYTES}");
    }
    std::fs::read_to_string(path).with_context(|| format!("study {name}"))
}

/// A study by its built-in name or file, checked.
pub fn load(name: &str) -> anyhow::Result<Study> {
    let study = Study::from_toml(&text(name)?).with_context(|| format!("study {name}"))?;
    tcptoll_engine::runner::check(&study).with_context(|| format!("study {name}"))?;
    Ok(study)
}

/// The study that a command line of `connect` is.
pub fn from_connect(args: &ConnectArgs) -> Study {
    let mut study = Study {
        question: "What does it cost to open a TCP connection, and where does the time go?".into(),
        experiment: "connect".into(),
        ..Study::default()
    };
    let mut levels = |name: &str, levels: Vec<String>| {
        let mut values: Vec<Value> = levels.into_iter().map(Value::from).collect();
        match values.len() {
            0 => {}
            1 => {
                study.settings.insert(name.to_owned(), values.remove(0));
            }
            _ => {
                study.factors.insert(name.to_owned(), values);
            }
        }
    };
    levels("link", args.link.iter().flat_map(|text| links(text)).collect());
    levels("count", args.count.clone());
    levels("concurrency", args.concurrency.clone());
    levels("rate", args.rate.clone());
    levels("pause-every", args.pause_every.clone());
    levels("pause", args.pause.clone());
    levels("timeout", args.timeout.clone());
    levels("congestion", args.congestion.clone());
    levels("fast-open", args.fast_open.clone());
    levels("first-byte", args.first_byte.clone());
    levels("backlog", args.backlog.clone());
    levels("accept-delay", args.accept_delay.clone());
    for (name, value) in [
        ("to", &args.to),
        ("server", &args.server),
        ("port", &args.port),
        ("distance-km", &args.distance_km),
        ("bind", &args.bind),
        ("send", &args.send),
    ] {
        if let Some(value) = value {
            study.settings.insert(name.to_owned(), Value::from(value.clone()));
        }
    }
    for (name, value) in
        [("ipv6", args.ipv6), ("packet-relay", args.packet_relay), ("tap", args.tap)]
    {
        if value {
            study.settings.insert(name.to_owned(), Value::from(true));
        }
    }
    for (name, values) in
        [("client-sysctl", &args.client_sysctl), ("server-sysctl", &args.server_sysctl)]
    {
        if !values.is_empty() {
            study.settings.insert(name.to_owned(), Value::from(values.clone()));
        }
    }
    study
}

/// `metro,loss=1%,direct` is two links: a word without `=` begins the next.
fn links(text: &str) -> Vec<String> {
    let mut links: Vec<String> = Vec::new();
    for part in text.split(',') {
        match links.last_mut() {
            Some(link) if part.contains('=') => {
                link.push(',');
                link.push_str(part);
            }
            _ => links.push(part.to_owned()),
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_study_is_right() {
        for (name, _) in BUILT_IN {
            let study = load(name).unwrap();
            assert_eq!(study.name, *name);
        }
    }

    #[test]
    fn a_word_without_an_equals_sign_begins_the_next_link() {
        assert_eq!(links("rtt=37ms,loss=1%"), ["rtt=37ms,loss=1%"]);
        assert_eq!(links("metro,loss=1%,direct"), ["metro,loss=1%", "direct"]);
    }

    #[test]
    fn one_level_is_a_setting_and_two_are_a_factor() {
        let args = ConnectArgs {
            backlog: vec!["4".into(), "128".into()],
            count: vec!["10".into()],
            ..ConnectArgs::default()
        };
        let study = from_connect(&args);
        assert_eq!(study.settings["count"], "10");
        assert_eq!(study.factors["backlog"].len(), 2);
        assert_eq!(study.arms().unwrap()[1].name, "backlog 128");
    }
}
