//! How do figures of a state read, in a table's cell and in a line?

use tcptoll_core::number;
use tcptoll_core::units::plural;
use tcptoll_live::watch::State;
use tcptoll_show::sheet::wrap_phrases;

/// From this time of a watch on its cost is stated as a share, s.
const SETTLED_S: f64 = 10.0;

/// What stands for a figure that is not known.
pub(super) const ABSENT: &str = "–";

/// A count in at most five characters: `65535`, `123k`, `1.2M`.
pub(super) fn short(count: u64) -> String {
    match count {
        0..100_000 => count.to_string(),
        100_000..1_000_000 => format!("{}k", count / 1_000),
        1_000_000..10_000_000 => format!("{}.{}M", count / 1_000_000, count / 100_000 % 10),
        1_000_000_000.. => format!("{}G", count / 1_000_000_000),
        _ => format!("{}M", count / 1_000_000),
    }
}

/// A rate in at most six characters: `0`, `0.004`, `21.4`, `12345`.
pub(super) fn rate(per_s: f64) -> String {
    match per_s {
        per_s if !per_s.is_finite() => ABSENT.to_owned(),
        0.0 => "0".to_owned(),
        per_s if per_s.abs() < 0.1 => format!("{per_s:.3}"),
        per_s if per_s.abs() < 999.95 => format!("{per_s:.1}"),
        per_s if per_s < 0.0 => format!("-{}", short(-per_s.round() as u64)),
        per_s => short(per_s.round() as u64),
    }
}

/// A time in at most eight characters: `12 s`, `4 min`, `3.2 h`, `41 d`.
pub(super) fn lasts(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() || s < 0.0 => ABSENT.to_owned(),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3_600.0),
        s => format!("{:.0} d", (s / 86_400.0).floor()),
    }
}

/// A part of a whole as a bar of this many columns. What is above 0 shows at least something.
pub(super) fn bar(part: u64, whole: u64, width: usize) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = match (part, whole) {
        _ if width == 0 => 0,
        (0, _) => 0,
        (_, 0) => width * 8,
        _ => {
            let filled = (part as f64 / whole as f64 * (width * 8) as f64).round();
            (filled as usize).clamp(1, width * 8)
        }
    };
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8]);
    }
    bar
}

/// What the connections of a state do, the most telling first.
pub(super) fn activity(state: &State) -> Vec<String> {
    let Some(rates) = &state.rates else { return vec!["no rates yet".to_owned()] };
    let mut parts = vec![
        format!("accepted {}/s", number::three(rates.passive_opens_per_s)),
        format!("opened {}/s", number::three(rates.active_opens_per_s)),
    ];
    parts.extend(state.segments.map(|segments| {
        let share = segments.retransmitted as f64 / (segments.sent + segments.retransmitted) as f64;
        let in_percent =
            if share > 0.0 { format!(" ({})", number::percent(share)) } else { String::new() };
        let retransmitted = number::count(segments.retransmitted);
        format!("retransmitted {retransmitted}{in_percent} in {:.0} s", segments.over_s)
    }));
    // A look each second needs no words.
    parts.extend(
        (state.interval_s > 1.5)
            .then(|| format!("rates over {}", number::duration(state.interval_s))),
    );
    parts.push(format!("sent {} segments/s", number::three(rates.segments_out_per_s)));
    let further = [
        ("reset", "", rates.resets_per_s),
        ("retransmitted", " SYNs", rates.syns_retransmitted_per_s),
        ("sent", " SYN cookies", rates.cookies_sent_per_s),
        ("dropped", " SYNs at full SYN queues", rates.syns_dropped_per_s),
    ];
    for (verb, what, per_s) in further {
        if per_s > 0.0 {
            parts.push(format!("{verb} {}{what}/s", number::three(per_s)));
        }
    }
    parts
}

/// Sockets, orphans and memory of a state, next to their limits.
pub(super) fn levels(state: &State) -> Vec<String> {
    let (now, limits) = (&state.counted, &state.limits);
    let used = |name: &str, now: Option<u64>, limit: Option<u64>| {
        let limit = limit.map(|limit| format!(" of {}", number::count(limit)));
        now.map(|now| format!("{name} {}{}", number::count(now), limit.unwrap_or_default()))
    };
    let memory = now.memory_bytes.map(|bytes| {
        let limit = limits.memory_max_bytes.map(|max| format!(" of {}", number::bytes(max as f64)));
        format!("memory {}{}", number::bytes(bytes as f64), limit.unwrap_or_default())
    });
    let established = state.states.get("ESTABLISHED").copied();
    // Few of it need no limit next to them.
    let near = |now: Option<u64>, limit: Option<u64>| {
        limit.filter(|limit| now.is_some_and(|now| now.saturating_mul(2) > *limit))
    };
    [
        used("established", established, None),
        used("TIME-WAIT", now.time_wait, near(now.time_wait, limits.max_tw_buckets)),
        used("sockets", now.sockets, None),
        used("orphans", now.orphans, near(now.orphans, limits.max_orphans)),
        memory,
        used("conntrack", now.tracked, limits.tracked_max).filter(|_| now.tracked != Some(0)),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What watching costs, and how old the table of all sockets is.
pub(super) fn cost(state: &State) -> Vec<String> {
    let cost = &state.cost;
    // A share of the first seconds is that of the program's start.
    let cpu = if state.at_s < SETTLED_S {
        format!("watching took {} of CPU", number::time(1e6 * cost.cpu_s))
    } else {
        format!("watching takes {:.1} % of a CPU", 100.0 * cost.cpu_share)
    };
    let mut parts = vec![format!("{cpu}, {}", number::bytes(cost.resident_bytes as f64))];
    parts.push(match state.table_age_s {
        Some(age) => format!(
            "all sockets read {} ago, every {}",
            number::duration(age.floor()),
            number::duration(cost.table_every_s.ceil())
        ),
        None => "all sockets not read yet".to_owned(),
    });
    parts
}

/// A value of each look as a line of blocks, scaled so that `full` is a whole one.
pub(super) fn sparkline(values: &[u32], full: u32) -> String {
    const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let block = |value: &u32| {
        let eighths = (u64::from(*value) * 8).div_ceil(u64::from(full.max(1)));
        BLOCKS[usize::try_from(eighths).unwrap_or(8).min(8)]
    };
    values.iter().map(block).collect()
}

/// Whose processes cannot be read, and what would show them; none if there are none.
pub(super) fn unreadable(state: &State, by_root: bool) -> Option<String> {
    let count = state.listeners.iter().filter(|one| one.process.is_none()).count();
    let why = if by_root {
        "without a visible process: in another PID namespace, or root lacks CAP_SYS_PTRACE"
    } else {
        "of other users: root can read their processes"
    };
    (count > 0).then(|| format!("{} {why}", plural(count as u64, "listener")))
}

/// As many figures as fit in one line of this width.
pub(super) fn line(figures: &[String], width: usize) -> String {
    wrap_phrases(figures, width).into_iter().next().unwrap_or_default()
}

/// `14:03:22 UTC` of an RFC 3339 time; the whole text if it is none.
pub(super) fn clock(time: &str) -> String {
    match (time.get(11..19), time.ends_with('Z')) {
        (Some(clock), true) => format!("{clock} UTC"),
        _ => time.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_rates_fit_their_columns() {
        let counts = [0, 65_535, 123_456, 1_250_000, 98_765_432, u64::MAX / 10_000_000_000];
        assert_eq!(counts.map(short), ["0", "65535", "123k", "1.2M", "98M", "1G"]);
        let rates = [0.0, 0.004, 0.1, 21.44, 999.96, 12_345.6, -8.0, -1e6, f64::NAN];
        let shown = ["0", "0.004", "0.1", "21.4", "1000", "12346", "-8.0", "-1.0M", "–"];
        assert_eq!(rates.map(rate), shown);
    }

    #[test]
    fn times_are_in_the_unit_that_a_person_would_use() {
        let times = [0.4, 11.0, 240.0, 11_520.0, 3_600_000.0, -1.0];
        assert_eq!(times.map(lasts), ["0 s", "11 s", "4 min", "3.2 h", "41 d", "–"]);
    }

    #[test]
    fn a_bar_is_full_at_its_limit_and_never_longer() {
        assert_eq!(bar(0, 10, 4), "");
        assert_eq!(bar(1, 1_000, 4), "▏");
        assert_eq!(bar(5, 10, 4), "██");
        assert_eq!([bar(10, 10, 4), bar(11, 10, 4), bar(3, 0, 4)], ["████"; 3]);
    }

    #[test]
    fn a_line_of_looks_shows_the_least_and_is_full_at_the_limit() {
        assert_eq!(sparkline(&[0, 1, 64, 128, 129], 128), " ▁▄██");
        assert_eq!(sparkline(&[0, 1], 0), " █");
    }

    #[test]
    fn a_line_takes_the_figures_that_fit() {
        let figures = ["one 1", "two 22", "three 333"].map(String::from);
        assert_eq!(line(&figures, 14), "one 1 · two 22");
        assert_eq!(line(&figures, 13), "one 1");
    }
}
