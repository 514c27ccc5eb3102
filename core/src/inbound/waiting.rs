//! The connections that are open for nothing yet: in a handshake, or kept alive for a next request.
//!
//! Each costs a descriptor. When descriptors run out, idle ones are closed first and then the oldest handshakes; of idle
//! ones there are [`MAX_IDLE`] at most. Whoever is served stands in no table and is never sent away.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// Idle connections of an inbound at most; the longest idle one makes room. Browsers keep 32 to one proxy.
pub(super) const MAX_IDLE: usize = 256;

/// The tables of one inbound.
#[derive(Default)]
pub(super) struct Waiting(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    next: u64,
    /// Tasks whose clients have not said what they want, by age.
    handshakes: BTreeMap<u64, AbortHandle>,
    /// Tasks that wait for another request, by the time they have done so.
    idle: BTreeMap<u64, AbortHandle>,
}

impl Waiting {
    /// Enters a new connection as one in its handshake, under a number by which its task finds it again.
    pub(super) fn enter(&self, spawn: impl FnOnce(u64) -> AbortHandle) {
        let mut tables = self.0.lock();
        let number = tables.take_number();
        // The entry is there before the task can run and look for it.
        let task = spawn(number);
        tables.handshakes.insert(number, task);
    }

    /// The place of the connection that was entered under this number.
    pub(super) fn place(&self, number: u64) -> Place<'_> {
        Place { waiting: self, number, task: None }
    }

    /// Ends the connection that can be spared most; `false` when there is none.
    pub(super) fn send_one_away(&self) -> bool {
        let mut tables = self.0.lock();
        let spared = tables.idle.pop_first().or_else(|| tables.handshakes.pop_first());
        if let Some((_, task)) = &spared {
            task.abort();
        }
        spared.is_some()
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, usize) {
        let tables = self.0.lock();
        (tables.handshakes.len(), tables.idle.len())
    }
}

impl Tables {
    fn take_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn remove(&mut self, number: u64) -> Option<AbortHandle> {
        self.handshakes.remove(&number).or_else(|| self.idle.remove(&number))
    }
}

/// One connection's place in the tables, left when dropped.
pub(super) struct Place<'w> {
    waiting: &'w Waiting,
    number: u64,
    /// The connection's task, while it stands in no table.
    task: Option<AbortHandle>,
}

impl Place<'_> {
    /// The client has said what it wants: it is served, and not sent away any more.
    pub(super) fn leave(&mut self) {
        if let Some(task) = self.waiting.0.lock().remove(self.number) {
            self.task = Some(task);
        }
    }

    /// The client was served and is waited for again.
    pub(super) fn wait_idle(&mut self) {
        let Some(task) = self.task.take() else {
            return;
        };
        let mut tables = self.waiting.0.lock();
        self.number = tables.take_number();
        tables.idle.insert(self.number, task);
        if tables.idle.len() > MAX_IDLE
            && let Some((_, longest)) = tables.idle.pop_first()
        {
            longest.abort();
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    fn enter(waiting: &Waiting) -> (u64, tokio::task::JoinHandle<()>) {
        let mut entered = None;
        waiting.enter(|number| {
            let task = tokio::spawn(pending::<()>());
            let handle = task.abort_handle();
            entered = Some((number, task));
            handle
        });
        entered.expect("enter spawns")
    }

    #[tokio::test]
    async fn idle_connections_go_before_handshakes_and_served_ones_stay() {
        let waiting = Waiting::default();
        let (_, handshake) = enter(&waiting);
        let (served, served_task) = enter(&waiting);
        let (idle, idle_task) = enter(&waiting);
        let mut served = waiting.place(served);
        served.leave();
        let mut idle = waiting.place(idle);
        idle.leave();
        idle.wait_idle();
        assert_eq!(waiting.count(), (1, 1));
        assert!(waiting.send_one_away());
        assert!(idle_task.await.unwrap_err().is_cancelled());
        assert!(waiting.send_one_away());
        assert!(handshake.await.unwrap_err().is_cancelled());
        assert!(!waiting.send_one_away());
        assert!(!served_task.is_finished());
    }

    #[tokio::test]
    async fn the_longest_idle_connection_makes_room() {
        let waiting = Waiting::default();
        let mut tasks = Vec::new();
        let mut places = Vec::new();
        for _ in 0..=MAX_IDLE {
            let (number, task) = enter(&waiting);
            let mut place = waiting.place(number);
            place.leave();
            place.wait_idle();
            places.push(place);
            tasks.push(task);
        }
        assert_eq!(waiting.count(), (0, MAX_IDLE));
        assert!(tasks.remove(0).await.unwrap_err().is_cancelled());
        assert!(!tasks[0].is_finished());
        drop(places);
        assert_eq!(waiting.count(), (0, 0));
    }
}
