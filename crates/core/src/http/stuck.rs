//! Workers that wait for a backend which has stopped: how many, for how long, and what requests
//! that never call it must wait.
//!
//! Little's law: busy workers are arrivals per second, multiplied by the time each holds a worker.
//! A request that waits for no backend holds its worker too while it is served. The settings do not
//! say for how long: where the CPU is short, it is many times as long. So [`at_most`] takes that time
//! from the latency of requests without a call.
//!
//! The settings say both. While a backend is stopped its kernel still makes connections until the accept
//! queue is full; a backlog of n holds n + 1 workers, even with a time limit for connecting. Those calls wait
//! for the answer. Each further SYN is dropped: without a time limit of connecting, such a call waits for the
//! end of the stall.
//!
//! Workers that a stall should hold are a range. The status page counts all busy workers, also those that
//! serve requests; the upper end adds their number by Little's law. A single number was wrong by ten workers
//! where local requests took 27 ms.

/// What is called how often, and how long a call may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    /// Blocking workers.
    pub workers: u64,
    /// Requests per second that call the backend; those that a cache answers are not among them.
    pub backend_per_s: f64,
    /// Requests per second that do not.
    pub local_per_s: f64,
    /// Time of a worker for each request, calls apart, s.
    pub work_s: f64,
    /// Connections that the backend's accept queue holds: its effective backlog and one more.
    pub queue: u64,
    /// Whether each worker keeps a connection that is established already.
    pub pooled: bool,
    /// Time for which a value is answered from a cache, s. One worker at a time refreshes an expired
    /// value, all others answer it. None: no cache.
    pub cached_s: Option<f64>,
    /// Time limit of one attempt to connect, s. None: that of the kernel, which outlasts the stall.
    pub connect_timeout_s: Option<f64>,
    /// Time limit of the answer on an established connection, s.
    pub answer_timeout_s: f64,
    /// Further attempts after one that failed.
    pub retries: u64,
    /// All pauses of a call whose attempts all fail, mean, s.
    pub pauses_s: f64,
    /// Time for which the backend is stopped, s.
    pub stall_s: f64,
}

/// What follows from [`Calls`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// Time for which a call that meets the full queue holds its worker, s; at most the stall.
    pub wait_s: f64,
    /// Busy workers in the steady part of the stall.
    pub stuck: f64,
    /// The steady part, s after the stall began.
    pub steady_s: [f64; 2],
    /// The longest time that a request without a call waits for a worker, s; 0 where workers are left.
    pub local_wait_s: f64,
}

/// A steady part shorter than this share of the stall says nothing of it.
const STEADY_SHARE: f64 = 0.1;

/// Busy workers during a stall, and what requests without a call wait.
///
/// None: there is no stall, nothing calls the backend, or the stall ends before the number of busy
/// workers is steady.
/// Source:  Little, "A Proof for the Queuing Formula L = λW" (1961); arrivals as a fluid.
pub fn expected(calls: &Calls) -> Option<Expected> {
    let rate = calls.backend_per_s;
    if rate <= 0.0 || calls.stall_s <= 0.0 || calls.workers == 0 {
        return None;
    }
    let workers = calls.workers as f64;
    let work = (rate + calls.local_per_s) * calls.work_s;
    if let Some(cached_s) = calls.cached_s {
        return refreshing(calls, cached_s, work);
    }
    let tries = calls.retries as f64;
    // A call that meets the full queue, and one that waits for an answer and then meets it.
    let refused = calls.connect_timeout_s.map(|limit| (tries + 1.0) * limit + calls.pauses_s);
    let wait_s = refused.unwrap_or(calls.stall_s).min(calls.stall_s);
    let patient = calls.answer_timeout_s >= calls.stall_s;
    // Calls whose connection is made: by the pool, then by the kernel of the backend.
    let made = calls.queue as f64 + if calls.pooled { workers } else { 0.0 };
    let held = if patient { made.min(workers) } else { 0.0 };
    let left = workers - held;
    let all_busy = held + rate * wait_s + work >= workers;
    let begins_s = if patient {
        // The first calls take a worker each; the others come and go.
        if all_busy { workers / rate } else { held / rate + wait_s }
    } else {
        // The calls that were connected leave first; all that came meanwhile is worked off.
        let then = calls.connect_timeout_s.map_or(calls.stall_s, |limit| tries * limit);
        let each = calls.answer_timeout_s + if tries > 0.0 { then + calls.pauses_s } else { 0.0 };
        let gone = (made / rate).max(made * each / workers);
        let late = (rate * gone - made).max(0.0);
        if all_busy {
            gone + workers / rate
        } else {
            gone + each.max(wait_s) + late / (workers / wait_s - rate)
        }
    };
    let rest_s = calls.stall_s - begins_s;
    if rest_s < calls.stall_s * STEADY_SHARE {
        return None;
    }
    // Each second brings more than a second of waiting for each worker that is left: a request waits
    // ever longer, until the stall ends before its turn comes.
    let load = rate * wait_s + work;
    let local_wait_s = if !all_busy {
        0.0
    } else if refused.is_none() || left <= 0.0 {
        rest_s
    } else {
        rest_s * (1.0 - left / load).max(0.0)
    };
    Some(Expected {
        wait_s,
        stuck: (held + load).min(workers),
        steady_s: [begins_s, calls.stall_s],
        local_wait_s,
    })
}

/// Busy workers at most: those that wait, and those that serve requests.
///
/// `local_latency_s`: mean latency of requests without a call in the steady part, s. Some of it is
/// spent outside of workers, so this is an upper limit. It holds only where a worker was always free:
/// otherwise that latency has the wait for a worker in it.
/// None: the settings leave no worker.
pub fn at_most(calls: &Calls, expected: &Expected, local_latency_s: f64) -> Option<f64> {
    let workers = calls.workers as f64;
    let served_s = (local_latency_s - calls.work_s).max(0.0);
    let served = (calls.backend_per_s + calls.local_per_s) * served_s;
    (expected.stuck < workers).then(|| (expected.stuck + served).min(workers))
}

/// One worker refreshes the value once it has expired: when a stall begins, that may take as long as a
/// value is kept, and until the next call.
///
/// None: a value outlasts the stall, or nearly so.
fn refreshing(calls: &Calls, cached_s: f64, work: f64) -> Option<Expected> {
    let begins_s = cached_s + 1.0 / calls.backend_per_s;
    let steady = calls.stall_s - begins_s >= calls.stall_s * STEADY_SHARE;
    steady.then(|| Expected {
        wait_s: calls.stall_s,
        stuck: (1.0 + work).min(calls.workers as f64),
        steady_s: [begins_s, calls.stall_s],
        local_wait_s: 0.0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 20 workers, 50 calls a second, a queue of 5, a stall of 2 s.
    fn calls() -> Calls {
        Calls {
            workers: 20,
            backend_per_s: 50.0,
            local_per_s: 50.0,
            work_s: 0.0,
            queue: 5,
            pooled: false,
            cached_s: None,
            connect_timeout_s: None,
            answer_timeout_s: 10.0,
            retries: 0,
            pauses_s: 0.0,
            stall_s: 2.0,
        }
    }

    fn near(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-9, "{found} is not {wanted}");
    }

    #[test]
    fn without_a_time_limit_every_worker_is_stuck_until_the_stall_ends() {
        let found = expected(&calls()).unwrap();
        // 20 calls take 20 / 50 s = 0.4 s to arrive; 1.6 s of the stall are left.
        near(found.stuck, 20.0);
        near(found.steady_s[0], 0.4);
        near(found.steady_s[1], 2.0);
        near(found.wait_s, 2.0);
        near(found.local_wait_s, 1.6);
    }

    #[test]
    fn with_a_connect_time_out_it_is_the_queue_and_arrivals_times_the_limit() {
        let found = expected(&Calls { connect_timeout_s: Some(0.1), ..calls() }).unwrap();
        // 5 wait for an answer; 50/s × 0.1 s = 5 more are connecting. Steady after 5/50 + 0.1 s.
        near(found.stuck, 10.0);
        near(found.wait_s, 0.1);
        near(found.steady_s[0], 0.2);
        near(found.local_wait_s, 0.0);
    }

    #[test]
    fn retries_multiply_the_wait_until_no_worker_is_left() {
        let retried = Calls { connect_timeout_s: Some(0.1), retries: 3, ..calls() };
        let found = expected(&retried).unwrap();
        // 5 + 50/s × 0.4 s = 25 of 20. Each second brings 20 s of waiting to the 15 that are left:
        // of the 1.6 s that are left of the stall, the longest wait is 1.6 × (1 − 15/20) = 0.4 s.
        near(found.stuck, 20.0);
        near(found.wait_s, 0.4);
        near(found.local_wait_s, 0.4);
        // Pauses between attempts hold the worker as well.
        let paused = expected(&Calls { pauses_s: 0.4, ..retried }).unwrap();
        near(paused.wait_s, 0.8);
        near(paused.local_wait_s, 1.6 * (1.0 - 15.0 / 40.0));
    }

    #[test]
    fn a_pool_does_not_help_against_a_backend_that_answers_nothing() {
        let pooled = Calls { pooled: true, connect_timeout_s: Some(0.1), ..calls() };
        near(expected(&pooled).unwrap().stuck, 20.0);
        // With a limit of the answer as well, the 20 connections of the pool and the 5 of the queue are
        // used up after 25/50 s = 0.5 s, and the last leaves 0.1 s later.
        let limited = expected(&Calls { answer_timeout_s: 0.1, ..pooled }).unwrap();
        near(limited.stuck, 5.0);
        near(limited.steady_s[0], 0.6);
    }

    #[test]
    fn an_answer_that_may_take_less_than_the_stall_frees_the_workers_of_the_queue() {
        let limited = Calls { connect_timeout_s: Some(0.1), answer_timeout_s: 0.3, ..calls() };
        let found = expected(&limited).unwrap();
        // The 5 of the queue arrive within 0.1 s and are gone 0.3 s later.
        near(found.stuck, 5.0);
        near(found.steady_s[0], 0.4);
    }

    #[test]
    fn a_queue_that_is_longer_than_the_pool_stops_all_workers() {
        let long = Calls { queue: 512, connect_timeout_s: Some(0.1), ..calls() };
        let found = expected(&long).unwrap();
        near(found.stuck, 20.0);
        near(found.local_wait_s, 1.6);
    }

    #[test]
    fn a_cache_that_one_worker_refreshes_holds_that_worker() {
        let cached = expected(&Calls { cached_s: Some(1.0), ..calls() }).unwrap();
        near(cached.stuck, 1.0);
        // The value may have come just before the stall.
        near(cached.steady_s[0], 1.02);
        near(cached.local_wait_s, 0.0);
        assert_eq!(expected(&Calls { cached_s: Some(2.0), ..calls() }), None);
    }

    #[test]
    fn serving_requests_takes_workers_too_for_as_long_as_their_latency_at_most() {
        // 1 refreshes the value; 100 requests per second of 27 ms hold 2.7 more.
        let cached = Calls { cached_s: Some(1.0), ..calls() };
        let found = expected(&cached).unwrap();
        near(at_most(&cached, &found, 0.027).unwrap(), 3.7);
        near(at_most(&cached, &found, 10.0).unwrap(), 20.0);
        // Work that the settings name is expected already: 1 + 100/s × 20 ms, and 7 ms more of each.
        let working = Calls { work_s: 0.02, ..cached };
        let found = expected(&working).unwrap();
        near(found.stuck, 3.0);
        near(at_most(&working, &found, 0.027).unwrap(), 3.7);
        near(at_most(&working, &found, 0.019).unwrap(), 3.0);
        assert_eq!(at_most(&calls(), &expected(&calls()).unwrap(), 0.001), None);
    }

    #[test]
    fn work_of_all_requests_is_added() {
        let working = Calls { connect_timeout_s: Some(0.1), work_s: 0.02, ..calls() };
        near(expected(&working).unwrap().stuck, 12.0);
    }

    #[test]
    fn the_published_pool_loses_half_of_its_workers() {
        // 100 workers; 50 hang in the handshake: at 49/s with a limit of 1 s, and a backlog of 0.
        let published = Calls {
            workers: 100,
            backend_per_s: 49.0,
            queue: 1,
            connect_timeout_s: Some(1.0),
            stall_s: 10.0,
            answer_timeout_s: 10.0,
            ..calls()
        };
        near(expected(&published).unwrap().stuck, 50.0);
    }

    #[test]
    fn where_nothing_is_steady_nothing_is_expected() {
        assert_eq!(expected(&Calls { stall_s: 0.0, ..calls() }), None);
        assert_eq!(expected(&Calls { backend_per_s: 0.0, ..calls() }), None);
        assert_eq!(expected(&Calls { workers: 0, ..calls() }), None);
        // 20 arrive in 0.4 s: too short a stall.
        assert_eq!(expected(&Calls { stall_s: 0.42, ..calls() }), None);
    }
}
