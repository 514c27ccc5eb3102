//! SLEEP: a client that does not run for a while, and clocks that jump.

use std::time::Duration;

use anyhow::Result;
use tokio::time::{Instant, sleep, timeout};

use super::stand::PATIENCE;
use super::{Case, Check, Context};
use crate::namespaces::{CELL, Plan, WIFI};

pub(super) const CASES: &[Case] =
    &[Case { code: "SLEEP-1", what: "a sleep of minutes", run: |context| Box::pin(asleep(context)) }];

/// SLEEP-1: the client is stopped, as all of a sleeping machine is. Its monotonic clock goes on, unlike a sleeping machine's.
async fn asleep(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for mode in ["single", "bicast"] {
        let mut plan = Plan::standard(context.seed);
        for line in &mut plan.lines {
            line.behaviour.udp_timeout = Some(Duration::from_secs(30));
        }
        let stand = context.start_up(plan, &["--mode", mode]).await?;
        let mut old = stand.echo().await?;
        old.ping().await?;
        let time = context.time(Duration::from_secs(180), Duration::from_secs(40));
        context.say(&format!("{mode}: asleep for {} s", time.as_secs()));
        stand.client.process().signal(libc::SIGSTOP);
        sleep(time).await;
        for network in [WIFI, CELL] {
            stand.bed.network(network).rebind();
        }
        stand.client.process().signal(libc::SIGCONT);
        let limit = Duration::from_secs(30);
        let woken = Instant::now();
        let old = async { (old.ping().await.is_ok(), woken.elapsed()) };
        let (new, old) = tokio::join!(timeout(limit, stand.fetch(1_000)), timeout(limit, old));
        let new = new.ok().and_then(Result::ok).unwrap_or(PATIENCE);
        checks.push(Check::within(format!("{mode}: a new flow works after"), new, Duration::from_secs(3)));
        // An old flow may live or end, but not hang.
        let (lives, decided) = old.unwrap_or((false, PATIENCE));
        checks.push(Check::within(
            format!("{mode}: the old flow answers or ends after"),
            decided,
            Duration::from_secs(10),
        ));
        checks.push(Check::figure(format!("{mode}: the old flow lives"), f64::from(u8::from(lives)), "(1: yes)"));
    }
    Ok(checks)
}
