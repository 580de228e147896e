use super::*;
use crate::page::graph::{Initiator, Resource};
use crate::page::resource::Kind;
use crate::page::rules;

const RTT: u64 = 15_000;

/// A document and style sheets, each of a segment.
fn page(sheets: u32) -> Graph {
    let resource = |number: u32| Resource {
        url: format!("http://page.test/{number}.css"),
        kind: if number == 0 { Kind::Document } else { Kind::Stylesheet },
        priority: rules::priority(Kind::Stylesheet),
        blocking: true,
        initiator: (number > 0).then_some(Initiator { resource: 0, at_byte: None, delay_us: 0 }),
        status: 200,
        body_bytes: 1_000,
        server_us: 0,
    };
    Graph { resources: (0..=sheets).map(resource).collect() }
}

fn network(keeps: bool) -> Network {
    Network {
        rtt_us: RTT,
        rate_bytes_per_s: None,
        congestion: "cubic".to_owned(),
        tls_round_trips: None,
        connection_us: 0,
        tls_us: 0,
        head_bytes: 300,
        keeps,
        requests_max: None,
        http2: false,
    }
}

fn run(graph: &Graph, config: &Config, network: &Network) -> (u64, usize) {
    let waterfall = forecast(graph, config, network).unwrap();
    assert_eq!(waterfall.requests.len(), graph.resources.len());
    assert!(waterfall.requests.iter().all(|one| one.error.is_none()), "{waterfall:?}");
    (waterfall.everything_us.unwrap() / RTT, waterfall.connections.len())
}

#[test]
fn twenty_style_sheets_take_as_many_round_trips_as_worked_out_by_hand() {
    let config = Config::default();
    // Document: handshake and request. Then the open connection carries 1 while five are opened, and
    // each round of six takes one round trip: of 20, the first connection has carried one when the other five
    // are open. 1, then 6, 6, 6, then 1 more.
    assert_eq!(run(&page(20), &config, &network(true)), (7, 6));
    // Each file has a handshake and a request. The document, then 6, 6, 6 and 2.
    assert_eq!(run(&page(20), &config, &network(false)), (10, 21));
    assert_eq!(run(&page(0), &config, &network(true)), (2, 1));
}

#[test]
fn seven_connections_carry_more_at_a_time() {
    let config = Config { connections_per_origin: 7, ..Config::default() };
    assert_eq!(run(&page(20), &config, &network(false)), (8, 21));
}

#[test]
fn http2_asks_for_everything_at_once_on_one_connection() {
    let config = Config { protocol: Protocol::Http2, ..Config::default() };
    let mut graph = page(20);
    for resource in &mut graph.resources {
        resource.url = resource.url.replace("http:", "https:");
    }
    let network = Network { tls_round_trips: Some(1), http2: true, ..network(true) };
    // 20 responses of a segment each: 11 segments are in the window after the document.
    assert_eq!(run(&graph, &config, &network), (5, 1));
}

#[test]
fn pipelining_fills_the_connections_that_are_known_to_persist() {
    let config = Config { protocol: Protocol::Pipelined, ..Config::default() };
    let (rounds, connections) = run(&page(20), &config, &network(true));
    assert!(rounds <= 5, "{rounds}");
    assert!(connections <= 6, "{connections}");
}

#[test]
fn a_limit_of_requests_per_connection_costs_connections() {
    let network = Network { requests_max: Some(2), ..network(true) };
    let (_, connections) = run(&page(20), &Config::default(), &network);
    // 21 responses need 11; two more were opened for requests that a connection before them took.
    assert!((11..=13).contains(&connections), "{connections}");
}

#[test]
fn the_simple_rule_multiplies() {
    assert_eq!(simple_saving_us(21, 7, 20_000), 280_000);
    assert_eq!(simple_saving_us(6, 7, 20_000), 0);
}
