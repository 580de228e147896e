//! What to change against a full accept queue, with the arm of the run that shows it changed.

use super::columns::listener;
use crate::kit::causes::queues::overflow::Overflow;
use crate::kit::conclusion::{cured, differ_only_in};
use tcptoll_core::experiment::figures::{FAILURE, FIRST_BYTE};
use tcptoll_core::record::{Advice, Arm, Summary};
use tcptoll_core::units::{human_count, human_us};

/// The cause that these changes are against.
const CAUSE: &str = "accept-queue-full";

/// Options that make a queue longer.
pub(super) const LONGER: &[&str] = &["backlog", "server-sysctl", "somaxconn"];
/// Options that make the server accept faster.
pub(super) const FASTER: &[&str] = &["accept-delay"];
/// Options that make fewer connections arrive at a time.
pub(super) const SLOWER: &[&str] = &["arrivals", "concurrency", "pause", "pause-every", "rate"];
/// The option that turns silence into a reset.
const ABORT: &str = "abort-on-overflow";

/// Kernel memory of a connection in an accept queue, bytes: a `tcp_sock` and a request, 2,368 and 320
/// in /proc/slabinfo of Linux 6.18; without data that waits.
const CONNECTION_BYTES: u64 = 2_368 + 320;

/// Whether an arm has the cause.
pub(super) fn is_ill(summary: &Summary, arm: &Arm) -> bool {
    summary.causes.iter().any(|cause| cause.id == CAUSE && cause.arm == arm.name)
}

/// How the overflow of an arm went on.
pub(super) fn overflow(arm: &Arm) -> Option<Overflow> {
    Overflow::judge(arm, listener(arm)?)
}

/// The first arm with the cause that has an arm which shows a fix, or else the first with the cause;
/// with the fix.
pub(super) fn ill(summary: &Summary) -> Option<(&Arm, Option<&Arm>)> {
    let all = || summary.arms.iter().filter(|arm| is_ill(summary, arm));
    let fixed = |arm: &Arm| {
        [LONGER, FASTER, SLOWER].iter().find_map(|options| cured(summary, arm, options))
    };
    all().find_map(|arm| Some((arm, Some(fixed(arm)?)))).or_else(|| Some((all().next()?, None)))
}

/// Every change that this run gives a reason for.
pub(super) fn advise(summary: &Summary) -> Vec<Advice> {
    let Some((arm, _)) = ill(summary) else { return Vec::new() };
    if overflow(arm) == Some(Overflow::Rare) {
        return vec![tolerate()];
    }
    let proof = |options: &[&str]| cured(summary, arm, options).map(|well| proof(arm, well));
    let mut all = vec![longer(arm, cured(summary, arm, LONGER), proof(LONGER))];
    let lasting = overflow(arm) == Some(Overflow::Lasting);
    let faster = proof(FASTER);
    if lasting || faster.is_some() {
        all.push(Advice {
            cause: CAUSE.to_owned(),
            change: "Accept faster: call accept(2) in a loop until EAGAIN, in a dedicated thread, or in more processes (SO_REUSEPORT). Nothing else helps if connections keep arriving faster than the server accepts them.".to_owned(),
            cost: "The program must be changed. Connections that it accepts earlier occupy its file descriptors and memory earlier.".to_owned(),
            undo: "Revert the change of the program; no kernel setting is involved.".to_owned(),
            proof: faster,
        });
    }
    if let Some(proof) = proof(SLOWER) {
        all.push(Advice {
            cause: CAUSE.to_owned(),
            change: "Let the client open fewer connections at a time, with a connection pool or with pauses between bursts.".to_owned(),
            cost: "The client needs longer for the same number of connections. A pool keeps idle connections open on both hosts.".to_owned(),
            undo: "Remove the pool or the pauses.".to_owned(),
            proof: Some(proof),
        });
    }
    all.extend(abort(summary, arm));
    if lasting {
        // A longer queue only delays: it is the last resort then.
        all.rotate_left(1);
    }
    all
}

fn tolerate() -> Advice {
    Advice {
        cause: CAUSE.to_owned(),
        change: "No change is needed while overflows stay rare. Watch the rate of TcpExtListenOverflows (`nstat TcpExtListenOverflows`), and act if it grows from day to day.".to_owned(),
        cost: "The few connections that meet a full queue wait 1 s or longer.".to_owned(),
        undo: "Nothing was changed.".to_owned(),
        proof: None,
    }
}

fn longer(arm: &Arm, well: Option<&Arm>, proof: Option<String>) -> Advice {
    let held = well.and_then(listener).map(|listener| listener.peak);
    let to = match held {
        Some(peak) => format!(
            " to more than {}, the longest queue under this load",
            human_count(u64::from(peak))
        ),
        None => String::new(),
    };
    let limit =
        well.or(Some(arm)).and_then(listener).map_or(0, |listener| u64::from(listener.limit));
    let full = limit + 1;
    let memory = full * CONNECTION_BYTES;
    let interval = arm.own.queues.as_deref().and_then(|queues| queues.accept_interval_us);
    let wait = match interval {
        Some(us) => format!(
            " The last connection in a full queue waits for all those before it: {} × {} = {}.",
            human_count(full),
            human_us(us),
            human_us(us * full as f64)
        ),
        None => " The last connection in a full queue waits for all those before it: queue length × time of one accept(2).".to_owned(),
    };
    Advice {
        cause: CAUSE.to_owned(),
        change: format!(
            "Raise the backlog of listen(2){to}, and net.core.somaxconn to at least the same value."
        ),
        cost: format!(
            "About 2.7 kB of kernel memory for each waiting connection, {} for a full queue of {}.{wait}",
            tcptoll_core::units::human_bytes(memory as f64),
            human_count(full)
        ),
        undo: "Restore the previous backlog and net.core.somaxconn. Both take effect only when the server calls listen(2) again, which for most servers means a restart.".to_owned(),
        proof,
    }
}

/// The reset instead of silence: another choice, with a cost of its own.
fn abort(summary: &Summary, arm: &Arm) -> Option<Advice> {
    let on = |arm: &&Arm| arm.factors.get(ABORT).and_then(|level| level.as_str()) == Some("on");
    let other = summary.arms.iter().filter(on).find(|other| differ_only_in(other, arm, &[ABORT]));
    let silent = ["timeout", "connect-timeout"].iter().any(|class| arm.errors.contains_key(*class));
    let lasting = overflow(arm) == Some(Overflow::Lasting);
    if other.is_none() && !(silent && lasting) {
        return None;
    }
    let after = |arm: &Arm| {
        let failed = arm.histograms.get(FAILURE.name).filter(|failed| failed.count > 0)?;
        Some((failed.count, human_us(failed.p50.or(failed.mean)?)))
    };
    let proof = other.filter(|other| other.name != arm.name).map(|other| {
        let with = |arm: &Arm| match after(arm) {
            Some((count, time)) => {
                format!("{} connections failed (median after {time})", human_count(count))
            }
            None => "no connection failed".to_owned(),
        };
        let resets = other.errors.get("reset").copied().unwrap_or(0);
        format!(
            "arm {}: {}, {} of them with a reset; arm {}: {}",
            other.name,
            with(other),
            human_count(resets),
            arm.name,
            with(arm)
        )
    });
    Some(Advice {
        cause: CAUSE.to_owned(),
        change: "Alternative: set net.ipv4.tcp_abort_on_overflow=1 on the server, so that clients fail early instead of waiting. A worker that waits for a silent server cannot serve other requests.".to_owned(),
        cost: "Connections that would have succeeded after a second fail with 'connection reset by peer'. SYNs that meet a full queue, and refused ACKs of SYN cookies, are still dropped silently.".to_owned(),
        undo: "Set net.ipv4.tcp_abort_on_overflow=0. It takes effect immediately.".to_owned(),
        proof,
    })
}

/// What the run measured with a change in place.
fn proof(ill: &Arm, well: &Arm) -> String {
    let max = |arm: &Arm| arm.histograms.get(FIRST_BYTE.name).and_then(|h| h.max).map(human_us);
    let slowest = match (max(well), max(ill)) {
        (Some(well), Some(before)) => {
            format!(", the slowest after {well} (arm {}: {before})", ill.name)
        }
        (Some(well), None) => format!(", the slowest after {well}"),
        _ => String::new(),
    };
    let held = match listener(well) {
        Some(queue) => format!(
            "; the queue held at most {} of {}",
            human_count(u64::from(queue.peak)),
            human_count(u64::from(queue.limit) + 1)
        ),
        None => String::new(),
    };
    format!(
        "arm {}: all {} connections received their first byte{slowest}{held}",
        well.name,
        human_count(well.ok)
    )
}
