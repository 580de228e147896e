//! The server of our own: a fixed answer, to calibrate a load generator against, or the files of a site,
//! where no other server is installed.
//!
//! It understands just enough of HTTP/1 to know where a request ends (`Content-Length`) and whether
//! the connection may be used again. No pipelining, no chunked content, no TLS. Each worker is a
//! process with one loop and a listening socket of its own, started by re-executing the binary, so
//! that its CPU time and memory are seen like those of any other server.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tcptoll_kernel::epoll::{Interest, Poller};
use tcptoll_kernel::socket::Tcp;
use tcptoll_kernel::{SysError, cpu, process};

use super::{Prepared, files_each, site, workers};
use crate::clock::monotonic_ns;
use crate::files::RunFolder;
use crate::messages::ServerSpec;

/// The hidden sub-command that makes one worker of the re-executed binary.
pub const RESPOND_COMMAND: &str = "__respond";

/// What is asked for where the answer is to take `work_ns`.
const WORK_PATH: &str = "/work";

/// The argument of `listen(2)` where none is asked for: `somaxconn` since Linux 5.4.
const BACKLOG: u64 = 4_096;

/// A request with its content may be this long.
const REQUEST_MAX: usize = 1 << 20;

/// Content of all files of a site together, bytes: each process has it thrice, with each head that there is.
pub(super) const SITE_MAX: u64 = 32 << 20;

/// Number of the listener among the descriptors waited on.
const LISTENER: u64 = u64::MAX;

/// Events handled together.
const EVENTS: usize = 256;

/// What one worker is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Orders {
    spec: ServerSpec,
    /// Other workers listen on the same port.
    shared: bool,
}

pub(super) fn prepare(spec: &ServerSpec, folder: &RunFolder) -> Result<Prepared, String> {
    if spec.tls {
        return Err("null does not support TLS: use nginx or apache".to_owned());
    }
    let count = workers(spec);
    files_each("null", spec, count)?;
    let orders = Orders { spec: spec.clone(), shared: count > 1 };
    let configuration = serde_json::to_string(&orders).map_err(|error| error.to_string())?;
    // A site is too long for an argument.
    let file = folder.write("null.json", configuration.as_bytes())?;
    let commands = (0..count)
        .map(|_| {
            let mut command = Command::new("/proc/self/exe");
            command.arg(RESPOND_COMMAND).arg(&file);
            command
        })
        .collect();
    Ok(Prepared {
        name: "null",
        commands,
        version: concat!("tcptoll/", env!("CARGO_PKG_VERSION")).to_owned(),
        path: if spec.work_ns > 0 { WORK_PATH } else { "/" }.to_owned(),
        configuration,
    })
}

/// Becomes one worker, with orders of this file; returns only if it cannot go on, with its exit status.
pub fn run(file: &str) -> i32 {
    process::set_name("tcptoll-respond");
    let _ = cpu::exact_timers();
    let _ = cpu::file_limit();
    let served = std::fs::read(file)
        .map_err(|error| format!("{file}: {error}"))
        .and_then(|orders| serde_json::from_slice(&orders).map_err(|error| error.to_string()))
        .and_then(|orders| Worker::new(orders).and_then(Worker::serve).map_err(|e| e.to_string()));
    if let Err(error) = served {
        super::say(&error);
    }
    1
}

/// The three answers there are; which one a connection sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// HTTP/1.1, and the connection is kept.
    Keep,
    /// HTTP/1.0, and the connection is kept.
    KeepOld,
    /// The connection is closed.
    Close,
}

/// What is answered to a path.
struct Route {
    /// Answers with content, and how long each is without.
    answers: [(Vec<u8>, usize); 3],
    /// Time that it takes, ns.
    work_ns: u64,
}

impl Route {
    fn new(status: &str, content_type: &str, content: &[u8], work_ns: u64) -> Self {
        let answer = |version: &str, connection: &str| {
            let mut bytes = format!(
                "{version} {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{connection}\r\n",
                content.len()
            )
            .into_bytes();
            let head = bytes.len();
            bytes.extend(content);
            (bytes, head)
        };
        let answers = [
            answer("HTTP/1.1", ""),
            answer("HTTP/1.0", "Connection: keep-alive\r\n"),
            answer("HTTP/1.1", "Connection: close\r\n"),
        ];
        Self { answers, work_ns }
    }
}

/// All answers there are.
struct Routes {
    /// The first is that to every path without a name.
    all: Vec<Route>,
    named: HashMap<String, usize>,
}

impl Routes {
    fn new(spec: &ServerSpec) -> Self {
        let text = |content: &[u8], work_ns| Route::new("200 OK", "text/plain", content, work_ns);
        let Some(site) = &spec.site else {
            let content = super::content(spec);
            let mut routes = Self { all: vec![text(&content, 0)], named: HashMap::new() };
            if spec.work_ns > 0 {
                routes.add(WORK_PATH, text(&content, spec.work_ns));
            }
            return routes;
        };
        let none = Route::new("404 Not Found", "text/plain", b"", 0);
        let mut routes = Self { all: vec![none], named: HashMap::new() };
        routes.add(site::READY_PATH, text(b"ready\n", 0));
        for file in &site.files {
            let content = file.content.made();
            routes.add(
                &file.path,
                Route::new("200 OK", &file.content_type, &content, file.server_time_ns),
            );
        }
        if let Some(&document) = routes.named.get("/index.html") {
            routes.named.insert("/".to_owned(), document);
        }
        routes
    }

    fn add(&mut self, path: &str, route: Route) {
        self.named.insert(path.to_owned(), self.all.len());
        self.all.push(route);
    }

    fn index(&self, target: &str) -> usize {
        if self.named.is_empty() { 0 } else { self.named.get(target).copied().unwrap_or(0) }
    }
}

/// A request that has arrived as a whole.
#[derive(Debug, PartialEq, Eq)]
struct Request<'a> {
    /// Bytes of head and content.
    length: usize,
    /// Whether the client allows the connection to be used again.
    reusable: bool,
    /// HTTP/1.0.
    old: bool,
    /// `HEAD`: the answer has no content.
    head_only: bool,
    /// What it asked for.
    target: &'a str,
}

/// What the beginning of `bytes` is: a request, not yet one (`Ok(None)`), or none (`Err`).
fn parse(bytes: &[u8]) -> Result<Option<Request<'_>>, ()> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return if bytes.len() > REQUEST_MAX { Err(()) } else { Ok(None) };
    };
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| ())?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, target) = (words.next().ok_or(())?, words.next().ok_or(())?);
    let old = match words.next() {
        Some("HTTP/1.1") => false,
        Some("HTTP/1.0") => true,
        _ => return Err(()),
    };
    let mut reusable = !old;
    let mut content = 0_usize;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(())?;
        if name.eq_ignore_ascii_case("connection") {
            for option in value.split(',').map(str::trim) {
                reusable = (reusable || option.eq_ignore_ascii_case("keep-alive"))
                    && !option.eq_ignore_ascii_case("close");
            }
        } else if name.eq_ignore_ascii_case("content-length") {
            content = value.trim().parse().map_err(|_| ())?;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(());
        }
    }
    let length = (end + 4).checked_add(content).filter(|&all| all <= REQUEST_MAX).ok_or(())?;
    let head_only = method == "HEAD";
    Ok((bytes.len() >= length).then_some(Request { length, reusable, old, head_only, target }))
}

/// One connection; between requests it holds no memory beside this.
struct Connection {
    tcp: Tcp,
    /// Which of all connections ever; a timer of an earlier one must not meet it.
    id: u64,
    /// The beginning of a request.
    partial: Vec<u8>,
    /// The answer that is being worked on or sent: to which route, which of its answers, how long.
    answer: Option<(usize, Answer, usize)>,
    /// Bytes of it that are sent.
    sent: usize,
    /// The work for it is not done yet.
    working: bool,
    /// Answered so far.
    requests: u64,
    /// Since when it has been idle, ns.
    idle_since: u64,
}

/// When, what for, and which connection: its place and its id.
type Timer = Reverse<(u64, Purpose, usize, u64)>;

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Purpose {
    /// The work for an answer is done.
    Work,
    /// The connection may have been idle for too long. Each has one such timer, which is not moved
    /// with every request but looks again when it fires.
    Idle,
}

struct Worker {
    spec: ServerSpec,
    listener: Tcp,
    poller: Poller,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    accepted: u64,
    timers: BinaryHeap<Timer>,
    buffer: Vec<u8>,
    routes: Routes,
}

impl Worker {
    fn new(orders: Orders) -> Result<Self, SysError> {
        let spec = orders.spec;
        let backlog = i32::try_from(spec.backlog.unwrap_or(BACKLOG)).unwrap_or(i32::MAX);
        let listener = if orders.shared {
            Tcp::shared_listener(spec.at, backlog)
        } else {
            Tcp::listener(spec.at, backlog, false)
        }?;
        let poller = Poller::new(EVENTS)?;
        poller.add(&listener, LISTENER, Interest::READ)?;
        Ok(Self {
            routes: Routes::new(&spec),
            listener,
            poller,
            connections: Vec::new(),
            free: Vec::new(),
            accepted: 0,
            timers: BinaryHeap::new(),
            buffer: vec![0; 64 << 10],
            spec,
        })
    }

    fn serve(mut self) -> Result<(), SysError> {
        loop {
            let timeout = self
                .timers
                .peek()
                .map(|Reverse((due, ..))| Duration::from_nanos(due.saturating_sub(monotonic_ns())));
            for event in self.poller.wait(timeout)? {
                if event.token == LISTENER {
                    self.accept();
                } else if event.broken {
                    self.close(event.token as usize);
                } else {
                    self.go_on(event.token as usize);
                }
            }
            self.fire();
        }
    }

    fn accept(&mut self) {
        loop {
            let tcp = match self.listener.accept() {
                Ok(Some((tcp, _))) => tcp,
                Ok(None) => return,
                Err(error) => {
                    // Reset while it waited, or no descriptor left: the latter stays so until a
                    // connection is closed, and is not to be asked for all the time.
                    super::say(&format!("accept: {error}"));
                    std::thread::sleep(Duration::from_millis(1));
                    return;
                }
            };
            let place = self.free.pop().unwrap_or(self.connections.len());
            if self.poller.add(&tcp, place as u64, Interest::EDGES).is_err() {
                self.free.push(place);
                continue;
            }
            self.accepted += 1;
            let connection = Connection {
                tcp,
                id: self.accepted,
                partial: Vec::new(),
                answer: None,
                sent: 0,
                working: false,
                requests: 0,
                idle_since: monotonic_ns(),
            };
            if place == self.connections.len() {
                self.connections.push(Some(connection));
            } else {
                self.connections[place] = Some(connection);
            }
            if let Some(ns) = self.spec.keepalive_timeout_ns {
                let due = monotonic_ns() + ns;
                self.timers.push(Reverse((due, Purpose::Idle, place, self.accepted)));
            }
        }
    }

    fn close(&mut self, place: usize) {
        if self.connections.get_mut(place).and_then(Option::take).is_some() {
            self.free.push(place);
        }
    }

    /// Reads and answers until the connection has to wait.
    fn go_on(&mut self, place: usize) {
        if !self.try_to_go_on(place).unwrap_or(false) {
            self.close(place);
        }
    }

    /// Whether the connection is still wanted; `None` where it failed or said no request.
    fn try_to_go_on(&mut self, place: usize) -> Option<bool> {
        let connection = self.connections.get_mut(place)?.as_mut()?;
        loop {
            if connection.working {
                return Some(true);
            }
            if let Some((route, answer, length)) = connection.answer {
                let bytes = &self.routes.all[route].answers[answer as usize].0[..length];
                while connection.sent < bytes.len() {
                    match connection.tcp.write(&bytes[connection.sent..]).ok()? {
                        Some(written) => connection.sent += written,
                        None => return Some(true),
                    }
                }
                if answer == Answer::Close {
                    return Some(false);
                }
                connection.answer = None;
                connection.sent = 0;
                connection.idle_since = monotonic_ns();
            }
            // The edge that told of these bytes may have passed while the answer was sent.
            let Some(length) = connection.tcp.read(&mut self.buffer).ok()? else {
                return Some(true);
            };
            if length == 0 {
                return Some(false);
            }
            let read = &self.buffer[..length];
            let whole = if connection.partial.is_empty() {
                read
            } else {
                connection.partial.extend_from_slice(read);
                &connection.partial
            };
            let Some(request) = parse(whole).ok()? else {
                if connection.partial.is_empty() {
                    connection.partial.extend_from_slice(read);
                }
                continue;
            };
            connection.requests += 1;
            let used_up = matches!(self.spec.keepalive_requests,
                Some(limit) if limit > 0 && connection.requests >= limit);
            let answer = match request {
                Request { reusable: false, .. } => Answer::Close,
                _ if !self.spec.keepalive || used_up => Answer::Close,
                Request { old: true, .. } => Answer::KeepOld,
                Request { .. } => Answer::Keep,
            };
            let number = self.routes.index(request.target);
            let route = &self.routes.all[number];
            let (bytes, head) = &route.answers[answer as usize];
            let length = if request.head_only { *head } else { bytes.len() };
            connection.answer = Some((number, answer, length));
            connection.partial = Vec::new();
            if route.work_ns > 0 {
                connection.working = true;
                let due = monotonic_ns() + route.work_ns;
                self.timers.push(Reverse((due, Purpose::Work, place, connection.id)));
            }
        }
    }

    /// Ends work that is done and connections that were idle for too long.
    fn fire(&mut self) {
        let now = monotonic_ns();
        while let Some(&Reverse((due, purpose, place, id))) = self.timers.peek() {
            if due > now {
                return;
            }
            self.timers.pop();
            let Some(connection) = self
                .connections
                .get_mut(place)
                .and_then(Option::as_mut)
                .filter(|connection| connection.id == id)
            else {
                continue;
            };
            if purpose == Purpose::Work {
                connection.working = false;
                self.go_on(place);
                continue;
            }
            let limit = self.spec.keepalive_timeout_ns.unwrap_or(u64::MAX);
            let since = if connection.answer.is_some() { now } else { connection.idle_since };
            let again = since.saturating_add(limit);
            if again > now {
                self.timers.push(Reverse((again, Purpose::Idle, place, id)));
            } else {
                self.close(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tcptoll_core::page::site::{Content, File, Site};

    use super::*;
    use crate::messages::ServerKind;
    use crate::servers::tests::spec;

    fn request(text: &str) -> Request<'_> {
        parse(text.as_bytes()).unwrap().unwrap()
    }

    #[test]
    fn version_and_connection_field_together_say_whether_it_may_be_used_again() {
        for (text, reusable) in [
            ("GET / HTTP/1.1\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nConnection: Close\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nconnection: x, close\r\n\r\n", false),
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
        ] {
            assert_eq!(request(text).reusable, reusable, "{text:?}");
        }
    }

    #[test]
    fn a_request_ends_where_its_content_does() {
        let text = "POST /work HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        let whole = request(text);
        assert_eq!((whole.length, whole.target), (text.len(), "/work"));
        for cut in 0..text.len() {
            assert_eq!(parse(&text.as_bytes()[..cut]), Ok(None), "{cut}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for text in [
            "GET /\r\n\r\n",
            "GET / HTTP/2.0\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 18446744073709551615\r\n\r\n",
        ] {
            assert_eq!(parse(text.as_bytes()), Err(()), "{text:?}");
        }
    }

    #[test]
    fn each_file_of_a_site_has_its_answer_and_its_time_and_another_path_has_none() {
        let file = |path: &str, text: &str, server_time_ns| File {
            path: path.to_owned(),
            content: Content::Text(text.to_owned()),
            content_type: "text/css".to_owned(),
            server_time_ns,
        };
        let files = vec![file("/index.html", "page", 0), file("/r/1.css", "a{}", 7)];
        let site = Some(Site { files, ..Site::default() });
        let routes = Routes::new(&ServerSpec { site, ..spec(ServerKind::Null) });
        let to = |path: &str| &routes.all[routes.index(path)];
        let text = |path: &str| String::from_utf8(to(path).answers[0].0.clone()).unwrap();
        assert!(text("/").ends_with("\r\n\r\npage") && text("/") == text("/index.html"));
        assert!(text("/r/1.css").contains("text/css") && to("/r/1.css").work_ns == 7);
        assert!(text(site::READY_PATH).starts_with("HTTP/1.1 200 "));
        assert!(text("/other").starts_with("HTTP/1.1 404 "), "{}", text("/other"));
    }

    #[test]
    fn without_a_site_every_path_has_the_same_answer_and_one_of_them_works() {
        let routes = Routes::new(&ServerSpec { work_ns: 9, ..spec(ServerKind::Null) });
        let works = ["/", "/a", "/work"].map(|path| routes.all[routes.index(path)].work_ns);
        assert_eq!(works, [0, 0, 9]);
    }
}
