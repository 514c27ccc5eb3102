//! Access tokens: who may use the relay.
//!
//! A token is a PASETO v4.public message (`docs/PROTOCOL.md`, "Tokens"): the authority's secret key signs it, the public key
//! alone verifies it, so any number of relays can serve the same tokens without asking anyone. A token is taken back by
//! its id in the list of [revoked](Revoked) ones. Clocks may differ by [`CLOCK_SKEW`], and the errors name them, as a wrong
//! clock looks like a wrong token to everyone else.
//!
//! Pure but for the randomness of new keys and ids: the time is passed in.

mod renewal;
mod revoked;

pub use renewal::{RenewError, Renewer};
pub use revoked::{Revoked, RevokedError, watch_revoked};

use std::time::Duration;

use pasetors::Public;
use pasetors::keys::{AsymmetricKeyPair, AsymmetricPublicKey, AsymmetricSecretKey, Generate};
use pasetors::paserk::FormatAsPaserk;
use pasetors::token::UntrustedToken;
use pasetors::version4::{PublicToken, V4};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use tandem_proto::pairing::{MAX_PAIRING_NAME, Secret};
use tandem_proto::wire::flow::RefusedReason;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// How far the clocks of the relays that issue and verify a token may differ.
pub const CLOCK_SKEW: Duration = Duration::from_secs(600);
/// Binds signatures to this use, so that no other message of the same key is taken for a token.
const IMPLICIT_ASSERTION: &[u8] = b"tandem/1";
/// Random bytes of an id.
const ID_BYTES: usize = 8;

/// What a token says of its owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The token's id, 16 hexadecimal digits; not a secret.
    #[serde(rename = "jti")]
    pub id: String,
    /// What the operator called it.
    pub name: String,
    /// When it was issued.
    #[serde(rename = "iat", with = "time::serde::rfc3339")]
    pub issued: OffsetDateTime,
    /// From when it is no longer taken.
    #[serde(rename = "exp", with = "time::serde::rfc3339")]
    pub expires: OffsetDateTime,
}

impl Claims {
    /// When the token is over for every relay: [`CLOCK_SKEW`] after its expiry.
    pub(crate) fn over(&self) -> OffsetDateTime {
        self.expires.saturating_add(skew())
    }
}

/// Why a key's text is not a key, or a key does not do its work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is not a PASERK of the right kind.
    #[error("not a key of the form {0}...")]
    Form(&'static str),
    /// The system has no randomness to give.
    #[error("the system gave no randomness for a key")]
    Randomness,
}

/// Why a token is not issued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// The name cannot be put into a link.
    #[error("name {0:?} of the token is not text of at most {MAX_PAIRING_NAME} bytes without control characters")]
    Name(String),
    /// The expiry lies outside of the calendar.
    #[error("lifetime of the token ends beyond the calendar")]
    Lifetime,
    /// The key does not sign, or there is no randomness.
    #[error("the token could not be signed")]
    Signature,
}

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not signed by this relay's key, or no token at all.
    #[error("the token is not one that this relay issued")]
    Invalid,
    /// Too late.
    #[error("the token expired at {}; this relay's clock says {}", utc(.expires), utc(.now))]
    Expired {
        /// When it expired.
        expires: OffsetDateTime,
        /// The relay's clock.
        now: OffsetDateTime,
    },
    /// Too early.
    #[error("the token was issued at {}, but this relay's clock says {}: one of the clocks is wrong", utc(.issued), utc(.now))]
    NotYetValid {
        /// When it was issued, by the issuer's clock.
        issued: OffsetDateTime,
        /// The relay's clock.
        now: OffsetDateTime,
    },
}

impl TokenError {
    /// What the protocol calls it.
    pub fn reason(self) -> RefusedReason {
        match self {
            TokenError::Invalid => RefusedReason::BadToken,
            TokenError::Expired { .. } => RefusedReason::Expired,
            TokenError::NotYetValid { .. } => RefusedReason::NotYetValid,
        }
    }
}

/// A time as people read it.
pub(crate) fn utc(time: &OffsetDateTime) -> String {
    time.replace_nanosecond(0).unwrap_or(*time).format(&Rfc3339).unwrap_or_else(|_| time.to_string())
}

/// Issues tokens; holds the secret key.
pub struct Authority {
    secret: AsymmetricSecretKey<V4>,
    public: AsymmetricPublicKey<V4>,
}

impl Authority {
    /// A new authority with a key of its own.
    ///
    /// # Errors
    /// [`KeyError::Randomness`].
    pub fn generate() -> Result<Self, KeyError> {
        let pair = AsymmetricKeyPair::<V4>::generate().map_err(|_| KeyError::Randomness)?;
        Ok(Self { secret: pair.secret, public: pair.public })
    }

    /// Reads the key's text form, `k4.secret....`.
    ///
    /// # Errors
    /// [`KeyError::Form`]; the text is not repeated.
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let form = || KeyError::Form("k4.secret.");
        let secret = AsymmetricSecretKey::<V4>::try_from(text.trim()).map_err(|_| form())?;
        let public = AsymmetricPublicKey::<V4>::try_from(&secret).map_err(|_| form())?;
        Ok(Self { secret, public })
    }

    /// The key's text form, to be stored where nobody else reads it.
    pub fn to_text(&self) -> Secret {
        let mut text = String::new();
        self.secret.fmt(&mut text).expect("writing to a string does not fail");
        Secret::new(text)
    }

    /// What verifies this authority's tokens.
    pub fn verifier(&self) -> Verifier {
        Verifier { public: self.public.clone() }
    }

    /// Issues a token called `name` that is taken from `now` on for `lifetime`.
    ///
    /// # Errors
    /// [`IssueError`] for a name or lifetime that no token can have.
    pub fn issue(&self, name: &str, now: OffsetDateTime, lifetime: Duration) -> Result<(Secret, Claims), IssueError> {
        if name.len() > MAX_PAIRING_NAME || name.chars().any(char::is_control) {
            return Err(IssueError::Name(name.to_owned()));
        }
        let issued = now.replace_nanosecond(0).map_err(|_| IssueError::Lifetime)?;
        let lifetime = time::Duration::try_from(lifetime).map_err(|_| IssueError::Lifetime)?;
        // RFC 3339 has four digits for the year.
        let expires =
            issued.checked_add(lifetime).filter(|expires| expires.year() <= 9999).ok_or(IssueError::Lifetime)?;
        let claims = Claims { id: new_id()?, name: name.to_owned(), issued, expires };
        Ok((self.sign(&claims)?, claims))
    }

    /// The token with these claims; always the same.
    fn sign(&self, claims: &Claims) -> Result<Secret, IssueError> {
        let message = serde_json::to_vec(claims).map_err(|_| IssueError::Signature)?;
        let token = PublicToken::sign(&self.secret, &message, None, Some(IMPLICIT_ASSERTION));
        Ok(Secret::new(token.map_err(|_| IssueError::Signature)?))
    }
}

fn new_id() -> Result<String, IssueError> {
    let mut bytes = [0; ID_BYTES];
    SystemRandom::new().fill(&mut bytes).map_err(|_| IssueError::Signature)?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

/// Tells good tokens from others; holds the public key.
#[derive(Debug, Clone)]
pub struct Verifier {
    public: AsymmetricPublicKey<V4>,
}

impl Verifier {
    /// Reads the key's text form, `k4.public....`.
    ///
    /// # Errors
    /// [`KeyError::Form`].
    pub fn from_text(text: &str) -> Result<Self, KeyError> {
        let public = AsymmetricPublicKey::<V4>::try_from(text.trim()).map_err(|_| KeyError::Form("k4.public."))?;
        Ok(Self { public })
    }

    /// The key's text form.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.public.fmt(&mut text).expect("writing to a string does not fail");
        text
    }

    /// The claims of a token that is good at `now`; whether it was revoked is another question.
    ///
    /// # Errors
    /// [`TokenError`].
    pub fn verify(&self, token: &Secret, now: OffsetDateTime) -> Result<Claims, TokenError> {
        let untrusted = UntrustedToken::<Public, V4>::try_from(token.expose()).map_err(|_| TokenError::Invalid)?;
        let trusted = PublicToken::verify(&self.public, &untrusted, None, Some(IMPLICIT_ASSERTION))
            .map_err(|_| TokenError::Invalid)?;
        let claims: Claims = serde_json::from_str(trusted.payload()).map_err(|_| TokenError::Invalid)?;
        if now >= claims.over() {
            return Err(TokenError::Expired { expires: claims.expires, now });
        }
        if now < claims.issued.saturating_sub(skew()) {
            return Err(TokenError::NotYetValid { issued: claims.issued, now });
        }
        Ok(claims)
    }
}

fn skew() -> time::Duration {
    time::Duration::seconds(CLOCK_SKEW.as_secs().cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn now() -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap()
    }

    #[test]
    fn a_token_is_good_for_its_lifetime_give_or_take_the_skew_of_clocks() {
        let authority = Authority::generate().unwrap();
        let (token, claims) = authority.issue("phone", now(), DAY).unwrap();
        assert_eq!(claims.expires - claims.issued, time::Duration::days(1));
        let verify = |seconds: i64| authority.verifier().verify(&token, now() + time::Duration::seconds(seconds));
        for seconds in [0, -600, 86_400, 86_400 + 599] {
            assert_eq!(verify(seconds), Ok(claims.clone()), "{seconds}");
        }
        let late = verify(86_400 + 600).unwrap_err();
        assert_eq!(late.reason(), RefusedReason::Expired);
        assert!(late.to_string().contains("this relay's clock says 2027-01-16T08:10:00Z"), "{late}");
        let early = verify(-601).unwrap_err();
        assert_eq!(early.reason(), RefusedReason::NotYetValid);
        assert!(early.to_string().contains("this relay's clock says 2027-01-15T07:49:59Z"), "{early}");
    }

    /// SEC-2
    #[test]
    fn a_forged_token_is_refused() {
        let authority = Authority::generate().unwrap();
        let (token, _) = authority.issue("phone", now(), DAY).unwrap();
        let verify = |text: &str| authority.verifier().verify(&Secret::new(text.to_owned()), now());
        let (other, _) = Authority::generate().unwrap().issue("phone", now(), DAY).unwrap();
        assert_eq!(verify(other.expose()), Err(TokenError::Invalid));
        for text in ["", "v4.public.", "token", "v4.local.AAAA"] {
            assert_eq!(verify(text), Err(TokenError::Invalid), "{text}");
        }
        let text = token.expose();
        for at in [11, 40, text.len() - 2] {
            let mut bytes = text.as_bytes().to_vec();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(verify(std::str::from_utf8(&bytes).unwrap()), Err(TokenError::Invalid), "changed at {at}");
        }
        let foreign_use = PublicToken::sign(&authority.secret, b"{}", None, None).unwrap();
        assert_eq!(verify(&foreign_use), Err(TokenError::Invalid));
    }

    #[test]
    fn keys_read_back_from_their_text() {
        let authority = Authority::generate().unwrap();
        let again = Authority::from_text(&format!("{}\n", authority.to_text().expose())).unwrap();
        let (token, _) = again.issue("phone", now(), DAY).unwrap();
        let verifier = Verifier::from_text(&authority.verifier().to_text()).unwrap();
        assert!(verifier.verify(&token, now()).is_ok());
        assert_eq!(Verifier::from_text(authority.to_text().expose()).unwrap_err(), KeyError::Form("k4.public."));
        assert!(Authority::from_text("k4.secret.AAAA").is_err());
    }

    #[test]
    fn a_name_that_does_not_fit_a_link_is_refused() {
        let authority = Authority::generate().unwrap();
        for name in ["a\nb".to_owned(), "a".repeat(65)] {
            assert_eq!(authority.issue(&name, now(), DAY).unwrap_err(), IssueError::Name(name));
        }
        assert_eq!(authority.issue("a", now(), DAY * 4_000_000).unwrap_err(), IssueError::Lifetime);
    }
}
