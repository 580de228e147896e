//! One fault, one cause, one first remedy: do all commands that see a fault name the same?
//!
//! Seven faults, each on a machine in a namespace with real servers and clients, are looked at with six commands. What
//! a command says is compared with `docs/causes.md`: the cause's name, and the words of its first remedy. Then the
//! remedy is in place (the machine is `mended`): the commands must be silent, and clients fare better.

pub(crate) mod races;
mod views;

use std::fmt;

use anyhow::Context as _;
use serde_json::Value;
use tcptoll_core::finding::CAUSES;

use crate::machines::Machine;
use crate::table::Proofs;
use views::{Bench, Said, View};

/// A fault, the commands that see it, and what clients feel of it.
struct Fault {
    /// In words.
    name: &'static str,
    /// The machine that has it.
    machine: &'static str,
    programs: &'static [&'static str],
    /// A section of `docs/causes.md`, and the name of one of its remedies.
    cause: &'static str,
    remedy: &'static str,
    /// Causes that a command may name before it knows more: the first looks at a queue do not tell.
    before: &'static [&'static str],
    /// What runs are aimed at.
    at: &'static str,
    /// Which commands see it, in the order of [`View::ALL`]. The others must say nothing of any fault.
    sees: [bool; 6],
    felt: Felt<'static>,
    /// What clients ask with the remedy, where the remedy is theirs.
    mended: Option<&'static [&'static str]>,
}

/// What clients feel, by `count.py`: what it is asked, and which of its figures are bad.
#[derive(Clone, Copy)]
struct Felt<'w> {
    words: &'w [&'w str],
    bad: &'w [&'w str],
    of: u32,
}

/// Longer than the answer of a mended machine takes.
const SECONDS: &[&str] = &["failed", "waited"];
const APP: &str = "127.0.0.1:8081";
const WEB: &str = "127.0.0.1:8080";

const YES: bool = true;
/// A hundred requests, ten at a time.
const HUNDRED: Felt<'_> =
    Felt { words: &["requests", "127.0.0.1", "8081", "100", "10"], bad: SECONDS, of: 100 };

/// It does not see the fault.
const NO: bool = false;

const FAULTS: &[Fault] = &[
    Fault {
        name: "lasting overload",
        machine: "lasting-overload",
        programs: &["gunicorn"],
        cause: "accept-queue-full",
        remedy: "faster",
        before: &["accept-queue-near"],
        at: APP,
        sees: [YES, YES, YES, YES, YES, YES],
        felt: HUNDRED,
        mended: None,
    },
    Fault {
        name: "bursts",
        machine: "bursts",
        programs: &[],
        cause: "accept-queue-full",
        remedy: "longer",
        before: &["accept-queue-near"],
        at: APP,
        sees: [YES, YES, YES, YES, YES, YES],
        felt: HUNDRED,
        mended: None,
    },
    // A connection to nginx opens as ever.
    Fault {
        name: "stuck pool",
        machine: "stuck-pool",
        programs: &["php-fpm8.2", "nginx"],
        cause: "workers-too-few",
        remedy: "more",
        before: &[],
        at: WEB,
        sees: [NO, YES, YES, YES, YES, YES],
        felt: Felt { words: &["requests", "127.0.0.1", "8080", "20", "2"], bad: SECONDS, of: 20 },
        mended: None,
    },
    Fault {
        name: "local ports run out",
        machine: "ports-out",
        programs: &[],
        cause: "local-ports-scarce",
        remedy: "long-lived",
        before: &[],
        at: "198.51.100.7:8080",
        sees: [YES, YES, YES, YES, YES, YES],
        felt: Felt {
            words: &["connects", "198.51.100.7", "8080", "400", "100"],
            bad: SECONDS,
            of: 400,
        },
        mended: Some(&["pool", "198.51.100.7", "8080", "400", "10"]),
    },
    // Which of both closes first stands in their configurations alone; a short run meets no such moment.
    Fault {
        name: "close race",
        machine: "race-gunicorn-nginx",
        programs: &["nginx", "gunicorn"],
        cause: "close-race",
        remedy: "raise",
        before: &[],
        at: WEB,
        sees: [NO, NO, NO, NO, YES, YES],
        felt: races::RACE,
        mended: None,
    },
    // It harms no connection until the program runs out of file descriptors.
    Fault {
        name: "CLOSE-WAIT leak",
        machine: "leak",
        programs: &[],
        cause: "close-wait-leak",
        remedy: "",
        before: &[],
        at: APP,
        sees: [NO, NO, YES, YES, YES, YES],
        felt: Felt { words: &["left", "8081", "200"], bad: &["close_wait"], of: 200 },
        mended: None,
    },
    // The kernel completes the handshake of a connection that no worker takes.
    Fault {
        name: "workers held by idle connections",
        machine: "workers-held",
        programs: &["apache2"],
        cause: "idle-connections-hold-workers",
        remedy: "",
        before: &[],
        at: APP,
        sees: [NO, YES, YES, YES, YES, YES],
        felt: Felt { words: &["requests", "127.0.0.1", "8081", "40", "4"], bad: SECONDS, of: 40 },
        mended: None,
    },
];

/// What one command made of one fault.
enum Cell {
    /// It does not see the fault, and says nothing.
    Blind,
    /// The cause and the remedy of the page, and nothing else.
    Agrees,
    /// Anything else.
    Differs(String),
}

impl fmt::Display for Cell {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blind => out.write_str("–"),
            Self::Agrees => out.write_str("✓"),
            Self::Differs(how) => out.write_str(how),
        }
    }
}

/// The words of a remedy as the page has them: where no name is given, of its first one.
fn words_of(cause: &str, remedy: &str) -> Option<String> {
    let section = CAUSES.split("\n## ").find(|text| text.lines().next() == Some(cause))?;
    let begins =
        if remedy.is_empty() { "**Remedy `".to_owned() } else { format!("**Remedy `{remedy}`.**") };
    let (_, text) = section.split_once(&begins)?;
    let text = if remedy.is_empty() { text.split_once("`.**")?.1 } else { text };
    let words = text.split("\n\n").next()?.split_whitespace();
    Some(words.collect::<Vec<_>>().join(" ").replace('`', ""))
}

/// Whether a text begins with these words; where they have a word in capitals, it may have any value.
fn begins(text: &str, words: &str) -> bool {
    let is_value = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        bare.len() > 2 && bare.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    let mut parts = vec![String::new()];
    for word in words.split(' ') {
        match parts.last_mut() {
            _ if is_value(word) && !text.contains(word) => parts.push(String::new()),
            Some(part) if part.is_empty() => part.push_str(word),
            Some(part) => part.extend([" ", word]),
            None => {}
        }
    }
    let Some(mut rest) = parts.first().and_then(|first| text.strip_prefix(first.as_str())) else {
        return false;
    };
    parts.iter().skip(1).all(|part| match rest.split_once(part.as_str()) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// The first words of a text.
fn start_of(text: &str) -> String {
    let kept: String = text.chars().take(60).collect();
    if kept.len() < text.len() { format!("{kept}…") } else { kept }
}

fn judge(fault: &Fault, view: View, said: &anyhow::Result<Said>) -> Cell {
    let said = match said {
        Ok(said) => said,
        Err(error) => {
            return Cell::Differs(format!("not asked: {}", start_of(&format!("{error:#}"))));
        }
    };
    let names = |said: &Said| said.keys().cloned().collect::<Vec<_>>().join(", ");
    if !fault.sees[view as usize] {
        return if said.is_empty() { Cell::Blind } else { Cell::Differs(names(said)) };
    }
    let Some(change) = said.get(fault.cause) else {
        let text = if said.is_empty() { "nothing".to_owned() } else { names(said) };
        return Cell::Differs(text);
    };
    let mut wrong = Vec::new();
    match words_of(fault.cause, fault.remedy) {
        None => wrong.push(format!("the page has no remedy; \"{}\"", start_of(change))),
        Some(words) if !begins(change, &words) => wrong.push(format!("\"{}\"", start_of(change))),
        Some(_) => {}
    }
    let known = |id: &&String| **id == fault.cause || fault.before.contains(&id.as_str());
    let others: Vec<_> = said.keys().filter(|id| !known(id)).map(String::as_str).collect();
    if !others.is_empty() {
        wrong.push(format!("also {}", others.join(", ")));
    }
    if wrong.is_empty() { Cell::Agrees } else { Cell::Differs(wrong.join("; ")) }
}

/// What clients felt: how many bad ones, in words, and the moment that the server closed at, for a second count.
struct Count {
    bad: u64,
    words: String,
    period_s: Option<f64>,
}

fn felt(
    machine: &Machine,
    bench: &Bench,
    felt: &Felt<'_>,
    more: Option<f64>,
) -> anyhow::Result<Count> {
    let mut words: Vec<String> = felt.words.iter().map(|word| (*word).to_owned()).collect();
    words.extend(more.map(|period_s| period_s.to_string()));
    let counted: Value = bench.count(machine, &words)?;
    let of = |name: &&str| counted[*name].as_u64().unwrap_or(0);
    let bad = felt.bad.iter().map(of).sum();
    let words = felt.bad.iter().map(|name| match *name {
        "waited" => format!("{} waited 1 s or longer", of(name)),
        "close_wait" => format!("{} in CLOSE-WAIT", of(name)),
        _ => format!("{} × {name}", of(name)),
    });
    let words = words.collect::<Vec<_>>().join(", ");
    Ok(Count { bad, words, period_s: counted["period_s"].as_f64() })
}

/// A table of seven faults and six commands, and what each remedy does: 20 minutes.
pub(crate) fn table(table: &mut Proofs) -> anyhow::Result<()> {
    let bench = Bench::new()?;
    let mut rows = Vec::new();
    let (mut agree, mut cells) = (0, 0);
    for fault in FAULTS {
        let (judged, planted) =
            seen(&bench, fault, "planted", |view, said| judge(fault, view, said))?;
        let before = felt(&planted, &bench, &fault.felt, None)?;
        drop(planted);
        for (view, cell) in View::ALL.iter().zip(&judged) {
            let seen = fault.sees[*view as usize];
            let met = if seen { matches!(cell, Cell::Agrees) } else { matches!(cell, Cell::Blind) };
            (agree, cells) = (agree + usize::from(met), cells + 1);
            let goal = match (seen, fault.remedy) {
                (false, _) => "– (not seen)".to_owned(),
                (true, "") => format!("{}, its first remedy", fault.cause),
                (true, remedy) => format!("{}, remedy {remedy}", fault.cause),
            };
            table.row(&format!("{}: {}", fault.name, view.name()), &goal, &cell.to_string(), met);
        }
        let mut cells: Vec<String> = judged.iter().map(Cell::to_string).collect();
        cells.push(mended(table, &bench, fault, &before)?);
        rows.push([vec![fault.name.to_owned()], cells].concat());
        healthy(table, &bench, fault)?;
    }
    table.row(
        "one fault, one cause, one first remedy: cells",
        &format!("{cells} of {cells}"),
        &format!("{agree} of {cells}"),
        agree == cells,
    );
    let views = View::ALL.iter().map(|view| view.name());
    table.matrix(&["fault"].into_iter().chain(views).chain(["mended"]).collect::<Vec<_>>(), &rows);
    Ok(())
}

/// What each command says, and the machine that was looked at. Runs have a load of their own, so each has a machine of
/// its own.
fn seen<T>(
    bench: &Bench,
    fault: &Fault,
    state: &str,
    judge: impl Fn(View, &anyhow::Result<Said>) -> T,
) -> anyhow::Result<(Vec<T>, Machine)> {
    let needs = || format!("it needs unshare, nsenter, ip, python3 {}", fault.programs.join(" "));
    let start = || Machine::begin(fault.machine, state).with_context(needs);
    let mut judged = Vec::new();
    for view in [View::Connect, View::Http] {
        let own = start()?;
        std::thread::sleep(views::SETTLES);
        judged.push(judge(view, &bench.ask(&own, view, fault)));
    }
    let machine = start()?;
    for view in [View::Watch, View::Report, View::Doctor, View::Explain] {
        judged.push(judge(view, &bench.ask(&machine, view, fault)));
    }
    Ok((judged, machine))
}

/// The same commands and clients with the first remedy in place.
fn mended(
    table: &mut Proofs,
    bench: &Bench,
    fault: &Fault,
    before: &Count,
) -> anyhow::Result<String> {
    let (said, machine) = seen(bench, fault, "mended", |view, said| match said {
        // It explains a name, whatever the machine has.
        Ok(_) if view == View::Explain => None,
        Ok(said) if said.is_empty() => None,
        Ok(said) => {
            let ids: Vec<&str> = said.keys().map(String::as_str).collect();
            Some(format!("{}: {}", view.name(), ids.join(", ")))
        }
        Err(error) => Some(format!("{}: not asked: {error:#}", view.name())),
    })?;
    let loud: Vec<String> = said.into_iter().flatten().collect();
    let words = fault.mended.unwrap_or(fault.felt.words);
    let after = felt(&machine, bench, &Felt { words, ..fault.felt }, before.period_s)?;
    let silent = if loud.is_empty() { "silent".to_owned() } else { loud.join("; ") };
    let counts = format!("{} → {}, of {}", before.words, after.words, fault.felt.of);
    let less = before.bad > 0 && after.bad == 0;
    table.row(
        &format!("{}: mended", fault.name),
        "all commands silent; before: some, after: none",
        &format!("{silent}; {counts}"),
        loud.is_empty() && less,
    );
    Ok(format!("{silent}; {counts}"))
}

/// Without the fault `doctor` finds nothing.
fn healthy(table: &mut Proofs, bench: &Bench, fault: &Fault) -> anyhow::Result<()> {
    let machine = Machine::begin(fault.machine, "healthy")?;
    let said = bench.ask(&machine, View::Doctor, fault)?;
    let ids: Vec<&str> = said.keys().map(String::as_str).collect();
    let text = if ids.is_empty() { "nothing".to_owned() } else { ids.join(", ") };
    table.row(&format!("{}: healthy: doctor", fault.name), "nothing", &text, ids.is_empty());
    Ok(())
}
