//! What does a dump of all sockets come to: states, half-open requests by listener, destinations?

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::watch::Table;
use tcptoll_core::tcp::tcp_info::TcpState;
use tcptoll_kernel::sock_diag::{Connection, ListenSocket};

use super::pairs::{Pair, Pairs, TopPairs};

/// The kernel's number of SYN-RECEIVED; a half-open request is no connection of this host yet.
const SYN_RECEIVED: u8 = 3;
/// States have numbers below this one.
const STATES: usize = 16;

/// Takes the sockets of one dump, one after the other, in bounded memory.
#[derive(Debug)]
pub(super) struct TableBuilder {
    states: [u64; STATES],
    listeners: Listeners,
    pairs: Pairs,
}

/// What a dump came to.
#[derive(Debug)]
pub(super) struct Read {
    /// Its figures, but for its times.
    pub(super) table: Table,
    /// Half-open requests of each listener, in their order. `None`: another listener has the same
    /// address, and the kernel does not say which of them a request is for.
    pub(super) half_open: Vec<Option<u32>>,
    /// What the next dump is to count from its first socket on.
    pub(super) kept: TopPairs,
}

impl TableBuilder {
    /// A table of a namespace with these listeners, after one that kept these pairs.
    pub(super) fn new(sockets: &[ListenSocket], kept: &TopPairs) -> Self {
        Self {
            states: [0; STATES],
            listeners: Listeners::new(sockets),
            pairs: Pairs::following(kept),
        }
    }

    /// Takes one socket.
    pub(super) fn add(&mut self, socket: &Connection) {
        if let Some(count) = self.states.get_mut(usize::from(socket.state)) {
            *count += 1;
        }
        if socket.state == SYN_RECEIVED {
            self.listeners.request(socket.local);
        } else if !self.listeners.ports.contains(&socket.local.port()) {
            let pair = Pair { source: socket.local.ip(), to: socket.remote };
            self.pairs.add(pair, TcpState::from_kernel(socket.state));
        }
    }

    /// All sockets were taken.
    pub(super) fn finish(self) -> Read {
        let states = (0_u8..).zip(self.states).filter(|(_, count)| *count > 0);
        let named = |number| Some(TcpState::from_kernel(number)?.name().to_owned());
        let (ranked, kept) = self.pairs.finish();
        let table = Table {
            states: states.filter_map(|(number, count)| Some((named(number)?, count))).collect(),
            destinations: ranked.destinations,
            destinations_left_out: ranked.left_out,
            ..Table::default()
        };
        Read { table, half_open: self.listeners.finish(), kept }
    }
}

/// Half-open requests of listeners.
#[derive(Debug)]
struct Listeners {
    ports: HashSet<u16>,
    /// Place in `requests` by address; listeners with the same address have one place.
    places: HashMap<SocketAddr, usize>,
    /// Listeners and requests of each place.
    requests: Vec<(u32, u32)>,
    /// The place of each listener.
    place_of: Vec<usize>,
}

impl Listeners {
    fn new(sockets: &[ListenSocket]) -> Self {
        let mut all = Self {
            ports: sockets.iter().map(|socket| socket.address.port()).collect(),
            places: HashMap::new(),
            requests: Vec::new(),
            place_of: Vec::with_capacity(sockets.len()),
        };
        for socket in sockets {
            let at = SocketAddr::new(socket.address.ip().to_canonical(), socket.address.port());
            let place = *all.places.entry(at).or_insert(all.requests.len());
            if place == all.requests.len() {
                all.requests.push((0, 0));
            }
            all.requests[place].0 += 1;
            all.place_of.push(place);
        }
        all
    }

    /// A request belongs to the listener of its address, else to one of every address of its family,
    /// else to one of `[::]`. The kernel looks them up in this order, `__inet_lookup_listener()`.
    fn request(&mut self, to: SocketAddr) {
        const EVERY_4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        const EVERY_6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let every = if to.is_ipv4() { [EVERY_4, EVERY_6] } else { [EVERY_6, EVERY_6] };
        let mut addresses = std::iter::once(to.ip()).chain(every);
        let place =
            addresses.find_map(|ip| self.places.get(&SocketAddr::new(ip, to.port())).copied());
        // A listener that was closed during the dump has none.
        if let Some(place) = place {
            self.requests[place].1 = self.requests[place].1.saturating_add(1);
        }
    }

    fn finish(self) -> Vec<Option<u32>> {
        let known_requests = |place: &usize| {
            let (listeners, requests) = self.requests[*place];
            (listeners == 1 || requests == 0).then_some(requests)
        };
        self.place_of.iter().map(known_requests).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn listener(address: &str) -> ListenSocket {
        ListenSocket {
            inode: 1,
            uid: 0,
            address: address.parse().unwrap(),
            accept_queue_len: 0,
            accept_queue_limit: 4,
            drops: None,
        }
    }

    fn socket(state: u8, local: &str, remote: &str) -> Connection {
        Connection {
            state,
            local: local.parse().unwrap(),
            remote: remote.parse().unwrap(),
            timer: None,
            expires: Duration::ZERO,
            retransmits: 0,
            receive_queue: 0,
            send_queue: 0,
            uid: 0,
            inode: None,
        }
    }

    fn read(listeners: &[ListenSocket], sockets: &[Connection]) -> Read {
        let mut builder = TableBuilder::new(listeners, &TopPairs::default());
        for socket in sockets {
            builder.add(socket);
        }
        builder.finish()
    }

    #[test]
    fn states_are_counted_and_only_what_this_host_opened_is_a_destination() {
        let all = read(
            &[listener("0.0.0.0:80")],
            &[
                socket(1, "10.0.0.1:80", "10.0.0.9:5000"),
                socket(6, "10.0.0.1:80", "10.0.0.9:5001"),
                socket(1, "10.0.0.1:40000", "10.0.0.2:5432"),
                socket(6, "10.0.0.1:40001", "10.0.0.2:5432"),
                socket(2, "10.0.0.1:40002", "10.0.0.2:5432"),
                socket(6, "10.0.0.3:40000", "10.0.0.2:5432"),
            ],
        );
        let states: Vec<_> = all.table.states.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        assert_eq!(states, [("ESTABLISHED", 2), ("SYN-SENT", 1), ("TIME-WAIT", 3)]);
        let [only] = &all.table.destinations[..] else { panic!("{:?}", all.table) };
        assert_eq!(only.to, "10.0.0.2:5432".parse().unwrap());
        assert_eq!((only.sources, only.ports_in_use, only.time_wait, only.syn_sent), (2, 3, 1, 1));
        assert_eq!(all.table.destinations_left_out, 0);
    }

    #[test]
    fn a_half_open_request_belongs_to_the_nearest_listener() {
        let listeners = [
            "10.0.0.1:80",
            "0.0.0.0:80",
            "[::]:80",
            "[::]:443",
            "10.0.0.1:90",
            "10.0.0.1:90",
            "10.0.0.1:91",
            "10.0.0.1:91",
        ];
        let to = [
            "10.0.0.1:80",
            "10.0.0.2:80",
            "10.0.0.2:80",
            "[fd00::1]:80",
            "10.0.0.1:443",
            "10.0.0.1:90",
            "10.0.0.1:7",
        ];
        let requests: Vec<_> = to.iter().map(|to| socket(3, to, "10.0.0.9:5000")).collect();
        let all = read(&listeners.map(listener), &requests);
        let some = [1, 2, 1, 1].map(Some);
        assert_eq!(all.half_open[..4], some);
        assert_eq!(all.half_open[4..], [None, None, Some(0), Some(0)]);
        assert_eq!(all.table.states["SYN-RECEIVED"], 7);
        assert!(all.table.destinations.is_empty());
    }
}
