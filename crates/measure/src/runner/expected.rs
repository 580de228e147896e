//! How long the rest of a run is expected to take.

use super::{Runner, conclusion};

impl Runner<'_> {
    /// What another round is expected to take, s: as the last ones did, where there are any.
    pub(super) fn round_s(&self) -> f64 {
        (0..self.schedule.arms.len()).map(|arm| self.trial_s(arm)).sum()
    }

    /// As long as the last one that counts; the first one of an arm has also measured its link and
    /// looked closer.
    fn trial_s(&self, arm: usize) -> f64 {
        let name = &self.schedule.arms[arm].name;
        let last = self.trials.iter().rev().find(|t| t.arm.name == *name && t.counts());
        let expected_s = self.schedule.expected_s(arm);
        match last {
            Some(trial) if trial.round == 0 => {
                trial.took_s.min(expected_s.max(trial.arm.elapsed_s))
            }
            Some(trial) => trial.took_s,
            None => expected_s,
        }
    }

    /// What is left of the plan, if nothing is run again.
    pub(super) fn left_s(&self) -> f64 {
        let rule = &self.schedule.rule;
        let done = self.rounds_done();
        let of_this_round: f64 = (0..self.schedule.arms.len())
            .filter(|arm| self.next_attempt(done, *arm).is_none())
            .map(|arm| self.trial_s(arm))
            .sum();
        let all = f64::from(rule.max.saturating_sub(done)) * self.round_s() - of_this_round;
        let elapsed = conclusion::elapsed_s(&self.trials);
        rule.max_time.map_or(all, |limit| all.min(limit.as_secs_f64() - elapsed)).max(0.0)
    }
}
