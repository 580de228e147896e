//! The screen of `watch` on a real terminal, tmux's: what it shows, which keys it takes, and that the
//! terminal is afterwards as it was before.

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{Folder, lacks, refuses};

/// A screen that is not right after this time will not be.
const PATIENCE: Duration = Duration::from_mins(1);
const EVERY: Duration = Duration::from_millis(50);

/// A listener with a hostile name and a backlog of 5, which never accepts, and clients of it. It ends
/// with the folder that this file is in, and after 10 minutes.
const OVERFLOWING: &str = "import ctypes,os,socket,time
ctypes.CDLL(None).prctl(15, b'\\x1b[31mevil', 0, 0, 0)
server=socket.socket()
server.bind(('127.0.0.1',6379))
server.listen(5)
clients=[]
for _ in range(30000):
    client=socket.socket()
    client.setblocking(False)
    client.connect_ex(('127.0.0.1',6379))
    clients.append(client)
    if len(clients)>300: clients.pop(0).close()
    if not os.path.exists(__file__): break
    time.sleep(0.02)";

/// A shell on a terminal, in a network namespace with an overflowing listener.
struct Terminal {
    folder: Folder,
}

impl Terminal {
    /// `variables`: what the environment has beyond the terminal's own.
    fn open(width: u16, height: u16, variables: &[&str]) -> Self {
        let terminal = Self { folder: Folder::new() };
        std::fs::write(terminal.folder.file("load.py"), OVERFLOWING).unwrap();
        let shell = format!(
            "unshare -Urn -- sh -c 'ip link set lo up; python3 {} & exec env -u NO_COLOR PS1=\"ready> \" \
             {} sh'",
            terminal.folder.path("load.py"),
            variables.join(" ")
        );
        let [width, height] = [width, height].map(|size| size.to_string());
        terminal.tmux(&["new-session", "-d", "-x", &width, "-y", &height, &shell]);
        terminal.wait("a shell", |screen| screen.contains("ready>"));
        terminal
    }

    /// Runs tmux on a server that is this test's own; gives what it prints.
    fn tmux(&self, args: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.env_remove("TMUX").env("LC_ALL", "C.UTF-8").args(["-u", "-f", "/dev/null", "-S"]);
        command.arg(self.folder.file("tmux")).args(args).stdin(Stdio::null());
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until the screen is so; gives it. A screen is seen half drawn too: what is asserted of its
    /// last line is part of what is waited for.
    fn wait(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if is(&screen) {
                return screen;
            }
            assert!(Instant::now() < until, "no {what}:\n{screen}");
            sleep(EVERY);
        }
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Starts `tcptoll watch`; the shell then prints its exit status.
    fn start(&self, args: &str) {
        let program = env!("CARGO_BIN_EXE_tcptoll");
        let pid = self.folder.path("pid");
        let command = format!("sh -c 'echo $$ >{pid}; exec {program} watch {args}'");
        self.press(&[&format!("clear; {command}; echo \"ended $?\""), "Enter"]);
    }

    /// As [`start`](Self::start); gives the screen that shows the overflow.
    fn watch(&self) -> String {
        self.start("");
        self.wait("overflow", |screen| {
            screen.contains("overflows/s at 127.0.0.1:6379")
                && last(screen).starts_with("q quit  h help")
        })
    }

    fn pid(&self) -> String {
        std::fs::read_to_string(self.folder.file("pid")).unwrap().trim().to_owned()
    }

    fn signal(&self, name: &str) {
        let killed = Command::new("kill").args([name, &self.pid()]).status().unwrap();
        assert!(killed.success());
    }

    /// The watch has ended with this status, and the terminal is as it was: the normal screen, a
    /// cursor, and the modes in which a shell reads lines.
    fn is_as_before(&self, status: u8) {
        let ended = format!("ended {status}\n");
        self.wait(&ended, |screen| screen.contains(&ended) && !screen.contains("LISTENER"));
        let modes = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
        assert_eq!(modes.trim(), "0 1");
        self.press(&[
            "clear; stty -a | tr ' ;' '\\n\\n' | grep -cxE 'icanon|echo|isig|opost'",
            "Enter",
        ]);
        self.wait("modes", |screen| screen.lines().any(|line| line == "4"));
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Ends the shell and what it runs.
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.folder.file("tmux")).arg("kill-server");
        let _ = command.stderr(Stdio::null()).status();
    }
}

/// The last line of a screen, drawn last.
fn last(screen: &str) -> &str {
    screen.lines().last().unwrap_or_default()
}

fn lacks_a_terminal() -> bool {
    lacks(&["tmux", "unshare", "ip", "python3", "stty"]) || refuses(&["unshare", "-Urn", "true"])
}

/// Whether a captured screen has a colour: an SGR parameter that sets one.
fn has_colour(screen: &str) -> bool {
    let sequences = screen.split("\u{1b}[").skip(1);
    let parameters = sequences.filter_map(|rest| rest.split_once('m').map(|(list, _)| list));
    let mut numbers =
        parameters.flat_map(|list| list.split([';', ':'])).filter_map(|n| n.parse::<u16>().ok());
    numbers.any(|number| matches!(number, 30..=38 | 40..=48 | 90..=107))
}

#[test]
fn the_screen_names_an_overflow_explains_it_and_gives_the_terminal_back() {
    if lacks_a_terminal() {
        return;
    }
    let terminal = Terminal::open(80, 24, &[]);
    let screen = terminal.watch();
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[0].starts_with("tcptoll watch · ") && lines.len() <= 24, "{screen}");
    // Five looks tell a burst from an overload that lasts.
    let cures = ["    fix: tcptoll doctor · If", "    fix: top -H -p"];
    let is_fix = |line: &&str| cures.iter().any(|cure| line.starts_with(cure));
    assert!(lines.iter().any(is_fix), "{screen}");
    let row = lines.iter().find(|line| line.starts_with(" !!127.0.0.1:6379")).unwrap();
    // The owner's name cannot steer the terminal.
    assert!(row.contains("·[31mevil"), "{screen}");
    terminal.press(&["e"]);
    terminal.wait("fix", |screen| screen.contains("risk    ") && screen.contains("undo    "));
    terminal.press(&["Escape"]);
    terminal.wait("table", |screen| screen.contains("LISTENER"));
    terminal.press(&["/", "no-such", "Enter"]);
    terminal.wait("filter", |screen| screen.contains("no listener matches \"no-such\""));
    terminal.press(&["Escape", "Left"]);
    terminal.wait("moment", |screen| {
        let hints = last(screen);
        screen.contains(" paused, as of ")
            && hints.contains("space go on")
            && hints.ends_with("↑↓ Tab row  s r sort  / filter")
    });
    terminal.press(&["h"]);
    terminal.wait("help", |screen| {
        screen.contains("\nKeys\n") && last(screen).contains("PgUp PgDn scroll  g G begin, end")
    });
    terminal.press(&["NPage"]);
    terminal.wait("next page", |screen| !screen.contains("\nKeys\n"));
    terminal.press(&["G"]);
    terminal.wait("end", |screen| screen.contains("each is a row") && !screen.contains("↓ more"));
    terminal.press(&["g"]);
    terminal.wait("begin", |screen| screen.contains("\nKeys\n") && screen.contains("↓ more"));
    terminal.press(&["Escape"]);
    terminal.wait("rows", |screen| screen.contains("space go on"));
    terminal.press(&["q"]);
    terminal.is_as_before(0);
}

#[test]
fn the_end_of_a_recorded_screen_says_where_the_record_is_and_what_draws_it() {
    if lacks_a_terminal() {
        return;
    }
    let terminal = Terminal::open(80, 24, &[]);
    let record = terminal.folder.path("night.jsonl");
    terminal.start(&format!("--record {record}"));
    terminal.wait("screen", |screen| screen.contains("LISTENER") && !screen.contains("ready>"));
    terminal.press(&["q"]);
    let says = format!("recorded in {record}; to draw it:\ntcptoll report {record}\nended 0\n");
    terminal.wait("sentence", |screen| screen.contains(&says));
}

#[test]
fn the_screen_follows_the_size_of_the_terminal() {
    if lacks_a_terminal() {
        return;
    }
    let terminal = Terminal::open(80, 24, &[]);
    terminal.watch();
    terminal.tmux(&["resize-window", "-x", "200", "-y", "60"]);
    terminal.wait("wide screen", |screen| {
        screen.contains("QUEUE, LAST 60 LOOKS") && last(screen).starts_with("q quit")
    });
    terminal.tmux(&["resize-window", "-x", "40", "-y", "10"]);
    terminal.wait("small screen", |screen| {
        !screen.contains("PROCESS") && screen.contains("QUEUE LIMIT DROP/s")
    });
    terminal.tmux(&["resize-window", "-x", "20", "-y", "5"]);
    terminal.wait("sentence", |screen| screen.contains("needs 30 × 6"));
    terminal.tmux(&["resize-window", "-x", "80", "-y", "24"]);
    terminal.wait("screen", |screen| screen.contains("PROCESS"));
    // Ctrl-C is a key here, and ends the watch as the signal would.
    terminal.press(&["C-c"]);
    terminal.is_as_before(130);
}

#[test]
fn signals_and_suspension_give_the_terminal_back() {
    if lacks_a_terminal() {
        return;
    }
    let terminal = Terminal::open(80, 24, &[]);
    for (signal, status) in [("-TERM", 143), ("-HUP", 129), ("-INT", 130)] {
        terminal.watch();
        terminal.signal(signal);
        terminal.is_as_before(status);
    }
    let program = env!("CARGO_BIN_EXE_tcptoll");
    terminal.press(&[&format!("clear; {program} watch --duration 10m"), "Enter"]);
    terminal.wait("screen", |screen| screen.contains("LISTENER"));
    terminal.press(&["C-z"]);
    terminal.wait("shell", |screen| screen.contains("ready>") && !screen.contains("LISTENER"));
    terminal.press(&["fg", "Enter"]);
    terminal.wait("screen", |screen| screen.contains("LISTENER") && !screen.contains("ready>"));
    terminal.press(&["q"]);
    terminal.wait("shell", |screen| screen.contains("ready>") && !screen.contains("LISTENER"));
}

#[test]
fn a_watch_whose_terminal_is_closed_ends() {
    if lacks_a_terminal() {
        return;
    }
    let terminal = Terminal::open(80, 24, &[]);
    terminal.watch();
    let of_process = format!("/proc/{}/stat", terminal.pid());
    assert!(std::fs::exists(&of_process).unwrap());
    terminal.tmux(&["kill-server"]);
    let until = Instant::now() + PATIENCE;
    while std::fs::exists(&of_process).unwrap() {
        assert!(Instant::now() < until, "it still runs");
        sleep(EVERY);
    }
}

#[test]
fn without_colour_the_screen_has_none_and_a_dumb_terminal_gets_lines() {
    if lacks_a_terminal() {
        return;
    }
    for (variable, coloured) in
        [("TERM=screen", true), ("TERM=vt100", false), ("NO_COLOR=1", false)]
    {
        let terminal = Terminal::open(80, 24, &[variable]);
        terminal.watch();
        let screen = terminal.tmux(&["capture-pane", "-p", "-e"]);
        assert_eq!(has_colour(&screen), coloured, "{variable}: {screen:?}");
        assert!(screen.contains("!! "), "{screen:?}");
    }
    let terminal = Terminal::open(80, 24, &["TERM=dumb"]);
    terminal.start("");
    let lines = terminal.wait("overflow", |lines| lines.contains("overflows/s at 127.0.0.1:6379"));
    assert!(lines.contains("A line") && !lines.contains("LISTENER"), "{lines}");
}
