//! How long a way stays open in silence: what a NAT or a firewall remembers of it.
//!
//! A session is made over the way, and then its socket sends nothing more. After the silence a second socket on the same
//! network joins the session and sends: that makes the relay ping every path it knows. If the first socket hears of that,
//! the way is still open. Each length of silence has a session of its own, all at the same time, since whatever arrives
//! may keep a way open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tandem_proto::pairing::PairingLink;
use tandem_proto::path::IDLE_PING_INTERVAL;
use tandem_proto::stats::PathState;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::way::{self, Outcome, Way};
use super::{Progress, Step};
use crate::platform::{Interface, Platform};
use crate::transport::PathSpec;
use crate::transport::gate::Gate;

/// The silences that are tried, in seconds. The first is a little longer than any that an idle client leaves; the last
/// ends before the session does (60 s).
const SILENCES: [u64; 4] = [IDLE_PING_INTERVAL.as_secs() + 1, 25, 35, 50];
/// Ways that are examined, the first ones; each is as many sessions at the relay as there are silences, all at the same time.
const MAX_WAYS: usize = 8;
/// After so long without data the relay has stopped to ping.
const CALM: Duration = Duration::from_millis(2500);
/// How long the second socket may take to join.
const JOIN_LIMIT: Duration = Duration::from_secs(5);
/// How long the first may take to hear something then, and how often the relay is given reason to speak.
const LISTEN_LIMIT: Duration = Duration::from_secs(3);
const LISTEN_INTERVAL: Duration = Duration::from_millis(100);

/// How long a way stays open in silence, in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Mapping {
    /// It was open after so long; `None` if it never was.
    pub open_s: Option<u64>,
    /// It was closed after so long; `None` if it never was.
    pub closed_s: Option<u64>,
}

/// Examines the ways that reach the relay, [`MAX_WAYS`] at most.
pub(super) async fn examine<'a>(
    link: &Arc<PairingLink>,
    platform: &Arc<dyn Platform>,
    ways: impl Iterator<Item = (&'a Interface, &'a mut Way)>,
    progress: Progress,
) {
    let mut examined: Vec<_> =
        ways.filter(|(_, way)| matches!(way.outcome, Outcome::Reached(_))).take(MAX_WAYS).collect();
    let mut tasks = JoinSet::new();
    for (index, (interface, way)) in examined.iter().enumerate() {
        for seconds in SILENCES {
            let (link, platform) = (Arc::clone(link), Arc::clone(platform));
            let (interface, remote) = ((*interface).clone(), way.remote);
            tasks.spawn(async move {
                (
                    index,
                    seconds,
                    is_open_after(&link, &*platform, &interface, remote, Duration::from_secs(seconds)).await,
                )
            });
        }
    }
    let longest = SILENCES.into_iter().max().map(Duration::from_secs).unwrap_or_default();
    let end = Instant::now() + longest + CALM + LISTEN_LIMIT;
    while !tasks.is_empty() {
        progress(Step::Silence(end.saturating_duration_since(Instant::now())));
        tokio::select! {
            biased;
            Some(Ok((index, seconds, open))) = tasks.join_next() => {
                let mapping = examined[index].1.mapping.get_or_insert_default();
                match open {
                    Some(true) => mapping.open_s = mapping.open_s.max(Some(seconds)),
                    Some(false) => mapping.closed_s = Some(mapping.closed_s.map_or(seconds, |least| least.min(seconds))),
                    None => {}
                }
            }
            () = sleep(Duration::from_secs(1)) => {}
        }
    }
}

/// Whether the way is open after so much silence; `None` if that could not be found out.
async fn is_open_after(
    link: &PairingLink,
    platform: &dyn Platform,
    interface: &Interface,
    remote: SocketAddr,
    silence: Duration,
) -> Option<bool> {
    let bound = platform.bind(interface, remote).ok()?;
    let gate = Gate::new(bound.socket);
    let path = |socket, remote| PathSpec { interface: interface.name.clone(), socket, remote };
    let mut trial = way::open(link, path(Arc::clone(&gate) as _, bound.remote)).await.ok()?;
    sleep(CALM).await;
    gate.close();
    sleep(silence).await;

    let second = platform.bind(interface, remote).ok()?;
    let heard = gate.heard();
    let second = trial.connection.add_path(path(second.socket, second.remote))?;
    let joined = || {
        let paths = trial.connection.stats().link.paths;
        paths.iter().any(|path| path.id == second.0 && path.state == PathState::Up)
    };
    let deadline = Instant::now() + JOIN_LIMIT;
    while !joined() {
        if Instant::now() >= deadline {
            return None;
        }
        sleep(LISTEN_INTERVAL).await;
    }
    let deadline = Instant::now() + LISTEN_LIMIT;
    while gate.heard() == heard && Instant::now() < deadline {
        if !trial.send_nothing(1).await {
            return None;
        }
        sleep(LISTEN_INTERVAL).await;
    }
    let open = gate.heard() > heard;
    trial.end().await;
    Some(open)
}
