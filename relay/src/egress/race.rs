//! Happy eyeballs (RFC 8305): several addresses of one target, the first connection wins.
//!
//! Both families are looked up at once. Attempts begin when the IPv6 answer is there, or a short while after the IPv4 one; they
//! alternate between the families, each new one begins when the last failed or has had its time, and those before it stay in
//! the race. So one dead address costs [`ATTEMPT_DELAY`], whatever it is dead of.
//!
//! This is our own loop because `hyper-util`'s connector, the obvious candidate, tries the addresses of one family one after
//! another (a dead one costs a share of the whole timeout), waits for both families' answers, takes names only as parts of a URI,
//! and reports io errors and resolver errors alike as text with a hidden cause.

use std::collections::VecDeque;
use std::future::{Future, Ready, ready};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use tandem_proto::wire::flow::OpenError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::open_error;

/// How long an attempt is alone before the next one joins it (RFC 8305, section 5, "Connection Attempt Delay").
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// How long an IPv4 answer waits for the IPv6 one (RFC 8305, section 3, "Resolution Delay").
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// Addresses tried of each family; a name with more is a cluster, any part of which will do.
const MAX_ADDRESSES: usize = 8;

/// The lookups of both families of a target.
pub(super) struct Lookups<F> {
    pub(super) ipv6: F,
    pub(super) ipv4: F,
}

impl Lookups<Ready<Result<Vec<IpAddr>, OpenError>>> {
    /// Addresses that are known already.
    pub(super) fn known(addresses: Vec<IpAddr>) -> Self {
        let (ipv6, ipv4) = addresses.into_iter().partition(IpAddr::is_ipv6);
        Lookups { ipv6: ready(Ok(ipv6)), ipv4: ready(Ok(ipv4)) }
    }
}

/// Connects to the first address that answers, of those that `permit` lets pass.
///
/// # Errors
/// The most telling of the attempts' and lookups' errors; [`OpenError::Forbidden`] when no address may be tried at all.
pub(super) async fn race<C, F>(
    lookups: Lookups<impl Future<Output = Result<Vec<IpAddr>, OpenError>>>,
    port: u16,
    permit: impl Fn(IpAddr) -> bool,
    connect: impl Fn(SocketAddr) -> F,
) -> Result<C, OpenError>
where
    C: Send + 'static,
    F: Future<Output = io::Result<C>> + Send + 'static,
{
    let mut ipv6 = pin!(lookups.ipv6);
    let mut ipv4 = pin!(lookups.ipv4);
    let mut candidates = Candidates::default();
    let mut outcome = Outcome::default();
    // Dropping the set ends the attempts that lost.
    let mut attempts = JoinSet::new();
    let mut next_start = Instant::now();
    loop {
        let start = next_start.max(candidates.free_from.unwrap_or(next_start));
        if Instant::now() >= start
            && let Some(address) = candidates.next()
        {
            attempts.spawn(connect(SocketAddr::new(address, port)));
            next_start = Instant::now() + ATTEMPT_DELAY;
            continue;
        }
        if candidates.all_known() && candidates.is_empty() && attempts.is_empty() {
            return Err(outcome.error());
        }
        tokio::select! {
            biased;
            Some(attempt) = attempts.join_next() => match attempt {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "an attempt to connect failed");
                    outcome.note(open_error(&error));
                    next_start = Instant::now();
                }
                Err(_) => outcome.note(OpenError::Internal),
            },
            found = &mut ipv6, if !candidates.ipv6_known => {
                candidates.ipv6_known = true;
                candidates.free_from = None;
                candidates.ipv6 = outcome.admit(found, &permit);
            }
            found = &mut ipv4, if !candidates.ipv4_known => {
                candidates.ipv4_known = true;
                candidates.ipv4 = outcome.admit(found, &permit);
                if !candidates.ipv6_known {
                    candidates.free_from = Some(Instant::now() + RESOLUTION_DELAY);
                }
            }
            () = sleep_until(start), if !candidates.is_empty() => {}
        }
    }
}

/// Addresses that have not been tried yet.
#[derive(Default)]
struct Candidates {
    ipv6: VecDeque<IpAddr>,
    ipv4: VecDeque<IpAddr>,
    ipv6_known: bool,
    ipv4_known: bool,
    /// Until when the IPv4 addresses wait for the IPv6 ones; `None` when nothing is waited for.
    free_from: Option<Instant>,
    /// The last one was an IPv6 address, so the next is an IPv4 one.
    ipv4_is_next: bool,
}

impl Candidates {
    fn all_known(&self) -> bool {
        self.ipv6_known && self.ipv4_known
    }

    fn is_empty(&self) -> bool {
        self.ipv6.is_empty() && self.ipv4.is_empty()
    }

    fn next(&mut self) -> Option<IpAddr> {
        let address = if self.ipv4_is_next {
            self.ipv4.pop_front().or_else(|| self.ipv6.pop_front())
        } else {
            self.ipv6.pop_front().or_else(|| self.ipv4.pop_front())
        }?;
        self.ipv4_is_next = address.is_ipv6();
        Some(address)
    }
}

/// What has gone wrong so far.
#[derive(Default)]
struct Outcome {
    attempt: Option<OpenError>,
    lookup: Option<OpenError>,
    forbidden: bool,
}

impl Outcome {
    /// A lookup's addresses without those that may not be tried.
    fn admit(&mut self, found: Result<Vec<IpAddr>, OpenError>, permit: impl Fn(IpAddr) -> bool) -> VecDeque<IpAddr> {
        let found = found.unwrap_or_else(|error| {
            // Without an answer the name may exist, whatever the other family's answer says.
            if self.lookup != Some(OpenError::TimedOut) {
                self.lookup = Some(error);
            }
            Vec::new()
        });
        let (permitted, refused): (Vec<_>, Vec<_>) = found.into_iter().partition(|address| permit(*address));
        self.forbidden |= !refused.is_empty();
        permitted.into_iter().take(MAX_ADDRESSES).collect()
    }

    /// Keeps the most telling error of the attempts: what the target itself said comes before what the network said, and that
    /// before our own troubles.
    fn note(&mut self, error: OpenError) {
        let rank = |error: OpenError| match error {
            OpenError::Refused => 0,
            OpenError::TimedOut => 1,
            OpenError::Limit => 2,
            OpenError::NoRoute => 3,
            OpenError::Forbidden => 4,
            OpenError::NameNotFound | OpenError::Internal => 5,
        };
        if self.attempt.is_none_or(|known| rank(error) < rank(known)) {
            self.attempt = Some(error);
        }
    }

    fn error(&self) -> OpenError {
        let forbidden = self.forbidden.then_some(OpenError::Forbidden);
        self.attempt.or(forbidden).or(self.lookup).unwrap_or(OpenError::NameNotFound)
    }
}

#[cfg(test)]
mod tests;
