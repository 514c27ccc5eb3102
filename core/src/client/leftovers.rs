//! Sessions that another one has taken the place of, and that finish what they carry.
//!
//! One whose relay goes away ends with its last flow, or when the relay ends it; one that fell silent has a moment left for a
//! sign of life, as its flows are lost with it. Nothing new is opened on either.

use std::collections::VecDeque;
use std::sync::Arc;

use tandem_proto::stats::PathState;
use tandem_proto::wire::flow::CloseCode;
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep};
use tokio_util::sync::CancellationToken;

use super::maker::{Established, Maker};
use super::session::{LAST_CHANCE, silent_for};
use crate::transport::Connection;

/// Sessions kept; the oldest makes room.
const MOST_LEFTOVERS: usize = 4;
/// How often it is looked whether a session carries anything still.
const LOOK: Duration = Duration::from_millis(250);
/// How long a session that lived when it was left may be silent.
const SILENCE: Duration = Duration::from_secs(10);
/// The control stream is no flow.
const CONTROL_STREAMS: usize = 1;

/// The sessions left behind. Dropped, they end at once.
#[derive(Default)]
pub(super) struct Leftovers {
    tasks: JoinSet<()>,
    tokens: VecDeque<CancellationToken>,
}

impl Leftovers {
    /// Keeps a session until it is done; one that its own relay has `replaced` ends now.
    pub(super) fn keep(&mut self, maker: Arc<Maker>, session: Established, replaced: bool) {
        if replaced {
            session.connection.close(CloseCode::Done.code(), "replaced");
            return;
        }
        while self.tasks.try_join_next().is_some() {}
        if self.tokens.len() >= MOST_LEFTOVERS
            && let Some(oldest) = self.tokens.pop_front()
        {
            oldest.cancel();
        }
        let stop = CancellationToken::new();
        self.tokens.push_back(stop.clone());
        self.tasks.spawn(finish(maker, session, stop));
    }

    /// Ends all.
    pub(super) fn stop(&mut self) {
        self.tokens.drain(..).for_each(|stop| stop.cancel());
    }

    /// Waits until all are done.
    pub(super) async fn done(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Keeps a session's paths until it has nothing more to carry, or its relay ends it.
async fn finish(maker: Arc<Maker>, session: Established, stop: CancellationToken) {
    let Established { connection, mut ways, notices: _notices, .. } = session;
    let lives = connection.signs().iter().any(|path| path.state == PathState::Up);
    let patience = if lives { SILENCE } else { LAST_CHANCE };
    let why = tokio::select! {
        biased;
        _ = connection.closed() => return,
        () = stop.cancelled() => "stopped",
        () = idle(&connection) => "moved to another relay",
        () = silent_for(&connection, patience) => "silent",
        never = ways.keep(&maker, &connection) => match never {},
    };
    tracing::debug!(relay = maker.name(), why, "a session that was left has ended");
    connection.close(CloseCode::Done.code(), why);
}

/// Resolves once no flow is open.
async fn idle(connection: &Connection) {
    while connection.open_streams() > CONTROL_STREAMS {
        sleep(LOOK).await;
    }
}
