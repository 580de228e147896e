//! How a host carries out orders: a table of handlers by the orders' names, and what a handler sends
//! before its answer.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;
use tcptoll_core::stats::Histogram;

use super::{Channel, ChannelError};
use crate::messages::{Done, Order, Reply, Request, Rows, Service};

/// Most rows in one message, so that it stays below [`MESSAGE_MAX`](super::MESSAGE_MAX).
const ROWS_MAX: usize = 150;

/// Why an order is not carried out: a sentence for the user.
#[derive(Debug)]
pub struct Refusal(pub String);

impl<E: std::error::Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Carries out an order that came as JSON, and answers it.
type Handler<H> = Box<dyn Fn(&mut H, Value, &mut Channel) -> Result<(), ChannelError>>;

/// The orders that a kind of host `H` carries out.
pub struct Orders<H> {
    /// `host`, `link`: who refuses an order that is not in the table.
    kind: &'static str,
    handlers: BTreeMap<&'static str, Handler<H>>,
}

impl<H: 'static> Orders<H> {
    /// An empty table of one kind of host.
    pub fn new(kind: &'static str) -> Self {
        Self { kind, handlers: BTreeMap::new() }
    }

    /// Adds an order with its handler. The handler may send what belongs to the answer and comes
    /// before it.
    #[must_use]
    pub fn on<O: Order>(
        mut self,
        handler: impl Fn(&mut H, O, &mut Channel) -> Result<O::Answer, Refusal> + 'static,
    ) -> Self {
        let handler = move |host: &mut H, body: Value, channel: &mut Channel| {
            let answered = serde_json::from_value(body)
                .map_err(Refusal::from)
                .and_then(|order| handler(host, order, channel));
            match answered {
                Ok(answer) => channel.answer::<O>(&answer),
                Err(Refusal(sentence)) => channel.refuse(sentence),
            }
        };
        let other = self.handlers.insert(O::NAME, Box::new(handler));
        debug_assert!(other.is_none(), "two orders are called {}", O::NAME);
        self
    }

    /// Whether an order of this name is in the table.
    #[cfg(test)]
    pub fn knows(&self, name: &str) -> bool {
        self.handlers.contains_key(name)
    }

    /// Waits for the next order, carries it out and answers it.
    ///
    /// Errors: the parent is gone, or does not speak as it should.
    pub fn carry_out_next(&self, host: &mut H, channel: &mut Channel) -> Result<(), ChannelError> {
        match channel.receive(None)? {
            Request::Order { name, body } => match self.handlers.get(&*name) {
                Some(handler) => handler(host, body, channel),
                None => channel.refuse(format!("the {} knows no order {name}", self.kind)),
            },
            // The order to stop has ended meanwhile.
            Request::Stop => Ok(()),
        }
    }
}

impl Channel {
    /// Sends an order.
    pub fn order<O: Order>(&mut self, order: &O) -> Result<(), ChannelError> {
        self.send(&Request::Order { name: Cow::Borrowed(O::NAME), body: order })
    }

    /// Sends the answer to an order.
    pub fn answer<O: Order>(&mut self, answer: &O::Answer) -> Result<(), ChannelError> {
        match self.send(&Reply::<_, ()>::Answer(answer)) {
            Err(error @ (ChannelError::TooLong(_) | ChannelError::Unreadable(_))) => {
                self.refuse(error.to_string())
            }
            sent => sent,
        }
    }

    /// Sends a sentence for the user instead of an answer.
    pub fn refuse(&mut self, sentence: String) -> Result<(), ChannelError> {
        self.send(&Reply::<()>::Failed(sentence))
    }

    /// Reports that a service has begun.
    pub fn started<O: Service>(&mut self, started: &O::Started) -> Result<(), ChannelError> {
        self.send(&Reply::<(), _>::Started(started))
    }

    /// Reports how many operations of a load have finished.
    pub fn progress(&mut self, done: impl Into<Done>) -> Result<(), ChannelError> {
        self.send(&Reply::<()>::Progress(done.into()))
    }

    /// Sends the rows of a trace, in several messages if they are many.
    pub fn rows<R: Clone>(
        &mut self,
        rows: &[R],
        part_of: fn(Vec<R>) -> Rows,
    ) -> Result<(), ChannelError> {
        rows.chunks(ROWS_MAX)
            .try_for_each(|part| self.send(&Reply::<()>::Rows(part_of(part.to_vec()))))
    }

    /// Sends a distribution that belongs to the answer.
    pub fn histogram(&mut self, name: &str, histogram: Histogram) -> Result<(), ChannelError> {
        let (name, histogram) = (name.to_owned(), Box::new(histogram));
        self.send(&Reply::<()>::Histogram { name, histogram })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use serde::{Deserialize, Serialize};

    use super::*;

    /// Add a number to the host's.
    #[derive(Serialize, Deserialize)]
    struct Add(u64);

    impl Order for Add {
        type Answer = u64;
        const NAME: &'static str = "add";
    }

    /// Report more than fits a message.
    #[derive(Serialize, Deserialize)]
    struct Fill;

    impl Order for Fill {
        type Answer = String;
        const NAME: &'static str = "fill";
    }

    fn orders() -> Orders<u64> {
        Orders::new("adder")
            .on(|sum: &mut u64, Add(number), channel| {
                channel.progress(number)?;
                *sum = sum.checked_add(number).ok_or_else(|| Refusal("too much".to_owned()))?;
                Ok(*sum)
            })
            .on(|_, Fill, _| Ok("x".repeat(super::super::MESSAGE_MAX)))
    }

    /// Gives one request to an adder that has 1, and its replies as JSON.
    fn replies(request: &Value) -> Vec<String> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (mut parent, mut host) = (Channel::new(ours), Channel::new(theirs));
        parent.send(request).unwrap();
        orders().carry_out_next(&mut 1, &mut host).unwrap();
        drop(host);
        std::iter::from_fn(|| parent.receive::<Value>(None).ok().map(|reply| reply.to_string()))
            .collect()
    }

    fn order(name: &str, body: u64) -> Value {
        serde_json::json!({ "order": { "name": name, "body": body } })
    }

    #[test]
    fn an_order_finds_its_handler_by_its_name_and_is_answered() {
        let expected = [r#"{"progress":{"done":41}}"#, r#"{"answer":42}"#];
        assert_eq!(replies(&order("add", 41)), expected);
    }

    #[test]
    fn an_order_is_sent_with_its_name_and_body() {
        let request = Request::Order { name: Cow::Borrowed(Add::NAME), body: Add(41) };
        assert_eq!(serde_json::to_value(&request).unwrap(), order("add", 41));
    }

    #[test]
    fn a_refusal_is_a_sentence() {
        let expected =
            [r#"{"progress":{"done":18446744073709551615}}"#, r#"{"failed":"too much"}"#];
        assert_eq!(replies(&order("add", u64::MAX)), expected);
    }

    #[test]
    fn an_order_that_is_not_in_the_table_is_refused_by_name() {
        let expected = [r#"{"failed":"the adder knows no order subtract"}"#];
        assert_eq!(replies(&order("subtract", 1)), expected);
    }

    #[test]
    fn a_body_of_another_form_is_refused() {
        let request = serde_json::json!({ "order": { "name": "add", "body": "much" } });
        let replies = replies(&request);
        assert!(replies.len() == 1 && replies[0].contains("invalid type"), "{replies:?}");
    }

    #[test]
    fn stop_has_no_effect_where_nothing_runs() {
        assert!(replies(&Value::from("stop")).is_empty());
    }

    #[test]
    fn an_answer_too_long_for_a_message_is_a_refusal() {
        let request = serde_json::json!({ "order": { "name": "fill", "body": null } });
        let expected = [r#"{"failed":"a message of 65549 bytes, at most 65536 are allowed"}"#];
        assert_eq!(replies(&request), expected);
    }
}
