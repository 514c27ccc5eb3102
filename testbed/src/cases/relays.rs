//! RELAYS: a client with two relays, of which the one in use dies without a word, or is told to stop.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::{Instant, sleep, timeout};

use super::stand::{PATIENCE, percentile};
use super::{Case, Check, Context};
use crate::namespaces::{Bed, Client, Origin, Plan, RELAY, RELAY_SECOND, Relay, Watched, download};

pub(super) const CASES: &[Case] = &[Case {
    code: "RELAYS",
    what: "new flows after the relay was killed, and after it was told to stop",
    run: |context| Box::pin(relays(context)),
}];

/// A new flow may take so long after whatever befell the relay.
const ALLOWED: Duration = Duration::from_secs(1);
/// An open flow must have ended by then when its relay was killed.
const ENDED: Duration = Duration::from_secs(10);

async fn relays(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let rounds = if context.quick { 5 } else { 20 };
    for (what, signal) in [("killed", libc::SIGKILL), ("told to stop", libc::SIGTERM)] {
        let (mut new, mut old) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            context.say(&format!("{what}, {} of {rounds}", round + 1));
            let plan = Plan { logs: Some(context.logs.join(context.code)), ..Plan::standard(context.seed + round) };
            let bed = Bed::build(&plan)?;
            let _origin = Origin::start(&bed)?;
            let first = Relay::start_at(&bed, &context.programs, "relay", RELAY)?;
            let second = Relay::start_at(&bed, &context.programs, "relay-2", RELAY_SECOND)?;
            let client = Client::start_paired(&bed, &context.programs, &[first.link(), second.link()], &[], &[])?;
            client.paths_up(2).await?;
            let fetch = async || download(client.connect().await?, 1_000, &Watched::new()).await.map(drop);
            fetch().await?;
            // An idle session is noticed to be dead only by who uses it.
            sleep(Duration::from_millis(1_500)).await;
            let mut open = crate::namespaces::Echo::begin(client.connect().await?).await?;
            open.ping().await?;
            let used = client.snapshot().await?.0["relay"].as_str().context("the relay in use")?.to_owned();
            let hit = if used.starts_with(&RELAY.to_string()) { &first } else { &second };
            hit.process().signal(signal);
            let since = Instant::now();
            let fetched = timeout(PATIENCE, fetch()).await.ok().and_then(Result::ok);
            new.push(fetched.map_or(PATIENCE, |()| since.elapsed()).as_secs_f64() * 1e3);
            // After the kill an open flow has to end, after the other signal it lives on.
            let answered = timeout(ENDED, open.ping()).await;
            old.push(match answered {
                Ok(Ok(_)) if signal == libc::SIGTERM => 1.0,
                Ok(Err(_)) if signal == libc::SIGKILL => 1.0,
                _ => 0.0,
            });
        }
        let worst = new.iter().copied().fold(0.0, f64::max);
        checks.push(Check::figure(format!("{what}: a new flow, median"), percentile(&mut new, 0.5), "ms"));
        checks.push(Check::at_most(format!("{what}: a new flow, longest"), worst, ALLOWED.as_secs_f64() * 1e3, "ms"));
        let share = old.iter().sum::<f64>() / old.len() as f64 * 100.0;
        let open = if signal == libc::SIGKILL { "the open flow ends within 10 s" } else { "the open flow lives on" };
        checks.push(Check::at_least(format!("{what}: {open}"), share, 100.0, "%"));
    }
    Ok(checks)
}
