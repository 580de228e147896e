//! The screen on a terminal that is none: snapshots, and what keys change.

use std::net::SocketAddr;

use insta::assert_snapshot;
use tcptoll_core::tcp::counters::Counters;
use tcptoll_live::watch::{
    Counted, Destination, History, Limits, ListenerLook, Look, LookCost, Process, SocketDump,
};

use super::super::text::{Watched, whole};
use super::paint::Painter;
use super::terminal::Key;
use super::view::{KeyAction, ScreenState};

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

fn listener(at: &str, process: Option<&str>, queue: u32, limit: u32, drops: u32) -> ListenerLook {
    let address: SocketAddr = at.parse().unwrap();
    ListenerLook {
        address,
        inode: 1_000 + u64::from(address.port()),
        process: process.map(|name| Process { pid: 4_711, name: name.into() }),
        accept_queue_len: queue,
        accept_queue_limit: limit,
        syn_queue_len: Some(queue / 3),
        drops: Some(drops),
    }
}

fn look(second: u32, listeners: Vec<ListenerLook>, overflows: u32) -> Look {
    let counts =
        [310, 1_240, 81_200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0].map(|per_s| per_s * i64::from(second));
    let mut counters: Counters = COUNTERS.map(String::from).into_iter().zip(counts).collect();
    for name in ["TcpExtListenOverflows", "TcpExtListenDrops"] {
        counters.insert(name.into(), overflows.into());
    }
    Look {
        at_s: second.into(),
        time: format!("2026-11-21T14:{:02}:{:02}.345Z", second / 60, second % 60),
        listeners,
        counters,
        counted: Counted {
            sockets: Some(50_214),
            time_wait: Some(12_300),
            orphans: Some(3),
            memory_bytes: Some(18_400_000),
            tracked: None,
        },
        limits: Limits {
            somaxconn: Some(4_096),
            local_ports: Some(28_232),
            memory_max_bytes: Some(1_100_000_000),
            ..Limits::default()
        },
        table: None,
        cost: LookCost {
            cpu_s: 0.1,
            cpu_share: 0.006,
            resident_bytes: 12_000_000,
            table_every_s: 12.0,
        },
    }
}

/// Three listeners of which `redis-server` overflows; 10 looks.
fn overflowing() -> History {
    let mut history = History::new("web1", 3_600_000.0);
    for second in 0..10 {
        let drops = 214 * second;
        let listeners = vec![
            // A healthy server: most looks find its queue empty.
            listener("0.0.0.0:80", Some("nginx"), second % 2 * 3, 511, 0),
            listener(
                "0.0.0.0:6379",
                Some("redis-server"),
                match second {
                    0 => 7,
                    1 => 0,
                    _ => 129,
                },
                128,
                drops,
            ),
            listener("[2001:db8::7]:8443", None, 0, 4_096, 0),
        ];
        history.push(look(second, listeners, drops));
    }
    history
}

/// Few ports left to a database, from the newest of two dumps.
fn scarce() -> History {
    let mut history = History::new("web1", 3_600_000.0);
    for second in 0..3 {
        let mut look = look(second, vec![listener("127.0.0.1:25", Some("master"), 0, 100, 0)], 0);
        let to = |to: &str, ports: u32| Destination {
            to: to.parse().unwrap(),
            sources: 1,
            ports_in_use: ports,
            time_wait: ports / 10 * 9,
            syn_sent: 0,
            here: false,
        };
        look.table = Some(SocketDump {
            at_s: (second / 2 * 2).into(),
            took_s: 0.043,
            states: [("ESTABLISHED".to_owned(), 2_790), ("TIME-WAIT".to_owned(), 25_110)].into(),
            destinations: vec![to("10.0.0.7:3306", 27_791 + 60 * second), to("10.0.0.8:443", 12)],
            destinations_left_out: 0,
            unclosed: Vec::new(),
        });
        history.push(look);
    }
    history
}

fn quiet() -> History {
    let mut history = History::new("web1", 3_600_000.0);
    for second in 0..2 {
        history.push(look(second, vec![listener("0.0.0.0:80", Some("nginx"), 0, 511, 0)], 0));
    }
    history
}

fn thousand() -> History {
    let mut history = History::new("web1", 3_600_000.0);
    for second in 0..2 {
        let listeners = (0..1_000_u16).map(|number| {
            let at = format!("10.0.{}.1:{}", number % 250, 1_000 + number);
            let queue = if number == 500 { 60 } else { u32::from(number % 3) };
            listener(&at, Some("worker"), queue, 64, 0)
        });
        history.push(look(second, listeners.collect(), 0));
    }
    history
}

struct Screen {
    size: [usize; 2],
    view: ScreenState,
    painter: Painter,
    history: History,
}

impl Screen {
    fn new(history: History, width: usize, height: usize) -> Self {
        let size = [width, height];
        Self { size, view: ScreenState::default(), painter: Painter::default(), history }
    }

    fn press(&mut self, keys: &[Key]) -> KeyAction {
        let mut asked = KeyAction::Nothing;
        for key in keys {
            self.draw();
            asked = self.view.press(*key, &self.history);
        }
        asked
    }

    fn draw(&mut self) -> Vec<String> {
        let rows = self.painter.rows(self.size, &mut self.view, &self.history);
        assert_eq!(rows.len(), self.size[1]);
        for row in &rows {
            assert!(console::measure_text_width(row) <= self.size[0], "{row:?}");
        }
        rows
    }

    /// What a person reads.
    fn text(&mut self) -> String {
        let rows = self.draw();
        rows.iter().map(|row| console::strip_ansi_codes(row).trim_end().to_owned() + "\n").collect()
    }
}

#[test]
fn an_overflow_at_80_columns_is_named_first_with_its_fix() {
    assert_snapshot!("overflow-80x24", Screen::new(overflowing(), 80, 24).text());
}

#[test]
fn an_overflow_at_200_columns_has_more_columns_and_the_queue_over_time() {
    assert_snapshot!("overflow-200x60", Screen::new(overflowing(), 200, 60).text().trim_end());
}

#[test]
fn an_overflow_at_40_columns_still_says_where() {
    assert_snapshot!("overflow-40x10", Screen::new(overflowing(), 40, 10).text());
}

#[test]
fn scarce_ports_show_the_destination_and_how_long_they_last() {
    assert_snapshot!("scarce-80x24", Screen::new(scarce(), 80, 24).text());
}

#[test]
fn nothing_wrong_is_said_plainly() {
    assert_snapshot!("quiet-80x24", Screen::new(quiet(), 80, 24).text());
}

#[test]
fn of_a_thousand_listeners_the_one_that_is_nearly_full_comes_first() {
    let mut screen = Screen::new(thousand(), 80, 24);
    assert_snapshot!("thousand-80x24", screen.text());
    screen.press(&[Key::Tab, Key::Char('G')]);
    let text = screen.text();
    assert!(text.contains("-1000/1000 "), "{text}");
    assert!(text.lines().any(|line| line.starts_with('›') && line.contains(":1999")), "{text}");
}

#[test]
fn gone_back_in_time_it_shows_that_look_and_says_how_long_ago_it_was() {
    let mut screen = Screen::new(overflowing(), 80, 24);
    screen.press(&[Key::Left; 8]);
    assert_snapshot!("back-80x24", screen.text());
    screen.press(&[Key::Left; 3]);
    assert!(screen.text().contains("nothing earlier is remembered"));
    screen.press(&[Key::Right]);
    assert!(screen.text().contains("paused, as of 8 s ago"), "{}", screen.text());
    screen.press(&[Key::End]);
    assert!(!screen.text().contains("paused"));
    screen.press(&[Key::PageUp]);
    assert!(screen.text().contains("paused, as of 9 s ago"), "less than a page is remembered");
    screen.press(&[Key::PageDown]);
    assert!(!screen.text().contains("paused"), "beyond the newest is now");
}

#[test]
fn a_pause_keeps_the_whole_look_while_the_watch_goes_on() {
    let mut screen = Screen::new(thousand(), 80, 24);
    screen.press(&[Key::Char(' ')]);
    let before = screen.text();
    assert!(before.contains(" paused"), "{before}");
    screen.history.push(look(5, vec![listener("0.0.0.0:80", Some("nginx"), 0, 511, 0)], 0));
    let after = screen.text();
    assert!(after.contains("paused, as of 4 s ago") && after.contains("/1000"), "{after}");
    screen.press(&[Key::Char(' ')]);
    assert!(screen.text().contains("0.0.0.0:80"));
}

#[test]
fn a_filter_finds_by_process_and_is_cleared_by_esc() {
    let mut screen = Screen::new(overflowing(), 80, 24);
    let typed = ['/', 'N', 'g', 'i', 'n', 'x'].map(Key::Char);
    screen.press(&typed);
    assert_snapshot!("filter-80x24", screen.text());
    screen.press(&[Key::Enter, Key::Char('q')]);
    let text = screen.text();
    assert!(text.contains("clears the filter \"Nginx\""), "{text}");
    screen.press(&[Key::Char('/'), Key::Char('?')]);
    assert!(screen.text().contains("no listener matches \"Nginx?\""));
    screen.press(&[Key::Esc]);
    assert!(screen.text().contains("redis-s"));
}

#[test]
fn explain_shows_the_fix_its_risk_and_the_evidence() {
    let mut screen = Screen::new(overflowing(), 80, 24);
    screen.press(&[Key::Enter]);
    assert_snapshot!("explain-80x24", screen.text());
    screen.press(&[Key::End]);
    let end = screen.text();
    screen.press(&[Key::Down; 5]);
    assert_eq!(screen.text(), end, "it does not scroll beyond its end");
    screen.press(&[Key::Char('q')]);
    assert!(screen.text().contains("LISTENER"));
    // A listener with nothing wrong: a sentence, no page.
    screen.press(&[Key::Tab, Key::Down, Key::Char('e')]);
    assert!(screen.text().contains("nothing is wrong with 0.0.0.0:80"), "{}", screen.text());
}

#[test]
fn pages_turn_by_the_height_of_the_screen_and_go_to_both_ends() {
    let mut screen = Screen::new(overflowing(), 80, 20);
    screen.press(&[Key::Char('h')]);
    let [first, second_top] = {
        let text = screen.text();
        let lines: Vec<&str> = text.lines().collect();
        // The header has 4 lines; the last line is the footer.
        [text.clone(), lines[18].to_owned()]
    };
    for [down, up] in [
        [Key::PageDown, Key::PageUp],
        [Key::Char(' '), Key::Char('b')],
        [Key::Char('f'), Key::PageUp],
    ] {
        screen.press(&[down]);
        let text = screen.text();
        assert_eq!(text.lines().nth(4), Some(second_top.as_str()), "{down:?}: {text}");
        screen.press(&[up]);
        assert_eq!(screen.text(), first, "{up:?}");
    }
    for page in ['h', 'e'] {
        screen.press(&[Key::Esc, Key::Char(page)]);
        let begin = screen.text();
        screen.press(&[Key::End]);
        let end = screen.text();
        assert_ne!(end, begin);
        screen.press(&[Key::Char('g')]);
        assert_eq!(screen.text(), begin, "g");
        screen.press(&[Key::Char('G')]);
        assert_eq!(screen.text(), end, "G");
    }
}

#[test]
fn every_key_of_the_last_line_fits_in_80_columns_and_keys_of_time_come_first_in_a_pause() {
    let mut screen = Screen::new(overflowing(), 80, 24);
    let last = |screen: &mut Screen| screen.text().lines().last().unwrap_or_default().to_owned();
    let all = "q quit  h help  e explain  ↑↓ Tab row  s r sort  / filter  space pause  ←→ time";
    assert_eq!(last(&mut screen), all);
    screen.press(&[Key::Char(' ')]);
    let paused = "space go on  ←→ time  q quit  h help  e explain  ↑↓ Tab row  s r sort  / filter";
    assert_eq!(last(&mut screen), paused);
    let mut narrow = Screen::new(overflowing(), 30, 10);
    narrow.press(&[Key::Left]);
    assert!(last(&mut narrow).starts_with("space go on  ←→ time"), "{}", narrow.text());
}

#[test]
fn a_destination_that_is_this_machine_is_explained_by_its_listener() {
    let mut history = overflowing();
    let mut look =
        look(10, vec![listener("0.0.0.0:6379", Some("redis-server"), 129, 128, 2_140)], 2_140);
    look.table = Some(SocketDump {
        at_s: 10.0,
        took_s: 0.01,
        states: [("ESTABLISHED".to_owned(), 3)].into(),
        destinations: vec![Destination {
            to: "10.0.0.7:6379".parse().unwrap(),
            sources: 1,
            ports_in_use: 3,
            time_wait: 0,
            syn_sent: 2,
            here: true,
        }],
        destinations_left_out: 0,
        unclosed: Vec::new(),
    });
    history.push(look);
    let mut screen = Screen::new(history, 80, 24);
    screen.press(&[Key::Tab, Key::Tab, Key::Char('e')]);
    let text = screen.text();
    assert!(text.contains("problem · accept-queue-full · 0.0.0.0:6379"), "{text}");
}

#[test]
fn help_names_every_key() {
    let mut screen = Screen::new(overflowing(), 80, 40);
    screen.press(&[Key::Char('?')]);
    assert_snapshot!("help-80x40", screen.text());
}

#[test]
fn a_selected_row_stays_selected_when_the_order_changes() {
    let mut screen = Screen::new(overflowing(), 80, 24);
    screen.press(&[Key::Tab, Key::Char('G')]);
    let selected = |screen: &mut Screen| {
        let text = screen.text();
        text.lines().find(|line| line.starts_with('›')).unwrap_or_default().to_owned()
    };
    assert!(selected(&mut screen).contains("2001:db8"), "{}", screen.text());
    screen.press(&[Key::Char('s')]);
    assert!(screen.text().contains("sorted by address"));
    screen.press(&[Key::Char('r')]);
    let text = screen.text();
    assert!(selected(&mut screen).contains("2001:db8") && text.contains("LISTENER↑"), "{text}");
}

#[test]
fn hostile_names_reach_the_terminal_as_signs() {
    let mut history = History::new("we\u{1b}]0;b\u{7}\u{202e}1", 1.0);
    for second in 0..2 {
        let names =
            ["\u{1b}[2J\n\u{7}evil", "\u{202e}live\u{200b}", "日本語サーバ", "a\u{301}\u{9b}31m"];
        let listeners = names.iter().zip(1_u16..).map(|(name, port)| {
            listener(&format!("10.0.0.1:{port}"), Some(name), 65, 64, second * 9)
        });
        history.push(look(second, listeners.collect(), second * 9));
    }
    let mut screen = Screen::new(history, 80, 24);
    assert_snapshot!("hostile-80x24", screen.text());
    screen.press(&[Key::Char('e')]);
    for text in [screen.text(), {
        screen.press(&[Key::Esc]);
        screen.text()
    }] {
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
        assert!(!text.contains(['\u{202e}', '\u{200b}']), "{text:?}");
    }
}

#[test]
fn what_the_program_has_to_say_stays_on_the_screen() {
    let mut screen = Screen::new(overflowing(), 80, 24);
    screen.view.notice = Some("error: disk full; nothing\n more is recorded".to_owned());
    screen.press(&[Key::Down]);
    assert!(screen.text().contains("\nerror: disk full; nothing  more is recorded\n"));
}

#[test]
fn every_size_can_be_drawn() {
    for (width, height) in
        [(1, 1), (29, 40), (30, 6), (31, 7), (40, 10), (60, 12), (500, 200), (80, 5)]
    {
        for history in [History::new("", 0.0), quiet(), overflowing(), scarce(), thousand()] {
            let mut screen = Screen::new(history, width, height);
            for key in [Key::Tab, Key::Char('e'), Key::End, Key::Esc, Key::Char('h'), Key::Esc] {
                screen.press(&[key]);
                screen.draw();
            }
        }
    }
    let text = Screen::new(quiet(), 29, 5).text();
    assert!(text.contains("30 × 6"), "{text}");
}

#[test]
fn colour_only_underlines_what_marks_and_words_say() {
    let coloured = |colours: bool| {
        let mut screen = Screen::new(overflowing(), 80, 24);
        screen.painter.colours = colours;
        screen.press(&[Key::Tab, Key::Down]);
        let rows = screen.draw().concat();
        let used =
            ["\x1b[0;1;31m", "\x1b[0;33m", "\x1b[0;36m"].map(|colour| rows.matches(colour).count());
        (used.iter().sum::<usize>(), screen.text())
    };
    let (with, without) = (coloured(true), coloured(false));
    assert!(with.0 > 0);
    assert_eq!(without.0, 0);
    assert_eq!(with.1, without.1);
}

#[test]
fn keys_that_end_or_suspend_the_watch_ask_for_it_everywhere() {
    for open in [&[][..], &[Key::Char('h')], &[Key::Char('/')], &[Key::Char('e')]] {
        let mut screen = Screen::new(overflowing(), 80, 24);
        screen.press(open);
        assert_eq!(screen.press(&[Key::Ctrl('c')]), KeyAction::Interrupt);
        assert_eq!(screen.press(&[Key::Ctrl('z')]), KeyAction::Suspend);
    }
    assert_eq!(Screen::new(quiet(), 80, 24).press(&[Key::Char('q')]), KeyAction::Quit);
}

#[test]
fn once_prints_all_of_a_state_with_the_faults_first() {
    let watched = Watched { network: Some("4711".into()), owners: true, by_root: false };
    let text = |history: &History| {
        let sheet = whole(history.latest().unwrap(), &watched, 80);
        tcptoll_show::sheet::text(&sheet, tcptoll_show::TextStyle::default())
    };
    assert_snapshot!("once-overflow", text(&overflowing()));
    assert_snapshot!("once-scarce", text(&scarce()));
    let many = text(&thousand());
    assert_eq!(many.lines().filter(|line| line.starts_with("10.0.")).count(), 1_000);
    for (line, history) in [overflowing(), scarce(), thousand()].iter().enumerate() {
        let text = text(history);
        let long = text.lines().find(|line| console::measure_text_width(line) > 80);
        assert!(long.is_none_or(|line| line.contains("sysctl")), "{line}: {long:?}");
    }
}
