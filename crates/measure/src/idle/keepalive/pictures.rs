//! What does `keepalive` show of its own? What died and when that was known, what a shorter time until
//! that costs in packets, and what no column can say: how an arm checked, and what became of the deaths that
//! were never known, known late, or were none.
//!
//! With letters both axes of the trade are logarithmic: capitals are measured arms, small letters the computed
//! curves. The page draws it as `trade` does.

use std::collections::BTreeMap;
use tcptoll_core::units::capital;

use super::sheet::{deaths, due_s, keepalive};
use super::trade::{Curve, Trade, setting, trade, who};
use super::{DETECTION, MACHINE_CPU, trade};
use tcptoll_core::experiment::column::value;
use tcptoll_core::record::{Arm, Deaths, Keepalive};
use tcptoll_core::sheet::{Note, Part, Table, Tone};
use tcptoll_core::stats::HistogramSummary;
use tcptoll_core::tcp::checking::{Mechanism, Setting, SettingPlace};
use tcptoll_show::figures::plural;
use tcptoll_show::run::Section;
use tcptoll_show::run::{Answer, Failed, Picture};
use tcptoll_show::run::{NONE, Own, Run};
use tcptoll_show::table;
use tcptoll_show::{figures, number};

pub(crate) const OWN: Own = Own {
    words: cell,
    failed: Some(failed),
    answer: Some(&Answer {
        histogram: DETECTION.name,
        counts: |arm| deaths(arm).map(|deaths| (deaths.known, deaths.dead)),
        share: "share of dead connections detected within …",
        never: "never detected",
        caption: caption_of_deaths,
    }),
    text_after: letters,
    picture,
    sections,
    ..NONE
};

/// Ways of checking that are told apart in words; more would push the answer off the screen.
const SETTINGS: usize = 6;

fn failed(Failed { failed, tried }: Failed) -> String {
    let [bad, all] = [failed, tried].map(number::count);
    format!(
        "{bad} of {all} connections could not be established, or ended although no fault hit them."
    )
}

/// Words in columns: how an arm checked, by what deaths were known, false alarms to be expected.
fn cell(key: &str, arm: &Arm) -> Option<String> {
    match key {
        "checking" => Some(settings(keepalive(arm)?)),
        "known_by" => counted(&deaths(arm)?.known_by),
        "read_said" => counted(&deaths(arm)?.read_said),
        "wrongly_closed_expected" => expected_wrongly(arm),
        _ => None,
    }
}

fn caption_of_deaths(h: &HistogramSummary) -> String {
    let word = if h.p50.is_some() { "median" } else { "mean" };
    let middle = figures::middle(h).map(|us| format!("after {} ({word})", number::time(us)));
    let last = h
        .max
        .map(|us| format!("the last of {} after {}", number::count(h.count), number::time(us)));
    let words: Vec<String> = middle.into_iter().chain(last).collect();
    format!("Dead connections were detected {}.", words.join(", "))
}

fn any_died(summary: &Run) -> bool {
    summary.arms.iter().any(|arm| deaths(arm).is_some())
}

/// Each way of checking with its settings, and the trade drawn with letters where there is room.
fn letters(summary: &Run, width: usize) -> Vec<Part> {
    let mut blocks = how(summary);
    let Some(trade) = trade(summary) else { return blocks };
    let picture = lines(&trade, width);
    let remarks = trade.remarks.iter().cloned();
    let basis = trade.basis().filter(|_| !picture.is_empty());
    blocks.push(Part::Blank);
    blocks.extend(picture.into_iter().map(|line| Part::pieces(vec![(Tone::Plain, line)])));
    let basis = basis.map(|basis| format!("Small letters: {basis}."));
    blocks.extend(remarks.chain(basis).map(|text| Part::prose(2, text, Tone::Dim)));
    blocks
}

/// Each way of checking once, with its settings.
fn how(summary: &Run) -> Vec<Part> {
    let mut ways: Vec<(&str, String)> = Vec::new();
    for arm in &summary.arms {
        let Some(checked) = keepalive(arm) else { continue };
        let way = settings(checked);
        if !way.is_empty() && !ways.iter().any(|(_, known)| *known == way) {
            ways.push((checked.checking.mechanism.name(), way));
        }
    }
    let more = ways.len().saturating_sub(SETTINGS);
    let labelled = |label: String, text: String| Part::labelled(label, 14, text, Tone::Dim);
    let shown = ways.into_iter().take(SETTINGS);
    let mut blocks = vec![Part::Blank];
    blocks.extend(shown.map(|(mechanism, way)| labelled(format!("  {mechanism}"), way)));
    if more > 0 {
        blocks.push(labelled(String::new(), format!("{more} more settings in the record")));
    }
    blocks
}

/// Deaths, the trade, and what checking took.
fn sections(summary: &Run) -> Vec<Section> {
    if summary.arms.iter().all(|arm| keepalive(arm).is_none()) {
        return Vec::new();
    }
    let mut sections = Vec::new();
    if any_died(summary) {
        let mut items = table(summary, "", "deaths");
        items.extend(table(summary, "What detection took, and by what", "spent"));
        let notes = notes(&summary.arms);
        if !notes.is_empty() {
            items.push(Part::Notes { notes });
        }
        let title = "Dead connections, and when they were detected";
        sections.push(Section::new(title, items).everywhere());
    }
    if let Some(trade) = trade(summary) {
        let mut items = table(summary, "", "trade");
        if let Some(basis) = trade.basis() {
            let computed = computed(&trade);
            items.push(Part::prose(0, capital(&basis) + ".", Tone::Dim));
            items.push(Part::folded(
                "The computed lines as a table".to_owned(),
                format!("{} settings", computed.len()),
                vec![Part::Table(Table::texts(
                    &["mechanism", "detected within", "packets per hour", "setting"],
                    &[3],
                    computed,
                ))],
            ));
        }
        sections.push(Section::led("Detection time and packets", items).everywhere());
    }
    let mut items = table(summary, "", "traffic");
    items.extend(table(summary, "Per hour", "hourly"));
    let more = table(summary, "", "more");
    if !more.is_empty() {
        items.push(Part::folded("Bytes by kind, and retransmissions", "", more));
    }
    let to_set = to_set(&summary.arms);
    if !to_set.is_empty() {
        let heads = vec!["arm", "where", "name", "value"];
        let rows = Part::Table(Table::texts(&heads, &[1, 2, 3], to_set));
        items.push(Part::folded("Settings", "", vec![rows]));
    }
    items.extend(table(summary, "CPU and memory", "cost"));
    if summary.arms.iter().any(|arm| value(arm, MACHINE_CPU.name).is_some()) {
        let words = "Machine: CPU of all programs on the machine except the link emulator, which \
                     also does the work of receiving packets.";
        items.push(Part::prose(0, words.to_owned(), Tone::Dim));
    }
    sections.push(Section::new("Cost of checking", items).everywhere());
    sections
}

/// What the lines of the picture say: mechanism, known after, packets per hour, the setting.
fn computed(trade: &Trade<'_>) -> Vec<Vec<String>> {
    let rows = |curve: &Curve| {
        let mechanism = curve.mechanism;
        let row = move |p: &tcptoll_core::tcp::checking::Point| {
            vec![
                mechanism.name().to_owned(),
                number::time(p.detect_s * 1e6),
                number::three(p.packets_per_hour),
                setting(&p.checking),
            ]
        };
        curve.points.iter().map(row).collect::<Vec<_>>()
    };
    trade.curves.iter().flat_map(rows).collect()
}

/// The picture of the trade.
fn picture(summary: &Run) -> Option<Picture> {
    let trade = trade(summary)?;
    let drawn = trade.drawn.iter().map(|arm| arm.at).collect();
    Some(Picture { svg: trade::picture(&trade)?, caption: trade::caption(&trade), drawn })
}

/// `ETIMEDOUT (998), ECONNRESET (2)`, most frequent first.
fn counted(counts: &BTreeMap<String, u64>) -> Option<String> {
    let mut counts: Vec<(&String, &u64)> = counts.iter().filter(|(_, n)| **n > 0).collect();
    counts.sort_by(|a, b| b.1.cmp(a.1));
    let words: Vec<String> =
        counts.into_iter().map(|(what, n)| format!("{what} ({})", number::count(*n))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Expected false alarms: `2.1 [0, 6]`.
fn expected_wrongly(arm: &Arm) -> Option<String> {
    let [least, mean, most] = deaths(arm)?.expected_wrongly?;
    Some(format!("{} [{}, {}]", number::three(mean), number::three(least), number::three(most)))
}

/// How an arm checked: `server: probes after 10 s of silence, 3 of them, 1 s apart`.
fn settings(keepalive: &Keepalive) -> String {
    let how = setting(&keepalive.checking);
    match keepalive.side.as_str() {
        // Who sends nothing does so on both sides.
        _ if keepalive.checking.mechanism == Mechanism::None => how,
        "" => how,
        side => format!("{side}: {how}"),
    }
}

/// What has to be set for each way of checking, once: who checks so, where to set it, its name and
/// value.
fn to_set(arms: &[Arm]) -> Vec<[String; 4]> {
    let mut known: Vec<(Vec<Setting>, Vec<&str>)> = Vec::new();
    for arm in arms {
        let Some(keepalive) = keepalive(arm) else { continue };
        let settings = keepalive.checking.settings();
        match known.iter_mut().find(|(one, _)| *one == settings) {
            Some((_, names)) => names.push(&arm.name),
            None => known.push((settings, vec![&arm.name])),
        }
    }
    let rows = known.into_iter().flat_map(|(settings, names)| {
        let names = names.join("; ");
        settings.into_iter().map(move |s| {
            let place = match s.place {
                SettingPlace::Socket => "setsockopt(2)",
                SettingPlace::Sysctl => "or sysctl",
                SettingPlace::Library => "tcp-heartbeat",
                SettingPlace::Program => "the program",
            };
            [names.clone(), place.to_owned(), s.name, s.value]
        })
    });
    rows.collect()
}

/// What is to be said of the deaths of all arms; what several share is said once.
fn notes(arms: &[Arm]) -> Vec<Note> {
    let mut said: Vec<(Note, Vec<&str>)> = Vec::new();
    for arm in arms {
        let Some(deaths) = deaths(arm) else { continue };
        for note in of_deaths(arm, deaths) {
            match said.iter_mut().find(|(known, _)| *known == note) {
                Some((_, names)) => names.push(&arm.name),
                None => said.push((note, vec![&arm.name])),
            }
        }
    }
    let named = |(note, names): (Note, Vec<&str>)| match arms.len() {
        1 => note,
        _ => Note { text: format!("{}: {}", who(&names), note.text), ..note },
    };
    said.into_iter().map(named).collect()
}

fn of_deaths(arm: &Arm, d: &Deaths) -> Vec<Note> {
    let mut notes = Vec::new();
    let mut note = |bad: bool, text: String| notes.push(Note::new(text, bad));
    let mut by = counted(&d.known_by).map(|by| format!("reported as {by}"));
    if let Some(said) = counted(&d.read_said) {
        let read = format!("read(2) on them returned {said}");
        by = Some(by.map_or(read.clone(), |by| format!("{by}; {read}")));
    }
    if let Some(by) = by {
        note(false, by);
    }
    if let Some(never) = never(d) {
        note(true, never);
    }
    if d.late > 0 {
        let due =
            due_s(arm).map_or_else(String::new, |s| format!(" than {}", number::tick(s, "s")));
        let text = format!("{} of {} were detected later{due}", number::count(d.late), of_dead(d));
        note(true, text);
    }
    let most = d.expected_wrongly.map_or(0.0, |[_, _, most]| most);
    if d.wrongly_closed as f64 > most {
        let text = format!(
            "{} closed, but at most {} are expected",
            plural(d.wrongly_closed, "live connection"),
            number::three(most)
        );
        note(true, text);
    }
    notes
}

fn of_dead(d: &Deaths) -> String {
    plural(d.dead, "dead connection")
}

/// Deaths that nobody learned of; why is told by the cause.
fn never(d: &Deaths) -> Option<String> {
    if d.dead == 0 || d.known >= d.dead {
        return None;
    }
    let known = if d.known == 0 { "none".to_owned() } else { number::count(d.known) };
    Some(format!("{known} of {} detected within {}", of_dead(d), number::time(d.watched_s * 1e6)))
}

/// Lines of the picture, axes apart.
const ROWS: usize = 13;

/// Columns left of the picture: a tick and the axis.
const LEFT: usize = 10;

/// The axes reach this many times beyond what was measured, and on to the next decade.
const NEAR: f64 = 2.0;

/// Letters wider apart than this say nothing more.
const COLUMNS: usize = 76;

fn letter(mechanism: Mechanism) -> char {
    match mechanism {
        Mechanism::None => 'n',
        Mechanism::Tcp => 't',
        Mechanism::Heartbeat => 'h',
        Mechanism::Lazy => 'l',
        Mechanism::Write => 'w',
    }
}

/// A logarithmic axis over `cells` cells, from a decade to a decade.
struct Axis {
    least: f64,
    most: f64,
    cells: usize,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64>, cells: usize) -> Option<Self> {
        let logs: Vec<f64> = values.filter(|v| v.is_finite() && *v > 0.0).map(f64::log10).collect();
        let least = logs.iter().copied().reduce(f64::min)?;
        let most = logs.iter().copied().reduce(f64::max)?;
        // A single value still spans a decade.
        let (least, most) = (least.floor(), most.ceil());
        Some(Self { least, most: most.max(least + 1.0), cells })
    }

    fn holds(&self, value: f64) -> bool {
        value > 0.0 && (self.least..=self.most).contains(&value.log10())
    }

    fn cell(&self, value: f64) -> usize {
        let share = ((value.log10() - self.least) / (self.most - self.least)).clamp(0.0, 1.0);
        (share * (self.cells - 1) as f64).round() as usize
    }

    fn decades(&self) -> impl Iterator<Item = f64> + use<> {
        (self.least as i32..=self.most as i32).map(|exponent| 10_f64.powi(exponent))
    }
}

/// The lines of the picture; none where nothing has a place in it.
fn lines(trade: &Trade<'_>, width: usize) -> Vec<String> {
    // The curves go much further; near what was measured they can be told apart.
    let near = |value: f64| [value / NEAR, value * NEAR];
    let packets = trade.drawn.iter().flat_map(|arm| near(arm.packets_per_hour));
    let times = trade.drawn.iter().flat_map(|arm| near(arm.known_s[1]));
    let columns = width.saturating_sub(LEFT + 3).clamp(30, COLUMNS);
    let x = Axis::over(packets, columns);
    let y = Axis::over(times, ROWS);
    let (Some(x), Some(y)) = (x, y) else { return Vec::new() };
    let mut cells = vec![vec![' '; columns]; ROWS];
    for curve in &trade.curves {
        for (packets, s) in curve.line().filter(|(packets, s)| x.holds(*packets) && y.holds(*s)) {
            cells[ROWS - 1 - y.cell(s)][x.cell(packets)] = letter(curve.mechanism);
        }
    }
    for arm in &trade.drawn {
        let row = &mut cells[ROWS - 1 - y.cell(arm.known_s[1])];
        let at = x.cell(arm.packets_per_hour);
        // No arm hides another: beside it is still near enough.
        let free = (at..columns).find(|at| !row[*at].is_ascii_uppercase()).unwrap_or(at);
        row[free] = letter(arm.mechanism).to_ascii_uppercase();
    }
    let mut lines = vec![format!("  detected after (log); {}", key(&cells))];
    lines.extend(cells.into_iter().enumerate().map(|(row, cells)| {
        let tick = y.decades().find(|s| ROWS - 1 - y.cell(*s) == row);
        let tick = tick.map_or_else(String::new, |s| number::tick(s * 1e6, "us"));
        let cells: String = cells.into_iter().collect();
        format!("{tick:>width$} │{cells}", width = LEFT - 2).trim_end().to_owned()
    }));
    lines.extend(bottom(&x));
    lines
}

/// What the letters in the picture mean: capitals where an arm stands, else small.
fn key(cells: &[Vec<char>]) -> String {
    let drawn = |letter: &char| cells.iter().flatten().any(|cell| cell == letter);
    let word = |mechanism: Mechanism| {
        let small = letter(mechanism);
        let shown = [small.to_ascii_uppercase(), small].into_iter().find(drawn)?;
        Some(format!("{shown} {mechanism}"))
    };
    let words: Vec<String> = Mechanism::ALL.into_iter().filter_map(word).collect();
    format!("capitals: measured, {}", words.join(", "))
}

/// The axis of packets with its decades.
fn bottom(x: &Axis) -> [String; 3] {
    let mut rule: Vec<char> = vec!['─'; x.cells];
    let mut ticks = vec![' '; x.cells + 8];
    for packets in x.decades() {
        let at = x.cell(packets);
        rule[at] = '┴';
        let text = number::plain(packets);
        let from =
            at.saturating_sub(text.chars().count() / 2).min(x.cells - text.len().min(x.cells));
        for (place, letter) in ticks[from..].iter_mut().zip(text.chars()) {
            *place = letter;
        }
    }
    let blanks = " ".repeat(LEFT - 1);
    let rule: String = rule.into_iter().collect();
    let ticks: String = ticks.into_iter().collect();
    let name = "packets per hour and socket (log)";
    [
        format!("{blanks}└{rule}"),
        format!("{blanks} {ticks}").trim_end().to_owned(),
        format!("{name:>width$}", width = LEFT + x.cells),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcptoll_core::tcp::checking::Checking;

    fn arm(checking: Checking, deaths: Deaths) -> [Arm; 1] {
        let keepalive = Keepalive { checking, deaths: Some(deaths), ..Keepalive::default() };
        [Arm { name: "a".into(), own: keepalive.into(), ..Arm::default() }]
    }

    fn dead(fault: &str, dead: u64, known: u64) -> Deaths {
        Deaths { fault: fault.into(), dead, known, watched_s: 60.0, ..Deaths::default() }
    }

    fn checking(mechanism: Mechanism) -> Checking {
        Checking { mechanism, ..Checking::default() }
    }

    #[test]
    fn deaths_that_nobody_learned_of_are_a_fault() {
        let of_known = |known| notes(&arm(checking(Mechanism::Tcp), dead("freeze", 100, known)));
        assert_eq!(of_known(100), []);
        let note = |text: &str| [Note::new(text, true)];
        assert_eq!(of_known(0), note("none of 100 dead connections detected within 60.0 s"));
        assert_eq!(of_known(2), note("2 of 100 dead connections detected within 60.0 s"));
    }

    #[test]
    fn false_alarms_count_as_a_fault_only_beyond_what_is_expected() {
        let of_closed = |wrongly_closed| {
            let expected_wrongly = Some([0.0, 2.0, 6.0]);
            let deaths = Deaths { wrongly_closed, expected_wrongly, ..dead("loss=5%", 0, 0) };
            notes(&arm(checking(Mechanism::Tcp), deaths)).len()
        };
        assert_eq!([of_closed(6), of_closed(7)], [0, 1]);
    }

    #[test]
    fn every_way_of_checking_is_said_with_its_settings() {
        let tcp = Checking {
            idle_s: Some(10.0),
            interval_s: Some(1.0),
            probes: Some(3),
            ..checking(Mechanism::Tcp)
        };
        assert_eq!(setting(&tcp), "probes after 10 s of silence; dead after 3 probes, 1 s apart");
        let heartbeat = Checking {
            idle_s: Some(10.0),
            answer_within_s: Some(2.5),
            null_bytes: Some(4),
            ..checking(Mechanism::Heartbeat)
        };
        assert_eq!(
            setting(&heartbeat),
            "a heartbeat of 4 bytes after 10 s of silence; dead if an acknowledgment takes more than \
             2.5 s"
        );
        let write = Checking {
            interval_s: Some(1.0),
            user_timeout_s: Some(30.0),
            retransmission_s: Some(924.6),
            ..checking(Mechanism::Write)
        };
        assert_eq!(setting(&write), "a message every 1 s; TCP_USER_TIMEOUT 30 s");
        assert_eq!(setting(&checking(Mechanism::None)), "nothing is sent");
    }
}
