//! Snapshots in words and tables for people.

use std::fmt::Write as _;

use anyhow::Context as _;
use tandem_proto::networks::{CapState, DataSize};
use tandem_proto::path::order::PathRole;
use tandem_proto::stats::{
    DirectionStats, NetworkStats, PathState, PathStats, RelayState, RelayStats, SessionState, Snapshot,
};

use crate::args::Output;
use tandem_core::print::print;

/// Prints a snapshot as JSON or as `text` words it.
pub(crate) fn show(
    snapshot: Option<Snapshot>,
    output: Output,
    text: impl Fn(&Snapshot) -> String,
) -> anyhow::Result<()> {
    let snapshot = snapshot.context("the client sent no snapshot: it is of another version")?;
    let text = if output.json { serde_json::to_string_pretty(&snapshot)? + "\n" } else { text(&snapshot) };
    Ok(print(&text)?)
}

/// The session in a few lines, then its paths.
pub(crate) fn status(snapshot: &Snapshot) -> String {
    let state = match snapshot.state {
        SessionState::Connected => format!("connected to {} for {}", snapshot.relay, duration(snapshot.uptime_s)),
        SessionState::Connecting => format!("connecting to {}", snapshot.relay),
        SessionState::Stopped => "stopped".to_owned(),
    };
    let mut text = format!("{state}\n");
    if let Some(problem) = &snapshot.problem {
        let _ = writeln!(text, "problem: {problem}");
    }
    let _ = writeln!(text, "mode {}, congestion control {}", snapshot.mode, snapshot.congestion);
    if snapshot.state == SessionState::Connected {
        for (name, direction) in [("download", &snapshot.down), ("upload", &snapshot.up)] {
            let DirectionStats { goodput_mbps, flow_bytes, effective_loss_percent, .. } = direction;
            let bytes = bytes(*flow_bytes);
            let _ =
                writeln!(text, "{name} {goodput_mbps:.1} Mbit/s, {bytes} so far, loss {effective_loss_percent:.2} %");
        }
        let _ = writeln!(text, "round trip {:.1} ms", snapshot.srtt_ms);
    }
    if snapshot.relays.len() > 1 {
        let _ = write!(text, "\n{}\n", relays(snapshot));
    }
    let _ = writeln!(text, "connections {} open, {} so far", snapshot.flows_open, snapshot.flows_total);
    if !snapshot.paths.is_empty() || snapshot.networks.iter().any(|network| restraint(network).is_some()) {
        let _ = write!(text, "\n{}", paths(snapshot));
    }
    text
}

/// The relays as a table.
fn relays(snapshot: &Snapshot) -> String {
    let mut rows = vec![row(["RELAY", "STATE", "RTT ms", "ADDRESSES"])];
    for relay in &snapshot.relays {
        let state = match relay.state {
            RelayState::Used => "used",
            RelayState::Leaving => "going away",
            RelayState::Known => "known",
            RelayState::Refused => "refuses this client",
        };
        rows.push(vec![
            if relay.preferred { format!("{}*", relay.name) } else { relay.name.clone() },
            state.to_owned(),
            relay.rtt_ms.map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.1}")),
            relay.addresses.clone(),
        ]);
    }
    let mut text = table(&rows);
    for RelayStats { name, problem, .. } in &snapshot.relays {
        if let Some(problem) = problem {
            let _ = writeln!(text, "{name}: {problem}");
        }
    }
    text
}

/// The paths as a table.
pub(crate) fn paths(snapshot: &Snapshot) -> String {
    let mut rows = vec![row([
        "PATH",
        "NETWORK",
        "ROLE",
        "STATE",
        "RTT ms",
        "JITTER ms",
        "UP Mbit/s",
        "LOSS %",
        "DOWN Mbit/s",
        "LOSS %",
        "LOCAL",
        "REMOTE",
    ])];
    for path in &snapshot.paths {
        let number = if path.preferred { format!("{}*", path.id) } else { path.id.to_string() };
        rows.push(vec![
            number,
            path.interface.clone(),
            role_word(path.role).to_owned(),
            state_word(path.state).to_owned(),
            path.srtt_ms.map_or_else(|| "-".to_owned(), |rtt| format!("{rtt:.1}")),
            format!("{:.1}", path.jitter_ms),
            format!("{:.1}", path.up.rate_mbps),
            format!("{:.2}", path.up.loss_percent),
            format!("{:.1}", path.down.rate_mbps),
            format!("{:.2}", path.down.loss_percent),
            path.local.clone(),
            path.remote.clone(),
        ]);
    }
    let mut text = table(&rows);
    for PathStats { interface, problem, .. } in &snapshot.paths {
        if let Some(problem) = problem {
            let _ = writeln!(text, "{interface}: {problem}");
        }
    }
    for network in &snapshot.networks {
        if let Some(line) = restraint(network) {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

/// What every network is for, what it has carried and what it may.
pub(crate) fn networks(snapshot: &Snapshot) -> String {
    let mut rows =
        vec![row(["NETWORK", "ROLE", "METERED", "TODAY", "OF", "THIS MONTH", "OF", "MONTH FROM", "SLOWED FROM"])];
    for network in &snapshot.networks {
        let cap = |cap: Option<u64>| cap.map_or_else(|| "-".to_owned(), |bytes| DataSize { bytes }.to_string());
        rows.push(vec![
            network.name.clone(),
            network.role.to_string(),
            if network.metered { "yes" } else { "no" }.to_owned(),
            bytes(network.used_today_bytes),
            cap(network.cap_daily_bytes),
            bytes(network.used_month_bytes),
            cap(network.cap_monthly_bytes),
            format!("day {}", network.reset_day),
            format!("{} %", network.soft_percent),
        ]);
    }
    let mut text = table(&rows);
    for network in &snapshot.networks {
        if let Some(line) = restraint(network) {
            let _ = writeln!(text, "{line}");
        } else if !network.present {
            let _ = writeln!(text, "{}: not there now", network.name);
        }
    }
    text
}

/// Why a network is not used as fast as it can, if it is so.
pub(crate) fn restraint(network: &NetworkStats) -> Option<String> {
    match (&network.problem, network.cap, network.limit_mbps) {
        (Some(problem), ..) => Some(format!("{}: {problem}", network.name)),
        (None, CapState::Near, Some(limit)) => {
            Some(format!("{}: near its cap, slowed to {limit:.1} Mbit/s each way", network.name))
        }
        _ => None,
    }
}

/// The counters of both directions and of every path.
pub(crate) fn stats(snapshot: &Snapshot) -> String {
    let mut rows = vec![row(["", "APPLICATION", "DATAGRAMS", "COPIES", "SKIPPED", "ON ALL LINKS", "LOSS %"])];
    for (name, direction) in [("upload", &snapshot.up), ("download", &snapshot.down)] {
        rows.push(vec![
            name.to_owned(),
            bytes(direction.flow_bytes),
            direction.datagrams.to_string(),
            direction.copies.to_string(),
            direction.copies_skipped.to_string(),
            bytes(direction.link_bytes),
            format!("{:.3}", direction.effective_loss_percent),
        ]);
    }
    let mut text = table(&rows);
    let mut rows =
        vec![row(["PATH", "NETWORK", "DIRECTION", "DATAGRAMS", "BYTES", "LOSS %", "QUEUE ms", "SEND ERRORS", "MTU"])];
    for path in &snapshot.paths {
        for (name, direction) in [("up", &path.up), ("down", &path.down)] {
            rows.push(vec![
                path.id.to_string(),
                path.interface.clone(),
                name.to_owned(),
                direction.datagrams.to_string(),
                bytes(direction.bytes),
                format!("{:.3}", direction.total_loss_percent),
                format!("{:.1}", direction.queue_ms),
                direction.send_errors.to_string(),
                path.mtu_bytes.to_string(),
            ]);
        }
    }
    if rows.len() > 1 {
        let _ = write!(text, "\n{}", table(&rows));
    }
    let window = bytes(snapshot.cwnd_bytes);
    let _ = writeln!(text, "\nround trip {:.1} ms, congestion window (upload) {window}", snapshot.srtt_ms);
    text
}

/// What a path is for, in a word.
pub(crate) fn role_word(role: PathRole) -> &'static str {
    match role {
        PathRole::Use => "use",
        PathRole::Backup => "backup",
        PathRole::Gone => "gone",
    }
}

/// A path's state in a word.
pub(crate) fn state_word(state: PathState) -> &'static str {
    match state {
        PathState::Up => "up",
        PathState::Joining => "joining",
        PathState::Down => "down",
    }
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Columns as wide as their widest cell, two spaces between.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Bytes in the unit in which they have one to three digits before the point.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut amount = count as f64 / 1000.0;
    let mut unit = 0;
    while amount >= 999.95 && unit + 1 < UNITS.len() {
        amount /= 1000.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// A time in the two units that say enough.
pub(crate) fn duration(seconds: f64) -> String {
    let seconds = seconds.max(0.0) as u64;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use tandem_proto::mode::{Mode, Sides};
    use tandem_proto::networks::NetworkRole;

    use super::*;

    fn snapshot() -> Snapshot {
        let mut snapshot = Snapshot {
            state: SessionState::Connected,
            relay: "relay.example.org:4433".to_owned(),
            mode: Mode::Bicast(Sides::Both),
            congestion: "cubic".to_owned(),
            uptime_s: 3725.0,
            srtt_ms: 21.04,
            ..Snapshot::default()
        };
        snapshot.down.goodput_mbps = 88.25;
        snapshot.down.flow_bytes = 1_234_567_890;
        for (id, interface) in ["wlan0", "wwan0"].into_iter().enumerate() {
            let path = PathStats { id: id as u8, interface: interface.to_owned(), ..PathStats::default() };
            snapshot.paths.push(path);
        }
        snapshot.paths[0].preferred = true;
        snapshot.paths[0].state = PathState::Up;
        snapshot.paths[1].problem = Some("network unreachable".to_owned());
        snapshot
    }

    #[test]
    fn a_status_tells_state_mode_rates_and_paths() {
        let text = status(&snapshot());
        assert!(text.starts_with("connected to relay.example.org:4433 for 1 h 2 min\nmode bicast both"), "{text}");
        assert!(text.contains("download 88.2 Mbit/s, 1.2 GB so far"), "{text}");
        assert!(text.contains("\n0*    wlan0    use   up "), "{text}");
        assert!(text.ends_with("wwan0: network unreachable\n"), "{text}");
    }

    #[test]
    fn networks_tell_what_they_are_for_and_what_they_may_carry() {
        let network = |name: &str, cap, problem: Option<&str>| NetworkStats {
            name: name.to_owned(),
            present: true,
            role: NetworkRole::Backup,
            used_today_bytes: 120_000_000,
            used_month_bytes: 1_260_000_000,
            cap_daily_bytes: Some(500_000_000),
            reset_day: 15,
            soft_percent: 80,
            cap,
            limit_mbps: (cap == CapState::Near).then_some(1.0),
            problem: problem.map(str::to_owned),
            ..NetworkStats::default()
        };
        let capped = network("wwan0", CapState::Reached, Some("its cap of 500 MB a day is reached"));
        let snapshot = Snapshot { networks: vec![capped, network("wwan1", CapState::Near, None)], ..snapshot() };
        let text = networks(&snapshot);
        assert!(text.contains("wwan0    backup  no       120.0 MB  500 MB  1.3 GB"), "{text}");
        for shown in [text, status(&snapshot)] {
            let lines =
                "wwan0: its cap of 500 MB a day is reached\nwwan1: near its cap, slowed to 1.0 Mbit/s each way\n";
            assert!(shown.ends_with(lines), "{shown}");
        }
    }

    #[test]
    fn a_client_that_cannot_connect_says_why() {
        let problem = Some("the relay cannot be reached: timed out".to_owned());
        let snapshot = Snapshot { state: SessionState::Connecting, problem, ..snapshot() };
        let text = status(&snapshot);
        assert!(text.contains("\nproblem: the relay cannot be reached: timed out\n"), "{text}");
        assert!(!text.contains("Mbit/s,"), "{text}");
    }

    #[test]
    fn columns_line_up() {
        for text in [paths(&snapshot()), stats(&snapshot())] {
            let mut lines = text.lines();
            let place = lines.next().and_then(|head| head.find("DATAGRAMS").or(head.find("NETWORK"))).unwrap();
            let second = lines.next().unwrap();
            assert!(second[..place].ends_with("  ") && !second[place..].starts_with(' '), "{text}");
        }
    }

    #[test]
    fn amounts_have_the_unit_that_fits() {
        let texts = [0, 999, 1000, 999_949, 999_950, 1_500_000_000].map(bytes);
        assert_eq!(texts, ["0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB", "1.5 GB"]);
        let texts = [0.4, 61.0, 3725.0, 90_000.0].map(duration);
        assert_eq!(texts, ["0 s", "1 min 1 s", "1 h 2 min", "1 d 1 h"]);
    }
}
