//! The user name and password that applications must give, whichever protocol they speak.

use ring::hmac;
use tandem_proto::pairing::Secret;

/// The user name and password that clients must give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// 1 to 255 bytes, without a colon: HTTP could not tell it from the password.
    pub user: String,
    /// 1 to 255 bytes.
    pub password: Secret,
}

impl Credentials {
    pub(super) fn accept(&self, user: &[u8], password: &[u8]) -> bool {
        // Compared as authentication codes, in a time that tells nothing about where they differ.
        let same = |given: &[u8], wanted: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, wanted.as_bytes());
            hmac::verify(&key, given, hmac::sign(&key, wanted.as_bytes()).as_ref()).is_ok()
        };
        same(user, &self.user) & same(password, self.password.expose())
    }
}
