//! What Chromium's DevTools protocol reports of a load: messages decoded, and the waterfall they make.
//!
//! The browser is a peer like any other: a message is bounded before it comes here, a field that is
//! missing or absurd makes a phase 0 or a request incomplete, never a panic. Only events of the
//! domains `Network`, `Page` and `Inspector` are read; all others are [`Event::Other`].
//!
//! [`decode`] reads one message, [`load::Load`] collects those of one navigation; [`timing`] makes the
//! same of what the page itself remembers, which disturbs less.
//!
//! Source: the protocol's own description, <https://chromedevtools.github.io/devtools-protocol/>,
//! as Chromium 156 speaks it.

pub mod load;
pub mod timing;

use serde::Deserialize;

/// A message that is no message of the protocol.
#[derive(Debug, thiserror::Error)]
#[error("not a message of the DevTools protocol: {0}")]
pub struct Malformed(#[from] serde_json::Error);

/// One message of the browser.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The answer to a command.
    Answer {
        /// Number of the command.
        id: u64,
        /// What came of it, or the browser's own words on why it failed.
        result: Result<Answer, String>,
    },
    /// Something happened.
    Event(Event),
}

/// What answers say, of all commands that we send.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answer {
    /// Of `Browser.getVersion`: `Chrome/156.0.8078.79`.
    pub product: Option<String>,
    /// Of `Target.createBrowserContext`.
    pub browser_context_id: Option<String>,
    /// Of `Target.createTarget`.
    pub target_id: Option<String>,
    /// Of `Target.attachToTarget`.
    pub session_id: Option<String>,
    /// Of `Runtime.evaluate`.
    pub result: Option<Evaluated>,
    /// Of `Page.navigate`: why nothing was navigated to.
    pub error_text: Option<String>,
}

/// The value of an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Evaluated {
    /// A string; absent: it is none.
    #[serde(default)]
    pub value: Option<String>,
}

/// Something that happened in the browser. Times are monotonic, seconds.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A request became known, or was redirected.
    Asked(Box<RequestWillBeSent>),
    /// A response's head has arrived.
    Responded(Box<Responded>),
    /// The response has ended.
    Finished(Finished),
    /// The request failed.
    Failed(Failed),
    /// The page's `load` event, at this time.
    Loaded(f64),
    /// A navigation began to show its document (`init`).
    Begun,
    /// Nothing was outstanding for half a second (`networkIdle`).
    Idle,
    /// The page's process has crashed.
    Crashed,
    /// Anything else.
    Other,
}

/// `Network.requestWillBeSent`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestWillBeSent {
    /// The browser's name for the request; the same for all steps of a redirect.
    pub request_id: String,
    /// Name of the navigation it belongs to; the document's request has the same name.
    #[serde(default)]
    pub loader_id: String,
    /// Where in the page: the document itself, or a frame in it.
    #[serde(default)]
    pub frame_id: String,
    /// What is asked for.
    pub request: AskedFor,
    /// When.
    pub timestamp: f64,
    /// What made it known.
    #[serde(default)]
    pub initiator: Initiator,
    /// The response that redirected the former step here.
    #[serde(default)]
    pub redirect_response: Option<Response>,
    /// Kind of the resource: `Document`, `Stylesheet` …
    #[serde(default, rename = "type")]
    pub kind: String,
    /// `Blocking`, `NonBlocking` …; absent in Chromium before 145.
    #[serde(default)]
    pub render_blocking_behavior: Option<String>,
}

/// What is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedFor {
    /// URL without its fragment.
    pub url: String,
    /// `VeryLow` to `VeryHigh`.
    #[serde(default)]
    pub initial_priority: String,
}

/// What made a request known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Initiator {
    /// The document or style sheet that names it.
    pub url: Option<String>,
    /// The script that asked for it.
    pub stack: Option<Stack>,
}

/// Where a script was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Stack {
    /// The innermost call first.
    pub call_frames: Vec<Frame>,
}

/// One call of a script.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// The script.
    pub url: String,
}

/// `Network.responseReceived`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Responded {
    /// Which request.
    pub request_id: String,
    /// The response.
    pub response: Response,
}

/// The head of a response.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Response {
    /// Its status.
    pub status: u16,
    /// The browser's number for the connection. 0: none, it came from a cache.
    pub connection_id: f64,
    /// Whether the connection carried a request before.
    pub connection_reused: bool,
    /// From the cache on disk.
    pub from_disk_cache: bool,
    /// Bytes received so far: those of the head.
    pub encoded_data_length: f64,
    /// `http/1.1`, `h2` …
    pub protocol: Option<String>,
    /// When its phases were. Absent: it came from a cache.
    pub timing: Option<Timing>,
    /// Fields of its head that matter here.
    pub headers: Headers,
}

/// Fields of a head that matter here. Names come as the server wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Headers {
    /// `close`: the server closes the connection after this response.
    #[serde(alias = "Connection")]
    pub connection: Option<String>,
    /// Bytes of the content.
    #[serde(alias = "Content-Length", alias = "content-length")]
    pub content_length: Option<String>,
}

/// `Network.ResourceTiming`: ms after `request_time`; -1 where a phase did not happen.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Timing {
    /// The baseline, seconds, monotonic.
    pub request_time: f64,
    /// Name resolution.
    pub dns_start: f64,
    /// Its end.
    pub dns_end: f64,
    /// TCP, and TLS in it.
    pub connect_start: f64,
    /// Its end.
    pub connect_end: f64,
    /// TLS handshake.
    pub ssl_start: f64,
    /// Its end.
    pub ssl_end: f64,
    /// The request.
    pub send_start: f64,
    /// Its end.
    pub send_end: f64,
    /// First byte of the response.
    pub receive_headers_start: f64,
    /// End of its head.
    pub receive_headers_end: f64,
}

/// `Network.loadingFinished`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finished {
    /// Which request.
    pub request_id: String,
    /// When.
    pub timestamp: f64,
    /// Bytes received, head and content.
    #[serde(default)]
    pub encoded_data_length: f64,
}

/// `Network.loadingFailed`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// Which request.
    pub request_id: String,
    /// When.
    pub timestamp: f64,
    /// `net::ERR_CONNECTION_REFUSED` …
    #[serde(default)]
    pub error_text: String,
}

/// Reads one message.
///
/// Errors: no JSON, or an event that we need lacks a field that every version has.
pub fn decode(message: &[u8]) -> Result<Message, Malformed> {
    #[derive(Deserialize)]
    struct Envelope {
        id: Option<u64>,
        #[serde(default)]
        method: String,
        error: Option<Complaint>,
    }
    #[derive(Deserialize)]
    struct Complaint {
        #[serde(default)]
        message: String,
    }
    #[derive(Deserialize)]
    struct Answered {
        #[serde(default)]
        result: Answer,
    }
    #[derive(Deserialize)]
    struct Loaded {
        timestamp: f64,
    }
    #[derive(Deserialize)]
    struct Lifecycle {
        name: String,
    }
    let envelope: Envelope = serde_json::from_slice(message)?;
    if let Some(id) = envelope.id {
        let result = match envelope.error {
            Some(complaint) => Err(complaint.message),
            None => Ok(serde_json::from_slice::<Answered>(message)?.result),
        };
        return Ok(Message::Answer { id, result });
    }
    let event = match envelope.method.as_str() {
        "Network.requestWillBeSent" => Event::Asked(Box::new(params(message)?)),
        "Network.responseReceived" => Event::Responded(Box::new(params(message)?)),
        "Network.loadingFinished" => Event::Finished(params(message)?),
        "Network.loadingFailed" => Event::Failed(params(message)?),
        "Page.loadEventFired" => Event::Loaded(params::<Loaded>(message)?.timestamp),
        "Page.lifecycleEvent" => match params::<Lifecycle>(message)?.name.as_str() {
            "init" => Event::Begun,
            "networkIdle" => Event::Idle,
            _ => Event::Other,
        },
        "Inspector.targetCrashed" | "Target.targetCrashed" => Event::Crashed,
        _ => Event::Other,
    };
    Ok(Message::Event(event))
}

fn params<T: for<'a> Deserialize<'a>>(message: &[u8]) -> Result<T, Malformed> {
    #[derive(Deserialize)]
    struct With<T> {
        params: T,
    }
    Ok(serde_json::from_slice::<With<T>>(message)?.params)
}

#[cfg(test)]
mod tests;
