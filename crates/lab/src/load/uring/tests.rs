use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;

use super::*;

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: server\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Answers `requests` requests on each of `connections` connections, then closes them, one thread
/// each; says how many bytes came after the last.
fn answer(listener: TcpListener, connections: usize, requests: usize) -> thread::JoinHandle<usize> {
    thread::spawn(move || {
        let serve = move |mut stream: TcpStream| {
            let mut request = [0; REQUEST.len()];
            for _ in 0..requests {
                stream.read_exact(&mut request).unwrap();
                assert_eq!(request, REQUEST);
                stream.write_all(RESPONSE).unwrap();
            }
            stream
        };
        let threads: Vec<_> = (0..connections)
            .map(|_| {
                let (stream, _) = listener.accept().unwrap();
                thread::spawn(move || serve(stream).read(&mut [0; 16]).unwrap_or(0))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// A driver, unless rings are forbidden here.
fn driver(target: SocketAddr, slots: u32, batch_ns: u64, stamps: bool) -> Option<Uring> {
    if let Err(error) = tcptoll_kernel::ring::available() {
        eprintln!("SKIPPED (io_uring): {error}");
        return None;
    }
    Some(Uring::new(&Setup { batch_ns, stamps, ..Setup::to(target, slots) }).unwrap())
}

/// The next event, waiting as long as it takes.
fn event(driver: &mut Uring) -> Event {
    loop {
        if let Some(event) = driver.next() {
            return event;
        }
        driver.wait(None).unwrap();
    }
}

fn send_all(driver: &mut Uring, slot: u32) {
    assert_eq!(driver.send(slot, REQUEST).unwrap(), REQUEST.len());
}

/// Sends `requests` on each of `slots` connections and closes them.
fn exchange(driver: &mut Uring, slots: u32, requests: usize) {
    let mut got = vec![(0, 0); slots as usize];
    for slot in 0..slots {
        driver.open(slot, 0).unwrap();
    }
    let mut open = slots;
    let mut latest = monotonic_ns();
    while open > 0 {
        let Event { slot, what } = event(driver);
        let (bytes, done) = &mut got[slot as usize];
        match what {
            What::Connected { outcome, at_ns } => {
                outcome.unwrap();
                assert!(at_ns >= latest && at_ns <= monotonic_ns());
                send_all(driver, slot);
            }
            What::Received { at_ns } => {
                assert!(at_ns <= monotonic_ns());
                latest = latest.min(at_ns);
                assert_eq!(&RESPONSE[*bytes..*bytes + driver.bytes().len()], driver.bytes());
                *bytes += driver.bytes().len();
                if *bytes == RESPONSE.len() {
                    (*bytes, *done) = (0, *done + 1);
                    if *done == requests {
                        driver.close(slot, true);
                        open -= 1;
                    } else {
                        send_all(driver, slot);
                    }
                }
            }
            other => panic!("{other:?}"),
        }
    }
    driver.wait(Some(Duration::ZERO)).unwrap();
    assert!(driver.next().is_none(), "of a closed slot nothing is told");
}

#[test]
fn a_hundred_connections_get_ten_answers_each() {
    for (batch_ns, stamps) in [(0, false), (100_000, false), (100_000, true)] {
        let (listener, target) = listener();
        let Some(mut driver) = driver(target, 100, batch_ns, stamps) else { return };
        let server = answer(listener, 100, 10);
        exchange(&mut driver, 100, 10);
        // A receive that is being cancelled keeps its socket until the ring is asked again.
        drop(driver);
        assert_eq!(server.join().unwrap(), 0);
    }
}

#[test]
fn kernel_stamps_lie_before_the_time_of_seeing() {
    let (listener, target) = listener();
    let Some(mut driver) = driver(target, 1, 0, true) else { return };
    assert!(driver.stamps.are_used());
    driver.open(0, 0).unwrap();
    assert!(matches!(event(&mut driver).what, What::Connected { outcome: Ok(()), .. }));
    let (mut stream, _) = listener.accept().unwrap();
    // The kernel begins to stamp some time after the first socket has asked for it
    // (net_enable_timestamp() leaves it to a work queue); until then there is the time of seeing.
    let stamped = (0..500).any(|_| {
        let before = monotonic_ns();
        stream.write_all(RESPONSE).unwrap();
        let arrived = monotonic_ns();
        thread::sleep(Duration::from_millis(5));
        let What::Received { at_ns } = event(&mut driver).what else { panic!("no bytes") };
        assert_eq!(driver.bytes(), RESPONSE);
        assert!(at_ns >= before.saturating_sub(1_000_000), "{at_ns} is before {before}");
        at_ns <= arrived + 1_000_000
    });
    assert!(stamped);
    drop(stream);
    assert!(matches!(event(&mut driver).what, What::Closed { .. }));
}

#[test]
fn bytes_come_before_the_close_of_the_peer() {
    for stamps in [false, true] {
        let (listener, target) = listener();
        let Some(mut driver) = driver(target, 1, 0, stamps) else { return };
        for _ in 0..50 {
            driver.open(0, 0).unwrap();
            assert!(matches!(event(&mut driver).what, What::Connected { outcome: Ok(()), .. }));
            send_all(&mut driver, 0);
            driver.wait(Some(Duration::ZERO)).unwrap();
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; REQUEST.len()]).unwrap();
            stream.write_all(RESPONSE).unwrap();
            drop(stream);
            assert!(matches!(event(&mut driver).what, What::Received { .. }));
            assert_eq!(driver.bytes(), RESPONSE);
            assert!(matches!(event(&mut driver).what, What::Closed { .. }));
            driver.close(0, true);
        }
    }
}

#[test]
fn a_port_without_listener_refuses() {
    let (listener, target) = listener();
    drop(listener);
    let Some(mut driver) = driver(target, 4, 0, false) else { return };
    for round in 0..200 {
        let slot = round % 4;
        driver.open(slot, 0).unwrap();
        let Event { slot: told, what: What::Connected { outcome, .. } } = event(&mut driver) else {
            panic!("not decided");
        };
        assert_eq!(told, slot);
        assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        driver.close(slot, true);
    }
}

#[test]
fn source_addresses_and_congestion_control_are_those_asked_for() {
    let (listener, target) = listener();
    if driver(target, 1, 0, false).is_none() {
        return;
    }
    let sources = [Ipv4Addr::new(127, 0, 0, 2).into(), Ipv4Addr::new(127, 0, 0, 3).into()];
    let setup = Setup { bind: &sources, ..Setup::to(target, 2) };
    let unknown = Uring::new(&Setup { congestion: Some("no-such-one"), ..setup }).unwrap_err();
    assert!(unknown.to_string().contains("TCP_CONGESTION"), "{unknown}");
    let mut driver = Uring::new(&Setup { congestion: Some("reno"), ..setup }).unwrap();
    let mut streams = Vec::new();
    for (slot, source) in sources.into_iter().enumerate() {
        driver.open(slot as u32, slot).unwrap();
        let Event { what, .. } = event(&mut driver);
        assert!(matches!(what, What::Connected { outcome: Ok(()), .. }), "{what:?}");
        let (stream, peer) = listener.accept().unwrap();
        assert_eq!(peer.ip(), source);
        streams.push(stream);
    }
}

#[test]
fn a_long_body_leaves_whole_though_the_peer_is_slow_to_read() {
    let (listener, target) = listener();
    let Some(mut driver) = driver(target, 1, 0, false) else { return };
    driver.open(0, 0).unwrap();
    assert!(matches!(event(&mut driver).what, What::Connected { outcome: Ok(()), .. }));
    let (mut stream, _) = listener.accept().unwrap();
    let body: Vec<u8> = (0..4_000_000_u32).map(|n| (n % 251) as u8).collect();
    let expected = body.clone();
    let reader = thread::spawn(move || {
        let mut got = vec![0; expected.len()];
        stream.read_exact(&mut got).unwrap();
        assert!(got == expected);
        stream.write_all(RESPONSE).unwrap();
    });
    let mut left = 0;
    // Pieces of all sizes, so that short and long sends follow each other.
    for size in [1, 4096, 4097, 100, 70_000].into_iter().cycle() {
        let piece = &body[left..body.len().min(left + size)];
        if piece.is_empty() {
            break;
        }
        let sent = driver.send(0, piece).unwrap();
        left += sent;
        driver.tell_of_room(0);
        assert!(matches!(event(&mut driver).what, What::Room));
    }
    assert!(matches!(event(&mut driver).what, What::Received { .. }));
    reader.join().unwrap();
}

#[test]
fn a_long_answer_comes_whole_though_buffers_run_out() {
    let (listener, target) = listener();
    let slots = 40;
    let Some(mut driver) = driver(target, slots, 0, false) else { return };
    let size = 1_000_000;
    let server = thread::spawn(move || {
        let body = vec![b'x'; size];
        let streams: Vec<_> = (0..slots).map(|_| listener.accept().unwrap().0).collect();
        thread::scope(|scope| {
            for mut stream in streams {
                let body = &body;
                scope.spawn(move || stream.write_all(body).unwrap());
            }
        });
    });
    (0..slots).for_each(|slot| driver.open(slot, 0).unwrap());
    let mut got = vec![0; slots as usize];
    let mut open = slots;
    while open > 0 {
        let Event { slot, what } = event(&mut driver);
        match what {
            What::Connected { outcome, .. } => outcome.unwrap(),
            What::Received { .. } => got[slot as usize] += driver.bytes().len(),
            What::Closed { .. } => {
                driver.close(slot, true);
                open -= 1;
            }
            other => panic!("{other:?}"),
        }
    }
    server.join().unwrap();
    assert!(got.iter().all(|&bytes| bytes == size), "{got:?}");
}

#[test]
fn more_connections_are_closed_and_opened_in_a_turn_than_there_are_spare_places() {
    let (listener, target) = listener();
    let slots = 500;
    let Some(mut driver) = driver(target, slots, 0, false) else { return };
    let rounds = 6;
    let server = thread::spawn(move || {
        (0..slots * rounds).map(|_| listener.accept().unwrap().0).collect::<Vec<_>>()
    });
    for _ in 0..rounds {
        (0..slots).for_each(|slot| driver.open(slot, 0).unwrap());
        for _ in 0..slots {
            let Event { what, .. } = event(&mut driver);
            assert!(matches!(what, What::Connected { outcome: Ok(()), .. }), "{what:?}");
        }
        driver.wait(Some(Duration::ZERO)).unwrap();
        (0..slots).for_each(|slot| driver.close(slot, true));
    }
    drop(driver);
    for mut stream in server.join().unwrap() {
        // Each was closed or reset, none is forgotten.
        assert_eq!(stream.read(&mut [0; 16]).unwrap_or(0), 0);
    }
}

#[test]
fn thousands_of_idle_connections_stay_open() {
    let (listener, target) = listener();
    // The other end has the limit of open files, and other tests run beside this one.
    let slots = (max_direct() / 2).min(most_slots()).min(10_000);
    let Some(mut driver) = driver(target, slots, 0, false) else { return };
    let server =
        thread::spawn(move || (0..slots).map(|_| listener.accept().unwrap().0).collect::<Vec<_>>());
    for begin in (0..slots).step_by(100) {
        let end = slots.min(begin + 100);
        (begin..end).for_each(|slot| driver.open(slot, 0).unwrap());
        for _ in begin..end {
            let Event { what, .. } = event(&mut driver);
            assert!(matches!(what, What::Connected { outcome: Ok(()), .. }), "{what:?}");
        }
    }
    let mut streams = server.join().unwrap();
    for stream in &mut streams {
        stream.write_all(b"x").unwrap();
    }
    for _ in 0..slots {
        assert!(matches!(event(&mut driver).what, What::Received { .. }));
    }
}
