//! PATH: what networks do to the packets of one path.

use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tandem_netem::{Bitrate, Direction, LinkConfig, Reorder};
use tokio::time::{Instant, sleep, timeout};

use super::stand::{PATIENCE, gap_since, next_byte};
use super::{Case, Check, Context};
use crate::namespaces::{
    Bed, CELL, Client, Ecn, LINE, Line, Origin, Plan, RELAY, RELAY_SECOND, Relay, WIFI, Watched, download, stream_up,
};

pub(super) const CASES: &[Case] = &[
    Case { code: "PATH-1", what: "the MTU falls to 1,300 in silence", run: |context| Box::pin(narrow(context)) },
    Case { code: "PATH-2", what: "networks of different MTU in bicast", run: |context| Box::pin(two_widths(context)) },
    Case { code: "PATH-3", what: "NAT rebinding every 5 s", run: |context| Box::pin(rebinding(context)) },
    Case { code: "PATH-4", what: "an idle flow behind forgetful NATs", run: |context| Box::pin(idle(context)) },
    Case { code: "PATH-5", what: "every network dead for 20 s", run: |context| Box::pin(all_dead(context)) },
    Case { code: "PATH-6", what: "ECN bits cleared or set", run: |context| Box::pin(ecn(context)) },
    Case { code: "PATH-8", what: "send errors on one path", run: |context| Box::pin(send_errors(context)) },
    Case { code: "PATH-9", what: "a fifth of the packets out of order", run: |context| Box::pin(reordered(context)) },
    Case { code: "PATH-10", what: "answers to unproved addresses", run: |context| Box::pin(amplification(context)) },
    Case { code: "PATH-11", what: "a relay with several addresses", run: |context| Box::pin(wildcard(context)) },
];

/// An even stream that either network of the standard bed carries both ways: 2 Mbit/s.
const STREAM: u64 = 250_000;

/// The standard bed with Wi-Fi alone.
fn wifi_alone(seed: u64) -> Plan {
    let mut plan = Plan::standard(seed);
    plan.lines.truncate(1);
    plan
}

/// PATH-1
async fn narrow(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for (name, plan, mode) in [
        ("one network", wifi_alone(context.seed), "single"),
        ("bicast, on both networks", Plan::standard(context.seed), "bicast"),
    ] {
        let stand = context.start_up(plan, &["--mode", mode]).await?;
        context.say(&format!("{name}: plain TCP, then the product"));
        let measured = context.time(Duration::from_secs(10), Duration::from_secs(5));
        let plain = context.plain_rate(&stand, WIFI, measured).await?;
        let (bulk, going) = stand.begin_bulk().await?;
        sleep(Duration::from_secs(4)).await;
        for network in 0..if mode == "single" { 1 } else { 2 } {
            stand.bed.network(network).change_links(|link| link.mtu = Some(1_300));
        }
        let narrowed = Instant::now();
        // What was under way before may still arrive; the gap counts from then.
        sleep(Duration::from_secs(6)).await;
        checks.push(Check::within(
            format!("{name}: longest gap"),
            gap_since(&bulk.trace(), narrowed),
            Duration::from_secs(3),
        ));
        let from = bulk.trace().started().elapsed();
        sleep(measured).await;
        let rate = bulk.trace().rate_between(from, from + measured);
        checks.push(Check::figure(format!("{name}: plain TCP before"), plain, "Mbit/s"));
        checks.push(Check::at_least(format!("{name}: afterwards, of that"), rate / plain, 0.85, ""));
        let (up, trace) = {
            let tcp = stand.client.connect().await?;
            let up = stream_up(tcp, 1, STREAM, Duration::from_secs(3)).await;
            (up, stand.origin.upload(1))
        };
        let gap = trace.map_or(PATIENCE, |trace| trace.longest_gap().0);
        checks.push(Check::holds(format!("{name}: an upload arrives"), up.is_ok()));
        checks.push(Check::within(format!("{name}: its longest gap"), gap, Duration::from_secs(3)));
        checks.push(Check::holds(format!("{name}: the flow lives"), !going.has_ended()));
    }
    Ok(checks)
}

/// PATH-2
async fn two_widths(context: Context) -> Result<Vec<Check>> {
    let mut plan = Plan::standard(context.seed);
    plan.lines[CELL].up.mtu = Some(1_380);
    plan.lines[CELL].down.mtu = Some(1_380);
    let stand = context.start_up(plan, &["--mode", "bicast"]).await?;
    let mut checks = Vec::new();
    sleep(Duration::from_secs(2)).await;
    let ends = [(WIFI, Direction::Up), (WIFI, Direction::Down), (CELL, Direction::Up), (CELL, Direction::Down)];
    let count = || ends.map(|(network, direction)| stand.bed.network(network).counters(direction));
    let before = count();
    let time = context.time(Duration::from_secs(15), Duration::from_secs(6));
    let (_down, going) = stand.begin_stream(STREAM, time).await?;
    stream_up(stand.client.connect().await?, 1, STREAM, time).await?;
    going.end().await?;
    sleep(Duration::from_millis(300)).await;
    for (((network, direction), before), after) in ends.into_iter().zip(before).zip(count()) {
        let (offered, arrived) = (after.offered - before.offered, after.delivered - before.delivered);
        let name = format!("{} {direction:?}", stand.bed.interface(network)).to_lowercase();
        checks.push(Check::at_least(
            format!("{name}: share of packets that arrive"),
            arrived as f64 / offered as f64,
            0.95,
            "",
        ));
        checks.push(Check::at_least(format!("{name}: packets"), offered as f64, 200.0, ""));
    }
    for network in [WIFI, CELL] {
        let (stream, _going) = stand.begin_stream(STREAM, Duration::from_secs(4)).await?;
        sleep(Duration::from_secs(1)).await;
        let lost = Instant::now();
        stand.bed.network(network).silence();
        sleep(Duration::from_secs(2)).await;
        let gap = gap_since(&stream.trace(), lost);
        checks.push(Check::within(
            format!("{} lost: gap", stand.bed.interface(network)),
            gap,
            Duration::from_millis(100),
        ));
        stand.bed.network(network).revive();
        stand.client.paths_up(2).await?;
    }
    Ok(checks)
}

/// PATH-3
async fn rebinding(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for mode in ["single", "bicast"] {
        let mut plan = Plan::standard(context.seed);
        for line in &mut plan.lines {
            line.behaviour.rebind_every = Some(Duration::from_secs(5));
        }
        let stand = context.start_up(plan, &["--mode", mode]).await?;
        context.say(mode);
        let (bulk, going) = stand.begin_bulk().await?;
        sleep(Duration::from_secs(4)).await;
        let (memory, descriptors) = (stand.relay.process().memory(), stand.relay.process().descriptors());
        sleep(context.time(Duration::from_secs(60), Duration::from_secs(16))).await;
        let trace = bulk.trace();
        checks.push(Check::within(format!("{mode}: longest gap"), trace.longest_gap().0, Duration::from_secs(1)));
        checks.push(Check::holds(format!("{mode}: the download goes on"), !going.has_ended()));
        checks.push(Check::figure(format!("{mode}: its rate"), trace.rate(), "Mbit/s"));
        checks.push(Check::at_least(
            format!("{mode}: rebindings"),
            stand.bed.network(WIFI).rebindings() as f64,
            3.0,
            "",
        ));
        let grown = stand.relay.process().memory() as f64 - memory as f64;
        checks.push(Check::at_most(format!("{mode}: growth of the relay's memory"), grown / 1e6, 8.0, "MB"));
        let opened = stand.relay.process().descriptors() as f64 - descriptors as f64;
        checks.push(Check::at_most(format!("{mode}: growth of its descriptors"), opened, 0.0, ""));
    }
    Ok(checks)
}

/// PATH-4
async fn idle(context: Context) -> Result<Vec<Check>> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut plan = Plan::standard(context.seed);
    for line in &mut plan.lines {
        line.behaviour.udp_timeout = Some(Duration::from_secs(30));
    }
    let stand = context.start_up(plan, &["--mode", "bicast"]).await?;
    let time = context.time(Duration::from_secs(600), Duration::from_secs(75));
    context.say(&format!("idle for {time:?}"));
    let mut tcp = stand.client.connect().await?;
    tcp.write_all(&[&b"W"[..], &(time.as_millis() as u64).to_be_bytes()].concat()).await?;
    sleep(Duration::from_secs(5)).await;
    let counted = Instant::now();
    let bytes = |network: usize| {
        let counters = [Direction::Up, Direction::Down].map(|direction| stand.bed.network(network).counters(direction));
        counters.iter().map(|counters| counters.offered_bytes + 28 * counters.offered).sum::<u64>()
    };
    let before = [bytes(WIFI), bytes(CELL)];
    let mut line = [0; LINE.len()];
    let asked = counted - Duration::from_secs(5);
    timeout(time + PATIENCE, tcp.read_exact(&mut line)).await.context("the line does not come")??;
    let late = asked.elapsed().saturating_sub(time);
    let mut checks = vec![Check::within("the far side's line arrives after", late, Duration::from_secs(1))];
    for network in [WIFI, CELL] {
        let per_minute = (bytes(network) - before[network]) as f64 / counted.elapsed().as_secs_f64() * 60.0;
        let what = format!("{}: idle traffic, both ways", stand.bed.interface(network));
        checks.push(Check::at_most(what, per_minute / 1e3, 15.0, "kB/min"));
    }
    checks.push(Check::holds("the line is right", line == LINE));
    checks.push(Check::at_least("paths up at the end", stand.client.snapshot().await?.paths_up() as f64, 2.0, ""));
    Ok(checks)
}

/// PATH-5
async fn all_dead(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for mode in ["single", "bicast"] {
        let stand = context.start_up(Plan::standard(context.seed), &["--mode", mode]).await?;
        let (stream, going) = stand.begin_stream(STREAM, Duration::from_secs(120)).await?;
        let mut echo = stand.echo().await?;
        sleep(Duration::from_secs(2)).await;
        context.say(&format!("{mode}: both dead for 20 s"));
        for network in [WIFI, CELL] {
            stand.bed.network(network).silence();
        }
        sleep(Duration::from_secs(20)).await;
        for network in [WIFI, CELL] {
            stand.bed.network(network).revive();
        }
        let limit = Duration::from_secs(30);
        let (moved, answered) = tokio::join!(next_byte(&stream, limit), timeout(limit, echo.ping()));
        checks.push(Check::within(format!("{mode}: the stream moves after"), moved, Duration::from_secs(3)));
        let answered = answered.ok().and_then(Result::ok).unwrap_or(limit);
        checks.push(Check::within(format!("{mode}: a new line is answered after"), answered, Duration::from_secs(3)));
        sleep(Duration::from_secs(1)).await;
        checks.push(Check::holds(format!("{mode}: flows live"), !going.has_ended() && stream.trace().is_intact()));
    }
    Ok(checks)
}

/// PATH-6
async fn ecn(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let measured = context.time(Duration::from_secs(10), Duration::from_secs(6));
    let stand = context.start_up(wifi_alone(context.seed), &["--mode", "single"]).await?;
    let mut reference = 0.0;
    for (name, ecn) in [
        ("untouched", Ecn::Keep),
        ("cleared", Ecn::Set(0)),
        ("set to ECT(0)", Ecn::Set(2)),
        ("set to ECT(1)", Ecn::Set(1)),
        ("set to CE", Ecn::Set(3)),
    ] {
        context.say(name);
        stand.bed.network(WIFI).change(|behaviour| (behaviour.ecn_up, behaviour.ecn_down) = (ecn, ecn));
        let rate = context.product_rate(&stand, measured).await?;
        if ecn == Ecn::Keep {
            reference = rate;
            checks.push(Check::figure("bits untouched", rate, "Mbit/s"));
        } else {
            checks.push(Check::at_least(format!("bits {name}, of that"), rate / reference, 0.95, ""));
        }
    }
    Ok(checks)
}

/// PATH-8
async fn send_errors(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let stand = context.start_up(Plan::standard(context.seed), &["--mode", "bicast"]).await?;
    // What the kernel then answers to a send: unreachable, not permitted, invalid.
    for kind in ["unreachable", "prohibit", "blackhole"] {
        context.say(kind);
        let (stream, going) = stand.begin_stream(STREAM, Duration::from_secs(6)).await?;
        sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        stand.bed.client().ip(&format!(
            "route add {kind} {RELAY} table 77\n\
             rule add from 192.168.1.2 lookup 77 priority 10"
        ))?;
        sleep(Duration::from_secs(3)).await;
        let gap = gap_since(&stream.trace(), began);
        checks.push(Check::within(format!("{kind}: longest gap"), gap, Duration::from_millis(100)));
        stand.bed.client().ip(&format!(
            "rule del from 192.168.1.2 lookup 77 priority 10\n\
             route del {kind} {RELAY} table 77"
        ))?;
        let up = stand.client.wait_for("Wi-Fi", Duration::from_secs(30), |now| now.is_up("wifi0")).await;
        checks.push(Check::within(
            format!("{kind}: tried again after"),
            up.unwrap_or(PATIENCE),
            Duration::from_secs(10),
        ));
        checks.push(Check::holds(format!("{kind}: the flow lives"), going.end().await.is_ok()));
    }
    Ok(checks)
}

/// PATH-9
async fn reordered(context: Context) -> Result<Vec<Check>> {
    let line = |seed| {
        let (rate, rtt) = (Some(Bitrate::from_mbit(50)), Duration::from_millis(40));
        LinkConfig { rate, delay: rtt / 2, seed, ..LinkConfig::default() }.with_queue_bdp(1.0, rtt)
    };
    let plan = Plan { lines: vec![Line::wifi(line(context.seed * 2), line(context.seed * 2 + 1))], logs: None };
    let stand = context.start_up(plan, &["--mode", "single"]).await?;
    let measured = context.time(Duration::from_secs(10), Duration::from_secs(6));
    context.say("in order");
    let ordered = context.product_rate(&stand, measured).await?;
    context.say("out of order");
    let reorder = Reorder { share: 0.2, least: Duration::from_millis(3), most: Duration::from_millis(8) };
    stand.bed.network(WIFI).change_links(|link| link.reorder = reorder);
    let mixed = context.product_rate(&stand, measured).await?;
    Ok(vec![
        Check::figure("in order", ordered, "Mbit/s"),
        Check::at_least("out of order, of that", mixed / ordered, 0.7, ""),
    ])
}

/// PATH-10
async fn amplification(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    // The client that never hears an answer never proves its address.
    let mut plan = wifi_alone(context.seed);
    plan.logs = Some(context.logs.join(context.code));
    let bed = Bed::build(&plan)?;
    let relay = Relay::start_plain(&bed, &context.programs)?;
    bed.network(WIFI).cut(Direction::Down);
    let client = Client::start(&bed, &context.programs, &relay, &["--mode", "single"])?;
    sleep(Duration::from_secs(8)).await;
    let up = bed.network(WIFI).counters(Direction::Up);
    let down = bed.network(WIFI).counters(Direction::Down);
    checks.push(Check::at_least("bytes from an unproved address", up.delivered_bytes as f64, 1_200.0, ""));
    let ratio = down.offered_bytes as f64 / up.delivered_bytes as f64;
    checks.push(Check::at_most("bytes answered for each", ratio, 3.0, ""));
    drop(client);
    bed.network(WIFI).restore(Direction::Down);
    sleep(Duration::from_millis(500)).await;
    let before = bed.network(WIFI).counters(Direction::Down).offered;
    // Long headers of QUIC version 1, too short for an Initial, as they are and as somebody's first guess would be.
    let socket = bed.client().enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
    for length in [40, 300, 1_199] {
        let mut initial = vec![0xc0, 0, 0, 0, 1, 8, 1, 2, 3, 4, 5, 6, 7, 8, 8, 8, 7, 6, 5, 4, 3, 2, 1, 0];
        initial.resize(length, 0x55);
        socket.send_to(&initial, (RELAY, 4_433))?;
    }
    sleep(Duration::from_millis(500)).await;
    let answers = bed.network(WIFI).counters(Direction::Down).offered - before;
    checks.push(Check::at_most("answers to short Initials", answers as f64, 0.0, ""));
    Ok(checks)
}

/// PATH-11
async fn wildcard(context: Context) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    let mut plan = Plan::standard(context.seed);
    plan.logs = Some(context.logs.join(context.code));
    let bed = Bed::build(&plan)?;
    let _origin = Origin::start(&bed)?;
    // The networks' NATs let answers in from the address that was sent to, and from no other.
    let relay = Relay::start(&bed, &context.programs, &[&format!("{RELAY_SECOND}:4433")])?;
    let client = Client::start(&bed, &context.programs, &relay, &["--mode", "bicast"])?;
    let up = client.paths_up(2).await;
    checks.push(Check::holds("both paths are up to the relay's second address", up.is_ok()));
    let fetched = match client.connect().await {
        Ok(tcp) => download(tcp, 500_000, &Watched::new()).await.is_ok(),
        Err(_) => false,
    };
    checks.push(Check::holds("a download arrives", fetched));
    Ok(checks)
}
