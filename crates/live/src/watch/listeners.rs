//! Listeners over time: peaks, drops since the watch began, and what each did in the newest interval.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::look::ListenerLook;
use super::overflow::{HostDrops, Suspect, attribute, deferred};
use super::rates::drops_since;
use super::standing::{Clock, Lengths};
use super::state::ListenerState;

/// Listening sockets that are followed, at most. Those after them, in the kernel's order, are left out.
pub(super) const TRACKED_MAX: usize = 8_192;
/// A recent peak is of this time and at most as much before it, s.
const RECENT_S: f64 = 5.0;

/// A socket: one that was made anew on the same address has another inode.
type Key = (SocketAddr, u64);

/// What is kept of a socket between looks: 136 bytes with its key.
#[derive(Clone, Debug, Default)]
struct Track {
    /// `sk_drops` at the last look.
    drops_at: Option<u32>,
    /// Packets dropped since the watch began; absent once it is not known.
    total: Option<u64>,
    peak: u32,
    /// The longest queue of this part of the watch and of the one before.
    recent: [u32; 2],
    lengths: Lengths,
    /// The last look that listed it.
    look: u64,
}

/// Listening sockets that the watch follows.
#[derive(Clone, Debug, Default)]
pub(super) struct Listeners {
    tracks: BTreeMap<Key, Track>,
    looks: u64,
    /// When the current part of recent peaks began, s.
    part_s: f64,
    clock: Clock,
}

/// What one look showed.
pub(super) struct ListenerReading {
    /// All that are followed, by address, port and inode.
    pub listeners: Vec<ListenerState>,
    /// Sockets beyond [`TRACKED_MAX`].
    pub left_out: u64,
}

impl Listeners {
    /// Takes note of the listeners of a look.
    ///
    /// `established`: `TcpPassiveOpens` of the namespace. `interval_s` is absent where there is nothing to divide by: at the first look above all.
    pub(super) fn see(
        &mut self,
        at_s: f64,
        looked: Vec<ListenerLook>,
        host: Option<HostDrops>,
        established: Option<u64>,
        interval_s: Option<f64>,
    ) -> ListenerReading {
        let first = self.looks == 0;
        self.looks += 1;
        let parts = self.parts_ended(at_s);
        let counts = self.clock.tick(at_s, established);
        // A dump that the kernel interrupts may list a socket twice: the last entry is the newest.
        let mut newest: BTreeMap<Key, ListenerLook> = BTreeMap::new();
        let mut left_out = 0;
        for one in looked {
            let key = (one.address, one.inode);
            if newest.len() < TRACKED_MAX || newest.contains_key(&key) {
                newest.insert(key, one);
            } else {
                left_out += 1;
            }
        }
        let mut sockets: BTreeMap<SocketAddr, u32> = BTreeMap::new();
        for (address, _) in newest.keys() {
            *sockets.entry(*address).or_default() += 1;
        }
        let mut listeners = Vec::with_capacity(newest.len());
        let mut suspects = Vec::with_capacity(newest.len());
        for (key, one) in newest {
            let known = self.tracks.contains_key(&key);
            let track = self.tracks.entry(key).or_default();
            // A socket that the look before did not have was made since, so its count began at 0 then.
            let since = match (known, track.drops_at.zip(one.drops)) {
                (true, Some((before, now))) => drops_since(before, now),
                (false, _) if !first => one.drops.map(u64::from),
                _ => None,
            };
            track.total = match (known || !first, since) {
                (false, _) => one.drops.map(|_| 0),
                (true, Some(since)) if !known => Some(since),
                (true, since) => track.total.zip(since).map(|(total, since)| total + since),
            };
            track.drops_at = one.drops;
            track.look = self.looks;
            track.peak = track.peak.max(one.accept_queue_len);
            match parts {
                0 => {}
                1 => track.recent = [0, track.recent[0]],
                _ => track.recent = [0, 0],
            }
            track.recent[0] = track.recent[0].max(one.accept_queue_len);
            if counts {
                track.lengths.push(one.accept_queue_len);
            }
            let recent_peak = track.recent[0].max(track.recent[1]);
            suspects.push(Suspect { drops: since, was_full: recent_peak > one.accept_queue_limit });
            let per_s = since.filter(|_| known).zip(interval_s);
            listeners.push(ListenerState {
                address: one.address.ip().to_string(),
                port: one.address.port(),
                inode: one.inode,
                sockets: sockets.get(&one.address).copied().unwrap_or(1),
                process: one.process,
                accept_queue_len: one.accept_queue_len,
                accept_queue_peak: track.peak,
                accept_queue_recent_peak: recent_peak,
                accept_queue_limit: one.accept_queue_limit,
                syn_queue_len: one.syn_queue_len,
                overflows_per_s: None,
                overflows_estimated: false,
                drops_per_s: per_s.map(|(drops, s)| drops as f64 / s),
                drops: track.total,
                deferred_per_s: None,
                deferred_at_most: false,
                stands: track.lengths.standing(&self.clock, one.accept_queue_limit).map(Box::new),
            });
        }
        let followed = self.tracks.len();
        self.tracks.retain(|_, track| track.look == self.looks);
        let vanished = followed > self.tracks.len();
        if let Some(s) = interval_s {
            let others = vanished || left_out > 0;
            let parts = attribute(host, &suspects, others).into_iter();
            let harmless = deferred(host, &suspects, others);
            for (listener, (part, harmless)) in listeners.iter_mut().zip(parts.zip(harmless)) {
                listener.overflows_per_s = part.map(|part| part.packets / s);
                listener.overflows_estimated = part.is_some_and(|part| part.estimated);
                listener.deferred_per_s = harmless.map(|part| part.packets / s);
                listener.deferred_at_most = harmless.is_some_and(|part| part.estimated);
            }
        }
        ListenerReading { listeners, left_out }
    }

    /// Parts of recent peaks that ended since the last look: 0, 1 or more.
    fn parts_ended(&mut self, at_s: f64) -> u32 {
        let since = at_s - self.part_s;
        if !(0.0..2.0 * RECENT_S).contains(&since) {
            self.part_s = at_s;
            return 2;
        }
        if since >= RECENT_S {
            self.part_s = at_s;
            return 1;
        }
        0
    }

    /// Sockets that are followed now.
    #[cfg(test)]
    pub(super) fn followed(&self) -> usize {
        self.tracks.len()
    }
}
