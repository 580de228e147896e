//! What a page waited for: the chain of requests that decided when it was whole.
//!
//! From the request that ended last back to the document: a request that waited for a connection waited
//! for the one whose end made room, any other for the response that named it. TCP handshakes on
//! this chain cost the page their time. Handshakes beside it overlap with other requests and cost
//! nothing.

use super::waterfall::{Request, Waterfall};

/// An end and what it released are seen this far apart at most, µs: one turn of the client.
const APART_US: u64 = 500;

/// The chain and its handshakes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Critical {
    /// Requests by number, the document first.
    pub chain: Vec<u32>,
    /// TCP handshakes of these.
    pub handshakes: u32,
    /// Their time, µs.
    pub handshake_us: u64,
}

/// Finds the chain. None: no request ended.
pub fn critical(waterfall: &Waterfall) -> Option<Critical> {
    let requests = &waterfall.requests;
    let mut at = (0..requests.len()).max_by_key(|&number| requests[number].ended_us())?;
    let mut critical = Critical::default();
    loop {
        let request = &requests[at];
        critical.chain.push(at as u32);
        if request.phases.connect_us > 0 {
            critical.handshakes += 1;
            critical.handshake_us += request.phases.connect_us;
        }
        let before = waited_for(requests, at).or(request.initiator.map(|number| number as usize));
        // Each step goes back in time, so the chain ends. A record may hold anything.
        let earlier = |before: &usize| {
            requests.get(*before).is_some_and(|other| order(other, *before) < order(request, at))
        };
        match before.filter(earlier) {
            Some(before) => at = before,
            None => break,
        }
    }
    critical.chain.reverse();
    Some(critical)
}

/// When a request had its connection; of two at the same time the first that became known.
fn order(request: &Request, number: usize) -> (u64, usize) {
    (request.known_us.saturating_add(request.phases.blocked_us), number)
}

/// The request whose end gave this one a connection. None: it did not wait.
fn waited_for(requests: &[Request], number: usize) -> Option<usize> {
    let request = &requests[number];
    if request.phases.blocked_us <= APART_US {
        return None;
    }
    let (given, _) = order(request, number);
    let ended = |other: &usize| requests[*other].ended_us();
    (0..requests.len())
        .filter(|&other| order(&requests[other], other) < (given, number))
        .filter(|other| ended(other) > request.known_us && ended(other) <= given + APART_US)
        .max_by_key(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::waterfall::Phases;

    fn request(known_us: u64, initiator: Option<u32>, phases: Phases) -> Request {
        Request { initiator, known_us, phases, ..Request::default() }
    }

    #[test]
    fn handshakes_beside_the_chain_are_not_counted() {
        let opened = Phases { connect_us: 15_000, wait_us: 15_000, ..Phases::default() };
        let reused = Phases { wait_us: 15_000, ..Phases::default() };
        let queued = Phases { blocked_us: 30_000, wait_us: 15_000, ..Phases::default() };
        let waterfall = Waterfall {
            requests: vec![
                request(0, None, opened),
                request(30_000, Some(0), reused),
                request(30_000, Some(0), opened),
                // Waits for the one before it.
                request(30_000, Some(0), queued),
            ],
            ..Waterfall::default()
        };
        let found = critical(&waterfall).unwrap();
        assert_eq!(found.chain, [0, 2, 3]);
        assert_eq!((found.handshakes, found.handshake_us), (2, 30_000));
        assert_eq!(critical(&Waterfall::default()), None);
    }

    #[test]
    fn the_chain_of_requests_much_shorter_than_a_turn_still_begins_at_the_document() {
        // One after the other on one connection, 70 µs each.
        let phases = |blocked_us| Phases { blocked_us, wait_us: 70, ..Phases::default() };
        let document = Phases { connect_us: 100, wait_us: 900, ..Phases::default() };
        let mut requests = vec![request(0, None, document)];
        requests.extend((0..100).map(|number| request(1_000, Some(0), phases(number * 70))));
        let found = critical(&Waterfall { requests, ..Waterfall::default() }).unwrap();
        assert_eq!((found.chain[0], found.handshakes), (0, 1));
        assert!(found.chain.len() > 12, "{found:?}");
    }
}
