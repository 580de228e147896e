//! Is a page loaded as a browser loads it, and is its time what arithmetic expects?

use std::collections::BTreeSet;
use std::time::Instant;

use anyhow::{Context as _, bail};
use serde_json::json;
use tcptoll_core::page::waterfall::Waterfall;
use tcptoll_core::record::{Arm, PageLoads, Summary, Verdict};

use crate::http::{only, summary};
use crate::table::Folder;
use crate::table::Proofs;

/// Rounds and loads of each: 20 loads of each arm.
const ROUNDS: &str = "10";
const LOADS: &str = "2";

/// A real page: the documentation of a site generator, made by itself, of Debian's package
/// mkdocs-doc.
const REAL: &str = "/usr/share/doc/mkdocs/html";

fn value(arm: &Arm, metric: &str) -> anyhow::Result<f64> {
    let metric = arm.metrics.get(metric).with_context(|| format!("{metric} of {}", arm.name))?;
    Ok(metric.value)
}

fn loads(arm: &Arm) -> anyhow::Result<&PageLoads> {
    arm.own.page.as_deref().with_context(|| format!("no page of {}", arm.name))
}

/// Median span, ms.
fn span_ms(arm: &Arm) -> anyhow::Result<f64> {
    Ok(loads(arm)?.median_us().context("a span")? / 1e3)
}

fn arm<'a>(run: &'a Summary, levels: &[(&str, &str)]) -> anyhow::Result<&'a Arm> {
    let has = |arm: &Arm, (option, level): &(&str, &str)| {
        arm.factors.get(*option).is_some_and(|typed| typed.as_str() == Some(level))
    };
    let found = run.arms.iter().find(|arm| levels.iter().all(|level| has(arm, level)));
    found.with_context(|| format!("no arm {levels:?}"))
}

/// Our own load against headless Chromium: span, connections, and the ratio of KeepAlive off to on.
pub(crate) fn browser(table: &mut Proofs) -> anyhow::Result<()> {
    for link in ["rtt=15ms", "rtt=100ms"] {
        let (run, _) = summary(
            &["page"],
            &[
                "--link",
                link,
                "--browser",
                "off,on",
                "--keepalive",
                "on,off",
                "--rounds",
                ROUNDS,
                "--loads",
                LOADS,
            ],
        )?;
        let mut ratios = Vec::new();
        let mut spans = [[0.0; 2]; 2];
        for (k, keepalive) in ["on", "off"].into_iter().enumerate() {
            for (b, browser) in ["off", "on"].into_iter().enumerate() {
                let arm = arm(&run, &[("browser", browser), ("keepalive", keepalive)])?;
                spans[b][k] = span_ms(arm)?;
                let expected = if keepalive == "on" { 6.0 } else { 21.0 };
                let opened = value(arm, "connections_opened")?;
                table.row(
                    &format!(
                        "{link}, KeepAlive {keepalive}, browser {browser}: connections opened"
                    ),
                    &format!("{expected}"),
                    &format!("{opened} ({} loads, {} whole)", arm.attempts, arm.ok),
                    (opened - expected).abs() < 1e-9 && arm.ok == arm.attempts,
                );
                if browser == "on" {
                    Proofs::fact(
                        &format!("{link}, KeepAlive {keepalive}: Chromium's load event"),
                        &format!("{:.1} ms", value(arm, "load_event_us_mean")? / 1e3),
                    );
                }
            }
            let ratio = spans[1][k] / spans[0][k];
            table.row(
                &format!("{link}, KeepAlive {keepalive}: median span, Chromium against tcptoll"),
                "within 15 %",
                &format!(
                    "{:.1} ms against {:.1} ms: {:+.1} %",
                    spans[1][k],
                    spans[0][k],
                    (ratio - 1.0) * 100.0
                ),
                (ratio - 1.0).abs() <= 0.15,
            );
        }
        for one in spans {
            ratios.push(one[1] / one[0]);
        }
        let apart = ratios[1] / ratios[0] - 1.0;
        table.row(
            &format!("{link}: ratio of KeepAlive off to on, Chromium against tcptoll"),
            "within 10 %",
            &format!("{:.3} against {:.3}: {:+.1} %", ratios[1], ratios[0], apart * 100.0),
            apart.abs() <= 0.10,
        );
    }
    let near = [
        "--link",
        "direct",
        "--tap",
        "--browser",
        "off,on",
        "--keepalive",
        "on,off",
        "--rounds",
        "5",
        "--loads",
        LOADS,
    ];
    let (run, _) = summary(&["page"], &near)?;
    for one in &run.arms {
        Proofs::fact(
            &format!("direct link, {}: median span", one.name),
            &format!("{:.2} ms", span_ms(one)?),
        );
    }
    Ok(())
}

/// Static pages whose time is forecast: settings beyond the link.
const FORECASTS: &[(&str, &[&str])] = &[
    ("20 × 2 KB", &[]),
    ("20 × 20 KB", &["--resource-size", "20K"]),
    ("6 × 200 KB", &["--resources", "6", "--resource-size", "200K"]),
    ("60 × 2 KB", &["--resources", "60"]),
    ("no resources", &["--resources", "0"]),
    ("20 × 2 KB, TLS", &["--tls", "on"]),
];

/// The fuller model against the measurement, with the simple one beside.
pub(crate) fn forecast(table: &mut Proofs) -> anyhow::Result<()> {
    for link in ["rtt=15ms", "rtt=40ms", "rtt=100ms"] {
        for (what, settings) in FORECASTS {
            let mut args = vec!["--link", link, "--keepalive", "on,off", "--rounds", "5"];
            args.extend_from_slice(settings);
            let (run, _) = summary(&["page"], &args)?;
            let on = arm(&run, &[("keepalive", "on")])?;
            let off = arm(&run, &[("keepalive", "off")])?;
            for (keepalive, arm) in [("on", on), ("off", off)] {
                let (measured, expected) = (span_ms(arm)?, value(arm, "forecast_us")? / 1e3);
                let apart = measured / expected - 1.0;
                table.row(
                    &format!("{link}, {what}, KeepAlive {keepalive}: measured against forecast"),
                    "within 10 %",
                    &format!("{measured:.1} ms against {expected:.1} ms: {:+.1} %", apart * 100.0),
                    apart.abs() <= 0.10,
                );
            }
            let saved = value(off, "connections_opened")? - value(on, "connections_opened")?;
            let rtt_ms = loads(on)?.rtt_us.context("round trip")? / 1e3;
            Proofs::fact(
                &format!("{link}, {what}: saved by KeepAlive; connections saved × round trip"),
                &format!(
                    "{:.1} ms; {saved:.0} × {rtt_ms:.1} ms = {:.1} ms",
                    span_ms(off)? - span_ms(on)?,
                    saved * rtt_ms
                ),
            );
        }
    }
    Ok(())
}

/// The published page, in its study.
pub(crate) fn study(table: &mut Proofs) -> anyhow::Result<()> {
    let begun = Instant::now();
    let (run, _) = summary(&["study", "run", "page-2016"], &[])?;
    let took = begun.elapsed().as_secs_f64();
    let arms = run.arms.iter().map(|arm| {
        Ok(format!("{} {:.1} ms ({} loads)", arm.name, span_ms(arm)?, loads(arm)?.spans_us.len()))
    });
    let arms = arms.collect::<anyhow::Result<Vec<_>>>()?;
    let fewest =
        run.arms.iter().filter_map(|arm| Some(arm.own.page.as_ref()?.spans_us.len())).min();
    for one in &run.comparisons {
        let interval = one.ci95.map(|[low, high]| format!(" [{low:.3}, {high:.3}]"));
        table.row(
            &format!("page-2016: {} against {}", one.a, one.b),
            "a verdict with interval",
            &format!(
                "{} ×{:.3}{}",
                one.verdict,
                one.ratio.unwrap_or(f64::NAN),
                interval.as_deref().unwrap_or(", no interval")
            ),
            one.verdict != Verdict::NotEnough && interval.is_some(),
        );
    }
    table.row(
        "page-2016: loads of each arm, and time",
        "≥ 30, ≤ 120 s",
        &format!("{}; {took:.0} s", arms.join(", ")),
        fewest.is_some_and(|count| count >= 30) && took <= 120.0,
    );
    Proofs::fact("published: off, on, best shown and typical", "1190, 588; 800, 600 ms");
    Ok(())
}

/// Three ways to load a page over a lossy link, all with TLS.
pub(crate) fn loss(table: &mut Proofs) -> anyhow::Result<()> {
    let (run, _) = summary(&["study", "run", "page-loss"], &[])?;
    for one in &run.comparisons {
        let interval = one.ci95.map(|[low, high]| format!(" [{low:.2}, {high:.2}]"));
        table.row(
            &format!("page-loss: {} against {}", one.a, one.b),
            "a verdict",
            &format!(
                "{} ×{:.2}{}",
                one.verdict,
                one.ratio.unwrap_or(f64::NAN),
                interval.as_deref().unwrap_or(", no interval")
            ),
            interval.is_some(),
        );
    }
    for one in &run.arms {
        let gaps = value(one, "head_of_line_gaps")?;
        let held = value(one, "head_of_line_us")? / 1e3;
        let again = value(one, "retransmissions")?;
        table.row(
            &format!("page-loss: {}: head-of-line blocking on the wire, per load", one.name),
            "seen, or said to be absent",
            &format!(
                "{again:.2} retransmissions; {}",
                if gaps > 0.0 {
                    format!("{gaps:.2} gaps held data back for {held:.1} ms")
                } else {
                    "no data waited".to_owned()
                }
            ),
            true,
        );
    }
    Ok(())
}

/// The text of a page and of all style sheets of its site.
fn named_by_page(path: &str) -> anyhow::Result<String> {
    let mut text = std::fs::read_to_string(format!("{REAL}{path}"))?;
    for folder in ["css", "assets/css", "assets/stylesheets"] {
        let Ok(files) = std::fs::read_dir(format!("{REAL}/{folder}")) else { continue };
        for file in files {
            text += &String::from_utf8_lossy(&std::fs::read(file?.path())?);
        }
    }
    Ok(text)
}

fn urls(page: &Waterfall) -> BTreeSet<String> {
    page.requests.iter().map(|one| one.url.clone()).collect()
}

/// A page of another's making: the same resources as the browser asks for; and a HAR of that load.
pub(crate) fn real(table: &mut Proofs) -> anyhow::Result<()> {
    if !std::path::Path::new(REAL).is_dir() {
        bail!("{REAL} is missing: cargo xtask setup installs mkdocs-doc");
    }
    let folder = Folder::new("har")?;
    for path in ["/index.html", "/user-guide/choosing-your-theme.html"] {
        if !std::path::Path::new(&format!("{REAL}{path}")).is_file() {
            bail!("{REAL}{path} is missing");
        }
        let (run, _) = summary(
            &["page"],
            &[
                "--site",
                REAL,
                "--path",
                path,
                "--browser",
                "off,on",
                "--rounds",
                "2",
                "--loads",
                "1",
            ],
        )?;
        let ours = &loads(arm(&run, &[("browser", "off")])?)?.waterfall;
        let browser = &loads(arm(&run, &[("browser", "on")])?)?.waterfall;
        let (own, other) = (urls(ours), urls(browser));
        let lacks: Vec<&String> = other.difference(&own).collect();
        let named = named_by_page(path)?;
        // Of another host, or named by no HTML and no CSS of the page: a script asked for it.
        let host = ours.requests.first().map(|one| one.url.trim_end_matches(path));
        let unexplained: Vec<&&String> = lacks
            .iter()
            .filter(|url| host.is_some_and(|host| url.starts_with(host.trim_end_matches('/'))))
            .filter(|url| named.contains(url.rsplit('/').next().unwrap_or_default()))
            .collect();
        let more: Vec<&String> = own.difference(&other).collect();
        let left: Vec<String> =
            ours.left_out.iter().map(|one| format!("{} {}", one.count, one.reason)).collect();
        table.row(
            &format!("mkdocs-doc {path}: resources of tcptoll and Chromium"),
            "the same but for other hosts and what scripts ask for; misses listed",
            &format!(
                "{} and {}; only Chromium: {lacks:?}; only tcptoll: {more:?}; left out: {}",
                own.len(),
                other.len(),
                left.join(", ")
            ),
            unexplained.is_empty() && more.is_empty(),
        );
        let failed = ours.requests.iter().filter(|one| one.error.is_some()).count();
        table.row(
            &format!("mkdocs-doc {path}: loaded whole"),
            "0 failed",
            &format!("{failed} failed of {}", ours.requests.len()),
            failed == 0 && ours.everything_us.is_some(),
        );
        let har = folder.file("page.har", &har_of(browser).to_string())?;
        let (run, _) = summary(
            &["page"],
            &["--har", &har, "--keepalive", "on", "--rounds", "1", "--loads", "1"],
        )?;
        let replayed = &loads(only(&run)?)?.waterfall;
        table.row(
            &format!("HAR of Chromium's load of {path}: requests replayed"),
            &browser.requests.len().to_string(),
            &replayed.requests.len().to_string(),
            replayed.requests.len() == browser.requests.len() && only(&run)?.ok == 1,
        );
    }
    Ok(())
}

/// What a browser's own export of this load would have.
fn har_of(page: &Waterfall) -> serde_json::Value {
    let entries = page.requests.iter().map(|one| {
        let by = one.initiator.and_then(|number| page.requests.get(number as usize));
        let kind = serde_json::to_value(one.kind).unwrap_or_default();
        json!({
            "startedDateTime": format!("2026-01-01T00:00:{:09.6}Z", one.known_us as f64 / 1e6),
            "request": { "method": "GET", "url": one.url },
            "response": {
                "status": one.status.unwrap_or(200),
                "bodySize": one.body_bytes,
                "content": { "size": one.body_bytes, "mimeType": "" },
            },
            "timings": { "wait": one.phases.wait_us as f64 / 1e3 },
            "_resourceType": kind,
            "_initiator": { "url": by.map(|by| by.url.clone()) },
        })
    });
    json!({ "log": { "version": "1.2", "entries": entries.collect::<Vec<_>>() } })
}
