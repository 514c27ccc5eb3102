//! The page of the results: what is kept by hand, with tables between marks that are written anew.
//!
//! `<!-- figure 6 -->` and `<!-- end of figure 6 -->` each on a line of its own hold figure 6's drawing and tables. A figure
//! without marks gets them at the page's end.

use std::fmt::Write as _;

use super::claim::{Claim, Quantity, Role};
use super::report::{Beside, Report, Summary};

/// What stands above figures that the page does not have yet.
const HEAD: &str = "# The paper's experiments\n";

/// Writes a figure's drawings and tables into the page.
pub(super) fn write(page: &str, report: &Report<'_>) -> String {
    let (begin, end) = marks(report.figure.id);
    let generated = format!("{begin}\n{}{end}\n", tables(report));
    let found = page.find(&begin).and_then(|from| {
        let to = from + page[from..].find(&end)? + end.len();
        Some((from, to))
    });
    match found {
        Some((from, to)) => {
            let rest = page[to..].strip_prefix('\n').unwrap_or(&page[to..]);
            format!("{}{generated}{rest}", &page[..from])
        }
        None => {
            let page = if page.is_empty() { HEAD } else { page };
            format!("{page}\n## {}\n\n{generated}", report.figure.title)
        }
    }
}

fn marks(id: &str) -> (String, String) {
    (format!("<!-- figure {id} -->"), format!("<!-- end of figure {id} -->"))
}

fn tables(report: &Report<'_>) -> String {
    let id = report.figure.id;
    let mut text = String::new();
    let records = report.all();
    if records.is_empty() {
        return "Not measured yet.\n".to_owned();
    }
    for drawing in report.drawings() {
        let _ = writeln!(text, "![{}](figure-{id}{}.svg)\n", drawing.title, drawing.suffix);
    }
    let mut commits: Vec<&str> = Vec::new();
    for record in &records {
        if !commits.contains(&record.commit.as_str()) {
            commits.push(&record.commit);
        }
    }
    let idle = records.iter().map(|record| record.machine.idle_percent).fold(100.0, f64::min);
    let load = records.iter().map(|record| record.machine.load_before).fold(0.0, f64::max);
    let (first, last) = (records.iter().map(|r| &r.at).min(), records.iter().map(|r| &r.at).max());
    let day = |at: Option<&String>| at.and_then(|at| at.get(..10)).unwrap_or("?").to_owned();
    let topology = report.figure.topology;
    let [rate, other] = topology.rates_mbit;
    let [rtt, other_rtt] = topology.rtts_ms;
    let _ = writeln!(
        text,
        "{} runs on {} to {}, commits {}. Networks of {rate} and {other} Mbit/s, {rtt} and {other_rtt} ms, queues of {} BDP, \
         loss {}. Highest load average before a run {load:.1}, least idle processor time in one {idle:.0} %. Every value: \
         [figure-{id}.csv](figure-{id}.csv).\n",
        records.len(),
        day(first),
        day(last),
        commits.join(", "),
        topology.queue_bdp,
        match topology.loss_place {
            tandem_netem::LossPlace::BeforeQueue => "before the queue",
            tandem_netem::LossPlace::AfterQueue => "behind the queue",
        },
    );
    let (aims, stated): (Vec<_>, Vec<_>) = report.beside().into_iter().partition(|beside| beside.claim.source == "aim");
    table(&mut text, "The paper", &stated);
    table(&mut text, "Aim", &aims);
    text
}

fn table(text: &mut String, whose: &str, rows: &[Beside]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "| {whose} states | at loss | stated | measured (least to most) | runs | |");
    let _ = writeln!(text, "| --- | --- | --- | --- | --- | --- |");
    for row in rows {
        let Claim { source, quantity, loss_percent, stated } = row.claim;
        let ours = row.ours.map_or_else(|| "not measured".to_owned(), |ours| summary(quantity, ours));
        let runs = row.ours.map_or(0, |ours| ours.runs);
        let verdict = match (row.agrees(), source) {
            (None, _) => "",
            (Some(true), "aim") => "reached",
            (Some(false), "aim") => "**missed**",
            (Some(true), _) => "agrees",
            (Some(false), _) => "differs",
        };
        let section = if source == "aim" { String::new() } else { format!(" ({source})") };
        let unit = quantity.unit();
        // Two of ours play the paper's BBRv3.
        let is_of_bbr3 = quantity.curves().iter().any(|(role, _)| *role == Role::Bbr3);
        let player = if is_of_bbr3 { format!(" [`{}`]", row.bbr3.name()) } else { String::new() };
        let _ = writeln!(
            text,
            "| {quantity}{player}{section} | {loss_percent} % | {stated} {unit} | {ours} | {runs} | {verdict} |"
        );
    }
    text.push('\n');
}

fn summary(quantity: Quantity, Summary { middle, least, most, runs }: Summary) -> String {
    let digits = if matches!(quantity, Quantity::Acknowledgements(_)) { 0 } else { 1 };
    let unit = quantity.unit();
    if runs == 1 {
        return format!("{middle:.digits$} {unit}");
    }
    format!("{middle:.digits$} {unit} ({least:.digits$} to {most:.digits$})")
}
