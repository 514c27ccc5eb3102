//! The page of the results: what is kept by hand, with tables between marks that are written anew.
//!
//! `<!-- figure 6 -->` and `<!-- end of figure 6 -->` each on a line of its own hold figure 6's drawing and tables. A figure
//! without marks gets them at the page's end.

use std::fmt::Write as _;

use tandem_netem::LossPlace;
use tandem_proto::congestion::Algorithm;

use super::claim::{Claim, Quantity, Role};
use super::point::Topology;
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
    let when = match (day(first), day(last)) {
        (first, last) if first == last => first,
        (first, last) => format!("{first} to {last}"),
    };
    let _ = writeln!(
        text,
        "{}, {} runs on {when}, commits {}. {}. Highest load average before a run {load:.1}, least idle processor time in one \
         {idle:.0} %. Every value: [figure-{id}.csv](figure-{id}.csv).\n",
        report.figure.citation,
        records.len(),
        commits.join(", "),
        networks(&report.figure.topology),
    );
    let players = report.figure.bbr3s();
    let by_both: Vec<_> = players.iter().map(|player| format!("`{}`", player.name())).collect();
    let columns: &[String] = if players.len() > 1 { &by_both } else { &["measured".to_owned()] };
    table(&mut text, "The paper states", columns, &report.beside(report.figure.stated, &players));
    let ours = [Algorithm::Bbr3];
    table(&mut text, "Our aim", &["`bbr3`".to_owned()], &report.beside(report.figure.aims, &ours));
    text
}

/// The networks in words.
fn networks(topology: &Topology) -> String {
    let Topology { rates_mbit: [rate, other], rtts_ms: [rtt, other_rtt], queue_bdp, loss_place } = topology;
    let alike = rate == other && rtt == other_rtt;
    let networks = if alike {
        format!("Networks of {rate} Mbit/s and {rtt} ms")
    } else {
        format!("Networks of {rate} Mbit/s and {rtt} ms, and {other} Mbit/s and {other_rtt} ms")
    };
    let place = match loss_place {
        LossPlace::BeforeQueue => "before the queue",
        LossPlace::AfterQueue => "behind the queue",
    };
    format!("{networks}, queues of {queue_bdp} BDP, loss {place}")
}

fn table(text: &mut String, heading: &str, columns: &[String], rows: &[Beside]) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "| {heading} | at loss | stated | {} |", columns.join(" | "));
    let _ = writeln!(text, "| --- | --- | --- {}|", "| --- ".repeat(columns.len()));
    for Beside { claim: Claim { source, quantity, loss_percent, stated }, ours } in rows {
        let section = if *source == "aim" { String::new() } else { format!(" ({source})") };
        // Without BBRv3 all who might play it say the same.
        let plays = quantity.curves().iter().any(|(role, _)| *role == Role::Bbr3);
        let cell = |(index, ours): (usize, &Option<Summary>)| match ours {
            _ if !plays && index > 0 => String::new(),
            None => "not measured".to_owned(),
            Some(ours) => format!("{}, {}", summary(*quantity, *ours), verdict(source, stated.agrees(ours.middle))),
        };
        let cells: Vec<_> = ours.iter().enumerate().map(cell).collect();
        let stated = format!("{stated} {}", quantity.unit());
        let _ = writeln!(
            text,
            "| {quantity}{section} | {loss_percent} % | {} | {} |",
            stated.trim_end(),
            cells.join(" | ")
        );
    }
    text.push('\n');
}

fn verdict(source: &str, agrees: bool) -> &'static str {
    match (source, agrees) {
        ("aim", true) => "reached",
        ("aim", false) => "**missed**",
        (_, true) => "agrees",
        (_, false) => "differs",
    }
}

/// The middle with its unit, and the least and the most of several runs.
fn summary(quantity: Quantity, Summary { middle, least, most, runs }: Summary) -> String {
    let digits = match quantity {
        Quantity::Acknowledgements(_) => 0,
        Quantity::Jain(_) => 2,
        _ => 1,
    };
    let value = format!("{middle:.digits$} {}", quantity.unit());
    let value = value.trim_end();
    if runs == 1 { value.to_owned() } else { format!("{value} ({least:.digits$} to {most:.digits$})") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::{FIGURES, Records};

    #[test]
    fn words_around_the_marks_are_kept_and_what_is_between_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::open(&folder.path().join("none.jsonl")).unwrap();
        let figure = FIGURES.iter().find(|figure| figure.id == "6").unwrap();
        let report = Report { figure, records: &records, quick: false };
        let page = |between: &str| format!("# Head\n\n<!-- figure 6 -->\n{between}<!-- end of figure 6 -->\n\nWhy.\n");
        assert_eq!(write(&page("old\n"), &report), page("Not measured yet.\n"));
        // A page without marks gets them at its end, and keeps them.
        let grown = write("# Head\n", &report);
        assert!(
            grown.starts_with("# Head\n\n## Download time") && grown.ends_with("<!-- end of figure 6 -->\n"),
            "{grown}"
        );
        assert_eq!(write(&grown, &report), grown);
    }
}
