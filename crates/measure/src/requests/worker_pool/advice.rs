//! What keeps workers from waiting for a stopped backend: each setting with its cost, how to undo it,
//! and what the arm of the same run that has it measured. A setting that the run shows to be useless
//! is stated as such.

use std::collections::BTreeSet;

use tcptoll_core::record::{Advice, Summary};

use super::effects::{FIXES, Factor, PoolArm, SLOWER, STUCK, plainest, workers};

/// A setting that may keep workers from waiting.
struct Fix {
    /// The options of an arm that has it; the first fix whose options are all changed is meant.
    options: &'static [&'static str],
    /// What to change, where it helped or was not measured.
    change: &'static str,
    /// What to know where the run shows that it does not help.
    useless: &'static str,
    cost: &'static str,
    undo: &'static str,
    /// Whether it is advised without a proof.
    general: bool,
}

/// The more special first.
const ALL: [Fix; 10] = [
    Fix {
        options: &["retries", "backoff"],
        change: "Retry a failed backend call only with exponential backoff and jitter, and with a \
                 connect timeout.",
        useless: "Do not let a worker wait between retries. Backoff and jitter protect the \
                  backend, but the pause holds the worker.",
        cost: "A worker is busy during the pauses, and the request waits longer before it fails.",
        undo: "Set the number of retries to 0.",
        general: false,
    },
    Fix {
        options: &["retries"],
        change: "Allow few retries, and set a short connect timeout: together they limit the wait.",
        useless: "Do not retry immediately: each retry holds the worker for another timeout and \
                  sends the backend another SYN.",
        cost: "A call fails that might have succeeded at a further attempt.",
        undo: "Restore the previous number of retries.",
        general: false,
    },
    Fix {
        options: &["cache"],
        change: "Answer from a local cache in front of the backend, and let one worker at a time \
                 refresh an expired value.",
        useless: "A local cache does not help here: too few requests find their value in it.",
        cost: "Answers are as old as the cache allows, and older during a stall. The values use \
               memory.",
        undo: "Turn the cache off.",
        general: true,
    },
    Fix {
        options: &["connection", "answer-timeout"],
        change: "Keep connections to the backend open (a connection pool), with a response \
                 timeout.",
        useless: "A connection pool does not help here, even with a response timeout.",
        cost: "One backend connection for each worker, including idle workers. Calls that take \
               longer than the timeout fail.",
        undo: "Connect for each request, and remove the response timeout.",
        general: false,
    },
    Fix {
        options: &["connection"],
        change: "Keep connections to the backend open (a connection pool): a stall of accept(2) \
                 does not affect them.",
        useless: "Do not rely on a connection pool alone: a backend that does not respond stalls \
                  established connections too. Set a response timeout as well.",
        cost: "One backend connection for each worker, including idle workers.",
        undo: "Connect for each request.",
        general: false,
    },
    Fix {
        options: &["abort-on-overflow"],
        change: "Set net.ipv4.tcp_abort_on_overflow=1 on the backend, so that it resets a \
                 connection whose final ACK meets a full queue.",
        useless: "Do not rely on net.ipv4.tcp_abort_on_overflow=1: a SYN that meets a full queue \
                  is still dropped silently, so the worker waits.",
        cost: "Bursts that a retransmission would have survived become errors.",
        undo: "Set net.ipv4.tcp_abort_on_overflow=0.",
        general: false,
    },
    Fix {
        options: &["backend-backlog"],
        change: "Raise the backlog of the backend and net.core.somaxconn, so that the queue holds \
                 the connections that arrive while the backend does not accept.",
        useless: "Do not rely on a larger backlog: the calls in the queue wait for their responses \
                  until the stall ends, and no connect timeout ends them.",
        cost: "About 2.7 kB of kernel memory for each connection that waits. Calls fail \
               later.",
        undo: "Restore the previous backlog, and restart the backend.",
        general: false,
    },
    Fix {
        options: &["workers"],
        change: "Start more workers: more than the backend calls per second, multiplied by the \
                 wait of each call.",
        useless: "Do not add workers instead of a timeout: the stall blocks them as well.",
        cost: "Memory of each worker, including idle workers.",
        undo: "Restore the previous number of workers.",
        general: false,
    },
    Fix {
        options: &["connect-timeout"],
        change: "Set a short connect timeout for the backend: a few round trips, far below 1 s.",
        useless: "Do not rely on the connect timeout alone: too many workers wait for a response, \
                  or wait too long. Shorten it, and set a response timeout too.",
        cost: "Calls fail that would have succeeded after a retransmitted SYN, 1 s later.",
        undo: "Remove the timeout.",
        general: true,
    },
    Fix {
        options: &["answer-timeout"],
        change: "Set a timeout for responses of the backend.",
        useless: "Do not rely on the response timeout alone: workers wait for a connection as \
                  well. Set a connect timeout too.",
        cost: "Calls that take longer than the timeout fail.",
        undo: "Remove the timeout.",
        general: true,
    },
];

/// An arm of the run that has a fix, next to one that has not.
struct TriedFix<'a> {
    told: PoolArm<'a>,
    ill: PoolArm<'a>,
    fix: &'static Fix,
    /// Local latency without the fix relative to that with it.
    faster: Option<Factor>,
}

impl TriedFix<'_> {
    fn helped(&self) -> bool {
        !self.told.all_busy() && self.faster.is_some_and(|faster| faster.ratio >= SLOWER)
    }

    fn ratio(&self) -> f64 {
        self.faster.map_or(0.0, |faster| faster.ratio)
    }

    fn advice(&self) -> Advice {
        let Fix { change, useless, cost, undo, .. } = self.fix;
        let latency = self.faster.map(|faster| {
            let ill = &self.ill.arm.name;
            format!("latency without backend calls {} than in {ill}", faster.lower())
        });
        let busy = self
            .told
            .busy()
            .map(|busy| format!("{} of {} workers busy", workers(busy), self.told.pool.workers));
        let figures: Vec<String> = [latency, busy].into_iter().flatten().collect();
        Advice {
            cause: STUCK.to_owned(),
            change: if self.helped() { *change } else { *useless }.to_owned(),
            cost: (*cost).to_owned(),
            undo: (*undo).to_owned(),
            proof: (!figures.is_empty())
                .then(|| format!("arm {}: {}", self.told.arm.name, figures.join("; "))),
        }
    }
}

/// Every fix that the run tried, the most effective first, and what else is generally advised.
pub(super) fn advise(summary: &Summary) -> Vec<Advice> {
    let tried = tried(summary);
    let mut advice: Vec<Advice> = tried.iter().map(TriedFix::advice).collect();
    let untried = ALL.iter().filter(|fix| {
        let option = fix.options[0];
        let typed = summary.command.iter().any(|word| word.strip_prefix("--") == Some(option));
        let useful = option != "connect-timeout" || connects_waited(summary);
        fix.general
            && useful
            && !typed
            && !tried.iter().any(|tried| tried.fix.options.contains(&option))
    });
    advice.extend(untried.map(|fix| Advice {
        cause: STUCK.to_owned(),
        change: fix.change.to_owned(),
        cost: fix.cost.to_owned(),
        undo: fix.undo.to_owned(),
        proof: None,
    }));
    advice
}

/// Whether calls of an arm without a free worker waited for a connection. A connect timeout is of no
/// use to calls that wait for an answer only: those of open connections, or of a queue with room.
fn connects_waited(summary: &Summary) -> bool {
    let told = summary.arms.iter().filter_map(PoolArm::from_arm);
    told.filter(|told| told.is_stuck()).any(PoolArm::connects_waited)
}

/// The arms that differ from the plainest one without a free worker in fixes alone.
fn tried(summary: &Summary) -> Vec<TriedFix<'_>> {
    let told: Vec<PoolArm<'_>> = summary.arms.iter().filter_map(PoolArm::from_arm).collect();
    let Some(ill) = plainest(&told) else { return Vec::new() };
    let mut tried: Vec<TriedFix<'_>> = told
        .iter()
        .filter(|one| one.pool.stalled_s.is_some())
        .filter_map(|one| {
            let changed = changed(one.arm, ill.arm);
            if !changed.iter().all(|option| FIXES.contains(option)) {
                return None;
            }
            let has = |fix: &&Fix| fix.options.iter().all(|option| changed.contains(option));
            let fix = ALL.iter().find(has)?;
            let ill = without_retries(&told, *one).unwrap_or(ill);
            Some(TriedFix { told: *one, ill, fix, faster: Factor::between(summary, ill, *one) })
        })
        .collect();
    tried.sort_by(|a, b| {
        (b.helped(), b.ratio())
            .partial_cmp(&(a.helped(), a.ratio()))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    tried
}

/// The arm that is the same but for retries: what retries change is their effect alone.
fn without_retries<'a>(told: &[PoolArm<'a>], one: PoolArm<'a>) -> Option<PoolArm<'a>> {
    const RETRIES: [&str; 3] = ["retries", "backoff", "jitter"];
    one.arm.factors.contains_key(RETRIES[0]).then_some(())?;
    let same = |other: &&PoolArm<'a>| {
        let changed = changed(one.arm, other.arm);
        changed.contains(RETRIES[0])
            && changed.iter().all(|option| RETRIES.contains(option))
            && !other.arm.factors.contains_key(RETRIES[0])
            && other.pool.stalled_s.is_some()
    };
    told.iter().find(same).copied()
}

/// Options whose level differs; an arm without a level has the setting of the run.
fn changed<'a>(
    a: &'a tcptoll_core::record::Arm,
    b: &'a tcptoll_core::record::Arm,
) -> BTreeSet<&'a str> {
    let all = a.factors.keys().chain(b.factors.keys()).map(String::as_str);
    all.filter(|option| a.factors.get(*option) != b.factors.get(*option)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::tests::{arm, summary};
    use super::*;
    use tcptoll_core::record::Arm;

    fn with(name: &str, factors: &[(&str, &str)], busy: f64, during_us: f64) -> Arm {
        let mut arm = arm(name, busy, during_us);
        let factors =
            factors.iter().map(|(option, level)| ((*option).to_owned(), Value::from(*level)));
        arm.factors = factors.collect();
        arm
    }

    #[test]
    fn what_the_run_tried_comes_first_with_its_proof_and_a_false_remedy_is_named() {
        let arms = vec![
            with("stalled", &[], 20.0, 800e3),
            with("at once", &[("connect-timeout", "100ms"), ("retries", "3")], 20.0, 300e3),
            with("limit", &[("connect-timeout", "100ms")], 10.0, 520.0),
        ];
        let advice = advise(&summary(arms, &[("limit", "stalled")]));
        assert!(advice[0].change.starts_with("Set a short connect timeout"), "{advice:?}");
        assert_eq!(
            advice[0].proof.as_deref(),
            Some(
                "arm limit: latency without backend calls 100× lower (95 % CI 80.0–125) than in \
                 stalled; 10 of 20 workers busy"
            )
        );
        assert!(advice[1].change.starts_with("Do not retry immediately"), "{advice:?}");
        assert!(advice[1].proof.as_deref().unwrap().contains("20 of 20 workers busy"));
        assert!(advice[2..].iter().all(|other| other.proof.is_none()));
        assert!(advice.iter().all(|one| !one.cost.is_empty() && !one.undo.is_empty()));
    }

    #[test]
    fn arms_are_compared_with_the_one_that_has_no_fix_even_if_a_noisy_start_hides_its_stall() {
        // Slow before the stall too: on its own it does not show the cause.
        let arms = vec![
            with("published", &[], 20.0, 900.0),
            with("abort", &[("abort-on-overflow", "on")], 20.0, 800e3),
            with("limit", &[("connect-timeout", "100ms")], 10.0, 520.0),
        ];
        let advice = advise(&summary(arms, &[]));
        let proofs: Vec<&str> = advice.iter().filter_map(|one| one.proof.as_deref()).collect();
        assert_eq!(proofs.len(), 2, "{proofs:?}");
        assert!(proofs.iter().all(|proof| proof.contains("than in published")), "{proofs:?}");
        assert!(!advice.iter().any(|one| one.change.starts_with("Set net.ipv4.tcp_abort")));
    }

    #[test]
    fn a_connect_time_out_is_advised_only_where_calls_waited_for_a_connection() {
        let advised = |drops, retransmitted| {
            let mut stalled = with("pooled", &[], 20.0, 800e3);
            stalled.own.worker_pool.as_mut().unwrap().backend_drops = Some(drops);
            stalled.client.counters.insert("TcpExtTCPSynRetrans".to_owned(), retransmitted);
            let advice = advise(&summary(vec![stalled], &[]));
            assert!(advice.iter().any(|one| one.change.starts_with("Set a timeout for responses")));
            advice.iter().any(|one| one.change.starts_with("Set a short connect timeout"))
        };
        assert!(advised(40, 0) && advised(0, 3));
        assert!(!advised(0, 0), "all calls waited for an answer");
    }

    #[test]
    fn an_arm_that_differs_in_the_load_too_proves_nothing() {
        let arms = vec![
            with("stalled", &[], 20.0, 800e3),
            with("other", &[("connect-timeout", "100ms"), ("rate", "10")], 3.0, 520.0),
            with("never", &[("stall", "0")], 1.0, 510.0),
        ];
        assert!(advise(&summary(arms, &[])).iter().all(|advice| advice.proof.is_none()));
    }

    #[test]
    fn every_option_of_a_fix_is_an_option_and_the_special_ones_come_first() {
        for fix in &ALL {
            assert!(fix.options.iter().all(|option| FIXES.contains(option)), "{:?}", fix.options);
        }
        let known = |name: &&str| super::super::SPEC.option(name).is_some();
        assert!(FIXES.iter().all(known));
        let hidden = |(at, fix): (usize, &Fix)| {
            ALL[..at]
                .iter()
                .any(|earlier| earlier.options.iter().all(|option| fix.options.contains(option)))
        };
        assert!(!ALL.iter().enumerate().any(hidden), "a general fix stands before a special one");
    }
}
