//! How a worker of our own front service calls Redis: connect, ask, wait, and repeat what fails.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tcptoll_core::http::server::Retries;
use tcptoll_kernel::socket::errno;

use crate::messages::{Connection, FrontSpec};
use crate::servers::backends::KEY;

/// Why a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    ConnectTimeout,
    ConnectRefused,
    LocalPorts,
    LocalFiles,
    AnswerTimeout,
    Reset,
    Closed,
    /// What is wrong with the answer.
    Malformed(&'static str),
    /// Another error of a system call.
    Other(io::ErrorKind),
}

impl Failure {
    /// Of connect(2).
    fn connecting(error: &io::Error) -> Self {
        match (error.kind(), error.raw_os_error()) {
            // WouldBlock: where a time limit was set for sending.
            (io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock, _) => Self::ConnectTimeout,
            (_, Some(errno::ECONNREFUSED)) => Self::ConnectRefused,
            _ => Self::asking(error),
        }
    }

    /// Of a question or its answer.
    fn asking(error: &io::Error) -> Self {
        match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock, _) => Self::AnswerTimeout,
            (_, Some(errno::ECONNRESET | errno::EPIPE)) => Self::Reset,
            (_, Some(errno::EADDRNOTAVAIL)) => Self::LocalPorts,
            (_, Some(errno::EMFILE | errno::ENFILE)) => Self::LocalFiles,
            (kind, _) => Self::Other(kind),
        }
    }

    /// Status of the response.
    pub(super) fn status(self) -> &'static str {
        match self {
            Self::ConnectTimeout | Self::AnswerTimeout => "504 Gateway Timeout",
            _ => "502 Bad Gateway",
        }
    }

    /// In the content of the response.
    pub(super) fn reason(self) -> String {
        match self {
            Self::ConnectTimeout => "connect-timeout".to_owned(),
            Self::ConnectRefused => "connect-refused".to_owned(),
            Self::LocalPorts => "local-ports".to_owned(),
            Self::LocalFiles => "local-fds".to_owned(),
            Self::AnswerTimeout => "answer-timeout".to_owned(),
            Self::Reset => "reset".to_owned(),
            Self::Closed => "closed".to_owned(),
            Self::Malformed(why) => format!("malformed: {why}"),
            Self::Other(kind) => format!("error: {kind}"),
        }
    }
}

/// What one worker calls the backend with.
pub(super) struct Caller {
    spec: FrontSpec,
    question: Vec<u8>,
    /// The connection that is kept between requests.
    kept: Option<TcpStream>,
    random: Random,
}

impl Caller {
    /// Of the worker with this number.
    pub(super) fn new(spec: &FrontSpec, number: u64) -> Self {
        let question = format!("*2\r\n$3\r\nGET\r\n${}\r\n{KEY}\r\n", KEY.len()).into_bytes();
        // Any two seeds give unlike numbers.
        let random = Random(spec.seed ^ number.wrapping_mul(0xd134_2543_de82_ef95));
        Self { spec: spec.clone(), question, kept: None, random }
    }

    /// The backend's value, after as many attempts as are allowed.
    ///
    /// Errors: the failure of the last attempt.
    pub(super) fn call(&mut self) -> Result<Vec<u8>, Failure> {
        let retries = Retries {
            count: self.spec.retries,
            backoff_ns: self.spec.backoff_ns,
            jitter: self.spec.jitter,
        };
        let mut failed = 0;
        loop {
            let failure = match self.attempt() {
                Ok(value) => return Ok(value),
                Err(failure) => failure,
            };
            failed += 1;
            let Some(pause_ns) = retries.pause_ns(failed, self.random.share()) else {
                return Err(failure);
            };
            std::thread::sleep(Duration::from_nanos(pause_ns));
        }
    }

    fn attempt(&mut self) -> Result<Vec<u8>, Failure> {
        let mut stream = match self.kept.take() {
            Some(stream) => stream,
            None => self.connect().map_err(|error| Failure::connecting(&error))?,
        };
        let value = self.ask(&mut stream)?;
        // One that failed is closed: a late answer must not meet the next question.
        if self.spec.connection == Connection::Pooled {
            self.kept = Some(stream);
        }
        Ok(value)
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = match self.spec.connect_timeout_ns {
            Some(ns) => {
                let limit = Duration::from_nanos(ns.max(1));
                TcpStream::connect_timeout(&self.spec.backend, limit)?
            }
            None => TcpStream::connect(self.spec.backend)?,
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn ask(&self, stream: &mut TcpStream) -> Result<Vec<u8>, Failure> {
        let limit = Duration::from_nanos(self.spec.timeout_ns.max(1_000));
        let failed = |error: io::Error| Failure::asking(&error);
        let begun = Instant::now();
        stream.set_write_timeout(Some(limit)).map_err(failed)?;
        stream.write_all(&self.question).map_err(failed)?;
        let mut answer = Vec::new();
        let mut part = [0; 4_096];
        loop {
            let left = limit.checked_sub(begun.elapsed()).filter(|left| !left.is_zero());
            let left = left.ok_or(Failure::AnswerTimeout)?;
            stream.set_read_timeout(Some(left)).map_err(failed)?;
            match stream.read(&mut part) {
                Ok(0) => return Err(Failure::Closed),
                Ok(length) => answer.extend_from_slice(&part[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error)),
            }
            if let Some(value) = value(&answer).map_err(Failure::Malformed)? {
                return Ok(value.to_vec());
            }
            if answer.len() > ANSWER_MAX {
                return Err(Failure::Malformed("a value that is too long"));
            }
        }
    }
}

/// `SplitMix64`: enough for pauses.
///
/// Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014).
struct Random(u64);

impl Random {
    /// From 0 to below 1.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Longest value, bytes.
const VALUE_MAX: usize = 64 << 10;

/// Longest first line, its end included: a type, a length, CR LF.
const LINE_MAX: usize = 16;

/// Most bytes of an answer.
const ANSWER_MAX: usize = LINE_MAX + VALUE_MAX + 2;

/// The value of an answer of Redis to GET, in its protocol (RESP). Nothing is read beyond its bounds,
/// whatever the other end sends. `Ok(None)`: more bytes must come.
///
/// Errors: what is wrong with the answer.
pub(super) fn value(bytes: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    match bytes.first() {
        None => return Ok(None),
        Some(b'$') => {}
        Some(b'-') => return Err("an error"),
        Some(_) => return Err("an answer of another type"),
    }
    let start = &bytes[..bytes.len().min(LINE_MAX)];
    let Some(end) = start.windows(2).position(|two| two == b"\r\n") else {
        return if bytes.len() < LINE_MAX { Ok(None) } else { Err("a length without an end") };
    };
    let digits = &bytes[1..end];
    if digits == b"-1" {
        return Err("no value");
    }
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err("a length that is not a number");
    }
    let length = std::str::from_utf8(digits).ok().and_then(|text| text.parse::<usize>().ok());
    let length = length.filter(|length| *length <= VALUE_MAX).ok_or("a value that is too long")?;
    let (begin, whole) = (end + 2, end + 2 + length + 2);
    if bytes.len() < whole {
        return Ok(None);
    }
    if bytes.len() > whole {
        return Err("bytes after the answer");
    }
    if &bytes[whole - 2..] != b"\r\n" {
        return Err("a value without an end");
    }
    Ok(Some(&bytes[begin..whole - 2]))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use super::*;
    use crate::servers::fronts::tests::spec;

    const MS: u64 = 1_000_000;

    /// A backend that gives each connection the next of these answers, and ends it; how many there
    /// were.
    fn backend(answers: &'static [&'static [u8]]) -> (SocketAddr, std::thread::JoinHandle<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().unwrap();
                let mut question = [0; 26];
                stream.read_exact(&mut question).unwrap();
                assert_eq!(&question, b"*2\r\n$3\r\nGET\r\n$7\r\ntcptoll\r\n");
                stream.write_all(answer).unwrap();
            }
            answers.len()
        });
        (at, serving)
    }

    #[test]
    fn a_call_that_fails_is_repeated_on_a_connection_of_its_own() {
        let (at, serving) = backend(&[b"-LOADING\r\n", b"", b"$5\r\nvalue\r\n"]);
        let mut caller = Caller::new(&FrontSpec { backend: at, retries: 2, ..spec() }, 0);
        assert_eq!(caller.call(), Ok(b"value".to_vec()));
        assert_eq!(serving.join().unwrap(), 3);
    }

    #[test]
    fn the_last_failure_is_the_one_that_is_reported() {
        let (at, serving) = backend(&[b"", b"+OK\r\n"]);
        let mut caller = Caller::new(&FrontSpec { backend: at, retries: 1, ..spec() }, 0);
        let failure = caller.call().unwrap_err();
        assert_eq!(failure, Failure::Malformed("an answer of another type"));
        assert_eq!(failure.status(), "502 Bad Gateway");
        serving.join().unwrap();
    }

    #[test]
    fn a_backend_that_never_answers_holds_a_worker_for_the_time_limit_of_every_attempt() {
        // Connections are made by the kernel; nobody accepts them.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let spec = FrontSpec { backend: at, timeout_ns: 20 * MS, retries: 2, ..spec() };
        let spec = FrontSpec { backoff_ns: 10 * MS, jitter: false, ..spec };
        let begun = Instant::now();
        assert_eq!(Caller::new(&spec, 0).call(), Err(Failure::AnswerTimeout));
        assert!(begun.elapsed() >= Duration::from_millis(3 * 20 + 10 + 20));
    }

    #[test]
    fn a_port_on_which_nothing_listens_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        drop(listener);
        let mut caller = Caller::new(&FrontSpec { backend: at, ..spec() }, 0);
        assert_eq!(caller.call(), Err(Failure::ConnectRefused));
    }

    #[test]
    fn a_pooled_worker_keeps_its_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for _ in 0..2 {
                let mut question = [0; 26];
                stream.read_exact(&mut question).unwrap();
                stream.write_all(b"$1\r\n1\r\n").unwrap();
            }
        });
        let spec = FrontSpec { backend: at, connection: Connection::Pooled, ..spec() };
        let mut caller = Caller::new(&spec, 0);
        assert_eq!((caller.call(), caller.call()), (Ok(b"1".to_vec()), Ok(b"1".to_vec())));
        serving.join().unwrap();
    }

    #[test]
    fn workers_draw_unlike_shares_from_one_seed_and_the_same_each_time() {
        let draws = |number| {
            let mut caller = Caller::new(&spec(), number);
            (0..1_000).map(|_| caller.random.share()).collect::<Vec<_>>()
        };
        let (first, second) = (draws(0), draws(1));
        assert!(first.iter().chain(&second).all(|share| (0.0..1.0).contains(share)));
        let mean = first.iter().sum::<f64>() / 1_000.0;
        assert!((mean - 0.5).abs() < 0.05, "{mean}");
        assert!(first != second && first == draws(0));
    }

    #[test]
    fn a_value_is_read_once_all_of_it_has_come() {
        let answer = b"$5\r\nvalue\r\n";
        for length in 0..answer.len() {
            assert_eq!(value(&answer[..length]), Ok(None), "{length}");
        }
        assert_eq!(value(answer), Ok(Some(&b"value"[..])));
        assert_eq!(value(b"$0\r\n\r\n"), Ok(Some(&b""[..])));
    }

    #[test]
    fn a_hostile_answer_is_refused_before_its_length_is_believed() {
        for (answer, why) in [
            (&b"-ERR unknown\r\n"[..], "an error"),
            (b"+PONG\r\n", "an answer of another type"),
            (b"HTTP/1.1 200 OK\r\n", "an answer of another type"),
            (b"$-1\r\n", "no value"),
            (b"$\r\n", "a length that is not a number"),
            (b"$+5\r\nvalue\r\n", "a length that is not a number"),
            (b"$-5\r\n", "a length that is not a number"),
            (b"$65537\r\n", "a value that is too long"),
            (b"$9999999999999\r\n", "a value that is too long"),
            (b"$99999999999999999999999\r\n", "a length without an end"),
            (b"$5\r\nvalueXX", "a value without an end"),
            (b"$5\r\nvalue\r\n$", "bytes after the answer"),
        ] {
            assert_eq!(value(answer), Err(why), "{}", String::from_utf8_lossy(answer));
        }
        assert_eq!(value(b"$65536\r\n"), Ok(None));
    }
}
