//! SEC-5 on the relay's side: no log holds a token, whatever the level and the outcome. A binary of its own, because it owns
//! the process's log.

mod bed;

use std::sync::Arc;

use base64::Engine as _;
use bed::log::Log;
use bed::{Bed, accept, closed, hello, open, origin, say_hello};
use tandem_proto::pairing::Secret;
use tandem_relay::serve::Limits;
use tandem_relay::tokens::{Authority, Revoked};
use time::OffsetDateTime;
use tracing_subscriber::filter::LevelFilter;

/// The forms in which a text could slip into a log: itself, and base64, hexadecimal and `Debug`'s numbers of its bytes.
fn forms(secret: &str) -> Vec<String> {
    // The part after the header; signatures and claims are in it.
    let secret = secret.strip_prefix("v4.public.").unwrap_or(secret);
    let part = &secret.as_bytes()[..24.min(secret.len())];
    let mut forms = vec![secret[..part.len()].to_owned()];
    for offset in 0..3 {
        // base64 of the secret inside other bytes has three alignments.
        let whole = &part[offset..offset + (part.len() - offset) / 3 * 3];
        forms.push(base64::engine::general_purpose::STANDARD_NO_PAD.encode(whole));
    }
    forms.push(part.iter().map(|byte| format!("{byte:02x}")).collect());
    forms.push(part.iter().map(|byte| format!("{byte:02X}")).collect());
    forms.push(part.iter().map(u8::to_string).collect::<Vec<_>>().join(", "));
    forms
}

/// SEC-5
#[tokio::test]
async fn no_log_shows_a_token_in_success_or_failure() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();

    let bed = Bed::start(&["127.0.0.0/8"], Limits::default());
    let (listener, address) = origin().await;
    let now = OffsetDateTime::now_utc();
    let issue = |authority: &Authority, hours_ago: i64| {
        let issued = now - time::Duration::hours(hours_ago);
        authority.issue("test", issued, std::time::Duration::from_secs(3600)).unwrap()
    };
    let (good, claims) = issue(&bed.authority, 0);
    let mut tokens = vec![good.clone()];

    let connection = bed.connect().await;
    let (_control, _) = say_hello(&connection, hello(good.clone())).await;
    let (stream, answer) = open(&connection, &address).await;
    assert_eq!(answer, Ok(()));
    drop((stream, accept(&listener).await));
    bed.revoked.send_replace(Arc::new(Revoked::from_iter([claims.id])));
    closed(&connection).await;

    let mangled = Secret::new(good.expose().replace("v4.public", "v4.public.x"));
    for token in [good, issue(&Authority::generate().unwrap(), 0).0, issue(&bed.authority, 5).0, mangled] {
        let connection = bed.connect().await;
        let _ = say_hello(&connection, hello(token.clone())).await;
        closed(&connection).await;
        tokens.push(token);
    }
    bed.drain.cancel();
    bed.serving.await.unwrap();

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("session opened") && log.contains("client refused") && log.contains(" TRACE "), "{log}");
    for token in tokens {
        for form in forms(token.expose()) {
            assert!(!log.contains(&form), "{form} in the log");
        }
    }
}
