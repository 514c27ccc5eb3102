//! Notices that the machine, or this process alone, has been asleep.
//!
//! Timers stand still in a sleep, and the far side's do not: NATs forget, the relay may have given the session up. Two things
//! tell of it: the system's count of time spent suspended, and a short timer that fires far too late because nothing ran.

use std::time::Duration;

use tokio::time::Instant;

/// How often to look.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// A sleep shorter than this is no more than a pause on the network.
const LEAST_SLEEP: Duration = Duration::from_secs(2);
/// A timer that is late by less may belong to a busy machine.
const LEAST_LATENESS: Duration = Duration::from_secs(5);

/// What was seen last.
#[derive(Debug)]
pub(super) struct Sleeper {
    at: Instant,
    suspended: Duration,
}

impl Sleeper {
    /// Begins awake; `suspended` is how long the machine has been suspended since it started.
    pub(super) fn new(suspended: Duration, now: Instant) -> Self {
        Self { at: now, suspended }
    }

    /// To be called every [`LOOK`]: for how long it has slept since, if it has.
    pub(super) fn look(&mut self, suspended: Duration, now: Instant) -> Option<Duration> {
        let late = now.saturating_duration_since(self.at).saturating_sub(LOOK);
        let away = suspended.saturating_sub(self.suspended);
        (self.at, self.suspended) = (now, suspended);
        (away >= LEAST_SLEEP || late >= LEAST_LATENESS).then_some(away.max(late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// SLEEP-1
    #[test]
    fn a_suspended_machine_and_a_stopped_process_have_slept_and_a_busy_one_has_not() {
        let start = Instant::now();
        let mut sleeper = Sleeper::new(40 * SECOND, start);
        assert_eq!(sleeper.look(40 * SECOND, start + SECOND), None);
        assert_eq!(sleeper.look(40 * SECOND, start + 5 * SECOND), None, "three seconds late is busy, not asleep");
        assert_eq!(sleeper.look(220 * SECOND, start + 6 * SECOND), Some(180 * SECOND));
        assert_eq!(sleeper.look(220 * SECOND, start + 67 * SECOND), Some(60 * SECOND));
        assert_eq!(sleeper.look(220 * SECOND, start + 68 * SECOND), None);
    }
}
