//! MULTI: several networks, of which some fail, degrade, come back or were never right.

use std::time::Duration;

use anyhow::Result;
use ipnet::Ipv4Net;
use tandem_netem::{Direction, Loss};
use tokio::time::{Instant, sleep, timeout};

use super::stand::{PATIENCE, Stand, gap_since};
use super::{Case, Check, Context};
use crate::namespaces::{
    Bed, CELL, Client, DefaultRoute, Origin, PORTAL, Plan, RELAY_NAME, RELAY_NAME_V4, Relay, WIFI, stream_up,
};

pub(super) const CASES: &[Case] = &[
    Case { code: "MULTI-1", what: "bicast, a network lost", run: |context| Box::pin(lost(context)) },
    Case { code: "MULTI-2", what: "single, the network in use loses 20 %", run: |context| Box::pin(degraded(context)) },
    Case { code: "MULTI-4", what: "a network comes and goes every 2 s", run: |context| Box::pin(flapping(context)) },
    Case { code: "MULTI-5", what: "Wi-Fi with a login page", run: |context| Box::pin(captive(context)) },
    Case { code: "MULTI-6", what: "both interfaces in one subnet", run: |context| Box::pin(one_subnet(context)) },
    Case { code: "MULTI-7", what: "policy route, strict reverse path", run: |context| Box::pin(policy_route(context)) },
    Case { code: "MULTI-8", what: "an interface gets another address", run: |context| Box::pin(moved(context)) },
    Case { code: "MULTI-9", what: "IPv6-only Wi-Fi with NAT64", run: |context| Box::pin(nat64(context)) },
    Case { code: "MULTI-10", what: "working IPv4, dead IPv6", run: |context| Box::pin(dead_v6(context)) },
    Case { code: "MULTI-12", what: "networks lost in turn, and both", run: |context| Box::pin(in_turn(context)) },
];

/// The even stream beside which a network is lost: 2 Mbit/s, so that either network carries it both ways.
const STREAM: u64 = 250_000;
/// The longest gap that the loss of a network may make in bicast.
const BICAST_GAP: Duration = Duration::from_millis(100);

/// How a network is lost.
#[derive(Debug, Clone, Copy)]
enum Way {
    Silent,
    SilentUp,
    SilentDown,
    InterfaceDown,
}

impl Way {
    const ALL: [Self; 4] = [Self::Silent, Self::SilentUp, Self::SilentDown, Self::InterfaceDown];

    fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::SilentUp => "silent up",
            Self::SilentDown => "silent down",
            Self::InterfaceDown => "interface down",
        }
    }

    fn lose(self, bed: &Bed, network: usize) -> Result<()> {
        match self {
            Self::Silent => bed.network(network).silence(),
            Self::SilentUp => bed.network(network).cut(Direction::Up),
            Self::SilentDown => bed.network(network).cut(Direction::Down),
            Self::InterfaceDown => return bed.interface_down(network),
        }
        Ok(())
    }

    fn bring_back(self, bed: &Bed, network: usize) -> Result<()> {
        if matches!(self, Self::InterfaceDown) {
            return bed.interface_up(network);
        }
        bed.network(network).revive();
        Ok(())
    }
}

/// MULTI-1
async fn lost(context: Context) -> Result<Vec<Check>> {
    let stand = context.start_up(Plan::standard(context.seed), &["--mode", "bicast"]).await?;
    let mut checks = Vec::new();
    let mut number = 0;
    for network in [WIFI, CELL] {
        for way in Way::ALL {
            let name = format!("{} lost ({})", stand.bed.interface(network), way.name());
            context.say(&name);
            number += 1;
            let (down, going) = stand.begin_stream(STREAM, Duration::from_secs(5)).await?;
            let tcp = stand.client.connect().await?;
            let up = tokio::spawn(stream_up(tcp, number, STREAM, Duration::from_secs(5)));
            sleep(Duration::from_secs(2)).await;
            let lost = Instant::now();
            way.lose(&stand.bed, network)?;
            sleep(Duration::from_secs(2)).await;
            let gap_down = gap_since(&down.trace(), lost);
            let gap_up = stand.origin.upload(number).map_or(PATIENCE, |trace| gap_since(&trace, lost));
            checks.push(Check::within(format!("{name}: longest gap down"), gap_down, BICAST_GAP));
            checks.push(Check::within(format!("{name}: longest gap up"), gap_up, BICAST_GAP));
            let lived =
                going.end().await.is_ok() && timeout(PATIENCE, up).await.is_ok_and(|up| matches!(up, Ok(Ok(()))));
            checks.push(Check::holds(format!("{name}: flows live, all bytes"), lived));
            way.bring_back(&stand.bed, network)?;
            stand.client.paths_up(2).await?;
            sleep(Duration::from_millis(500)).await;
        }
    }
    Ok(checks)
}

/// MULTI-2
async fn degraded(context: Context) -> Result<Vec<Check>> {
    let stand = context.start_up(Plan::standard(context.seed), &["--mode", "single"]).await?;
    let mut checks = Vec::new();
    let (stream, going) = stand.begin_stream(STREAM, Duration::from_secs(300)).await?;
    sleep(Duration::from_secs(3)).await;
    let wifi = |snapshot: &crate::namespaces::Snapshot| snapshot.is_preferred("wifi0");
    stand.client.wait_for("Wi-Fi in use", Duration::from_secs(20), wifi).await?;
    context.say("Wi-Fi begins to lose 20 %");
    stand.bed.network(WIFI).change_links(|link| link.loss = Loss::Random(0.2));
    let left = stand.client.wait_for("move", Duration::from_secs(30), |snapshot| snapshot.is_preferred("cell0")).await;
    checks.push(Check::within("moved after", left.unwrap_or(Duration::from_secs(30)), Duration::from_secs(10)));
    let mut returns = 0u32;
    stand
        .watch(context.time(Duration::from_secs(30), Duration::from_secs(12)), |_, now| returns += u32::from(wifi(now)))
        .await?;
    checks.push(Check::at_most("looks at which it was back while lossy", f64::from(returns), 0.0, ""));
    context.say("Wi-Fi is clean again");
    stand.bed.network(WIFI).change_links(|link| link.loss = Loss::None);
    let back =
        stand.client.wait_for("return", Duration::from_secs(120), wifi).await.unwrap_or(Duration::from_secs(120));
    checks.push(Check::at_least("back after so long clean", back.as_secs_f64(), 5.0, "s"));
    checks.push(Check::holds("the flow lives", !going.has_ended() && stream.trace().is_intact()));
    Ok(checks)
}

/// MULTI-4
async fn flapping(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let measured = context.time(Duration::from_secs(16), Duration::from_secs(8));
    for mode in ["bicast", "single"] {
        let stand = context.start_up(Plan::standard(context.seed), &["--mode", mode]).await?;
        let mut echo = stand.echo().await?;
        context.say(&format!("{mode}: Wi-Fi alone"));
        stand.bed.network(CELL).silence();
        sleep(Duration::from_secs(5)).await;
        let alone = context.product_rate(&stand, measured).await?;
        context.say(&format!("{mode}: the cellular network comes and goes"));
        let network = stand.bed.network(CELL);
        let flapping = tokio::spawn(async move {
            loop {
                network.revive();
                sleep(Duration::from_secs(2)).await;
                network.silence();
                sleep(Duration::from_secs(2)).await;
            }
        });
        let beside = context.product_rate(&stand, measured).await;
        flapping.abort();
        let beside = beside?;
        checks.push(Check::figure(format!("{mode}: Wi-Fi alone"), alone, "Mbit/s"));
        checks.push(Check::at_least(format!("{mode}: beside it, of that"), beside / alone, 0.85, ""));
        stand.bed.network(CELL).revive();
        let before = stand.bed.network(CELL).counters(Direction::Down).delivered;
        let (_bulk, _going) = stand.begin_bulk().await?;
        let up = stand.client.wait_for("path", Duration::from_secs(20), |now| now.is_up("cell0")).await;
        checks.push(Check::within(
            format!("{mode}: up again once steady"),
            up.unwrap_or(PATIENCE),
            Duration::from_secs(10),
        ));
        if mode == "bicast" {
            sleep(Duration::from_secs(1)).await;
            let carried = stand.bed.network(CELL).counters(Direction::Down).delivered - before;
            checks.push(Check::at_least("bicast: packets it carries in a second", carried as f64, 200.0, ""));
        }
        checks.push(Check::holds(
            format!("{mode}: the flow lives"),
            timeout(PATIENCE, echo.ping()).await.is_ok_and(|ping| ping.is_ok()),
        ));
    }
    Ok(checks)
}

/// From the client's start until its proxy has fetched a kilobyte.
async fn start_and_fetch(context: &Context, plan: Plan, arguments: &[&str]) -> Result<(Stand, Duration)> {
    let plan = Plan { logs: Some(context.logs.join(context.code)), ..plan };
    let bed = Bed::build(&plan)?;
    let origin = Origin::start(&bed)?;
    let relay = Relay::start_plain(&bed, &context.programs)?;
    let started = Instant::now();
    let client = Client::start(&bed, &context.programs, &relay, arguments)?;
    let stand = Stand { client, relay, origin, bed };
    stand.fetch(1_000).await?;
    Ok((stand, started.elapsed()))
}

/// MULTI-5
async fn captive(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for mode in ["single", "bicast"] {
        context.say(&format!("{mode}: connecting over healthy networks, then with a login page on Wi-Fi"));
        let arguments = ["--mode", mode];
        let (_, healthy) = start_and_fetch(&context, Plan::standard(context.seed), &arguments).await?;
        let mut plan = Plan::standard(context.seed);
        plan.lines[WIFI].behaviour.captive = Some(PORTAL);
        let (stand, captive) = start_and_fetch(&context, plan, &arguments).await?;
        let late = captive.saturating_sub(healthy);
        checks.push(Check::within(format!("{mode}: first fetch later by"), late, Duration::from_secs(1)));
        sleep(Duration::from_secs(2)).await;
        let snapshot = stand.client.snapshot().await?;
        checks.push(Check::holds(format!("{mode}: Wi-Fi does not count as up"), !snapshot.is_up("wifi0")));
        let shown = snapshot.path("wifi0").is_some_and(|path| path["problem"].is_string());
        checks.push(Check::holds(format!("{mode}: the reason is shown"), shown));
        context.say(&snapshot.describe());
        sleep(context.time(Duration::from_secs(40), Duration::from_secs(8))).await;
        stand.bed.network(WIFI).change(|behaviour| behaviour.captive = None);
        let up = stand.client.wait_for("Wi-Fi", Duration::from_secs(30), |now| now.is_up("wifi0")).await;
        checks.push(Check::within(
            format!("{mode}: up after the login"),
            up.unwrap_or(PATIENCE),
            Duration::from_secs(10),
        ));
        context.say(&format!("{mode}: a login page appears while Wi-Fi is in use"));
        let mut echo = stand.echo().await?;
        stand.bed.network(WIFI).change(|behaviour| behaviour.captive = Some(PORTAL));
        sleep(Duration::from_millis(100)).await;
        let ping = timeout(Duration::from_secs(10), echo.ping()).await;
        let answered = ping.ok().and_then(Result::ok).unwrap_or(PATIENCE);
        checks.push(Check::within(format!("{mode}: echo when it comes up later"), answered, Duration::from_secs(2)));
    }
    Ok(checks)
}

/// MULTI-6
async fn one_subnet(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for mode in ["bicast", "single"] {
        let plan = Plan::standard(context.seed).in_one_subnet();
        let stand = context.start_up(plan, &["--mode", mode]).await?;
        context.say(mode);
        stand.fetch(1_000_000).await?;
        for network in [WIFI, CELL] {
            let interface = stand.bed.interface(network);
            let snapshot = stand.client.snapshot().await?;
            let local = snapshot.path(interface).and_then(|path| path["local"].as_str()).unwrap_or_default().to_owned();
            let own = stand.bed.host_v4(network).map(|address| format!("{address}:")).unwrap_or_default();
            checks
                .push(Check::holds(format!("{mode}: {interface} sends from its own address"), local.starts_with(&own)));
            let carried = stand.bed.network(network).counters(Direction::Up).delivered;
            checks.push(Check::at_least(format!("{mode}: packets by {interface}"), carried as f64, 5.0, ""));
        }
        for network in [WIFI, CELL] {
            let interface = stand.bed.interface(network);
            stand.bed.network(network).silence();
            sleep(Duration::from_millis(50)).await;
            let fetched = timeout(PATIENCE, stand.fetch(100_000)).await.ok().and_then(Result::ok).unwrap_or(PATIENCE);
            checks.push(Check::within(format!("{mode}: fetch with {interface} lost"), fetched, Duration::from_secs(3)));
            stand.bed.network(network).revive();
            stand.client.paths_up(2).await?;
        }
    }
    Ok(checks)
}

/// MULTI-7
async fn policy_route(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    context.say("the cellular network's default route in a table of its own, rp_filter=1");
    let mut plan = Plan::standard(context.seed);
    plan.lines[CELL].host.default_route = DefaultRoute::Policy(102);
    let stand = context.start(plan, &["--mode", "bicast"])?;
    // As the product may ask for the gateway at any time, the filter is strict from before it looks again.
    for name in ["all", "wifi0", "cell0"] {
        stand.bed.client().sysctl(&format!("net.ipv4.conf.{name}.rp_filter"), "1")?;
    }
    let up = stand.client.wait_for("both", Duration::from_secs(10), |now| now.paths_up() == 2).await;
    context.say(&stand.client.snapshot().await?.describe());
    checks.push(Check::within("both paths up after", up.unwrap_or(PATIENCE), Duration::from_secs(5)));
    stand.fetch(500_000).await?;
    let carried = stand.bed.network(CELL).counters(Direction::Down).delivered;
    checks.push(Check::at_least("packets down by cell0", carried as f64, 100.0, ""));

    context.say("a cellular network without any route");
    let mut plan = Plan::standard(context.seed);
    plan.lines[CELL].host.default_route = DefaultRoute::None;
    let stand = context.start(plan, &["--mode", "bicast", "--interface", "wifi0", "--interface", "cell0"])?;
    sleep(Duration::from_secs(3)).await;
    let snapshot = stand.client.snapshot().await?;
    context.say(&snapshot.describe());
    let said = snapshot.path("cell0").is_some_and(|path| path["state"] != "up" && path["problem"].is_string());
    checks.push(Check::holds("without a route: said so", said));
    checks.push(Check::holds("without a route: Wi-Fi is up", snapshot.is_up("wifi0")));
    checks.push(Check::within("without a route: fetch", stand.fetch(100_000).await?, Duration::from_secs(2)));
    Ok(checks)
}

/// MULTI-8
async fn moved(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for mode in ["bicast", "single"] {
        let mut stand = context.start_up(Plan::standard(context.seed), &["--mode", mode]).await?;
        let (stream, going) = stand.begin_stream(50_000, Duration::from_secs(120)).await?;
        for (what, to) in [("another address", [192, 168, 1, 77]), ("another subnet", [192, 168, 9, 2])] {
            context.say(&format!("{mode}: {what}"));
            sleep(Duration::from_secs(1)).await;
            let to = Ipv4Net::new_assert(to.into(), 24);
            let moved = Instant::now();
            stand.bed.move_interface(WIFI, to)?;
            let local = format!("{}:", to.addr());
            let is_back = |now: &crate::namespaces::Snapshot| {
                now.is_up("wifi0")
                    && now
                        .path("wifi0")
                        .is_some_and(|path| path["local"].as_str().is_some_and(|at| at.starts_with(&local)))
            };
            let back = stand.client.wait_for("path", Duration::from_secs(20), is_back).await.unwrap_or(PATIENCE);
            checks.push(Check::within(format!("{mode}, {what}: path up again"), back, Duration::from_secs(3)));
            sleep(Duration::from_secs(1)).await;
            checks.push(Check::within(
                format!("{mode}, {what}: gap"),
                gap_since(&stream.trace(), moved),
                Duration::from_secs(3),
            ));
        }
        checks.push(Check::holds(format!("{mode}: the flow lives"), !going.has_ended() && stream.trace().is_intact()));
    }
    Ok(checks)
}

/// A stand whose relay is known by a name, and when its client was started.
fn start_by_name(context: &Context, plan: Plan, name: &str, arguments: &[&str]) -> Result<(Stand, Instant)> {
    let plan = Plan { logs: Some(context.logs.join(context.code)), ..plan };
    let bed = Bed::build(&plan)?;
    let origin = Origin::start(&bed)?;
    let relay = Relay::start(&bed, &context.programs, &[&format!("{name}:4433")])?;
    let started = Instant::now();
    let client = Client::start(&bed, &context.programs, &relay, arguments)?;
    Ok((Stand { client, relay, origin, bed }, started))
}

/// MULTI-9
async fn nat64(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let plan = || {
        let mut plan = Plan::standard(context.seed);
        let wifi = &mut plan.lines[WIFI];
        *wifi = wifi.clone().with_v6();
        wifi.host.v4 = None;
        wifi.behaviour.v4 = None;
        wifi.behaviour.nat64 = true;
        plan
    };
    context.say("beside an IPv4-only network");
    let (stand, _) = start_by_name(&context, plan(), RELAY_NAME_V4, &["--mode", "bicast"])?;
    let up = stand.client.wait_for("both", Duration::from_secs(15), |now| now.paths_up() == 2).await;
    context.say(&stand.client.snapshot().await?.describe());
    checks.push(Check::within("both paths up after", up.unwrap_or(PATIENCE), Duration::from_secs(5)));
    stand.fetch(500_000).await?;
    let carried = stand.bed.network(WIFI).counters(Direction::Down).delivered;
    checks.push(Check::at_least("packets down by the IPv6-only network", carried as f64, 100.0, ""));
    drop(stand);
    context.say("alone");
    let mut alone = plan();
    alone.lines.truncate(1);
    let (stand, _) = start_by_name(&context, alone, RELAY_NAME_V4, &["--mode", "single"])?;
    let fetched = timeout(Duration::from_secs(20), stand.fetch(100_000)).await;
    let fetched = fetched.ok().and_then(Result::ok).unwrap_or(PATIENCE);
    checks.push(Check::within("alone: first fetch", fetched, Duration::from_secs(5)));
    Ok(checks)
}

/// MULTI-10
async fn dead_v6(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let mut times = Vec::new();
    for dead in [false, true] {
        context.say(if dead { "dead IPv6 on both networks" } else { "working IPv6" });
        let mut plan = Plan::standard(context.seed);
        for line in &mut plan.lines {
            *line = line.clone().with_v6();
            line.behaviour.dead_v6 = dead;
        }
        let (stand, started) = start_by_name(&context, plan, RELAY_NAME, &["--mode", "bicast"])?;
        let up = stand.client.wait_for("Wi-Fi", Duration::from_secs(20), |now| now.is_up("wifi0")).await;
        times.push(if up.is_ok() { started.elapsed() } else { PATIENCE });
        let both = stand.client.wait_for("both", Duration::from_secs(20), |now| now.paths_up() == 2).await;
        let both = if both.is_ok() { started.elapsed() } else { PATIENCE };
        context.say(&stand.client.snapshot().await?.describe());
        let what = if dead { "dead IPv6" } else { "working IPv6" };
        checks.push(Check::figure(
            format!("{what}: Wi-Fi up after the start"),
            times[times.len() - 1].as_secs_f64() * 1e3,
            "ms",
        ));
        let limit = Duration::from_millis(1_500);
        checks.push(Check::within(format!("{what}: both up after the start"), both, limit));
    }
    let late = times[1].saturating_sub(times[0]);
    checks.push(Check::within("Wi-Fi up later because of dead IPv6", late, Duration::from_millis(1_000)));
    Ok(checks)
}

/// MULTI-12
async fn in_turn(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for mode in ["single", "bicast"] {
        let stand = context.start_up(Plan::standard(context.seed), &["--mode", mode]).await?;
        let mut echo = stand.echo().await?;
        let (mut worst_old, mut worst_new, mut dead) = (Duration::ZERO, Duration::ZERO, 0);
        for turn in 0..if context.quick { 6 } else { 20 } {
            let way = Way::ALL[(turn / 3) % Way::ALL.len()];
            let lost: &[usize] = [&[WIFI][..], &[CELL], &[WIFI, CELL]][turn % 3];
            for network in lost {
                way.lose(&stand.bed, *network)?;
            }
            if lost.len() == 2 {
                sleep(Duration::from_secs(4)).await;
                // One of them comes back; the other stays away until traffic has passed.
                way.bring_back(&stand.bed, lost[turn / 3 % 2])?;
            }
            let limit = Duration::from_secs(15);
            let (old, new) = tokio::join!(timeout(limit, echo.ping()), timeout(limit, stand.fetch(1_000)));
            let (old, new) = (old.ok().and_then(Result::ok), new.ok().and_then(Result::ok));
            dead += u32::from(old.is_none()) + u32::from(new.is_none());
            worst_old = worst_old.max(old.unwrap_or(limit));
            worst_new = worst_new.max(new.unwrap_or(limit));
            let names: Vec<_> = lost.iter().map(|network| stand.bed.interface(*network)).collect();
            context.say(&format!(
                "{mode}, turn {turn}: {} {}: old {old:?}, new {new:?}",
                names.join(" and "),
                way.name()
            ));
            for network in lost {
                way.bring_back(&stand.bed, *network)?;
            }
            if old.is_none() {
                echo = stand.echo().await?;
            }
            // The next turn may come at any moment, but has to find both.
            let _ = stand.client.wait_for("both", Duration::from_secs(10), |now| now.paths_up() == 2).await;
        }
        checks.push(Check::within(
            format!("{mode}: longest until an old flow moves"),
            worst_old,
            Duration::from_secs(3),
        ));
        checks.push(Check::within(
            format!("{mode}: longest until a new flow works"),
            worst_new,
            Duration::from_secs(3),
        ));
        checks.push(Check::at_most(format!("{mode}: times that nothing passed"), f64::from(dead), 0.0, ""));
    }
    Ok(checks)
}
