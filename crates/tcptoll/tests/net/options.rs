//! Every option of every experiment, as the program itself describes them, with values that are wrong or nearly,
//! and some that are right: always with `--dry-run`, so that nothing is measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use crate::program::{Program, Ran, line};
use crate::{concurrently, frozen};

/// Values that are wrong for most options.
const WRONG: [&str; 8] = ["", "x", "-1", "0", "1.5", "99999999999999999999", "7,7", "7parsecs"];

/// Values that are right where an option's value is described by this word.
const RIGHT: [(&str, &[&str]); 10] = [
    ("N", &["1", "2,3", "1k"]),
    ("TIME", &["1s", "2s,300ms"]),
    ("PER_SECOND", &["10", "10,20"]),
    ("SIZE", &["64K", "1,2M"]),
    ("PERCENT", &["5%"]),
    ("LINK", &["metro", "rtt=5ms,loss=1%", "loopback,metro"]),
    ("NAME=VALUE", &["net.ipv4.tcp_retries2=3"]),
    ("OPTION=VALUE", &["backlog=16", "backlog=x", "x=1"]),
    ("HOST:PORT", &["127.0.0.1:9"]),
    ("ssh://HOST", &["ssh://a"]),
];

/// An option with what it needs beside it.
#[derive(Clone)]
struct Asked {
    name: String,
    /// What its value is called; `None`: it has none.
    value: Option<String>,
    /// Its other names, with their dashes.
    aliases: Vec<String>,
    default: Option<String>,
    /// Options without which it has no effect.
    needs: Vec<String>,
}

impl Asked {
    /// `None`: it is not typed as an option.
    fn from_description(described: &Value, all: &[Value]) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if ["setting", "arguments"].iter().any(|levels| described["levels"] == *levels) {
            return None;
        }
        let names = |key: &str, dashes: &str| -> Vec<String> {
            let names = described[key].as_array().into_iter().flatten();
            let mut names: Vec<String> =
                names.map(|name| format!("{dashes}{}", name.as_str().unwrap())).collect();
            names.extend(text(&described[key]).map(|name| format!("{dashes}{name}")));
            names
        };
        let needs = described["applies"].as_array().into_iter().flatten();
        Some(Self {
            name: text(&described["name"])?,
            value: text(&described["value"]),
            aliases: [names("aliases", "--"), names("letters", "-")].concat(),
            default: text(&described["default"]["text"]),
            needs: needs.filter_map(|need| needed(need, all)).collect(),
        })
    }

    /// From a line of a help: `-q, --quiet`, `--out <FILE>`.
    fn from_help(help: &str) -> impl Iterator<Item = Self> {
        let described = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
        described.filter_map(|line| {
            let name = line.split_once("--")?.1.split([' ', '=', '[']).next()?.to_owned();
            let value = line.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
            let value = value.map(|(value, _)| value.to_owned());
            Some(Self { name, value, aliases: Vec::new(), default: None, needs: Vec::new() })
        })
    }

    /// Words after those of the command, and the whole of them once more without what it needs.
    fn lines(&self) -> Vec<Vec<String>> {
        let Self { name, value, aliases, default, needs } = self;
        let Some(value) = value else {
            let one = format!("--{name}");
            return vec![vec![one.clone()], vec![format!("{one}=x")], vec![one.clone(), one]];
        };
        let right = RIGHT.iter().find(|(kind, _)| kind == value).map_or(&[][..], |(_, all)| *all);
        let words = value.contains([',', '|']) && value.contains(|c: char| c.is_ascii_lowercase());
        let listed = words.then(|| value.replace('|', ","));
        let values = WRONG.iter().chain(right).map(|&value| value.to_owned());
        let values = values.chain(default.clone()).chain(listed);
        let with =
            |dashed: &str, value: &str| [needs.clone(), vec![format!("{dashed}={value}")]].concat();
        let dashed = format!("--{name}");
        let mut lines: Vec<_> = values.map(|value| with(&dashed, &value)).collect();
        lines.extend(aliases.iter().map(|alias| with(alias, "x")));
        if !needs.is_empty() {
            let bare = default.as_deref().or(right.first().copied()).unwrap_or("x");
            lines.push(vec![format!("{dashed}={bare}")]);
        }
        lines
    }
}

/// The option without which another has no effect, as it is typed.
fn needed(need: &Value, all: &[Value]) -> Option<String> {
    if let (Some(name), Some(value)) = (need["when"].as_str(), need["is"][0].as_str()) {
        return Some(format!("--{name}={value}"));
    }
    if let Some(name) = need["with"].as_str() {
        let kind = all.iter().find(|one| one["name"] == name)?["value"].as_str();
        let right = RIGHT.iter().find(|(right, _)| Some(*right) == kind);
        return Some(format!("--{name}={}", right.map_or("x", |(_, values)| values[0])));
    }
    (need == "over-ssh").then(|| "--server=ssh://a".to_owned())
}

/// A status, what was refused, and of a plan the lines that the plan without the option does not have or has alone.
fn outcome(ran: &Ran, plain: &str) -> String {
    let mut said = String::new();
    let mut differing = |a: &str, b: &str, mark: &str| {
        for line in a.lines().filter(|line| !b.lines().any(|other| other == *line)) {
            writeln!(said, "    {mark} {line}").unwrap();
        }
    };
    if ran.status == Some(0) {
        differing(plain, &ran.stdout, "-");
    }
    differing(&ran.stdout, plain, "+");
    for line in ran.stderr.lines() {
        writeln!(said, "    {line}").unwrap();
    }
    match ran.status {
        Some(0) if ran.stdout == plain => format!("0 as without it\n{said}"),
        status => format!("{}\n{said}", status.unwrap_or(-1)),
    }
}

/// Options of commands, each with what came of it. Commands of which the same came share an entry.
fn answers(commands: &[(Vec<&str>, Vec<Asked>)]) -> String {
    let program = Program::new();
    let mut all = Vec::new();
    for (command, options) in commands {
        let plain = program.printed(&[&command[..], &["--dry-run"]].concat());
        for option in options {
            let lines = option.lines().into_iter().enumerate();
            all.extend(lines.map(|(at, words)| (command, plain.clone(), option, at, words)));
        }
    }
    let came = concurrently(&all, |program, (command, plain, _, _, words)| {
        let mut args: Vec<&str> = (*command).clone();
        args.push("--dry-run");
        args.extend(words.iter().map(String::as_str));
        outcome(&program.run(&args), plain)
    });
    let mut sorted: BTreeMap<(&str, usize, String), BTreeMap<String, Vec<String>>> =
        BTreeMap::new();
    for ((command, _, option, at, words), came) in all.iter().zip(came) {
        let same = sorted.entry((&option.name, *at, line(words))).or_default();
        same.entry(came).or_default().push(line(command));
    }
    let mut text = String::new();
    for ((_, _, words), outcomes) in sorted {
        writeln!(text, "{words}").unwrap();
        for (came, commands) in outcomes {
            write!(text, "  [{}] {came}", commands.join(", ")).unwrap();
        }
    }
    text
}

fn of_help(program: &Program, words: &[&str]) -> Vec<Asked> {
    let help = program.printed(&[words, &["--help"]].concat());
    Asked::from_help(&help)
        .filter(|one| !["help", "dry-run"].contains(&one.name.as_str()))
        .collect()
}

#[test]
fn options_of_experiments_are_answered_as_before() {
    let experiments = Program::new().printed(&["schema", "experiments"]);
    let experiments: Vec<Value> = serde_json::from_str(&experiments).unwrap();
    let commands: Vec<_> = experiments
        .iter()
        .map(|experiment| {
            let all = experiment["options"].as_array().unwrap();
            let options = all.iter().filter_map(|one| Asked::from_description(one, all));
            (vec![experiment["name"].as_str().unwrap()], options.collect())
        })
        .collect();
    assert!(commands.len() > 10);
    frozen("options", &answers(&commands));
}

#[test]
fn options_of_all_runs_are_answered_as_before() {
    let general = of_help(&Program::new(), &["study", "run"]);
    assert!(general.len() > 15);
    let (set, of_run): (Vec<_>, Vec<_>) = general.into_iter().partition(|one| one.name == "set");
    frozen(
        "options-of-runs",
        &answers(&[(vec!["connect"], of_run), (vec!["study", "run", "backlog"], set)]),
    );
}

#[test]
fn options_of_tune_are_answered_as_before() {
    let options = of_help(&Program::new(), &["tune"]);
    assert!(options.len() > 30);
    frozen("options-of-tune", &answers(&[(vec!["tune", "nginx"], options)]));
}
