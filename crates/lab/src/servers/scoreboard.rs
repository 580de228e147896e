//! The workers of a web server, from its own status page: `mod_status` of Apache, `stub_status` of nginx.
//!
//! Apache answers with a worker of its own, and a reading over a new connection would wait behind the
//! visitors once all workers are held. So the page has an address of its own, where connections are kept
//! without limit, and the reader keeps one from before the load. Apache gets one worker more for this
//! connection, which is not counted. nginx answers on a Unix socket.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use tcptoll_core::http::response::{Limits, Progress, ResponseReader};

/// Where the page is, of both servers.
pub(super) const PATH: &str = "/tcptoll-status";

/// A reading is answered within this, or it is missed.
const LIMIT: Duration = Duration::from_millis(500);

/// Longest page, bytes: a letter for each of 20,000 workers, and some lines.
const LIMITS: Limits = Limits { head_bytes: 8 << 10, fields: 100, body_bytes: 64 << 10 };

/// What was read of a status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// Busy workers.
    pub(super) busy: u32,
    /// Workers in all.
    pub(super) total: u32,
    /// Requests that wait for a worker.
    pub(super) waiting: Option<u32>,
    /// Connections that wait for another request.
    pub(super) kept: Option<u32>,
    /// SYNs and ACKs that met a full accept queue so far.
    pub(super) overflows: Option<u64>,
}

/// Where a status page is.
#[derive(Clone, Debug)]
pub(super) enum StatusPage {
    /// Of Apache.
    Apache(SocketAddr),
    /// Of nginx: its socket, and the connections that all its processes may have.
    Nginx(PathBuf, u32),
}

/// Reads a page again and again.
pub(super) struct Scoreboard {
    page: StatusPage,
    /// To Apache.
    kept: Option<TcpStream>,
}

impl Scoreboard {
    pub(super) fn new(page: StatusPage) -> Self {
        Self { page, kept: None }
    }

    /// One reading, without the accept queue.
    pub(super) fn read(&mut self) -> Result<Reading, String> {
        match &self.page {
            StatusPage::Apache(at) => {
                let at = *at;
                let text = self.ask_apache(at).map_err(|error| {
                    self.kept = None;
                    error.to_string()
                })?;
                of_apache(&text)
            }
            StatusPage::Nginx(path, all) => {
                let text = ask_nginx(path).map_err(|error| error.to_string())?;
                of_nginx(&text, *all)
            }
        }
    }

    fn ask_apache(&mut self, at: SocketAddr) -> io::Result<String> {
        if self.kept.is_none() {
            let stream = TcpStream::connect_timeout(&at, LIMIT)?;
            stream.set_read_timeout(Some(LIMIT))?;
            stream.set_nodelay(true)?;
            self.kept = Some(stream);
        }
        let Some(stream) = &mut self.kept else { return Err(io::ErrorKind::NotConnected.into()) };
        let request = format!("GET {PATH}?auto HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        content(stream)
    }
}

fn ask_nginx(path: &PathBuf) -> io::Result<String> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(format!("GET {PATH} HTTP/1.0\r\n\r\n").as_bytes())?;
    content(&mut stream)
}

/// The content of one response.
fn content(stream: &mut impl io::Read) -> io::Result<String> {
    let mut reader = ResponseReader::default();
    reader.begin(false);
    let mut text = Vec::new();
    let mut input = [0; 4 << 10];
    loop {
        let length = stream.read(&mut input)?;
        let fed = match length {
            0 => reader.end().map(|()| Progress::Done { taken: 0 }),
            _ => reader.feed(&input[..length], &LIMITS, &mut |piece| text.extend_from_slice(piece)),
        };
        if let Progress::Done { .. } = fed.map_err(io::Error::other)? {
            return match reader.head() {
                Some(head) if head.status == 200 => Ok(String::from_utf8_lossy(&text).into_owned()),
                head => Err(io::Error::other(format!("no status page: {head:?}"))),
            };
        }
    }
}

/// Apache's page (`?auto`): a letter for each worker.
fn of_apache(text: &str) -> Result<Reading, String> {
    let value = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    };
    let letters = value("Scoreboard").ok_or("the status page has no scoreboard")?;
    let count = |wanted: &str| letters.chars().filter(|letter| wanted.contains(*letter)).count();
    // `event` keeps connections without a worker, and counts them apart.
    let kept_apart = match value("ConnsAsyncKeepAlive") {
        Some(number) => number.parse().map_err(|error| format!("ConnsAsyncKeepAlive: {error}"))?,
        None => 0,
    };
    // Reading, sending, kept, looking up a name, closing, logging, finishing. One is the reader's own.
    let busy =
        count("RWKDCLG").checked_sub(1).ok_or("the worker that answers is not on its own page")?;
    // Without places where no worker is.
    let total = count("_SRWKDCLGI");
    Ok(Reading {
        busy: busy as u32,
        total: total as u32,
        kept: Some(count("K") as u32 + kept_apart),
        ..Reading::default()
    })
}

/// nginx's page: `Active connections: 3`, `Reading: 0 Writing: 1 Waiting: 2`.
fn of_nginx(text: &str, all: u32) -> Result<Reading, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| *word == name)?;
        words.get(at + 1)?.parse::<u32>().ok()
    };
    let number = |name: &str| after(name).ok_or_else(|| format!("the status page has no {name}"));
    // The reader's own connection is one of them.
    let busy = number("connections:")?.checked_sub(1).ok_or("the reader is not on its own page")?;
    Ok(Reading { busy, total: all, kept: Some(number("Waiting:")?), ..Reading::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_of_apache_are_counted_by_letter_without_the_one_that_answers() {
        // Debian's 2.4.71, prefork: sending (the reader's), three kept, one reading, two idle.
        let page = "ServerVersion: Apache/2.4.71\nBusyWorkers: 5\nIdleWorkers: 2\n\
                    Scoreboard: WKKRK__.........\n";
        let reading = of_apache(page).unwrap();
        assert_eq!((reading.busy, reading.total, reading.kept), (4, 7, Some(3)));
        assert!(of_apache("BusyWorkers: 5\n").is_err() && of_apache("Scoreboard: ___\n").is_err());
    }

    #[test]
    fn connections_that_event_keeps_without_a_worker_are_counted_as_kept() {
        let page = "ConnsTotal: 9\nConnsAsyncWriting: 0\nConnsAsyncKeepAlive: 7\n\
                    ConnsAsyncClosing: 1\nScoreboard: W_____....\n";
        let reading = of_apache(page).unwrap();
        assert_eq!((reading.busy, reading.total, reading.kept), (0, 6, Some(7)));
    }

    #[test]
    fn connections_of_nginx_are_read_from_its_page() {
        let page = "Active connections: 4 \nserver accepts handled requests\n 9 9 30 \n\
                    Reading: 0 Writing: 1 Waiting: 3 \n";
        let reading = of_nginx(page, 768).unwrap();
        assert_eq!((reading.busy, reading.total, reading.kept), (3, 768, Some(3)));
        assert!(of_nginx("Active connections: many", 768).is_err());
    }
}
