//! A server with little room in the simulated world, and the rules that its reaper must keep.

use std::time::Duration;

use tcp_heartbeat::{Order, Reaper, ReaperStep, Reaping, Stop};

use super::{Chance, Event, NEVER, Outcome, Peer, Wake, World};

pub(super) struct ReaperWorld {
    world: World,
    reaper: Reaper<usize>,
    waiting: Vec<usize>,
    began: Option<Duration>,
}

impl ReaperWorld {
    pub(super) fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let ms = Duration::from_millis;
        let tick = chance.time(ms(1), ms(50));
        let mut reaping = Reaping::new(1 + chance.below(8) as usize);
        reaping.answer_within = chance.time(tick, ms(1_000));
        reaping.unused_for = (!chance.one_in(2)).then(|| chance.time(ms(0), ms(1_000)));
        reaping.stop = if chance.one_in(2) { Stop::BelowMost } else { Stop::WholeSet };
        reaping.order = if chance.one_in(2) { Order::LastUse } else { Order::Age };
        reaping.at_once = 1 + chance.below(6) as usize;
        reaping.min_interval = chance.time(ms(0), ms(500));
        reaping.tick = tick;
        let world = World::new(seed, chance, reaping.answer_within, ms(4_000));
        Self { world, reaper: Reaper::new(reaping), waiting: Vec::new(), began: None }
    }

    /// How long it may take until the dead are closed, when somebody waits all the time: the reap
    /// that runs, and a whole one.
    fn patience(&self) -> Duration {
        let reaping = self.reaper.reaping();
        let whole = 8 * (reaping.answer_within + 5 * reaping.tick + 8 * self.world.lag);
        let unused_for = reaping.unused_for.unwrap_or_default();
        2 * whole + 2 * reaping.min_interval + unused_for
    }

    pub(super) fn run(mut self) -> Outcome {
        let patience = self.patience();
        let end = Duration::from_secs(5) + patience;
        while let Some(wake) = self.world.wait(self.reaper.next_due(), end) {
            if let Wake::By(event) = wake {
                self.happens(event);
            }
            loop {
                while let Some(step) = self.reaper.next(self.world.now) {
                    self.step(step);
                    if self.world.is_endless() {
                        break;
                    }
                }
                self.check_end_of_reap();
                if !self.admit() || self.world.is_endless() {
                    break;
                }
            }
        }
        if !self.waiting.is_empty() {
            self.world.count_overlooked(end.saturating_sub(patience));
        }
        self.world.outcome
    }

    /// Accepts who waits; true: a reap may have begun.
    fn admit(&mut self) -> bool {
        let now = self.world.now;
        while self.reaper.has_room() && !self.waiting.is_empty() {
            let index = self.waiting.remove(0);
            let peer = &mut self.world.peers[index];
            peer.member = Some(self.reaper.insert(index, now));
            (peer.opened, peer.heard, peer.sent) = (now, now, now);
        }
        if self.waiting.is_empty() || self.reaper.is_reaping() {
            return false;
        }
        self.reaper.room_wanted(now);
        self.reaper.is_reaping()
    }

    fn happens(&mut self, event: Event) {
        let now = self.world.now;
        let (Event::Open(index) | Event::Arrive(index) | Event::Close(index)) = event;
        let peer = &mut self.world.peers[index];
        match (event, peer.member) {
            (Event::Open(_), _) => {
                self.waiting.push(index);
                if !self.reaper.has_room() {
                    self.reaper.room_wanted(now);
                }
            }
            (Event::Arrive(_), Some(member)) => {
                self.reaper.used(member, now);
                peer.heard = now;
                peer.tested = false;
            }
            (Event::Close(_), Some(member)) => {
                self.world.outcome.faults += u64::from(self.reaper.remove(member) != Some(index));
                self.reaper.used(member, now); // stale: nothing happens
                peer.member = None;
            }
            _ => {}
        }
    }

    fn step(&mut self, step: ReaperStep<usize>) {
        match step {
            ReaperStep::Test(_, index) => {
                let broken = self.broken_rules(index);
                self.world.outcome.faults += broken;
                self.world.test(index);
                self.world.peers[index].reaped = self.reaper.reap_began();
            }
            ReaperStep::Look(member, index) | ReaperStep::Judge(member, index)
                if self.world.has_evidence(index) =>
            {
                let now = self.world.now;
                let peer = &mut self.world.peers[index];
                peer.tested = false;
                if self.world.answers {
                    self.reaper.used(member, now);
                    peer.heard = now;
                } else {
                    self.reaper.acknowledged(member);
                    peer.heard = peer.heard.max(peer.sent);
                }
            }
            ReaperStep::Look(..) => {}
            ReaperStep::Judge(_, index)
                if self.world.peers[index].put_off < 3 && self.world.chance.one_in(8) =>
            {
                self.world.peers[index].put_off += 1;
            }
            ReaperStep::Judge(member, index) => {
                let peer = &self.world.peers[index];
                let reaping = self.reaper.reaping();
                let deadline = peer.sent
                    + reaping.answer_within
                    + peer.put_off * reaping.tick
                    + (1 + peer.put_off) * self.world.lag;
                self.reaper.remove(member);
                self.world.close(index, deadline);
            }
        }
    }

    /// How many rules the test of a peer breaks, just before it.
    fn broken_rules(&mut self, index: usize) -> u64 {
        let reaping = self.reaper.reaping();
        let (now, peer) = (self.world.now, &self.world.peers[index]);
        let began = self.reaper.reap_began().unwrap_or(NEVER);
        let too_soon = match self.began {
            Some(last) if last != began => began < last + reaping.min_interval,
            _ => false,
        };
        self.began = Some(began);
        let resting = |peer: &&Peer| peer.member.is_some() && !peer.tested;
        let stamp = |peer: &Peer| peer.heard.max(peer.sent);
        let first = self.world.peers.iter().filter(resting).map(stamp).min();
        let rules = [
            too_soon,
            peer.tested,
            // At most once a reap, and none that came after its beginning.
            peer.opened > began || peer.reaped == Some(began),
            self.reaper.len() > reaping.limit,
            self.reaper.under_test() > reaping.at_once,
            reaping.stop == Stop::BelowMost && self.reaper.has_room(),
            reaping.unused_for.is_some_and(|unused_for| peer.heard + unused_for > now),
            reaping.order == Order::LastUse && first != Some(stamp(peer)),
        ];
        rules.into_iter().filter(|&broken| broken).count() as u64
    }

    /// A reap of the whole set has tested everyone whom it had to.
    fn check_end_of_reap(&mut self) {
        let reaping = self.reaper.reaping();
        let Some(began) = self.reaper.reap_began() else { return };
        if self.reaper.is_reaping() || reaping.stop == Stop::BelowMost {
            return;
        }
        let unused_for = reaping.unused_for.unwrap_or_default();
        let forgotten = self.world.peers.iter().filter(|peer| {
            peer.member.is_some()
                && peer.opened < began
                && peer.reaped != Some(began)
                && peer.heard + unused_for < began
        });
        self.world.outcome.faults += forgotten.count() as u64;
    }
}
