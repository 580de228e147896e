//! How did the queues of this host's listeners run over time, and when did the kernel drop?
//!
//! The observer's thread looks at the listeners again and again; where an experiment asks for it
//! ([`WatchQueues`](crate::messages::WatchQueues)), each look goes to a [`QueueRecorder`] too. It is given
//! the time, keeps a bounded number of listeners, and a bounded series of each.
//!
//! `keepalive` does not watch listeners once its idle connections are open: with 50,000 of them the watching
//! took a quarter of a CPU, several times what was to be measured.

use std::time::Duration;

use tcptoll_core::record::ListenerQueue;
use tcptoll_core::stats::Series;
use tcptoll_core::stats::SeriesBuilder;
use tcptoll_kernel::sock_diag::ListenSocket;

/// Listeners that are recorded, at most. The others are counted in the peaks of the host alone.
pub(super) const LISTENERS_MAX: usize = 16;

/// Points of a series, at most.
const POINTS: usize = 400;

/// Length of a slice of time in which drops are looked for.
const SLICE: Duration = Duration::from_millis(100);

/// A listener at one look.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenerSample {
    /// Its queue.
    pub(super) socket: ListenSocket,
    /// Half-open requests; absent if they were not looked at.
    pub(super) half_open: Option<u32>,
}

/// Records the queues of listeners, look by look.
#[derive(Debug)]
pub(super) struct QueueRecorder {
    start_ns: u64,
    listeners: Vec<Recorded>,
    /// Drops of listeners that were there before.
    before: Vec<(std::net::SocketAddr, Option<u32>)>,
}

#[derive(Debug)]
struct Recorded {
    queue: ListenerQueue,
    at: std::net::SocketAddr,
    length: SeriesBuilder,
    half_open: SeriesBuilder,
    dropped: SeriesBuilder,
    /// The kernel's figure at the beginning, and at the look before.
    drops_first: Option<u32>,
    drops_last: Option<u32>,
    /// Number of the slice of the look before, and drops at its beginning.
    slice: u64,
    slice_began_with: Option<u32>,
    /// Looks and slices until the queue last held a connection, or dropped one; none: it never did.
    busy: Option<(u64, u64)>,
}

impl QueueRecorder {
    /// Begins; what these listeners dropped before is not part of it.
    pub(super) fn begin(start_ns: u64, now: &[ListenSocket]) -> Self {
        let before = now.iter().map(|socket| (socket.address, socket.drops)).collect();
        Self { start_ns, listeners: Vec::new(), before }
    }

    /// Takes a look at all listeners. Looks come in order of time.
    pub(super) fn look(&mut self, at_ns: u64, seen: &[ListenerSample]) {
        let since = Duration::from_nanos(at_ns.saturating_sub(self.start_ns));
        for now in seen {
            let address = now.socket.address;
            let known = self.listeners.iter().position(|listener| listener.at == address);
            let place = match known {
                Some(place) => place,
                None if self.listeners.len() < LISTENERS_MAX => {
                    // A listener that is new has dropped nothing.
                    let before = self.before.iter().find(|(at, _)| *at == address);
                    let first = before.map_or(now.socket.drops.map(|_| 0), |(_, drops)| *drops);
                    self.listeners.push(Recorded::new(&now.socket, first, since));
                    self.listeners.len() - 1
                }
                None => continue,
            };
            self.listeners[place].look(since, now);
        }
    }

    /// Recorded listeners, in the order in which they were first seen.
    pub(super) fn queues(&self) -> impl Iterator<Item = ListenerQueue> + '_ {
        self.listeners.iter().map(Recorded::queue)
    }
}

impl Recorded {
    fn new(socket: &ListenSocket, drops_first: Option<u32>, since: Duration) -> Self {
        Self {
            queue: ListenerQueue {
                address: socket.address.ip().to_string(),
                port: socket.address.port(),
                ..ListenerQueue::default()
            },
            at: socket.address,
            length: SeriesBuilder::new(POINTS),
            half_open: SeriesBuilder::new(POINTS),
            dropped: SeriesBuilder::new(POINTS),
            drops_first,
            drops_last: drops_first,
            slice: slice_of(since),
            slice_began_with: drops_first,
            busy: None,
        }
    }

    fn look(&mut self, since: Duration, now: &ListenerSample) {
        let ListenerSample { socket, half_open } = *now;
        let dropped = self.dropped_until(socket.drops);
        let queue = &mut self.queue;
        queue.limit = socket.accept_queue_limit;
        queue.peak = queue.peak.max(socket.accept_queue_len);
        queue.samples += 1;
        queue.full_samples += u64::from(socket.accept_queue_len > socket.accept_queue_limit);
        self.length.push(since, f64::from(socket.accept_queue_len));
        if let Some(half_open) = half_open {
            queue.half_open_peak = queue.half_open_peak.max(Some(half_open));
            self.half_open.push(since, f64::from(half_open));
        }
        if let Some(dropped) = dropped {
            self.dropped.push(since, dropped as f64);
        }
        // What was dropped since the look before may be of the slice that has just ended.
        let slice = slice_of(since);
        if slice > self.slice {
            queue.slices += slice - self.slice;
            queue.dropping_slices += u64::from(socket.drops != self.slice_began_with);
            (self.slice, self.slice_began_with) = (slice, socket.drops);
        }
        if socket.accept_queue_len > 0 || socket.drops != self.drops_last {
            self.busy = Some((queue.samples, queue.slices + 1));
        }
        self.drops_last = socket.drops;
    }

    /// Packets that the listener dropped from the beginning until the kernel's figure was this.
    fn dropped_until(&self, now: Option<u32>) -> Option<u64> {
        Some(u64::from(now?.wrapping_sub(self.drops_first?)))
    }

    fn queue(&self) -> ListenerQueue {
        // The slice that has begun counts, or a load of 50 ms would have none.
        let dropping = self.drops_last != self.slice_began_with;
        let drops = self.dropped_until(self.drops_last);
        // At the end clients may wait for a time limit, and nothing arrives: that is not of the load.
        let all = (self.queue.samples, self.queue.slices + 1);
        let (samples, slices) = self.busy.unwrap_or(all);
        ListenerQueue {
            drops,
            samples,
            slices,
            dropping_slices: self.queue.dropping_slices + u64::from(dropping),
            length: rounded(self.length.clone().build()),
            half_open: self.queue.half_open_peak.map(|_| rounded(self.half_open.clone().build())),
            dropped_so_far: drops.map(|_| rounded(self.dropped.clone().build())),
            ..self.queue.clone()
        }
    }
}

/// Number of the slice in which an instant is.
fn slice_of(since: Duration) -> u64 {
    (since.as_millis() / SLICE.as_millis()) as u64
}

/// A series with times in whole µs and values in thousandths: a series of lengths needs no more, and
/// an answer of the host has a limit.
fn rounded(series: Series) -> Series {
    let rounded = |value: f64, to: f64| (value * to).round() / to;
    let point = |[at, least, mean, greatest]: [f64; 4]| {
        [rounded(at, 1e6), rounded(least, 1e3), rounded(mean, 1e3), rounded(greatest, 1e3)]
    };
    Series { points: series.points.into_iter().map(point).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(port: u16, length: u32, drops: Option<u32>) -> ListenSocket {
        ListenSocket {
            inode: 1,
            uid: 0,
            address: ([10, 77, 0, 2], port).into(),
            accept_queue_len: length,
            accept_queue_limit: 4,
            drops,
        }
    }

    fn seen(port: u16, length: u32, drops: u32) -> ListenerSample {
        ListenerSample { socket: socket(port, length, Some(drops)), half_open: None }
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_queue_has_its_peak_its_full_samples_and_the_slices_with_drops() {
        let mut recorder = QueueRecorder::begin(0, &[]);
        // Ten looks a slice: full in the second slice, with drops in the second and the fourth.
        for look in 0..40_u32 {
            let (length, drops) = match look {
                0..10 => (1, 0),
                10..20 => (5, look - 10),
                20..35 => (2, 9),
                _ => (2, 10),
            };
            recorder.look(u64::from(look) * 10 * MS, &[seen(80, length, drops)]);
        }
        let queue = recorder.queues().next().unwrap();
        assert_eq!((queue.limit, queue.peak, queue.was_full()), (4, 5, true));
        assert_eq!((queue.samples, queue.full_samples), (40, 10));
        assert_eq!((queue.slices, queue.dropping_slices), (4, 2), "{queue:?}");
        assert_eq!(
            (queue.drops, queue.half_open_peak, queue.half_open.as_ref()),
            (Some(10), None, None)
        );
        assert_eq!(queue.length.points.len(), 40);
    }

    #[test]
    fn the_time_after_the_last_connection_that_waited_is_not_of_the_load() {
        let mut recorder = QueueRecorder::begin(0, &[]);
        for look in 0..100_u32 {
            let (length, drops) = if look < 25 { (look % 2 * 5, 0) } else { (0, 0) };
            recorder.look(u64::from(look) * 10 * MS, &[seen(80, length, drops), seen(81, 0, 0)]);
        }
        let queues: Vec<_> = recorder.queues().collect();
        assert_eq!((queues[0].samples, queues[0].full_samples, queues[0].slices), (24, 12, 3));
        assert_eq!((queues[1].samples, queues[1].slices), (100, 10), "it was never used");
        assert_eq!(queues[0].length.points.len(), 100);
    }

    #[test]
    fn drops_before_the_recording_are_not_part_of_it_and_the_counter_may_wrap() {
        let mut recorder = QueueRecorder::begin(0, &[socket(80, 0, Some(u32::MAX))]);
        recorder.look(0, &[seen(80, 0, 2), seen(81, 0, 7)]);
        let drops: Vec<_> = recorder.queues().map(|queue| queue.drops).collect();
        assert_eq!(drops, [Some(3), Some(7)]);
    }

    #[test]
    fn without_the_kernels_figure_drops_are_absent() {
        let mut recorder = QueueRecorder::begin(0, &[]);
        recorder.look(0, &[ListenerSample { socket: socket(80, 0, None), half_open: Some(3) }]);
        let queue = recorder.queues().next().unwrap();
        assert_eq!((queue.drops, queue.dropping_slices), (None, 0));
        assert_eq!((queue.half_open_peak, queue.half_open.unwrap().points.len()), (Some(3), 1));
    }

    #[test]
    fn listeners_and_points_are_bounded_over_any_time() {
        let mut recorder = QueueRecorder::begin(0, &[]);
        let all: Vec<ListenerSample> = (1..=100).map(|port| seen(port, 1, 0)).collect();
        for look in 0..2_000 {
            recorder.look(look * 10 * MS, &all);
        }
        let queues: Vec<_> = recorder.queues().collect();
        assert_eq!(queues.len(), LISTENERS_MAX);
        assert!(queues.iter().all(|queue| queue.length.points.len() <= POINTS));
        assert!(queues.iter().all(|queue| queue.samples == 2_000 && queue.slices == 200));
    }
}
