//! What the paths are for: the client's orders, how the relay learns them, and what both ends make of them.
//!
//! Which paths carry data follows in [`crate::schedule`]. Here is what else an order changes: a backup that carries nothing
//! *waits*, and then costs next to nothing; a path with a rate makes the sender wait if it carries the originals.

use std::time::Instant;

use super::Link;
use crate::path::order::{PathOrder, PathRole};
use crate::path::{Pace, Path};
use crate::stats::PathState;
use crate::wire::control::{Frame, MAX_PATHS, PathId, PathOrders};

/// A path in use that surely loses this share may soon be left: the backups are looked at closely.
const DOUBTFUL_LOSS: f64 = 0.05;

impl Link {
    /// Says what a path of the client is for from now on, and tells the relay.
    pub fn set_order(&mut self, id: PathId, order: PathOrder, now: Instant) {
        let Some(known) = self.orders.get_mut(usize::from(id.0)) else { return };
        if *known == order {
            return;
        }
        *known = order;
        self.apply_order(id, now);
        self.change_wish(now);
    }

    /// What is ordered of a path.
    pub fn order(&self, id: PathId) -> PathOrder {
        self.orders.get(usize::from(id.0)).copied().unwrap_or_default()
    }

    /// Until when the sender is to wait, for the rate of the path that carries everything; `None` if it need not.
    pub fn shut_until(&mut self, now: Instant) -> Option<Instant> {
        let primary = self.primary?;
        let path = self.path_mut(primary).filter(|path| path.order.rate.is_some() && path.state == PathState::Up)?;
        path.allowance.shut_until(now)
    }

    /// The client's wish as it tells it.
    pub(super) fn wish(&self) -> Frame {
        let all = (0..MAX_PATHS as u8).map(PathId).map(|id| (id, self.order(id)));
        let orders: PathOrders = all.filter(|(_, order)| *order != PathOrder::default()).collect();
        Frame::Wish { sequence: self.wish.0, download: self.wish.1, orders }
    }

    /// The client wishes something else: tells it on every path.
    pub(super) fn change_wish(&mut self, now: Instant) {
        self.wish.0 = self.wish.0.wrapping_add(1);
        if self.keys.is_some() {
            for index in 0..self.paths.len() {
                self.ping(self.paths[index].id, now);
            }
        }
    }

    /// The relay takes a wish that came on the path `by`.
    pub(super) fn take_wish(
        &mut self,
        wish: (u32, crate::mode::Copying),
        orders: &PathOrders,
        by: PathId,
        now: Instant,
    ) {
        if (wish.0.wrapping_sub(self.wish.0) as i32) < 0 {
            return;
        }
        self.wish = wish;
        self.copying = wish.1;
        let mut lost = false;
        for id in (0..MAX_PATHS as u8).map(PathId) {
            let named = orders.iter().rfind(|(named, _)| *named == id);
            let order = named.map(|(_, order)| *order).unwrap_or_default();
            if self.order(id) == order {
                continue;
            }
            self.orders[usize::from(id.0)] = order;
            if order.role == PathRole::Gone && id != by {
                lost |= self.forget(id);
            } else {
                self.apply_order(id, now);
            }
        }
        if lost {
            self.rescue(now);
        }
    }

    /// Makes a path keep to its order.
    pub(super) fn apply_order(&mut self, id: PathId, now: Instant) {
        let order = self.order(id);
        let Some(path) = self.path_mut(id) else { return };
        let was = std::mem::replace(&mut path.order, order);
        path.allowance.set_rate(order.rate, now);
        let expected = path.is_expected();
        self.hold.expect(id, expected);
        if was != order {
            // Which path the controller is told of depends on it.
            self.reference = None;
            self.wake = true;
        }
    }

    /// Whether a path is a backup that carries nothing now.
    pub(super) fn waits(&self, path: &Path) -> bool {
        let is_up_for_use = |path: &Path| path.state == PathState::Up && path.order.role == PathRole::Use;
        path.order.role != PathRole::Use
            && path.state == PathState::Up
            && self.scheduler.preferred() != Some(path.id)
            && self.paths.iter().any(is_up_for_use)
    }

    /// How often a path is to be pinged.
    pub(super) fn pace(&self, path: &Path, now: Instant) -> Pace {
        if !self.is_active(now) {
            return Pace::Idle;
        }
        let preferred = self.scheduler.preferred().and_then(|id| self.path(id));
        let is_doubtful = preferred.is_some_and(|path| path.loss_bounds.at_least_now >= DOUBTFUL_LOSS);
        if self.waits(path) && !is_doubtful { Pace::Waiting } else { Pace::Active }
    }
}
