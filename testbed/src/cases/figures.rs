//! What is measured for its own sake: the bed's limits, goodput by controller and loss, failover times.

use std::time::Duration;

use anyhow::Result;
use tandem_netem::{Bitrate, Direction, LinkConfig};
use tokio::time::{Instant, sleep, timeout};

use super::stand::{median, percentile};
use super::{Case, Check, Context};
use crate::namespaces::{Bed, CELL, Echo, Line, Origin, Plan, WIFI, Watched, connect_plainly, download, upload};

pub(super) const CASES: &[Case] =
    &[Case { code: "BED", what: "what the bed itself can do, with plain TCP", run: |context| Box::pin(bed(context)) }];

/// The bed alone: how much passes, what it costs, how punctual it is.
async fn bed(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let time = context.time(Duration::from_secs(10), Duration::from_secs(4));

    context.say("no limits, one way");
    let stand = Plain::build(&Plan::perfect())?;
    let (rate, share) = stand.measure(&[(WIFI, Direction::Down)], time).await?;
    checks.push(Check::figure("no limits, down: goodput", rate, "Mbit/s"));
    checks.push(Check::figure("no limits, down: router's share of a processor", share, "%"));
    drop(stand);

    context.say("150 Mbit/s each way on both networks");
    let link = |seed| {
        let delay = Duration::from_millis(5);
        let rate = Some(Bitrate::from_mbit(150));
        LinkConfig { rate, delay, seed, ..LinkConfig::default() }.with_queue_bdp(2.0, delay * 2)
    };
    let lines = vec![Line::wifi(link(1), link(2)), Line::cell(link(3), link(4))];
    let stand = Plain::build(&Plan { lines, logs: None })?;
    let one = [(WIFI, Direction::Down), (WIFI, Direction::Up)];
    let all = [one[0], one[1], (CELL, Direction::Down), (CELL, Direction::Up)];
    let (rate, share) = stand.measure(&one[..1], time).await?;
    checks.push(Check::at_least("150 Mbit/s: CUBIC down", rate, 135.0, "Mbit/s"));
    checks.push(Check::figure("150 Mbit/s: router's share of a processor", share, "%"));
    let (rate, share) = stand.measure(&one, time).await?;
    checks.push(Check::figure("150 Mbit/s: CUBIC both ways, sum", rate, "Mbit/s"));
    checks.push(Check::figure("150 Mbit/s, both ways: router's share", share, "%"));
    let (rate, share) = stand.measure(&all, time).await?;
    checks.push(Check::figure("150 Mbit/s: both ways on both networks, sum", rate, "Mbit/s"));
    checks.push(Check::figure("150 Mbit/s, both and both: router's share", share, "%"));
    drop(stand);

    context.say("round trips of an idle network of 10 ms");
    let stand = Plain::build(&Plan::paper(tandem_netem::Loss::None, context.seed))?;
    let mut echo = Echo::begin(connect_plainly(&stand.bed, WIFI).await?).await?;
    let mut times = Vec::new();
    for _ in 0..200 {
        times.push(echo.ping().await?.as_secs_f64() * 1e3);
        sleep(Duration::from_millis(3)).await;
    }
    checks.push(Check::at_most("10 ms: median round trip", median(&mut times), 11.0, "ms"));
    checks.push(Check::figure("10 ms: round trip, 99 %", percentile(&mut times, 0.99), "ms"));
    Ok(checks)
}

/// A bed without the product.
struct Plain {
    origin: Origin,
    bed: Bed,
}

impl Plain {
    fn build(plan: &Plan) -> Result<Self> {
        let bed = Bed::build(plan)?;
        Ok(Self { origin: Origin::start(&bed)?, bed })
    }

    /// Runs plain TCP on these links at once; the sum of rates in Mbit/s, and the router's share of a processor in percent.
    async fn measure(&self, links: &[(usize, Direction)], time: Duration) -> Result<(f64, f64)> {
        let settle = Duration::from_secs(2);
        let mut watched = Vec::new();
        let mut running = tokio::task::JoinSet::new();
        for (number, (network, direction)) in links.iter().enumerate() {
            let tcp = connect_plainly(&self.bed, *network).await?;
            let down = Watched::new();
            watched.push(down.clone());
            let (direction, number) = (*direction, number as u64);
            running.spawn(async move {
                let carry = async {
                    match direction {
                        Direction::Down => download(tcp, u64::MAX, &down).await.map(drop),
                        Direction::Up => upload(tcp, number, u64::MAX).await.map(drop),
                    }
                };
                timeout(settle + time, carry).await
            });
        }
        sleep(settle).await;
        let (before, started) = (self.bed.router_processor(), Instant::now());
        running.join_all().await;
        let share = (self.bed.router_processor() - before).as_secs_f64() / started.elapsed().as_secs_f64();
        let mut sum = 0.0;
        for (number, ((_, direction), down)) in links.iter().zip(&watched).enumerate() {
            let trace = match direction {
                Direction::Down => Some(down.trace()),
                Direction::Up => self.origin.upload(number as u64),
            };
            sum += trace.map_or(0.0, |trace| trace.rate_between(settle, settle + time));
        }
        Ok((sum, share * 100.0))
    }
}
