//! `tandem run`: an engine, its control socket, and a stop that drains.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use tandem_core::client::control::ControlServer;
use tandem_core::client::{Engine, EngineConfig, default_addresses};
use tandem_core::config::Config;
use tandem_core::platform::System;
use tandem_proto::stats::{SessionState, Snapshot};

use crate::args::RunOptions;
use crate::link::Paired;
use crate::shutdown::Signals;
use tandem_core::print::say;

pub(crate) async fn run(options: RunOptions, control: &Path) -> anyhow::Result<()> {
    // Each flow takes a descriptor, and the usual soft limit is low; the hard one is what the machine allows.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let mut signals = Signals::new().context("signals cannot be awaited")?;
    let config = engine_config(options)?;
    let server = ControlServer::bind(control).await?;
    let engine = Engine::start(config, Arc::new(System)).await?;
    let handle = engine.handle();
    let control = tokio::spawn(server.serve(handle.clone()));
    if let Some(address) = engine.proxy_address() {
        say(&format!("SOCKS5 proxy on {address}"));
        say(&format!("HTTP proxy on {address}"));
    }

    let mut snapshots = handle.subscribe();
    let mut told = None;
    let refusal = loop {
        tokio::select! {
            () = signals.next() => break None,
            () = handle.stop_requested() => break None,
            _ = snapshots.changed() => {
                let snapshot = snapshots.borrow_and_update();
                if snapshot.state == SessionState::Stopped && snapshot.problem.is_some() {
                    break snapshot.problem.clone();
                }
                let now = (snapshot.state, snapshot.relay.clone());
                if told.as_ref() != Some(&now) {
                    announce(&snapshot);
                    told = Some(now);
                }
            }
        }
    };
    tokio::select! {
        () = engine.stop() => {}
        () = signals.next() => bail!("stopped before the open connections were done"),
    }
    control.abort();
    match refusal {
        Some(problem) => bail!(problem),
        None => Ok(()),
    }
}

fn announce(snapshot: &Snapshot) {
    match snapshot.state {
        SessionState::Connected => {
            let interfaces: Vec<_> = snapshot.paths.iter().map(|path| path.interface.as_str()).collect();
            say(&format!("connected to {} over {}; mode {}", snapshot.relay, interfaces.join(", "), snapshot.mode));
        }
        SessionState::Connecting => say(&format!("connecting to {}", snapshot.relay)),
        SessionState::Stopped => {}
    }
}

/// Flags before the configuration file before the defaults.
fn engine_config(options: RunOptions) -> anyhow::Result<EngineConfig> {
    let mode = options.mode();
    let setup = options.setup;
    let file = setup.config.as_deref().map(Config::load).transpose()?.unwrap_or_default();
    let Paired { pairings, keeper } = setup.links(&file)?;
    let mut config = EngineConfig::with_relays(&pairings);
    config.keeper = keeper;
    config.addresses = default_addresses();
    config.listen = Some(setup.listen(&file));
    config.credentials = file.credentials;
    config.forwards = file.forwards;
    config.forwards.extend(options.forwards);
    config.captive_check = file.captive_check.unwrap_or(true);
    config.networks = file.networks;
    config.state = setup.state();
    config.interfaces = setup.interfaces(file.interfaces);
    config.mode = mode.or(file.mode).unwrap_or_default();
    config.congestion = options.congestion.or(file.congestion).unwrap_or_default();
    Ok(config)
}
