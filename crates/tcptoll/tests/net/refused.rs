//! What cannot be right, and what is answered: words of other tools, options that exclude each other, files that
//! are not there, unknown names.

use serde_json::Value;

use crate::lines::{LINES, words};
use crate::printed::commands;
use crate::program::{Program, entry};
use crate::{concurrently, frozen};

/// What is answered to these depends on the machine: its resolver, its range of ports, its Apache.
const OF_THE_MACHINE: [&str; 3] = ["name.invalid", "--connections 100k", "tune apache --memory"];

/// Options that exclude or need each other, files, folders and names.
const MORE: &[&str] = &[
    "accept-queue x",
    "accept-queue --rate 10 --concurrency 5",
    "accept-queue --to 127.0.0.1:9",
    "accept-queue --count 5 --duration 1s",
    "accept-queue --pause 1s",
    "accept-queue --backlog 1,1",
    "connect --count 5 --duration 1s",
    "connect --to 127.0.0.1:9 --link metro",
    "connect 127.0.0.1:9 127.0.0.1:9",
    "connect --to 127.0.0.1:9 --server x",
    "connect --port 5",
    "connect --fast-open on --first-byte off",
    "connect --send x --first-byte on",
    "connect --client ssh://a",
    "connect --client ssh://a --to 127.0.0.1:9",
    "connect --server ssh://a --tap",
    "connect --ipv6 --bind 10.77.0.1",
    "connect --rounds 3 --max-rounds 5",
    "connect --every 5s",
    "connect --start-at 2026-11-26T12:00:00Z",
    "connect --resume x --rounds 3",
    "connect --resume x --dry-run",
    "connect --count 1,2 --backlog 1,2 --rate 1,2 --timeout 1s,2s",
    "connect --count 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32,33",
    "connect --fail-if p99",
    "connect --fail-if x>1",
    "connect --fail-if p99(connect_us)>x",
    "connect --html .",
    "connect --out .",
    "connect --out x --html x",
    "connect --pcap none/x",
    "connect --link-tolerance delay=x",
    "connect --link-tolerance x",
    "connect --distance-km -1",
    "connect --verbose",
    "connect -v",
    "http 127.0.0.1:9 --workers 3",
    "http --url x",
    "http x://y",
    "http https://",
    "http http://[::1",
    "http http://a b",
    "http --method GET --body x",
    "http --body @none",
    "http --access-log none",
    "http --ca none --tls full",
    "http --share 1/2",
    "http --share 3/2 --rate 10",
    "http --requests 5 --duration 1s --tls full --insecure",
    "http --work 1ms",
    "http --server nginx --work 1ms",
    "http --server iis",
    "http --server null,nginx --work 1ms",
    "http --io io-uring --tls full",
    "http --threads 2 --connections 1",
    "http --expect-sha256 zz",
    "keepalive --mechanism none --idle 5s",
    "keepalive --mechanism lazy --probes 3",
    "keepalive --detect-within 30s --idle 5s",
    "keepalive --to 127.0.0.1:9 --fault cut",
    "keepalive --null x",
    "keepalive --fault cut --link direct",
    "messages --pattern one-way --nagle on,off --program java",
    "messages --coalesce buffer --encoding utf",
    "messages --to 127.0.0.1:9",
    "page --site none",
    "page --site . --path none",
    "page --har none",
    "page --protocol h3",
    "page --protocol h2",
    "page --url x --site .",
    "page --shards 0",
    "page 127.0.0.1:9 --link metro",
    "stream --window 1K,1K",
    "stream --direction up,down,sideways",
    "stream --streams 0",
    "stream --memory --io x",
    "syn-queue --half-open 5 --backlog x",
    "syn-queue --link metro,metro",
    "time-wait --ports 5-1",
    "time-wait --ports x",
    "time-wait --closer nobody",
    "visitors --memory 1K",
    "visitors --server nginx --max-workers 5 --php worker",
    "visitors --peak-factor 3",
    "worker-pool --backoff 1ms",
    "worker-pool --front php-fpm --backend x",
    "tour x",
    "tour --html none/x",
    "tour --html .",
    "serve",
    "serve x",
    "serve keepalive --ports 1",
    "serve keepalive --listen x",
    "serve keepalive --idle x",
    "lab",
    "lab --link x -- true",
    "lab true",
    "lab --server",
    "lab --",
    "links x",
    "man x",
    "man study x",
    "completions",
    "completions x",
    "schema x",
    "help x",
    "help study x",
    "study check",
    "study check none",
    "study check none.toml",
    "study check .",
    "study show",
    "study show none",
    "study list x",
    "study none",
    "study run",
    "study run none --dry-run",
    "study backlog --set x --dry-run",
    "study backlog --set backlog=x --dry-run",
    "study backlog --set link=moon --dry-run",
    "study backlog --set =1 --dry-run",
    "study backlgo --dry-run",
    "doctor x",
    "doctor --netns x",
    "doctor --prove x",
    "doctor --html none/x",
    "doctor --duration x",
    "doctor http://x",
    "watch x",
    "watch --interval x",
    "watch --interval 1ms",
    "watch --netns x",
    "watch --once --no-screen",
    "watch --listen x",
    "watch --once --record x --record-limit 1M",
    "watch --record none/x",
    "watch --record-limit x --record y",
    "watch --duration 0s --no-screen",
    "tune",
    "tune x",
    "tune nginx --mpm event",
    "tune apache --mpm x",
    "tune nginx --site none",
    "tune nginx --har none",
    "tune nginx --from none",
    "tune nginx --present none",
    "tune nginx --study backlog",
    "tune nginx --strategy x",
    "tune nginx --url x --site .",
    "tune nginx --prove http://127.0.0.1/",
    "tune nginx --snippet .",
    "merge none",
    "x",
    "",
    "--x",
    "-x",
    "conect",
    "help me",
    "-- connect",
    "connect -- --count 5",
];

#[test]
fn wrong_lines_are_answered_as_before() {
    let experiments = Program::new().printed(&["schema", "experiments"]);
    let experiments: Vec<Value> = serde_json::from_str(&experiments).unwrap();
    let typed = LINES.iter().map(|(line, _)| *line);
    let typed = typed.filter(|line| !OF_THE_MACHINE.iter().any(|of| line.contains(of)));
    let lines: Vec<&str> = typed.chain(MORE.iter().copied()).collect();
    let said = concurrently(&lines, |program, line| {
        program.write("Cargo.toml", "[package]\n");
        let mut words = if line.is_empty() { vec![""] } else { words(line) };
        // Nothing is measured, even if the line is accepted.
        let plans = experiments.iter().any(|one| one["name"] == words[0]) || words[0] == "tune";
        if plans && !words.contains(&"--dry-run") {
            words.insert(1, "--dry-run");
        }
        let said = entry(program, &words);
        assert!(plans || said.ends_with("exit status 2\n\n"), "it was done: {said}");
        said
    });
    frozen("wrong-lines", &said.concat());
}

#[test]
fn unknown_options_of_every_command_are_answered_as_before() {
    let unknown = ["--no-such-option", "-Q", "--format=yaml", "--hlp"];
    let lines: Vec<_> = commands()
        .into_iter()
        .flat_map(|words| unknown.map(|option| [words.clone(), vec![option.to_owned()]].concat()))
        .collect();
    let said = concurrently(&lines, |program, words| {
        let said = entry(program, words);
        assert!(said.ends_with("exit status 2\n\n"), "{said}");
        said
    });
    frozen("unknown-options", &said.concat());
}
