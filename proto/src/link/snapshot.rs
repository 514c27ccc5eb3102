//! What a link shows of itself.

use std::time::Instant;

use super::Link;
use crate::keys::Role;
use crate::path::Path;
use crate::stats::{DirectionStats, PathDirection, PathStats};
use crate::wire::control::{PathSent, SentReport, UNLIMITED};
use crate::wire::header::TICK_MICROS;

/// A link's part of a [`crate::stats::Snapshot`]; the shell adds what only it knows (names, flow bytes).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LinkSnapshot {
    /// From client to relay.
    pub up: DirectionStats,
    /// From relay to client.
    pub down: DirectionStats,
    /// Every path; `interface` and `local` are empty.
    pub paths: Vec<PathStats>,
}

impl Link {
    /// What is known now.
    pub fn snapshot(&self, now: Instant) -> LinkSnapshot {
        let own = DirectionStats {
            datagrams: self.log.next_number(),
            copies: self.counters.copies,
            copies_skipped: self.counters.copies_skipped,
            copies_useful: self.log.rescued,
            copy_bytes: self.counters.copy_bytes,
            link_bytes: self.paths.iter().map(|path| path.departures.bytes).sum(),
            effective_loss_percent: percent(self.log.lost, self.log.judged),
            ..DirectionStats::default()
        };
        let peer = direction(self.peer_sent.newest());
        let (up, down) = match self.role {
            Role::Client => (own, peer),
            Role::Relay => (peer, own),
        };
        LinkSnapshot { up, down, paths: self.paths.iter().map(|path| self.path_stats(path, now)).collect() }
    }

    fn path_stats(&self, path: &Path, now: Instant) -> PathStats {
        let own = PathDirection {
            datagrams: path.departures.datagrams,
            bytes: path.departures.bytes,
            rate_mbps: path.departures.rate(now) * 8.0 / 1e6,
            loss_percent: 100.0 * path.departures.recent_loss(),
            total_loss_percent: percent(path.departures.lost, path.departures.judged),
            queue_ms: path.departures.queue().as_secs_f64() * 1e3,
            copies_skipped: path.departures.skipped,
            noise_percent: 100.0 * path.departures.noise.floor(),
            copy_limit_mbps: path.departures.governor.limit().map(|rate| rate * 8.0 / 1e6),
            send_errors: path.departures.send_errors,
        };
        let told = self.peer_sent.newest().paths.iter().find(|sent| sent.path == path.id.0);
        let peer = PathDirection {
            // What arrives is known here; what was lost, there.
            rate_mbps: path.arrivals.rate(now) * 8.0 / 1e6,
            loss_percent: 100.0 * self.peer_sent.recent_loss(path.id, now),
            ..told.map(path_direction).unwrap_or_default()
        };
        let (up, down) = match self.role {
            Role::Client => (own, peer),
            Role::Relay => (peer, own),
        };
        PathStats {
            id: path.id.0,
            remote: path.address.remote.to_string(),
            state: path.state,
            problem: path.problem.clone().filter(|_| !path.usable(now)),
            role: path.order.role,
            preferred: self.scheduler.preferred() == Some(path.id),
            srtt_ms: path.rtt.smoothed().map(|rtt| rtt.as_secs_f64() * 1e3),
            min_rtt_ms: path.rtt.min().map(|rtt| rtt.as_secs_f64() * 1e3),
            jitter_ms: path.arrivals.jitter_ms(),
            mtu_bytes: path.mtu.known(),
            up,
            down,
            ..PathStats::default()
        }
    }
}

fn direction(sent: &SentReport) -> DirectionStats {
    DirectionStats {
        datagrams: sent.datagrams,
        copies: sent.copies,
        copies_skipped: sent.copies_skipped,
        copies_useful: sent.copies_useful,
        copy_bytes: sent.copy_bytes,
        link_bytes: sent.paths.iter().map(|path| path.bytes).sum(),
        effective_loss_percent: percent(sent.lost, sent.judged),
        ..DirectionStats::default()
    }
}

fn path_direction(sent: &PathSent) -> PathDirection {
    PathDirection {
        datagrams: sent.datagrams,
        bytes: sent.bytes,
        total_loss_percent: percent(sent.lost, sent.judged),
        queue_ms: f64::from(sent.queue) * TICK_MICROS as f64 / 1e3,
        copies_skipped: sent.skipped,
        noise_percent: f64::from(sent.noise) / 100.0,
        copy_limit_mbps: (sent.copy_rate != UNLIMITED).then(|| f64::from(sent.copy_rate) * 8.0 / 1e6),
        send_errors: sent.send_errors.into(),
        ..PathDirection::default()
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}
