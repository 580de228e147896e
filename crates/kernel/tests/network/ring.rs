//! A connection through a ring, against the standard library's listener on this machine.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener},
    thread,
};

use tcptoll_kernel::ring::{Completion, Operation, Ring, Route, Settings, Until, available};

const SETTINGS: Settings = Settings {
    entries: 16,
    completions: 64,
    direct: 8,
    buffers: 4,
    buffer_bytes: 1024,
    stamps: false,
};

/// A ring, unless they are forbidden here.
fn ring() -> Option<Ring> {
    if let Err(error) = available() {
        eprintln!("SKIPPED (io_uring): {error}");
        return None;
    }
    Some(Ring::new(&SETTINGS).unwrap())
}

fn next(ring: &mut Ring) -> Completion {
    loop {
        if let Some(completion) = ring.next() {
            return completion;
        }
        ring.wait(1, None, None).unwrap();
    }
}

fn route(listener: &TcpListener) -> Route {
    Route { target: listener.local_addr().unwrap(), source: None, congestion: None }
}

#[test]
fn a_connection_is_made_used_and_closed_without_a_file_descriptor() {
    let Some(mut ring) = ring() else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let route = ring.add_route(&route(&listener)).unwrap();
    let server = thread::spawn(move || {
        for _ in 0..20 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut text = Vec::new();
            stream.read_exact(&mut [0; 5]).unwrap();
            stream.write_all(&[7; 3000]).unwrap();
            stream.read_to_end(&mut text).unwrap();
            assert!(text.is_empty());
        }
    });
    for direct in (0..4).cycle().take(20) {
        ring.connect(direct, route).unwrap();
        let done = next(&mut ring);
        assert_eq!((done.direct, done.operation), (direct, Operation::Connect));
        done.result.unwrap();
        let accepted = ring.send(direct, b"hello").unwrap();
        assert_eq!((accepted.bytes, accepted.told), (5, false));
        ring.receive(direct, Until::Ended).unwrap();
        let mut got = 0;
        while got < 3000 {
            let done = next(&mut ring);
            assert_eq!(
                (done.direct, done.operation, done.more),
                (direct, Operation::Receive, true)
            );
            assert_eq!(done.result.unwrap() as usize, ring.received().len());
            assert!(ring.received().iter().all(|&byte| byte == 7));
            got += ring.received().len();
        }
        ring.cancel(direct).unwrap();
        ring.close(direct).unwrap();
        let done = next(&mut ring);
        assert_eq!(done.result.unwrap_err().raw_os_error(), Some(libc::ECANCELED));
    }
    server.join().unwrap();
}

#[test]
fn a_peek_says_whether_the_peer_has_closed_and_takes_nothing() {
    let Some(mut ring) = ring() else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let route = ring.add_route(&route(&listener)).unwrap();
    ring.connect(0, route).unwrap();
    next(&mut ring).result.unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let peek = |ring: &mut Ring| {
        ring.peek(0).unwrap();
        let done = next(ring);
        assert_eq!((done.direct, done.operation, done.more), (0, Operation::Peek, false));
        done.result
    };
    let open = peek(&mut ring).unwrap_err();
    assert_eq!(open.raw_os_error(), Some(libc::EAGAIN));
    stream.write_all(b"xy").unwrap();
    // Bytes and FIN are on their way through this machine: asked until they are there.
    while peek(&mut ring).is_err() {}
    assert_eq!(peek(&mut ring).unwrap(), 1);
    drop(stream);
    ring.receive(0, Until::Once { waiting: false }).unwrap();
    assert_eq!(next(&mut ring).result.unwrap(), 2, "the peek left both bytes");
    while peek(&mut ring).is_err() {}
    assert_eq!(peek(&mut ring).unwrap(), 0);
}

#[test]
fn what_fails_before_the_connect_is_told_once_and_by_name() {
    let Some(mut ring) = ring() else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = route(&listener);
    let foreign = Route { source: Some(Ipv4Addr::new(192, 0, 2, 1).into()), ..to.clone() };
    let refused = ring.add_route(&foreign).unwrap_err();
    assert_eq!((refused.op, refused.errno()), ("bind", Some(libc::EADDRNOTAVAIL)), "{refused}");
    let unknown = Route { congestion: Some("no-such-one".into()), ..to.clone() };
    let refused = ring.add_route(&unknown).unwrap_err();
    assert_eq!((refused.op, refused.errno()), ("setsockopt", Some(libc::ENOENT)), "{refused}");
    // The number of a route that was refused stays taken; what fails in the chain ends it.
    ring.connect(3, 0).unwrap();
    let done = next(&mut ring);
    assert_eq!((done.direct, done.operation), (3, Operation::Bind));
    ring.wait(1, None, Some(std::time::Duration::from_millis(1))).unwrap();
    assert!(ring.next().is_none());
}

#[test]
fn a_table_beyond_the_limit_of_open_files_is_refused() {
    if ring().is_none() {
        return;
    }
    let direct = tcptoll_kernel::ring::max_direct();
    drop(Ring::new(&Settings { direct, ..SETTINGS }).unwrap());
    let refused = Ring::new(&Settings { direct: direct + 1, ..SETTINGS }).unwrap_err();
    assert_eq!(refused.errno(), Some(libc::EMFILE), "{refused}");
}
