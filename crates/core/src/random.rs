//! Chance that repeats: the same numbers for the same seed, on every machine.

use rand_core::SeedableRng as _;
use rand_xoshiro::Xoshiro256PlusPlus;

/// A generator of its own for each seed and each triple of numbers.
pub(crate) fn generator(seed: u64, parts: [u64; 3]) -> Xoshiro256PlusPlus {
    // Neighbouring numbers get far apart; seed_from_u64 applies SplitMix64 again.
    let mixed = parts.iter().fold(seed, |state, part| mixed(state.wrapping_add(*part)));
    Xoshiro256PlusPlus::seed_from_u64(mixed)
}

/// Bits that look random, one to one: a step of `SplitMix64`.
#[inline]
pub(crate) fn mixed(bits: u64) -> u64 {
    let mut z = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
