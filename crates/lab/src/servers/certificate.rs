//! A certificate for the servers of one run, and a client that trusts it alone.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::files::RunFolder;

/// Names besides the address; `.test` is never a real domain (RFC 6761).
const NAMES: [&str; 2] = ["localhost", "tcptoll.test"];

/// A certificate made for one run, self-signed, and its key, as files of the run folder.
pub(super) struct Certificate {
    /// The certificate, PEM: also what a client is to trust.
    pub(super) pem: String,
    pub(super) chain_file: PathBuf,
    pub(super) key_file: PathBuf,
}

impl Certificate {
    /// Makes an ECDSA P-256 key, the cheapest that every client takes, and a certificate for this
    /// address, `localhost`, `tcptoll.test` and these names.
    pub(super) fn make(
        address: IpAddr,
        names: &[String],
        folder: &RunFolder,
    ) -> Result<Self, String> {
        let (pem, key) = pair(address, names).map_err(|error| format!("certificate: {error}"))?;
        Ok(Self {
            chain_file: folder.write("certificate.pem", pem.as_bytes())?,
            key_file: folder.write("key.pem", key.as_bytes())?,
            pem,
        })
    }

    /// A client that trusts this certificate alone.
    pub(super) fn client(&self, server: IpAddr) -> Result<ClientConnection, String> {
        let failed = |error: rustls::Error| error.to_string();
        let mut roots = RootCertStore::empty();
        let der = CertificateDer::from_pem_slice(self.pem.as_bytes()).map_err(|e| e.to_string())?;
        roots.add(der).map_err(failed)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        ClientConnection::new(Arc::new(config), ServerName::from(server)).map_err(failed)
    }
}

fn pair(address: IpAddr, further: &[String]) -> Result<(String, String), rcgen::Error> {
    let names = NAMES.iter().map(|&name| name.to_owned()).chain([address.to_string()]);
    let names = names.chain(further.iter().cloned());
    let mut params = CertificateParams::new(names.collect::<Vec<_>>())?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, NAMES[1]);
    let key = KeyPair::generate()?;
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_certificate_is_another_one_in_pem() {
        let address = "10.77.0.2".parse().unwrap();
        let [(a, key), (b, _)] = [pair(address, &[]).unwrap(), pair(address, &[]).unwrap()];
        assert_ne!(a, b);
        assert!(a.starts_with("-----BEGIN CERTIFICATE-----"), "{a}");
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"));
    }
}
