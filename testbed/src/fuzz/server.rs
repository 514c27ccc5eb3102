//! What the relay reads: its settings, tokens, and the list of those that are revoked.

use std::sync::LazyLock;
use std::time::Duration;

use tandem_proto::pairing::Secret;
use tandem_relay::config::Config;
use tandem_relay::limits::Limits;
use tandem_relay::tokens::{Authority, Revoked, Verifier};
use time::OffsetDateTime;

/// A key pair that is the same in every run, so that a kept input means the same.
const AUTHORITY: &str =
    "k4.secret.cHFyc3R1dnd4eXp7fH1-f4CBgoOEhYaHiImKi4yNjo8c5WpIyC_5kQMGkNyVlOPdnKJNTYNHmbBzKkE6Wmd6CA";

/// `relay.toml`.
pub(super) fn settings(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Config::parse(&text) {
        Ok(config) => assert_eq!(Config::parse(&config.to_text()).expect("what was written can be read"), config),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

pub(super) fn settings_seeds() -> Vec<Vec<u8>> {
    let config = Config {
        listen: vec!["[::]:4433".parse().expect("an address"), "192.0.2.1:443".parse().expect("an address")],
        public: vec!["relay.example.org:4433".parse().expect("a target")],
        allow: vec!["10.1.0.0/16".parse().expect("a network"), "fd00::/8".parse().expect("a network")],
        admin: Some("[::1]:9433".parse().expect("an address")),
        measure: false,
        limits: Limits { sessions: 7, ..Limits::default() },
    };
    vec![config.to_text().into_bytes(), b"version = 1\nlisten = []\npublic = [\"a:1\"]\n".to_vec()]
}

/// The keys of the target; made once.
static KEYS: LazyLock<(Authority, Verifier)> = LazyLock::new(|| {
    let authority = Authority::from_text(AUTHORITY).unwrap_or_else(|_| Authority::generate().expect("randomness"));
    let verifier = authority.verifier();
    (authority, verifier)
});

fn time() -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp(1_800_000_000).expect("within the calendar")
}

/// A token as a client sends it, and keys as files hold them.
pub(super) fn token(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let taken = KEYS.1.verify(&Secret::new(text.clone().into_owned()), time());
    // Only what this key signed is ever taken, and what it signs is in the seeds.
    if taken.is_ok() {
        assert!(valid_tokens().iter().any(|token| token.expose() == text), "a forged token is taken");
    }
    let _ = Verifier::from_text(&text);
    let _ = Authority::from_text(&text);
}

fn valid_tokens() -> &'static [Secret] {
    static TOKENS: LazyLock<Vec<Secret>> = LazyLock::new(|| {
        let issue = |name| KEYS.0.issue(name, time(), Duration::from_secs(86_400)).expect("a token can be issued").0;
        ["phone", "Anna's laptop"].into_iter().map(issue).collect()
    });
    &TOKENS
}

pub(super) fn token_seeds() -> Vec<Vec<u8>> {
    let keys = [KEYS.0.to_text().expose().to_owned(), KEYS.1.to_text()];
    let tokens = valid_tokens().iter().map(|token| token.expose().to_owned());
    tokens.chain(keys).map(String::into_bytes).collect()
}

/// The list of revoked tokens.
pub(super) fn revoked(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match text.parse::<Revoked>() {
        Ok(list) => {
            for line in text.lines() {
                let id = line.split('#').next().unwrap_or_default().trim();
                assert!(id.is_empty() || list.contains(id), "{id} is not in the list");
            }
        }
        Err(error) => assert!((1..=text.lines().count()).contains(&error.line), "{error}"),
    }
}

pub(super) fn revoked_seeds() -> Vec<Vec<u8>> {
    let good = "# phones\n0123456789abcdef # lost\n\nfedcba9876543210\r\n";
    vec![good.as_bytes().to_vec(), b"0123456789ABCDEF\n".to_vec()]
}
