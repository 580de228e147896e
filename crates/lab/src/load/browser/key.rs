//! The public keys of certificates, as Chromium's list of accepted ones names them.
//!
//! A certificate of the lab is signed by nobody that Chromium knows. Where all errors are ignored, it asks
//! its other process at each handshake and begins another connection; a key on the list is as good
//! as a known authority.

use std::fs::File;
use std::io::Read;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

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
    use super::*;
    use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};

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
