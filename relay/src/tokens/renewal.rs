//! Renewal of tokens in mid-session (`docs/PROTOCOL.md`, "Tokens").
//!
//! A token is due once a third of its life is left. The new one has the same id, so that a revocation hits both, and as long a
//! life. What is renewed is recorded first; a client that comes again with the old token gets the same new one, so that records
//! do not grow with every session.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use parking_lot::Mutex;
use tandem_proto::pairing::Secret;
use time::OffsetDateTime;

use super::{Authority, Claims, IssueError};

/// The part of a token's life that is left when it is renewed.
const LEFT: i32 = 3;

/// Writes down what was issued.
type Record = dyn Fn(&Claims) -> io::Result<()> + Send + Sync;

/// Renews tokens; holds the secret key.
pub struct Renewer {
    authority: Authority,
    /// The newest claims of each id.
    newest: Mutex<BTreeMap<String, Claims>>,
    record: Box<Record>,
}

/// Why a token is not renewed.
#[derive(Debug, thiserror::Error)]
pub enum RenewError {
    /// It cannot be signed.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// It cannot be recorded, and what is not on record could not be found to be revoked.
    #[error("the renewed token cannot be recorded")]
    Record(#[source] io::Error),
}

impl Claims {
    /// When the token is to be renewed.
    pub fn renewal_due(&self) -> OffsetDateTime {
        self.expires.saturating_sub((self.expires - self.issued) / LEFT)
    }
}

impl Renewer {
    /// Renews tokens of an authority that has issued these so far; `record` keeps what is issued from now on.
    pub fn new(
        authority: Authority,
        issued: impl IntoIterator<Item = Claims>,
        record: impl Fn(&Claims) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        let mut newest = BTreeMap::new();
        for claims in issued {
            keep_newest(&mut newest, claims);
        }
        Self { authority, newest: Mutex::new(newest), record: Box::new(record) }
    }

    /// A token in the place of the one with these claims, which is due; may block.
    ///
    /// # Errors
    /// [`RenewError`].
    pub fn renew(&self, claims: &Claims, now: OffsetDateTime) -> Result<(Secret, Claims), RenewError> {
        // Held while the record is written: two sessions with one token get one new token.
        let mut newest = self.newest.lock();
        let known = newest.get(&claims.id).filter(|known| known.expires > claims.expires && now < known.renewal_due());
        if let Some(known) = known {
            return Ok((self.authority.sign(known)?, known.clone()));
        }
        let issued = now.replace_nanosecond(0).map_err(|_| IssueError::Lifetime)?;
        let expires = issued.checked_add(claims.expires - claims.issued).ok_or(IssueError::Lifetime)?;
        let renewed = Claims { issued, expires, ..claims.clone() };
        let token = self.authority.sign(&renewed)?;
        (self.record)(&renewed).map_err(RenewError::Record)?;
        keep_newest(&mut newest, renewed.clone());
        Ok((token, renewed))
    }
}

impl fmt::Debug for Renewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewer").finish_non_exhaustive()
    }
}

fn keep_newest(newest: &mut BTreeMap<String, Claims>, claims: Claims) {
    let known = newest.entry(claims.id.clone()).or_insert_with(|| claims.clone());
    if known.expires < claims.expires {
        *known = claims;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;

    const NINETY_DAYS: Duration = Duration::from_secs(90 * 86_400);

    fn now() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
    }

    fn days(count: i64) -> time::Duration {
        time::Duration::days(count)
    }

    #[test]
    fn a_renewed_token_has_the_old_ones_id_and_as_long_a_life_from_now_on() {
        let authority = Authority::generate().unwrap();
        let verifier = authority.verifier();
        let (old, claims) = authority.issue("phone", now(), NINETY_DAYS).unwrap();
        assert_eq!(claims.renewal_due(), now() + days(60));
        let recorded: Arc<Mutex<Vec<Claims>>> = Arc::default();
        let record = Arc::clone(&recorded);
        let renewer = Renewer::new(authority, [claims.clone()], move |claims| {
            record.lock().push(claims.clone());
            Ok(())
        });
        let due = claims.renewal_due();
        let (token, renewed) = renewer.renew(&claims, due).unwrap();
        assert_eq!((&renewed.id, &renewed.name), (&claims.id, &claims.name));
        assert_eq!((renewed.issued, renewed.expires), (due, due + days(90)));
        assert_eq!(verifier.verify(&token, due + days(89)), Ok(renewed.clone()));
        assert!(verifier.verify(&old, due + days(29)).is_ok(), "the old one stays good until its expiry");

        // Again with the old token: the same new one, and nothing more on record.
        let (again, _) = renewer.renew(&claims, due + days(1)).unwrap();
        assert_eq!((again.expose(), recorded.lock().len()), (token.expose(), 1));
        // When the new one is due itself, it is renewed in turn.
        let (_, third) = renewer.renew(&renewed, renewed.renewal_due()).unwrap();
        assert_eq!((third.expires, recorded.lock().len()), (renewed.renewal_due() + days(90), 2));
    }

    #[test]
    fn what_cannot_be_recorded_is_not_issued() {
        let authority = Authority::generate().unwrap();
        let (_, claims) = authority.issue("phone", now(), NINETY_DAYS).unwrap();
        let renewer = Renewer::new(authority, [], |_| Err(io::ErrorKind::StorageFull.into()));
        assert!(matches!(renewer.renew(&claims, claims.renewal_due()), Err(RenewError::Record(_))));
    }
}
