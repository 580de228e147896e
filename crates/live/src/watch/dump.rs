//! What a dump of all sockets comes to: states, half-open requests by listener, and the destinations and source
//! addresses that most connections go to.
//!
//! Pairs of source and destination are counted in a map of bounded size. As long as all pairs fit, every
//! figure is exact. When the map is full, pairs with the fewest sockets make room (lossy counting): a pair
//! that comes later may lack the sockets that came before. The largest pairs of a dump are counted from
//! the first socket on in the next, so that from the second dump on they are exact again.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tcptoll_core::tcp::tcp_info::TcpState;
use tcptoll_kernel::connections::Connection;
use tcptoll_kernel::sock_diag::ListenSocket;

use super::{DESTINATIONS_MAX, Destination, SocketDump};

/// Pairs in the map: 1.2 MB.
const PAIRS_MAX: usize = 14_336;
/// Pairs that the next dump counts from its first socket on.
const KEPT_MAX: usize = 1_024;

/// A source address of this host and a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Pair {
    pub(super) source: IpAddr,
    /// Remote address and port.
    pub(super) to: SocketAddr,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sockets: u32,
    time_wait: u32,
    syn_sent: u32,
    /// Sockets that may have come before the pair had a place.
    missed_max: u32,
    /// It was in the dump before, and keeps its place.
    kept: bool,
}

/// The pairs with the most sockets of a dump.
#[derive(Clone, Debug, Default)]
pub(super) struct TopPairs(Vec<Pair>);

/// Destinations of a dump, those with the most ports in use first.
#[derive(Debug)]
pub(super) struct Ranked {
    pub(super) destinations: Vec<Destination>,
    /// Exact while all pairs fit; beyond, estimated.
    pub(super) left_out: u64,
}

#[derive(Debug)]
pub(super) struct Pairs {
    counts: HashMap<Pair, Counts>,
    /// A pair that has no place has at most this many sockets.
    floor: u32,
    /// Destinations so far, once some had to make room.
    distinct: Option<Distinct>,
}

impl Pairs {
    /// Counts the pairs that the dump before kept from their first socket on.
    pub(super) fn following(kept: &TopPairs) -> Self {
        let kept = kept.0.iter().map(|pair| (*pair, Counts { kept: true, ..Counts::default() }));
        Self { counts: kept.collect(), floor: 0, distinct: None }
    }

    pub(super) fn add(&mut self, pair: Pair, state: Option<TcpState>) {
        if let Some(distinct) = &mut self.distinct {
            distinct.add(pair.to);
        }
        if self.counts.len() >= PAIRS_MAX && !self.counts.contains_key(&pair) {
            self.make_room();
        }
        let new = Counts { missed_max: self.floor, ..Counts::default() };
        let counts = self.counts.entry(pair).or_insert(new);
        counts.sockets = counts.sockets.saturating_add(1);
        match state {
            Some(TcpState::TimeWait) => counts.time_wait = counts.time_wait.saturating_add(1),
            Some(TcpState::SynSent) => counts.syn_sent = counts.syn_sent.saturating_add(1),
            _ => {}
        }
    }

    /// Takes the place of at least half of the pairs that were not kept.
    fn make_room(&mut self) {
        if self.distinct.is_none() {
            let mut distinct = Distinct::new();
            self.counts.keys().for_each(|pair| distinct.add(pair.to));
            self.distinct = Some(distinct);
        }
        let at_most = |counts: &Counts| counts.sockets.saturating_add(counts.missed_max);
        let mut sizes: Vec<u32> =
            self.counts.values().filter(|counts| !counts.kept).map(at_most).collect();
        let middle = sizes.len() / 2;
        if let Some((_, median, _)) = (!sizes.is_empty()).then(|| sizes.select_nth_unstable(middle))
        {
            self.floor = self.floor.max(*median);
        }
        let floor = self.floor;
        self.counts.retain(|_, counts| counts.kept || at_most(counts) > floor);
    }

    /// The largest destinations, and the pairs to follow.
    pub(super) fn finish(mut self) -> (Ranked, TopPairs) {
        self.counts.retain(|_, counts| counts.sockets > 0);
        let mut all: HashMap<SocketAddr, Destination> = HashMap::new();
        for (pair, counts) in &self.counts {
            let none = Destination {
                to: pair.to,
                sources: 0,
                ports_in_use: 0,
                time_wait: 0,
                syn_sent: 0,
                here: false,
            };
            let sum = all.entry(pair.to).or_insert(none);
            sum.sources += 1;
            sum.here |= pair.source == pair.to.ip() || pair.to.ip().is_loopback();
            sum.syn_sent = sum.syn_sent.saturating_add(counts.syn_sent);
            // Of sources with as many ports, the one with more in TIME-WAIT: the same at each look.
            let here = (counts.sockets, counts.time_wait);
            (sum.ports_in_use, sum.time_wait) = (sum.ports_in_use, sum.time_wait).max(here);
        }
        let seen = all.len() as u64;
        let mut destinations: Vec<Destination> = all.into_values().collect();
        destinations
            .sort_unstable_by_key(|to| (std::cmp::Reverse((to.ports_in_use, to.time_wait)), to.to));
        destinations.truncate(DESTINATIONS_MAX);
        let total = self.distinct.map_or(seen, |distinct| distinct.estimate().max(seen));
        let left_out = total - destinations.len() as u64;
        let shown: HashSet<SocketAddr> = destinations.iter().map(|to| to.to).collect();
        let mut kept: Vec<(u32, Pair)> = self
            .counts
            .iter()
            .filter(|(pair, _)| shown.contains(&pair.to))
            .map(|(pair, counts)| (counts.sockets, *pair))
            .collect();
        kept.sort_unstable_by(|one, other| other.cmp(one));
        kept.truncate(KEPT_MAX);
        let kept = TopPairs(kept.into_iter().map(|(_, pair)| pair).collect());
        (Ranked { destinations, left_out }, kept)
    }
}

/// Estimates how many different destinations there were, in 128 KiB (linear counting): within 1 % up to
/// five million.
#[derive(Debug)]
struct Distinct {
    hasher: RandomState,
    bits: Vec<u64>,
}

impl Distinct {
    const BITS: u64 = 1 << 20;

    fn new() -> Self {
        Self { hasher: RandomState::new(), bits: vec![0; (Self::BITS / 64) as usize] }
    }

    fn add(&mut self, to: SocketAddr) {
        let bit = self.hasher.hash_one(to) % Self::BITS;
        self.bits[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    fn estimate(&self) -> u64 {
        let set: u64 = self.bits.iter().map(|word| u64::from(word.count_ones())).sum();
        // With no bit left there were this many or more.
        let free = (Self::BITS - set).max(1) as f64;
        (Self::BITS as f64 * (Self::BITS as f64 / free).ln()).round() as u64
    }
}

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
    pub(super) table: SocketDump,
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

    pub(super) fn finish(self) -> Read {
        let states = (0_u8..).zip(self.states).filter(|(_, count)| *count > 0);
        let named = |number| Some(TcpState::from_kernel(number)?.name().to_owned());
        let (ranked, kept) = self.pairs.finish();
        let table = SocketDump {
            states: states.filter_map(|(number, count)| Some((named(number)?, count))).collect(),
            destinations: ranked.destinations,
            destinations_left_out: ranked.left_out,
            ..SocketDump::default()
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
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    fn pair(source: u8, to: u32) -> Pair {
        Pair {
            source: Ipv4Addr::new(10, 0, 0, source).into(),
            to: (Ipv4Addr::from_bits(to), 443).into(),
        }
    }

    /// Sockets to `many` destinations, one each, and with each thousandth of them one to a destination
    /// that has more.
    fn dump(kept: &TopPairs, many: u32) -> (Ranked, TopPairs) {
        let mut pairs = Pairs::following(kept);
        for number in 0..many {
            pairs.add(pair(1, 0x0b00_0000 + number), None);
            if number.is_multiple_of(1_000) {
                pairs.add(pair(1, 1), Some(TcpState::TimeWait));
            }
            assert!(pairs.counts.len() <= PAIRS_MAX);
        }
        pairs.finish()
    }

    #[test]
    fn while_all_pairs_fit_every_figure_is_exact() {
        let (ranked, kept) = dump(&TopPairs::default(), 10_000);
        let first = &ranked.destinations[0];
        assert_eq!((first.to, first.ports_in_use, first.time_wait), (pair(1, 1).to, 10, 10));
        assert_eq!(ranked.destinations.len(), DESTINATIONS_MAX);
        assert_eq!(ranked.left_out, 10_001 - DESTINATIONS_MAX as u64);
        assert_eq!(kept.0.len(), DESTINATIONS_MAX);
    }

    #[test]
    fn a_million_destinations_take_no_more_memory_and_the_largest_is_exact_from_the_second_dump_on()
    {
        const MANY: u32 = 1_000_000;
        let (ranked, kept) = dump(&TopPairs::default(), MANY);
        let first = &ranked.destinations[0];
        // Short by the sockets of a full map of which half makes room each time, at most.
        let short = MANY / (PAIRS_MAX as u32 / 2) + 1;
        assert_eq!(first.to, pair(1, 1).to);
        assert!((1_000 - short..=1_000).contains(&first.ports_in_use), "{first:?}");
        let left_out = f64::from(MANY + 1) - DESTINATIONS_MAX as f64;
        assert!((ranked.left_out as f64 / left_out - 1.0).abs() < 0.01, "{}", ranked.left_out);
        let (ranked, _) = dump(&kept, MANY);
        assert_eq!(ranked.destinations[0].ports_in_use, 1_000);
    }

    #[test]
    fn the_ports_of_a_destination_are_those_of_the_source_that_uses_the_most() {
        let mut pairs = Pairs::following(&TopPairs(vec![pair(9, 9)]));
        for (source, sockets) in [(1, 3), (2, 5), (3, 5)] {
            for number in 0..sockets {
                let state = if number < source { TcpState::TimeWait } else { TcpState::SynSent };
                pairs.add(pair(source, 7), Some(state));
            }
        }
        let (ranked, _) = pairs.finish();
        let [only] = &ranked.destinations[..] else { panic!("{ranked:?}") };
        assert_eq!((only.sources, only.ports_in_use, only.time_wait, only.syn_sent), (3, 5, 3, 7));
        assert_eq!(ranked.left_out, 0);
    }

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
