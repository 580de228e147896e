//! What follows from the arms of `http`: the answer in a sentence, causes, advice, what next. Its causes lie in
//! the reuse of connections, and in who closes them.

use crate::kit::compared::{failures, figures, headline};
use crate::kit::conclusion::{answer_of, enumerated, explain, explanations, step, value};
use crate::kit::port_causes::LOCAL_PORTS_SCARCE;
use crate::kit::queue_causes::{ACCEPT_QUEUE_FULL, SYN_QUEUE_FULL};
use serde_json::Value;
use tcptoll_core::experiment::figures::RESOLUTION_SHOWN;
use tcptoll_core::experiment::spec::CauseSpec;
use tcptoll_core::finding::{Evidence, Finding};
use tcptoll_core::http::reuse::Reuse;
use tcptoll_core::http::status::reason;
use tcptoll_core::number;
use tcptoll_core::record::{Arm, NextStep, PlaceKind, Summary};
use tcptoll_core::units::{capital, first_sentence, plural};
use tcptoll_core::verdict::bound;
use tcptoll_core::verdict::names::Names;

/// Latency that grew by less than this factor is not said to have grown.
const GROWTH_SHOWN: f64 = 1.1;

/// From this share of what was due on, a schedule was kept.
const KEPT: f64 = 0.99;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, ALL, |_, _| None);
    // What was due and what was achieved comes before every latency.
    let of_the_rate = |id: &str| matches!(id, "saturated" | "rate-not-reached");
    summary.warnings.sort_by_key(|warning| !of_the_rate(&warning.id));
    summary.answer = answer(summary);
    summary.next = next(summary);
}

fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> = summary.arms.iter().filter(|arm| arm.failure.is_none()).collect();
    let cause = summary.causes.first().map(|cause| {
        let text = first_sentence(&cause.text);
        if measured.len() > 1 {
            format!("{}: {text}", capital(&Names::new(&summary.arms).named(&cause.arm)))
        } else {
            text.to_owned()
        }
    });
    let mut sentences = Vec::new();
    if measured.iter().all(|arm| arm.ok == 0) {
        let Some(class) = measured.first().and_then(|arm| worst(arm)) else {
            return "Nothing was measured.".to_owned();
        };
        let words = measured.iter().find_map(|arm| arm.first_errors.get(class));
        let reason = reason(class, words.map(String::as_str));
        sentences
            .push(format!("No request succeeded; the most frequent error was {class}{reason}."));
        let is_plain = |target: &String| target.starts_with("http://");
        let no_answer = |words: &String| class == "reset" || words.ends_with("without a response");
        if matches!(class, "reset" | "truncated")
            && words.is_none_or(no_answer)
            && summary.place.target.as_ref().is_some_and(is_plain)
        {
            sentences.push(
                "The server ended each connection without an answer; if it speaks TLS there, write \
                 https:// for http://."
                    .to_owned(),
            );
        }
        sentences.extend(unexpected(&measured));
        sentences.extend(cause);
        sentences.extend(schedules(&measured));
        return answer_of(summary, sentences);
    }
    sentences.extend(bound::sentence(summary, "requests_per_s", "requests"));
    sentences.extend(failures(summary, &super::SPEC));
    let handshakes = handshakes(summary, &measured);
    // Where they are what is compared, the comparison is stated first.
    let (before, after) =
        if compares_tls(summary) { (None, handshakes) } else { (handshakes, None) };
    sentences.extend(before);
    sentences.extend(schedules(&measured));
    match measured.as_slice() {
        [arm] => {
            sentences.extend(one(arm));
            sentences.extend(unanswered(summary));
        }
        arms => {
            let compared = headline(summary, &super::SPEC);
            let alone = || figures(summary, &super::SPEC, "requests_per_s").or_else(|| only(arms));
            let is_alone = compared.is_empty();
            sentences.extend(compared);
            sentences.extend(is_alone.then(alone).flatten());
            sentences.extend(after);
        }
    }
    sentences.extend(unexpected(&measured));
    sentences.extend(cause);
    match measured.as_slice() {
        [arm] => sentences.extend([cpu(arm), closers(arm)].into_iter().flatten()),
        arms => {
            let ways = ways(arms);
            sentences.extend([time_wait(&ways), segments(&ways)].into_iter().flatten());
        }
    }
    answer_of(summary, sentences)
}

fn worst(arm: &Arm) -> Option<&str> {
    arm.errors.iter().max_by_key(|(_, count)| **count).map(|(class, _)| class.as_str())
}

/// A rate in words, with how far it may be off where that is much: `6.7/s ± 3.3/s`.
fn rate_of(arm: &Arm, metric: &str) -> Option<String> {
    let rate = value(arm, metric)?;
    let off = value(arm, "rate_resolution_per_s").filter(|off| *off > rate * RESOLUTION_SHOWN);
    Some(match off {
        // Below its resolution a rate has only an upper end, as in the table.
        Some(off) if off >= rate => format!("at most {}", number::metric(rate + off, "1/s")),
        Some(off) => format!("{} ± {}", number::three(rate), number::metric(off, "1/s")),
        None => number::metric(rate, "1/s"),
    })
}

/// Open loop: what was due and what was sustained, before anything else.
fn schedules(arms: &[&Arm]) -> Option<String> {
    let names = Names::new(arms.iter().copied());
    let scheduled: Vec<&Arm> =
        arms.iter().copied().filter(|arm| value(arm, "intended_per_s").is_some()).collect();
    let saturated: Vec<&Arm> =
        scheduled.iter().copied().filter(|arm| arm.saturation.is_some()).collect();
    match (scheduled.as_slice(), saturated.as_slice()) {
        ([], _) => None,
        // The latency is stated with the rate that was kept.
        ([arm], []) if kept(arm).is_some() => None,
        ([arm], []) => scheduled_and_succeeded(arm).map(|text| format!("{text}.")),
        ([_], [arm]) => sustained(arm).map(|text| format!("Saturated: {text}.")),
        (_, []) => {
            let short = scheduled.iter().find(|arm| {
                let (due, achieved) = (value(arm, "intended_per_s"), value(arm, "achieved_per_s"));
                due.zip(achieved).is_some_and(|(due, achieved)| achieved < due * KEPT)
            });
            Some(match short {
                None => "In every arm at least 99 % of the scheduled rate succeeded.".to_owned(),
                Some(arm) => format!("{}{}.", names.with(arm), scheduled_and_succeeded(arm)?),
            })
        }
        (_, [first, ..]) => Some(format!(
            "{} of {} arms were saturated: with {}, {}.",
            saturated.len(),
            scheduled.len(),
            names.arm(first),
            sustained(first)?
        )),
    }
}

/// The rate that was scheduled, if it was kept.
fn kept(arm: &Arm) -> Option<String> {
    let (due, achieved) = (value(arm, "intended_per_s")?, value(arm, "achieved_per_s")?);
    let off = value(arm, "rate_resolution_per_s").unwrap_or(0.0);
    let is_kept =
        arm.saturation.is_none() && achieved + off >= due * KEPT && off <= due * RESOLUTION_SHOWN;
    is_kept.then(|| number::three(due))
}

fn scheduled_and_succeeded(arm: &Arm) -> Option<String> {
    Some(format!(
        "{} requests/s were scheduled and {} succeeded",
        number::three(value(arm, "intended_per_s")?),
        rate_of(arm, "achieved_per_s")?
    ))
}

/// What a saturated arm sustained, of what was due.
fn sustained(arm: &Arm) -> Option<String> {
    let found = arm.saturation.as_ref()?;
    Some(format!(
        "{} of {} scheduled requests/s were sustained, and {} requests were unanswered at the end",
        number::three(found.sustained_per_s),
        number::three(found.due_per_s),
        number::count(found.unserved)
    ))
}

/// One arm: rate and latency. Of an open loop the rate is stated with what was due.
fn one(arm: &Arm) -> Option<String> {
    let rate = rate_of(arm, "requests_per_s")?;
    let latency = arm.histograms.get("latency_us")?;
    let with = arm.reuse.as_ref().map(|reuse| format!(" with {reuse}")).unwrap_or_default();
    Some(match arm.saturation.as_ref().map(|s| (s.first_quarter_us, s.last_quarter_us)) {
        Some((Some(first), Some(last))) if last > first * GROWTH_SHOWN => format!(
            "The median latency{with} grew from {} in the first quarter of the measurement to {} \
             in the last.",
            number::time(first),
            number::time(last)
        ),
        Some(_) => format!(
            "Latency{with} consists mostly of the wait for a free connection (mean {}).",
            number::time(latency.mean?)
        ),
        None => {
            let time = |us: f64| format!("{}{}", latency.sign(us), number::time(us));
            let typical = time(latency.p50.or(latency.mean)?);
            let word = if latency.p50.is_some() { "median" } else { "mean" };
            let p99 = latency.p99.map_or_else(String::new, |p99| format!(" (p99 {})", time(p99)));
            if let Some(rate) = kept(arm) {
                format!("At {rate} requests/s, the {word} latency{with} was {typical}{p99}.")
            } else if value(arm, "intended_per_s").is_some() {
                format!("The {word} latency{with} was {typical}{p99}.")
            } else {
                let rate = rate.trim_end_matches("/s");
                format!(
                    "The server answered {rate} requests/s{with} at a {word} latency of \
                     {typical}{p99}."
                )
            }
        }
    })
}

/// Who was not answered, which no latency shows.
fn unanswered(summary: &Summary) -> impl Iterator<Item = String> {
    let ids = ["starved-connections", "server-silent"];
    let found = summary.warnings.iter().filter(move |warning| ids.contains(&warning.id.as_str()));
    found.map(|warning| {
        capital(first_sentence(&warning.text)).trim_end_matches('.').to_owned() + "."
    })
}

/// What a request costs the hosts.
fn cpu(arm: &Arm) -> Option<String> {
    let cpu = |metric| value(arm, metric).map(number::time);
    let client = cpu("client_cpu_us_per_op")?;
    Some(match cpu("server_cpu_us_per_op") {
        Some(server) => {
            format!("Each request costs the client {client} and the server {server} of CPU.")
        }
        None => format!("Each request costs the client {client} of CPU."),
    })
}

/// The only one of several arms in which requests succeeded.
fn only(arms: &[&Arm]) -> Option<String> {
    let names = Names::new(arms.iter().copied());
    let mut all = arms.iter().filter(|arm| arm.ok > 0);
    let (arm, None) = (all.next()?, all.next()) else { return None };
    let rate = number::three(value(arm, "requests_per_s")?);
    Some(format!("The rate is {rate} requests/s ({}).", names.arm(arm)))
}

/// Whether the handshake of TLS is what is compared.
fn compares_tls(summary: &Summary) -> bool {
    summary.comparisons.iter().any(|one| one.metric.starts_with("tls_us"))
}

/// Where ways of TLS are compared: what a handshake takes, and how many were resumed.
fn handshakes(summary: &Summary, arms: &[&Arm]) -> Option<String> {
    if arms.len() < 2 || arms.iter().any(|arm| !arm.factors.contains_key("tls")) {
        return None;
    }
    let is_compared = compares_tls(summary);
    let names = Names::new(&summary.arms);
    let took: Vec<String> = arms
        .iter()
        .filter(|_| !is_compared)
        .filter_map(|arm| {
            let handshake = arm.histograms.get(super::TLS.name)?;
            let us = handshake.p50.or(handshake.mean)?;
            Some(format!("{} ({})", number::time(us), names.arm(arm)))
        })
        .collect();
    let share = |arm: &&&Arm| value(arm, super::TLS_RESUMED.name).is_some_and(|share| share > 0.0);
    let resumed = arms.iter().find(share).and_then(|arm| {
        let share = number::percent(value(arm, super::TLS_RESUMED.name)?);
        Some(format!("{share} were resumed with {}", names.arm(arm)))
    });
    Some(match (took.is_empty(), resumed) {
        (true, None) => return None,
        (true, Some(resumed)) => format!("Of the TLS handshakes, {resumed}."),
        (false, None) => format!("A TLS handshake takes {}.", enumerated(&took)),
        (false, Some(resumed)) => {
            format!("A TLS handshake takes {}; {resumed}.", enumerated(&took))
        }
    })
}

/// A count of sockets, of several rounds the mean.
fn sockets(arm: &Arm, metric: &str) -> Option<String> {
    value(arm, metric).map(|count| number::count(count.round() as u64))
}

/// Who closes first, and who holds TIME-WAIT. `None`: nobody closes while the load runs.
pub(super) fn closers(arm: &Arm) -> Option<String> {
    let closing = arm.closing.as_ref()?;
    let closed = closing.closed();
    let mut classes = [
        ("both", closing.both.unwrap_or(0)),
        ("the client", closing.by_client),
        ("the server", closing.by_server),
    ];
    classes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let share = |count: u64| match count as f64 / closed as f64 * 100.0 {
        percent if percent < 0.5 => "under 1 %".to_owned(),
        percent => number::percent(percent / 100.0),
    };
    let mut text = match classes {
        [(_, 0), ..] => return None,
        // What rounds to all of them is all but a few; the exact counts are in the record.
        [("both", most), ..] if most as f64 >= closed as f64 * 0.995 => {
            "both hosts close first (their FINs cross)".to_owned()
        }
        [(who, most), ..] if most as f64 >= closed as f64 * 0.995 => format!("{who} closes first"),
        [(who, most), others @ ..] => {
            let verb = if who == "both" { "close" } else { "closes" };
            let mut text = format!("{who} {verb} first on {} of the connections", share(most));
            for (who, count) in others.into_iter().filter(|(_, count)| *count > 0) {
                text += &format!(", {who} on {}", share(count));
            }
            text
        }
    };
    if let Some(on_client) = sockets(arm, "client_time_wait") {
        text += &format!(", with {on_client} sockets in TIME-WAIT on the client");
        if closing.open_at_end > 0 {
            text += " (including connections that the client closed after the load)";
        }
        if let Some(on_server) = sockets(arm, "server_time_wait") {
            text += &format!(" and {on_server} on the server");
        }
        if let Some(half_closed) = sockets(arm, "client_fin_wait_2") {
            text += &format!(
                "; {half_closed} are in FIN-WAIT-2 on the client, not yet closed by the server"
            );
        }
    }
    Some(capital(&text) + ".")
}

/// The first arm of each way of reuse, where there are several ways.
fn ways<'a>(arms: &[&'a Arm]) -> Vec<(&'a str, &'a Arm)> {
    let mut ways: Vec<(&str, &Arm)> = Vec::new();
    for arm in arms {
        if let Some(reuse) = arm.reuse.as_deref()
            && ways.iter().all(|(seen, _)| *seen != reuse)
        {
            ways.push((reuse, *arm));
        }
    }
    if ways.len() > 1 { ways } else { Vec::new() }
}

/// Which host holds TIME-WAIT, with each way of reuse that closes connections.
fn time_wait(ways: &[(&str, &Arm)]) -> Option<String> {
    let mut text = String::new();
    for (way, arm) in ways {
        let closes = arm.closing.as_ref().is_some_and(|closing| closing.closed() > 0);
        let counts = sockets(arm, "client_time_wait").zip(sockets(arm, "server_time_wait"));
        let Some((client, server)) = counts.filter(|_| closes) else { continue };
        text += &if text.is_empty() {
            format!(
                "With {way}, {client} sockets are in TIME-WAIT on the client and {server} on the \
                 server"
            )
        } else {
            format!("; with {way}, {client} and {server}")
        };
    }
    (!text.is_empty()).then(|| text + ".")
}

/// How many segments a request takes, with each way of reuse.
fn segments(ways: &[(&str, &Arm)]) -> Option<String> {
    let mut each: Vec<String> = ways
        .iter()
        .filter_map(|(way, arm)| {
            let client = value(arm, "client_segments_per_op")?;
            Some(format!("{:.1} with {way}", client + value(arm, "server_segments_per_op")?))
        })
        .collect();
    let first = each.first_mut()?;
    *first = first.replacen(" with", " segments with", 1);
    Some(format!("A request takes {}.", each.join(", ")))
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let mut steps = explanations(summary);
    if summary.place.kind == PlaceKind::Lab && summary.study.is_none() {
        if summary.arms.len() == 1 {
            steps.push(step(
                "tcptoll http --reuse keep-alive,server-close,client-close",
                "the cost of a new connection per request, and which host bears it",
            ));
        }
        steps
            .push(step("tcptoll study http-keepalive-2019", "the published figures next to yours"));
    }
    if summary.study.as_deref() == Some("http-keepalive-2019") {
        steps.push(step(
            "tcptoll study http-reuse",
            "from which distance and work time reuse makes no difference",
        ));
    }
    steps
}

/// The status of all or most answers of an arm, where it made them failures: of the first such arm.
pub(super) fn unexpected(arms: &[&Arm]) -> Option<String> {
    arms.iter().find_map(|arm| {
        let text = of_arm(arm)?;
        Some(if arms.len() > 1 { format!("In arm {}, {text}", arm.name) } else { capital(&text) })
    })
}

fn of_arm(arm: &Arm) -> Option<String> {
    let failed = arm.errors.get("status").copied().unwrap_or(0);
    if failed <= arm.attempts / 2 {
        return None;
    }
    // Each status is a success or a failure as a whole: one that came more often than there were
    // successes is a failure.
    let (status, count) = arm.statuses.iter().max_by_key(|(_, count)| **count)?;
    // What has a reason of its own is not to be counted as a success.
    let has_reason = !reason("status", Some(&format!("status {status}"))).is_empty();
    if *count > failed || *count <= arm.ok || has_reason {
        return None;
    }
    let answers: u64 = arm.statuses.values().sum();
    Some(if *count == answers {
        let all = number::count(answers);
        format!(
            "all {all} responses had status {status}; `--expect-status {status}` counts them as \
             successes."
        )
    } else {
        format!(
            "{} of {} responses had status {status}; `--expect-status` with {status} counts them \
             as successes.",
            number::count(*count),
            number::count(answers)
        )
    })
}

/// A connection that carries no more requests than this was hardly reused: what Apache allows by
/// itself, 100, and a little.
const FEW: f64 = 110.0;

/// Fewer closed connections than this may be chance.
const CLOSED_MIN: u64 = 10;

/// Measured requests per connection are a limit of the server if they are this near to a round
/// number: connections that were still open at the end carried fewer.
const ROUND_SHARE: f64 = 0.05;

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] = &[
    &ACCEPT_QUEUE_FULL,
    &SYN_QUEUE_FULL,
    &LOCAL_PORTS_SCARCE,
    &CLOSE_IGNORED,
    &KEEPALIVE_INERT,
    &CLOSE_RACE,
];

/// The server was asked to close and did not.
const CLOSE_IGNORED: CauseSpec = CauseSpec::new("close-ignored", close_ignored);

/// The server closed connections that were to be reused.
const KEEPALIVE_INERT: CauseSpec = CauseSpec::new("keepalive-inert", keepalive_inert);

/// The server closed idle connections just as requests left.
const CLOSE_RACE: CauseSpec =
    CauseSpec::new("close-race", close_race).following(&[KEEPALIVE_INERT.id]);

/// Errors that come with a close of the server.
const BROKEN: [&str; 3] = ["truncated", "reset", "close-race"];

/// The server was asked to close and did not.
fn close_ignored(arm: &Arm) -> Option<Finding> {
    let closing = arm.closing.as_ref().filter(|closing| closing.ignored > 0)?;
    let text = format!(
        "The server kept the connection open {} although it was to close it (Connection: close, or HTTP/1.0 without keep-alive), and the client closed in its place. The run therefore does not measure a server that closes.",
        plural(closing.ignored, "time")
    );
    let evidence = Evidence::from([
        ("ignored".to_owned(), Value::from(closing.ignored)),
        ("closed_by_server".to_owned(), Value::from(closing.by_server)),
    ]);
    Some(Finding::new(text, evidence))
}

/// Connections were to be used again, and the server closed them soon. Without a single success
/// that says nothing of keep-alive: a server may close after each error.
///
/// Where the accept queue overflowed, connections that the server never accepted are among those that carried
/// few requests: that is no policy of the server.
pub(super) fn keepalive_inert(arm: &Arm) -> Option<Finding> {
    if arm.ok == 0 || (ACCEPT_QUEUE_FULL.test)(arm).is_some() {
        return None;
    }
    let asked = match arm.reuse.as_deref()?.parse::<Reuse>().ok()? {
        Reuse::KeepAlive | Reuse::Http10KeepAlive | Reuse::Lifetime(_) | Reuse::Idle(_) => {
            f64::INFINITY
        }
        Reuse::Requests(count) if count > 1 => count as f64,
        _ => return None,
    };
    let closing = arm.closing.as_ref()?;
    let found = arm.metrics.get("requests_per_connection")?.value;
    let made = arm.connections_ok?;
    let often = |closed: u64| closed >= CLOSED_MIN && closed.saturating_mul(2) >= made;
    let mut evidence = Evidence::from([
        ("requests_per_connection".to_owned(), Value::from(found)),
        ("closed_by_server".to_owned(), Value::from(closing.by_server)),
        ("connections_ok".to_owned(), Value::from(made)),
    ]);
    if often(closing.while_idle) {
        evidence.insert("closed_while_idle".into(), closing.while_idle.into());
        let after = arm.histograms.get("idle_close_us").and_then(|h| h.p50.or(h.mean));
        let mut text = format!(
            "The server's keep-alive timeout expired before the next request: it closed {} of {} connections while they were idle",
            number::count(closing.while_idle),
            number::count(made)
        );
        if let Some(us) = after {
            evidence.insert("idle_close_us".into(), us.into());
            text += &format!(", after {}", number::time(us));
        }
        return Some(Finding::new(text + ".", evidence));
    }
    // A close that breaks a response, or takes the place of one, is a failure and no policy.
    let broken = BROKEN.iter().filter_map(|class| arm.errors.get(*class)).sum();
    let in_use = closing.by_server.saturating_sub(closing.while_idle).saturating_sub(broken);
    if !often(in_use) || found > FEW.min(asked * (1.0 - ROUND_SHARE)) {
        return None;
    }
    let text = match round(found) {
        Some(1) => "Keep-alive had no effect: the server closed the connection after each request."
            .to_owned(),
        Some(limit) => {
            evidence.insert("limit".into(), limit.into());
            format!(
                "The server closed connections after {} requests on average: that may be its configured maximum.",
                number::count(limit)
            )
        }
        None => format!(
            "The server closed connections that the client would have reused: each carried {found:.1} requests on average."
        ),
    };
    Some(Finding::new(text, evidence))
}

/// The round number that this is, nearly: 1, 2 or 5 times a power of ten.
fn round(found: f64) -> Option<u64> {
    let numbers = [1_u64, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];
    numbers.into_iter().find(|&number| {
        let number = number as f64;
        (found - number).abs() <= number * ROUND_SHARE
    })
}

/// The server closed an idle connection just as a request left.
fn close_race(arm: &Arm) -> Option<Finding> {
    let lost = arm.errors.get("close-race").copied().filter(|&count| count > 0)?;
    let mut evidence = Evidence::from([("close-race".to_owned(), Value::from(lost))]);
    let mut text = format!(
        "{} of {} requests failed because the server closed their connection right after they were sent: it \
         may have been closing it already",
        number::count(lost),
        number::count(arm.attempts)
    );
    let idle = arm.histograms.get("idle_close_us").and_then(|h| h.p50.or(h.mean));
    if let Some(us) = idle {
        evidence.insert("idle_close_us".into(), us.into());
        text += &format!(". It closes idle connections after {}", number::time(us));
    }
    if let Some(closing) = &arm.closing {
        evidence.insert("closed_while_idle".into(), closing.while_idle.into());
    }
    text += ". It is unknown whether the server processed them.";
    Some(Finding::new(text, evidence))
}
