//! HTTP/2 on one connection: a stream for each request.

use std::rc::Rc;

use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, Request};
use tcptoll_core::page::loader::Head;
use tcptoll_core::page::resource::{ConnectionId, Origin, RequestId};
use tcptoll_core::page::rules;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use super::http1::{AGENT, Decoder, OFFERED, undecoded};
use super::{Event, Shared, Stream, Wanted};

/// Receive windows of a stream and of the connection, bytes: Chromium's
/// (`net/http/http_network_session.cc`).
const STREAM_WINDOW: u32 = 6 << 20;
const CONNECTION_WINDOW: u32 = 15 << 20;

/// Bytes of fields that a response may have.
const FIELDS_MAX: u32 = 300 << 10;

/// Speaks until the connection ends, or this is dropped.
pub(super) async fn run(
    connection: ConnectionId,
    stream: Box<dyn Stream>,
    origin: &Origin,
    shared: &Rc<Shared>,
    mut orders: UnboundedReceiver<Wanted>,
) {
    let handshake = h2::client::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(FIELDS_MAX)
        .max_concurrent_streams(rules::STREAMS)
        .enable_push(false)
        .handshake::<_, std::io::Cursor<Vec<u8>>>(stream)
        .await;
    let Ok((mut sender, carrier)) = handshake else {
        shared.happened(Event::Closed(connection));
        return;
    };
    let mut streams = JoinSet::new();
    tokio::pin!(carrier);
    loop {
        tokio::select! {
            biased;
            wanted = orders.recv() => {
                let Some(wanted) = wanted else { return };
                match send(&mut sender, origin, &wanted, shared) {
                    Ok(response) => {
                        shared.happened(Event::Sent(wanted.request));
                        let shared = Rc::clone(shared);
                        streams.spawn_local(read(wanted.request, response, shared));
                    }
                    Err(words) => {
                        shared.happened(Event::Failed(wanted.request, "malformed", words));
                    }
                }
            }
            _ = &mut carrier => {
                // What has come of streams is told before.
                while streams.join_next().await.is_some() {}
                shared.happened(Event::Closed(connection));
                return;
            }
            Some(_) = streams.join_next() => {}
        }
    }
}

fn send(
    sender: &mut SendRequest<std::io::Cursor<Vec<u8>>>,
    origin: &Origin,
    wanted: &Wanted,
    shared: &Shared,
) -> Result<ResponseFuture, String> {
    let scheme = if origin.tls { "https" } else { "http" };
    let encodings = if shared.order.compress { OFFERED } else { "identity" };
    let request = Request::get(format!("{scheme}://{}{}", wanted.host, wanted.path))
        .header("user-agent", AGENT)
        .header("accept", "*/*")
        .header("accept-encoding", encodings)
        .body(())
        .map_err(|error| error.to_string())?;
    let (response, _) = sender.send_request(request, true).map_err(|error| error.to_string())?;
    Ok(response)
}

async fn read(request: RequestId, response: ResponseFuture, shared: Rc<Shared>) {
    if let Err((class, words)) = response_of(request, response, &shared).await {
        shared.happened(Event::Failed(request, class, words));
    }
}

async fn response_of(
    request: RequestId,
    response: ResponseFuture,
    shared: &Shared,
) -> Result<(), (&'static str, String)> {
    let failed = |error: h2::Error| {
        let class = if error.is_io() || error.is_go_away() { "truncated" } else { "reset" };
        (class, error.to_string())
    };
    let response = response.await.map_err(failed)?;
    shared.happened(Event::First(request));
    let (parts, mut body) = response.into_parts();
    let field = |name: &str| field(&parts.headers, name);
    let encoding = field("content-encoding").unwrap_or_default();
    let mut decoder = Decoder::named(&encoding)
        .ok_or_else(|| ("malformed", format!("unknown content encoding {encoding}")))?;
    let head = Head {
        status: parts.status.as_u16(),
        location: field("location"),
        content_type: field("content-type"),
        keeps: true,
    };
    shared.happened(Event::Head(request, head));
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(failed)?;
        // The window counts what was taken.
        let _ = body.flow_control().release_capacity(piece.len());
        let decoded = decoder.decode(&piece).map_err(|error| undecoded(&error))?;
        shared.happened(Event::Body(request, decoded, piece.len() as u64));
    }
    decoder.end().map_err(|error| undecoded(&error))?;
    shared.happened(Event::Ended(request));
    Ok(())
}

fn field(fields: &HeaderMap, name: &str) -> Option<String> {
    fields.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}
