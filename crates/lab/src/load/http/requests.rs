//! The bytes of every request, made before the load begins.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tcptoll_core::http::reuse::Reuse;

use crate::messages::HttpRequests;

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Head and content.
    pub(super) bytes: Box<[u8]>,
    /// It is a HEAD request: the response has no content.
    pub(super) to_head: bool,
}

/// Writes the requests for a way of using connections.
///
/// Errors: there is none, or the content is no base64; a sentence.
pub(super) fn write(requests: &HttpRequests, reuse: Reuse) -> Result<Vec<Request>, String> {
    if requests.lines.is_empty() {
        return Err("there is no request to send".to_owned());
    }
    let body = BASE64.decode(&requests.body).map_err(|error| format!("the content: {error}"))?;
    let (version, connection) = reuse.request();
    let mut common = String::new();
    if !requests.fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        common += &format!("Host: {}\r\n", requests.authority);
    }
    for (name, value) in &requests.fields {
        common += &format!("{name}: {value}\r\n");
    }
    if let Some(connection) = connection {
        common += &format!("Connection: {connection}\r\n");
    }
    let one = |(method, target): &(String, String)| {
        let mut bytes = format!("{method} {target} {version}\r\n{common}").into_bytes();
        let bare = matches!(method.as_str(), "GET" | "HEAD");
        if !bare {
            bytes.extend(format!("Content-Length: {}\r\n", body.len()).into_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        if !bare {
            bytes.extend_from_slice(&body);
        }
        Request { bytes: bytes.into_boxed_slice(), to_head: method == "HEAD" }
    };
    Ok(requests.lines.iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(reuse: Reuse, method: &str, fields: &[(&str, &str)]) -> String {
        let requests = HttpRequests {
            lines: vec![(method.to_owned(), "/a?b".to_owned())],
            fields: fields.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
            authority: "h:81".to_owned(),
            body: BASE64.encode("xyz"),
            groups: Vec::new(),
        };
        String::from_utf8(write(&requests, reuse).unwrap()[0].bytes.to_vec()).unwrap()
    }

    #[test]
    fn the_way_of_use_decides_version_and_connection_field() {
        assert_eq!(text(Reuse::KeepAlive, "GET", &[]), "GET /a?b HTTP/1.1\r\nHost: h:81\r\n\r\n");
        assert_eq!(text(Reuse::ClientClose, "GET", &[]), text(Reuse::KeepAlive, "GET", &[]));
        let closing = text(Reuse::ServerClose, "HEAD", &[("Accept", "*/*")]);
        assert_eq!(
            closing,
            "HEAD /a?b HTTP/1.1\r\nHost: h:81\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        assert!(text(Reuse::Http10, "GET", &[]).starts_with("GET /a?b HTTP/1.0\r\n"));
        assert!(text(Reuse::Http10KeepAlive, "GET", &[]).contains("Connection: keep-alive\r\n"));
    }

    #[test]
    fn content_comes_with_its_length_and_a_host_may_be_given() {
        let post = text(Reuse::KeepAlive, "POST", &[("host", "other")]);
        assert_eq!(post, "POST /a?b HTTP/1.1\r\nhost: other\r\nContent-Length: 3\r\n\r\nxyz");
    }
}
