//! A runtime whose clock stands still while anything can run, and then jumps to the next thing that is due.
//!
//! [`run`] is a current-thread tokio runtime with paused time. tokio's timers fire on whole milliseconds, and so they do
//! here; but packets must arrive to the nanosecond, or a link of 10 ms would seem to vary by a tenth. So the network does
//! not sleep until a packet is due: it waits until nothing else can run (`when_idle`) and then moves the clock itself
//! (`advance_to`), never past a millisecond at which a timer could fire.
//!
//! Nothing here is random and nothing reads the machine's clock: the same future takes the same steps every time, if it
//! draws its own chance from seeds. (`tokio::select!` must be `biased`.)

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

/// Distance of the instants at which tokio's timers fire, counted from the start of the runtime.
const TICK: Duration = Duration::from_millis(1);

thread_local! {
    /// The task that wants to know when nothing else can run.
    static IDLE: RefCell<Option<Waker>> = const { RefCell::new(None) };
    /// When the clock of this thread's runtime began to stand.
    static START: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Runs a future to its end in virtual time, from its own beginning.
///
/// # Panics
/// When called from within a runtime, or when everything waits for something that will never come and has no timer.
pub fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .on_thread_park(|| {
            if let Some(waker) = IDLE.take() {
                waker.wake();
            }
        })
        .build()
        .expect("a current-thread runtime without I/O needs nothing from the operating system");
    let output = runtime.block_on(async {
        START.set(Some(Instant::now()));
        future.await
    });
    drop(runtime);
    START.set(None);
    IDLE.set(None);
    output
}

/// How long the clock of [`run`] has moved.
///
/// # Panics
/// Outside of [`run`].
pub fn elapsed() -> Duration {
    start().elapsed()
}

fn start() -> Instant {
    START.get().expect("virtual time exists within virtual_time::run")
}

/// The last instant at which timers could fire, not after `instant`.
pub(crate) fn tick_at_or_before(instant: Instant) -> Instant {
    let since = instant.saturating_duration_since(start());
    instant - (since - whole_ticks(since))
}

/// The first instant at which timers could fire, after `instant`.
pub(crate) fn tick_after(instant: Instant) -> Instant {
    tick_at_or_before(instant) + TICK
}

fn whole_ticks(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Resolves when no other task of the runtime can run at this instant. One task may wait at a time.
pub(crate) async fn when_idle() {
    let mut armed = false;
    poll_fn(|context| {
        IDLE.with_borrow_mut(|waiting| {
            if armed && waiting.is_none() {
                return Poll::Ready(());
            }
            armed = true;
            *waiting = Some(context.waker().clone());
            Poll::Pending
        })
    })
    .await;
}

/// Moves the clock. Timers that are due by then fire after this returns.
pub(crate) async fn advance_to(instant: Instant) {
    tokio::time::advance(instant.saturating_duration_since(Instant::now())).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    #[test]
    fn ticks_surround_an_instant() {
        run(async {
            let start = Instant::now();
            let between = start + 5 * TICK + 3 * MICROSECOND;
            assert_eq!(tick_at_or_before(between), start + 5 * TICK);
            assert_eq!(tick_after(between), start + 6 * TICK);
            assert_eq!(tick_at_or_before(start + TICK), start + TICK);
        });
    }

    #[test]
    fn idle_comes_after_everything_that_can_run_now() {
        run(async {
            let busy = tokio::spawn(async {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            });
            when_idle().await;
            assert!(busy.is_finished());
            assert_eq!(elapsed(), Duration::ZERO);
        });
    }

    #[test]
    fn the_clock_moves_by_less_than_a_tick_and_timers_still_fire_on_ticks() {
        run(async {
            let sleeper = tokio::spawn(async {
                tokio::time::sleep(TICK).await;
                elapsed()
            });
            when_idle().await;
            advance_to(start() + 300 * MICROSECOND).await;
            assert_eq!(elapsed(), 300 * MICROSECOND);
            assert!(!sleeper.is_finished());
            when_idle().await;
            advance_to(start() + TICK).await;
            assert_eq!(sleeper.await.unwrap(), TICK);
        });
    }
}
