//! `tandem demo`: what bicasting does, shown on one machine in half a minute.
//!
//! An origin (an HTTP server that never stops sending), a relay and a client run in this process; two emulated networks
//! lie between client and relay. Every run starts a client anew, downloads through its SOCKS5 proxy for a few seconds and
//! is measured where an application would: at the proxy's local side. Nothing is simulated but the networks: the sockets
//! are the kernel's, the client and the relay those that `tandem run` and `tandem-relay serve` start.
//!
//! Progress goes to standard error, the result to standard output: a table and a chart, or one JSON object.

mod bed;
mod download;
mod measure;
mod origin;
mod progress;
mod report;

use std::time::Duration;

use anyhow::{Context as _, bail};
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::Mode;

use self::bed::Bed;
use self::measure::{Measured, measure};
use self::progress::Progress;
use crate::args::{DemoOptions, Scheme};
use crate::shutdown::Signals;
use tandem_core::print::print;

/// What is run unless told otherwise.
const SCHEMES: [Scheme; 2] = [Scheme::Unicast, Scheme::Bidirectional];
const CONTROLLERS: [Algorithm; 2] = [Algorithm::Cubic, Algorithm::Bbr3];

/// One run of the demo.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Plan {
    congestion: Algorithm,
    mode: Mode,
    /// Datagrams that each network loses by chance, in percent.
    loss_percent: f64,
    /// How long the download runs.
    time: Duration,
}

pub(crate) async fn run(options: DemoOptions) -> anyhow::Result<()> {
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let mut signals = Signals::new().context("signals cannot be awaited")?;
    let results = tokio::select! {
        results = run_all(&options) => results?,
        () = signals.next() => bail!("the demo was stopped before its end"),
    };
    let text = if options.json { report::json(&results)? } else { report::text(&results) };
    Ok(print(&text)?)
}

async fn run_all(options: &DemoOptions) -> anyhow::Result<Vec<(Plan, Measured)>> {
    let plans = plans(options);
    let progress = Progress::new(plans.len());
    progress.say(&report::introduction(options.loss, options.seconds));
    let bed = Bed::start().await.context("the demo cannot be set up")?;
    let mut results = Vec::new();
    for plan in plans {
        let run = progress.begin(&plan);
        let measured = measure(&bed, &plan, |elapsed, mbps| run.show(elapsed, mbps)).await;
        let measured = measured.with_context(|| format!("{} with {} failed", plan.mode.scheme(), plan.congestion))?;
        run.end(measured.goodput_mbps);
        results.push((plan, measured));
    }
    bed.stop().await;
    Ok(results)
}

fn plans(options: &DemoOptions) -> Vec<Plan> {
    let schemes = if options.schemes.is_empty() { &SCHEMES[..] } else { &options.schemes };
    let controllers = if options.controllers.is_empty() { &CONTROLLERS[..] } else { &options.controllers };
    let plan = |congestion, scheme| Plan {
        congestion,
        mode: Mode::from(scheme),
        loss_percent: options.loss,
        time: Duration::from_secs(options.seconds),
    };
    let of_controller = |congestion: &Algorithm| schemes.iter().map(|scheme| plan(*congestion, *scheme)).collect();
    controllers.iter().flat_map(|congestion: &Algorithm| -> Vec<Plan> { of_controller(congestion) }).collect()
}
