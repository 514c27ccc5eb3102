//! Text that must not be shown.

use std::fmt;

/// A token or password. It has no `Display`, and its `Debug` hides it, so that a secret that reaches a log or an error
/// text does so only through a visible [`Secret::expose`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a text that must not be shown from here on.
    pub fn new(text: String) -> Self {
        Secret(text)
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}
