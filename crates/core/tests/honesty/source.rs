//! Sources of rounds: shapes of noise on a seeded generator.

use rand_core::{Rng as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

/// How one round differs from the next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// 2 % of noise.
    Normal,
    /// Sigma 0.3, so the mean is `exp(0.045)`.
    LogNormal,
    /// 20 % of rounds take half as long again; 2 % of noise.
    Bimodal,
    /// The same with 0.2 % of noise.
    QuietBimodal,
    /// 0.2 % of noise.
    Quiet,
    /// The log is Student's t with 3 degrees of freedom, times 0.02.
    HeavyTailed,
    /// Each round waits, 5 % of its time in the mean and exponentially: skewed, never below 1.
    Waiting,
}

impl Shape {
    /// What rounds of latency look like.
    pub(crate) const ALL: [Self; 4] =
        [Self::Normal, Self::LogNormal, Self::Bimodal, Self::HeavyTailed];

    /// The mean of its rounds.
    pub(crate) fn mean(self) -> f64 {
        match self {
            Self::Normal | Self::Quiet | Self::HeavyTailed => 1.0,
            Self::LogNormal => 0.045_f64.exp(),
            Self::Bimodal | Self::QuietBimodal => 1.1,
            Self::Waiting => 1.05,
        }
    }

    /// The mean of the logarithms of its rounds.
    pub(crate) fn mean_log(self) -> f64 {
        let of_normal = |sd: f64| -sd.powi(2) / 2.0 - 3.0 * sd.powi(4) / 4.0;
        match self {
            Self::Normal => of_normal(0.02),
            Self::Quiet => of_normal(0.002),
            Self::LogNormal | Self::HeavyTailed => 0.0,
            Self::Bimodal => 0.2 * 1.5_f64.ln() + of_normal(0.02),
            Self::QuietBimodal => 0.2 * 1.5_f64.ln() + of_normal(0.002),
            // exp(20) times the exponential integral E1(20).
            Self::Waiting => 0.047_718_5,
        }
    }
}

/// A mode of slow rounds, in an arm that is otherwise as much faster as makes it even: its rounds
/// have the geometric mean 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlowMode {
    /// How many of the rounds are slow.
    pub(crate) share: f64,
    /// How many times as long these take.
    pub(crate) times: f64,
}

impl SlowMode {
    /// The share of runs that see no slow round in so many.
    pub(crate) fn unseen(self, rounds: u32) -> f64 {
        (1.0 - self.share).powi(rounds as i32)
    }
}

pub(crate) struct Source(Xoshiro256PlusPlus);

impl Source {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// Between 0 and 1, neither included.
    pub(crate) fn uniform(&mut self) -> f64 {
        ((self.0.next_u64() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }

    /// Box and Muller (1958).
    pub(crate) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    pub(crate) fn round(&mut self, shape: Shape) -> f64 {
        match shape {
            Shape::Normal => 1.0 + 0.02 * self.normal(),
            Shape::LogNormal => (0.3 * self.normal()).exp(),
            Shape::Bimodal => self.slow() * (1.0 + 0.02 * self.normal()),
            Shape::QuietBimodal => self.slow() * (1.0 + 0.002 * self.normal()),
            Shape::Quiet => 1.0 + 0.002 * self.normal(),
            Shape::HeavyTailed => (0.02 * self.student_3()).exp(),
            Shape::Waiting => 1.0 - 0.05 * self.uniform().ln(),
        }
    }

    /// A round of an arm with a slow mode, and the logarithm's `noise` beside it; logarithm.
    pub(crate) fn log_with(&mut self, mode: SlowMode, noise: f64) -> f64 {
        let slow = if self.uniform() < mode.share { 1.0 } else { 0.0 };
        (slow - mode.share) * mode.times.ln() + noise * self.normal()
    }

    fn slow(&mut self) -> f64 {
        if self.uniform() < 0.2 { 1.5 } else { 1.0 }
    }

    /// Student's t with 3 degrees of freedom: a normal value by the root of a mean of 3 squares.
    pub(crate) fn student_3(&mut self) -> f64 {
        let squares: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
        self.normal() / (squares / 3.0).sqrt()
    }

    /// Noise of standard deviation 1 of which each value resembles the one before by `rho`.
    pub(crate) fn resembling(&mut self, rho: f64, n: usize) -> Vec<f64> {
        let mut value = self.normal();
        let fresh = (1.0 - rho * rho).sqrt();
        (0..n)
            .map(|_| {
                let now = value;
                value = rho * value + fresh * self.normal();
                now
            })
            .collect()
    }
}
