//! MULTI-11: networks with data caps. What a network carried is counted at the wire, apart from the product.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use tandem_netem::Direction;
use tokio::time::{Instant, sleep};

use super::stand::{PATIENCE, next_byte};
use super::{Case, Check, Context};
use crate::namespaces::{Bed, CELL, Client, Plan, Snapshot, WIFI};

pub(super) const CASES: &[Case] =
    &[Case { code: "MULTI-11", what: "a network reaches its data cap", run: |context| Box::pin(caps(context)) }];

/// Headers of IP and UDP that the bed's counters leave out.
const HEADERS: f64 = 28.0;
/// A cap is to be kept to within this share, in percent.
const OFF_PERCENT: f64 = 1.0;
/// A network that is slowed takes its time.
const REACHED_WITHIN: Duration = Duration::from_secs(300);

/// IP packets that came to or from the client over a network, in MB.
fn carried(bed: &Bed, network: usize) -> f64 {
    let of = |direction| {
        let counters = bed.network(network).counters(direction);
        let bytes = counters.offered_bytes as f64 + HEADERS * counters.offered as f64;
        // What is dropped on the way down costs the client nothing.
        let arrived = match direction {
            Direction::Up => 1.0,
            Direction::Down => counters.delivered as f64 / (counters.offered as f64).max(1.0),
        };
        bytes * arrived
    };
    (of(Direction::Up) + of(Direction::Down)) / 1e6
}

fn number(snapshot: &Snapshot, network: &str, field: &str) -> f64 {
    let networks = snapshot.0["networks"].as_array();
    let found = networks.and_then(|networks| networks.iter().find(|one| one["name"] == network));
    found.and_then(|found| found[field].as_f64()).unwrap_or(f64::NAN)
}

fn is_reached(snapshot: &Snapshot, network: &str) -> bool {
    let networks = snapshot.0["networks"].as_array();
    networks.is_some_and(|networks| networks.iter().any(|one| one["name"] == network && one["cap"] == "reached"))
}

/// Writes a configuration for a client, and names it together with its own file of accounts.
fn configure(context: &Context, name: &str, networks: &str) -> Result<[PathBuf; 2]> {
    let folder = context.logs.join(context.code);
    fs::create_dir_all(&folder).context("making the case's folder")?;
    let [config, state] = ["toml", "json"].map(|kind| folder.join(format!("{name}.{kind}")));
    fs::write(&config, format!("version = 1\n{networks}")).context("writing the configuration")?;
    if state.exists() {
        fs::remove_file(&state).context("removing old accounts")?;
    }
    Ok([config, state])
}

/// MULTI-11
async fn caps(context: Context) -> Result<Vec<Check>> {
    let mut checks = in_bicast(&context).await?;
    checks.extend(over_crashes(&context).await?);
    Ok(checks)
}

async fn in_bicast(context: &Context) -> Result<Vec<Check>> {
    let cap = 30.0;
    let text = "[[network]]\nname = \"wifi0\"\ncap_daily = \"30 MB\"\nsoft_percent = 90\n";
    let [config, state] = configure(context, "bicast", text)?;
    let arguments =
        ["--mode", "bicast", "--config", &config.display().to_string(), "--state", &state.display().to_string()];
    let stand = context.start_up(Plan::standard(context.seed), &arguments).await?;
    context.say("bicast: a download until Wi-Fi has carried 30 MB");
    let (bulk, going) = stand.begin_bulk().await?;
    stand.client.wait_for("cap", REACHED_WITHIN, |now| is_reached(now, "wifi0")).await?;
    let gap = next_byte(&bulk, PATIENCE).await;
    sleep(Duration::from_secs(2)).await;
    let total = carried(&stand.bed, WIFI);
    let snapshot = stand.client.snapshot().await?;
    let mut checks = vec![Check::figure("bicast: the cap", cap, "MB"), Check::figure("bicast: carried", total, "MB")];
    checks.push(Check::at_most("bicast: off by", 100.0 * (total / cap - 1.0).abs(), OFF_PERCENT, "%"));
    let counted = number(&snapshot, "wifi0", "used_today_bytes") / 1e6;
    checks.push(Check::at_most(
        "bicast: counted by the client, off by",
        100.0 * (counted / total - 1.0).abs(),
        0.5,
        "%",
    ));
    checks.push(Check::holds("bicast: Wi-Fi has no path", snapshot.path("wifi0").is_none()));
    let said = snapshot.0["networks"].to_string().contains("its cap of 30 MB a day is reached");
    checks.push(Check::holds("bicast: the reason is shown", said));
    checks.push(Check::within("bicast: longest gap of the flow", gap, Duration::from_secs(1)));
    let before = carried(&stand.bed, CELL);
    sleep(Duration::from_secs(3)).await;
    checks.push(Check::at_least("bicast: cellular carries on", carried(&stand.bed, CELL) - before, 1.0, "MB"));
    checks.push(Check::holds("bicast: the flow lives", !going.has_ended() && bulk.trace().is_intact()));
    checks.push(Check::at_most("bicast: Wi-Fi carries on", carried(&stand.bed, WIFI) - total, 0.01, "MB"));
    Ok(checks)
}

/// The client is killed on its way to the cap, and stopped well later.
async fn over_crashes(context: &Context) -> Result<Vec<Check>> {
    let (cap, name) = if context.quick { (100.0, "100 MB") } else { (200.0, "200 MB") };
    let text = format!(
        "[[network]]\nname = \"wifi0\"\ncap_monthly = \"{name}\"\nsoft_percent = 99\n\n[[network]]\nname = \"cell0\"\nrole = \"never\"\n"
    );
    let [config, state] = configure(context, "crashes", &text)?;
    let (config, state) = (config.display().to_string(), state.display().to_string());
    let arguments = ["--mode", "single", "--config", &config, "--state", &state];
    let mut stand = context.start(Plan::standard(context.seed), &arguments)?;
    let mut checks = vec![Check::figure("crash: the cap", cap, "MB")];
    for (share, signal) in [(0.3, libc::SIGKILL), (0.6, libc::SIGTERM)] {
        stand.client.paths_up(1).await?;
        let (_bulk, going) = stand.begin_bulk().await?;
        let started = Instant::now();
        while carried(&stand.bed, WIFI) < share * cap && started.elapsed() < REACHED_WITHIN {
            sleep(Duration::from_millis(20)).await;
        }
        let word = if signal == libc::SIGKILL { "killed" } else { "stopped" };
        context.say(&format!("{word} after {:.1} MB", carried(&stand.bed, WIFI)));
        stand.client.process().signal(signal);
        stand.client.ended().await?;
        drop(going);
        // What was on its way to it still arrives.
        sleep(Duration::from_secs(1)).await;
        let real = carried(&stand.bed, WIFI);
        stand.client = Client::start(&stand.bed, &context.programs, &stand.relay, &arguments)?;
        let counted = number(&stand.client.snapshot().await?, "wifi0", "used_month_bytes") / 1e6;
        let off = 100.0 * (counted - real) / cap;
        checks.push(Check::figure(format!("{word}: counted too much"), off, "% of the cap"));
        checks.push(Check::at_most(format!("{word}: off by"), off.abs(), OFF_PERCENT, "% of the cap"));
    }
    stand.client.paths_up(1).await?;
    let (_bulk, _going) = stand.begin_bulk().await?;
    stand.client.wait_for("cap", REACHED_WITHIN, |now| is_reached(now, "wifi0")).await?;
    sleep(Duration::from_secs(3)).await;
    let total = carried(&stand.bed, WIFI);
    checks.push(Check::figure("crash: carried", total, "MB"));
    checks.push(Check::at_most("crash: off by", 100.0 * (total / cap - 1.0).abs(), OFF_PERCENT, "%"));
    let snapshot = stand.client.snapshot().await?;
    let said = snapshot.0["problem"].as_str().is_some_and(|problem| problem.contains("a month is reached"));
    checks.push(Check::holds("crash: with no network left, that is said", said));
    Ok(checks)
}
