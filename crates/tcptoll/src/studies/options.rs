//! How does a command line become a study? An option with several values is a factor.

use anyhow::bail;
use serde_json::Value;
use tcptoll_model::study::{Compare, Study};

use crate::cli::{ConnectArgs, HttpArgs, KeepaliveArgs, RoundArgs};

/// The study that a command line of `connect` is.
///
/// Errors: a list that seems to be one number.
pub fn from_connect(args: &ConnectArgs) -> anyhow::Result<Study> {
    let lists = [
        ("link", every_link(&args.link)),
        ("count", args.count.clone()),
        ("duration", args.duration.clone()),
        ("warmup", args.warmup.clone()),
        ("concurrency", args.concurrency.clone()),
        ("rate", args.rate.clone()),
        ("pause-every", args.pause_every.clone()),
        ("pause", args.pause.clone()),
        ("timeout", args.timeout.clone()),
        ("congestion", args.congestion.clone()),
        ("fast-open", args.fast_open.clone()),
        ("first-byte", args.first_byte.clone()),
        ("backlog", args.backlog.clone()),
        ("accept-delay", args.accept_delay.clone()),
    ];
    let values = [
        ("to", text_of(args.to.as_ref())),
        ("server", text_of(args.server.as_ref())),
        ("port", text_of(args.port.as_ref())),
        ("distance-km", text_of(args.distance_km.as_ref())),
        ("bind", text_of(args.bind.as_ref())),
        ("send", text_of(args.send.as_ref())),
        ("ipv6", flag(args.ipv6)),
        ("packet-relay", flag(args.packet_relay)),
        ("tap", flag(args.tap)),
        ("client-sysctl", several(&args.client_sysctl)),
        ("server-sysctl", several(&args.server_sysctl)),
    ];
    let (limit, rounds) = limit_of_one_arm(args, &lists);
    let values = values.into_iter().chain([("max-time", text_of(limit.as_ref()))]);
    let question = "What does it cost to open a TCP connection, and where does the time go?";
    from_options("connect", question, lists, values, &rounds)
}

/// `--max-time` of one arm against a server that is not ours, where nothing else is said of rounds
/// or time, limits that arm and not a number of rounds. Gives the limit, and what is left to say of
/// rounds.
fn limit_of_one_arm(
    args: &ConnectArgs,
    lists: &[(&'static str, Vec<String>)],
) -> (Option<String>, RoundArgs) {
    let RoundArgs { rounds, target, max_rounds, .. } = &args.rounds;
    let of_rounds = rounds.is_some() || target.is_some() || max_rounds.is_some();
    let one = lists.iter().all(|(_, levels)| levels.len() <= 1);
    if args.to.is_none() || of_rounds || !one || !args.duration.is_empty() {
        return (None, args.rounds.clone());
    }
    (args.rounds.max_time.clone(), RoundArgs { max_time: None, ..args.rounds.clone() })
}

/// The study that a command line of `http` is.
///
/// Errors: a list that seems to be one number.
pub fn from_http(args: &HttpArgs) -> anyhow::Result<Study> {
    let lists = [
        ("reuse", args.reuse.clone()),
        ("server", args.server.iter().flat_map(|text| servers(text)).collect()),
        ("connections", args.connections.clone()),
        ("rate", args.rate.clone()),
        ("spread", args.spread.clone()),
        ("requests", args.requests.clone()),
        ("duration", args.duration.clone()),
        ("warmup", args.warmup.clone()),
        ("ramp", args.ramp.clone()),
        ("threads", args.threads.clone()),
        ("io", args.io.clone()),
        ("batch", args.batch.clone()),
        ("tls", args.tls.clone()),
        ("timeout", args.timeout.clone()),
        ("connect-timeout", args.connect_timeout.clone()),
        ("congestion", args.congestion.clone()),
        ("keepalive", args.keepalive.clone()),
        ("keepalive-requests", args.keepalive_requests.clone()),
        ("keepalive-timeout", args.keepalive_timeout.clone()),
        ("workers", args.workers.clone()),
        ("work", args.work.clone()),
        ("response", args.response.clone()),
        ("backlog", args.backlog.clone()),
        ("method", args.method.clone()),
        ("link", every_link(&args.link)),
    ];
    let url = (!args.url.is_empty()).then(|| args.url.join(" "));
    let values = [
        ("url", text_of(url.as_ref())),
        ("port", text_of(args.port.as_ref())),
        ("path", text_of(args.path.as_ref())),
        ("body", text_of(args.body.as_ref())),
        ("access-log", text_of(args.access_log.as_ref())),
        ("ca", text_of(args.ca.as_ref())),
        ("bind", text_of(args.bind.as_ref())),
        ("expect-status", text_of(args.expect_status.as_ref())),
        ("expect-sha256", text_of(args.expect_sha256.as_ref())),
        ("body-limit", text_of(args.body_limit.as_ref())),
        ("header", several(&args.header)),
        ("insecure", flag(args.insecure)),
        ("ipv6", flag(args.ipv6)),
        ("packet-relay", flag(args.packet_relay)),
        ("tap", flag(args.tap)),
        ("client-sysctl", several(&args.client_sysctl)),
        ("server-sysctl", several(&args.server_sysctl)),
    ];
    let question = "What does it cost to reuse a connection, or not, and who pays?";
    from_options("http", question, lists, values, &args.rounds)
}

/// The study that a command line of `keepalive` is.
///
/// Without a mechanism all are measured; what is not told apart by the rate of a writer, but by who
/// knows of deaths and for how much, is measured once and compared with nothing.
///
/// Errors: a list that seems to be one number.
pub fn from_keepalive(args: &KeepaliveArgs) -> anyhow::Result<Study> {
    let all = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let mut mechanism = args.mechanism.clone();
    let mut fault = args.fault.clone();
    if mechanism.is_empty() && args.rounds.resume.is_none() {
        let lab = args.to.is_none();
        mechanism = match (args.detect_within.is_empty(), lab) {
            (true, true) => all(&["none", "tcp", "heartbeat", "lazy"]),
            (false, true) => all(&["tcp", "heartbeat", "lazy"]),
            (false, false) => all(&["tcp", "heartbeat"]),
            (true, false) => mechanism,
        };
        if lab && fault.is_empty() {
            fault = all(&["cut"]);
        }
    }
    let silent = args.writer.iter().any(|writer| writer == "off");
    let compares = fault.is_empty() && !silent && args.to.is_none();
    let lists = [
        ("mechanism", mechanism),
        ("side", args.side.clone()),
        ("idle", args.idle.clone()),
        ("interval", args.interval.clone()),
        ("probes", args.probes.clone()),
        ("answer-within", args.answer_within.clone()),
        ("evidence", args.evidence.clone()),
        ("user-timeout", args.user_timeout.clone()),
        ("detect-within", args.detect_within.clone()),
        ("assumed-loss", args.assumed_loss.clone()),
        ("tick", args.tick.clone()),
        ("most", args.most.clone()),
        ("unused-for", args.unused_for.clone()),
        ("until", args.until.clone()),
        ("order", args.order.clone()),
        ("at-once", args.at_once.clone()),
        ("arrivals", args.arrivals.clone()),
        ("fault", fault),
        ("fault-share", args.fault_share.clone()),
        ("watch", args.watch.clone()),
        ("sockets", args.sockets.clone()),
        ("writer", args.writer.clone()),
        ("message", args.message.clone()),
        ("rate", args.rate.clone()),
        ("wait", args.wait.clone()),
        ("congestion", args.congestion.clone()),
        ("warmup", args.warmup.clone()),
        ("duration", args.duration.clone()),
        ("link", every_link(&args.link)),
    ];
    let values = [
        ("to", text_of(args.to.as_ref())),
        ("null", text_of(args.null.as_ref())),
        ("bind", text_of(args.bind.as_ref())),
        ("ipv6", flag(args.ipv6)),
        ("packet-relay", flag(args.packet_relay)),
        ("client-sysctl", several(&args.client_sysctl)),
        ("server-sysctl", several(&args.server_sysctl)),
    ];
    let question =
        "What does it cost to know that idle connections are alive, and how soon is a death known?";
    let mut study = from_options("keepalive", question, lists, values, &args.rounds)?;
    if !compares {
        study.compare = Vec::new();
    }
    Ok(study)
}

fn text_of(text: Option<&String>) -> Option<Value> {
    text.map(|text| Value::from(text.as_str()))
}

fn flag(given: bool) -> Option<Value> {
    given.then_some(Value::from(true))
}

/// What may be given again, as one setting.
fn several(values: &[String]) -> Option<Value> {
    (!values.is_empty()).then(|| Value::from(values.to_vec()))
}

/// The study that options are: one with several values is a factor, and the first arm is what the
/// others are compared against.
fn from_options(
    experiment: &str,
    question: &str,
    lists: impl IntoIterator<Item = (&'static str, Vec<String>)>,
    values: impl IntoIterator<Item = (&'static str, Option<Value>)>,
    rounds: &RoundArgs,
) -> anyhow::Result<Study> {
    let mut study =
        Study { question: question.into(), experiment: experiment.into(), ..Study::default() };
    for (name, levels) in lists {
        if let Some(number) = in_thousands(&levels) {
            let plain = number.replace(',', "");
            bail!("--{name} {number}: a comma separates values; write {plain} for one number");
        }
        let mut levels: Vec<Value> = levels.into_iter().map(Value::from).collect();
        match levels.len() {
            0 => {}
            1 => {
                study.settings.insert(name.to_owned(), levels.remove(0));
            }
            _ => {
                study.factors.insert(name.to_owned(), levels);
            }
        }
    }
    let given = values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    study.settings.extend(given);
    if !study.factors.is_empty() {
        // What is wrong with the arms is said once the study is checked.
        let first = study.arms().ok().and_then(|arms| Some(arms.first()?.name.clone()));
        study.compare = first
            .map(|name| Compare { against: Some(Value::from(name)), ..Compare::default() })
            .into_iter()
            .collect();
    }
    rounds.apply(&mut study);
    Ok(study)
}

/// The number among these values that was written with a comma for each thousand, like `20,000`.
///
/// Only `000` and the like give it away: `1,200` may be two values.
fn in_thousands(values: &[String]) -> Option<String> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let three = |text: &str| text.len() == 3 && number(text);
    let odd = values.iter().position(|value| three(value) && value.starts_with('0'))?;
    let head = values[..odd].iter().rposition(|value| !three(value)).unwrap_or(0);
    let tail = values[odd..].iter().take_while(|value| three(value)).count();
    (head < odd && number(&values[head])).then(|| values[head..odd + tail].join(","))
}

/// With `--resume` the record holds every setting; one that is given as well would be lost. `typed`
/// is the study of the command line, `empty` that of one without options.
pub fn check_alone(typed: &Study, empty: &Study) -> anyhow::Result<()> {
    if typed == empty {
        return Ok(());
    }
    bail!(
        "--resume goes on with the settings of the record: leave out all others, or begin a new run without --resume"
    )
}

/// Servers that are known by name, as levels of `--server`.
const SERVERS: [&str; 7] =
    ["nginx", "apache", "apache-event", "apache-worker", "apache-prefork", "puma", "null"];

/// `nginx,puma` is two servers; a command may hold commas of its own.
fn servers(text: &str) -> Vec<String> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    if parts.iter().all(|part| SERVERS.contains(part)) {
        parts.into_iter().map(str::to_owned).collect()
    } else {
        vec![text.to_owned()]
    }
}

fn every_link(texts: &[String]) -> Vec<String> {
    texts.iter().flat_map(|text| links(text)).collect()
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
    use tcptoll_engine::runner::Schedule;

    use super::*;

    #[test]
    fn a_word_without_an_equals_sign_begins_the_next_link() {
        assert_eq!(links("rtt=37ms,loss=1%"), ["rtt=37ms,loss=1%"]);
        assert_eq!(links("metro,loss=1%,direct"), ["metro,loss=1%", "direct"]);
    }

    #[test]
    fn one_level_is_a_setting_and_two_are_a_factor_compared_against_the_first() {
        let args = ConnectArgs {
            backlog: vec!["4".into(), "128".into()],
            count: vec!["10".into()],
            ..ConnectArgs::default()
        };
        let study = from_connect(&args).unwrap();
        assert_eq!(study.settings["count"], "10");
        assert_eq!(study.factors["backlog"].len(), 2);
        let arms = study.arms().unwrap();
        assert_eq!(arms[1].name, "backlog 128");
        let schedule = Schedule::of(&study).unwrap();
        let compared: Vec<_> = schedule.pairs.iter().map(|pair| (pair.a, pair.b)).collect();
        assert_eq!(compared, [(1, 0)]);
        assert_eq!(schedule.rule.max, 30, "the default stop rule");
    }

    #[test]
    fn one_arm_is_compared_with_nothing_and_runs_once() {
        let study = from_connect(&ConnectArgs::default()).unwrap();
        assert!(study.compare.is_empty());
        assert_eq!(Schedule::of(&study).unwrap().rule.max, 1);
    }

    #[test]
    fn max_time_limits_the_connections_of_one_arm_against_a_server_of_yours() {
        let with = |more: fn(&mut ConnectArgs)| {
            let mut args = ConnectArgs { to: Some("127.0.0.1:9".into()), ..ConnectArgs::default() };
            args.rounds.max_time = Some("30s".into());
            more(&mut args);
            from_connect(&args).unwrap()
        };
        let one = with(|_| {});
        assert_eq!(one.settings["max-time"], "30s");
        assert_eq!(one.rounds.max_time, None);
        assert_eq!(Schedule::of(&one).unwrap().rule.max, 1, "one trial");
        let in_rounds: [fn(&mut ConnectArgs); 4] = [
            |args| args.to = None,
            |args| args.rounds.max_rounds = Some(20),
            |args| args.concurrency = vec!["1".into(), "2".into()],
            |args| args.duration = vec!["1s".into()],
        ];
        for more in in_rounds {
            let study = with(more);
            assert_eq!(study.rounds.max_time.as_deref(), Some("30s"));
            assert!(!study.settings.contains_key("max-time"));
        }
    }

    #[test]
    fn a_resumed_run_takes_no_other_setting() {
        let empty = from_connect(&ConnectArgs::default()).unwrap();
        check_alone(&empty, &empty).unwrap();
        let args = ConnectArgs { count: vec!["10".into()], ..ConnectArgs::default() };
        check_alone(&from_connect(&args).unwrap(), &empty).unwrap_err();
    }

    #[test]
    fn a_number_with_a_comma_for_each_thousand_is_not_two_values() {
        for (list, number) in [
            ("20,000", Some("20,000")),
            ("100,1,000,000", Some("1,000,000")),
            ("1,500,000", Some("1,500,000")),
            ("5,20,050,7", Some("20,050")),
            ("100,1000", None),
            ("1,200", None),
            ("0,10", None),
            ("000", None),
            ("1s,000", None),
        ] {
            let list: Vec<String> = list.split(',').map(str::to_owned).collect();
            assert_eq!(in_thousands(&list).as_deref(), number, "{list:?}");
        }
        let args = ConnectArgs { count: vec!["20".into(), "000".into()], ..ConnectArgs::default() };
        let error = from_connect(&args).unwrap_err().to_string();
        let says = "--count 20,000: a comma separates values; write 20000 for one number";
        assert_eq!(error, says);
    }

    #[test]
    fn servers_by_name_are_levels_and_a_command_with_commas_is_one() {
        assert_eq!(servers("nginx, puma,null"), ["nginx", "puma", "null"]);
        assert_eq!(servers("apache"), ["apache"]);
        for command in ["nginx,lighttpd", "sh -c 'a,b'", "gunicorn -w 2,nginx", ""] {
            assert_eq!(servers(command), [command]);
        }
    }

    #[test]
    fn ways_of_using_connections_are_arms_compared_against_the_first() {
        let args = HttpArgs {
            reuse: ["keep-alive", "server-close", "client-close"].map(str::to_owned).to_vec(),
            url: vec!["http://127.0.0.1:8080/a".into(), "http://127.0.0.1:8080/b".into()],
            header: vec!["A: 1, 2".into()],
            insecure: true,
            ..HttpArgs::default()
        };
        let study = from_http(&args).unwrap();
        assert_eq!(study.experiment, "http");
        assert_eq!(study.settings["url"], "http://127.0.0.1:8080/a http://127.0.0.1:8080/b");
        assert_eq!(study.settings["header"], serde_json::json!(["A: 1, 2"]));
        assert_eq!(study.settings["insecure"], true);
        let names: Vec<String> = study.arms().unwrap().into_iter().map(|arm| arm.name).collect();
        assert_eq!(names, ["reuse keep-alive", "reuse server-close", "reuse client-close"]);
        let against: Vec<_> = study.compare.iter().map(|c| c.against.clone()).collect();
        assert_eq!(against, [Some(Value::from("reuse keep-alive"))]);
    }
}
