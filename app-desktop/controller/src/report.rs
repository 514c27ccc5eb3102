//! The diagnostic report: one text to hand to whoever helps, without secrets.

use std::fmt::Write as _;

use crate::state::State;

/// How much of the log's end is taken, in bytes.
const LOG_LENGTH: usize = 200_000;
/// What stands in place of a secret.
const HIDDEN: &str = "[hidden]";
/// How links and tokens begin.
const SECRETS: [&str; 2] = ["tandem://", "v4.public."];

/// The report on a state, with the end of the log. It holds addresses of relays and of this machine's networks; links and
/// tokens, which no log should hold, are taken out wherever they stand.
pub fn text(state: &State, version: &str, log: &str) -> String {
    let mut text = format!("Tandem {version}, {} {}\n", std::env::consts::OS, std::env::consts::ARCH);
    let state = serde_json::to_string_pretty(state).unwrap_or_else(|error| error.to_string());
    let mut from = log.len().saturating_sub(LOG_LENGTH);
    while !log.is_char_boundary(from) {
        from += 1;
    }
    let _ = write!(text, "\n== State\n{state}\n\n== Log\n{}", &log[from..]);
    hide(&text)
}

/// The text without links and tokens.
fn hide(text: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || "\"'<>()[]{},;".contains(c);
    let mut rest = text;
    let mut clean = String::with_capacity(text.len());
    while let Some(at) = SECRETS.iter().filter_map(|secret| rest.find(secret)).min() {
        clean.push_str(&rest[..at]);
        clean.push_str(HIDDEN);
        let secret = &rest[at..];
        // A link may name several addresses with a comma between them, before its token.
        let length = match secret.split_once("/?") {
            Some((addresses, _)) if secret.starts_with(SECRETS[0]) && !addresses.contains(char::is_whitespace) => {
                let query = addresses.len();
                query + secret[query..].find(is_end).unwrap_or(secret.len() - query)
            }
            _ => secret.find(is_end).unwrap_or(secret.len()),
        };
        rest = &secret[length..];
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_link_and_no_token_is_left_wherever_it_stands() {
        let link = "tandem://a.example:4433,b.example:4433/?v=1&pin=abc&token=v4.public.c2VjcmV0&name=x";
        let log = format!("paired with {link}\n{{\"token\":\"v4.public.c2VjcmV0\"}} (v4.public.c2VjcmV0) ende {link}");
        let text = text(&State::default(), "0.1.0", &log);
        assert!(!text.contains("c2VjcmV0") && !text.contains("pin=abc"), "{text}");
        let tail = "paired with [hidden]\n{\"token\":\"[hidden]\"} ([hidden]) ende [hidden]";
        assert!(text.ends_with(tail), "{text}");
        assert!(text.starts_with("Tandem 0.1.0, "), "{text}");
    }

    #[test]
    fn of_a_long_log_the_end_is_taken() {
        let log = "ä".repeat(LOG_LENGTH);
        let text = text(&State::default(), "0.1.0", &log);
        assert!(text.len() < LOG_LENGTH + 10_000 && text.ends_with('ä'));
    }
}
