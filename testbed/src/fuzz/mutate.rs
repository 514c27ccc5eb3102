//! Changed inputs in an order that a seed decides.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// The longest input made: longer than any datagram, request or frame head allows.
const LONGEST: usize = 4_096;
/// Changes to one input at most.
const MOST_CHANGES: u32 = 8;
/// Values at which parsers turn.
const INTERESTING: [u8; 14] = [0, 1, 4, 5, 6, 16, 31, 32, 63, 64, 127, 128, 254, 255];

/// Makes inputs out of valid ones.
#[derive(Debug)]
pub struct Mutator {
    chance: Pcg64,
    pool: Vec<Vec<u8>>,
}

impl Mutator {
    /// Begins with these inputs; the same seed gives the same row.
    pub fn new(pool: Vec<Vec<u8>>, seed: u64) -> Self {
        Self { chance: Pcg64::seed_from_u64(seed), pool }
    }

    /// The next input.
    pub fn next_input(&mut self) -> Vec<u8> {
        let mut input = self.pick();
        for _ in 0..self.chance.random_range(1..=MOST_CHANGES) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input
    }

    fn pick(&mut self) -> Vec<u8> {
        if self.pool.is_empty() {
            return Vec::new();
        }
        let index = self.chance.random_range(0..self.pool.len());
        self.pool[index].clone()
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        if input.is_empty() {
            let length = self.chance.random_range(1..200);
            input.extend((0..length).map(|_| self.chance.random::<u8>()));
            return;
        }
        let at = self.chance.random_range(0..input.len());
        match self.chance.random_range(0..9) {
            0 => input[at] ^= 1 << self.chance.random_range(0..8),
            1 => input[at] = self.chance.random(),
            2 => input[at] = INTERESTING[self.chance.random_range(0..INTERESTING.len())],
            3 => input.insert(at, self.chance.random()),
            4 => drop(input.remove(at)),
            5 => input.truncate(at),
            6 => {
                let end = (at + self.chance.random_range(1..32)).min(input.len());
                let copy = input[at..end].to_vec();
                let to = self.chance.random_range(0..=input.len());
                input.splice(to..to, copy);
            }
            7 => {
                let other = self.pick();
                let from = self.chance.random_range(0..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            _ => {
                let length = self.chance.random_range(1..64);
                input.extend((0..length).map(|_| self.chance.random::<u8>()));
            }
        }
    }
}
