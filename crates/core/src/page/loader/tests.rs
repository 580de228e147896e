//! What holds of every load, whatever the network does.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::page::resource::Initiator;

fn graph(resources: u32) -> Graph {
    let resource = |number: u32| Resource {
        url: format!("http://page.test/{number}"),
        initiator: (number > 0).then_some(Initiator { resource: 0, at_byte: None, delay_us: 0 }),
        ..Resource::default()
    };
    Graph { resources: (0..resources).map(resource).collect() }
}

/// Drives a load with chosen outcomes; gives the most connections open at the same time.
fn drive(loader: &mut Loader, outcomes: &[u8]) -> (usize, u64) {
    let mut events: BTreeMap<(u64, usize), Action> = BTreeMap::new();
    let (mut open, mut most, mut now, mut step) = (BTreeSet::new(), 0, 0, 0);
    let mut sequence = 0;
    while !loader.is_done() && step < 10_000 {
        for action in loader.actions(now) {
            match action {
                Action::Connect { connection, .. } => _ = open.insert(connection),
                Action::Close { connection } => {
                    open.remove(&connection);
                    continue;
                }
                _ => {}
            }
            sequence += 1;
            events.insert((now + 10, sequence), action);
        }
        most = most.max(open.len());
        let Some(((at, _), action)) = events.pop_first() else { break };
        now = now.max(at);
        let outcome = outcomes[step % outcomes.len()] % 8;
        step += 1;
        match action {
            Action::Connect { connection, .. } if outcome == 7 => {
                open.remove(&connection);
                loader.refused(connection, "refused", now);
            }
            Action::Connect { connection, .. } => {
                loader.resolved(connection, now);
                loader.connected(connection, now);
            }
            Action::Send { connection, .. } if outcome == 6 => {
                open.remove(&connection);
                loader.closed(connection, now);
            }
            Action::Send { request, connection, .. } if open.contains(&connection) => {
                loader.sent(request, now);
                let head = Head { status: 200, keeps: outcome > 2, ..Head::default() };
                loader.head(request, &head, now + 1);
                loader.body(request, b"", 100, now + 2);
                loader.ended(request, now + 3);
                now += 3;
            }
            _ => {}
        }
    }
    (most, now)
}

proptest! {
    #[test]
    fn every_load_ends_within_its_limits_and_its_phases_add_up(
        resources in 1u32..40,
        limit in 1u32..9,
        pipelined in any::<bool>(),
        outcomes in prop::collection::vec(any::<u8>(), 1..50),
    ) {
        let protocol = if pipelined { Protocol::Pipelined } else { Protocol::Http1 };
        let config = Config { connections_per_origin: limit, protocol, ..Config::default() };
        let mut loader = Loader::new(config, Start::Graph(graph(resources))).unwrap();
        let (most, now) = drive(&mut loader, &outcomes);
        prop_assert!(loader.is_done());
        prop_assert!(most <= limit as usize, "{most} connections");
        let ends: Vec<_> = loader.entries.iter().map(|entry| entry.ended_us).collect();
        let waterfall = loader.into_waterfall(None, now);
        let urls: BTreeSet<_> = waterfall.requests.iter().map(|one| &one.url).collect();
        prop_assert_eq!(urls.len(), waterfall.requests.len());
        for (request, end) in waterfall.requests.iter().zip(ends) {
            prop_assert_eq!(Some(request.ended_us()), end);
            prop_assert!(request.error.is_some() || request.status == Some(200));
        }
    }
}

#[test]
fn a_page_that_was_given_up_leaves_nothing_to_the_next_one() {
    let config = Config { connections_per_origin: 1, ..Config::default() };
    let mut loader = Loader::new(config, Start::Graph(graph(3))).unwrap();
    loader.actions(0);
    loader.connected(ConnectionId(0), 10);
    loader.actions(10);
    let first = loader.next_page(Start::Graph(graph(1)), 20).unwrap();
    assert_eq!(first.requests[0].error.as_deref(), Some("unsent"));
    let actions = loader.actions(20);
    assert!(actions.contains(&Action::Close { connection: ConnectionId(0) }), "{actions:?}");
    assert!(matches!(actions[1], Action::Connect { connection: ConnectionId(1), .. }));
}

#[test]
fn a_request_that_meets_one_idle_connection_after_another_as_it_is_closed_is_sent_until_one_is_open()
 {
    let config = Config { connections_per_origin: 2, ..Config::default() };
    let mut loader = Loader::new(config, Start::Graph(graph(3))).unwrap();
    loader.actions(0);
    let head = Head { status: 200, keeps: true, ..Default::default() };
    // The document, then two resources on two connections.
    loader.connected(ConnectionId(0), 10);
    loader.actions(10);
    loader.head(RequestId(0), &head, 20);
    loader.ended(RequestId(0), 30);
    loader.actions(30);
    loader.connected(ConnectionId(1), 40);
    loader.actions(40);
    for request in [1, 2] {
        loader.head(RequestId(request), &head, 50);
        loader.ended(RequestId(request), 60);
    }
    loader.next_page(Start::Graph(graph(1)), 1_000).unwrap();
    loader.actions(1_000);
    loader.closed(ConnectionId(0), 1_010);
    loader.actions(1_010);
    loader.closed(ConnectionId(1), 1_020);
    assert_eq!(loader.repeats(), 2);
    assert!(!loader.has_failed(), "neither attempt was the request's fault");
    assert!(matches!(loader.actions(1_020)[0], Action::Connect { .. }));
}

#[test]
fn a_request_on_an_idle_http2_connection_that_is_closed_is_repeated() {
    let config = Config { protocol: Protocol::Http2, ..Config::default() };
    let mut known = graph(2);
    for resource in &mut known.resources {
        resource.url = resource.url.replace("http:", "https:");
    }
    let mut loader = Loader::new(config, Start::Graph(known)).unwrap();
    loader.actions(0);
    loader.secured(ConnectionId(0), 10, true);
    loader.actions(10);
    loader.head(RequestId(0), &Head { status: 200, keeps: true, ..Default::default() }, 20);
    loader.ended(RequestId(0), 30);
    loader.actions(30);
    loader.closed(ConnectionId(0), 40);
    assert_eq!(loader.repeats(), 1);
    assert!(matches!(loader.actions(40)[0], Action::Connect { .. }));
}
