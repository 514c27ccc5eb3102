//! A budget that fills at a steady rate up to what it may hold, and is spent from: a token bucket.

use std::time::Instant;

/// What is in a budget. How fast it fills and how much it holds is its owner's to say, who has many alike.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    pub(crate) tokens: f64,
    at: Instant,
}

impl Bucket {
    /// One that holds `most`.
    pub(crate) fn full(most: f64, now: Instant) -> Self {
        Self { tokens: most, at: now }
    }

    /// Adds what came in since the last time, at `rate` tokens per second.
    pub(crate) fn fill(&mut self, rate: f64, most: f64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at);
        self.tokens = (self.tokens + rate * elapsed.as_secs_f64()).min(most);
        self.at = self.at.max(now);
    }
}
