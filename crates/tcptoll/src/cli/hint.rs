//! What does a mistyped command line get as a hint? The option that means the same where a word of another tool was
//! typed, the right way to name the server where that is meant, and a similar word only if it is similar.
//!
//! A letter of another tool is taken where it means the same: `-c -t -d -R -H` are wrk's, `-n -q -z -m`
//! oha's. `-q` is the rate in `http` and silence elsewhere: who types `http -q 2000` means requests per
//! second. Words that mean something else get a tip, and a test checks that each tip names an option that
//! exists.

use std::fmt::Write as _;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory as _, Error};

use super::Cli;
use tcptoll_core::experiment::spec::Spec;
use tcptoll_core::study::nearest;
use tcptoll_measure::experiments;

/// Options by which users name the server they mean.
const NAMES_OF_SERVERS: [&str; 5] = ["to", "url", "target", "host", "hostname"];

/// Options by which users ask `watch` for metrics.
const NAMES_OF_METRICS: [&str; 5] = ["prometheus", "metrics", "export", "exporter", "port"];

/// Options of wrk, ab, hey, oha, k6, iperf3, curl and hyperfine, and what to write here instead. A tip that begins with
/// two dashes is an option, and given only where there is one of its name.
const OF_OTHER_TOOLS: [(&str, &str); 53] = [
    ("I", "--method HEAD"),
    ("L", "redirects are never followed: they count as successes"),
    ("X", "--method NAME, or -m NAME"),
    ("buffer", "--window SIZE"),
    ("buffer-size", "--window SIZE"),
    ("clients", "--connections N"),
    ("csv", "tcptoll report RECORD --csv FILE"),
    ("data", "--body TEXT"),
    ("disable-keepalive", "--reuse server-close"),
    ("disable-redirects", "redirects are never followed: they count as successes"),
    ("export-json", "--out FILE for the record, or --format json for the result"),
    (
        "fix",
        "nothing is changed on this machine: each fix is printed, with its risk and how to undo it",
    ),
    ("graph", "--html FILE writes a report with pictures"),
    ("http1.1", "HTTP/1.1 is the default: leave it out"),
    ("http2", "HTTP/2 is measured by page loads: tcptoll page --protocol h2"),
    ("interval", "the record has figures over time: --html FILE shows them"),
    ("iterations", "--rounds N"),
    ("json", "--format json"),
    ("k", "keep-alive is on by default: leave it out; --reuse client-close turns it off"),
    ("keep-alive", "--reuse keep-alive, which is the default"),
    ("keepalive-time", "tcptoll keepalive --idle TIME"),
    ("latency", "percentiles of the latency are always printed: leave it out"),
    ("length", "--message SIZE"),
    ("location", "redirects are never followed: they count as successes"),
    ("log", "--access-log FILE"),
    ("n", "--count N"),
    ("no-keepalive", "--reuse client-close"),
    ("no-tui", "--quiet"),
    ("nodelay", "--nagle off"),
    ("num", "--count N"),
    ("number", "--count N"),
    ("o", "--out FILE for the record, or --format json for the result"),
    ("output", "--out FILE for the record, or --html FILE for a report"),
    ("parallel", "--streams N"),
    ("pdf", "--html FILE, which a browser prints as PDF"),
    ("postdata", "--body @FILE"),
    ("qps", "--rate PER_SECOND"),
    ("repeat", "--rounds N"),
    ("report", "--html FILE"),
    ("request", "--method NAME, or -m NAME"),
    ("runs", "--rounds N"),
    ("s", "scripts are not supported; --access-log FILE repeats the requests of a log"),
    ("save", "--out FILE"),
    ("script", "scripts are not supported; --access-log FILE repeats the requests of a log"),
    ("silent", "--quiet"),
    ("test-duration", "--duration TIME"),
    ("threshold", "--fail-if 'p99 > 5ms'"),
    ("time", "--duration TIME"),
    ("users", "--connections N; tcptoll visitors measures visitors of a site"),
    ("verbose", "the record has everything: --out FILE, then tcptoll report FILE --format json"),
    ("vus", "--connections N"),
    ("w", "--window SIZE"),
    ("window-size", "--window SIZE"),
];

/// Words that are no commands, and what to write instead.
const COMMANDS: [(&str, &str); 24] = [
    ("ab", "tcptoll http URL"),
    ("apache", "tcptoll tune apache, or tcptoll http --server apache"),
    ("bench", "tcptoll http URL"),
    ("benchmark", "tcptoll http URL"),
    ("diff", "tcptoll compare NEW OLD, like tcptoll compare latest latest~1"),
    ("get", "tcptoll http URL"),
    ("hey", "tcptoll http URL"),
    ("history", "tcptoll runs"),
    ("iperf3", "tcptoll stream, or tcptoll lab -- iperf3 …"),
    (
        "keep-alive",
        "tcptoll keepalive (TCP) or tcptoll http --reuse keep-alive,client-close (HTTP)",
    ),
    ("list", "tcptoll runs for records, or tcptoll study list for studies"),
    ("load", "tcptoll http URL"),
    ("load-test", "tcptoll http URL"),
    ("ls", "tcptoll runs for records, or tcptoll study list for studies"),
    ("nginx", "tcptoll tune nginx, or tcptoll http --server nginx"),
    ("oha", "tcptoll http URL"),
    ("ping", "tcptoll connect HOST:PORT, or tcptoll lab -- ping …"),
    ("prometheus", "tcptoll watch --listen 127.0.0.1:9464"),
    ("resume", "tcptoll study --resume latest"),
    ("run", "tcptoll study NAME, or an experiment: tcptoll connect"),
    ("show", "tcptoll report RECORD.jsonl"),
    ("test", "tcptoll http URL, or tcptoll connect HOST:PORT"),
    ("version", "tcptoll --version"),
    ("wrk", "tcptoll http URL"),
];

/// The error with hints that do not mislead; `args` is the command line.
pub(crate) fn mended(mut error: Error, args: &[String]) -> Error {
    match error.kind() {
        ErrorKind::UnknownArgument => option(error, args),
        ErrorKind::InvalidSubcommand => {
            let Some(typed) = text(&error, ContextKind::InvalidSubcommand) else { return error };
            if let Some(tip) = command(typed) {
                error.remove(ContextKind::SuggestedSubcommand);
                suggest(&mut error, tip);
            }
            error
        }
        _ => error,
    }
}

fn option(mut error: Error, args: &[String]) -> Error {
    let Some(typed) = text(&error, ContextKind::InvalidArg).map(str::to_owned) else {
        return error;
    };
    if let Some(negative) = negative(&typed, args) {
        return Error::raw(ErrorKind::InvalidValue, negative);
    }
    if !typed.starts_with('-') && args.get(1).is_some_and(|command| command == "lab") {
        let at = args.iter().position(|arg| *arg == typed).unwrap_or(args.len());
        let [options, line] = [&args[1..at], &args[at..]].map(|words| {
            tcptoll_show::printable_line(
                &words
                    .iter()
                    .map(|word| tcptoll_show::shell_argument(word))
                    .collect::<Vec<_>>()
                    .join(" "),
            )
        });
        error.remove(ContextKind::SuggestedArg);
        suggest(&mut error, format!("write -- before the command: tcptoll {options} -- {line}"));
        return error;
    }
    let is_word = !typed.starts_with('-');
    let typed = typed.trim_start_matches('-').to_owned();
    let spec = args.iter().find_map(|arg| experiments::find(arg));
    let is_server = |text: &str| {
        NAMES_OF_SERVERS.contains(&text) || (is_word && (text.contains("://") || has_port(text)))
    };
    let server = spec.filter(|_| is_server(&typed)).map(server);
    let extra = (is_word && spec.is_none()).then(|| extra(args, &typed)).flatten();
    let before = args.get(1).filter(|first| first.starts_with('-') && !is_word);
    let before = before.and_then(|_| without_command(&typed, args));
    let is_watch = args.get(1).is_some_and(|command| command == "watch");
    let listen = (is_watch && NAMES_OF_METRICS.contains(&typed.as_str()))
        .then(|| "write --listen 127.0.0.1:9464, which serves metrics for Prometheus".to_owned());
    // ab's keep-alive, or curl's certificates that are not looked at.
    let is_https = args.iter().any(|arg| arg.starts_with("https://"));
    let unverified = (typed == "k"
        && is_https
        && spec.is_some_and(|spec| spec.option("insecure").is_some()))
    .then(|| {
        "write --insecure, if the certificate is not to be verified; keep-alive is on by default"
            .to_owned()
    });
    let tip = server.or(extra).or(before).or(listen).or(unverified);
    let tip = tip.or_else(|| of_another_tool(&typed, &command_of(args)?));
    let similar = text(&error, ContextKind::SuggestedArg);
    let is_similar =
        similar.is_some_and(|similar| nearest(&typed, [similar.trim_start_matches('-')]).is_some());
    if is_similar && tip.is_none() {
        return error;
    }
    error.remove(ContextKind::SuggestedArg);
    // How to pass it as a value is nothing that anyone asked.
    error.remove(ContextKind::Suggested);
    if let Some(tip) = tip {
        suggest(&mut error, tip);
    }
    // The usage that clap writes has the option that it took for similar.
    if let Some(usage) = spec.and_then(usage) {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(usage));
    }
    error
}

/// The command that was typed.
fn command_of(args: &[String]) -> Option<Command> {
    let mut command = Cli::command();
    command.build();
    command.find_subcommand(args.get(1)?).cloned()
}

/// What was meant by a word that a command does not take.
fn extra(args: &[String], typed: &str) -> Option<String> {
    let is_number = typed.bytes().all(|byte| byte.is_ascii_digit());
    match args.get(1)?.as_str() {
        "runs" if is_number => Some(format!("write --count {typed}")),
        "runs" => Some(format!("write tcptoll report {typed}, which shows a record")),
        "links" => Some(format!(
            "write tcptoll connect --link {typed}, or tcptoll lab --link {typed} -- COMMAND; tcptoll links lists all"
        )),
        _ => None,
    }
}

/// An option that was typed where a command has to be.
fn without_command(typed: &str, args: &[String]) -> Option<String> {
    let has = |spec: &&&Spec| spec.option(typed).is_some();
    let mut all = experiments::ALL.iter();
    let spec =
        all.clone().filter(|spec| spec.target.is_some()).find(has).or_else(|| all.find(has))?;
    let line: Vec<_> = args[1..].iter().map(|word| tcptoll_show::shell_argument(word)).collect();
    let line = tcptoll_show::printable_line(&line.join(" "));
    Some(format!("write a command before it, like tcptoll {} {line}", spec.name))
}

fn suggest(error: &mut Error, tip: String) {
    let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
    error.insert(ContextKind::Suggested, tip);
}

fn text(error: &Error, kind: ContextKind) -> Option<&str> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    }
}

fn usage(spec: &Spec) -> Option<StyledStr> {
    let mut command = Cli::command();
    command.build();
    Some(command.find_subcommand_mut(spec.name)?.render_usage())
}

/// What is wrong where `-5s` was taken for an option. None: it is no number.
fn negative(typed: &str, args: &[String]) -> Option<String> {
    let digits = typed.strip_prefix('-')?;
    if !digits.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    let at = args.iter().position(|arg| arg.starts_with(typed))?;
    let option = args[..at].last().filter(|arg| arg.starts_with('-'));
    let before = option.map_or_else(String::new, |option| format!("{option} "));
    let value = tcptoll_show::printable_line(&args[at]);
    Some(format!("{before}{value}: it is negative; write a value above 0\n"))
}

/// The tip for a word that another tool has for an option.
fn of_another_tool(typed: &str, command: &Command) -> Option<String> {
    let (_, tip) = OF_OTHER_TOOLS.iter().find(|(word, _)| *word == typed)?;
    let names: Vec<&str> = options_in(tip).collect();
    let has = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    let is_written = tip.starts_with("--") || tip.starts_with("tcptoll ");
    let tip = || if is_written { format!("write {tip}") } else { (*tip).to_owned() };
    names.into_iter().all(has).then(tip)
}

/// The names of the options of an experiment in a tip: those before the next command.
fn options_in(tip: &str) -> impl Iterator<Item = &str> {
    let own = tip.split("tcptoll ").next().unwrap_or_default();
    own.split("--").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        &rest[..end.unwrap_or(rest.len())]
    })
}

/// The tip for a word that is no command.
fn command(typed: &str) -> Option<String> {
    if let Some((_, tip)) = COMMANDS.iter().find(|(word, _)| *word == typed) {
        return Some(format!("write {tip}"));
    }
    let typed = tcptoll_show::printable_line(typed);
    if typed.contains("://") {
        return Some(format!("write tcptoll http {typed}"));
    }
    has_port(&typed).then(|| format!("write tcptoll connect {typed}, or tcptoll http {typed}"))
}

/// `db.example:5432`.
fn has_port(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
}

/// How to name a server that already runs.
fn server(spec: &Spec) -> String {
    if let Some(written) = written(spec) {
        return format!("name the server like this: tcptoll {written}");
    }
    let others: Vec<String> = experiments::ALL
        .iter()
        .filter_map(|spec| written(spec))
        .map(|w| format!("'{w}'"))
        .collect();
    format!(
        "{} measures in the lab only; these measure a server of yours: {}",
        spec.name,
        others.join(", ")
    )
}

/// `connect HOST:PORT`, `http URL`; `None`: it measures in the lab alone.
fn written(spec: &Spec) -> Option<String> {
    let option = spec.options.iter().find(|option| Some(option.name) == spec.target)?;
    Some(format!("{} {}", spec.name, option.value))
}

// Which command answers which question? The table of `tcptoll help`, and of the README.

/// Question and command.
const QUESTIONS: &[(&str, &str)] = &[
    ("Show me something in a minute", "tcptoll"),
    ("Why is opening a connection slow, or sometimes 1 s?", "tcptoll connect HOST:PORT"),
    ("What does distance cost?", "tcptoll connect --link loopback,metro,cross-region"),
    ("How many requests per second, how fast at p99?", "tcptoll http -c 50 -d 10s URL"),
    ("How fast at 2,000 requests per second?", "tcptoll http --rate 2000 -d 10s URL"),
    ("Server A or server B, or is it noise?", "tcptoll http URL URL"),
    (
        "Keep HTTP connections open, or close them?",
        "tcptoll http --reuse keep-alive,server-close,client-close URL",
    ),
    (
        "Which keep-alive settings detect a dead peer in 30 s?",
        "tcptoll keepalive --detect-within 30s",
    ),
    (
        "What do keep-alive probes cost with 10,000 idle connections?",
        "tcptoll keepalive --connections 10000 --writer off",
    ),
    (
        "What does a full accept queue do, and which backlog is enough?",
        "tcptoll accept-queue --backlog 16,128,4096",
    ),
    (
        "\"Cannot assign requested address\": how many connections per second?",
        "tcptoll explain EADDRNOTAVAIL",
    ),
    ("What does opening cost when local ports run low?", "tcptoll time-wait"),
    ("The backend hangs: what happens to the worker pool?", "tcptoll worker-pool"),
    (
        "Which socket buffer fills this link?",
        "tcptoll stream --link rtt=40ms,rate=1gbit --window auto,64K,1M",
    ),
    (
        "Why do small messages take 40 ms?",
        "tcptoll messages --pattern write-write-read --nagle on,off",
    ),
    (
        "How does my page load at a round trip of 100 ms?",
        "tcptoll page --site FOLDER --link rtt=100ms",
    ),
    (
        "HTTP/1.1 or HTTP/2, where 1 % of packets are lost?",
        "tcptoll page --link rtt=40ms,loss=1% --tls on --protocol http/1.1,h2",
    ),
    (
        "Which KeepAliveTimeout and MaxRequestWorkers for this memory?",
        "tcptoll tune apache-prefork --memory 512M --worker-memory 20M",
    ),
    ("What is wrong with this machine's settings?", "tcptoll doctor"),
    ("What do this machine's connections do right now?", "tcptoll watch"),
    ("How do I get them into Prometheus?", "tcptoll watch --listen 127.0.0.1:9464"),
    (
        "Run ping or another program over a link of 37 ms",
        "tcptoll lab --link cross-region --server 'python3 -m http.server 80' -- sh -c 'ping -c 3 $TCPTOLL_SERVER; curl $TCPTOLL_SERVER'",
    ),
    (
        "Measure between two machines of mine, on both sides",
        "tcptoll connect --server ssh://user@b",
    ),
    ("Is it slow from everywhere, or from Frankfurt?", "tcptoll merge *.jsonl"),
    ("How do I make it fail in CI?", "tcptoll http -c 20 -d 10s --fail-if 'p99 > 5ms' URL"),
    (
        "Which runs have I made? How do I show one to a colleague?",
        "tcptoll runs; tcptoll report latest --html report.html",
    ),
    (
        "Did it get slower since yesterday? (run it on both days)",
        "tcptoll http --rounds 15 URL; tcptoll compare latest latest~1",
    ),
    ("Can I repeat a published measurement?", "tcptoll study list"),
];

/// The table for a terminal of 80 columns or more: each command below its question.
pub(super) fn questions() -> String {
    let mut text = String::from("Questions and commands:\n");
    for (question, command) in QUESTIONS {
        let _ = writeln!(text, "  {question}\n      {command}");
    }
    text.push_str("  Anything else about one command\n      tcptoll COMMAND --help\n\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    fn said(line: &str) -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        mended(Cli::try_parse_from(&words).unwrap_err(), &words).to_string()
    }

    #[test]
    fn who_names_a_server_by_a_wrong_option_is_told_the_right_way() {
        let http = said("tcptoll http --to 127.0.0.1:80");
        assert!(http.contains("tip: name the server like this: tcptoll http URL\n"), "{http}");
        assert!(http.contains("Usage: tcptoll http [OPTIONS] [URL]"), "{http}");
        let lab_alone = said("tcptoll accept-queue 127.0.0.1:80");
        assert!(lab_alone.contains("measures in the lab only"), "{lab_alone}");
        assert!(!http.contains("similar") && !http.contains("link-tolerance"), "{http}");
        let connect = said("tcptoll connect --host db.example:5432");
        assert!(connect.contains("like this: tcptoll connect HOST:PORT"), "{connect}");
        let alone: Vec<&Spec> =
            experiments::ALL.iter().copied().filter(|spec| spec.target.is_none()).collect();
        assert!(!alone.is_empty());
        for spec in alone {
            let text = said(&format!("tcptoll {} --to 127.0.0.1:80", spec.name));
            let says = format!("tip: {} measures in the lab only; ", spec.name);
            assert!(text.contains(&says) && text.contains("'connect HOST:PORT'"), "{text}");
            assert!(!text.contains("similar"), "{text}");
        }
    }

    #[test]
    fn an_option_is_called_similar_only_if_it_is() {
        let near = said("tcptoll connect --conections 5");
        assert!(near.contains("tip: a similar argument exists: '--connections'"), "{near}");
        let far = said("tcptoll connect --first-connection-timeout 5");
        assert!(!far.contains("similar") && far.contains("unexpected argument"), "{far}");
        let nothing = said("tcptoll study --to 127.0.0.1:80");
        assert!(!nothing.contains("similar"), "{nothing}");
        // Every other error stays as it is.
        assert!(said("tcptoll connect --rounds 0").contains("--rounds"));
    }

    #[test]
    fn a_word_of_another_tool_gets_the_option_that_means_the_same() {
        for (line, says) in [
            ("tcptoll http --latency", "tip: percentiles of the latency are always printed"),
            ("tcptoll http --qps 5", "tip: write --rate PER_SECOND"),
            ("tcptoll http --json", "tip: write --format json"),
            ("tcptoll http --disable-keepalive", "tip: write --reuse server-close"),
            ("tcptoll stream --parallel 4", "tip: write --streams N"),
            ("tcptoll http -X POST", "tip: write --method NAME, or -m NAME"),
            ("tcptoll http -o x", "tip: write --out FILE for the record"),
            ("tcptoll report latest --pdf", "tip: write --html FILE, which a browser prints"),
            ("tcptoll doctor --json", "tip: write --format json"),
            ("tcptoll doctor --fix", "tip: nothing is changed on this machine"),
            ("tcptoll runs 5", "tip: write --count 5"),
            ("tcptoll runs latest", "tip: write tcptoll report latest"),
            ("tcptoll links metro", "tip: write tcptoll connect --link metro"),
            ("tcptoll --link metro", "a command before it, like tcptoll connect --link metro"),
        ] {
            let text = said(line);
            assert!(text.contains(says), "{text}");
            assert!(!text.contains("as a value"), "{text}");
        }
        // Only where there is such an option.
        assert!(!said("tcptoll page --qps 5").contains("--rate"));
    }

    #[test]
    fn every_tip_names_options_of_some_experiment() {
        let known = Cli::command();
        for (word, tip) in OF_OTHER_TOOLS {
            let given = known.get_subcommands().any(|one| of_another_tool(word, one).is_some());
            assert!(given, "{word}: {tip}");
        }
        assert!(OF_OTHER_TOOLS.is_sorted() && COMMANDS.is_sorted());
        for (word, tip) in COMMANDS {
            assert!(known.find_subcommand(word).is_none(), "{word}");
            for rest in tip.split("tcptoll ").skip(1) {
                let name = rest.split([' ', ',']).next().unwrap_or_default();
                assert!(name.starts_with("--") || known.find_subcommand(name).is_some(), "{tip}");
            }
        }
    }

    #[test]
    fn a_negative_value_is_named_with_its_option() {
        let text = said("tcptoll http --duration -5s");
        assert_eq!(text, "error: --duration -5s: it is negative; write a value above 0\n");
    }

    #[test]
    fn who_asks_a_watch_for_metrics_gets_its_option() {
        let text = said("tcptoll watch --prometheus 127.0.0.1:9464");
        assert!(text.contains("tip: write --listen 127.0.0.1:9464"), "{text}");
    }

    #[test]
    fn a_word_that_is_no_command_gets_the_command_that_is_meant() {
        for (line, says) in [
            ("tcptoll resume", "tip: write tcptoll study --resume latest"),
            ("tcptoll http://127.0.0.1/", "tip: write tcptoll http http://127.0.0.1/"),
            ("tcptoll db:5432", "tip: write tcptoll connect db:5432"),
            ("tcptoll wrk", "tip: write tcptoll http URL"),
            ("tcptoll lab ping host", "tip: write -- before the command: tcptoll lab -- ping host"),
        ] {
            let text = said(line);
            assert!(text.contains(says) && !text.contains("similar"), "{text}");
        }
    }

    #[test]
    fn the_readme_has_the_same_table() {
        let readme = include_str!("../../../../README.md");
        for (question, command) in QUESTIONS {
            let row = format!("| {question} | `{command}`");
            assert!(readme.contains(&row), "{row}");
        }
    }
}
