//! PHP: where it is, whether it is young enough, and its settings.
//!
//! Of FastCGI there is one request over a Unix socket: enough to read PHP-FPM's status page. The answer is
//! bounded in length and time. Source: "FastCGI Specification" 1.0, Mark R. Brown (1996).

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::program;

/// The pool whose status can be read while all workers are stuck (`pm.status_listen`) is there since
/// PHP 8.0.
const MAJOR_MIN: u32 = 8;

/// Names of the program: Debian has the version in it.
const NAMES: [&str; 7] =
    ["php-fpm", "php-fpm8.5", "php-fpm8.4", "php-fpm8.3", "php-fpm8.2", "php-fpm8.1", "php-fpm8.0"];

/// The program, and its version: `PHP 8.2.36 (fpm-fcgi) …`.
pub(super) fn find() -> Result<(PathBuf, String), String> {
    let php = program::find(&NAMES, "php-fpm")?;
    let version = program::version(&php, "-v")?;
    if major(&version).is_none_or(|major| major < MAJOR_MIN) {
        return Err(format!("{} is {version}: PHP {MAJOR_MIN} or later is needed", php.display()));
    }
    Ok((php, version))
}

/// PHP as a module of Apache, in the folder of its modules: `libphp8.2.so`.
pub(super) fn module(modules: &Path) -> Result<PathBuf, String> {
    let is_module = |path: &PathBuf| {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.starts_with("libphp") && path.extension() == Some(OsStr::new("so"))
    };
    let entries = std::fs::read_dir(modules).map_err(|e| format!("{}: {e}", modules.display()))?;
    let mut found: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(is_module).collect();
    found.sort();
    found.pop().ok_or_else(|| {
        "PHP as a module of Apache is not installed: apt-get install libapache2-mod-php".to_owned()
    })
}

/// Settings of PHP in either form.
pub(super) const SETTINGS: [&str; 6] = [
    "max_execution_time=0",
    "display_errors=0",
    "log_errors=1",
    "expose_php=0",
    // Else it adds a character set to the types of text.
    "default_charset=",
    "output_buffering=0",
];

/// Lines of a script that allocate this many bytes in the process that runs it, once, until the process ends.
pub(super) fn ballast(bytes: u64) -> String {
    if bytes == 0 {
        return String::new();
    }
    // The environment of C lasts as long as the process; PHP's own ends with the request.
    format!(
        "$c = FFI::cdef('char *getenv(const char *); int setenv(const char *, const char *, int); \
         void *malloc(size_t); void *memset(void *, int, size_t);');\n\
         if ($c->getenv('TCPTOLL_BALLAST') === null) {{\n  \
         $c->setenv('TCPTOLL_BALLAST', '1', 1);\n  $c->memset($c->malloc({bytes}), 1, {bytes});\n}}\n"
    )
}

/// `PHP 8.2.36 (fpm-fcgi) …` is 8.
fn major(version: &str) -> Option<u32> {
    version.strip_prefix("PHP ")?.split('.').next()?.parse().ok()
}

/// Record types.
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;

/// The role of a server that answers requests, in the body of a `BEGIN_REQUEST`.
const RESPONDER: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

/// Bytes before the content of a record.
const HEADER: usize = 8;

/// The content of the response to a GET.
///
/// Errors: also where it is longer than `limits.0` bytes, or takes longer than `limits.1`.
pub(super) fn get(
    socket: &Path,
    path: &str,
    query: &str,
    limits: (u64, Duration),
) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", socket.display());
    let begun = Instant::now();
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.set_write_timeout(Some(limits.1)).map_err(failed)?;
    stream.write_all(&request(path, query)).map_err(failed)?;
    let mut received = Vec::new();
    let mut part = [0; 4_096];
    loop {
        if let Some(content) = content(&received)? {
            return Ok(content);
        }
        if received.len() as u64 > limits.0 {
            return Err(format!("a status page of more than {} bytes", limits.0));
        }
        let left = limits.1.checked_sub(begun.elapsed()).filter(|left| !left.is_zero());
        let left = left.ok_or_else(|| format!("no status page within {:?}", limits.1))?;
        stream.set_read_timeout(Some(left)).map_err(failed)?;
        match stream.read(&mut part) {
            Ok(0) => return Err("the status page ended early".to_owned()),
            Ok(length) => received.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

fn record(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).expect("parameters are a few hundred bytes");
    let [high, low] = length.to_be_bytes();
    let mut record = vec![1, kind, 0, 1, high, low, 0, 0];
    record.extend(content);
    record
}

fn request(path: &str, query: &str) -> Vec<u8> {
    let mut parameters = Vec::new();
    for (name, value) in [
        ("SCRIPT_FILENAME", path),
        ("SCRIPT_NAME", path),
        ("REQUEST_METHOD", "GET"),
        ("QUERY_STRING", query),
    ] {
        // Lengths below 128 are one byte.
        parameters.extend([name.len() as u8 & 0x7f, value.len() as u8 & 0x7f]);
        parameters.extend(name.bytes().chain(value.bytes()));
    }
    let end = record(PARAMS, &[]);
    [record(BEGIN_REQUEST, &RESPONDER), record(PARAMS, &parameters), end, record(STDIN, &[])]
        .concat()
}

/// The content of a response that has come as a whole. `Ok(None)`: more must come.
fn content(mut bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
    let mut output = Vec::new();
    loop {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER>() else { return Ok(None) };
        let [version, kind, _, _, high, low, padding, _] = *header;
        if version != 1 {
            return Err(format!("not FastCGI: version {version}"));
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        let Some(body) = rest.get(..length) else { return Ok(None) };
        match kind {
            STDOUT => output.extend_from_slice(body),
            END_REQUEST => break,
            _ => {}
        }
        let Some(rest) = rest.get(length + usize::from(padding)..) else { return Ok(None) };
        bytes = rest;
    }
    let end = output.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.ok_or("a status page without a head")?;
    Ok(Some(output.split_off(end + 4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_php_is_read_from_its_first_line() {
        assert_eq!(major("PHP 8.2.36 (fpm-fcgi) (built: Nov 18 2026 20:02:33)"), Some(8));
        assert_eq!([major("PHP 7.4.3 (cli)"), major("zsh"), major("PHP x")], [Some(7), None, None]);
    }

    fn response() -> Vec<u8> {
        let head = record(STDOUT, b"Content-Type: application/json\r\n\r\n{\"a\"");
        let mut rest = record(STDOUT, b":1}");
        // Padding, and something on the error stream.
        rest[6] = 3;
        rest.extend([0; 3]);
        [head, record(7, b"notice"), rest, record(END_REQUEST, &[0; 8])].concat()
    }

    #[test]
    fn a_response_is_read_once_all_of_it_has_come() {
        let bytes = response();
        for length in 0..bytes.len() {
            assert_eq!(content(&bytes[..length]), Ok(None), "{length}");
        }
        assert_eq!(content(&bytes).unwrap().unwrap(), b"{\"a\":1}");
    }

    #[test]
    fn another_protocol_and_a_response_without_a_head_are_errors() {
        assert!(content(b"HTTP/1.1 200 OK\r\n").unwrap_err().starts_with("not FastCGI"));
        let headless = [record(STDOUT, b"{}"), record(END_REQUEST, &[0; 8])].concat();
        assert_eq!(content(&headless).unwrap_err(), "a status page without a head");
    }

    #[test]
    fn an_endless_or_a_silent_server_is_given_up() {
        use std::os::unix::net::UnixListener;
        let path = std::env::temp_dir().join(format!("tcptoll-fastcgi-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let server = std::thread::spawn(move || {
            let (mut endless, _) = listener.accept().unwrap();
            while endless.write_all(&record(STDOUT, &[b'x'; 1_000])).is_ok() {}
            listener.accept().unwrap()
        });
        let long = Duration::from_secs(20);
        let error = get(&path, "/status", "json", (16 << 10, long)).unwrap_err();
        assert_eq!(error, "a status page of more than 16384 bytes");
        let error = get(&path, "/status", "json", (16, Duration::from_millis(20))).unwrap_err();
        std::fs::remove_file(&path).unwrap();
        assert!(error.contains("within 20ms") || error.contains("temporarily"), "{error}");
        drop(server.join().unwrap());
    }
}
