//! Pages to warm the browser up with, on this host's own loopback, and what it is to accept there.
//!
//! A browser that has just started reads its libraries from disk, starts a process for the page and
//! compiles nothing yet: its first load of 20 style sheets shows 14 ms between the document and the
//! first request that it names, and 9 ms after it has loaded another such page. Loopback is not the
//! link: nothing of the warm-up is on the wire that is measured, and no connection of it is to the
//! port of the page. The page is on the same host name, because the browser gives the pages of one
//! host one process.
//!
//! And the public keys of certificates, as Chromium's list of accepted ones names them: a certificate of the lab is signed by nobody that Chromium knows. Where all errors are ignored, it asks
//! its other process at each handshake and begins another connection; a key on the list is as good
//! as a known authority.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection};
use tcptoll_kernel::epoll::{Interest, Poller};

use crate::load::LoadError;

/// Style sheets of a warm-up page.
const SHEETS: usize = 20;

/// Connections that are served; a browser opens 6.
const CONNECTIONS_MAX: usize = 64;

/// Longest head of a request, bytes.
const HEAD_MAX: usize = 16 << 10;

/// The server looks this often whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// A write to a browser that does not read ends after this.
const WRITE_LIMIT: Duration = Duration::from_secs(2);

/// The server of the warm-up pages; it ends when this is dropped, and its connections with it.
#[derive(Debug)]
pub(super) struct Warm {
    port: u16,
    /// SHA-256 of the key of its certificate, base64.
    key: Option<String>,
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Warm {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Warm {
    /// Starts it on a free port, with TLS if the page has.
    pub(super) fn start(tls: bool) -> Result<Self, LoadError> {
        let failed = |error: io::Error| LoadError::Refused(format!("warm-up of chromium: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let (config, key) = if tls {
            let (config, key) = certificate()
                .map_err(|error| LoadError::Refused(format!("warm-up of chromium: {error}")))?;
            (Some(config), Some(key))
        } else {
            (None, None)
        };
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let thread = std::thread::Builder::new()
            .name("warm-up".to_owned())
            .spawn(move || {
                let _ = serve(&listener, config.as_ref(), &ended);
            })
            .map_err(failed)?;
        Ok(Self { port, key, end, thread: Some(thread) })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// SHA-256 of the key of its certificate, base64, as
    /// `--ignore-certificate-errors-spki-list` takes it.
    pub(super) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

fn certificate() -> Result<(Arc<ServerConfig>, String), String> {
    let key = KeyPair::generate().map_err(|error| error.to_string())?;
    let params = CertificateParams::new(vec!["tcptoll.test".to_owned()])
        .map_err(|error| error.to_string())?;
    let certificate = params.self_signed(&key).map_err(|error| error.to_string())?;
    let hash = ring::digest::digest(&ring::digest::SHA256, &key.subject_public_key_info());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
        )
        .map_err(|error| error.to_string())?;
    Ok((Arc::new(config), STANDARD.encode(hash)))
}

/// One connection of the browser.
struct Visitor {
    stream: TcpStream,
    tls: Option<ServerConnection>,
    /// What has come of the next request.
    head: Vec<u8>,
}

fn serve(
    listener: &TcpListener,
    config: Option<&Arc<ServerConfig>>,
    end: &AtomicBool,
) -> io::Result<()> {
    let failed = |error: tcptoll_kernel::SysError| error.source;
    let mut poller = Poller::new(16).map_err(failed)?;
    poller.add(listener, u64::MAX, Interest::READ).map_err(failed)?;
    let mut visitors: Vec<Option<Visitor>> = Vec::new();
    while !end.load(Ordering::Relaxed) {
        for event in poller.wait(Some(LOOK)).map_err(failed)? {
            if event.token == u64::MAX {
                let Ok((stream, _)) = listener.accept() else { continue };
                if visitors.len() >= CONNECTIONS_MAX {
                    continue;
                }
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(WRITE_LIMIT))?;
                // Only read when there is something; a partial TLS record must not block it.
                stream.set_read_timeout(Some(WRITE_LIMIT))?;
                let tls = config
                    .map(|config| ServerConnection::new(Arc::clone(config)))
                    .transpose()
                    .map_err(io::Error::other)?;
                poller.add(&stream, visitors.len() as u64, Interest::READ).map_err(failed)?;
                visitors.push(Some(Visitor { stream, tls, head: Vec::new() }));
            } else if let Some(place) = visitors.get_mut(event.token as usize) {
                // A connection that ends leaves the poller when it is closed.
                if place.as_mut().is_some_and(|visitor| !visitor.take().unwrap_or(false)) {
                    *place = None;
                }
            }
        }
    }
    Ok(())
}

impl Visitor {
    /// Reads what has come, and answers complete requests; false: the connection has ended.
    fn take(&mut self) -> io::Result<bool> {
        let mut part = [0; 8_192];
        if let Some(tls) = &mut self.tls {
            if tls.read_tls(&mut self.stream)? == 0 {
                return Ok(false);
            }
            let state = tls.process_new_packets().map_err(io::Error::other)?;
            for _ in 0..state.plaintext_bytes_to_read().div_ceil(part.len()) {
                let length = tls.reader().read(&mut part)?;
                self.head.extend_from_slice(&part[..length]);
            }
        } else {
            match self.stream.read(&mut part)? {
                0 => return Ok(false),
                length => self.head.extend_from_slice(&part[..length]),
            }
        }
        while let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") {
            let head: Vec<u8> = self.head.drain(..end + 4).collect();
            let answer = answer(&head);
            match &mut self.tls {
                Some(tls) => tls.writer().write_all(&answer)?,
                None => self.stream.write_all(&answer)?,
            }
        }
        if let Some(tls) = &mut self.tls {
            while tls.wants_write() {
                tls.write_tls(&mut self.stream)?;
            }
        }
        Ok(self.head.len() <= HEAD_MAX)
    }
}

/// The document, or a style sheet; nothing is stored.
fn answer(head: &[u8]) -> Vec<u8> {
    let path = head.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
    let (kind, body) = if path.ends_with(b".css") {
        let rule = |number: usize| format!(".c{number} {{ color: #123456; margin: {number}px }}\n");
        ("text/css", (0..60).map(rule).collect::<String>())
    } else {
        let link = |number: usize| format!("<link rel=stylesheet href=/{number}.css>\n");
        let links: String = (0..SHEETS).map(link).collect();
        let icon = "<link rel=icon href=data:,>";
        let page = format!("<!doctype html><title>-</title>{icon}\n{links}<p>Hello.");
        ("text/html; charset=utf-8", page)
    };
    let fields = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\r\n",
        body.len()
    );
    (fields + &body).into_bytes()
}

/// Longest file of certificates, bytes.
const FILE_MAX: u64 = 1 << 20;

/// Certificates that are taken of a file; each is some 60 bytes of the command line.
const CERTIFICATES_MAX: usize = 100;

/// ASN.1 tags.
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xA0;

/// SHA-256 of the key of each certificate in a PEM file, base64.
///
/// Errors: a sentence with the file's name.
pub(super) fn of_file(file: &str) -> Result<Vec<String>, String> {
    let mut text = Vec::new();
    File::open(file)
        .and_then(|opened| opened.take(FILE_MAX).read_to_end(&mut text))
        .map_err(|error| format!("{file}: {error}"))?;
    let mut keys = Vec::new();
    for certificate in CertificateDer::pem_slice_iter(&text).take(CERTIFICATES_MAX) {
        let certificate = certificate.map_err(|error| format!("{file}: {error}"))?;
        let key =
            public_key(&certificate).ok_or_else(|| format!("{file}: no X.509 certificate"))?;
        keys.push(STANDARD.encode(ring::digest::digest(&ring::digest::SHA256, key)));
    }
    Ok(keys)
}

/// `SubjectPublicKeyInfo` of a certificate, as it stands there. None: it is none.
///
/// Source: RFC 5280, section 4.1: version, serial number, signature, issuer, validity, subject, key.
fn public_key(certificate: &[u8]) -> Option<&[u8]> {
    let (tag, _, certificate, _) = element(certificate)?;
    let (inner, _, mut rest, _) = element(certificate)?;
    if (tag, inner) != (SEQUENCE, SEQUENCE) {
        return None;
    }
    if element(rest)?.0 == VERSION {
        rest = element(rest)?.3;
    }
    for _ in 0..5 {
        rest = element(rest)?.3;
    }
    let (tag, whole, ..) = element(rest)?;
    (tag == SEQUENCE).then_some(whole)
}

/// Tag, all of it, its content, and what follows.
type Element<'a> = (u8, &'a [u8], &'a [u8], &'a [u8]);

/// The first element of some DER.
fn element(bytes: &[u8]) -> Option<Element<'_>> {
    let (&tag, &short) = (bytes.first()?, bytes.get(1)?);
    let (head, length) = match short {
        0..=0x7F => (2, usize::from(short)),
        0x81..=0x83 => {
            let count = usize::from(short - 0x80);
            let digits = bytes.get(2..2 + count)?;
            (2 + count, digits.iter().fold(0, |sum, &digit| sum << 8 | usize::from(digit)))
        }
        _ => return None,
    };
    let (whole, rest) = (bytes.get(..head + length)?, bytes.get(head + length..)?);
    Some((tag, whole, &whole[head..], rest))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};

    use super::*;

    #[test]
    fn pages_and_style_sheets_are_served_over_one_connection() {
        let warm = Warm::start(false).unwrap();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, warm.port())).unwrap();
        for (path, begins) in [("/", "<!doctype"), ("/3.css", ".c0")] {
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
            let mut text = String::new();
            let mut part = [0; 4_096];
            while !text.contains(begins) {
                let length = stream.read(&mut part).unwrap();
                assert!(length > 0, "{text}");
                text += std::str::from_utf8(&part[..length]).unwrap();
            }
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            let length: usize = head
                .lines()
                .find_map(|line| line.strip_prefix("Content-Length: "))
                .and_then(|value| value.parse().ok())
                .unwrap();
            let mut rest = vec![0; length - body.len()];
            stream.read_exact(&mut rest).unwrap();
        }
        drop(warm);
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn a_head_without_an_end_closes_its_connection() {
        let warm = Warm::start(false).unwrap();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, warm.port())).unwrap();
        // The server may close before all of it is written.
        let _ = stream.write_all(&vec![b'x'; 2 * HEAD_MAX]);
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }

    #[test]
    fn the_key_of_a_certificate_is_found() {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        assert_eq!(public_key(certificate.der()), Some(&key.subject_public_key_info()[..]));
    }

    #[test]
    fn a_certificate_cut_short_anywhere_has_no_key_or_the_same() {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        for length in 0..certificate.der().len() {
            assert_eq!(public_key(&certificate.der()[..length]), None);
        }
    }
}
