//! What is made of the far side's reports: which datagrams got lost where, how a path does, which one is the reference.

use std::time::{Duration, Instant};

use super::sent_log::{Entry, LOG_LEN};
use super::{Link, LinkEvent};
use crate::congestion::copy_governor::CopyReport;
use crate::congestion::noise_floor::Tally;
use crate::congestion::{ReferenceReport, SendPhase};
use crate::mode::Copying;
use crate::path::Path;
use crate::path::departures::tolerated_without_jitter;
use crate::stats::PathState;
use crate::wire::control::{PathId, PathReport};
use crate::wire::header::{TICK_MICROS, expand_number};

/// A better reference path must deliver this much more, and is looked for once a second.
const REFERENCE_MARGIN: f64 = 1.2;
/// One with a shorter round trip takes its place again as soon as it delivers this share: copies are thinned, originals not.
const AS_GOOD: f64 = 0.9;
const REFERENCE_INTERVAL: Duration = Duration::from_secs(1);

/// Fates of datagrams in the order of their numbers, handed to the path's noise floor in runs of one kind.
struct Run {
    phase: SendPhase,
    queue: bool,
    fates: Tally,
}

impl Run {
    /// The run that the next datagram belongs to; the old one is finished if that is another.
    fn next(self, entry: &Entry, path: PathId, has_queue: bool, mut finish: impl FnMut(Self)) -> Self {
        let queue = has_queue || entry.queued.contains(path);
        if (entry.phase, queue) == (self.phase, self.queue) {
            return self;
        }
        finish(self);
        Run { phase: entry.phase, queue, fates: Tally::default() }
    }
}

impl Link {
    /// Settles the fate of what a report covers, and takes in how its path does.
    pub(super) fn handle_report(&mut self, report: &PathReport, now: Instant) {
        let id = PathId(report.path);
        let next = self.log.next_number();
        let copied = self.copying == Copying::Bicast && self.paths.len() > 1;
        let primary = self.primary.and_then(|primary| self.path_mut(primary));
        let originals = primary.map(|path| (path.departures.peak_queue(now), path.departures.recent_loss()));
        let gives_way = self.sender.gives_way;
        let Some(path) = self.paths.iter_mut().find(|path| path.id == id) else { return };
        let highest = expand_number(report.highest, next);
        let probing = self.log.entry(highest).is_some_and(|entry| !entry.phase.is_calm());
        if highest >= next || !path.departures.on_report(report, probing, now) {
            return;
        }
        if let Some(entry) = self.log.entry(highest) {
            path.on_evidence(entry.sent_at, now);
        }
        let covered = highest.saturating_sub(8 * report.map.len() as u64 - u64::from(!report.map.is_empty()));
        let reordering = Duration::from_micros(u64::from(report.reordering) * TICK_MICROS).mul_f64(1.25);
        let newest = self.log.entry(highest).map(|entry| entry.sent_at);
        let is_reference = self.reference.is_some_and(|(reference, _)| reference == id);
        path.departures.highest = Some(highest);
        // Older numbers are forgotten: a path that joined late was not sent them, or it does not matter any more.
        path.departures.judged_to = path.departures.judged_to.max(next.saturating_sub(LOG_LEN));
        let (mut judged, mut newest_judged) = (Tally::default(), None);
        let min_rtt = path.rtt.min().unwrap_or(self.fast_rtt);
        let tolerated = path.departures.tolerated_queue(min_rtt);
        let has_queue = path.departures.queue() > tolerated;
        let round = path.rtt.or_assumed();
        path.departures.noise.set_needs_queue(!copied);
        let mut run = Run { phase: SendPhase::Steady, queue: has_queue, fates: Tally::default() };
        while path.departures.judged_to <= highest {
            let number = path.departures.judged_to;
            let bit = (highest - number) as usize;
            // What the map no longer covers was told in a report that got lost: taken for arrived.
            let arrived = number < covered || report.map.get(bit / 8).is_none_or(|byte| byte & (1 << (bit % 8)) != 0);
            if !arrived
                && let (Some(entry), Some(newest)) = (self.log.entry(number), newest)
                && newest.saturating_duration_since(entry.sent_at) < reordering
            {
                break;
            }
            path.departures.judged_to += 1;
            if let Some(entry) = self.log.judge(id, number, arrived) {
                if !entry.queued.contains(id) {
                    path.loss.count(1, u32::from(!arrived), now);
                }
                path.departures.judge(!arrived);
                judged.count(!arrived);
                newest_judged = Some(entry.sent_at);
                run = run.next(&entry, id, has_queue, |run| {
                    path.departures.noise.on_judged(run.fates, run.phase, run.queue, round, now);
                });
                run.fates.count(!arrived);
                if arrived && bit < 8 * report.map.len() {
                    path.mtu.on_arrived(entry.size);
                }
                if !arrived && is_reference && entry.is_copied() {
                    self.events.push_back(LinkEvent::ReferenceLoss {
                        number,
                        bytes: entry.size,
                        sent_at: entry.sent_at,
                        queue_exceeded: entry.queued.contains(id),
                    });
                }
            }
        }
        path.departures.noise.on_judged(run.fates, run.phase, run.queue, round, now);
        if self.primary != Some(id) {
            // What the originals bear on their path is no reason to give way on this one; but a queue is, for a controller that
            // gives way to queues: others may keep it.
            let (originals_queue, originals_loss) = originals.unwrap_or_default();
            let borne = if gives_way { Duration::ZERO } else { originals_queue.min(min_rtt) };
            let bearable = path.departures.bearable_queue(min_rtt);
            let report = CopyReport {
                fates: judged,
                highest,
                next,
                queue: path.departures.queue(),
                tolerated: bearable + borne,
                bearable,
                without_jitter: tolerated_without_jitter(min_rtt),
                floor: path.departures.noise.floor().max(originals_loss),
                delivered: path.departures.arriving(),
            };
            path.departures.governor.on_report(&report, now);
        }
        if has_queue {
            self.queued.insert(id);
        } else {
            self.queued.remove(id);
        }
        if is_reference && let Some(newest_sent_at) = newest_judged {
            let (queue, floor) = (path.departures.queue(), path.departures.noise.floor());
            let up = self.paths.iter().filter(|path| path.state == PathState::Up);
            let trial_wanted = self.trials.wants_trial(up.map(|path| &path.departures.noise), now);
            self.events.push_back(LinkEvent::ReferenceReport(ReferenceReport {
                judged: judged.datagrams,
                lost: judged.lost,
                newest_sent_at,
                queue,
                tolerated,
                floor,
                trial_wanted,
            }));
        }
        self.watch_report(id, judged.datagrams - judged.lost, highest, now);
        self.choose_reference(now);
        self.events.push_back(LinkEvent::Reported);
    }

    fn choose_reference(&mut self, now: Instant) {
        // Originals go where the preferred path's kind is: a backup beside it carries nothing, a slowed path too little.
        let rank = self.scheduler.preferred().map(|preferred| self.order(preferred).rank());
        let up = |path: &&Path| path.state == PathState::Up && rank.is_none_or(|rank| path.order.rank() == rank);
        let current = self.reference.and_then(|(id, _)| self.path(id)).filter(up);
        let is_fresh = self.reference.is_some_and(|(_, at)| now.saturating_duration_since(at) < REFERENCE_INTERVAL);
        if current.is_some() && is_fresh {
            return;
        }
        let rate = |path: &Path| path.departures.rate(now);
        // As long as no rate is known, the path with the shortest way is the best guess.
        let best = self.paths.iter().filter(up).max_by(|a, b| {
            rate(a).total_cmp(&rate(b)).then_with(|| b.rtt.or_assumed().cmp(&a.rtt.or_assumed())).then(b.id.cmp(&a.id))
        });
        let Some(best) = best else { return };
        let reference = match current {
            Some(current) if rate(best) < REFERENCE_MARGIN * rate(current) => {
                let much_shorter = |path: &Path| {
                    path.rtt.min().zip(current.rtt.min()).is_some_and(|(rtt, current)| rtt * 5 / 4 < current)
                };
                let shorter = |path: &&Path| much_shorter(path) && rate(path) >= AS_GOOD * rate(current);
                self.paths.iter().filter(up).filter(shorter).min_by_key(|path| path.rtt.min()).unwrap_or(current)
            }
            _ => best,
        };
        self.reference = Some((reference.id, now));
    }
}
