//! The relays of a client: asks all that may be asked, and takes the one that [`tandem_proto::relays`] chooses.
//!
//! Each relay is asked by a task of its own, which tries again after growing waits, until it has a connection whose paths have
//! joined. The search greets the chosen one; should that say no, the next one is chosen while it rests.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tandem_proto::relays::Relays as Choice;
use tandem_proto::stats::{RelayState, RelayStats};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep_until, timeout};

use super::handshake::SessionError;
use super::maker::{Established, Maker, Reached};
use super::session::chain;

/// What asking tasks may have to tell before the search listens: a few words for each of the most relays.
const MOST_NEWS: usize = 64;

/// How long the chosen relay may take to answer the greeting when there are others.
const GREETING: Duration = Duration::from_secs(2);

/// Every relay that a client is paired with.
pub(super) struct Relays {
    makers: Vec<Arc<Maker>>,
    choice: Mutex<Choice>,
    /// What went wrong last with each.
    problems: Mutex<Vec<Option<String>>>,
}

/// A session, and with which relay.
pub(super) struct Found {
    pub(super) relay: usize,
    pub(super) session: Established,
}

/// What happens in a search.
pub(super) enum News {
    /// A relay has answered.
    Answered(usize),
    /// One did not, or not as wished.
    Failed,
}

/// What a task that asks one relay tells the search.
enum Event {
    Asked(usize),
    Answered(usize, Duration),
    Ready(usize, Reached),
    Failed(usize, SessionError, Duration),
}

impl Relays {
    /// The relays of these makers, of which one may be preferred.
    pub(super) fn new(makers: Vec<Arc<Maker>>, preferred: Option<usize>) -> Self {
        let choice = Mutex::new(Choice::new(makers.len(), preferred));
        Self { problems: Mutex::new(vec![None; makers.len()]), makers, choice }
    }

    pub(super) fn maker(&self, relay: usize) -> &Arc<Maker> {
        &self.makers[relay]
    }

    /// Those that may be asked: all but those that refuse this client for good.
    pub(super) fn willing(&self) -> Vec<usize> {
        self.choice.lock().willing()
    }

    /// The same, without one.
    pub(super) fn others(&self, than: usize) -> Vec<usize> {
        self.choice.lock().others(than)
    }

    /// A relay's session is the one in use from now on.
    pub(super) fn taken(&self, relay: usize) {
        self.choice.lock().taken(relay);
        self.problems.lock()[relay] = None;
    }

    /// The world has changed: all may be asked at once.
    pub(super) fn hurry(&self) {
        self.makers.iter().for_each(|maker| maker.hurry());
    }

    /// A session has ended.
    pub(super) fn ended(&self, relay: usize, error: &SessionError) {
        let pause = self.makers[relay].ended(error);
        self.note(relay, error, pause);
    }

    /// What is wrong with them, in words.
    pub(super) fn problem(&self) -> Option<String> {
        let problems = self.problems.lock();
        if let [only] = &problems[..] {
            return only.clone();
        }
        let told = self.makers.iter().zip(&*problems);
        let told = told.filter_map(|(maker, problem)| Some(format!("{}: {}", maker.name(), problem.as_ref()?)));
        Some(told.collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty())
    }

    /// The addresses, as paired, of the relay that is used, or of all.
    pub(super) fn addresses(&self, present: Option<usize>) -> String {
        match present {
            Some(relay) => self.makers[relay].addresses(),
            None => self.makers.iter().map(|maker| maker.addresses()).collect::<Vec<_>>().join(" or "),
        }
    }

    /// How each of them stands while the session is with `present`, and whether that one goes away.
    pub(super) fn stats(&self, present: Option<usize>, leaving: bool) -> Vec<RelayStats> {
        let (choice, problems) = (self.choice.lock(), self.problems.lock());
        let of = |(at, maker): (usize, &Arc<Maker>)| RelayStats {
            name: maker.name().to_owned(),
            addresses: maker.addresses(),
            state: match present == Some(at) {
                _ if choice.is_refused(at) => RelayState::Refused,
                true if leaving => RelayState::Leaving,
                true => RelayState::Used,
                false => RelayState::Known,
            },
            preferred: choice.preferred() == Some(at),
            rtt_ms: choice.round_trip(at).map(|round_trip| round_trip.as_secs_f64() * 1e3),
            token_expires: maker.token_expires(),
            problem: problems[at].clone(),
        };
        self.makers.iter().enumerate().map(of).collect()
    }

    /// Asks these relays until one has accepted this client; `None` once all of them refuse it for good.
    ///
    /// # Cancel safety
    /// Dropping the future gives the search up.
    pub(super) async fn search(&self, among: &[usize], mut tell: impl FnMut(News)) -> Option<Found> {
        self.choice.lock().search(among);
        let (sender, mut events) = mpsc::channel(MOST_NEWS);
        let mut asking = JoinSet::new();
        let mut start = |relay: usize| asking.spawn(ask(Arc::clone(&self.makers[relay]), relay, sender.clone()));
        for relay in among {
            start(*relay);
        }
        let mut ready: BTreeMap<usize, Reached> = BTreeMap::new();
        loop {
            if among.iter().all(|relay| self.choice.lock().is_refused(*relay)) {
                return None;
            }
            let taken = self.choice.lock().take(Instant::now().into_std());
            if let Some((relay, reached)) = taken.and_then(|relay| ready.remove_entry(&relay)) {
                let patience = if among.len() > 1 { GREETING } else { Duration::MAX };
                let greeted = timeout(patience, self.makers[relay].greet(reached)).await;
                match greeted.unwrap_or(Err(SessionError::NoWelcome)) {
                    Ok(session) => return Some(Found { relay, session }),
                    Err(error) => {
                        let pause = self.makers[relay].failed(&error);
                        self.note(relay, &error, pause);
                        tell(News::Failed);
                        if !error.is_final() {
                            start(relay);
                        }
                    }
                }
                continue;
            }
            let again = self.choice.lock().poll_timeout(Instant::now().into_std());
            let again = async {
                match again {
                    Some(at) => sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            let event = tokio::select! {
                biased;
                event = events.recv() => event,
                () = again => None,
            };
            match event {
                Some(Event::Asked(relay)) => self.choice.lock().asked(relay),
                Some(Event::Answered(relay, round_trip)) => {
                    self.choice.lock().answered(relay, round_trip);
                    tell(News::Answered(relay));
                }
                Some(Event::Ready(relay, reached)) => {
                    self.choice.lock().ready(relay, Instant::now().into_std());
                    ready.insert(relay, reached);
                }
                Some(Event::Failed(relay, error, pause)) => {
                    self.note(relay, &error, pause);
                    tell(News::Failed);
                }
                None => {}
            }
        }
    }

    /// Notes that there is no session with a relay.
    fn note(&self, relay: usize, error: &SessionError, pause: Duration) {
        let problem = chain(error);
        let name = self.makers[relay].name();
        let before = self.problems.lock()[relay].replace(problem.clone());
        if error.is_final() {
            tracing::error!(relay = name, problem, "no session: the relay refuses this client");
            self.choice.lock().refused(relay);
        } else {
            let again_in_ms = pause.as_millis() as u64;
            // Tried every few seconds for as long as it lasts; what is the same again is no news.
            if before.as_ref() == Some(&problem) {
                tracing::debug!(relay = name, problem, again_in_ms, "still no session");
            } else {
                tracing::warn!(relay = name, problem, again_in_ms, "no session");
            }
            self.choice.lock().failed(relay);
        }
    }
}

/// Asks one relay until it is ready to be taken.
async fn ask(maker: Arc<Maker>, relay: usize, events: mpsc::Sender<Event>) {
    // Once nobody listens the search is over, and this task with it.
    loop {
        maker.rested().await;
        let _ = events.send(Event::Asked(relay)).await;
        match maker.reach().await {
            Ok(mut reached) => {
                let _ = events.send(Event::Answered(relay, reached.round_trip())).await;
                reached.join(&maker).await;
                let _ = events.send(Event::Ready(relay, reached)).await;
                return;
            }
            Err(error) => {
                let pause = maker.failed(&error);
                let _ = events.send(Event::Failed(relay, error, pause)).await;
            }
        }
    }
}
