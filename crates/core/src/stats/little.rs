//! Do throughput and latency agree with the number of requests that were meant to be in flight?
//!
//! In a closed loop every connection waits for its answer, so the number in flight is known before.
//! Where throughput times latency gives another, one of the three was not measured as believed.

/// The mean number of requests in flight: those that finish each second, times how long each took.
///
/// Unit: requests. Range: exact for any arrivals and any distribution of times, over a span that is
/// long against one request: those cut off at its two ends are the error.
/// Source: Little (1961), "A proof for the queuing formula: L = λW".
#[must_use]
pub fn in_flight(throughput_per_s: f64, mean_latency_s: f64) -> f64 {
    throughput_per_s * mean_latency_s
}

/// Whether the number `found` is below 90 % or above 105 % of the number `asked` for.
///
/// Wider below: between an answer and the next request the client works, and a connection then has
/// none in flight. Above, only requests cut off at the ends of the span explain a surplus.
/// Also true for what is no number, and for nothing asked.
#[must_use]
pub fn departs(found: f64, asked: f64) -> bool {
    let share = found / asked;
    !(0.90..=1.05).contains(&share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_connections_with_answers_of_4_ms_finish_2000_a_second() {
        assert!((in_flight(2_000.0, 0.004) - 8.0).abs() < 1e-12);
        assert!(!departs(in_flight(2_000.0, 0.004), 8.0));
    }

    #[test]
    fn a_tenth_too_few_or_a_twentieth_too_many_departs() {
        assert!(departs(7.1, 8.0) && departs(8.5, 8.0));
        assert!(!departs(7.3, 8.0) && !departs(8.3, 8.0));
        assert!(departs(f64::NAN, 8.0) && departs(0.0, 0.0) && departs(1.0, 0.0));
    }
}
