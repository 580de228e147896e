//! What does arithmetic expect of a connection, before anything is measured?
//!
//! One round trip and the CPU of both ends, and never less than light needs for the distance. It does
//! not know the network's detours, queues or losses: what is measured above the expectation is theirs.

use tcptoll_core::record::Expectation;

/// Speed of light in vacuum, km/s. Exact by the definition of the metre (SI, 1983).
pub(super) const LIGHT_VACUUM_KM_PER_S: f64 = 299_792.458;

/// Group index of refraction of telecommunication fibre at 1550 nm: light is this many times slower.
///
/// Source: typical of single-mode fibre of class ITU-T G.652 (Corning's data sheet of SMF-28e gives
/// 1.4682 at 1550 nm); the recommendation itself fixes no value.
pub(super) const FIBRE_INDEX: f64 = 1.468;

/// The least round trip over `distance_km` there and back, in µs; `index` is 1 in vacuum.
///
/// ```
/// use crate::open::connect::expectation::{FIBRE_INDEX, floor_rtt_us};
/// // 1,000 km of fibre: 2 * 1000 / 299,792.458 * 1.468 = 9.79 ms
/// assert!((floor_rtt_us(1000.0, FIBRE_INDEX) - 9_793.4).abs() < 0.1);
/// ```
#[must_use]
pub(super) fn floor_rtt_us(distance_km: f64, index: f64) -> f64 {
    2.0 * distance_km * index / LIGHT_VACUUM_KM_PER_S * 1e6
}

/// What arithmetic expects of one connection.
///
/// The client has it after one round trip (SYN there, SYN-ACK back); the process that accepts has it
/// half a round trip later, when the client's ACK arrives.
///
/// Unit: µs and km. `rtt_from` says where the round trip is from: `link setting`, `ICMP echo`.
/// None: CPU that was not measured adds nothing; without a distance there are no floors.
#[must_use]
pub(super) fn expectation(
    rtt_us: f64,
    rtt_from: &str,
    cpu_us: Option<f64>,
    distance_km: Option<f64>,
) -> Expectation {
    let cpu = cpu_us.unwrap_or(0.0);
    Expectation {
        client_us: rtt_us + cpu,
        server_process_us: 1.5 * rtt_us + cpu,
        rtt_us,
        rtt_from: rtt_from.to_owned(),
        cpu_us,
        distance_km,
        floor_fibre_us: distance_km.map(|km| floor_rtt_us(km, FIBRE_INDEX)),
        floor_vacuum_us: distance_km.map(|km| floor_rtt_us(km, 1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_of_one_light_second_is_two_seconds_there_and_back() {
        assert!((floor_rtt_us(LIGHT_VACUUM_KM_PER_S, 1.0) - 2e6).abs() < 1e-6);
    }

    #[test]
    fn the_server_process_has_the_connection_half_a_round_trip_later() {
        // 37 ms and 50 µs of CPU: 37,050 µs at the client, 1.5 * 37,000 + 50 at the process.
        let expected = expectation(37_000.0, "link setting", Some(50.0), None);
        assert!((expected.client_us - 37_050.0).abs() < 1e-9);
        assert!((expected.server_process_us - 55_550.0).abs() < 1e-9);
        assert_eq!(expected.floor_fibre_us, None);
        assert_eq!(expected.rtt_from, "link setting");
    }

    #[test]
    fn a_distance_gives_both_floors_and_fibre_is_the_slower() {
        // Hebei to Guangdong, about 1,800 km: 12.0 ms in vacuum, 17.6 ms in fibre; 37 ms were seen.
        let expected = expectation(37_000.0, "ICMP echo", None, Some(1800.0));
        let vacuum = expected.floor_vacuum_us.unwrap();
        let fibre = expected.floor_fibre_us.unwrap();
        assert!((vacuum - 12_008.3).abs() < 0.1, "{vacuum}");
        assert!((fibre - 17_628.2).abs() < 0.1, "{fibre}");
        assert_eq!(expected.cpu_us, None);
    }
}
