//! The parent's handle of one host or of the link: orders go out, answers come back.
//!
//! A host carries out one order at a time. [`Handle::ask`] is for an order that is soon carried out,
//! [`Handle::begin`] and [`Handle::wait`] for a load, [`Handle::start`] and [`Handle::stop`] for a
//! [`Service`].

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::de::{DeserializeOwned, IgnoredAny};
use tcptoll_core::stats::Histogram;

use super::{Interrupt, LabError};
use crate::channel::{Channel, ChannelError};
use crate::messages::{Done, Order, PROTOCOL, Ready, Reply, Request, Rows, Service};

/// A host that has been told to stop answers within this, or is given up.
const STOP_LIMIT: Duration = Duration::from_millis(700);

/// An order without a load behind it is answered within this.
const ANSWER_LIMIT: Duration = Duration::from_mins(1);

/// A new host is ready within this.
const READY_LIMIT: Duration = Duration::from_secs(15);

/// An interrupt is looked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The parent's handle of one host or of the link.
#[derive(Debug)]
pub struct Handle {
    channel: Channel,
    /// `client host`, `server host` or `link`.
    name: &'static str,
    /// What it reported of itself.
    pub ready: Ready,
    /// Why the connection to its machine was lost, once it is; None: it is of this machine.
    lost: Option<Arc<OnceLock<String>>>,
    /// The same of a host without which its load has no sense.
    needed: Option<Arc<OnceLock<String>>>,
}

/// An order that a host carries out: the proof that its answer is still to come.
#[derive(Debug)]
#[must_use = "its answer is to be waited for"]
pub struct Begun<O>(PhantomData<fn() -> O>);

/// An answer, and what came before it.
#[derive(Debug)]
pub struct Answered<A> {
    /// The answer.
    pub answer: A,
    /// Rows that came before it.
    pub rows: Vec<Rows>,
    /// Distributions that came before it, by name.
    pub histograms: Vec<(String, Histogram)>,
}

impl Handle {
    /// Waits until the host is there.
    ///
    /// Errors: `Protocol` if its program speaks another protocol.
    pub fn new(channel: Channel, name: &'static str) -> Result<Self, LabError> {
        Self::over(channel, name, None)
    }

    /// As [`Handle::new`]; `lost` has a reason once the connection to its machine is lost.
    pub fn over(
        channel: Channel,
        name: &'static str,
        lost: Option<Arc<OnceLock<String>>>,
    ) -> Result<Self, LabError> {
        // Replaced by what the host reports.
        let mut handle = Self { channel, name, ready: Ready::new(None, false), lost, needed: None };
        // Of another protocol only this message can be read.
        match handle.receive::<IgnoredAny, IgnoredAny>(READY_LIMIT)? {
            Some(Reply::Ready(ready)) if ready.protocol == PROTOCOL => handle.ready = ready,
            Some(Reply::Ready(Ready { protocol: theirs, version, .. })) => {
                return Err(LabError::Protocol { host: name, theirs, version });
            }
            Some(_) => return Err(handle.out_of_turn("its start")),
            None => return Err(handle.failed(ChannelError::Silent(READY_LIMIT))),
        }
        Ok(handle)
    }

    /// From now on what this host does ends with an error when the other one is lost.
    pub(super) fn needs(&mut self, other: Arc<OnceLock<String>>) {
        self.needed = Some(other);
    }

    /// Gives an order and waits for the answer.
    pub fn ask<O: Order>(&mut self, order: &O) -> Result<O::Answer, LabError> {
        let begun = self.begin(order)?;
        self.soon(begun).map(|answered| answered.answer)
    }

    /// Gives an order without waiting for its answer.
    pub fn begin<O: Order>(&mut self, order: &O) -> Result<Begun<O>, LabError> {
        self.channel.order(order).map_err(|error| self.failed(error))?;
        Ok(Begun(PhantomData))
    }

    /// Waits for the answer to an order; on a signal tells the host to stop with what it has.
    ///
    /// Errors: `Interrupted` if the host does not answer soon after a signal; `Refused` if the other host is lost.
    pub fn wait<O: Order>(
        &mut self,
        begun: Begun<O>,
        interrupt: &Interrupt,
        progress: &mut dyn FnMut(Done),
    ) -> Result<Answered<O::Answer>, LabError> {
        let mut stopped: Option<Instant> = None;
        self.collect(begun, progress, LOOK_EVERY, &mut |handle| {
            handle.has_what_it_needs()?;
            match stopped {
                Some(at) if at.elapsed() > STOP_LIMIT => return Err(LabError::Interrupted),
                None if interrupt.signal().is_some() => {
                    stopped = Some(Instant::now());
                    handle.send_stop()?;
                }
                _ => {}
            }
            Ok(())
        })
    }

    /// Starts a service, and waits until it has begun.
    pub fn start<O: Service>(&mut self, order: &O) -> Result<(O::Started, Begun<O>), LabError> {
        let begun = self.begin(order)?;
        match self.receive::<IgnoredAny, O::Started>(ANSWER_LIMIT)? {
            Some(Reply::Started(started)) => Ok((started, begun)),
            Some(_) => Err(self.out_of_turn(O::NAME)),
            None => Err(self.failed(ChannelError::Silent(ANSWER_LIMIT))),
        }
    }

    /// Ends a service, and waits for its answer.
    pub fn stop<O: Service>(&mut self, begun: Begun<O>) -> Result<Answered<O::Answer>, LabError> {
        self.send_stop()?;
        self.soon(begun)
    }

    /// Ends the channel, and with it the host.
    pub(super) fn close(&self) {
        self.channel.close();
    }

    fn send_stop(&mut self) -> Result<(), LabError> {
        self.channel.send(&Request::<()>::Stop).map_err(|error| self.failed(error))
    }

    /// Waits for an answer that is due within [`ANSWER_LIMIT`].
    fn soon<O: Order>(&mut self, begun: Begun<O>) -> Result<Answered<O::Answer>, LabError> {
        let since = Instant::now();
        self.collect(begun, &mut |_| {}, LOOK_EVERY, &mut |handle| {
            handle.has_what_it_needs()?;
            if since.elapsed() < ANSWER_LIMIT {
                return Ok(());
            }
            Err(handle.failed(ChannelError::Silent(ANSWER_LIMIT)))
        })
    }

    /// Waits for the answer, and collects what comes before it. Calls `silent` whenever nothing has
    /// come for a time.
    fn collect<O: Order>(
        &mut self,
        _: Begun<O>,
        progress: &mut dyn FnMut(Done),
        time: Duration,
        silent: &mut dyn FnMut(&mut Self) -> Result<(), LabError>,
    ) -> Result<Answered<O::Answer>, LabError> {
        let mut rows = Vec::new();
        let mut histograms = Vec::new();
        loop {
            match self.receive::<O::Answer, IgnoredAny>(time)? {
                None => silent(self)?,
                Some(Reply::Progress(done)) => progress(done),
                Some(Reply::Rows(part)) => rows.push(part),
                Some(Reply::Histogram { name, histogram }) => histograms.push((name, *histogram)),
                Some(Reply::Answer(answer)) => return Ok(Answered { answer, rows, histograms }),
                Some(Reply::Ready(_) | Reply::Failed(_) | Reply::Started(_)) => {
                    return Err(self.out_of_turn(O::NAME));
                }
            }
        }
    }

    /// The next message, if one comes in time.
    ///
    /// Errors: `Refused` if the host cannot carry out its order.
    fn receive<A: DeserializeOwned, S: DeserializeOwned>(
        &mut self,
        limit: Duration,
    ) -> Result<Option<Reply<A, S>>, LabError> {
        match self.channel.receive(Some(limit)) {
            Ok(Reply::Failed(sentence)) => Err(LabError::Refused(sentence)),
            Ok(reply) => Ok(Some(reply)),
            Err(ChannelError::Silent(_)) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Errors: the other host is lost.
    fn has_what_it_needs(&self) -> Result<(), LabError> {
        match self.needed.as_ref().and_then(|needed| needed.get()) {
            Some(why) => Err(LabError::Refused(why.clone())),
            None => Ok(()),
        }
    }

    fn failed(&self, error: ChannelError) -> LabError {
        let why = self.lost.as_ref().and_then(|lost| lost.get());
        match (error, why) {
            (ChannelError::Closed, Some(why)) => LabError::Refused(why.clone()),
            (ChannelError::Closed, None) => LabError::Lost { host: self.name },
            (error, _) => LabError::Channel { host: self.name, error },
        }
    }

    /// A message that does not belong to the order.
    fn out_of_turn(&self, name: &str) -> LabError {
        LabError::Refused(format!("the {} answered out of turn to {name}", self.name))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use serde_json::{Value, json};

    use super::*;
    use crate::messages::{Greet, ReadSysctls, Settle};

    /// What a handle gives to a host that sends these messages, whatever it is asked.
    fn spoken(messages: &[Value]) -> (Result<Handle, LabError>, Channel) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut host = Channel::new(theirs);
        for message in messages {
            host.send(message).unwrap();
        }
        (Handle::new(Channel::new(ours), "client host"), host)
    }

    fn ready() -> Value {
        serde_json::to_value(Reply::<()>::Ready(Ready::new(Some(1), false))).unwrap()
    }

    #[test]
    fn a_host_of_another_protocol_is_refused_with_both_versions() {
        // What a later protocol adds is not read.
        let theirs = PROTOCOL + 1;
        let ready = json!({ "ready": { "protocol": theirs, "version": "9.9.9", "pinned": [] } });
        let error = spoken(&[ready]).0.unwrap_err().to_string();
        assert_eq!(
            error,
            format!(
                "the client host speaks protocol {theirs} (tcptoll 9.9.9), this program protocol \
                 {PROTOCOL} (tcptoll {}): use the same version of tcptoll on both",
                env!("CARGO_PKG_VERSION")
            )
        );
    }

    #[test]
    fn a_host_that_cannot_be_made_sends_a_sentence_first() {
        let error = spoken(&[json!({ "failed": "no namespaces" })]).0.unwrap_err();
        assert!(matches!(error, LabError::Refused(sentence) if sentence == "no namespaces"));
    }

    #[test]
    fn an_order_has_its_own_answer_and_what_came_before() {
        let (handle, mut host) = spoken(&[
            ready(),
            json!({ "progress": { "done": 7 } }),
            json!({ "rows": { "Server": [] } }),
            json!({ "answer": [["net.core.somaxconn", "128"]] }),
        ]);
        let mut handle = handle.unwrap();
        assert_eq!(handle.ready.pinned_cpu, Some(1));
        let begun = handle.begin(&ReadSysctls(vec!["net.core.somaxconn".to_owned()])).unwrap();
        let mut done = 0;
        let interrupt = Interrupt::new();
        let answered = handle.wait(begun, &interrupt, &mut |now| done = now.done).unwrap();
        assert_eq!((done, answered.rows.len()), (7, 1));
        assert_eq!(answered.answer, [("net.core.somaxconn".to_owned(), "128".to_owned())]);
        let request: Value = host.receive(None).unwrap();
        let body = json!(["net.core.somaxconn"]);
        assert_eq!(request, json!({ "order": { "name": "read-sysctls", "body": body } }));
    }

    #[test]
    fn the_answer_of_another_order_is_an_error() {
        let (handle, _host) = spoken(&[ready(), json!({ "answer": "many" })]);
        let error = handle.unwrap().ask(&Settle { limit_ns: 1 }).unwrap_err();
        assert!(matches!(error, LabError::Channel { .. }), "{error}");
    }

    #[test]
    fn a_service_reports_that_it_has_begun_and_answers_when_stopped() {
        let (handle, mut host) = spoken(&[
            ready(),
            json!({ "started": "10.0.0.1:80" }),
            json!({ "rows": { "Server": [] } }),
            json!({ "answer": { "accepted": 3, "errors": {}, "cpu_us": [1, 2] } }),
        ]);
        let mut handle = handle.unwrap();
        let greet = Greet {
            at: "10.0.0.1:0".parse().unwrap(),
            backlog: 1,
            accept_delay_ns: 0,
            speak: true,
            fast_open: false,
            trace_limit: 0,
            further: 0,
        };
        let (at, running) = handle.start(&greet).unwrap();
        assert_eq!(at.all(), ["10.0.0.1:80".parse().unwrap()]);
        let answered = handle.stop(running).unwrap();
        assert_eq!((answered.answer.accepted, answered.rows.len()), (3, 1));
        let _: Value = host.receive(None).unwrap();
        assert_eq!(host.receive::<Value>(None).unwrap(), json!("stop"));
    }

    #[test]
    fn a_signal_stops_the_host_and_its_answer_is_kept() {
        let (handle, mut host) = spoken(&[ready()]);
        let mut handle = handle.unwrap();
        let interrupt = Interrupt::new();
        interrupt.flag().store(2, std::sync::atomic::Ordering::SeqCst);
        let begun = handle.begin(&Settle { limit_ns: 1 }).unwrap();
        let answering = std::thread::spawn(move || {
            let _: Value = host.receive(None).unwrap();
            let stop: Value = host.receive(None).unwrap();
            host.send(&json!({ "answer": null })).unwrap();
            (stop, host)
        });
        handle.wait(begun, &interrupt, &mut |_| {}).unwrap();
        assert_eq!(answering.join().unwrap().0, json!("stop"));
    }

    #[test]
    fn a_host_that_ends_is_lost() {
        let (handle, host) = spoken(&[ready()]);
        drop(host);
        let error = handle.unwrap().ask(&Settle { limit_ns: 1 }).unwrap_err();
        assert_eq!(error.to_string(), "the client host ended unexpectedly");
    }
}
