//! `tandem measure`: how fast the networks are, and how fair the tunnel is to others on them.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use tandem_core::client::control::Told;
use tandem_core::print::print;
use tandem_proto::measure::{Event, FairnessReport, Kind, Load, Progress, SpeedReport};
use tandem_proto::mode::Mode;

use crate::args::MeasureOptions;
use crate::shutdown::Signals;

/// Has the running client measure, shows how far it is, and prints the result.
pub(crate) async fn run(control: &Path, kind: Kind, options: MeasureOptions) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("signals cannot be awaited")?;
    let mut told = Told::<Event>::of(control, kind, options.seconds).await?;
    let mut shown = Shown::default();
    loop {
        let event = tokio::select! {
            event = told.next() => event?,
            () = signals.next() => bail!("interrupted"),
        };
        let text = match event {
            Some(Event::Progress(progress)) => {
                shown.show(&progress);
                continue;
            }
            Some(Event::Speed(report)) if options.json => serde_json::to_string_pretty(&report)? + "\n",
            Some(Event::Fairness(report)) if options.json => serde_json::to_string_pretty(&report)? + "\n",
            Some(Event::Speed(report)) => speed(&report),
            Some(Event::Fairness(report)) => fairness(&report),
            Some(Event::Failed(why)) => bail!("{why}"),
            None => bail!("the client stopped"),
        };
        shown.end();
        return Ok(print(&text)?);
    }
}

/// The progress on standard error: a line that changes on a terminal, else a line for each step.
#[derive(Default)]
struct Shown {
    bar: Option<ProgressBar>,
    step: u32,
}

impl Shown {
    fn show(&mut self, progress: &Progress) {
        let Progress { step, number, of, mbps, left_s } = progress;
        if !io::stderr().is_terminal() {
            if self.step != *number {
                self.step = *number;
                // Nobody may be reading; the result is what counts.
                let _ = writeln!(io::stderr(), "{number}/{of}  {step}, {left_s:.0} s left");
            }
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let style = ProgressStyle::with_template("{spinner} {msg}").expect("the template is well-formed");
            ProgressBar::new_spinner().with_style(style)
        });
        let rate = mbps.map(|mbps| format!("  {mbps:6.1} Mbit/s")).unwrap_or_default();
        bar.set_message(format!("{number}/{of}  {step}{rate}  {left_s:.0} s left"));
        bar.tick();
    }

    fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Which networks, and how if several.
fn used(networks: &[String], mode: Mode) -> String {
    match mode {
        Mode::Single => networks.join(", "),
        mode => format!("{} ({mode})", networks.join(" + ")),
    }
}

fn speed(report: &SpeedReport) -> String {
    let heads = ["NETWORK", "DOWN", "UP", "RTT idle", "down", "up", "LOSS down", "up"];
    let mut rows = vec![heads.map(str::to_owned)];
    for row in &report.rows {
        let figure = |load: Option<Load>, of: fn(Load) -> String| load.map_or_else(|| "-".to_owned(), of);
        let rate = |load: Load| format!("{:.1} Mbit/s", load.mbps);
        let rtt = |load: Load| format!("{:.0} ms", load.rtt_ms);
        let loss = |load: Load| format!("{:.2} %", load.loss_percent);
        rows.push([
            used(&row.networks, row.mode),
            figure(row.down, rate),
            figure(row.up, rate),
            row.idle_rtt_ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.0} ms")),
            figure(row.down, rtt),
            figure(row.up, rtt),
            figure(row.down, loss),
            figure(row.up, loss),
        ]);
    }
    let SpeedReport { relay, seconds, congestion, .. } = report;
    let table = table(&rows);
    let mut text =
        format!("Through {relay}, {seconds} s for each direction, congestion control {congestion}\n\n{table}");
    let problems = report.rows.iter().filter_map(|row| Some((used(&row.networks, row.mode), row.problem.as_ref()?)));
    tell(&mut text, problems);
    text
}

fn fairness(report: &FairnessReport) -> String {
    let heads = ["NETWORK", "TCP alone", "beside the tunnel", "kept", "tunnel", "Jain's index"];
    let mut rows = vec![heads.map(str::to_owned)];
    for row in &report.rows {
        let mbps = |mbps: Option<f64>| mbps.map_or_else(|| "-".to_owned(), |mbps| format!("{mbps:.1} Mbit/s"));
        rows.push([
            row.network.clone(),
            mbps(row.tcp_alone_mbps),
            mbps(row.tcp_beside_mbps),
            row.utilization_percent().map_or_else(|| "-".to_owned(), |percent| format!("{percent:.0} %")),
            mbps(row.tunnel_mbps),
            row.jain().map_or_else(|| "-".to_owned(), |jain| format!("{jain:.2}")),
        ]);
    }
    let FairnessReport { relay, seconds, mode, congestion, tunnel_mbps, .. } = report;
    let table = table(&rows);
    let mut text = format!(
        "TCP from {relay} on each network, {seconds} s alone and {seconds} s beside the tunnel (mode {mode}, congestion \
         control {congestion})\n\n{table}\nThe tunnel brought {tunnel_mbps:.1} Mbit/s beside TCP.\n"
    );
    tell(&mut text, report.rows.iter().filter_map(|row| Some((row.network.clone(), row.problem.as_ref()?))));
    text
}

fn tell<'p>(text: &mut String, problems: impl Iterator<Item = (String, &'p String)>) {
    for (network, problem) in problems {
        let _ = writeln!(text, "{network}: {problem}");
    }
}

/// Columns as wide as their widest cell; figures to the right.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: [usize; N] =
        std::array::from_fn(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or_default());
    let mut text = String::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            let width = widths[at];
            let _ = if at == 0 { write!(text, "{cell:<width$}") } else { write!(text, "  {cell:>width$}") };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use tandem_proto::measure::{FairnessRow, SpeedRow};
    use tandem_proto::mode::Sides;

    use super::*;

    #[test]
    fn a_speed_report_is_a_table_with_what_is_missing_below() {
        let load = Some(Load { mbps: 47.26, rtt_ms: 23.4, loss_percent: 0.5 });
        let wifi = SpeedRow {
            networks: vec!["wifi0".to_owned()],
            mode: Mode::Single,
            idle_rtt_ms: Some(20.1),
            down: load,
            up: load,
            problem: None,
        };
        let both = SpeedRow {
            networks: vec!["wifi0".to_owned(), "cell0".to_owned()],
            mode: Mode::Bicast(Sides::Both),
            idle_rtt_ms: None,
            down: None,
            up: None,
            problem: Some("the relay does not answer".to_owned()),
        };
        let (relay, congestion) = ("home".to_owned(), "bbr3".to_owned());
        let text = speed(&SpeedReport { relay, congestion, seconds: 5, rows: vec![wifi, both] });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "Through home, 5 s for each direction, congestion control bbr3");
        assert!(lines[3].starts_with("wifi0 ") && lines[3].contains("47.3 Mbit/s"), "{text}");
        assert!(lines[4].starts_with("wifi0 + cell0 (bicast") && lines[4].ends_with('-'), "{text}");
        assert!(lines[5].ends_with(": the relay does not answer"), "{text}");
        let wide: Vec<_> = lines[2..5].iter().map(|line| line.chars().count()).collect();
        assert!(wide.iter().all(|width| *width == wide[0]), "{text}");
    }

    #[test]
    fn a_fairness_report_says_what_tcp_keeps() {
        let row = FairnessRow {
            network: "wifi0".to_owned(),
            tcp_alone_mbps: Some(40.0),
            tcp_beside_mbps: Some(36.0),
            tunnel_mbps: Some(50.0),
            problem: None,
        };
        let mode = Mode::Bicast(Sides::Both);
        let (relay, congestion) = ("home".to_owned(), "bbr3".to_owned());
        let report = FairnessReport { relay, mode, congestion, seconds: 10, tunnel_mbps: 49.9, rows: vec![row] };
        let text = fairness(&report);
        assert!(text.contains("90 %") && text.contains("0.97") && text.contains("49.9 Mbit/s beside TCP"), "{text}");
    }
}
