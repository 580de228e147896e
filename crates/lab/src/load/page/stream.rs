//! A connection, encrypted or not.

use tokio::io::{AsyncRead, AsyncWrite};

/// Bytes to the server and back.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}
