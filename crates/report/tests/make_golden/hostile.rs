//! A run whose every word was written by a hostile peer.

use super::*;

/// Every string of a summary holds escapes, tags, template braces and direction characters.
pub(super) fn hostile(dice: &mut Dice) -> Summary {
    let evil = "\u{1b}]0;pwned\u{7}\u{1b}[31m</script><script>alert(1)</script>\u{202e}{{7*7}}\n<img src=x onerror=alert(2)>\u{2028}&\"'";
    let mut s = failure(dice);
    s.question = format!("{evil}?");
    s.answer = evil.into();
    s.study = Some(evil.into());
    s.command.push(evil.into());
    s.started_at = evil.into();
    s.place = Place { kind: PlaceKind::Target, link: None, target: Some(evil.into()) };
    s.passport.kernel = evil.into();
    s.passport.cpu = evil.into();
    s.passport.congestion_control = Some(evil.into());
    let mut one = arm(dice, evil, 2_000, 250.0, (0.01, 900.0));
    one.errors = [(evil.to_owned(), 3)].into();
    one.attempts = 2_003;
    one.factors.insert(evil.into(), json!(evil));
    one.client.counters.insert(evil.into(), 1);
    one.client.sysctls.insert(evil.into(), evil.into());
    let t = one.timeline.as_mut().unwrap();
    t.steps[0].name = evil.into();
    t.steps[0].at = evil.into();
    t.views[0].span = evil.into();
    one.metrics.insert(evil.into(), metric(1.0, evil, 1));
    one.failure = Some(evil.into());
    of_requests(&mut one, evil);
    one.expectation.as_mut().unwrap().rtt_from = evil.into();
    s.arms = vec![one];
    s.published = vec![Published {
        arm: evil.into(),
        metric: evil.into(),
        value: 1.0,
        sd: None,
        source: evil.into(),
        note: Some(evil.into()),
    }];
    s.causes[0].text = evil.into();
    s.causes[0].id = evil.into();
    s.causes[0].evidence.insert(evil.into(), json!({evil: [evil]}));
    s.advice[0].change = evil.into();
    s.advice[0].proof = Some(evil.into());
    s.warnings[0].text = evil.into();
    s.next = vec![next(evil, evil)];
    let compared = Comparison {
        metric: evil.into(),
        a: evil.into(),
        b: evil.into(),
        ratio: Some(1.0),
        ci95: Some([0.9, 1.1]),
        difference: Some(metric(1.0, evil, 2)),
        ..Comparison::default()
    };
    let per = |level| Comparison {
        per: [(evil.to_owned(), json!(level))].into(),
        ci95: None,
        ..compared.clone()
    };
    s.comparisons = vec![compared.clone(), per(evil), per("=1+1|`")];
    in_evil_rounds(&mut s, evil);
    s
}

/// What a server says of itself, and what is said of the connections to it.
fn of_requests(arm: &mut Arm, evil: &str) {
    arm.connections_attempted = Some(2_003);
    arm.connections_ok = Some(2_000);
    arm.closing = Some(Closing { by_client: 1, ignored: 1, ..Closing::default() });
    arm.ports = Some(tcptoll_model::ports::PortForecast {
        text: evil.into(),
        ..tcptoll_model::ports::PortForecast::default()
    });
    arm.io = Some(evil.into());
    arm.metrics.insert("requests_per_s".into(), metric(1.0, evil, 1));
    let server = arm.server.as_mut().unwrap();
    server.version = Some(evil.into());
    server.sockstat.insert(evil.into(), 1);
}

/// Two arms with rounds, so that every picture of rounds and levels is drawn with hostile words.
fn in_evil_rounds(s: &mut Summary, evil: &str) {
    s.primary_metric = Some(evil.into());
    s.rounds = Some(Rounds { rule: evil.into(), stopped: evil.into(), ..Rounds::default() });
    let round = |n: u32, left_out: Option<&str>| Round {
        round: n,
        began_s: f64::from(n),
        left_out: left_out.map(str::to_owned),
        metrics: [(evil.to_owned(), 1.0 + f64::from(n))].into(),
    };
    let one = &mut s.arms[0];
    one.rounds = vec![round(0, None), round(1, Some(evil)), round(2, None)];
    one.warmup =
        Some(Warmup { attempts: 1, errors: [(evil.to_owned(), 1)].into(), ..Warmup::default() });
    let mut other = one.clone();
    other.name = "@SUM(1)|x".into();
    other.failure = None;
    other.timeline = None;
    other.factors.insert(evil.into(), json!("=1+1|`"));
    s.arms.push(other);
}
