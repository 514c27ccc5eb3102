//! Signs of life of a client's paths, for whoever chooses among the ways to the relay.
//!
//! Before a session has keys no path can join; then anything that came over it is a sign. After a sleep, or whenever else
//! the world may have changed unseen, no path is believed to live until it answers again.

use std::time::Instant;

use super::{Link, LinkEvent};
use crate::stats::PathState;
use crate::wire::control::PathId;

/// What one path of a client has shown of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathSigns {
    /// The path.
    pub path: PathId,
    /// Whether it carries traffic.
    pub state: PathState,
    /// Whether anything ever came over it without our header, as the answers to a handshake do.
    pub heard: bool,
}

impl Link {
    /// What every path has shown of itself, lowest number first.
    pub fn signs(&self) -> impl Iterator<Item = PathSigns> {
        self.paths.iter().map(|path| PathSigns { path: path.id, state: path.state, heard: path.heard })
    }

    /// Believes no path until it answers again, and asks each at once; `problem` says in words why. On the client only, and
    /// without effect before there are keys.
    pub fn suspect_all(&mut self, problem: &str, now: Instant) {
        if self.keys.is_none() {
            return;
        }
        self.wake = true;
        let clock = self.clock(now);
        for index in 0..self.paths.len() {
            let path = &mut self.paths[index];
            let (id, was) = (path.id, path.state);
            path.suspect(problem, clock, now);
            if was == PathState::Up {
                self.hold.expect(id, false);
                self.events.push_back(LinkEvent::PathChanged(id, PathState::Down));
            }
            self.ping(id, now);
        }
    }
}
