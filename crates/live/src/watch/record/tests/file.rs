use std::io::Write as _;
use std::path::PathBuf;
use std::{fs, io};

use crate::watch::record::*;
use crate::watch::{
    Counted, History, Limits, ListenerLook, Look, State, WatchHeader, WatchSummary,
};

const COUNTERS: [&str; 13] = [
    "TcpActiveOpens",
    "TcpPassiveOpens",
    "TcpOutSegs",
    "TcpRetransSegs",
    "TcpExtTCPSynRetrans",
    "TcpExtListenOverflows",
    "TcpExtListenDrops",
    "TcpExtSyncookiesSent",
    "TcpExtTCPReqQFullDrop",
    "TcpEstabResets",
    "TcpExtTCPAbortOnMemory",
    "TcpExtTCPTimeWaitOverflow",
    "TcpExtTCPDeferAcceptDrop",
];

/// The looks of a machine with so many listeners, of which `busy` have a queue and drop packets.
struct Machine {
    listeners: u32,
    busy: u32,
    every_s: f64,
    number: u32,
}

impl Machine {
    fn look(&mut self) -> Look {
        self.number += 1;
        let number = self.number;
        let listener = |n: u32| {
            let busy = n < self.busy;
            ListenerLook {
                address: ([10, 0, (n >> 8) as u8, n as u8], 1_000 + n as u16).into(),
                inode: u64::from(n) + 1,
                process: None,
                accept_queue_len: if busy { (number * 7 + n) % 129 } else { 0 },
                accept_queue_limit: 128,
                syn_queue_len: None,
                drops: Some(if busy { number * 3 } else { 0 }),
            }
        };
        let host = i64::from(number * 3 * self.busy);
        let at_s = f64::from(number) * self.every_s;
        Look {
            at_s,
            time: clock(at_s),
            listeners: (0..self.listeners).map(listener).collect(),
            counters: COUNTERS.map(|name| (name.to_owned(), host)).into(),
            counted: Counted {
                sockets: Some(1_234),
                time_wait: Some(u64::from(number % 500)),
                orphans: Some(0),
                memory_bytes: Some(4_096 * u64::from(number % 900)),
                tracked: None,
            },
            limits: Limits { somaxconn: Some(4_096), ..Limits::default() },
            ..Look::default()
        }
    }
}

/// The time of day at a moment of the watch.
fn clock(at_s: f64) -> String {
    let s = at_s as u64;
    let (day, second) = (s / 86_400 % 28 + 1, s % 86_400);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("2026-01-{day:02}T{hour:02}:{minute:02}:{:02}.000Z", second % 60)
}

fn header() -> WatchHeader {
    WatchHeader {
        record_version: 1,
        interval_s: 1.0,
        started_at: "2026-01-01T00:00:00Z".into(),
        ..WatchHeader::default()
    }
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Records so many looks; gives the file, the greatest length that it had, and the recorder.
fn record(
    folder: &tempfile::TempDir,
    machine: &mut Machine,
    looks: u32,
    limit: u64,
) -> (PathBuf, u64, WatchRecorder) {
    let path = folder.path().join("watch.jsonl");
    let mut recorder = WatchRecorder::create(&path, limit).unwrap();
    recorder.header(header()).unwrap();
    let mut history = History::new("host", 0.0);
    let mut longest = 0;
    for _ in 0..looks {
        recorder.state(history.push(machine.look())).unwrap();
        longest = longest.max(fs::metadata(&path).unwrap().len());
        assert_eq!(fs::metadata(&path).unwrap().len(), recorder.bytes());
    }
    (path, longest, recorder)
}

fn review(path: &std::path::Path) -> Review {
    WatchRecord::open(path).unwrap().expect("a watch's record").review().unwrap()
}

#[test]
fn a_day_of_a_busy_machine_stays_below_the_limit_and_loses_no_drop_and_no_queue() {
    let folder = folder();
    let mut machine = Machine { listeners: 60, busy: 50, every_s: 60.0, number: 0 };
    let (looks, limit) = (1_440, LIMIT_MIN);
    let (path, longest, mut recorder) = record(&folder, &mut machine, looks, limit);
    recorder.end(&WatchSummary::default()).unwrap();
    assert!(longest <= limit, "{longest}");
    let seen = review(&path);
    assert!(seen.joined_most > 1 && seen.lines < seen.looks, "{} lines", seen.lines);
    assert_eq!(seen.looks, u64::from(looks));
    assert_eq!(seen.counts["overflows"], u64::from((looks - 1) * 3 * 50));
    let dropped: u64 = seen.listeners.iter().map(|one| one.drops).sum();
    assert_eq!((dropped, seen.drops_of_others), (u64::from((looks - 1) * 3 * 50), 0));
    assert!(seen.listeners.iter().all(|one| one.accept_queue_peak == 128));
    assert_eq!(seen.listeners.len(), 50);
    assert!(!seen.killed && !seen.cut);
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|one| one.unwrap().file_name()).collect();
    assert_eq!(names, ["watch.jsonl"], "nothing is left beside it");
}

/// A state with so many listeners, of which `busy` have a queue and a drop. It is changed in place: what is
/// measured is the record.
fn next_state(state: &mut State, machine: &mut Machine) {
    machine.number += 1;
    let (number, every_s) = (machine.number, machine.every_s);
    if state.listeners.is_empty() {
        let mut history = History::new("host", 0.0);
        let look = machine.look();
        *state = history.push(look).clone();
        state.rates = Some(crate::watch::Rates::default());
        state.interval_s = every_s;
        state.diagnoses.truncate(2);
        state.states = [("ESTABLISHED".to_owned(), 900), ("TIME-WAIT".to_owned(), 80)].into();
        let to = |n: u16| crate::watch::DestinationState {
            address: format!("10.9.0.{n}"),
            port: 5_432,
            ports_in_use: 900,
            ports_left: Some(27_000),
            ..Default::default()
        };
        state.destinations = (1..4).map(to).collect();
    }
    state.at_s = f64::from(number) * every_s;
    // A dump every two looks.
    state.table_age_s = Some(f64::from(number % 2) * every_s);
    state.counted.memory_bytes = Some(4_096 * u64::from(number % 900));
    if let Some(rates) = &mut state.rates {
        rates.segments_out_per_s = f64::from(number % 77) / every_s;
        rates.overflows_per_s = f64::from(3 * machine.busy) / every_s;
    }
    for (n, listener) in (0..).zip(&mut state.listeners[..machine.busy as usize]) {
        listener.accept_queue_len = (number * 7 + n) % 129;
        listener.drops_per_s = Some(3.0 / every_s);
        listener.overflows_per_s = Some(3.0 / every_s);
    }
}

/// Run with `--ignored --nocapture`: the arithmetic of docs/watch/record.md, measured. The last case is a day
/// by a clock that is sped up.
#[test]
#[ignore = "takes minutes: days of a watch with up to 1,000 listeners"]
fn days_of_a_watch_measured() {
    let cases = [
        (100, 0, 1.0, 86_400_u32),
        (1_000, 10, 1.0, 5_000),
        (1_000, 100, 1.0, 2_000),
        (1_000, 1_000, 40.0, 2_160),
    ];
    for (listeners, busy, every_s, looks) in cases {
        let folder = folder();
        let mut machine = Machine { listeners, busy, every_s, number: 0 };
        let limit = 64 << 20;
        let path = folder.path().join("watch.jsonl");
        let mut recorder = WatchRecorder::create(&path, limit).unwrap();
        recorder.header(WatchHeader { interval_s: every_s, ..header() }).unwrap();
        let mut state = State::default();
        let (mut written, mut longest, mut rewritten) = (0, 0, 0);
        for _ in 0..looks {
            next_state(&mut state, &mut machine);
            let before = recorder.bytes();
            recorder.state(&state).unwrap();
            longest = longest.max(recorder.bytes());
            match recorder.bytes().checked_sub(before) {
                Some(bytes) => written += bytes,
                None => rewritten += 1,
            }
        }
        let resident = tcptoll_kernel::cpu::rss_bytes() >> 20;
        let began = std::time::Instant::now();
        let seen = review(&path);
        let record = WatchRecord::open(&path).unwrap().unwrap();
        let points = record.series(&seen).unwrap().points.len();
        println!(
            "{listeners} listeners, {busy} busy, a look every {every_s} s: {} B a look, {rewritten} times \
             rewritten, longest {longest}, ends at {}; {} lines of up to {} looks; {resident} MiB; read in \
             {:.1} s, {points} points, {} MiB",
            written / u64::from(looks - rewritten),
            recorder.bytes(),
            seen.lines,
            seen.joined_most,
            began.elapsed().as_secs_f64(),
            tcptoll_kernel::cpu::rss_bytes() >> 20
        );
        assert!(longest <= limit);
        assert_eq!(seen.looks, u64::from(looks));
        let overflows = seen.counts.get("overflows").copied().unwrap_or(0);
        assert_eq!(overflows, u64::from(looks) * 3 * u64::from(busy));
    }
}

#[test]
fn a_record_that_is_cut_anywhere_reads_up_to_the_cut() {
    let folder = folder();
    let mut machine = Machine { listeners: 3, busy: 2, every_s: 1.0, number: 0 };
    let (path, _, _recorder) = record(&folder, &mut machine, 6, LIMIT_MIN);
    let whole = fs::read(&path).unwrap();
    let all = review(&path);
    assert!(all.killed && !all.cut);
    let first_state = whole.windows(15).position(|at| at == b"{\"line\":\"state\"").unwrap();
    let first_end =
        first_state + whole[first_state..].iter().position(|byte| *byte == b'\n').unwrap();
    let cut = folder.path().join("cut.jsonl");
    for length in (first_end + 1)..whole.len() {
        fs::write(&cut, &whole[..length]).unwrap();
        let seen = review(&cut);
        assert_eq!(seen.cut, whole[length - 1] != b'\n', "{length}");
        assert!(seen.looks >= 1 && seen.looks <= all.looks);
    }
    fs::write(&cut, &whole[..first_state]).unwrap();
    let error = WatchRecord::open(&cut).unwrap().unwrap().review().unwrap_err();
    assert!(matches!(error, WatchReadError::Empty), "{error}");
}

#[test]
fn a_damaged_line_is_named() {
    let folder = folder();
    let mut machine = Machine { listeners: 3, busy: 2, every_s: 1.0, number: 0 };
    let (path, _, _recorder) = record(&folder, &mut machine, 6, LIMIT_MIN);
    let whole = fs::read_to_string(&path).unwrap();
    let with = |number: usize, line: &str| {
        let mut lines: Vec<&str> = whole.lines().collect();
        lines[number - 1] = line;
        fs::write(&path, lines.join("\n") + "\n").unwrap();
        let record = WatchRecord::open(&path).unwrap().unwrap();
        record.review().unwrap_err().to_string()
    };
    assert!(with(3, "{\"line\":").starts_with("line 3 is damaged: "));
    let strange = r#"{"line":"state","time":"2026-01-01T00:00:00Z","at_s":-4.0,"interval_s":1.0,"levels":{}}"#;
    let why = with(3, strange);
    assert!(why.starts_with("line 3 is damaged: at_s is -4, which is outside 0 to 1e10"), "{why}");
    let header = whole.lines().next().unwrap();
    let header = header.replace("\"interval_s\":1.0", "\"interval_s\":0");
    assert!(
        with(1, &header).starts_with("line 1 is damaged: interval_s is 0, which is outside 0.001 ")
    );
    let header = header.replace("\"interval_s\":0", "\"interval_s\": NaN");
    let header = header.replace("{\"line\":", "{\"line\": ");
    assert!(with(1, &header).starts_with("line 1 is damaged: expected value at column "));
    let unknown = r#"{"line":"state","time":"2026-01-01T00:00:00Z","at_s":4.0,"interval_s":1.0,"levels":{},"listeners":[{"n":77}]}"#;
    let error = with(2, unknown);
    assert_eq!(error, "line 2 is damaged: it names a listener that no line before it describes");
    let newer =
        whole.lines().next().unwrap().replace("\"record_version\":1", "\"record_version\":9");
    assert!(with(1, &newer).contains("version 9"));
    assert!(with(3, &"x".repeat(5 << 20)).starts_with("line 3 is longer than 4 MiB"));
}

/// What a look after the deed says, and what the end says.
fn after(deed: impl FnOnce(&std::path::Path, &std::path::Path)) -> [String; 3] {
    let folder = folder();
    let mut machine = Machine { listeners: 3, busy: 2, every_s: 1.0, number: 0 };
    let (path, _, mut recorder) = record(&folder, &mut machine, 3, LIMIT_MIN);
    deed(&path, &folder.path().join("moved"));
    let mut history = History::new("host", 0.0);
    let look = recorder.state(history.push(machine.look())).unwrap_err();
    let end = recorder.end(&WatchSummary::default()).unwrap_err();
    let stop = recorder.stop("why").unwrap_err();
    [look, end, stop].map(|error| error.to_string())
}

#[test]
fn a_record_that_is_deleted_renamed_or_replaced_is_noticed_at_the_next_look_and_at_the_end() {
    let lost = "everything recorded until then is lost";
    let kept = "the lines recorded until then are in it, under its other name";
    for said in after(|path, _| fs::remove_file(path).unwrap()) {
        assert_eq!(said, format!("the file was deleted, and {lost}"));
    }
    for said in after(|path, _| {
        fs::remove_file(path).unwrap();
        fs::write(path, "another").unwrap();
    }) {
        let expected = "the file was deleted, its name belongs to another file now, and";
        assert_eq!(said, format!("{expected} {lost}"));
    }
    for said in after(|path, moved| fs::rename(path, moved).unwrap()) {
        assert_eq!(said, format!("the file was renamed or moved; {kept}"));
    }
}

#[test]
fn a_line_that_a_full_disk_cut_goes_and_the_reason_is_the_last_line() {
    let folder = folder();
    let mut machine = Machine { listeners: 3, busy: 2, every_s: 1.0, number: 0 };
    let (path, _, mut recorder) = record(&folder, &mut machine, 3, LIMIT_MIN);
    // What a write leaves of which only a part fits.
    let mut file = fs::File::options().append(true).open(&path).unwrap();
    file.write_all(b"{\"line\":\"state\",\"time\":\"20").unwrap();
    recorder.stop(&"No space left on device ".repeat(100)).unwrap();
    let seen = review(&path);
    assert_eq!((seen.looks, seen.cut, seen.killed), (3, false, false));
    let reason = seen.stopped.unwrap();
    assert!(reason.starts_with("No space left on device") && reason.len() == 200, "{reason}");
    assert_eq!(fs::metadata(&path).unwrap().len(), recorder.bytes());
}

/// As another program writes it: a blank after each colon and comma, keys in another order.
fn rewritten(line: &str) -> String {
    let value: serde_json::Value = serde_json::from_str(line).unwrap();
    let fields = value.as_object().unwrap().iter().rev();
    let fields = fields.map(|(name, value)| format!("\"{name}\": {value}"));
    format!("{{{}}}\n", fields.collect::<Vec<_>>().join(", "))
}

#[test]
fn a_record_whose_lines_another_program_wrote_anew_is_read_as_before() {
    let folder = folder();
    let mut machine = Machine { listeners: 60, busy: 50, every_s: 60.0, number: 0 };
    let (path, _, mut recorder) = record(&folder, &mut machine, 300, LIMIT_MIN);
    recorder.end(&WatchSummary::default()).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    let anew = folder.path().join("anew.jsonl");
    let lines: String = whole.lines().map(rewritten).collect();
    assert!(!lines.contains("{\"line\":"), "{}", &lines[..400]);
    fs::write(&anew, lines).unwrap();
    assert_eq!(review(&anew), review(&path));
}

#[test]
fn a_file_of_another_kind_is_none() {
    let folder = folder();
    let path = folder.path().join("other");
    for text in
        ["", "{\"line\":\"header\"}\n", "hello", "{\"line\":\"watch-head", "{\"line\": 7}\n"]
    {
        fs::write(&path, text).unwrap();
        assert!(WatchRecord::open(&path).unwrap().is_none(), "{text}");
    }
    assert!(WatchRecord::open(std::path::Path::new("/dev/zero")).unwrap().is_none());
}

#[test]
fn a_file_that_has_something_in_it_is_left_as_it_is() {
    let folder = folder();
    let path = folder.path().join("watch.jsonl");
    fs::write(&path, "mine").unwrap();
    let error = WatchRecorder::create(&path, LIMIT_MIN).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    fs::write(&path, "").unwrap();
    let _first = WatchRecorder::create(&path, LIMIT_MIN).unwrap();
    let second = WatchRecorder::create(&path, LIMIT_MIN).unwrap_err();
    assert_eq!(second.kind(), io::ErrorKind::WouldBlock, "{second}");
}

#[test]
fn a_full_disk_is_an_error_and_a_file_of_that_name_is_not_replaced() {
    let mut full = WatchRecorder::create("/dev/full".as_ref(), LIMIT_MIN).unwrap();
    let error = full.header(header()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);

    let folder = folder();
    let mut machine = Machine { listeners: 60, busy: 50, every_s: 1.0, number: 0 };
    let (path, _, mut recorder) = record(&folder, &mut machine, 3, LIMIT_MIN);
    fs::rename(&path, folder.path().join("moved")).unwrap();
    fs::File::create(&path).unwrap().write_all(b"another").unwrap();
    let mut history = History::new("host", 0.0);
    let mut state = || -> State { history.push(machine.look()).clone() };
    let error = loop {
        if let Err(error) = recorder.state(&state()) {
            break error;
        }
    };
    let why = "the file was renamed, and its name belongs to another file now; the lines recorded";
    assert!(error.to_string().starts_with(why), "{error}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "another");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside it");
}
