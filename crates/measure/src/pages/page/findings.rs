//! What follows from the arms of `page`: the answer, causes, what to run next.

use tcptoll_core::experiment::spec::{CauseSpec, MetricSpec};
use tcptoll_core::finding::{Finding, Remedy};
use tcptoll_core::http::status::reason;
use tcptoll_core::number;
use tcptoll_core::page::waterfall::Request;
use tcptoll_core::record::{Arm, NextStep, Summary};
use tcptoll_core::units::{capital, plural};
use tcptoll_core::verdict::names::Names;

use super::{
    CONNECTIONS, CRITICAL_HANDSHAKE, CRITICAL_HANDSHAKES, HELD, NEXT_CONNECTIONS, REQUESTS, SPAN,
    SPAN_MEAN, settings,
};
use crate::kit::compared::{failures, headline};
use crate::kit::conclusion::{
    answer_of, cured, explain, explanations, ill, in_arm, proven, step, value,
};
use crate::kit::queue_causes::ACCEPT_QUEUE_FULL;

/// Fills in what follows from the arms.
pub(super) fn conclude(summary: &mut Summary) {
    explain(summary, ALL, proof);
    summary.answer = answer(summary);
    summary.next = next(summary);
}

/// The time of the first page, which the other causes are not about.
fn proof(summary: &Summary, id: &str) -> Option<String> {
    if id != CONNECTION_PER_RESOURCE.id {
        return None;
    }
    let ill = ill(summary, id)?;
    let well = cured(summary, ill, &settings::KEPT)?;
    let [took, instead] = [span(well)?, span(ill)?].map(number::time);
    Some(format!("arm {}: the page takes {took} instead of {instead}", well.name))
}

fn answer(summary: &Summary) -> String {
    let measured: Vec<&Arm> = summary.arms.iter().filter(|arm| span(arm).is_some()).collect();
    if measured.is_empty() {
        let failed = summary.arms.iter().find_map(failed).unwrap_or_default();
        return format!("No page load completed{failed}.");
    }
    let mut sentences: Vec<String> = failures(summary, &super::SPEC).into_iter().collect();
    let compared = headline(summary, &super::SPEC);
    let is_compared = !compared.is_empty();
    sentences.extend(compared);
    if !is_compared {
        sentences.extend(loaded(&measured));
    }
    sentences.extend(slowest(&measured));
    sentences.extend(critical(&measured));
    answer_of(summary, sentences)
}

/// The first request that failed: a clause.
fn failed(arm: &Arm) -> Option<String> {
    let requests = &arm.own.page.as_ref()?.waterfall.requests;
    let failed = requests.iter().find(|one| one.error.is_some())?;
    let Request { url, error, status, .. } = failed;
    Some(match (error.as_deref()?, status) {
        ("status", Some(status @ 300..400)) => format!(
            ": {url} returned status {status}, a redirect, which tcptoll does not follow; give the URL of its target instead"
        ),
        ("status", Some(status)) => {
            let known = reason("status", Some(&format!("status {status}")));
            let why = known.split_once("); ").map_or(String::new(), |(_, why)| format!("; {why}"));
            format!(": {url} returned status {status}{why}")
        }
        (class, _) => {
            let reason = reason(class, arm.first_errors.get(class).map(String::as_str));
            format!(": {url} failed with {class}{reason}")
        }
    })
}

fn span(arm: &Arm) -> Option<f64> {
    arm.histograms.get(SPAN.name).and_then(|span| span.p50).or_else(|| value(arm, SPAN_MEAN.name))
}

fn count(arm: &Arm, metric: &MetricSpec) -> u64 {
    value(arm, metric.name).unwrap_or_default().round() as u64
}

/// How long the page took, and over how many connections: of two arms both, of more the ends.
fn loaded(arms: &[&Arm]) -> Option<String> {
    let took = |arm: &Arm| {
        let connections = plural(count(arm, &CONNECTIONS), "connection");
        Some(format!("{} over {connections}", number::time(span(arm)?)))
    };
    let by_span = |a: &&&Arm, b: &&&Arm| {
        let span = |arm: &Arm| span(arm).unwrap_or_default();
        span(a).total_cmp(&span(b))
    };
    let names = Names::new(arms.iter().copied());
    let (first, second, between) = match arms {
        [arm] => {
            let requests = plural(count(arm, &REQUESTS), "request");
            return Some(format!("The page loads in {}, with {requests}.", took(arm)?));
        }
        [a, b] => (*a, *b, "and"),
        arms => (*arms.iter().min_by(by_span)?, *arms.iter().max_by(by_span)?, "to"),
    };
    Some(format!(
        "The page loads in {} ({}) {between} {} ({}).",
        took(first)?,
        names.arm(first),
        took(second)?,
        names.arm(second)
    ))
}

/// The slowest load of two arms, where one of them held data behind lost segments: that a typical load does not show.
fn slowest(arms: &[&Arm]) -> Option<String> {
    let [a, b] = arms else { return None };
    let is_held = |arm: &&&Arm| held(arm).is_some();
    let most = |arm: &Arm| arm.histograms.get(SPAN.name).and_then(|span| span.max);
    let (held, times) = (arms.iter().find(is_held)?, [most(a)?, most(b)?]);
    let names = Names::new(arms.iter().copied());
    Some(format!(
        "The slowest load took {} ({}) and {} ({}); with {}, all requests waited on one connection for lost \
         segments.",
        number::time(times[0]),
        names.arm(a),
        number::time(times[1]),
        names.arm(b),
        names.arm(held)
    ))
}

/// How many handshakes the page waited for, where it opened most.
fn critical(arms: &[&Arm]) -> Option<String> {
    let opened = |arm: &Arm| count(arm, &CONNECTIONS);
    let most = arms.iter().copied().max_by_key(|arm| opened(arm))?;
    let critical = value(most, CRITICAL_HANDSHAKES.name)?.round() as u64;
    (opened(most) > 1).then(|| {
        let text = format!(
            "{}{} of {} handshakes {} on the critical path; the others overlapped.",
            in_arm(arms, most),
            number::count(critical),
            number::count(opened(most)),
            if critical == 1 { "was" } else { "were" }
        );
        capital(&text)
    })
}

fn next(summary: &Summary) -> Vec<NextStep> {
    let mut steps = explanations(summary);
    let browser = summary
        .arms
        .iter()
        .any(|arm| arm.own.page.as_ref().is_some_and(|loads| loads.browser.is_some()));
    if !browser && summary.causes.is_empty() {
        steps.push(step("tcptoll page --browser off,on", "tcptoll's page in headless Chromium"));
    }
    steps.push(step("tcptoll study page-2016", "the published figures next to yours"));
    steps
}

/// Every cause that a run may name, in the order of the answer.
pub(super) const ALL: &[&CauseSpec] =
    &[&ACCEPT_QUEUE_FULL, &CONNECTION_PER_RESOURCE, &NEXT_PAGE_RECONNECTS, &HEAD_OF_LINE];

/// The server closes after each response.
const CONNECTION_PER_RESOURCE: CauseSpec = CauseSpec::new("connection-per-resource", per_resource);

/// The second page finds its connections closed.
const NEXT_PAGE_RECONNECTS: CauseSpec = CauseSpec::new("next-page-reconnects", reconnects);

/// The name of [`HEAD_OF_LINE`].
const ID: &str = "page-head-of-line";

/// All requests share a connection, and their data waits for a lost segment of it.
const HEAD_OF_LINE: CauseSpec = CauseSpec::new(ID, held).remedied(several_connections);

/// Several connections, where the run did not compare them, or found them faster; else less loss.
fn several_connections(summary: &Summary) -> Vec<Remedy> {
    let pair = ill(summary, ID).and_then(|one| {
        Some((one, proven(summary, one, &["protocol"], |arm| !is_one_connection(arm))?))
    });
    let mean = |arm: &Arm| value(arm, super::SPAN_MEAN.name);
    let times = pair.and_then(|(one, several)| Some((one, mean(one)?, several, mean(several)?)));
    let of = |name: &str| Remedy::named(ID, name);
    vec![match times {
        None => of("compare"),
        Some((one, of_one, several, of_several)) if of_several < of_one => {
            of("http-1.1").proven(Some(format!(
                "mean network span {} ({}), {} ({})",
                number::time(of_several),
                several.name,
                number::time(of_one),
                one.name
            )))
        }
        // Several connections were no help: what is left is the loss itself.
        Some(_) => of("losses"),
    }]
}

/// Whether all requests of the page shared one connection, so that a lost segment delays all of them.
fn is_one_connection(arm: &Arm) -> bool {
    value(arm, CONNECTIONS.name).is_some_and(|opened| opened < 1.5)
        && value(arm, REQUESTS.name).is_some_and(|requests| requests > 1.5)
}

fn per_resource(arm: &Arm) -> Option<Finding> {
    let connections = value(arm, CONNECTIONS.name)?;
    let requests = value(arm, REQUESTS.name)?;
    // Each request has its own connection, and there are enough of them to matter.
    if requests < 3.0 || connections < 0.9 * requests {
        return None;
    }
    // Two are on the critical path with keep-alive too: of the document, and of what it names.
    let critical = value(arm, CRITICAL_HANDSHAKES.name).filter(|count| *count >= 2.5)?;
    let time = value(arm, CRITICAL_HANDSHAKE.name)?;
    let text = format!(
        "{requests:.0} requests opened {connections:.0} connections. {critical:.0} of these handshakes \
         were on the critical path and took {}",
        number::time(time)
    );
    let evidence = [
        (CONNECTIONS.name, connections),
        (REQUESTS.name, requests),
        (CRITICAL_HANDSHAKES.name, critical),
        (CRITICAL_HANDSHAKE.name, time),
    ];
    Some(Finding::new(text, evidence))
}

fn reconnects(arm: &Arm) -> Option<Finding> {
    let opened = value(arm, NEXT_CONNECTIONS.name).filter(|opened| *opened >= 1.0)?;
    let first = value(arm, CONNECTIONS.name)?;
    let requests = value(arm, REQUESTS.name)?;
    // Where nothing is kept, the other cause says so.
    if first >= 0.9 * requests {
        return None;
    }
    let text = format!(
        "The next page opened {opened:.0} new connections, because the server had closed those of \
         the first page"
    );
    let evidence = [(NEXT_CONNECTIONS.name, opened), (CONNECTIONS.name, first)];
    Some(Finding::new(text, evidence))
}

/// Held data is named from this share of the span on.
const HELD_SHARE: f64 = 0.05;

fn held(arm: &Arm) -> Option<Finding> {
    let held = value(arm, HELD.name)?;
    let span = value(arm, super::SPAN_MEAN.name)?;
    if span <= 0.0 || held < HELD_SHARE * span || !is_one_connection(arm) {
        return None;
    }
    let text = format!(
        "All requests shared one connection. Per load, received data waited {} on it for lost segments",
        number::time(held)
    );
    let evidence = [(HELD.name, held), (super::SPAN_MEAN.name, span)];
    Some(Finding::new(text, evidence))
}

#[cfg(test)]
mod tests {
    use tcptoll_core::record::Metric;

    use super::*;

    fn arm(figures: &[(&str, f64)]) -> Arm {
        let metric = |value| Metric { value, ..Metric::default() };
        let metrics = figures.iter().map(|(name, value)| ((*name).to_owned(), metric(*value)));
        Arm { metrics: metrics.collect(), ..Arm::default() }
    }

    #[test]
    fn a_connection_for_each_request_is_named_and_six_for_all_are_not() {
        let figures = |connections| {
            arm(&[
                (CONNECTIONS.name, connections),
                (REQUESTS.name, 21.0),
                (CRITICAL_HANDSHAKES.name, 5.0),
                (CRITICAL_HANDSHAKE.name, 75_000.0),
            ])
        };
        let found = per_resource(&figures(21.0)).unwrap();
        assert!(found.text.contains("5 of these handshakes"), "{}", found.text);
        assert_eq!(per_resource(&figures(6.0)), None);
    }

    #[test]
    fn a_next_page_that_finds_its_connections_open_is_not_named() {
        let figures = |next| {
            arm(&[(NEXT_CONNECTIONS.name, next), (CONNECTIONS.name, 6.0), (REQUESTS.name, 21.0)])
        };
        assert!(reconnects(&figures(6.0)).is_some());
        assert_eq!(reconnects(&figures(0.0)), None);
    }

    #[test]
    fn data_that_waits_for_a_hundredth_of_the_span_is_not_named() {
        let figures = |held| of_page(held, 1.0);
        assert!(held(&figures(20e3)).is_some());
        assert_eq!(held(&figures(1e3)), None);
    }

    fn of_page(held: f64, connections: f64) -> Arm {
        arm(&[
            (HELD.name, held),
            (crate::pages::page::SPAN_MEAN.name, 100e3),
            (CONNECTIONS.name, connections),
            (REQUESTS.name, 21.0),
        ])
    }

    #[test]
    fn requests_that_share_no_connection_do_not_wait_for_each_other() {
        assert_eq!(held(&of_page(20e3, 6.0)), None);
    }

    #[test]
    fn the_fix_is_what_the_run_measured_and_never_the_command_just_run() {
        let named = |name: &str, mut arm: Arm| {
            arm.name = name.to_owned();
            arm.factors.insert("protocol".to_owned(), name.into());
            arm
        };
        let h2 = named("h2", of_page(20e3, 1.0));
        let cause = HEAD_OF_LINE.explain(&h2).unwrap();
        let advice = |arms: Vec<Arm>| {
            let causes = vec![cause.clone()];
            several_connections(&Summary { arms, causes, ..Summary::default() }).remove(0)
        };
        assert!(advice(vec![h2.clone()]).change.contains("--protocol http/1.1,h2"));
        let mut six = named("http/1.1", of_page(0.0, 6.0));
        let slower = advice(vec![h2.clone(), six.clone()]);
        assert_eq!(slower.proof, None);
        assert!(slower.change.contains("loses packets: retransmissions"), "{}", slower.change);
        six.metrics.get_mut(crate::pages::page::SPAN_MEAN.name).unwrap().value = 50e3;
        let faster = advice(vec![h2, six]);
        assert!(faster.change.starts_with("Use HTTP/1.1"), "{}", faster.change);
        assert_eq!(
            faster.proof.as_deref(),
            Some("mean network span 50.0 ms (http/1.1), 100 ms (h2)")
        );
    }
}
