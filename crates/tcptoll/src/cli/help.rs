//! What is on the one screen of `-h`? The list of commands by what one wants to do, and of a command the options that
//! nine users in ten need, with three examples. `--help` has all and `help` the questions: both are clap's.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};
use tcptoll_core::experiment::brief::{Brief, DRY_RUN, Group, HTML, LINK, MAX_TIME, ROUNDS, Row};
use tcptoll_measure::experiments;

use super::{ALONE, Cli};

/// What one wants to do, in the order of the list.
const GROUPS: [(Group, &str); 4] = [
    (Group::Diagnose, "Diagnose this host"),
    (Group::Load, "Load a server of yours, or one in the lab"),
    (Group::Setting, "Try a setting in the lab"),
    (Group::Results, "Results"),
];

/// Of `study`, with `run` or without.
const STUDY: &[Row<'static>] = &[
    ("set", "a setting of every arm, e.g. --set link=metro"),
    ROUNDS,
    MAX_TIME,
    DRY_RUN,
    ("resume", "continue a run that was stopped"),
    ("out", "the record"),
    HTML,
];

/// The one screen of each command that is no experiment.
const COMMANDS: [(&str, Brief); 12] = [
    (
        "doctor",
        Brief {
            group: Group::Diagnose,
            line: "find faults of connections, servers and settings, in 5 s",
            options: &[
                ("duration", "observe for this time, from 1s to 1h"),
                ("netns", "network namespace (container) of a process"),
                ("prove", "reproduce a finding in the lab, and its fix"),
                ("format", "json prints one object"),
                HTML,
                ("quiet", "print no progress"),
            ],
            examples: &[
                ("doctor", "what is wrong, and its fix"),
                ("doctor --duration 5m --html doctor.html", "rare faults too"),
                ("doctor --prove accept-queue-full", "fault and fix in the lab"),
            ],
        },
    ),
    (
        "watch",
        Brief {
            group: Group::Diagnose,
            line: "monitor queues, drops, ports and faults; for Prometheus too",
            options: &[
                ("once", "observe for one second, print the state, exit"),
                ("interval", "time between two samples"),
                ("duration", "exit after this time, e.g. 8h"),
                ("netns", "network namespace (container) of a process"),
                ("record", "record what is seen; tcptoll report FILE shows it"),
                ("listen", "serve metrics for Prometheus, e.g. 127.0.0.1:9464"),
                ("no-screen", "print a line when a fault begins and when it ends"),
                ("format", "json prints one object per sample"),
            ],
            examples: &[
                ("watch", "h shows the keys, q quits"),
                ("watch --once --format json", "the state now, for scripts"),
                ("watch --record night.jsonl --duration 8h", "then: tcptoll report"),
            ],
        },
    ),
    (
        "explain",
        Brief {
            group: Group::Diagnose,
            line: "what a cause, warning, error or counter means, and its fix",
            ..Brief::NONE
        },
    ),
    (
        "tune",
        Brief {
            line: "the settings of Apache or nginx with the shortest page times",
            options: &[
                ("site", "your own files"),
                ("url", "copy this page, and serve it in the lab"),
                ("access-log", "visitors and pages of your log"),
                ("memory", "memory of the server, e.g. 512M"),
                ("worker-memory", "memory that a worker adds, e.g. 20M"),
                ("rate", "new visitors per second"),
                ("present", "compare with your configuration file"),
                ("snippet", "write the found lines of configuration"),
                ("compare-time", "time limit for the comparison; 0s: none"),
                DRY_RUN,
            ],
            examples: &[
                ("tune nginx --dry-run", "how long would it take?"),
                ("tune apache-prefork --memory 512M", "a small server"),
                ("tune apache --present apache2.conf", "is yours the best?"),
            ],
            ..Brief::NONE
        },
    ),
    (
        "study",
        Brief {
            line: "prepared comparisons: study list, study show, study check",
            options: STUDY,
            examples: &[
                ("study list", "names and questions"),
                ("study backlog --max-time 5m", "run one"),
                ("study check mine.toml", "what is wrong with a file of yours"),
            ],
            ..Brief::NONE
        },
    ),
    (
        "study run",
        Brief {
            options: STUDY,
            examples: &[
                ("study run backlog --max-time 5m", "one that is built in"),
                ("study run mine.toml", "a file of yours"),
                ("study run --resume latest", "what was stopped goes on"),
            ],
            ..Brief::NONE
        },
    ),
    (
        "lab",
        Brief {
            line: "run any program between two hosts over an emulated link",
            options: &[
                LINK,
                ("server", "command that starts a server"),
                ("client-sysctl", "a setting of the client's host"),
                ("server-sysctl", "a setting of the server's host"),
                ("pcap", "packets of both hosts, for Wireshark"),
                ("ipv6", "use IPv6"),
                ("quiet", "do not print the measured link"),
            ],
            examples: &[
                ("lab --link metro -- sh -c 'ping -c3 $TCPTOLL_SERVER'", ""),
                ("lab --server 'iperf3 -s' -- sh -c 'iperf3 -c $TCPTOLL_SERVER'", ""),
                ("lab --link mobile -- bash", "a shell"),
            ],
            ..Brief::NONE
        },
    ),
    (
        "report",
        Brief {
            group: Group::Results,
            line: "a recorded run as text, HTML, SVG, CSV, Markdown or JSON",
            options: &[
                ("html", "a page with charts, which a browser prints as PDF"),
                ("svg", "the first picture, for documents and slides"),
                ("csv", "a line per arm and metric"),
                ("markdown", "tables to paste"),
                ("format", "json prints one object"),
            ],
            examples: &[
                ("report latest", "the newest; runs lists all"),
                ("report latest --html r.html", "a page for a colleague"),
                ("report a.jsonl b.jsonl --html all.html", "two runs on one page"),
            ],
        },
    ),
    (
        "runs",
        Brief {
            group: Group::Results,
            line: "the records of this machine, newest first",
            ..Brief::NONE
        },
    ),
    (
        "compare",
        Brief {
            group: Group::Results,
            line: "two records of one experiment: is it slower than yesterday?",
            options: &[
                ("metric", "what is compared; may be repeated"),
                ("margin", "smallest difference that matters, e.g. 2%"),
                ("format", "json prints one object"),
            ],
            examples: &[
                ("compare latest latest~1", "the newest two"),
                ("compare new.jsonl old.jsonl --margin 2%", ""),
                ("http --rounds 15 URL", "'no difference' needs 15 each"),
            ],
        },
    ),
    (
        "merge",
        Brief {
            group: Group::Results,
            line: "records of several machines that ran the same study",
            options: &[
                ("out", "the merged record"),
                ("missing", "a machine without a record, and why"),
                ("margin", "smallest difference that matters, e.g. 1%"),
                ("clock-bound", "how well the difference of the clocks is known"),
                ("format", "json prints one object"),
            ],
            examples: &[
                ("study mine.toml --vantage fra1 --out fra1.jsonl", "on each machine"),
                ("merge *.jsonl --out all.jsonl", "all together"),
                ("merge *.jsonl --missing 'sgp1=it was down'", "one has no record"),
            ],
        },
    ),
    (
        "serve keepalive",
        Brief {
            options: &[
                ("listen", "address to listen on"),
                ("ports", "two ports, SO_KEEPALIVE off and on; 0: any"),
                ("idle", "TCP_KEEPIDLE of the second port, e.g. 45s"),
                ("interval", "TCP_KEEPINTVL of the second port, e.g. 5s"),
                ("probes", "TCP_KEEPCNT of the second port"),
            ],
            examples: &[
                ("serve keepalive --ports 7001,7002", "then, elsewhere:"),
                ("keepalive 127.0.0.1:7001 --mechanism heartbeat", ""),
            ],
            ..Brief::NONE
        },
    ),
];

/// Examples below the list of commands.
const EXAMPLES: [Row<'static>; 3] = [
    ("tcptoll doctor", "what is wrong with this machine?"),
    ("tcptoll connect HOST:PORT", "why is opening a connection slow?"),
    ("tcptoll http -c 50 -d 10s URL", "how many requests per second, how fast?"),
];

/// The text where a command line asks for help that is not clap's; `None`: clap's own is printed.
pub(crate) fn help(args: &[String]) -> Option<String> {
    let words = args.get(1..).unwrap_or_default();
    let mut command = Cli::command();
    command.build();
    let mut name = Vec::new();
    for word in words {
        let Some(inner) = command.find_subcommand(word) else { break };
        name.push(word.as_str());
        command = inner.clone();
    }
    match name.first() {
        None => return Some(commands(&command)),
        Some(&"help") => return None,
        Some(_) => {}
    }
    let asked = words.iter().find(|word| matches!(word.as_str(), "-h" | "--help"));
    if asked.is_none_or(|word| word == "--help") {
        return None;
    }
    let name = name.join(" ");
    let of_experiment = experiments::find(&name).map(|spec| (spec.brief, spec.target));
    let of_command = || {
        let own =
            COMMANDS.iter().find(|(known, brief)| *known == name && !brief.options.is_empty());
        own.map(|(_, brief)| (*brief, None))
    };
    let (brief, target) = of_experiment.or_else(of_command)?;
    Some(screen(&mut command, &name, &brief, target))
}

/// The list of commands.
fn commands(command: &Command) -> String {
    let of_experiments = experiments::ALL.iter().map(|spec| (spec.name, spec.brief));
    let all: Vec<(&str, Brief)> = of_experiments.chain(COMMANDS).collect();
    let mut text = command.get_about().map(ToString::to_string).unwrap_or_default();
    text += "\n\nUsage: tcptoll COMMAND [OPTIONS]; tcptoll alone is a tour of a minute\n";
    for (group, title) in GROUPS {
        let rows = all.iter().filter(|(_, brief)| brief.group == group && !brief.line.is_empty());
        let rows: Vec<Row<'_>> = rows.map(|(name, brief)| (*name, brief.line)).collect();
        let _ = write!(text, "\n{title}:\n{}", table(&rows));
    }
    let listed =
        |name: &&str| all.iter().any(|(known, brief)| known == name && !brief.line.is_empty());
    let others = command.get_subcommands().map(Command::get_name);
    let others: Vec<&str> = others.filter(|name| *name != "help" && !listed(name)).collect();
    let _ = write!(text, "Other: {}\n\nExamples:\n{}", others.join(", "), table(&EXAMPLES));
    text + "tcptoll COMMAND -h: its usual options; --help: all; tcptoll help: questions\n"
}

/// The one screen of a command.
fn screen(command: &mut Command, name: &str, brief: &Brief, target: Option<&str>) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let usage = command.render_usage().to_string();
    let usage = usage.lines().next().unwrap_or_default();
    let rows = brief.options.iter().filter_map(|&(option, line)| {
        let is_target = target == Some(option);
        let is = |arg: &&Arg| {
            let alone = arg.get_id() == ALONE || (arg.is_positional() && arg.get_id() == option);
            if is_target { alone } else { arg.get_long() == Some(option) }
        };
        Some((label(command.get_arguments().find(is)?), line))
    });
    let rows: Vec<(String, &str)> = rows.collect();
    let rows: Vec<Row<'_>> = rows.iter().map(|(label, line)| (label.as_str(), *line)).collect();
    let examples: Vec<(String, &str)> =
        brief.examples.iter().map(|(line, what)| (format!("tcptoll {line}"), *what)).collect();
    let examples: Vec<Row<'_>> =
        examples.iter().map(|(line, what)| (line.as_str(), *what)).collect();
    let all = command.get_arguments().filter(|arg| arg.get_long().is_some()).count();
    format!(
        "{about}\n\n{usage}\n\n{}\nExamples:\n{}\nThese are {} of {all} options; tcptoll {name} --help explains all.\n",
        table(&rows),
        table(&examples),
        brief.options.len(),
    )
}

/// `-c, --connections N`.
fn label(arg: &Arg) -> String {
    let values = arg.get_value_names().unwrap_or_default();
    let value = if arg.get_action().takes_values() { values.join(" ") } else { String::new() };
    match (arg.get_short(), arg.get_long()) {
        (_, None) => value,
        (Some(letter), Some(long)) => format!("-{letter}, --{long} {value}").trim_end().to_owned(),
        (None, Some(long)) => format!("    --{long} {value}").trim_end().to_owned(),
    }
}

/// Two columns.
fn table(rows: &[Row<'_>]) -> String {
    let column = rows.iter().map(|(first, _)| first.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (first, second) in rows {
        let _ = writeln!(text, "{}", format!("  {first:column$}  {second}").trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(line: &str) -> Option<String> {
        help(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn the_list_of_commands_has_each_once_and_fits_on_40_lines() {
        let text = said("tcptoll -h").unwrap();
        assert!(text.lines().count() <= 40, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let row = format!("\n  {name} ");
            let other = text.lines().find(|line| line.starts_with("Other: ")).unwrap();
            let is_other = other[7..].split(", ").any(|other| other == name);
            assert!(text.contains(&row) != is_other, "{name}: {text}");
        }
        assert_eq!(said("tcptoll --help"), Some(text));
        assert_eq!(said("tcptoll help"), None);
    }

    #[test]
    fn a_command_has_one_screen_that_names_options_that_it_has_and_counts_them() {
        let names = experiments::ALL.iter().map(|spec| (spec.name, spec.brief));
        for (name, brief) in names.chain(COMMANDS).filter(|(_, brief)| !brief.options.is_empty()) {
            let text = said(&format!("tcptoll {name} -h")).unwrap();
            assert!(text.lines().count() <= 22, "{name}: {} lines\n{text}", text.lines().count());
            let wide = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{name}");
            // Usage, options, examples: each is there.
            let rows = text.split("\n\n").nth(2).unwrap().lines().count();
            assert_eq!(
                rows,
                brief.options.len(),
                "{name}: an option that it does not have\n{text}"
            );
            assert!(text.contains(&format!("tcptoll {name} --help")), "{text}");
            assert_eq!(said(&format!("tcptoll {name} --help")), None);
        }
    }

    #[test]
    fn every_other_command_s_help_is_one_screen_by_itself() {
        let mut all = Cli::command().term_width(80);
        all.build();
        for command in all.get_subcommands_mut() {
            if said(&format!("tcptoll {} -h", command.get_name())).is_none()
                && command.get_name() != "help"
            {
                let lines = command.render_help().to_string().lines().count();
                assert!(lines <= 22, "{}: {lines}", command.get_name());
            }
        }
    }

    #[test]
    fn every_example_is_a_command_line_that_is_taken() {
        use clap::Parser as _;
        let briefs = experiments::ALL.iter().map(|spec| spec.brief);
        let briefs = briefs.chain(COMMANDS.map(|(_, brief)| brief));
        for (line, _) in briefs.flat_map(|brief| brief.examples) {
            let mut words = vec!["tcptoll".to_owned()];
            // Quoted words are one.
            for (at, part) in line.split('\'').enumerate() {
                if at % 2 == 1 {
                    words.push(part.to_owned());
                } else {
                    words.extend(part.split_whitespace().map(str::to_owned));
                }
            }
            if let Err(error) = Cli::try_parse_from(&words) {
                panic!("{line}: {error}");
            }
        }
    }
}
