use super::*;

fn link(text: &str) -> LinkSpec {
    LinkSpec::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    LinkSpec::parse(text).unwrap_err().to_string()
}

#[test]
fn every_profile_is_read_and_says_what_and_whence() {
    for profile in PROFILES {
        let spec = link(profile.name);
        assert_eq!(spec.text, profile.name);
        assert_eq!(spec.loopback, profile.name == "loopback");
        assert!(!profile.what.is_empty() && !profile.source.is_empty());
        let keys = LinkSpec { text: profile.name.to_owned(), ..link(profile.spec) };
        assert_eq!(spec, keys, "{}", profile.name);
    }
    let names: std::collections::BTreeSet<_> = PROFILES.iter().map(|p| p.name).collect();
    assert_eq!(names.len(), PROFILES.len());
}

#[test]
fn keys_are_read_and_kept_for_the_record() {
    let spec = link("rtt=37ms,jitter=2ms,rate=10.5mbit,loss=0.1%,queue=100p,seed=7");
    assert_eq!((spec.rtt, spec.jitter), (Duration::from_millis(37), Duration::from_millis(2)));
    assert_eq!((spec.queue, spec.seed), (Some(QueueLimit::Packets(100)), Some(7)));
    let asked = spec.asked();
    assert_eq!(asked.spec, spec.text);
    assert_eq!((asked.rtt_us, asked.jitter_us, asked.loss), (37_000.0, 2_000.0, 0.001));
    assert_eq!((asked.rate_bit_per_s, asked.queue_packets), (Some(10.5e6), Some(100)));
    assert_eq!(asked.queue_bytes, None);
    assert_eq!(link("rate=1mbit,queue=64K").asked().queue_bytes, Some(65_536));
}

#[test]
fn keys_after_a_profile_override_it() {
    let spec = link("mobile, loss=0, rtt=80ms");
    assert_eq!((spec.loss, spec.rtt), (0.0, Duration::from_millis(80)));
    assert_eq!(spec.rate_bit_per_s, Some(20e6));
    assert!((link("metro,loss=100%").loss - 1.0).abs() < 1e-12);
}

#[test]
fn a_rate_alone_needs_no_emulator() {
    for text in ["direct", "loopback", "lan-1g", "rate=10mbit,seed=1"] {
        assert!(!link(text).is_emulated(), "{text}");
    }
    for text in ["metro", "loss=1%", "rate=10mbit,queue=20p", "lan-1g,rtt=1ms"] {
        assert!(link(text).is_emulated(), "{text}");
    }
    for text in ["direct", "loopback", "metro"] {
        assert!(!link(text).must_segment(), "{text}");
    }
    for text in ["loss=1%", "lan-1g", "rtt=2ms,jitter=1ms", "mobile"] {
        assert!(link(text).must_segment(), "{text}");
    }
}

#[test]
fn a_gigabit_carries_941_mbit_of_tcp_payload() {
    // 1,448 bytes of payload in an IP packet of 1,500: 1448 / 1538 = 0.9415.
    assert_eq!((line_bytes(1500), line_bytes(40), line_bytes(46)), (1538, 84, 84));
    assert!((1448.0 / line_bytes(1500) as f64 - 0.9415).abs() < 1e-4);
}

#[test]
fn a_value_that_is_none_is_shown_with_what_to_write() {
    assert_eq!(
        error("rtt=37parsecs"),
        "--link rtt=37parsecs: \"37parsecs\" is not a time\n  \
         write a number with us, ms or s: --link rtt=37ms"
    );
    let cases = [
        ("rtt", "rtt has no value"),
        ("rtt=37", "\"37\" has no unit"),
        ("rtt=61s", "rtt=61s is above 60s"),
        ("rate=100", "\"100\" has no unit"),
        ("rate=999bit", "is not between 1kbit and 100gbit"),
        ("rate=101gbit", "is not between 1kbit and 100gbit"),
        ("loss=101%", "is more than 100%"),
        ("rate=1mbit,queue=0p", "queue=0p holds nothing"),
        ("rate=1mbit,queue=many", "\"many\" is not a size"),
        ("seed=-1", "seed=-1 is not a whole number"),
    ];
    for (text, part) in cases {
        let message = error(text);
        assert!(message.contains(part), "{message}");
        assert_eq!(message.lines().count(), 2, "{message}");
        assert!(message.starts_with(&format!("--link {text}: ")), "{message}");
    }
}

#[test]
fn a_slip_of_the_finger_is_met_with_the_nearest_name() {
    assert!(error("rrt=37ms").contains("no key \"rrt\", did you mean rtt?"));
    assert!(error("los=1%").contains("did you mean loss?\n  keys: rtt, jitter, rate"));
    assert!(error("metr").contains("no profile \"metr\", did you mean metro?"));
    assert!(error("crossregion").contains("did you mean cross-region?"));
    assert!(error("37ms").contains("did you mean rtt=37ms?"));
    let far = error("moonbase");
    assert!(far.contains("profiles: direct, loopback") && !far.contains("did you mean"));
}

#[test]
fn links_that_make_no_sense_are_refused() {
    let cases = [
        ("", "no link is given"),
        ("rtt=1ms,rtt=2ms", "rtt is given twice"),
        ("rtt=1ms,metro", "metro is a profile and must come first"),
        ("rtt=1ms,jitter=2ms", "jitter 2ms is more than rtt 1ms"),
        ("queue=100p", "add a rate: --link queue=100p,rate=100mbit"),
        ("rtt=1ms,order=kept", "add jitter: --link rtt=1ms,order=kept,jitter=2ms"),
        ("loopback,rtt=1ms", "loopback takes no keys"),
    ];
    for (text, part) in cases {
        assert!(error(text).contains(part), "{}", error(text));
    }
    assert!(LinkSpec::parse(",").is_err() && LinkSpec::parse("metro,").is_err());
}

#[test]
fn a_rate_carries_the_payload_of_full_segments() {
    let mbit = |link: &str, ipv6, timestamps| {
        let link = LinkSpec::parse(link).unwrap();
        Some((link.payload_bytes_per_s(ipv6, timestamps)? * 8.0 / 1e4).round() / 100.0)
    };
    // 1,448, 1,428, 1,460 and 1,440 of 1,538 bytes.
    assert_eq!(mbit("lan-1g", false, true), Some(941.48));
    assert_eq!(mbit("lan-1g", true, true), Some(928.48));
    assert_eq!(mbit("lan-1g", false, false), Some(949.28));
    assert_eq!(mbit("rtt=1ms,rate=100mbit", true, false), Some(93.63));
    assert_eq!(mbit("rtt=10ms", false, true), None);
}
