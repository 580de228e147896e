//! The orders of the parent, the answers of a host, and how both look on the wire.
//!
//! An order is a type that names its answer ([`Order`]). A host has a handler for each order it
//! carries out ([`crate::channel::Orders`]); the parent gives orders through
//! [`Handle`](crate::lab::Handle). Both sides exchange [`Request`]s and [`Reply`]s, one order at a
//! time. A new order is one type with one `order!` line, and its handler in the table of the host.

mod connect;
mod host;
mod http;
mod idle;
mod link;
mod page;
mod pool;
mod short;
mod transfer;

use std::borrow::Cow;

pub use connect::{
    ConnectLoad, ConnectReport, EndHalfOpen, Greet, GreetReport, HalfOpenReport, KeepHalfOpen,
    Listening, Opened, Split,
};
pub use host::{
    Forget, Launch, LookAway, Observe, Perform, Performed, ReadCpu, ReadQueue, ReadSocketMemory,
    ReadSysctls, Run, SetSysctls, Settle, Snapshot, SocketMemory, Upload, WatchListener,
    WatchQueues,
};
pub use http::{
    ClosedSockets, CountClosed, GROUP_LATENCY, GROUP_SLICES, GROUPS_MAX, GroupReport, GroupSlice,
    HttpLoad, HttpReport, HttpRequests, Io, MemoryGroup, Rates, ServerKind, ServerLimits,
    ServerSpec, Serving, TlsLoad, UPLOAD_MAX,
};
pub use idle::{
    Check, End, Faulted, Freeze, GroupAnswer, IdleReport, IdleSpec, Lazy, Leave, Look, Made, Make,
    Rest, ToGroup,
};
pub use link::{
    Arrivals, AskClock, AskRoute, Calibrate, Count, Counted, EXCHANGES_MAX, FaultPorts, Now,
    PING_MAX, Peek, Ping, Reflect, Reflected, ShiftClock, Sink, TakeSpan, Token, Train, Watch,
};
pub use page::{
    ConnectionSeen, LoadPage, LoadVisits, NextPage, PagePart, PageReport, PageSeen, PageStart,
    PageUser, Visit, VisitPart, VisitsReport,
};
pub use pool::{
    BackendKind, BackendServing, BackendSpec, Connection, FrontKind, FrontServing, FrontSpec,
    SAMPLES_MAX, Stall, Stalled, TakeWorkers, WatchMemory, WatchWorkers, WorkerSample, WorkersSeen,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
pub use short::{
    CloseFirst, CurvePoint, Echo, EchoReport, HoldPorts, Moment, POINTS_MAX, PortsHeld,
    ShortHistograms, ShortLoad, ShortReport, WORKERS_MAX,
};
use tcptoll_core::stats::Histogram;
use tcptoll_core::tcp::handshake::{ClientRow, ServerRow, WireRow};
pub use transfer::{
    Answers, AnswersReport, Carried, Coalesce, Exchange, ExchangeReport, Filled, Flow, Held,
    HoldAccept, HoldConnect, HoldEnd, HoldFill, HoldListen, HoldListening, HoldLook, MemoryPicture,
    ReadMemory, Receiving, Sending, SocketSettings, SocketsGot, TcpAtEdges, Transfer,
    TransferReport, TransferServer,
};

/// Version of what is said over the channel. It rises with every change of an order, an answer or
/// the form of a message that the other side would misread.
pub const PROTOCOL: u32 = 1;

/// An order, and what comes of it.
pub trait Order: Serialize + DeserializeOwned {
    /// The host's answer.
    type Answer: Serialize + DeserializeOwned;
    /// Its name on the wire; every order has its own.
    const NAME: &'static str;
}

/// An order that is carried out until [`Request::Stop`]; the host first reports that it has begun.
pub trait Service: Order {
    /// What the host reports at the beginning.
    type Started: Serialize + DeserializeOwned;
}

/// Whether a field has the value that an order without it means.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Makes a type an order: its answer, its name on the wire.
macro_rules! order {
    ($order:ty => $answer:ty, $name:literal) => {
        impl $crate::messages::Order for $order {
            type Answer = $answer;
            const NAME: &'static str = $name;
        }
    };
}
use order;

/// What the parent sends. `B` is the order's own type at the sender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request<B = Value> {
    /// Carry out an order.
    Order {
        /// [`Order::NAME`].
        name: Cow<'static, str>,
        /// The order.
        body: B,
    },
    /// End the order that is being carried out, and answer it with what there is. Without effect if
    /// there is none, as when it has ended meanwhile.
    Stop,
}

/// How far a load has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    /// Operations finished.
    pub done: u64,
    /// Figures of the last second. Absent: the load has none, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<Live>,
    /// What is waited for after the measured part. Absent: nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outstanding: Option<Outstanding>,
}

/// Responses that a load waits for when its time is over.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outstanding {
    /// Requests under way.
    pub responses: u64,
    /// The longest wait from now on, s.
    pub most_s: f64,
}

impl From<u64> for Done {
    fn from(done: u64) -> Self {
        Self { done, ..Self::default() }
    }
}

/// Figures of a load while it runs, for people who watch it: they are in no record.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Live {
    /// Successful operations per second, over the last second.
    pub ok_per_s: f64,
    /// Failed operations so far.
    pub failed: u64,
    /// p99 latency over the last second, at most 1/16 too high, µs. Absent: too few operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<f64>,
}

/// What a host sends. `A` is the answer of the order that it carries out, `S` what a [`Service`]
/// reports at the beginning.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply<A, S = ()> {
    /// The first message: the host is there.
    Ready(Ready),
    /// The order cannot be carried out; a sentence for the user. May be the first message.
    Failed(String),
    /// A [`Service`] has begun.
    Started(S),
    /// How far a load has come; may come any number of times.
    Progress(Done),
    /// Rows of a trace; they come before the answer they belong to.
    Rows(Rows),
    /// A distribution that belongs to the answer, and comes before it.
    Histogram {
        /// As in the record, without unit: `latency`.
        name: String,
        /// The distribution.
        histogram: Box<Histogram>,
    },
    /// The order has been carried out.
    Answer(A),
}

/// Part of a trace.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Rows {
    /// Seen by the client's program.
    Client(Vec<ClientRow>),
    /// Seen by the server's program.
    Server(Vec<ServerRow>),
    /// Seen on the wire.
    Wire(Vec<WireRow>),
    /// Counted of one group of requests.
    Group(Box<GroupReport>),
    /// Of a page that was loaded.
    Page(PagePart),
    /// Of visitors of a site.
    Visit(VisitPart),
}

/// What a host reports of itself at the start.
///
/// The first two fields keep their names in every protocol, so that any two versions of the program
/// find out that they differ.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ready {
    /// [`PROTOCOL`] of the host.
    pub protocol: u32,
    /// Version of the host's program: `0.1.0`.
    pub version: String,
    /// CPU it was pinned to.
    #[serde(default)]
    pub pinned_cpu: Option<u32>,
    /// The link process: how packets are carried.
    #[serde(default)]
    pub packet_fallback: bool,
}

impl Ready {
    /// Of this program.
    pub fn new(pinned_cpu: Option<u32>, packet_fallback: bool) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { protocol: PROTOCOL, version, pinned_cpu, packet_fallback }
    }
}

/// When an order began to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Began {
    /// On the monotonic clock, ns: before the first thing was done.
    pub at_ns: u64,
}
