//! SLEEP: a client that does not run for a while, and clocks that jump.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};

use super::stand::{PATIENCE, Stand, gap_since};
use super::{Case, Check, Context};
use crate::namespaces::{Bed, CELL, Client, Origin, Plan, RELAY, Relay, WIFI};

pub(super) const CASES: &[Case] = &[
    Case { code: "SLEEP-1", what: "a sleep of minutes", run: |context| Box::pin(asleep(context)) },
    Case { code: "SLEEP-2", what: "the wall clock jumps by a day", run: |context| Box::pin(clock_jumps(context)) },
];

/// The library that makes a program see another wall clock, where Debian and its like put it. (Time namespaces shift the
/// monotonic clock alone.)
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// By how much clocks jump, as the library wants it.
const JUMPS: [(&str, &str); 2] = [("forward", "+86400"), ("back", "-86400")];

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

/// SLEEP-2: on the client, then on the relay. Their monotonic clocks are left alone, as a change of the date leaves them.
async fn clock_jumps(context: Context) -> Result<Vec<Check>> {
    ensure!(Path::new(FAKETIME).exists(), "this needs libfaketime ({FAKETIME}): apt install faketime");
    let mut checks = Vec::new();
    for side in ["client", "relay"] {
        let clock = TempDir::new()?;
        let file = clock.path().join("offset");
        fs::write(&file, "+0")?;
        let environment = [
            ("LD_PRELOAD", FAKETIME.to_owned()),
            ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ];
        let plan = Plan { logs: Some(context.logs.join(context.code)), ..Plan::standard(context.seed) };
        let bed = Bed::build(&plan)?;
        let origin = Origin::start(&bed)?;
        let none: &[(&str, String)] = &[];
        let (client, relay) = if side == "client" { (&environment[..], none) } else { (none, &environment[..]) };
        let relay = Relay::start_with(&bed, &context.programs, &[&format!("{RELAY}:4433")], relay)?;
        let client = Client::start_with(&bed, &context.programs, &relay, &["--mode", "bicast"], client)?;
        let stand = Stand { client, relay, origin, bed };
        stand.client.paths_up(2).await?;
        for (name, offset) in JUMPS {
            context.say(&format!("{side}: the clock jumps {name}"));
            let (stream, going) = stand.begin_stream(250_000, Duration::from_secs(4)).await?;
            sleep(Duration::from_secs(1)).await;
            let jumped = Instant::now();
            fs::write(&file, offset)?;
            sleep(Duration::from_secs(2)).await;
            let gap = gap_since(&stream.trace(), jumped);
            checks.push(Check::within(format!("{side}, {name}: longest gap"), gap, Duration::from_millis(100)));
            checks.push(Check::holds(format!("{side}, {name}: the flow lives"), going.end().await.is_ok()));
            let new = timeout(PATIENCE, stand.fetch(1_000)).await.ok().and_then(Result::ok).unwrap_or(PATIENCE);
            checks.push(Check::within(format!("{side}, {name}: a new flow"), new, Duration::from_secs(1)));
            let paths = stand.client.snapshot().await?.paths_up();
            checks.push(Check::at_least(format!("{side}, {name}: paths up"), paths as f64, 2.0, ""));
        }
        let process = if side == "client" { stand.client.process() } else { stand.relay.process() };
        let maps = fs::read_to_string(format!("/proc/{}/maps", process.id()))?;
        checks.push(Check::holds(format!("{side}: the program has the false clock"), maps.contains("libfaketime")));
    }
    Ok(checks)
}
