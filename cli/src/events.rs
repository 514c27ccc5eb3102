//! `tandem events`: what happens to a running client, told as it happens.

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use chrono::{DateTime, Local};
use tandem_core::client::control::Events;
use tandem_proto::events::TimedEvent;

use crate::shutdown::Signals;

/// Prints events until the client ends, or the user has heard enough.
pub(crate) async fn tell(control: &Path, json: bool) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("signals cannot be awaited")?;
    let mut events = Events::of(control).await?;
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            () = signals.next() => return Ok(()),
        };
        let Some(event) = event else { return Ok(()) };
        let line = if json { serde_json::to_string(&event)? } else { words(&event) };
        let mut out = io::stdout().lock();
        match writeln!(out, "{line}").and_then(|()| out.flush()) {
            // The reader has heard enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            done => done?,
        }
    }
}

/// An event with the local time.
fn words(event: &TimedEvent) -> String {
    let time = i64::try_from(event.unix_ms).ok().and_then(DateTime::from_timestamp_millis).unwrap_or_default();
    format!("{}  {}", time.with_timezone(&Local).format("%Y-%m-%d %H:%M:%S"), event.event)
}
