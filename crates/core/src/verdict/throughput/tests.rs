use super::*;
use crate::record::{Buffer, SocketEnd, Transfer, Way};

/// Payload of 1 Gbit/s with time stamps, bytes/s.
const LINK: f64 = 117.7e6;

/// Bulk data to the server on a link of 1 Gbit/s at 10 ms, with windows that limit nothing, both CPUs idle.
fn transfer(goodput: f64) -> Transfer {
    let sender = Sender {
        samples: 100,
        receive_window_share: Some(0.0),
        send_buffer_share: Some(0.0),
        peer_window_bytes: Some(6e6),
        congestion_window_bytes: Some(5e6),
        in_flight_bytes: Some((goodput * 0.01).min(1e6)),
        in_flight_max_bytes: Some(5e6),
        segment_bytes: Some(1_448.0),
        min_rtt_us: Some(10_030.0),
        rtt_us: Some(10_200.0),
        ..Sender::default()
    };
    let way = Way {
        sent_bytes: 2 * goodput as u64,
        send_calls: (2.0 * goodput / 131_072.0).ceil() as u64,
        window_s: 2.0,
        window_bytes: 2 * goodput as u64,
        sender,
        ..Way::default()
    };
    Transfer {
        connections: 1,
        message_bytes: 131_072,
        nagle: true,
        client: SocketEnd { cpu_share: 0.2, ..SocketEnd::default() },
        server: SocketEnd { cpu_share: 0.2, ..SocketEnd::default() },
        link_bytes_per_s: Some(LINK),
        quiet_rtt_us: Some(10_050.0),
        up: Some(way),
        ..Transfer::default()
    }
}

fn with(goodput: f64, change: impl Fn(&mut Sender)) -> Transfer {
    let mut transfer = transfer(goodput);
    change(&mut transfer.up.as_mut().unwrap().sender);
    transfer
}

fn limit(transfer: &Transfer) -> Option<Limited> {
    let (direction, way) = Direction::used_in(transfer).next()?;
    limited_by(transfer, direction, way)
}

fn by(transfer: &Transfer) -> Option<Limit> {
    limit(transfer).map(|limited| limited.by)
}

/// A receive window, with the congestion window and the flight that come with it.
fn window(bytes: f64, goodput: f64, share: f64) -> Transfer {
    with(goodput, |sender| {
        sender.peer_window_bytes = Some(bytes);
        sender.in_flight_max_bytes = Some(bytes * 0.98);
        // Between the arithmetic and a window that is full all the time.
        sender.in_flight_bytes = Some((goodput * 0.01).min(bytes * 0.7));
        sender.receive_window_share = Some(share);
    })
}

#[test]
fn a_receive_window_spent_in_each_round_trip_is_the_limit() {
    // 18.8 kB in 10.05 ms are 1.87 MB/s.
    let limited = limit(&window(18_800.0, 1.86e6, 0.99)).unwrap();
    assert_eq!((limited.by, limited.or), (Limit::ReceiveWindow, None));
    assert!((limited.bound_bytes_per_s.unwrap() - 18_800.0 / 0.010_05).abs() < 1.0);
    assert_eq!(limited.rtt_us, Some(10_050.0));
    // Nearly: the sender carried two thirds of what the window allows, so it waited for something else.
    assert_eq!(by(&window(18_800.0, 1.25e6, 0.99)), None);
    // Nor is a bound one that was exceeded by half.
    assert_eq!(by(&window(18_800.0, 2.8e6, 0.99)), None);
}

#[test]
fn the_share_of_time_that_the_kernel_counts_decides_nothing() {
    // BBR counts a third of the time where nothing but the window limits it.
    assert_eq!(by(&window(18_800.0, 1.86e6, 0.30)), Some(Limit::ReceiveWindow));
    assert_eq!(by(&window(18_800.0, 1.86e6, 0.47)), Some(Limit::ReceiveWindow));
    // CUBIC fills queue and window on a full link.
    let full = window(1.38e6, 116.9e6, 0.98);
    assert_eq!(limit(&full).map(|one| (one.by, one.or)), Some((Limit::LinkRate, None)));
}

#[test]
fn at_the_crossover_either_is_named() {
    let product = LINK * 0.010_05;
    for factor in [0.97, 1.0, 1.03] {
        let limited = limit(&window(product * factor, LINK * f64::min(0.97, factor), 0.8)).unwrap();
        assert!(limited.is(Limit::LinkRate) && limited.is(Limit::ReceiveWindow), "{factor}");
    }
    let below = limit(&window(product * 0.9, LINK * 0.89, 0.9)).unwrap();
    assert_eq!((below.by, below.or), (Limit::ReceiveWindow, None));
    let above = limit(&window(product * 1.1, LINK * 0.99, 0.9)).unwrap();
    assert_eq!((above.by, above.or), (Limit::LinkRate, None));
}

#[test]
fn a_send_buffer_limits_where_the_sender_waited_for_it() {
    let buffered = |share, in_flight| {
        with(2.5e6, |sender| {
            sender.send_buffer_share = Some(share);
            sender.in_flight_max_bytes = Some(in_flight);
        })
    };
    assert_eq!(by(&buffered(0.95, 25_000.0)), Some(Limit::SendBuffer));
    assert_eq!(by(&buffered(0.02, 25_000.0)), None, "nobody waited for it");
    // As much in flight as the receive window allows: that is the limit.
    let mut both = buffered(0.3, 25_000.0);
    both.up.as_mut().unwrap().sender.peer_window_bytes = Some(20_000.0);
    both.up.as_mut().unwrap().window_bytes = 2 * 1_990_000;
    assert_eq!(by(&both), Some(Limit::ReceiveWindow));
}

#[test]
fn a_send_buffer_that_was_set_is_named_where_nothing_else_is_left() {
    // 64K at 10 ms: 97.5 Mbit/s, 124 kB in flight of 131 kB, with peaks above it.
    let mut set = with(12.2e6, |sender| sender.in_flight_max_bytes = Some(860e3));
    set.client.send_buffer = Buffer::new(Some(65_536), 131_072);
    assert_eq!(by(&set), Some(Limit::SendBuffer));
    // A tuned buffer is not named, nor one of another size, nor where a window is as full.
    let mut tuned = set.clone();
    tuned.client.send_buffer = Buffer::new(None, 131_072);
    let mut large = set.clone();
    large.client.send_buffer = Buffer::new(Some(1 << 20), 2 << 20);
    let mut windowed = set.clone();
    windowed.up.as_mut().unwrap().sender.congestion_window_bytes = Some(125e3);
    assert_eq!([&tuned, &large].map(by), [None, None]);
    assert_ne!(by(&windowed), Some(Limit::SendBuffer));
    let mut slow = set.clone();
    slow.rate_bytes_per_s = Some(50e6);
    assert_eq!(by(&slow), None);
}

#[test]
fn a_send_buffer_that_the_kernel_does_not_count_shows_in_a_constant_flight() {
    // As measured: 1K asked for at 1 ms, and one super-packet of 65 kB in flight.
    let flight = |median| {
        let mut transfer = with(44e6, |sender| {
            sender.application_share = Some(1.0);
            sender.in_flight_bytes = Some(median);
            sender.in_flight_max_bytes = Some(65_912.0);
            sender.rtt_us = Some(1_340.0);
        });
        transfer.quiet_rtt_us = Some(990.0);
        transfer.link_bytes_per_s = None;
        transfer
    };
    assert_eq!(by(&flight(65_160.0)), Some(Limit::SendBuffer));
    assert_eq!(by(&flight(20_000.0)), None, "it varies: the program gave too little");
    let mut rated = flight(65_160.0);
    rated.rate_bytes_per_s = Some(80e6);
    assert_eq!(by(&rated), None, "the program was told to give little");
}

#[test]
fn a_window_that_was_full_most_of_the_time_is_the_limit_below_its_bound() {
    // As measured on a busy machine: 80.5 kB at a median of 23.9 ms allow 3.36 MB/s, 2.54 came.
    let busy = |median| {
        let mut transfer = window(80_480.0, 2.54e6, 0.2);
        let sender = &mut transfer.up.as_mut().unwrap().sender;
        sender.in_flight_bytes = Some(median);
        sender.rtt_us = Some(23_900.0);
        transfer
    };
    assert_eq!(by(&busy(63_700.0)), Some(Limit::ReceiveWindow));
    assert_eq!(by(&busy(40_000.0)), None);
}

#[test]
fn a_window_without_room_for_a_segment_is_the_limit_whatever_the_round_trips_were() {
    // As measured on a busy machine: 4K asked for on a LAN of 100 Mbit/s, 2,896 bytes of window.
    let lan = |in_flight, window| {
        let mut transfer = with(4.82e6, |sender| {
            sender.peer_window_bytes = Some(window);
            sender.congestion_window_bytes = Some(62_264.0);
            sender.in_flight_bytes = Some(in_flight);
            sender.in_flight_max_bytes = Some(2_896.0);
            sender.receive_window_share = Some(0.48);
            sender.rtt_us = Some(251.0);
        });
        transfer.quiet_rtt_us = Some(48.0);
        transfer.link_bytes_per_s = Some(11.8e6);
        transfer
    };
    let limited = limit(&lan(2_896.0, 2_896.0)).unwrap();
    assert_eq!((limited.by, limited.bound_bytes_per_s), (Limit::ReceiveWindow, None));
    assert_eq!(by(&lan(1_900.0, 2_896.0)), Some(Limit::ReceiveWindow), "no room for 1,448 bytes");
    assert_eq!(by(&lan(1_300.0, 2_896.0)), None);
    assert_eq!(by(&lan(2_896.0, 40_000.0)), None, "nothing filled this window");
}

#[test]
fn a_congestion_window_limits_with_losses_and_without() {
    let lossy = |goodput, again| {
        with(goodput, |sender| {
            sender.congestion_window_bytes = Some(60_000.0);
            sender.in_flight_max_bytes = Some(90_000.0);
            sender.retransmitted_segments = again;
        })
    };
    assert_eq!(by(&lossy(5.6e6, 200)), Some(Limit::Congestion));
    assert_eq!(by(&lossy(5.6e6, 0)), Some(Limit::Congestion));
    assert_eq!(by(&lossy(3e6, 0)), None);
}

#[test]
fn of_two_windows_alike_the_kernels_share_says_which() {
    let alike = |share| {
        with(1.86e6, |sender| {
            sender.peer_window_bytes = Some(18_800.0);
            sender.congestion_window_bytes = Some(18_824.0);
            sender.in_flight_max_bytes = Some(18_800.0);
            sender.receive_window_share = Some(share);
        })
    };
    let limits_at = |share| limit(&alike(share)).map(|limited| (limited.by, limited.or));
    assert_eq!(limits_at(0.4), Some((Limit::ReceiveWindow, None)));
    assert_eq!(limits_at(0.01), Some((Limit::ReceiveWindow, Some(Limit::Congestion))));
}

#[test]
fn a_full_link_is_full_whatever_the_windows_are() {
    assert_eq!(by(&transfer(LINK * 0.99)), Some(Limit::LinkRate));
    assert_eq!(by(&transfer(LINK * 0.8)), None, "four fifths of a link are not full");
}

#[test]
fn a_program_that_sends_at_a_rate_is_limited_by_it() {
    let mut slow = transfer(12.4e6);
    slow.rate_bytes_per_s = Some(12.5e6);
    assert_eq!(by(&slow), Some(Limit::ProgramRate));
    slow.rate_bytes_per_s = Some(50e6);
    assert_eq!(by(&slow), None);
}

/// Without a distance and a rate.
fn direct(client: f64, server: f64) -> Transfer {
    let mut transfer = with(2e9, |sender| {
        sender.min_rtt_us = Some(20.0);
        sender.rtt_us = Some(400.0);
    });
    transfer.quiet_rtt_us = Some(40.0);
    transfer.link_bytes_per_s = None;
    transfer.client.cpu_share = client;
    transfer.server.cpu_share = server;
    transfer
}

#[test]
fn without_a_distance_a_whole_cpu_is_the_limit() {
    assert_eq!(by(&direct(0.97, 0.6)), Some(Limit::ClientCpu));
    assert_eq!(by(&direct(0.6, 0.97)), Some(Limit::ServerCpu));
    assert_eq!(by(&direct(0.96, 0.97)), Some(Limit::ClientCpu), "the sender's comes first");
    assert_eq!(by(&direct(0.6, 0.6)), None);
}

#[test]
fn data_from_the_server_swaps_the_ends() {
    let mut down = direct(0.5, 0.98);
    down.down = down.up.take();
    assert_eq!(by(&down), Some(Limit::ServerCpu));
    down.message_bytes = 64;
    down.down.as_mut().unwrap().send_calls = u64::MAX >> 20;
    assert_eq!(by(&down), Some(Limit::MessageOverhead));
    let mut both = direct(0.97, 0.97);
    both.down.clone_from(&both.up);
    let each: Vec<Option<Limit>> = Direction::used_in(&both)
        .map(|(direction, way)| limited_by(&both, direction, way).map(|one| one.by))
        .collect();
    assert_eq!(each, [Some(Limit::ClientCpu), Some(Limit::ServerCpu)]);
}

#[test]
fn small_messages_cost_calls_and_short_calls_of_large_ones_do_not() {
    let mut small = direct(0.99, 0.4);
    small.message_bytes = 64;
    let way = small.up.as_mut().unwrap();
    way.send_calls = way.sent_bytes / 64;
    assert_eq!(by(&small), Some(Limit::MessageOverhead));
    // A small send buffer cuts a large message into short calls.
    small.message_bytes = 131_072;
    assert_eq!(by(&small), Some(Limit::ClientCpu));
    // Messages that the program collects make long calls.
    small.message_bytes = 64;
    let way = small.up.as_mut().unwrap();
    way.send_calls = way.sent_bytes / 16_384;
    assert_eq!(by(&small), Some(Limit::ClientCpu));
}

#[test]
fn a_window_on_a_lan_is_measured_against_the_round_trip_under_load() {
    // 18.8 kB, 30 µs: 627 MB/s by the quiet link's round trip; the hosts take 220 µs.
    let mut lan = with(84e6, |sender| {
        sender.peer_window_bytes = Some(18_800.0);
        sender.in_flight_max_bytes = Some(18_800.0);
        sender.rtt_us = Some(220.0);
        sender.min_rtt_us = Some(25.0);
    });
    lan.quiet_rtt_us = Some(30.0);
    let limited = limit(&lan).unwrap();
    assert_eq!((limited.by, limited.rtt_us), (Limit::ReceiveWindow, Some(220.0)));
    // Nothing was ever in flight that filled it.
    lan.up.as_mut().unwrap().sender.in_flight_max_bytes = Some(9_000.0);
    assert_eq!(by(&lan), None);
}

#[test]
fn a_delayed_acknowledgment_shows_in_the_round_trip_of_little_in_flight() {
    let delayed = |nagle, in_flight, rtt| {
        let mut transfer = with(35e3, |sender| {
            sender.in_flight_max_bytes = Some(in_flight);
            sender.rtt_us = Some(rtt);
        });
        transfer.nagle = nagle;
        transfer
    };
    assert_eq!(by(&delayed(true, 1_448.0, 51_000.0)), Some(Limit::NagleDelayedAck));
    assert_eq!(by(&delayed(false, 1_448.0, 51_000.0)), None, "Nagle's algorithm is off");
    assert_eq!(by(&delayed(true, 14_480.0, 51_000.0)), None, "ten segments are acknowledged");
    assert_eq!(by(&delayed(true, 1_448.0, 12_000.0)), None);
    assert_eq!(by(&delayed(true, 1_448.0, 900_000.0)), None, "no timer of an ACK is that long");
}

#[test]
fn several_connections_have_a_window_each() {
    let mut eight = window(18_800.0, 8.0 * 1.86e6, 0.9);
    eight.connections = 8;
    assert_eq!(by(&eight), Some(Limit::ReceiveWindow));
    eight.connections = 1;
    assert_eq!(by(&eight), None);
}

#[test]
fn figures_that_were_not_recorded_are_no_limits() {
    let mut bare = transfer(LINK * 0.99);
    bare.up.as_mut().unwrap().sender = Sender::default();
    bare.quiet_rtt_us = None;
    assert_eq!(by(&bare), Some(Limit::LinkRate));
    bare.link_bytes_per_s = None;
    assert_eq!(by(&bare), None);
    assert!(bounds(&bare, bare.up.as_ref().unwrap()).is_empty());
    assert_eq!(bandwidth_delay_product_bytes(&bare, bare.up.as_ref().unwrap()), None);
    bare.up.as_mut().unwrap().window_s = 0.0;
    assert_eq!(by(&bare), None);
    assert_eq!(limit(&Transfer::default()), None);
}

#[test]
fn bounds_are_sorted_and_the_product_is_rate_times_round_trip() {
    let transfer = window(18_800.0, 1.86e6, 0.9);
    let way = transfer.up.as_ref().unwrap();
    let names: Vec<Limit> = bounds(&transfer, way).into_iter().map(|bound| bound.limit).collect();
    assert_eq!(names, [Limit::ReceiveWindow, Limit::LinkRate, Limit::Congestion]);
    let product = bandwidth_delay_product_bytes(&transfer, way).unwrap();
    assert!((product - 117.7e6 * 0.010_05).abs() < 1.0);
}
