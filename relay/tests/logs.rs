//! What the log says at its default level: whom the relay serves and how it is, and nothing of what for. A binary of its own,
//! because it owns the process's log.

mod bed;

use std::sync::Arc;

use bed::log::Log;
use bed::{Bed, accept, closed, hello, open, origin, say_hello};
use tandem_proto::pairing::Secret;
use tandem_relay::serve::Limits;
use tandem_relay::tokens::Revoked;
use tracing_subscriber::filter::LevelFilter;

/// SEC-5 (targets and addresses)
#[tokio::test]
async fn at_the_default_level_no_log_names_a_target_or_an_address() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::INFO)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();

    let bed = Bed::start(&["127.0.0.0/8"], Limits::default());
    let (listener, address) = origin().await;
    let port = address.rsplit(':').next().unwrap().to_owned();
    let (token, id) = bed.token();
    let connection = bed.connect().await;
    let (_control, _) = say_hello(&connection, hello(token)).await;
    // Flows that come about, that are refused by rules, target and resolver, and that are no requests at all.
    let (stream, _) = open(&connection, &address).await;
    drop((stream, accept(&listener).await));
    drop(listener);
    for target in [address.as_str(), "10.77.0.1:77", "[fd77::7]:77", "secret-target.invalid:77", "127.0.0.77:1"] {
        let (_, answer) = open(&connection, target).await;
        answer.unwrap_err();
    }
    let mut nonsense = connection.open_stream().await.unwrap();
    nonsense.send.write_all(&[9; 300]).await.unwrap();
    let refused = bed.connect().await;
    let _ = say_hello(&refused, hello(Secret::new("nonsense".to_owned()))).await;
    closed(&refused).await;
    bed.revoked.send_replace(Arc::new(Revoked::from_iter([id])));
    closed(&connection).await;
    bed.drain.cancel();
    bed.serving.await.unwrap();

    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    for told in ["session opened", "session closed", "client refused", "path changed", "draining"] {
        assert!(log.contains(told), "{told} in\n{log}");
    }
    // Times hold digits of all kinds: an address or port would stand with a dot, colon or bracket.
    for secret in ["127.0.0", "10.77", "fd77", "secret-target", &format!(":{port}"), ":77"] {
        let lines: Vec<&str> = log.lines().filter(|line| line[27..].contains(secret)).collect();
        assert!(lines.is_empty(), "{secret} in {lines:#?}");
    }
}
