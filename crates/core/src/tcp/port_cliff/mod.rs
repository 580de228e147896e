//! From how many ports in use on does the kernel search long for a free one, and when do ports run
//! out?
//!
//! Arithmetic on settings, made before a run. [`found`] finds the step in what a run measured; the
//! number of connections that ports allow is in [`crate::tcp::ports`].
//!
//! # Why there is a cliff
//!
//! `connect(2)` looks for a local port in two passes (`__inet_hash_connect` in
//! `net/ipv4/inet_hashtables.c`, Linux 6.18). The first pass tries every second port of the range:
//! those with the parity of its lower end. `bind(2)` does the opposite (`inet_csk_find_open_port`
//! in `inet_connection_sock.c`), so that the two rarely meet. While a port of the first pass is
//! free, the search is short, because it begins behind the port that the connection before it took.
//! Once all are taken, every `connect(2)` tries all of them in vain before its second pass begins:
//! 14,116 of the 28,232 ports of the default range. The first pass is thus full at half of the
//! range, and the cost rises there in one step.
//!
//! The step is expected from the kernel's rule, and looked for in the curve without that knowledge. Both are
//! recorded: at 28,232 ports they were 14,116 and 14,119.

mod step;

pub use step::found;

use crate::tcp::ports::{PortForecast, PortSettings, range, reserved, reuse_after_s};

/// The system call that chooses the local port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chooser {
    /// `connect(2)`, with or without a source address that `IP_BIND_ADDRESS_NO_PORT` bound.
    #[default]
    Connect,
    /// `bind(2)` with a source address and port 0.
    Bind,
}

/// Ports in use at which the first pass of the search has no port left, all source addresses
/// together; they take turns.
///
/// In a range with an odd number of ports it may be one port more per source address: the first pass
/// then leaves out either the first or the last port, depending on where it begins.
///
/// None: the range cannot be read or has one port, all ports of the first pass are reserved, or
/// `net.ipv4.tcp_tw_reuse` is in force. With it, ports in TIME-WAIT are free to the search after a
/// second.
///
/// Source: see the module.
pub fn expected(settings: &PortSettings, chooser: Chooser) -> Option<f64> {
    let text = |name: &str| settings.sysctls.get(name).map(|value| value.trim());
    let (low, high) = range(text("net.ipv4.ip_local_port_range")?)?;
    if reuse_after_s(settings).is_some() {
        return None;
    }
    let list = text("net.ipv4.ip_local_reserved_ports").unwrap_or_default();
    let first_pass = first_pass(low, high, &reserved(list, low, high), chooser);
    (first_pass > 0).then(|| first_pass as f64 * settings.sources.max(1) as f64)
}

/// Ports that the first pass tries.
fn first_pass(low: u16, high: u16, reserved: &[(u16, u16)], chooser: Chooser) -> u64 {
    let ports = u64::from(high - low) + 1;
    let parity = match chooser {
        Chooser::Connect => low % 2,
        Chooser::Bind => 1 - low % 2,
    };
    let reserved: u64 = reserved.iter().map(|&ends| of_parity(ends, parity)).sum();
    if ports < 2 { 0 } else { (ports / 2).saturating_sub(reserved) }
}

/// Ports of this parity from the first to the last.
fn of_parity((first, last): (u16, u16), parity: u16) -> u64 {
    let first = u64::from(first) + u64::from(first % 2 != parity);
    let last = u64::from(last);
    if first > last { 0 } else { (last - first) / 2 + 1 }
}

/// After how many seconds a load of new connections has used all local ports.
///
/// `held`: ports that are in TIME-WAIT when it begins, and stay so.
///
/// None: a port is free again before the last one is taken, so the load may go on for ever.
/// Range: a rate of 0 or less takes no ports.
pub fn lasts_s(forecast: &PortForecast, rate_per_s: f64, held: u64) -> Option<f64> {
    let sustained = forecast.sustained_per_s?;
    let left = forecast.at_once.saturating_sub(held);
    (rate_per_s > sustained).then(|| left as f64 / rate_per_s)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use rand_core::SeedableRng as _;
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;
    use crate::tcp::ports::{ClientCloses, forecast};

    fn settings(sysctls: &[(&str, &str)]) -> PortSettings {
        let named = |(name, value): &(&str, &str)| (format!("net.ipv4.{name}"), (*value).into());
        PortSettings {
            sysctls: sysctls.iter().map(named).collect(),
            sources: 1,
            destinations: 1,
            client_closes: ClientCloses::All,
            loopback: false,
            ..PortSettings::default()
        }
    }

    const RANGE: (&str, &str) = ("ip_local_port_range", "32768\t60999\n");

    /// The search of `__inet_hash_connect`, port for port, without another user of ports.
    struct Kernel {
        low: u32,
        high: u32, // one above the last
        reserved: BTreeSet<u32>,
        taken: BTreeSet<u32>,
        perturb: u32,
        random: Xoshiro256PlusPlus,
    }

    impl Kernel {
        fn new(low: u16, high: u16, reserved: &[u16], seed: u64) -> Self {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            Self {
                low: low.into(),
                high: u32::from(high) + 1,
                reserved: reserved.iter().map(|&port| port.into()).collect(),
                taken: BTreeSet::new(),
                perturb: random.next_u32() / 2,
                random,
            }
        }

        /// Takes a port. The answer is whether the first pass found it; absent: none is free.
        fn connect(&mut self) -> Option<bool> {
            let mut remaining = self.high - self.low;
            if remaining > 1 {
                remaining &= !1;
            }
            let mut offset = (self.perturb % remaining) & !1;
            loop {
                let mut port = self.low + offset;
                for i in (0..remaining).step_by(2) {
                    if port >= self.high {
                        port -= remaining;
                    }
                    if !self.reserved.contains(&port) && self.taken.insert(port) {
                        let more = i.max(self.random.next_u32() % 8 * 2) + 2;
                        self.perturb = self.perturb.wrapping_add(more);
                        return Some(offset & 1 == 0);
                    }
                    port += 2;
                }
                offset += 1;
                if offset & 1 == 0 || remaining == 1 {
                    return None;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_first_pass_fails_where_it_is_expected_to(
            low in 1_024u16..2_000, ports in 2u16..400, reserved in proptest::collection::vec(0u16..400, 0..20),
            seed: u64,
        ) {
            let high = low + ports - 1;
            let reserved: Vec<u16> = reserved.iter().map(|offset| low + offset).collect();
            let list: Vec<String> = reserved.iter().map(u16::to_string).collect();
            let range = format!("{low} {high}");
            let settings = settings(&[
                ("ip_local_port_range", range.as_str()),
                ("ip_local_reserved_ports", list.join(",").as_str()),
            ]);
            let expected = expected(&settings, Chooser::Connect).unwrap_or_default();
            let mut kernel = Kernel::new(low, high, &reserved, seed);
            let mut found = 0;
            while kernel.connect() == Some(true) {
                found += 1;
            }
            let found = f64::from(found);
            let odd = f64::from(ports % 2);
            prop_assert!((expected..=expected + odd).contains(&found), "{expected} but {found}");
        }
    }

    #[test]
    fn the_cliff_is_at_half_of_the_range_for_each_source_address() {
        let mut settings = settings(&[RANGE, ("tcp_tw_reuse", "2")]);
        assert_eq!(expected(&settings, Chooser::Connect), Some(14_116.0));
        assert_eq!(expected(&settings, Chooser::Bind), Some(14_116.0));
        settings.sources = 2;
        assert_eq!(expected(&settings, Chooser::Connect), Some(28_232.0));
    }

    #[test]
    fn reserved_ports_count_only_where_their_parity_is_searched_first() {
        // Even ports of 1000-1009: five. 1002 and 1004 are reserved and even, 1003 is not even.
        let cliff = |reserved, chooser| {
            let list =
                [("ip_local_port_range", "1000 1009"), ("ip_local_reserved_ports", reserved)];
            expected(&settings(&list), chooser)
        };
        assert_eq!(cliff("", Chooser::Connect), Some(5.0));
        assert_eq!(cliff("1002-1004,1004", Chooser::Connect), Some(3.0));
        assert_eq!(cliff("1002-1004", Chooser::Bind), Some(4.0));
        assert_eq!(cliff("1000-1009", Chooser::Connect), None);
    }

    #[test]
    fn of_an_odd_range_one_pass_tries_half_rounded_down() {
        let cliff =
            |range, chooser| expected(&settings(&[("ip_local_port_range", range)]), chooser);
        assert_eq!(cliff("1000 1010", Chooser::Connect), Some(5.0)); // 11 ports, 6 of them even
        assert_eq!(cliff("1000 1010", Chooser::Bind), Some(5.0));
        assert_eq!(cliff("1001 1001", Chooser::Connect), None);
        assert_eq!(cliff("1001 1000", Chooser::Connect), None);
    }

    #[test]
    fn with_reuse_in_force_there_is_no_rule() {
        let cliff =
            |reuse| expected(&settings(&[RANGE, ("tcp_tw_reuse", reuse)]), Chooser::Connect);
        assert_eq!(cliff("1"), None);
        assert_eq!(cliff("0"), Some(14_116.0));
        assert_eq!(expected(&settings(&[]), Chooser::Connect), None);
    }

    #[test]
    fn two_thousand_a_second_use_up_the_default_range_in_fourteen_seconds() {
        let default = forecast(&settings(&[RANGE])).unwrap();
        assert!((lasts_s(&default, 2_000.0, 0).unwrap() - 14.116).abs() < 1e-9);
        assert!((lasts_s(&default, 2_000.0, 20_232).unwrap() - 4.0).abs() < 1e-9);
        assert_eq!(lasts_s(&default, 2_000.0, 40_000), Some(0.0));
        assert_eq!(lasts_s(&default, 470.0, 0), None); // 28,232 / 60 = 470.5
        let reused = forecast(&settings(&[RANGE, ("tcp_tw_reuse", "1")])).unwrap();
        assert_eq!(lasts_s(&reused, 2_000.0, 0), None);
        let server = PortSettings { client_closes: ClientCloses::None, ..settings(&[RANGE]) };
        assert_eq!(lasts_s(&forecast(&server).unwrap(), 1e6, 0), None);
    }
}
