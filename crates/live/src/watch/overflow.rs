//! Which listener's accept queue overflowed, where the kernel counts overflows of all listeners in one sum?
//!
//! The namespace has `TcpExtListenOverflows` and `TcpExtListenDrops`; each listener has `sk_drops`. Each drop
//! at a listener raises its `sk_drops` (`tcp_listendrop()` of include/net/tcp.h), so a listener whose count
//! did not rise had no overflow. The reverse does not hold: a RST that ends a half-open request raises
//! `sk_drops` too, as any port scan shows, and a dropped last ACK counts twice. So `sk_drops` alone is no
//! evidence of a full queue. Where one listener alone dropped, the host's `TcpExtListenOverflows` are its
//! own. Where several dropped, each has its share by `sk_drops`, marked as estimated.
//!
//! A listener with `TCP_DEFER_ACCEPT` ignores the last ACK of each handshake and waits for the data: that
//! raises its `sk_drops` and the namespace's `TcpExtTCPDeferAcceptDrop` by 1 each, and no other count.
//! [`deferred`] tells whose they were. 40 such connections raised them by 40 and 40, and `TcpExtListenDrops`
//! by 0. They are shown as deferred, and no fault is named for them.

/// What the namespace counted over one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostDrops {
    /// Change of `TcpExtListenOverflows`.
    pub overflows: u64,
    /// Change of `TcpExtListenDrops`.
    pub drops: u64,
    /// Change of `TcpExtTCPDeferAcceptDrop`.
    pub deferred: u64,
}

/// What one listener showed over the same interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Suspect {
    /// Change of `sk_drops`; absent if it is not known.
    pub drops: Option<u64>,
    /// Whether a look of the last seconds found its queue full.
    pub was_full: bool,
}

/// A listener's part of the overflows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Part {
    /// SYNs and ACKs that met its full accept queue.
    pub packets: f64,
    /// Whether it is a share by `sk_drops` and not a count.
    pub estimated: bool,
}

impl Part {
    const NONE: Self = Self { packets: 0.0, estimated: false };

    fn exactly(packets: u64) -> Self {
        Self { packets: packets as f64, estimated: false }
    }
}

/// How many more overflows than drops the same packets can make: the host's counters are read up to some ms
/// after the listeners.
fn read_later(drops: u64) -> u64 {
    2 + drops / 20
}

/// What all listeners dropped together.
struct Dropped {
    /// Whether it is all that was dropped.
    known: bool,
    /// Listeners that dropped packets, or may have.
    risers: usize,
    sum: u64,
}

impl Dropped {
    fn by(suspects: &[Suspect], others: bool) -> Self {
        Self {
            known: !others && suspects.iter().all(|one| one.drops.is_some()),
            risers: suspects.iter().filter(|one| one.drops != Some(0)).count(),
            sum: suspects.iter().filter_map(|one| one.drops).sum(),
        }
    }
}

/// The part of each listener, in the order given. Absent: it cannot be told.
///
/// No listener has more overflows than its `sk_drops` rose by. Where the host counted more than the only
/// listener that dropped, the rest was at one that was opened and closed between two looks.
///
/// `others`: whether listeners that are not in the list may have dropped packets in the interval.
pub(super) fn attribute(
    host: Option<HostDrops>,
    suspects: &[Suspect],
    others: bool,
) -> Vec<Option<Part>> {
    let Some(host) = host else { return vec![None; suspects.len()] };
    if host.overflows == 0 {
        return vec![Some(Part::NONE); suspects.len()];
    }
    let Dropped { known, risers, sum } = Dropped::by(suspects, others);
    // Nothing but overflows was dropped, and nothing counted twice: then each count is a count of
    // overflows.
    let all_overflows = known && host.drops == host.overflows && sum == host.overflows;
    let full = |one: &Suspect| one.drops.filter(|drops| *drops > 0 && one.was_full);
    let by_full: u64 = suspects.iter().filter_map(full).sum();
    suspects
        .iter()
        .map(|one| match one.drops {
            Some(0) => Some(Part::NONE),
            None if risers == 1 && !others => Some(Part::exactly(host.overflows)),
            Some(drops)
                if risers == 1 && !others && host.overflows <= drops + read_later(drops) =>
            {
                Some(Part::exactly(host.overflows))
            }
            Some(drops) if all_overflows => Some(Part::exactly(drops)),
            // Those whose queue was seen full share the overflows. None has more than it dropped.
            _ => full(one).map(|drops| {
                let (drops, by_full) = (drops as f64, by_full as f64);
                let share = host.overflows as f64 * drops / by_full;
                Part { packets: share.min(drops), estimated: true }
            }),
        })
        .collect()
}

/// The last ACKs that `TCP_DEFER_ACCEPT` of each listener ignored, in the order given. Absent: it cannot be
/// told. `estimated`: an upper bound, as several listeners dropped packets.
///
/// `others` as in [`attribute`].
pub(super) fn deferred(
    host: Option<HostDrops>,
    suspects: &[Suspect],
    others: bool,
) -> Vec<Option<Part>> {
    let Some(host) = host else { return vec![None; suspects.len()] };
    let Dropped { known, risers, sum } = Dropped::by(suspects, others);
    // Nothing else was dropped: then each count is a count of them.
    let all_deferred = known && host.drops == 0 && sum == host.deferred;
    let deferred_part = |one: &Suspect| {
        let drops = one.drops?;
        // The host's counter is read a little later than the listener's.
        let part = Part::exactly(host.deferred.min(drops));
        let exact = drops == 0
            || host.deferred == 0
            || all_deferred
            || (known && risers == 1 && host.deferred <= drops + read_later(drops));
        Some(Part { estimated: !exact, ..part })
    };
    suspects.iter().map(deferred_part).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(overflows: u64, drops: u64) -> HostDrops {
        HostDrops { overflows, drops, deferred: 0 }
    }

    fn dropped(drops: u64) -> Suspect {
        Suspect { drops: Some(drops), was_full: false }
    }

    fn full(drops: u64) -> Suspect {
        Suspect { was_full: true, ..dropped(drops) }
    }

    const UNKNOWN: Suspect = Suspect { drops: None, was_full: false };

    fn parts(host: HostDrops, suspects: &[Suspect], others: bool) -> Vec<Option<(f64, bool)>> {
        let parts = attribute(Some(host), suspects, others).into_iter();
        parts.map(|part| part.map(|part| (part.packets, part.estimated))).collect()
    }

    #[test]
    fn the_only_listener_that_dropped_has_all_overflows_of_the_host() {
        // 60 last ACKs count twice: 100 overflows, 160 drops of the socket.
        let seen = parts(host(100, 100), &[dropped(0), dropped(160), dropped(0)], false);
        assert_eq!(seen, [Some((0.0, false)), Some((100.0, false)), Some((0.0, false))]);
        // The counters were read a little later than the listeners.
        assert_eq!(parts(host(101, 101), &[dropped(100)], false), [Some((101.0, false))]);
        // A kernel without sk_drops, and a single listener.
        assert_eq!(parts(host(7, 7), &[UNKNOWN], false), [Some((7.0, false))]);
    }

    #[test]
    fn without_an_overflow_no_drop_is_one() {
        let seen = parts(host(0, 12), &[dropped(12), UNKNOWN], true);
        assert_eq!(seen, [Some((0.0, false)); 2]);
        assert_eq!(attribute(None, &[dropped(12)], false), [None], "the host's counters broke off");
    }

    #[test]
    fn counts_that_add_up_to_the_overflows_are_exact() {
        let seen = parts(host(30, 30), &[dropped(10), dropped(20)], false);
        assert_eq!(seen, [Some((10.0, false)), Some((20.0, false))]);
    }

    #[test]
    fn otherwise_those_seen_full_share_and_the_rest_is_not_told() {
        // The second listener is scanned: its drops are RSTs.
        let seen = parts(host(100, 100), &[full(150), dropped(40), dropped(0)], false);
        assert_eq!(seen, [Some((100.0, true)), None, Some((0.0, false))]);
        let seen = parts(host(100, 100), &[full(150), full(50)], false);
        assert_eq!(seen, [Some((75.0, true)), Some((25.0, true))]);
        let seen = parts(host(100, 100), &[dropped(150), dropped(50)], false);
        assert_eq!(seen, [None, None], "none was seen full");
    }

    #[test]
    fn overflows_of_a_listener_that_no_look_saw_are_not_put_on_another() {
        // 100 overflows at a listener that lived between two looks, and one RST at another.
        let seen = parts(host(100, 100), &[dropped(1), dropped(0)], false);
        assert_eq!(seen, [None, Some((0.0, false))]);
        let seen = parts(host(100, 100), &[full(40), dropped(0)], false);
        assert_eq!(seen, [Some((40.0, true)), Some((0.0, false))]);
        assert_eq!(parts(host(100, 100), &[dropped(0)], false), [Some((0.0, false))]);
    }

    #[test]
    fn a_listener_that_vanished_may_have_had_a_part() {
        assert_eq!(parts(host(9, 9), &[dropped(9)], true), [None]);
        assert_eq!(parts(host(9, 9), &[full(4)], true), [Some((4.0, true))]);
    }

    #[test]
    fn deferred_acks_are_exact_where_one_listener_dropped_and_else_an_upper_bound() {
        let parts = |deferred_acks: u64, drops, suspects: &[Suspect], others| -> Vec<_> {
            let host = HostDrops { overflows: 0, drops, deferred: deferred_acks };
            let parts = deferred(Some(host), suspects, others).into_iter();
            parts.map(|part| part.map(|part| (part.packets, part.estimated))).collect()
        };
        assert_eq!(
            parts(40, 0, &[dropped(40), dropped(0)], false),
            [Some((40.0, false)), Some((0.0, false))]
        );
        assert_eq!(
            parts(40, 9, &[dropped(49)], false),
            [Some((40.0, false))],
            "9 were dropped too"
        );
        let both = parts(40, 0, &[dropped(30), dropped(10)], false);
        assert_eq!(both, [Some((30.0, false)), Some((10.0, false))], "they add up");
        let scanned = parts(40, 0, &[dropped(60), dropped(10)], false);
        assert_eq!(scanned, [Some((40.0, true)), Some((10.0, true))]);
        assert_eq!(parts(40, 0, &[dropped(40)], true), [Some((40.0, true))], "another vanished");
        assert_eq!(parts(0, 0, &[dropped(7), dropped(1)], true), [Some((0.0, false)); 2]);
        assert_eq!(parts(40, 0, &[UNKNOWN], false), [None]);
        let elsewhere = parts(40, 0, &[dropped(1)], false);
        assert_eq!(elsewhere, [Some((1.0, true))], "more than it dropped: another one had them");
    }

    proptest! {
        #[test]
        fn parts_are_never_negative_and_never_more_than_the_host_counted(
            overflows in 0_u64..1_000, more in 0_u64..100, others: bool,
            suspects in prop::collection::vec((prop::option::of(0_u64..500), any::<bool>()), 0..6),
        ) {
            let suspects: Vec<Suspect> =
                suspects.into_iter().map(|(drops, was_full)| Suspect { drops, was_full }).collect();
            let parts = attribute(Some(host(overflows, overflows + more)), &suspects, others);
            prop_assert_eq!(parts.len(), suspects.len());
            let sum: f64 = parts.iter().flatten().map(|part| part.packets).sum();
            prop_assert!(sum <= overflows as f64 + 1e-6, "{} of {}", sum, overflows);
            prop_assert!(parts.iter().flatten().all(|part| part.packets >= 0.0));
        }
    }
}
