//! In which order do the arms of a round run? Shuffled anew each round, and the same again for the
//! same seed, so that a resumed run goes on as it would have.
//!
//! The seed is drawn anew for each run, and recorded; `--seed` repeats a run. With one fixed seed every study
//! would run in the same order, and the bad luck of that order would be in all of them.

use rand_core::Rng as _;

use crate::random::generator;

/// The order of `arms` arms in a round: a permutation of their indices.
pub fn of_round(seed: u64, round: u32, arms: usize) -> Vec<usize> {
    let mut random = generator(seed, [u64::from(round), u64::MAX, 0]);
    let mut order: Vec<usize> = (0..arms).collect();
    for last in (1..arms).rev() {
        // The bias of a remainder of 2^64 by at most 256 is below 2^-56.
        order.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
    order
}

/// The seed of one trial's losses and jitter.
pub fn seed_of_trial(seed: u64, round: u32, arm: usize, attempt: u32) -> u64 {
    generator(seed, [u64::from(round), arm as u64, u64::from(attempt)]).next_u64()
}

/// The seed of what is the same in all arms of a round.
pub fn seed_of_round(seed: u64, round: u32) -> u64 {
    generator(seed, [u64::from(round), u64::MAX, 1]).next_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_is_a_permutation_and_the_seed_gives_it_again() {
        for round in 0..50 {
            let order = of_round(7, round, 9);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..9).collect::<Vec<_>>());
            assert_eq!(order, of_round(7, round, 9));
        }
    }

    #[test]
    fn every_arm_runs_at_every_place_about_equally_often() {
        let (rounds, arms) = (12_000, 4);
        let mut places = [[0_u32; 4]; 4];
        for round in 0..rounds {
            for (place, arm) in of_round(1, round, arms).into_iter().enumerate() {
                places[arm][place] += 1;
            }
        }
        // 3,000 expected with a standard deviation of 47.
        for count in places.into_iter().flatten() {
            assert!((2_800..3_200).contains(&count), "{places:?}");
        }
    }

    #[test]
    fn trials_have_seeds_of_their_own() {
        let mut seeds: Vec<u64> = (0..20)
            .flat_map(|round| (0..20).map(move |arm| seed_of_trial(1, round, arm, 0)))
            .chain((1..4).map(|attempt| seed_of_trial(1, 0, 0, attempt)))
            .collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 403);
    }
}
