//! TLS over the client loop: bytes in, bytes out, no socket.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, HandshakeKind, RootCertStore,
    SignatureScheme,
};

use crate::files::{is_too_large, read_at_most};
use crate::messages::TlsLoad;

/// Longest file of certificates, bytes: the roots of a Linux distribution are a fiftieth of it.
const CA_MAX: u64 = 16 << 20;

/// How sessions are made.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// Errors: a sentence that names what cannot be read.
    pub(super) fn new(load: &TlsLoad) -> Result<Self, String> {
        let name = ServerName::try_from(load.server_name.clone())
            .map_err(|_| format!("{}: no name that TLS knows", load.server_name))?;
        let config = client_config(load)?;
        Ok(Self { config: Arc::new(config), name })
    }

    /// Begins a session; its first bytes are pending.
    pub(super) fn session(&self) -> Result<Session, rustls::Error> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone())?;
        Ok(Session { connection, out: Vec::new(), gone: 0 })
    }
}

/// Which certificates are accepted, and whether sessions are resumed.
///
/// Errors: a sentence that names what cannot be read.
pub(crate) fn client_config(load: &TlsLoad) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| format!("TLS: {error}"))?;
    let mut config = if load.insecure {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
            .with_no_client_auth()
    } else {
        builder.with_root_certificates(roots(load.ca.as_deref())?).with_no_client_auth()
    };
    if !load.resume {
        config.resumption = Resumption::disabled();
    }
    Ok(config)
}

/// The roots of this machine, and those of a file.
fn roots(ca: Option<&str>) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca {
        let failed = |error: &dyn std::fmt::Display| format!("--ca {path}: {error}");
        let text = read_at_most(Path::new(path), CA_MAX).map_err(|error| {
            if is_too_large(&error) {
                failed(&"it is longer than 16 MiB, more than a file of certificates may be")
            } else {
                failed(&error)
            }
        })?;
        let read = CertificateDer::pem_slice_iter(&text);
        let mut found = 0;
        for certificate in read {
            let certificate = certificate.map_err(|error| failed(&error))?;
            roots.add(certificate).map_err(|error| failed(&error))?;
            found += 1;
        }
        if found == 0 {
            return Err(failed(&"there is no certificate in it"));
        }
    }
    if roots.is_empty() {
        return Err("TLS: this machine trusts no certificate authority, as /etc/ssl/certs is empty or not there: \
                    install ca-certificates, name a file with --ca, or use --insecure"
            .to_owned());
    }
    Ok(roots)
}

/// One connection's session.
#[derive(Debug)]
pub(super) struct Session {
    connection: ClientConnection,
    /// Bytes for the peer, `gone` of which have left.
    out: Vec<u8>,
    gone: usize,
}

impl Session {
    /// Takes bytes of the peer; what they mean is added to `plain`. True: the peer has said that
    /// nothing more will come.
    pub(super) fn take(
        &mut self,
        mut bytes: &[u8],
        plain: &mut Vec<u8>,
    ) -> Result<bool, rustls::Error> {
        let mut ended = false;
        while !bytes.is_empty() {
            // From memory: it fails only where the session is full, and it is emptied each time.
            if self.connection.read_tls(&mut bytes).is_err() {
                break;
            }
            let state = self.connection.process_new_packets()?;
            ended |= state.peer_has_closed();
            let length = state.plaintext_bytes_to_read();
            let from = plain.len();
            plain.resize(from + length, 0);
            if length > 0 && self.connection.reader().read_exact(&mut plain[from..]).is_err() {
                plain.truncate(from);
            }
        }
        Ok(ended)
    }

    /// Encrypts bytes for the peer.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        // Into memory, and the session's own buffer has no limit that a request meets.
        let _ = self.connection.writer().write_all(bytes);
    }

    /// Bytes that are to leave; they stay where they are until [`Session::left`].
    pub(super) fn pending(&mut self) -> &[u8] {
        if self.gone == self.out.len() {
            self.out.clear();
            self.gone = 0;
            while self.connection.wants_write() {
                if self.connection.write_tls(&mut self.out).is_err() {
                    break;
                }
            }
        }
        &self.out[self.gone..]
    }

    /// So many of the pending bytes have left.
    pub(super) fn left(&mut self, bytes: usize) {
        self.gone = (self.gone + bytes).min(self.out.len());
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether the session goes on from an earlier one.
    pub(super) fn resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Version and cipher: `TLSv1_3 TLS13_AES_256_GCM_SHA384`.
    pub(super) fn words(&self) -> String {
        let version = self.connection.protocol_version();
        let suite = self.connection.negotiated_cipher_suite();
        let version = version.map_or_else(String::new, |version| format!("{version:?}"));
        suite.map_or(version.clone(), |suite| format!("{version} {:?}", suite.suite()))
    }
}

/// Accepts any certificate; the signatures of the handshake are checked all the same.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
