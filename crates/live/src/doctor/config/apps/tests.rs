use std::collections::BTreeMap;

use super::super::reading::Files;
use super::super::{Process, Program, read};
use super::*;

/// Files by path.
struct Held(BTreeMap<String, String>);

impl Files for Held {
    fn read(&mut self, path: &str) -> Result<String, String> {
        self.0.get(path).cloned().ok_or_else(|| "no such file".to_owned())
    }

    fn matching(&mut self, pattern: &str) -> Result<Vec<String>, String> {
        let (before, after) = pattern.split_once('*').unwrap_or((pattern, ""));
        let fits = |path: &&String| path.starts_with(before) && path.ends_with(after);
        Ok(self.0.keys().filter(fits).cloned().collect())
    }
}

fn config(app: App, arguments: &[&str], files: &[(&str, &str)]) -> ServerConfig {
    let process = Process {
        pid: 7,
        arguments: arguments.iter().map(|&one| one.to_owned()).collect(),
        directory: "/srv".to_owned(),
        sockets: vec!["127.0.0.1:8000".to_owned()],
        ..Process::default()
    };
    let files = files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned()));
    read(Program::App(app), &process, &mut Held(files.collect()))
}

/// After which idle time it closes, and where that stands.
fn closes(app: App, arguments: &[&str], files: &[(&str, &str)]) -> Option<(f64, String)> {
    let config = config(app, arguments, files);
    let own = config.listens.iter().find_map(|one| one.keepalive_timeout_s.clone());
    let found = own.or(config.keepalive_timeout_s)?;
    Some((found.value, found.at.to_string()))
}

#[expect(clippy::unnecessary_wraps)] // as it is compared
fn at(s: f64, place: &str) -> Option<(f64, String)> {
    Some((s, place.to_owned()))
}

fn app(comm: &str, arguments: &[&str]) -> Option<App> {
    let arguments: Vec<String> = arguments.iter().map(|&one| one.to_owned()).collect();
    App::of(comm, &arguments)
}

#[test]
fn application_servers_are_known_by_their_arguments() {
    let python = "/usr/bin/python3";
    assert_eq!(app("gunicorn", &[python, "/usr/bin/gunicorn", "a:b"]), Some(App::Gunicorn));
    assert_eq!(app("python3", &["python3", "-m", "uvicorn", "a:b"]), Some(App::Uvicorn));
    assert_eq!(app("hypercorn", &[python, "/v/bin/hypercorn", "a:b"]), Some(App::Hypercorn));
    assert_eq!(app("node", &["node", "s.js"]), Some(App::Node));
    assert_eq!(app("puma", &["puma 5.6.5 (tcp://127.0.0.1:1) [s]"]), Some(App::Puma));
    let tomcat = ["java", "-Dcatalina.base=/t", "org.apache.catalina.startup.Bootstrap", "start"];
    assert_eq!(app("java", &tomcat), Some(App::Tomcat));
    assert_eq!(app("java", &["java", "-jar", "/j/start.jar"]), Some(App::Jetty));
    for other in
        [&["python3", "app.py"][..], &["java", "-jar", "x.jar"], &["ruby", "x.rb"], &[""], &[]]
    {
        assert_eq!(app("python3", other), None, "{other:?}");
    }
    assert!(may_be("node-MainThread") && !may_be("sshd"));
}

#[test]
fn a_setting_has_the_unit_of_its_program() {
    assert_eq!(App::Gunicorn.keeping(70.0), "gunicorn --keep-alive 70");
    assert_eq!(App::Node.keeping(70.0), "server.keepAliveTimeout = 70000");
}

#[test]
fn gunicorn_keeps_connections_only_with_threads_or_events() {
    let with = |arguments: &[&str], file: &str| {
        let arguments: Vec<&str> =
            ["python3", "/usr/bin/gunicorn"].iter().chain(arguments).copied().collect();
        let files = [("/srv/gunicorn.conf.py", file)];
        closes(App::Gunicorn, &arguments, if file.is_empty() { &[] } else { &files })
    };
    let (default, line) = ("the default of gunicorn", "the command line of PID 7");
    assert_eq!(with(&[], ""), at(0.0, default), "sync: a response a connection");
    assert_eq!(with(&["--keep-alive", "75"], ""), at(0.0, default), "sync ignores it");
    assert_eq!(with(&["-k", "gthread"], ""), at(2.0, default));
    assert_eq!(with(&["--threads=4"], ""), at(2.0, default), "threads make it gthread");
    assert_eq!(with(&["-k", "gthread", "--keep-alive=75"], ""), at(75.0, line));
    let file = "import os\nworker_class = 'uvicorn.workers.UvicornWorker'\nkeepalive = 65  # s\n";
    assert_eq!(with(&[], file), at(65.0, "/srv/gunicorn.conf.py:3"));
    assert_eq!(with(&["--keep-alive", "5"], file), at(5.0, line), "arguments win");
    assert_eq!(with(&["-k", "tornado"], ""), None, "Tornado has a time of its own");
    let computed = "worker_class = 'gthread'\nkeepalive = int(os.environ['K'])\n";
    assert_eq!(with(&[], computed), None);
    let unread = config(App::Gunicorn, &["gunicorn: master [a:b]"], &[]).unread;
    assert!(unread[0].contains("hides its arguments"), "{unread:?}");
}

#[test]
fn unix_sockets_of_a_command_line_join_the_kernels_listeners() {
    let on = |app, arguments: &[&str]| -> Vec<String> {
        config(app, arguments, &[]).listens.into_iter().map(|one| one.on).collect()
    };
    let gunicorn = ["gunicorn", "-b", "unix:/run/g.sock", "-b", "0.0.0.0:1"];
    assert_eq!(on(App::Gunicorn, &gunicorn), ["127.0.0.1:8000", "/run/g.sock"]);
    let puma = ["puma 5.6.5 (tcp://0.0.0.0:1,unix:///run/p.sock?backlog=9) [s]"];
    assert_eq!(on(App::Puma, &puma), ["127.0.0.1:8000", "/run/p.sock"]);
    assert_eq!(
        on(App::Uvicorn, &["uvicorn", "--uds", "/run/u.sock"]),
        ["127.0.0.1:8000", "/run/u.sock"]
    );
}

#[test]
fn uvicorn_and_hypercorn_take_the_time_of_their_arguments_or_file() {
    let line = "the command line of PID 7";
    assert_eq!(closes(App::Uvicorn, &["uvicorn", "a:b"], &[]), at(5.0, "the default of Uvicorn"));
    assert_eq!(
        closes(App::Uvicorn, &["uvicorn", "--timeout-keep-alive", "75"], &[]),
        at(75.0, line)
    );
    assert_eq!(closes(App::Hypercorn, &["hypercorn"], &[]), at(5.0, "the default of Hypercorn"));
    let file = [("/srv/h.toml", "bind = \"0.0.0.0:1\"\nkeep_alive_timeout = 70\n")];
    assert_eq!(
        closes(App::Hypercorn, &["hypercorn", "-c", "h.toml"], &file),
        at(70.0, "/srv/h.toml:2")
    );
    assert_eq!(
        closes(App::Hypercorn, &["hypercorn", "-c", "none.toml"], &[]),
        None,
        "it was not read"
    );
}

#[test]
fn what_code_can_set_is_presumed_until_the_code_shows_a_number() {
    let node = |text: &str| closes(App::Node, &["node", "s.js"], &[("/srv/s.js", text)]);
    let presumed = |name: &str| format!("the default of {name}{PRESUMED}");
    assert_eq!(node("listen(1)"), at(5.0, &presumed("Node.js")));
    assert_eq!(node("x\nserver.keepAliveTimeout = 65_000;\n"), at(65.0, "/srv/s.js:2"));
    assert_eq!(node("server.keepAliveTimeout = wanted"), None);
    assert_eq!(node("require('fastify')()"), None, "Fastify sets 72 s");
    let puma =
        |title: &str, text: &str| closes(App::Puma, &[title], &[("/srv/config/puma.rb", text)]);
    let (five, seven) = ("puma 5.6.5 (tcp://[::]:1) [s]", "puma 7.0.1 (tcp://[::]:1) [s]");
    assert_eq!(puma(five, "threads 1, 5\n# persistent_timeout 9\n"), at(20.0, &presumed("Puma")));
    assert_eq!(puma(seven, "threads 1, 5\n"), at(65.0, &presumed("Puma")));
    assert_eq!(puma(seven, ""), None, "its title hides the file that -C names");
    assert_eq!(puma(five, "persistent_timeout(75)\n"), at(75.0, "/srv/config/puma.rb:1"));
    assert_eq!(puma(five, "persistent_timeout ENV['T'].to_i\n"), None);
    let ini = [("/srv/start.d/http.ini", "--module=http\njetty.http.idleTimeout=70000\n")];
    assert_eq!(
        closes(App::Jetty, &["java", "-jar", "start.jar"], &ini),
        at(70.0, "/srv/start.d/http.ini:2")
    );
    assert_eq!(
        closes(App::Jetty, &["java", "-jar", "start.jar"], &[]),
        at(30.0, &presumed("Jetty"))
    );
}

#[test]
fn tomcat_closes_each_connectors_connections_after_its_own_time() {
    let xml = "<Server>\n<!-- <Connector port=\"1\"/>\n-->\n<Connector port=\"8080\"\n  \
               connectionTimeout=\"20000\" />\n<Connector port='8081' keepAliveTimeout='-1'/>\n<Connector \
               port=\"8082\" acceptCount=\"7\"/><Connector protocol=\"AJP/1.3\" port=\"8009\"/>";
    let files = [("/t/conf/server.xml", xml)];
    let tomcat = config(App::Tomcat, &["java", "-Dcatalina.base=/t"], &files);
    let times: Vec<_> = tomcat
        .listens
        .iter()
        .map(|one| (one.on.as_str(), one.keepalive_timeout_s.clone()))
        .collect();
    assert_eq!(times.len(), 3, "{times:?}");
    assert_eq!(times[0].0, "[::]:8080");
    let first = times[0].1.clone().unwrap();
    assert_eq!((first.value, first.at.to_string().as_str()), (20.0, "/t/conf/server.xml:5"));
    assert_eq!(times[1].1, None, "without limit");
    assert!((times[2].1.as_ref().unwrap().value - 60.0).abs() < 1e-9);
    assert_eq!(tomcat.listens[2].backlog.as_ref().unwrap().value, 7);
}

#[test]
fn the_page_has_each_default_with_its_source() {
    for facts in FACTS {
        let rows = tcptoll_core::finding::CAUSES.lines().filter(|line| line.starts_with("| "));
        let of_it: Vec<&str> = rows
            .filter(|line| {
                line.to_lowercase().starts_with(&format!("| {}", facts.name.to_lowercase()))
            })
            .collect();
        let stated = format!("| {} s", facts.keepalive_s);
        assert!(of_it.iter().any(|row| row.contains(&stated)), "{}: {stated}", facts.name);
    }
}
