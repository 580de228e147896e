//! One connection: its name, its handshakes, and then what is spoken on it.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tcptoll_core::page::resource::{ConnectionId, Origin};
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_rustls::TlsConnector;

use super::stream::Stream;
use super::{Event, Shared, Wanted, http1, http2};
use crate::load::class_of;

/// Opens a connection and speaks on it until it ends.
pub(super) async fn run(
    connection: ConnectionId,
    origin: Origin,
    shared: Rc<Shared>,
    orders: UnboundedReceiver<Wanted>,
) {
    match open(connection, &origin, &shared).await {
        Ok((stream, true)) => http2::run(connection, stream, &origin, &shared, orders).await,
        Ok((stream, false)) => http1::run(connection, stream, &shared, orders).await,
        Err((class, words)) => shared.happened(Event::Refused(connection, class, words)),
    }
}

/// Gives the connection, and whether HTTP/2 is spoken on it.
async fn open(
    connection: ConnectionId,
    origin: &Origin,
    shared: &Shared,
) -> Result<(Box<dyn Stream>, bool), (&'static str, String)> {
    let at = address(origin, shared).await?;
    shared.happened(Event::Resolved(connection));
    let stream = TcpStream::connect(at)
        .await
        .map_err(|error| (class_of(&error), format!("{origin}: {error}")))?;
    shared.happened(Event::Connected(connection));
    // A request of two segments would wait for the first one's acknowledgment.
    let _ = stream.set_nodelay(true);
    if !origin.tls {
        return Ok((Box::new(stream), false));
    }
    let name = ServerName::try_from(origin.host.clone())
        .map_err(|_| ("tls", format!("{origin}: its host is not valid as a TLS server name")))?;
    let stream = TlsConnector::from(Arc::clone(&shared.tls))
        .connect(name, stream)
        .await
        .map_err(|error| ("tls", format!("{origin}: {error}")))?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    shared.happened(Event::Secured(connection, http2));
    Ok((Box::new(stream), http2))
}

async fn address(origin: &Origin, shared: &Shared) -> Result<SocketAddr, (&'static str, String)> {
    if let Ok(address) = origin.host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, origin.port));
    }
    let known = shared.order.names.iter().find(|(name, _)| *name == origin.host);
    if let Some((_, address)) = known {
        return Ok(SocketAddr::new(*address, origin.port));
    }
    let failed = |why: String| ("dns", format!("{}: {why}", origin.host));
    let mut found = lookup_host((origin.host.as_str(), origin.port))
        .await
        .map_err(|error| failed(error.to_string()))?;
    found.next().ok_or_else(|| failed("it has no address".to_owned()))
}
