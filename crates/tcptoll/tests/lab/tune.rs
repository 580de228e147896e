//! `tune`: a search with real servers. Witnesses: the memory that was asked for, the servers' own check of the
//! configuration, the log of a server that was switched.
//!
//! Trials are short, so nothing is expected of page times. A machine that is too busy for a trial excludes it and says so.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tcptoll::tune::found::{Found, VERSION};
use tcptoll::tune::setting::Cell;
use tcptoll::tune::setting::Setting;
use tcptoll::tune::snippet::{Distribution, Snippet};
use tcptoll_measure::pages::Server;

use crate::support::{Folder, Ran, TOLERANCE, lacks, run, tcptoll};

/// Modules of Debian's Apache.
const MODULES: &str = "/usr/lib/apache2/modules";

fn tuned(folder: &Folder, args: &[&str]) -> Ran {
    let out = folder.path("tune.json");
    let own = ["tune", "--quiet", "--format", "json", "--out", &out, "--link-tolerance", TOLERANCE];
    let mut command = tcptoll(&[&own[..1], args, &own[1..]].concat());
    command.env("XDG_DATA_HOME", folder.file("data"));
    run(&mut command)
}

/// The result of a search that measured something. None: the machine was too busy for every trial.
fn found(folder: &Folder, ran: &Ran) -> Option<Found> {
    let found: Found = serde_json::from_str(&ran.stdout).unwrap();
    let stored: Found =
        serde_json::from_slice(&fs::read(folder.file("tune.json")).unwrap()).unwrap();
    assert_eq!(stored, found, "the file that was asked for");
    if found.cells.is_empty() {
        assert_eq!(ran.status, Some(2), "{}", ran.stderr);
        assert!(found.doubts.iter().any(|doubt| doubt.contains("not measured")), "{found:?}");
        return None;
    }
    assert!(matches!(ran.status, Some(0 | 1)), "{:?}: {}", ran.status, ran.stderr);
    Some(found)
}

/// Whether Apache itself takes a file.
fn apache_takes(folder: &Folder, mpm: &str, file: &Path) -> bool {
    let conf = folder.file("whole.conf");
    let root = conf.parent().unwrap().display();
    let text = format!(
        "ServerRoot \"{root}\"\nDefaultRuntimeDir \"{root}\"\nPidFile \"{root}/pid\"\nErrorLog \"{root}/log\"\n\
         ServerName localhost\nListen 127.0.0.1:1\nLoadModule mpm_{mpm}_module {MODULES}/mod_mpm_{mpm}.so\n\
         Include {}\n",
        file.display()
    );
    fs::write(&conf, text).unwrap();
    let ran = run(Command::new("apache2").arg("-t").arg("-f").arg(&conf));
    assert!(ran.stderr.contains("Syntax OK") || ran.status != Some(0), "{}", ran.stderr);
    ran.status == Some(0)
}

#[test]
fn a_search_weighs_workers_measures_settings_and_writes_a_configuration_that_apache_takes() {
    if lacks(&["apache2"]) {
        return;
    }
    let folder = Folder::new();
    let snippet = folder.path("found.conf");
    let page = folder.path("page.html");
    let load = ["--memory", "512M", "--worker-memory", "10M", "--rate", "3", "--pages", "1"];
    let time = ["--duration", "1s", "--warmup", "1s", "--compare-time", "0s", "--seed", "1"];
    let how =
        ["--strategy", "dedicated-2016", "--behind-timeout", "60s", "--distribution", "debian"];
    let files = ["--snippet", &snippet, "--html", &page];
    let ran = tuned(&folder, &[&["apache-prefork"], &load[..], &time, &how, &files].concat());
    let Some(found) = found(&folder, &ran) else { return };
    assert_eq!(found.tune_version, VERSION);
    assert!(found.server_version.as_ref().is_some_and(|name| name.starts_with("Apache/")));
    if let Some(weight) = &found.weight {
        // Ten MiB were asked for, and a process has some of its own.
        assert!((10 << 20..40 << 20).contains(&weight.worker_bytes), "{weight:?}");
        assert!(weight.bytes(weight.fits) <= 512 << 20, "{weight:?}");
        assert!(weight.bytes(weight.fits + 4) > 486 << 20, "95 % are used: {weight:?}");
    }
    assert!(matches!(found.memory_limited_by.as_deref(), Some("kernel" | "watch")));
    for cell in &found.cells {
        assert!(cell.pages >= cell.failed && cell.rounds > 0, "{cell:?}");
        assert!(cell.workers_held_peak <= cell.setting.workers as f64, "{cell:?}");
    }
    let chosen = found.chosen().unwrap();
    assert!(chosen.setting.timeout_ms.is_some(), "the document never turns KeepAlive off");
    let behind = found.behind.as_ref().unwrap();
    assert!(!behind.holds, "5 s at most, and the balancer has 60 s");
    assert_eq!(ran.status, Some(1));
    assert!(apache_takes(&folder, "prefork", Path::new(&snippet)));
    assert!(fs::read_to_string(&page).unwrap().contains("MaxRequestWorkers"));
    let report = &found.stages.last().unwrap().record;
    assert!(Path::new(report.as_ref().unwrap()).exists(), "each stage has its record");
}

/// A setting that was found before.
fn earlier(server: Server, setting: Setting) -> Found {
    let cell = Cell { setting, rounds: 1, pages: 9, page_us_p95: Some(9e4), ..Cell::default() };
    Found {
        tune_version: VERSION,
        server,
        strategy: "search".to_owned(),
        choice: Some(setting),
        cells: vec![cell],
        load: [("rate", "4"), ("pages", "1"), ("duration", "1s"), ("warmup", "500ms")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into(),
        ..Found::default()
    }
}

#[test]
fn every_configuration_that_can_be_found_is_taken_by_the_server_itself() {
    if lacks(&["apache2", "nginx"]) {
        return;
    }
    for server in Server::ALL {
        for timeout_ms in [None, Some(100), Some(1_500), Some(65_000)] {
            for (requests, workers) in [(100, 22), (0, 1), (30, 1_200)] {
                let setting = Setting { timeout_ms, requests, workers };
                let snippet = Snippet::new(server, Distribution::Debian, &setting, (&[], "none"));
                let folder = Folder::new();
                if let Some(mpm) = server.mpm() {
                    let file = folder.file("found.conf");
                    fs::write(&file, snippet.text()).unwrap();
                    assert!(apache_takes(&folder, mpm, &file), "{}", snippet.text());
                } else {
                    nginx_takes(&folder, &snippet);
                }
            }
        }
    }
    // A check that cannot fail would be none.
    let folder = Folder::new();
    let wrong = folder.file("wrong.conf");
    fs::write(&wrong, "MaxWorkers 7\n").unwrap();
    assert!(!apache_takes(&folder, "event", &wrong));
}

fn nginx_takes(folder: &Folder, snippet: &Snippet) {
    let [http, events] = &snippet.pieces[..] else { panic!("{snippet:?}") };
    let conf = folder.file("nginx.conf");
    let root = conf.parent().unwrap().display();
    let text = format!(
        "pid {root}/pid;\nerror_log {root}/log;\nevents {{\n{}\n}}\nhttp {{\naccess_log off;\n{}\n}}\n",
        events.lines.join("\n"),
        http.lines.join("\n")
    );
    fs::write(&conf, &text).unwrap();
    let ran = run(Command::new("nginx").arg("-t").arg("-c").arg(&conf));
    assert_eq!(ran.status, Some(0), "{text}: {}", ran.stderr);
}

/// nginx on a port of this machine that was free; it ends with the test.
struct Staging {
    child: Child,
    at: String,
}

impl Staging {
    /// Serves a page with the file `use.conf` in its configuration, and writes a log.
    fn start(folder: &Folder) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let root = folder.file("nginx.conf").parent().unwrap().display().to_string();
        fs::create_dir_all(folder.file("html")).unwrap();
        fs::write(folder.file("html/index.html"), "<link rel=stylesheet href=a.css>").unwrap();
        fs::write(folder.file("html/a.css"), "p { color: red }").unwrap();
        fs::write(folder.file("use.conf"), "keepalive_timeout 60s;\n").unwrap();
        let text = format!(
            "user root;\ndaemon off;\npid {root}/pid;\nerror_log {root}/errors;\nevents {{ }}\nhttp {{\n\
             types {{ text/html html; text/css css; }}\nlog_format used '$connection $request_uri';\n\
             access_log {root}/access used;\ninclude {root}/use.conf;\n\
             server {{ listen 127.0.0.1:{port}; root {root}/html; }}\n}}\n"
        );
        fs::write(folder.file("nginx.conf"), text).unwrap();
        let child = Command::new("nginx")
            .arg("-c")
            .arg(folder.file("nginx.conf"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let at = format!("127.0.0.1:{port}");
        let begun = Instant::now();
        while std::net::TcpStream::connect(&at).is_err() {
            assert!(begun.elapsed() < Duration::from_mins(1), "nginx does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { child, at }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // The main process ends its workers.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

#[test]
fn a_proof_switches_the_server_before_each_trial_and_compares_what_visitors_saw() {
    if lacks(&["nginx"]) {
        return;
    }
    let folder = Folder::new();
    let staging = Staging::start(&folder);
    let setting = Setting { timeout_ms: None, requests: 100, workers: 512 };
    let from = folder.path("earlier.json");
    fs::write(&from, serde_json::to_string(&earlier(Server::Nginx, setting)).unwrap()).unwrap();
    let root = folder.file("").display().to_string();
    let switch = |name: &str, line: &str| {
        format!(
            "cd {root} && echo {name} >> switched && echo '{line}' > use.conf && kill -HUP $(cat pid)"
        )
    };
    let [found_by, present_by] =
        [switch("found", "keepalive_timeout 0;"), switch("present", "keepalive_timeout 60s;")];
    let url = format!("http://{}/", staging.at);
    let ran = tuned(
        &folder,
        &[
            "nginx",
            "--from",
            &from,
            "--prove",
            &url,
            "--mine",
            "--prove-time",
            "1s",
            "--switch-found",
            &found_by,
            "--switch-present",
            &present_by,
        ],
    );
    let found: Found = serde_json::from_str(&ran.stdout).unwrap();
    let switched = fs::read_to_string(folder.file("switched")).unwrap();
    let mut names: Vec<&str> = switched.lines().collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["found", "present"], "{switched}");
    let Some(proof) = &found.proof else {
        // Every trial was excluded.
        assert!(found.doubts.iter().any(|doubt| doubt.starts_with("--prove")), "{found:?}");
        return;
    };
    assert_eq!(proof.url, url);
    assert!(proof.text.contains("present one") && !proof.text.contains("failed"), "{}", proof.text);
    // The server's own log: connections with several requests, and with one.
    let log = fs::read_to_string(folder.file("access")).unwrap();
    let mut requests: std::collections::BTreeMap<&str, u32> = std::collections::BTreeMap::new();
    for connection in log.lines().filter_map(|line| line.split(' ').next()) {
        *requests.entry(connection).or_default() += 1;
    }
    assert!(
        requests.values().any(|requests| *requests == 1)
            && requests.values().any(|requests| *requests > 1),
        "{requests:?}"
    );
}
