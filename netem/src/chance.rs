//! Where a link's randomness comes from: one generator for each kind of event, all forked from one seed.
//!
//! With a generator of its own, the n-th loss decision of a seed is the same whether or not the link also has jitter,
//! duplicates or reordering, so that two runs which differ in one setting differ in nothing else.

use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_pcg::Pcg64;

/// The generators of one link.
#[derive(Debug)]
pub(crate) struct Chances {
    pub(crate) loss: Chance,
    pub(crate) jitter: Chance,
    pub(crate) reorder: Chance,
    pub(crate) duplicate: Chance,
}

impl Chances {
    /// Forks every generator, used or not, in a fixed order.
    pub(crate) fn from_seed(seed: u64) -> Self {
        let mut root = Pcg64::seed_from_u64(seed);
        let mut fork = || Chance(Pcg64::from_rng(&mut root));
        Self { loss: fork(), jitter: fork(), reorder: fork(), duplicate: fork() }
    }
}

/// One kind of event's generator.
#[derive(Debug)]
pub(crate) struct Chance(Pcg64);

impl Chance {
    /// A number from 0 up to, not including, 1.
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0.random()
    }

    /// Whether an event of that probability happens. Always draws one number.
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        self.uniform() < probability
    }

    /// A draw from the normal distribution with mean 0 and standard deviation 1.
    pub(crate) fn normal(&mut self) -> f64 {
        self.0.sample(StandardNormal)
    }
}
