//! A hundred lines that people type and that cannot be right: each answer names the problem and the remedy, and no
//! option that there is not.

use std::collections::BTreeSet;

use crate::refused::refused;
use crate::tcptoll;

/// The line after `tcptoll`, and what the answer has to say: the problem, the remedy. Words are separated by blanks;
/// `'a b'` is one word.
const LINES: &[(&str, &[&str])] = &[
    // Words of other tools.
    ("http --latency http://127.0.0.1:9/", &["--latency", "percentiles", "leave it out"]),
    ("http --url http://127.0.0.1:9/", &["--url", "tcptoll http URL"]),
    ("http --to 127.0.0.1:9", &["--to", "tcptoll http URL"]),
    ("http --host 127.0.0.1:9", &["--host", "tcptoll http URL"]),
    ("http --qps 50 127.0.0.1:9", &["--qps", "--rate PER_SECOND"]),
    ("http --json 127.0.0.1:9", &["--json", "--format json"]),
    ("http --disable-keepalive 127.0.0.1:9", &["--disable-keepalive", "--reuse server-close"]),
    ("http --script post.lua 127.0.0.1:9", &["--script", "--access-log FILE"]),
    ("http -s post.lua 127.0.0.1:9", &["-s", "--access-log FILE"]),
    ("http -k 127.0.0.1:9", &["-k", "leave it out"]),
    ("http --http2 127.0.0.1:9", &["--http2", "tcptoll page --protocol h2"]),
    ("http --vus 10 127.0.0.1:9", &["--vus", "--connections N"]),
    ("http --threshold p99 127.0.0.1:9", &["--threshold", "--fail-if"]),
    ("http --output x 127.0.0.1:9", &["--output", "--out FILE", "--html FILE"]),
    ("http --runs 5 127.0.0.1:9", &["--runs", "--rounds N"]),
    ("http --csv x.csv 127.0.0.1:9", &["--csv", "tcptoll report RECORD --csv FILE"]),
    ("http --data x 127.0.0.1:9", &["--data", "--body TEXT"]),
    ("stream --parallel 4", &["--parallel", "--streams N"]),
    ("stream --window-size 64K", &["--window-size", "--window SIZE"]),
    ("stream -w 64K", &["-w", "--window SIZE"]),
    ("messages --nodelay", &["--nodelay", "--nagle off"]),
    ("connect -n 5", &["-n", "--count N"]),
    ("connect --number 5", &["--number", "--count N"]),
    ("connect --host db.example:5432", &["--host", "tcptoll connect --to HOST:PORT"]),
    ("keepalive --url 127.0.0.1:9", &["--url", "--to HOST:PORT"]),
    ("accept-queue --to 127.0.0.1:9", &["--to", "in the lab only", "connect --to HOST:PORT"]),
    // Words that are no commands.
    ("resume run.jsonl", &["resume", "tcptoll study --resume latest"]),
    ("wrk", &["wrk", "tcptoll http URL"]),
    ("http://127.0.0.1:9/", &["http://127.0.0.1:9/", "tcptoll http http://127.0.0.1:9/"]),
    ("127.0.0.1:9", &["127.0.0.1:9", "tcptoll connect 127.0.0.1:9"]),
    ("ping 127.0.0.1", &["ping", "tcptoll connect HOST:PORT"]),
    ("diff a b", &["diff", "tcptoll compare"]),
    ("list", &["list", "tcptoll runs"]),
    ("keep-alive", &["keep-alive", "tcptoll keepalive", "--reuse"]),
    ("conect", &["conect", "connect"]),
    ("repot x", &["repot", "report"]),
    // Values with a unit missing, a wrong one, or out of range.
    ("http --duration 10 127.0.0.1:9", &["--duration 10", "no unit", "10s"]),
    ("http --duration -5s 127.0.0.1:9", &["--duration -5s", "negative", "above 0"]),
    ("http --duration 0 127.0.0.1:9", &["--duration 0", "above 0"]),
    ("http --duration soon 127.0.0.1:9", &["--duration soon", "write a number with"]),
    ("http --duration 1000 ms", &["ms", "no scheme", "http://HOST:PORT/PATH"]),
    ("http --rate fast 127.0.0.1:9", &["--rate fast", "requests per second"]),
    ("http --rate -5 127.0.0.1:9", &["--rate -5", "above 0"]),
    ("http --rate 2x 127.0.0.1:9", &["--rate 2x", "requests per second"]),
    ("http --connections 0 127.0.0.1:9", &["--connections 0", "from 1"]),
    ("http -c -1 127.0.0.1:9", &["--connections -1", "write a whole number"]),
    (
        "http --connections 100k --out /dev/null 127.0.0.1:9",
        &["--connections 100000", "ip_local_port_range"],
    ),
    ("http --threads 9 -c 2 127.0.0.1:9", &["--threads 9", "--connections"]),
    ("http --requests 0 127.0.0.1:9", &["--requests 0", "from 1"]),
    ("http --timeout 5 127.0.0.1:9", &["--timeout 5", "no unit"]),
    ("http --body-limit lots 127.0.0.1:9", &["--body-limit lots", "like 64K"]),
    ("connect --count 1,000", &["--count 1,000", "write 1000"]),
    ("connect --count many", &["--count many", "write a whole number"]),
    ("connect --count 1.5", &["--count 1.5", "write a whole number"]),
    ("connect --rounds 0", &["--rounds", "1..=1000"]),
    ("connect --rounds two", &["--rounds", "two"]),
    ("connect --margin 5", &["--margin", "like 1%"]),
    ("connect --margin 0%", &["--margin", "like 1%"]),
    ("connect --allow-errors 60", &["--allow-errors", "like 60%"]),
    ("connect --target soon", &["--target", "verdict"]),
    ("connect --max-time 2", &["--max-time", "like 2m"]),
    ("connect --link rtt=37", &["--link rtt=37", "no unit"]),
    ("connect --link loss=0.1", &["--link loss=0.1", "0.1%"]),
    ("connect --link rate=100mbps", &["--link rate=100mbps", "mbit"]),
    ("connect --link lattency=5ms", &["lattency", "keys:"]),
    ("connect --link metr", &["metr", "metro"]),
    ("connect --backlog many", &["--backlog many", "write a whole number"]),
    ("connect --bind localhost", &["--bind localhost", "IP address"]),
    ("keepalive --detect-within 100ms", &["--detect-within 100ms", "at least"]),
    ("keepalive --detect-within 30", &["--detect-within 30", "no unit"]),
    ("visitors --memory 512", &["--memory 512", "512M"]),
    ("visitors --rate 0", &["--rate 0", "write a number from"]),
    ("tune apache --memory lots", &["--memory", "lots"]),
    ("tune iis", &["iis", "nginx"]),
    // Words that an option does not have.
    ("http --reuse keepalive", &["--reuse keepalive", "did you mean keep-alive?"]),
    ("http --reuse close", &["--reuse close", "server-close", "client-close"]),
    ("http --method POTS 127.0.0.1:9", &["--method POTS", "did you mean POST?"]),
    ("http --method post 127.0.0.1:9", &["--method post", "capitals"]),
    ("http --tls maybe", &["--tls maybe", "write off, full or resumed"]),
    ("http --io uring", &["--io uring", "did you mean io-uring?"]),
    ("http --spread evenly --rate 5", &["--spread evenly", "constant"]),
    ("http --expect-status ok 127.0.0.1:9", &["--expect-status ok", "200"]),
    ("http --header Accept 127.0.0.1:9", &["--header Accept", "NAME: VALUE"]),
    ("http --format csv 127.0.0.1:9", &["--format", "json"]),
    ("page --protocol http2", &["--protocol http2", "h2"]),
    ("connect --congestion vegan", &["--congestion vegan", "available"]),
    ("connect --first-byte maybe", &["--first-byte maybe", "on or off"]),
    // Options that do not go together, or not with a server of the user's.
    ("http 127.0.0.1:9 --link metro", &["--link needs the lab", "leave one of them out"]),
    ("http 127.0.0.1:9 --server nginx", &["--server needs the lab", "leave one of them out"]),
    (
        "http --keepalive off --keepalive-requests 3",
        &["--keepalive-requests 3", "leave it out, or write --keepalive on"],
    ),
    ("connect 127.0.0.1:9 --pcap x.pcapng", &["--pcap needs the lab", "Leave it out"]),
    ("http -d 1s --fail-if p99>5 127.0.0.1:9", &["--fail-if", "no unit", "5ms"]),
    ("connect 127.0.0.1:9 --backlog 4", &["--backlog needs the lab", "leave one of them out"]),
    ("connect --rounds 3 --target verdict", &["--rounds", "--target"]),
    // Servers that are none.
    ("connect http://127.0.0.1:9/", &["--to http://127.0.0.1:9/", "HOST:PORT"]),
    ("connect 127.0.0.1", &["--to 127.0.0.1", "HOST:PORT"]),
    ("connect 127.0.0.1:http", &["--to 127.0.0.1:http", "HOST:PORT"]),
    ("connect name.invalid:80", &["name.invalid", "does not resolve"]),
    ("http ftp://127.0.0.1/", &["ftp://127.0.0.1/", "http://HOST:PORT/PATH"]),
    ("http http://127.0.0.1:0/", &["http://127.0.0.1:0/", "1 to 65535"]),
    // Limits.
    ("http --fail-if p99>5parsecs 127.0.0.1:9", &["5parsecs", "like 5ms"]),
    ("http --fail-if p99(latncy)>5ms 127.0.0.1:9", &["latncy", "latency_us"]),
    ("http --fail-if speed<5 127.0.0.1:9", &["speed", "requests_per_s"]),
    ("http --fail-if slow 127.0.0.1:9", &["slow", "p99 > 5ms"]),
    // Files and records.
    ("report no-such-run", &["no-such-run", "tcptoll runs"]),
    ("report /no/such.jsonl", &["/no/such.jsonl", "No such file"]),
    ("report Cargo.toml", &["Cargo.toml", "record"]),
    ("report latest", &["latest", "no records"]),
    ("compare Cargo.toml Cargo.toml", &["Cargo.toml", "record"]),
    ("runs --older-than 30", &["--older-than 30", "30d"]),
    ("runs --rm", &["--rm", "--older-than 30d"]),
    ("connect --out /no/such/run.jsonl", &["/no/such/run.jsonl"]),
    ("connect --html /no/such/run.html", &["--html /no/such/run.html"]),
    ("study run backlgo", &["backlgo", "did you mean backlog?"]),
    ("study backlog --set cuont=3", &["--set cuont=3", "did you mean count?"]),
    ("explain accept-quue-full", &["accept-quue-full", "did you mean accept-queue-full?"]),
    ("lab ping 127.0.0.1", &["ping", "tcptoll lab -- ping 127.0.0.1"]),
    ("schema studies", &["studies", "study"]),
    ("completions cmd", &["cmd", "bash"]),
];

#[test]
fn a_wrong_line_is_answered_with_the_problem_and_the_remedy() {
    assert!(LINES.len() >= 100, "{}", LINES.len());
    for (line, says) in LINES {
        let args: Vec<&str> = line.split(' ').collect();
        for part in *says {
            refused(&args, part);
        }
    }
}

#[test]
fn no_answer_names_an_option_that_there_is_not() {
    let reference = include_str!("../../../../docs/reference/cli.md");
    let known: BTreeSet<&str> = options(reference).collect();
    for (line, _) in LINES {
        let args: Vec<&str> = line.split(' ').collect();
        let said = tcptoll(&args).stderr;
        for option in options(&said).filter(|option| !line.contains(option)) {
            assert!(known.contains(option), "{line}: {option} in {said}");
        }
    }
}

/// Every `--option` of a text.
fn options(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("--").filter_map(|(at, _)| {
        let name = &text[at + 2..];
        let end = name.find(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '-');
        let name = &name[..end.unwrap_or(name.len())];
        let begins = !text[..at].ends_with(|c: char| c == '-' || c.is_ascii_alphanumeric());
        (begins && name.starts_with(|c: char| c.is_ascii_lowercase()))
            .then(|| name.trim_end_matches('-'))
    })
}
