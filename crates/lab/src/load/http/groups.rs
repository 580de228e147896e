//! What became of requests, by the group they belong to.
//!
//! A load whose requests differ in kind counts each kind apart: attempts, outcomes, and all of it
//! over slices of the window. A slice counts what was *due* in it, however late it was answered, so
//! a stall shows where it began. Only `completed` counts by when a success came.
//!
//! Time comes in as an argument, as time since the measured part began.

use std::collections::{BTreeMap, BTreeSet};

use tcptoll_core::stats::Histogram;

use super::Named;
use crate::messages::{GROUP_LATENCY, GROUP_SLICES, GROUPS_MAX, GroupReport, GroupSlice};

/// Checks the groups of this number of request lines; a sentence where they are wrong.
pub(super) fn check(groups: &[u8], lines: usize) -> Result<(), String> {
    if groups.is_empty() {
        return Ok(());
    }
    if groups.len() != lines {
        return Err(format!("{} groups for {lines} requests", groups.len()));
    }
    match groups.iter().find(|&&group| usize::from(group) >= GROUPS_MAX) {
        Some(group) => {
            Err(format!("group {group}: groups are numbered from 0 to {}", GROUPS_MAX - 1))
        }
        None => Ok(()),
    }
}

/// All groups of one thread.
#[derive(Debug)]
pub(super) struct Groups {
    /// By number; of those that no request belongs to nothing is reported.
    all: Vec<Group>,
    used: BTreeSet<u8>,
    begun_ns: u64,
}

/// One group.
#[derive(Debug)]
pub(super) struct Group {
    window_ns: u64,
    attempts: u64,
    ok: u64,
    errors: BTreeMap<&'static str, u64>,
    latency: Histogram,
    slices: Vec<GroupSlice>,
}

impl Groups {
    /// Of requests in these groups. `window_ns`: length of the window, where it is known before.
    ///
    /// None: requests are not grouped.
    pub(super) fn from_groups(groups: &[u8], window_ns: Option<u64>) -> Option<Self> {
        let used: BTreeSet<u8> = groups.iter().copied().collect();
        let count = usize::from(*used.last()?) + 1;
        let window_ns = window_ns.unwrap_or(0);
        let all = (0..count).map(|_| Group::new(window_ns)).collect();
        Some(Self { all, used, begun_ns: u64::MAX })
    }

    /// The group of this number, which is one of those given to [`Groups::from_groups`].
    pub(super) fn group(&mut self, number: u8) -> &mut Group {
        &mut self.all[usize::from(number)]
    }

    /// When the measured part began, ns on the monotonic clock.
    pub(super) fn begun(&mut self, at_ns: u64) {
        self.begun_ns = at_ns;
    }

    /// Adds what another thread counted of the same groups.
    pub(super) fn add(&mut self, other: &Self) {
        self.begun_ns = self.begun_ns.min(other.begun_ns);
        for (mine, theirs) in self.all.iter_mut().zip(&other.all) {
            mine.add(theirs);
        }
    }

    /// A report of each group that has requests.
    pub(super) fn reports(&self) -> Vec<GroupReport> {
        let one = |&number: &u8| {
            let group = &self.all[usize::from(number)];
            GroupReport {
                group: number,
                begun_ns: self.begun_ns,
                attempts: group.attempts,
                ok: group.ok,
                errors: group
                    .errors
                    .iter()
                    .map(|(class, count)| ((*class).to_owned(), *count))
                    .collect(),
                slice_ns: group.slice_ns(),
                slices: group.slices.clone(),
            }
        };
        self.used.iter().map(one).collect()
    }

    /// The latencies of each group that has any.
    pub(super) fn into_histograms(self) -> impl Iterator<Item = Named> {
        let named = GROUP_LATENCY.into_iter().zip(self.all.into_iter().map(|group| group.latency));
        named.filter(|(_, latency)| latency.count() > 0)
    }
}

impl Group {
    fn new(window_ns: u64) -> Self {
        let slices = if window_ns == 0 { 0 } else { GROUP_SLICES };
        Self {
            window_ns,
            attempts: 0,
            ok: 0,
            errors: BTreeMap::new(),
            latency: Histogram::new(),
            slices: vec![GroupSlice::default(); slices],
        }
    }

    /// Length of one slice, rounded up: together they cover the window.
    fn slice_ns(&self) -> u64 {
        self.window_ns.div_ceil(GROUP_SLICES as u64)
    }

    /// The slice of an instant. None: it is outside of the window.
    fn slice(&mut self, since_ns: u64) -> Option<&mut GroupSlice> {
        let at = since_ns.checked_div(self.slice_ns())?;
        self.slices.get_mut(usize::try_from(at).ok()?)
    }

    /// A request was due.
    pub(super) fn due(&mut self, since_ns: u64) {
        self.attempts += 1;
        if let Some(slice) = self.slice(since_ns) {
            slice.due += 1;
        }
    }

    /// A request that was due then has succeeded, this long after.
    pub(super) fn ok(&mut self, due_since_ns: u64, latency_ns: u64) {
        self.ok_untimed(due_since_ns);
        self.latency.record_ns(latency_ns);
        if let Some(slice) = self.slice(due_since_ns) {
            let [least, sum, greatest] = slice.latency_ns.unwrap_or([u64::MAX, 0, 0]);
            let sum = sum.saturating_add(latency_ns);
            slice.latency_ns = Some([least.min(latency_ns), sum, greatest.max(latency_ns)]);
        }
    }

    /// A request that was due then has succeeded; how long it took is not known.
    pub(super) fn ok_untimed(&mut self, due_since_ns: u64) {
        self.ok += 1;
        if let Some(slice) = self.slice(due_since_ns) {
            slice.ok += 1;
        }
    }

    /// A success came.
    pub(super) fn completed(&mut self, since_ns: u64) {
        if let Some(slice) = self.slice(since_ns) {
            slice.completed += 1;
        }
    }

    /// A request that was due then has failed.
    pub(super) fn failed(&mut self, due_since_ns: u64, class: &'static str) {
        *self.errors.entry(class).or_default() += 1;
        if let Some(slice) = self.slice(due_since_ns) {
            slice.failed += 1;
        }
    }

    fn add(&mut self, other: &Self) {
        self.attempts += other.attempts;
        self.ok += other.ok;
        for (class, count) in &other.errors {
            *self.errors.entry(class).or_default() += count;
        }
        self.latency.merge(&other.latency);
        for (mine, theirs) in self.slices.iter_mut().zip(&other.slices) {
            mine.add(theirs);
        }
    }
}

impl GroupSlice {
    fn add(&mut self, other: &Self) {
        self.due += other.due;
        self.ok += other.ok;
        self.failed += other.failed;
        self.completed += other.completed;
        self.latency_ns = match (self.latency_ns, other.latency_ns) {
            (Some([least, sum, greatest]), Some([lower, more, higher])) => {
                Some([least.min(lower), sum.saturating_add(more), greatest.max(higher)])
            }
            (mine, theirs) => mine.or(theirs),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_count_by_when_a_request_was_due_and_completions_by_when_they_came() {
        // 200 slices of 10 ns.
        let mut groups = Groups::from_groups(&[1, 0, 1], Some(2_000)).unwrap();
        let group = groups.group(1);
        group.due(19);
        group.ok(19, 500);
        group.completed(519);
        group.due(15);
        group.failed(15, "timeout");
        // After the window: an attempt like any other, in no slice.
        group.due(2_000);
        group.failed(2_000, "unsent");
        groups.begun(7);
        let [local, backend] = groups.reports().try_into().unwrap();
        assert_eq!((local.group, local.attempts, backend.group), (0, 0, 1));
        assert_eq!((backend.attempts, backend.ok, backend.begun_ns), (3, 1, 7));
        assert_eq!(backend.errors, [("timeout".to_owned(), 1), ("unsent".to_owned(), 1)].into());
        assert_eq!((backend.slice_ns, backend.slices.len()), (10, GROUP_SLICES));
        let stalled = GroupSlice {
            due: 2,
            ok: 1,
            failed: 1,
            completed: 0,
            latency_ns: Some([500, 500, 500]),
        };
        assert_eq!(backend.slices[1], stalled);
        assert_eq!(backend.slices[51], GroupSlice { completed: 1, ..GroupSlice::default() });
    }

    #[test]
    fn threads_add_up_and_groups_without_requests_are_not_reported() {
        let one = |latency_ns, begun_ns| {
            let mut groups = Groups::from_groups(&[3, 3], Some(2_000)).unwrap();
            groups.group(3).due(0);
            groups.group(3).ok(0, latency_ns);
            groups.begun(begun_ns);
            groups
        };
        let mut all = one(50, 9);
        all.add(&one(70, 8));
        let [only] = all.reports().try_into().unwrap();
        assert_eq!((only.group, only.begun_ns, only.ok), (3, 8, 2));
        assert_eq!(only.slices[0].latency_ns, Some([50, 120, 70]));
        let [(name, latency)] = all.into_histograms().collect::<Vec<_>>().try_into().unwrap();
        assert_eq!((name, latency.count()), ("latency_group_3", 2));
        assert!(Groups::from_groups(&[], Some(1)).is_none());
    }

    #[test]
    fn groups_must_fit_the_requests_and_the_limit() {
        assert!(check(&[], 5).is_ok() && check(&[0, 3], 2).is_ok());
        assert!(check(&[0], 2).is_err() && check(&[4], 1).is_err());
    }
}
