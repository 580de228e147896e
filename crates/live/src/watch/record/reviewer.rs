//! Sums a record up, line by line.

use std::collections::BTreeMap;

use super::check::{self, Misfit};
use super::review::{
    DESTINATIONS_STATED, DestinationReview, EPISODES_MAX, Episode, GAPS_MAX, Gap, LISTENERS_STATED,
    ListenerReview, MERGE_S, Peak, Review,
};
use super::{
    DestinationPart, DiagnosisLine, DiagnosisPart, Interval, ListenerLine, ListenerPart,
    WatchHeader, WatchLine, greatest,
};
use crate::watch::diagnoses::{is_lasting, overload};
use tcptoll_core::finding::Finding;

/// Descriptions that are remembered, at most.
const DESCRIBED_MAX: usize = 65_536;
/// Listeners, and destinations, that are followed, at most.
const FOLLOWED_MAX: usize = 8_192;
/// A time between two looks that is this many times the asked one, and [`GAP_MIN_S`] longer, is a gap.
const GAP_TIMES: f64 = 2.0;
const GAP_MIN_S: f64 = 1.0;

/// Sums up a record. Memory is bounded: 65,536 descriptions of at most 300 B, 8,192 listeners and
/// destinations, 500 episodes with their fixes.
#[derive(Clone, Debug, Default)]
pub struct Reviewer {
    review: Review,
    /// Address and port by number.
    listeners: BTreeMap<u32, (String, u16)>,
    of_listeners: BTreeMap<(String, u16), ListenerReview>,
    of_destinations: BTreeMap<String, DestinationReview>,
    diagnoses: BTreeMap<u32, DiagnosisLine>,
    /// The newest episode of each name and subject, and how much its fix says.
    episodes: BTreeMap<(String, String), (Episode, DiagnosisPart, u8)>,
    ended: Vec<Episode>,
    last_s: f64,
    /// Time in which the machine was suspended, s.
    suspended_s: f64,
    /// Whether the header was taken.
    begun: bool,
    summed: bool,
}

impl Reviewer {
    /// Takes a line.
    ///
    /// Errors: no watch writes such a line here.
    pub fn line(&mut self, line: WatchLine) -> Result<(), Misfit> {
        self.summed = false;
        if !self.begun && !matches!(line, WatchLine::WatchHeader(_)) {
            return Err(Misfit::from("it is the first line, but not a watch-header"));
        }
        match line {
            WatchLine::WatchHeader(_) if self.begun => {
                return Err(Misfit::from("it is a second watch-header, but a record has only one"));
            }
            WatchLine::WatchHeader(header) => return self.header(*header),
            WatchLine::Listener(line) => self.describe_listener(*line),
            WatchLine::Diagnosis(line) => {
                if self.diagnoses.len() >= DESCRIBED_MAX {
                    return Err(Misfit::from(
                        "the record has more diagnoses than a watch can have",
                    ));
                }
                self.diagnoses.insert(line.n, *line);
            }
            WatchLine::State(interval) => return self.interval(*interval),
            WatchLine::WatchSummary(summary) => {
                check::summary(&summary)?;
                self.review.missed = Some(summary.missed);
                self.summed = true;
            }
            WatchLine::WatchStopped(stopped) => self.review.stopped = Some(stopped.reason),
            WatchLine::Unknown => {}
        }
        Ok(())
    }

    fn header(&mut self, header: WatchHeader) -> Result<(), Misfit> {
        check::header(&header)?;
        self.begun = true;
        self.review = Review {
            kind: "watch".to_owned(),
            record_version: header.record_version,
            tcptoll_version: header.tcptoll_version,
            command: header.command,
            host: header.host,
            started_at: header.started_at,
            interval_s: header.interval_s,
            passport: header.passport,
            ..Review::default()
        };
        Ok(())
    }

    fn describe_listener(&mut self, line: ListenerLine) {
        if self.listeners.len() >= DESCRIBED_MAX {
            self.listeners.pop_first();
        }
        let key = (line.address, line.port);
        self.listeners.insert(line.n, key.clone());
        if self.of_listeners.len() >= FOLLOWED_MAX && !self.of_listeners.contains_key(&key) {
            self.review.listeners_left_out += 1;
            return;
        }
        let (address, port) = key.clone();
        let fresh = || ListenerReview { address, port, ..ListenerReview::default() };
        let known = self.of_listeners.entry(key).or_insert_with(fresh);
        known.sockets = known.sockets.saturating_add(1);
        known.accept_queue_limit = line.accept_queue_limit;
        known.process = line.process.or(known.process.take());
    }

    fn interval(&mut self, interval: Interval) -> Result<(), Misfit> {
        check::interval(&interval, self.last_s, self.suspended_s)?;
        self.suspended_s += interval.suspended_s;
        let at_s = interval.at_s;
        self.last_s = at_s;
        let review = &mut self.review;
        review.lines += 1;
        review.looks += u64::from(interval.looks);
        review.joined_most = review.joined_most.max(interval.looks);
        review.lasted_s = at_s;
        review.counted_s += interval.counted_s();
        for (name, count) in interval.all_counts() {
            let sum = review.counts.entry(name.to_owned()).or_default();
            *sum = sum.saturating_add(count);
            let Some(value) = interval.peak_per_s(name) else { continue };
            let peak = review.peaks_per_s.entry(name.to_owned()).or_default();
            if value > peak.value {
                *peak = Peak { value, at_s };
            }
        }
        for (state, sockets) in &interval.states {
            let most = review.states.entry(state.clone()).or_default();
            *most = (*most).max(*sockets);
        }
        if let Some(limits) = &interval.limits {
            review.limits = (**limits).clone();
        }
        review.listeners_idle = review.listeners_idle.max(interval.idle);
        if let Some(others) = &interval.others {
            review.drops_of_others = review.drops_of_others.saturating_add(others.drops);
        }
        let asked_s = review.interval_s;
        let longest_s = interval.longest_s();
        if longest_s > GAP_TIMES * asked_s && longest_s > asked_s + GAP_MIN_S
            || interval.suspended_s > GAP_MIN_S
        {
            review.gaps.push(Gap { at_s, lasted_s: longest_s, suspended_s: interval.suspended_s });
            if review.gaps.len() > 2 * GAPS_MAX {
                longest_gaps(review);
            }
        }
        for part in &interval.listeners {
            self.listener(part, &interval)?;
        }
        for one in &interval.destinations {
            self.destination(one, at_s);
        }
        for part in &interval.diagnoses {
            self.diagnosis(part, at_s)?;
        }
        self.review.levels = greatest(&self.review.levels, &interval.levels);
        self.review.ended_at = Some(interval.time);
        Ok(())
    }

    fn listener(&mut self, part: &ListenerPart, interval: &Interval) -> Result<(), Misfit> {
        let Some(key) = self.listeners.get(&part.n) else {
            return Err(Misfit::from("it names a listener that no line before it describes"));
        };
        let Some(known) = self.of_listeners.get_mut(key) else {
            self.review.drops_of_others = self.review.drops_of_others.saturating_add(part.drops);
            return Ok(());
        };
        if part.queue > known.accept_queue_peak {
            known.accept_queue_peak = part.queue;
            known.peak_at_s = interval.at_s;
        }
        known.drops = known.drops.saturating_add(part.drops);
        known.overflows += part.overflows.0;
        known.overflows_estimated |= part.estimated;
        known.overflows_unknown_s += part.unknown_s;
        let mean = (interval.counted_s() > 0.0).then(|| part.overflows.0 / interval.counted_s());
        let peak = part.overflows_peak_per_s.or(mean).filter(|_| part.overflows.0 > 0.0);
        if peak > known.overflows_peak_per_s {
            known.overflows_peak_per_s = peak;
        }
        Ok(())
    }

    fn destination(&mut self, one: &DestinationPart, at_s: f64) {
        let full = self.of_destinations.len() >= FOLLOWED_MAX;
        if full && !self.of_destinations.contains_key(&one.to) {
            self.review.destinations_left_out += 1;
            return;
        }
        let fresh = || DestinationReview { to: one.to.clone(), ..DestinationReview::default() };
        let known = self.of_destinations.entry(one.to.clone()).or_insert_with(fresh);
        if one.ports_in_use > known.ports_in_use {
            known.ports_in_use = one.ports_in_use;
            known.at_s = at_s;
        }
        known.time_wait = known.time_wait.max(one.time_wait);
        known.syn_sent = known.syn_sent.max(one.syn_sent);
        known.ports_left = [known.ports_left, one.ports_left].into_iter().flatten().min();
    }

    fn diagnosis(&mut self, part: &DiagnosisPart, at_s: f64) -> Result<(), Misfit> {
        let Some(line) = self.diagnoses.get(&part.n) else {
            return Err(Misfit::from("it names a diagnosis that no line before it describes"));
        };
        let about = &line.diagnosis;
        let key = (about.id.clone(), about.subject.clone());
        if let Some((episode, sum, told)) = self.episodes.get_mut(&key)
            && part.from_s - sum.to_s <= MERGE_S
        {
            let worst = sum.worst;
            sum.add(part.clone());
            if sum.worst > worst {
                episode.worst_at_s = at_s;
            }
            episode.severity = episode.severity.min(about.severity);
            // A burst that became a lasting overload has another fix.
            let rank = rank(about);
            if rank > *told {
                *told = rank;
                episode.fix = about.fix().cloned();
            }
            return Ok(());
        }
        let episode = Episode {
            id: about.id.clone(),
            severity: about.severity,
            subject: about.subject.clone(),
            text: part.text.clone(),
            from_s: part.from_s,
            to_s: part.to_s,
            active_s: part.active_s,
            worst_at_s: at_s,
            ongoing: false,
            fix: about.fix().cloned(),
        };
        let told = rank(about);
        if let Some((before, sum, _)) = self.episodes.insert(key, (episode, part.clone(), told)) {
            self.ended.push(closed(before, &sum));
        }
        if self.ended.len() > 2 * EPISODES_MAX {
            self.review.episodes_left_out += worst_episodes(&mut self.ended);
        }
        Ok(())
    }

    /// What the lines say together. `cut`: the last line of the file was not whole.
    pub fn finish(mut self, cut: bool) -> Review {
        let last_s = self.last_s;
        let asked_s = self.review.interval_s;
        for (episode, sum, _) in self.episodes.into_values() {
            let mut episode = closed(episode, &sum);
            episode.ongoing = last_s - episode.to_s < asked_s.max(0.001);
            self.ended.push(episode);
        }
        let mut review = self.review;
        review.killed = !self.summed && review.stopped.is_none();
        review.cut = cut;
        review.episodes_left_out += worst_episodes(&mut self.ended);
        self.ended.sort_by(|a, b| {
            a.from_s.total_cmp(&b.from_s).then_with(|| a.severity.cmp(&b.severity))
        });
        review.episodes = self.ended;
        let mut listeners: Vec<ListenerReview> = self.of_listeners.into_values().collect();
        listeners.sort_by(|a, b| {
            let matters = |one: &ListenerReview| (one.drops, one.accept_queue_peak);
            matters(b)
                .cmp(&matters(a))
                .then_with(|| (a.port, a.address.as_str()).cmp(&(b.port, b.address.as_str())))
        });
        review.listeners_left_out += listeners.len().saturating_sub(LISTENERS_STATED) as u64;
        listeners.truncate(LISTENERS_STATED);
        review.listeners = listeners;
        let mut destinations: Vec<_> = self.of_destinations.into_values().collect();
        destinations
            .sort_by(|a, b| b.ports_in_use.cmp(&a.ports_in_use).then_with(|| a.to.cmp(&b.to)));
        let more = destinations.len().saturating_sub(DESTINATIONS_STATED) as u64;
        review.destinations_left_out += more;
        destinations.truncate(DESTINATIONS_STATED);
        review.destinations = destinations;
        longest_gaps(&mut review);
        review
    }
}

/// The fix of a lasting overload stands before that of bursts, and that before one of which neither is known.
fn rank(one: &Finding) -> u8 {
    match overload(one) {
        _ if one.remedies.is_empty() => 0,
        Some(_) if is_lasting(one) => 3,
        Some(_) => 2,
        None => 1,
    }
}

fn closed(episode: Episode, sum: &DiagnosisPart) -> Episode {
    Episode {
        text: sum.text.clone(),
        from_s: sum.from_s.max(0.0),
        to_s: sum.to_s,
        active_s: sum.active_s,
        ..episode
    }
}

/// Keeps problems first, then those that lasted longest. Gives how many went.
fn worst_episodes(all: &mut Vec<Episode>) -> u64 {
    let more = all.len().saturating_sub(EPISODES_MAX);
    if more > 0 {
        all.sort_by(|a, b| {
            a.severity.cmp(&b.severity).then_with(|| b.active_s.total_cmp(&a.active_s))
        });
        all.truncate(EPISODES_MAX);
    }
    more as u64
}

fn longest_gaps(review: &mut Review) {
    let more = review.gaps.len().saturating_sub(GAPS_MAX);
    if more > 0 {
        review.gaps.sort_by(|a, b| b.lasted_s.total_cmp(&a.lasted_s));
        review.gaps.truncate(GAPS_MAX);
        review.gaps.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    }
    review.gaps_left_out += more as u64;
}
