//! What is measured for its own sake: the bed's limits, goodput by controller and loss, failover times.

use std::time::Duration;

use anyhow::{Result, ensure};
use tandem_netem::{Bitrate, Direction, LinkConfig};
use tokio::time::{Instant, sleep, timeout};

use super::stand::{Background, PATIENCE, Stand, gap_since, median, percentile};
use super::{Case, Check, Context};
use crate::namespaces::{
    Bed, CELL, Client, Echo, Line, Origin, Plan, Relay, WIFI, Watched, connect_plainly, download, stream_up, upload,
};

pub(super) const CASES: &[Case] = &[
    Case { code: "BED", what: "what the bed itself can do, with plain TCP", run: |context| Box::pin(bed(context)) },
    Case {
        code: "GOODPUT",
        what: "the paper's bed, by controller and loss",
        run: |context| Box::pin(goodput(context)),
    },
    Case { code: "FAILOVER", what: "networks lost twenty times each", run: |context| Box::pin(failover(context)) },
];

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
    let stand = Plain::build(&Plan::paper(0.0, context.seed))?;
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

/// What one download brings, in Mbit/s; it ends with its bytes or after `longest`.
async fn download_rate(
    context: &Context,
    plan: Plan,
    arguments: &[&str],
    length: u64,
    longest: Duration,
) -> Result<f64> {
    let stand = context.start_up(plan, arguments).await?;
    let watched = Watched::new();
    // One that takes longer is measured by what has come.
    if let Ok(done) = timeout(longest, download(stand.client.connect().await?, length, &watched)).await {
        return Ok(done?.rate());
    }
    ensure!(watched.trace().is_intact(), "a download's bytes were not those sent");
    Ok(watched.trace().rate_between(Duration::ZERO, longest))
}

/// Goodput of a download through SOCKS5 over two networks of 100 Mbit/s, 10 ms, a queue of one bandwidth-delay product.
async fn goodput(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let length = if context.quick { 40_000_000 } else { 100_000_000 };
    let longest = context.time(Duration::from_secs(30), Duration::from_secs(12));
    let losses: &[u32] = if context.quick { &[0, 1, 10] } else { &[0, 1, 5, 10] };
    let mode = |scheme| if scheme == "unicast" { ["--mode", "single"] } else { ["--bicast", scheme] };
    for controller in ["bbr3", "bbr3-draft", "bbr1", "cubic"] {
        for percent in losses {
            let mut server = f64::NAN;
            for scheme in ["unicast", "server", "both"] {
                if scheme == "server" && controller != "bbr3" {
                    continue;
                }
                let name = format!("{controller} {scheme}, {percent} %");
                context.say(&name);
                let plan = Plan::paper(f64::from(*percent) / 100.0, context.seed);
                let [mode, scheme_word] = mode(scheme);
                let arguments = [mode, scheme_word, "--congestion", controller];
                let rate = download_rate(&context, plan, &arguments, length, longest).await;
                let rate = rate.inspect_err(|error| context.say(&format!("{error:#}"))).unwrap_or(f64::NAN);
                let least = match (controller, scheme, percent) {
                    ("bbr3", "both", 0 | 1) => Some(88.0),
                    ("bbr3", "both", 5) => Some(87.0),
                    ("bbr3", "both", _) => Some(83.0),
                    ("bbr3", "unicast", 1) => Some(85.0),
                    _ => None,
                };
                checks.push(match least {
                    Some(least) => Check::at_least(name, rate, least, "Mbit/s"),
                    None => Check::figure(name, rate, "Mbit/s"),
                });
                if scheme == "server" {
                    server = rate;
                } else if scheme == "both" && controller == "bbr3" {
                    let what = format!("bbr3, {percent} %: with the client's ACKs copied, of without");
                    checks.push(Check::at_least(what, rate / server, 0.95, ""));
                }
            }
        }
    }
    context.say("bbr3 both, 20 and 60 ms, 2 %");
    let mut plan = Plan::paper(0.02, context.seed);
    for (line, rtt) in plan.lines.iter_mut().zip([20, 60]) {
        for link in [&mut line.up, &mut line.down] {
            let rtt = Duration::from_millis(rtt);
            link.delay = rtt / 2;
            *link = link.clone().with_queue_bdp(1.0, rtt);
        }
    }
    let rate = download_rate(&context, plan, &["--bicast", "both", "--congestion", "bbr3"], length, longest).await;
    let rate = rate.inspect_err(|error| context.say(&format!("{error:#}"))).unwrap_or(f64::NAN);
    checks.push(Check::at_least("bbr3 both, 20 and 60 ms, 2 %", rate, 83.0, "Mbit/s"));
    Ok(checks)
}

/// How long streams stand still when the network in use falls silent, and how long a start takes with the first one dead.
async fn failover(context: Context) -> Result<Vec<Check>> {
    const STREAM: u64 = 250_000;
    let mut checks = Vec::new();
    let runs = if context.quick { 5 } else { 20 };
    for (mode, limit) in [("single", 500), ("bicast", 100)] {
        let stand = context.start_up(Plan::standard(context.seed), &["--mode", mode]).await?;
        let mut number = 0;
        for (what, directions) in [
            ("silent", &[Direction::Up, Direction::Down][..]),
            ("silent up", &[Direction::Up]),
            ("silent down", &[Direction::Down]),
        ] {
            context.say(&format!("{mode}, {what}"));
            let mut gaps = Vec::new();
            for run in 0..runs {
                number += 1;
                let (down, _down) = stand.begin_stream(STREAM, PATIENCE).await?;
                let tcp = stand.client.connect().await?;
                let up = Background::new(tokio::spawn(stream_up(tcp, number, STREAM, PATIENCE)));
                // At another moment of every cycle there may be.
                sleep(Duration::from_millis(1_000 + 37 * run)).await;
                let used = in_use(&stand, directions[directions.len() - 1]).await;
                let lost = Instant::now();
                directions.iter().for_each(|direction| stand.bed.network(used).cut(*direction));
                sleep(Duration::from_millis(2_500)).await;
                let gap_up = stand.origin.upload(number).map_or(PATIENCE, |trace| gap_since(&trace, lost));
                gaps.push(gap_up.max(gap_since(&down.trace(), lost)).as_secs_f64() * 1e3);
                drop(up);
                stand.bed.network(used).revive();
                stand.client.paths_up(2).await?;
                sleep(Duration::from_millis(500)).await;
            }
            tell(&mut checks, &context, &format!("{mode}, {what}"), gaps, f64::from(limit));
        }
    }
    context.say("starting with Wi-Fi dead");
    let mut late = Vec::new();
    for _ in 0..runs {
        let mut times = Vec::new();
        for dead in [false, true] {
            let plan = Plan { logs: Some(context.logs.join(context.code)), ..Plan::standard(context.seed) };
            let bed = Bed::build(&plan)?;
            let origin = Origin::start(&bed)?;
            let relay = Relay::start_plain(&bed, &context.programs)?;
            if dead {
                bed.network(WIFI).silence();
            }
            let started = Instant::now();
            let client = Client::start(&bed, &context.programs, &relay, &["--mode", "single"])?;
            let stand = Stand { client, relay, origin, bed };
            stand.fetch(1_000).await?;
            times.push(started.elapsed());
        }
        late.push(times[1].saturating_sub(times[0]).as_secs_f64() * 1e3);
    }
    tell(&mut checks, &context, "first fetch later with Wi-Fi dead", late, 1_000.0);
    Ok(checks)
}

/// The network that carries more in that direction now: each end chooses for itself.
async fn in_use(stand: &Stand, direction: Direction) -> usize {
    let count = || [WIFI, CELL].map(|network| stand.bed.network(network).counters(direction).offered_bytes);
    let before = count();
    sleep(Duration::from_millis(200)).await;
    let after = count();
    if after[CELL] - before[CELL] > after[WIFI] - before[WIFI] { CELL } else { WIFI }
}

/// Tells the distribution of times in milliseconds of which none may exceed the limit.
fn tell(checks: &mut Vec<Check>, context: &Context, name: &str, mut times: Vec<f64>, limit: f64) {
    checks.push(Check::figure(format!("{name}: median of {}", times.len()), median(&mut times), "ms"));
    checks.push(Check::figure(format!("{name}: 90 %"), percentile(&mut times, 0.9), "ms"));
    checks.push(Check::at_most(format!("{name}: longest"), percentile(&mut times, 1.0), limit, "ms"));
    let all: Vec<_> = times.iter().map(|time| format!("{time:.0}")).collect();
    context.say(&format!("{name}, in ms: {}", all.join(" ")));
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
