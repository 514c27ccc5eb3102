//! The result of a demo: a table and a bar chart of at most 80 columns, or one JSON object.

use std::fmt::Write as _;
use std::io;

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use serde::Serialize;
use tandem_proto::mode::Mode;

use super::Plan;
use super::bed::{RATE, ROUND_TRIP, network_names};
use super::measure::Measured;
use crate::show::bytes;

/// Characters of a bar that stands for the full rate of one network.
const BAR: usize = 48;
/// A character's eighths, from the left.
const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];

/// What is going to happen, for people.
pub(super) fn introduction(loss_percent: f64, seconds: u64) -> String {
    let [one, other] = network_names();
    format!(
        "Two emulated networks, {one} and {other}, of {RATE} and {} ms round trip,\n\
         with queues of one bandwidth-delay product. Each loses {loss_percent} % of its\n\
         datagrams by chance, both ways. A client downloads over them through its\n\
         SOCKS5 proxy and a relay, {seconds} s in each run.\n\n",
        ROUND_TRIP.as_millis()
    )
}

#[derive(Serialize)]
struct Report {
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Run {
    congestion: &'static str,
    scheme: &'static str,
    loss_percent: serde_json::Number,
    goodput_mbps: f64,
    effective_loss_percent: f64,
    copies: u64,
    link_bytes: u64,
}

/// The result for programs, one line.
pub(super) fn json(results: &[(Plan, Measured)]) -> anyhow::Result<String> {
    let run = |(plan, measured): &(Plan, Measured)| Run {
        congestion: plan.congestion.name(),
        scheme: plan.mode.scheme(),
        loss_percent: number(plan.loss_percent),
        goodput_mbps: thousandths(measured.goodput_mbps),
        effective_loss_percent: thousandths(measured.effective_loss_percent),
        copies: measured.copies,
        link_bytes: measured.link_bytes,
    };
    Ok(serde_json::to_string(&Report { runs: results.iter().map(run).collect() })? + "\n")
}

/// A number as people write it: 5 rather than 5.0.
fn number(value: f64) -> serde_json::Number {
    match serde_json::Number::from_f64(value) {
        Some(number) if value.fract() != 0.0 => number,
        _ => (value as i64).into(),
    }
}

fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// The result for people, coloured if standard output shows colours and NO_COLOR does not forbid them.
pub(super) fn text(results: &[(Plan, Measured)]) -> String {
    let text = format!("\n{}\n{}", table(results), chart(results));
    match AutoStream::choice(&io::stdout()) {
        ColorChoice::Never => anstream::adapter::strip_str(&text).to_string(),
        _ => text,
    }
}

fn table(results: &[(Plan, Measured)]) -> String {
    let [one, other] = network_names();
    let heads = [
        ["", "goodput", "lost on", "lost on", "lost to", "copies", "sent on", "sent per"],
        ["", "Mbit/s", one, other, "client", "sent", "both", "byte got"],
    ];
    let mut text = String::new();
    for [name, goodput, one, other, client, copies, sent, cost] in heads {
        let _ = writeln!(text, "{name:23}{goodput:>7}{one:>8}{other:>9}{client:>8}{copies:>7}{sent:>9}{cost:>9}");
    }
    for (plan, measured) in results {
        let [one, other] = measured.network_loss_percent.map(|loss| loss.map_or("-".to_owned(), percent));
        let cost = match measured.application_bytes {
            0 => "-".to_owned(),
            received => format!("{:.2}", measured.link_bytes as f64 / received as f64),
        };
        let _ = writeln!(
            text,
            "{:<11}{:<13}{:>6.1}{one:>8}{other:>9}{:>8}{:>7}{:>9}{cost:>9}",
            plan.congestion,
            plan.mode.scheme(),
            measured.goodput_mbps,
            percent(measured.effective_loss_percent),
            measured.copies,
            bytes(measured.link_bytes),
        );
    }
    text
}

fn percent(value: f64) -> String {
    format!("{value:.1} %")
}

fn chart(results: &[(Plan, Measured)]) -> String {
    let full = RATE.bits_per_second() as f64 / 1e6;
    let mut text = format!("Goodput; a full bar is the rate of one network, {full} Mbit/s\n\n");
    let mut last = None;
    for (plan, measured) in results {
        let controller =
            if last.replace(plan.congestion) == Some(plan.congestion) { "" } else { plan.congestion.name() };
        let style = match plan.mode {
            Mode::Single => Style::new().fg_color(Some(AnsiColor::Yellow.into())),
            Mode::Bicast(_) => Style::new().fg_color(Some(AnsiColor::Green.into())),
        };
        let bar = bar(measured.goodput_mbps / full);
        let scheme = plan.mode.scheme();
        let _ = writeln!(text, "{controller:<11}{scheme:<14}{style}{bar}{style:#} {:.1}", measured.goodput_mbps);
    }
    text
}

/// A bar of that share of [`BAR`], to an eighth of a character.
fn bar(share: f64) -> String {
    let eighths = (share.clamp(0.0, 1.0) * (BAR * 8) as f64).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tandem_proto::congestion::Algorithm;
    use tandem_proto::mode::Sides;

    use super::*;

    fn results() -> Vec<(Plan, Measured)> {
        let plan = |congestion, mode| Plan { congestion, mode, loss_percent: 5.0, time: Duration::from_secs(6) };
        let unicast = Measured {
            goodput_mbps: 6.25,
            effective_loss_percent: 5.01234,
            copies: 0,
            link_bytes: 5_000_000,
            application_bytes: 4_687_500,
            network_loss_percent: [Some(5.0), None],
        };
        let bicast = Measured {
            goodput_mbps: 200.0,
            copies: 1_234_567,
            network_loss_percent: [Some(100.0), Some(100.0)],
            application_bytes: 0,
            link_bytes: 3_210_000_000,
            effective_loss_percent: 100.0,
        };
        vec![
            (plan(Algorithm::NewReno, Mode::Single), unicast),
            (plan(Algorithm::NewReno, Mode::Bicast(Sides::Both)), bicast),
        ]
    }

    #[test]
    fn the_object_has_the_documented_fields() {
        assert_eq!(
            json(&results()[..1]).unwrap(),
            "{\"runs\":[{\"congestion\":\"newreno\",\"scheme\":\"unicast\",\"loss_percent\":5,\"goodput_mbps\":6.25,\
             \"effective_loss_percent\":5.012,\"copies\":0,\"link_bytes\":5000000}]}\n"
        );
        assert_eq!(number(2.5).to_string(), "2.5");
    }

    #[test]
    fn nothing_is_wider_than_a_terminal() {
        let text = anstream::adapter::strip_str(&format!("{}{}", table(&results()), chart(&results()))).to_string();
        for line in text.lines().chain(introduction(12.345, 120).lines()) {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
        assert!(
            text.contains("\nnewreno    unicast         6.2   5.0 %        -   5.0 %      0   5.0 MB     1.07\n"),
            "{text}"
        );
    }

    #[test]
    fn a_bar_is_as_long_as_its_share() {
        assert_eq!(bar(0.0), "");
        assert_eq!(bar(0.5), "█".repeat(BAR / 2));
        assert_eq!(bar(1.5 / BAR as f64), "█▌");
        assert_eq!(bar(7.0), "█".repeat(BAR));
    }
}
