//! The token of a session while it lives: when it is over, when it is renewed, and which key the client has to know next.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tandem_proto::pairing::Secret;
use tandem_proto::wire::flow::Update;
use time::OffsetDateTime;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use crate::directory::Pin;
use crate::tokens::{Claims, Renewer};

/// The clock that tokens go by may be set while a session lives; it is looked at this often.
const CLOCK_CHECK: Duration = Duration::from_secs(60);
/// When a renewal that failed is tried again.
const RENEW_AGAIN: Duration = Duration::from_secs(600);

/// What a client was admitted by.
pub(super) struct Token {
    /// The newest that the client was given.
    claims: Claims,
    renewer: Option<Arc<Renewer>>,
    renew_not_before: Option<Instant>,
    next_pin: watch::Receiver<Option<Pin>>,
}

impl Token {
    /// `next_pin` has been told up to what it has seen.
    pub(super) fn new(claims: Claims, renewer: Option<Arc<Renewer>>, next_pin: watch::Receiver<Option<Pin>>) -> Self {
        Self { claims, renewer, renew_not_before: None, next_pin }
    }

    /// Resolves once no relay takes the token any more.
    pub(super) fn expired(&self) -> impl Future<Output = ()> + use<> {
        clock_passes(self.claims.over())
    }

    /// Resolves with what the client has to be told: a renewed token, or another next key.
    ///
    /// # Cancel safety
    /// Nothing is lost; a token renewed in vain is the one that the next call answers with.
    pub(super) async fn update(&mut self) -> Update {
        loop {
            let due = self.renewer.is_some().then(|| self.claims.renewal_due());
            let not_before = self.renew_not_before;
            let renewal = async {
                match due {
                    Some(due) => clock_passes(due).await,
                    None => pending().await,
                }
                if let Some(time) = not_before {
                    sleep_until(time).await;
                }
            };
            tokio::select! {
                biased;
                Ok(()) = self.next_pin.changed() => return self.tell(None),
                () = renewal => {
                    let Some(renewer) = self.renewer.clone() else { continue };
                    let claims = self.claims.clone();
                    let renewed =
                        tokio::task::spawn_blocking(move || renewer.renew(&claims, OffsetDateTime::now_utc())).await;
                    match renewed {
                        Ok(Ok((token, claims))) => {
                            tracing::info!("token renewed");
                            self.claims = claims;
                            return self.tell(Some(token));
                        }
                        Ok(Err(error)) => {
                            let error = &error as &dyn std::error::Error;
                            tracing::warn!(error, "the token is not renewed");
                            self.renew_not_before = Some(Instant::now() + RENEW_AGAIN);
                        }
                        Err(_) => self.renew_not_before = Some(Instant::now() + RENEW_AGAIN),
                    }
                }
            }
        }
    }

    fn tell(&mut self, token: Option<Secret>) -> Update {
        Update {
            token,
            token_expires: u64::try_from(self.claims.expires.unix_timestamp()).unwrap_or(0),
            next_pin: *self.next_pin.borrow_and_update(),
        }
    }
}

/// Resolves once the system's clock is past `time`.
async fn clock_passes(time: OffsetDateTime) {
    while let Ok(left) = Duration::try_from(time - OffsetDateTime::now_utc())
        && !left.is_zero()
    {
        sleep(left.min(CLOCK_CHECK)).await;
    }
}
