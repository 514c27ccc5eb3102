//! `tandem run`: an engine, its control socket, and a stop that drains.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use tandem_core::client::EngineConfig;
use tandem_core::client::host::Host;
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
    let host = Host::start(config, Arc::new(System), control).await?;
    let handle = host.handle();
    if let Some(address) = host.proxy_address() {
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
        () = host.stop() => {}
        () = signals.next() => bail!("stopped before the open connections were done"),
    }
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
    let listen = setup.listen(&file);
    let mut config = EngineConfig::from_file(&pairings, file);
    config.keeper = keeper;
    config.listen = Some(listen);
    config.forwards.extend(options.forwards);
    config.state = setup.state();
    config.interfaces = setup.interfaces(config.interfaces);
    config.mode = mode.unwrap_or(config.mode);
    config.congestion = options.congestion.unwrap_or(config.congestion);
    Ok(config)
}
