//! Which command answers which question? The table of `tcptoll help`, and of the README.

use std::fmt::Write as _;

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
pub(super) fn text() -> String {
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

    #[test]
    fn the_readme_has_the_same_table() {
        let readme = include_str!("../../../../README.md");
        for (question, command) in QUESTIONS {
            let row = format!("| {question} | `{command}`");
            assert!(readme.contains(&row), "{row}");
        }
    }
}
