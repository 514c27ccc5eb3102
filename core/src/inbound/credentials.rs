//! The user name and password that applications must give, whichever protocol they speak.

use ring::hmac;
use tandem_proto::guesses::Verdict;
use tandem_proto::pairing::Secret;

/// The user name and password that clients must give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// 1 to 255 bytes, without a colon: HTTP could not tell it from the password.
    pub user: String,
    /// 1 to 255 bytes.
    pub password: Secret,
}

/// What says whether a user name and password, in this order, are right: the credentials, behind a brake on guessing.
pub(super) type Check<'c> = &'c (dyn Fn(&[u8], &[u8]) -> Verdict + Sync);

impl Credentials {
    pub(super) fn accept(&self, user: &[u8], password: &[u8]) -> bool {
        // Compared as authentication codes, in a time that tells nothing about where they differ.
        let same = |given: &[u8], wanted: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, wanted.as_bytes());
            hmac::verify(&key, given, hmac::sign(&key, wanted.as_bytes()).as_ref()).is_ok()
        };
        same(user, &self.user) & same(password, self.password.expose())
    }

    /// A number by which a user name and password are known again by whoever has the right ones.
    pub(super) fn mark(&self, user: &[u8], password: &[u8]) -> u64 {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.password.expose().as_bytes());
        let mut marking = hmac::Context::with_key(&key);
        marking.update(&(user.len() as u64).to_be_bytes());
        marking.update(user);
        marking.update(password);
        let tag = marking.sign();
        tag.as_ref().iter().take(8).fold(0, |mark, byte| mark << 8 | u64::from(*byte))
    }
}

/// What codecs are tried with: credentials without a brake.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn example_check(user: &[u8], password: &[u8]) -> Verdict {
    let credentials = Credentials { user: "ann".to_owned(), password: Secret::new("secret".to_owned()) };
    if credentials.accept(user, password) { Verdict::Right } else { Verdict::Wrong }
}
