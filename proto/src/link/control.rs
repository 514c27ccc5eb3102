//! Control datagrams of a link: joining, pinging, reporting, and what is made of the other side's.

use std::time::{Duration, Instant};

use rand::Rng;
use smallvec::smallvec;

use super::{AMPLIFICATION, Candidate, LEAST_REPORT_INTERVAL, Link, LinkEvent, MOST_REPORT_INTERVAL, Outgoing};
use crate::keys::Role;
use crate::path::order::{PathOrder, PathRole};
use crate::path::{Path, PathAddress};
use crate::stats::PathState;
use crate::wire::control::{
    self, CHALLENGE_LEN, Frame, Frames, MAX_MAP_LEN, MAX_PATHS, Message, PathId, PathReport, PathReports, PathSent,
    SentReport, UNLIMITED,
};
use crate::wire::header::TICK_MICROS;

/// A report waits for this many datagrams, unless it is late.
const DATAGRAMS_PER_REPORT: u32 = 16;

/// How often the other side is told what was sent, with the pings of an active session.
const SENT_REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// A relay forgets a path on which nothing came for so long while something came on another: a Leave may get lost. A client
/// pings even an idle path six times within it.
const FORGET_AFTER: Duration = Duration::from_secs(90);

impl Link {
    /// When [`Self::handle_timeout`] is to be called; `None` if nothing is planned.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        self.keys.as_ref()?;
        let (is_client, lone) = (self.role == Role::Client, self.has_no_path());
        let paths = self.paths.iter().flat_map(|path| {
            [
                path.silent_at(),
                self.forget_at(path),
                path.ping_due(self.pace(path, now), is_client, lone, now),
                path.mtu.poll_timeout().filter(|_| path.state == PathState::Up && self.framing),
            ]
        });
        let report = (self.unreported > 0).then(|| self.last_report.map_or(now, |last| last + MOST_REPORT_INTERVAL));
        let look = self.watch.map(|watch| watch.look_at);
        paths.chain([report, self.rescue_at, look, self.rest_at()]).flatten().min()
    }

    /// Does what is due: pings, probes, reports; ends silent paths.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.keys.is_none() {
            return;
        }
        let forgotten = self.paths.iter().find(|path| self.forget_at(path).is_some_and(|at| at <= now));
        if let Some(id) = forgotten.map(|path| path.id) {
            self.forget(id);
        }
        let clock = self.clock(now);
        let mut failed = false;
        for path in &mut self.paths {
            if !path.departures.is_reported(now) {
                self.queued.remove(path.id);
            }
            path.settle_pings(self.queued.contains(path.id), now);
            if path.silent_at().is_some_and(|at| at <= now) {
                path.go_down("no sign that anything arrives", clock, now);
                self.hold.expect(path.id, false);
                self.events.push_back(LinkEvent::PathChanged(path.id, PathState::Down));
                failed = true;
            }
        }
        if failed {
            self.rescue(now);
        }
        self.rescue_on(now);
        self.rest_if_due(now);
        let (is_client, lone) = (self.role == Role::Client, self.has_no_path());
        for index in 0..self.paths.len() {
            let id = self.paths[index].id;
            let pace = self.pace(&self.paths[index], now);
            let path = &mut self.paths[index];
            let due = path.ping_due(pace, is_client, lone, now).is_some_and(|at| at <= now);
            let interval = (path.rtt.or_assumed() * 3 / 2).max(Duration::from_millis(25));
            let alive = !path.is_suspect(now);
            let probe =
                (path.state == PathState::Up && self.framing).then(|| path.mtu.poll(interval, alive, now)).flatten();
            if due {
                self.ping(id, now);
            }
            if let Some(size) = probe {
                let probe = Frame::MtuProbe(size);
                let padding = usize::from(size) - Message::OVERHEAD - probe.encoded_len();
                self.say(id, smallvec![probe, Frame::Padding(padding as u16)], now);
            }
        }
        self.report_if_due(now);
    }

    /// Whether no path works.
    fn has_no_path(&self) -> bool {
        self.paths.iter().all(|path| path.state != PathState::Up)
    }

    /// When the relay forgets a path that nothing comes on while something comes on another.
    fn forget_at(&self, path: &Path) -> Option<Instant> {
        let newest = self.paths.iter().map(|path| path.heard_at).max()?;
        let at = path.heard_at + FORGET_AFTER;
        (self.role == Role::Relay && newest > at).then_some(at)
    }

    /// Sends the report of what arrived, if it is time.
    pub(super) fn report_if_due(&mut self, now: Instant) {
        if self.unreported == 0 || self.keys.is_none() {
            return;
        }
        let since = self.last_report.map_or(MOST_REPORT_INTERVAL, |last| now.saturating_duration_since(last));
        let interval = (self.fast_rtt / 2).max(LEAST_REPORT_INTERVAL);
        let due = since >= MOST_REPORT_INTERVAL || (since >= interval && self.unreported >= DATAGRAMS_PER_REPORT);
        if !due {
            return;
        }
        self.unreported = 0;
        self.last_report = Some(now);
        let reports: PathReports = (0..self.paths.len()).filter_map(|index| self.path_report(index, now)).collect();
        for index in 0..self.paths.len() {
            if self.paths[index].state == PathState::Up && !self.waits(&self.paths[index]) {
                self.say(self.paths[index].id, smallvec![Frame::Report(reports.clone())], now);
            }
        }
    }

    fn path_report(&mut self, index: usize, now: Instant) -> Option<PathReport> {
        let path = &mut self.paths[index];
        let highest = self.hold.highest_on(path.id)?;
        let oldest = path.arrivals.reported[0];
        path.arrivals.reported.rotate_left(1);
        path.arrivals.reported[3] = highest;
        let bits = (highest - oldest.min(highest) + 1).min(highest + 1).min(8 * MAX_MAP_LEN as u64);
        let mut map = smallvec![0; bits.div_ceil(8) as usize];
        for bit in 0..bits {
            if self.hold.arrived_on(path.id, highest - bit) {
                map[(bit / 8) as usize] |= 1 << (bit % 8);
            }
        }
        Some(PathReport {
            path: path.id.0,
            datagrams: path.arrivals.datagrams as u32,
            bytes: path.arrivals.bytes,
            highest: highest as u32,
            delay_sum: path.arrivals.delay_sum,
            delay_average: path.arrivals.delay_average(),
            reordering: path.arrivals.reordering(now),
            lag: (self.hold.lag(path.id, now).as_micros() as u64 / TICK_MICROS) as u32,
            map,
        })
    }

    /// Asks the far side for a sign of life on this path; a client's path that is not up asks to join.
    pub(super) fn ping(&mut self, id: PathId, now: Instant) {
        let is_client = self.role == Role::Client;
        let Some(path) = self.path(id) else { return };
        let mut frames: Frames =
            smallvec![if is_client && path.state != PathState::Up { Frame::Join } else { Frame::Ping }];
        if is_client {
            frames.push(self.wish());
        }
        let told = self.last_sent_report.is_some_and(|last| now.saturating_duration_since(last) < SENT_REPORT_INTERVAL);
        let carries = |path: &&Path| path.state == PathState::Up && !self.waits(path);
        if carries(&path) && !told {
            if self.paths.iter().rfind(carries).is_some_and(|last| last.id == id) {
                self.last_sent_report = Some(now);
            }
            frames.push(Frame::Sent(self.sent_report()));
        }
        let clock = self.clock(now);
        if let Some(path) = self.path_mut(id) {
            if is_client && let Some(size) = path.probe_with_join() {
                frames.push(Frame::MtuProbe(size));
                let used = Message::OVERHEAD + frames.iter().map(Frame::encoded_len).sum::<usize>();
                frames.push(Frame::Padding((usize::from(size).saturating_sub(used)) as u16));
            }
            path.on_ping_sent(clock, now);
        }
        self.say(id, frames, now);
    }

    /// Tells the relay on every remaining path that this one is gone.
    pub(super) fn say_leave(&mut self, gone: PathId, now: Instant) {
        for index in 0..self.paths.len() {
            self.say(self.paths[index].id, smallvec![Frame::Leave(gone)], now);
        }
    }

    fn sent_report(&self) -> SentReport {
        SentReport {
            datagrams: self.log.next_number(),
            copies: self.counters.copies,
            copies_skipped: self.counters.copies_skipped,
            copies_useful: self.log.rescued,
            copy_bytes: self.counters.copy_bytes,
            judged: self.log.judged,
            lost: self.log.lost,
            paths: self.paths.iter().map(Path::sent).collect(),
        }
    }

    /// Sends frames on a path.
    fn say(&mut self, id: PathId, frames: Frames, now: Instant) {
        let Some(path) = self.path(id) else { return };
        let (address, clock) = (path.address, path.arrivals.clock);
        let bytes = self.seal(id, clock, frames, now);
        if let Some(path) = self.path_mut(id)
            && let Some(bytes) = &bytes
        {
            path.departures.bytes += bytes.len() as u64;
            path.spend(1, bytes.len(), now);
        }
        if let Some(bytes) = bytes {
            self.outgoing.push_back(Outgoing { address, bytes });
        }
    }

    fn seal(&mut self, path: PathId, heard: Option<(u32, Instant)>, frames: Frames, now: Instant) -> Option<Vec<u8>> {
        let echo = heard.map(|(clock, at)| (clock, now.saturating_duration_since(at).as_micros() as u32));
        let message = Message { path, clock: self.clock(now), echo, frames };
        let keys = self.keys.as_ref()?;
        let mut bytes = self.spare.pop().unwrap_or_default();
        control::seal(&keys.send, keys.id, self.counter, &message, &mut bytes);
        self.counter += 1;
        Some(bytes)
    }

    /// Opens a control datagram and acts on it.
    pub(super) fn handle_control(&mut self, from: PathAddress, payload: &mut [u8], now: Instant) {
        let len = payload.len() as u64;
        let Some(keys) = &self.keys else {
            // The client finished the handshake first and asks to join already.
            if self.role == Role::Relay && self.knows(from) && self.early.len() < MAX_PATHS {
                self.early.push((from, payload.to_vec()));
            }
            return;
        };
        let Some((counter, message)) = control::open(&keys.recv, payload) else {
            self.counters.forged += 1;
            return;
        };
        if !self.replay.accept(counter) {
            self.counters.replayed += 1;
            return;
        }
        // A message that this version does not understand proves nothing but its sender.
        let Ok(message) = message else { return };
        match self.role {
            Role::Client => {
                if self.index_at(from).is_some_and(|index| self.paths[index].id == message.path) {
                    self.handle_message(message, now);
                } else {
                    self.counters.forged += 1;
                }
            }
            Role::Relay => {
                if self.path(message.path).is_some_and(|path| path.address == from) {
                    self.handle_message(message, now);
                } else {
                    self.handle_stranger(from, message, len, now);
                }
            }
        }
    }

    fn handle_message(&mut self, message: Message, now: Instant) {
        let (id, clock_now, queued) = (message.path, self.clock(now), self.queued.contains(message.path));
        let Some(path) = self.path_mut(id) else { return };
        path.arrivals.clock = Some((message.clock, now));
        path.heard_at = now;
        let was = path.state;
        let mut works_again = false;
        if let Some((clock, held)) = message.echo {
            works_again = path.on_echo(clock, held, clock_now, queued, now);
            self.update_rtts();
        }
        let (mut answer, mut asked) = (Frames::new(), false);
        for frame in message.frames {
            match frame {
                Frame::Padding(_) => {}
                Frame::Ping => asked = true,
                Frame::Join => answer.push(Frame::Joined),
                Frame::Challenge(proof) => {
                    if let Some(path) = self.path_mut(id) {
                        path.challenged = true;
                    }
                    answer.push(Frame::Answer(proof));
                    answer.push(self.wish());
                }
                // Answers count from strangers only, `Joined` below.
                Frame::Answer(_) => answer.push(Frame::Joined),
                Frame::Joined if self.role == Role::Client => {
                    self.framing = true;
                    self.on_joined(id, now);
                }
                Frame::Joined => {}
                Frame::Leave(gone) if self.role == Role::Relay && gone != id => {
                    if self.forget(gone) {
                        self.rescue(now);
                    }
                }
                Frame::Leave(_) => {}
                Frame::Wish { sequence, download, orders } if self.role == Role::Relay => {
                    self.take_wish((sequence, download), &orders, id, now);
                }
                Frame::Wish { .. } => {}
                Frame::Report(reports) => {
                    reports.iter().for_each(|report| self.handle_report(report, now));
                    self.judge_primary(now);
                }
                Frame::Sent(sent) => self.peer_sent.take(sent, now),
                Frame::MtuProbe(size) => answer.push(Frame::MtuAck(size)),
                Frame::MtuAck(size) => {
                    if let Some(path) = self.path_mut(id) {
                        path.mtu.on_ack(size, now);
                    }
                }
            }
        }
        // On the relay a path that had fallen silent comes back by itself, for its address is proved already; but that
        // something comes in does not tell that anything gets out.
        if self.role == Role::Relay && was == PathState::Down {
            if works_again {
                self.come_up(id, now);
            } else {
                answer.push(Frame::Ping);
            }
        }
        // Any answer carries the clocks. Padding takes all the rest of a message, so nothing may follow it.
        if asked && answer.is_empty() {
            answer.push(Frame::Padding(1));
        }
        if !answer.is_empty() {
            self.say(id, answer, now);
        }
    }

    /// A valid message from an address that is not the path's: a new path, or one behind a NAT that changed its mind.
    fn handle_stranger(&mut self, from: PathAddress, message: Message, len: u64, now: Instant) {
        let id = message.path;
        let known = self.candidates.iter().position(|candidate| candidate.path == id);
        let index = match known {
            Some(index) if self.candidates[index].address == from => index,
            _ => {
                let mut challenge = [0; CHALLENGE_LEN];
                self.rng.fill_bytes(&mut challenge);
                if let Some(index) = known {
                    self.candidates.remove(index);
                }
                self.candidates.push(Candidate {
                    path: id,
                    address: from,
                    challenge,
                    received: 0,
                    sent: 0,
                    probed: 0,
                    joins: message.frames.contains(&Frame::Join),
                });
                self.candidates.len() - 1
            }
        };
        self.candidates[index].received += len;
        let proved = message.frames.contains(&Frame::Answer(self.candidates[index].challenge));
        let probe = message.frames.iter().find_map(|frame| match frame {
            Frame::MtuProbe(size) if u64::from(*size) == len => Some(*size),
            _ => None,
        });
        let probed = self.candidates[index].probed.max(probe.unwrap_or(0));
        self.candidates[index].probed = probed;
        if proved {
            let candidate = self.candidates.remove(index);
            self.join(&candidate, now);
            self.handle_message(message, now);
            return;
        }
        let (challenge, heard) = (self.candidates[index].challenge, Some((message.clock, now)));
        let mut frames: Frames = smallvec![Frame::Challenge(challenge)];
        frames.extend(probe.map(Frame::MtuAck));
        let Some(bytes) = self.seal(id, heard, frames, now) else { return };
        let candidate = &mut self.candidates[index];
        if candidate.sent + bytes.len() as u64 <= AMPLIFICATION * candidate.received {
            candidate.sent += bytes.len() as u64;
            self.outgoing.push_back(Outgoing { address: from, bytes });
        }
    }

    /// The address has proved that it receives what is sent to it, and holds the session's keys: it is the path's.
    fn join(&mut self, candidate: &Candidate, now: Instant) {
        let Candidate { path: id, address, probed, joins, .. } = *candidate;
        self.framing = true;
        for peer in std::mem::take(&mut self.handshake) {
            if peer.address != address {
                self.events.push_back(LinkEvent::AddressRemoved(peer.address));
            }
        }
        match self.path_mut(id) {
            Some(path) => {
                let old = path.address;
                path.move_to(address, joins, now);
                self.events.push_back(LinkEvent::AddressRemoved(old));
            }
            None => {
                let at = self.paths.partition_point(|path| path.id < id);
                self.paths.insert(at, Path::new(id, address, now));
            }
        }
        self.events.push_back(LinkEvent::AddressAdded(address));
        if self.order(id).role == PathRole::Gone {
            // The number is used again; the wish that says so comes with the answer.
            self.orders[usize::from(id.0)] = PathOrder::default();
        }
        self.apply_order(id, now);
        if let Some(path) = self.path_mut(id)
            && probed > 0
        {
            path.mtu.assume(probed);
        }
        self.come_up(id, now);
        // What went to an address that is no longer the client's.
        self.rescue(now);
    }

    /// The relay says that it sends and listens on this path.
    fn on_joined(&mut self, id: PathId, now: Instant) {
        let Some(path) = self.path_mut(id) else { return };
        let was_strange = std::mem::take(&mut path.challenged) && path.state == PathState::Up;
        if was_strange {
            path.on_known_again(now);
            self.rescue(now);
        } else {
            self.come_up(id, now);
        }
    }

    fn come_up(&mut self, id: PathId, now: Instant) {
        let Some(path) = self.path_mut(id) else { return };
        if path.state != PathState::Up {
            path.come_up(now);
            let expected = path.is_expected();
            self.hold.expect(id, expected);
            self.events.push_back(LinkEvent::PathChanged(id, PathState::Up));
            self.wake = true;
            self.rescue(now);
        }
    }

    fn update_rtts(&mut self) {
        let up = |path: &&Path| path.state == PathState::Up;
        let Some(fast) = self.paths.iter().filter(up).filter_map(|path| path.rtt.smoothed()).min() else { return };
        self.fast_rtt = fast;
        for path in &self.paths {
            if let Some(rtt) = path.rtt.smoothed() {
                self.hold.set_lag_hint(path.id, rtt.saturating_sub(fast) / 2);
            }
        }
    }
}

impl Path {
    fn sent(&self) -> PathSent {
        PathSent {
            path: self.id.0,
            datagrams: self.departures.datagrams,
            bytes: self.departures.bytes,
            judged: self.departures.judged,
            lost: self.departures.lost,
            skipped: self.departures.skipped,
            noise: (self.departures.noise.floor() * 1e4).round() as u32,
            copy_rate: self.departures.governor.limit().map_or(UNLIMITED, |rate| rate as u32),
            queue: (self.departures.queue().as_micros() as u64 / TICK_MICROS) as u32,
            send_errors: self.departures.send_errors as u32,
        }
    }
}
