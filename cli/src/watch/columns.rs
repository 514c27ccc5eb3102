//! The table of paths: which columns fit, and what stands in them.
//!
//! Every column has a rank; while the table is wider than the terminal, the one of the lowest rank goes.

use ratatui::layout::{Alignment, Constraint};
use tandem_proto::path::order::PathRole;
use tandem_proto::stats::{PathDirection, PathStats, Snapshot};

use crate::show::{role_word, state_word};

/// Spaces between two columns.
pub(super) const GAP: u16 = 1;
/// An interface's name is cut after so many characters.
const LONGEST_NAME: usize = 16;

/// One column.
pub(super) struct Column {
    /// Its name, and the unit below it.
    pub(super) head: [&'static str; 2],
    pub(super) width: u16,
    pub(super) alignment: Alignment,
    /// The lower, the longer it stays.
    rank: u8,
    cell: Box<dyn Fn(&PathStats) -> String>,
    total: Box<dyn Fn(&Snapshot) -> String>,
}

impl Column {
    fn text(head: &'static str, width: u16, cell: impl Fn(&PathStats) -> String + 'static) -> Self {
        let total = Box::new(|_: &Snapshot| String::new());
        Self { head: [head, ""], width, alignment: Alignment::Left, rank: 0, cell: Box::new(cell), total }
    }

    fn number(head: [&'static str; 2], rank: u8, cell: impl Fn(&PathStats) -> String + 'static) -> Self {
        let width = head.map(str::len).into_iter().max().unwrap_or(0).max(6) as u16;
        let total = Box::new(|_: &Snapshot| String::new());
        Self { head, width, alignment: Alignment::Right, rank, cell: Box::new(cell), total }
    }

    fn with_total(mut self, total: impl Fn(&Snapshot) -> String + 'static) -> Self {
        self.total = Box::new(total);
        self
    }

    pub(super) fn constraint(&self) -> Constraint {
        Constraint::Length(self.width)
    }

    pub(super) fn cell(&self, path: &PathStats) -> String {
        (self.cell)(path)
    }

    /// What stands in the line for all paths together.
    pub(super) fn total(&self, snapshot: &Snapshot) -> String {
        (self.total)(snapshot)
    }
}

/// The columns that fit into `width`, from left to right.
pub(super) fn fitting(snapshot: &Snapshot, width: u16) -> Vec<Column> {
    let mut columns = all(snapshot);
    while columns.len() > 1 {
        let needed = columns.iter().map(|column| column.width + GAP).sum::<u16>() - GAP;
        if needed <= width {
            break;
        }
        let last = columns.iter().map(|column| column.rank).max().unwrap_or(0);
        if last == 0 {
            break;
        }
        columns.retain(|column| column.rank != last);
    }
    columns
}

fn all(snapshot: &Snapshot) -> Vec<Column> {
    let longest = snapshot.paths.iter().map(|path| path.interface.chars().count() + 1).max().unwrap_or(0);
    let name_width = longest.clamp("NETWORK".len(), LONGEST_NAME) as u16;
    let name = |path: &PathStats| {
        let name: String = path.interface.chars().take(LONGEST_NAME - 1).collect();
        if path.preferred { name + "*" } else { name }
    };
    let roles = snapshot.paths.iter().any(|path| path.role != PathRole::Use);
    let role = Column { rank: 3, ..Column::text("ROLE", 6, |path| role_word(path.role).to_owned()) };
    let mut columns = vec![
        Column::text("NETWORK", name_width, name).with_total(|_| "all".to_owned()),
        Column::text("STATE", 7, |path| state_word(path.state).to_owned()),
        role,
        Column::number(["RTT", "ms"], 1, |path| optional(path.srtt_ms)).with_total(|all| format!("{:.1}", all.srtt_ms)),
        Column::number(["JITTER", "ms"], 6, |path| format!("{:.1}", path.jitter_ms)),
    ];
    if !roles {
        columns.remove(2);
    }
    type Of = (&'static str, fn(&PathStats) -> &PathDirection, fn(&Snapshot) -> (f64, f64));
    let directions: [Of; 2] = [
        ("DOWN", |path| &path.down, |all| (all.down.goodput_mbps, all.down.effective_loss_percent)),
        ("UP", |path| &path.up, |all| (all.up.goodput_mbps, all.up.effective_loss_percent)),
    ];
    for (head, of, total) in directions {
        let sum: f64 = snapshot.paths.iter().map(|path| of(path).rate_mbps).sum();
        columns.extend([
            Column::number([head, "Mbit/s"], 2, move |path| format!("{:.1}", of(path).rate_mbps))
                .with_total(move |all| format!("{:.1}", total(all).0)),
            Column::number(["LOSS", "% now"], 3, move |path| format!("{:.1}", of(path).loss_percent)),
            Column::number(["LOSS", "% ever"], 4, move |path| format!("{:.2}", of(path).total_loss_percent))
                .with_total(move |all| format!("{:.2}", total(all).1)),
            Column::number(["QUEUE", "ms"], 5, move |path| format!("{:.1}", of(path).queue_ms)),
            Column::number(["SHARE", "%"], 7, move |path| share(of(path).rate_mbps, sum)),
        ]);
    }
    columns.push(Column::number(["MTU", "bytes"], 8, |path| path.mtu_bytes.to_string()));
    columns
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

/// Of what all paths carry, the part of one.
fn share(rate: f64, sum: f64) -> String {
    if sum > 0.0 { format!("{:.0}", 100.0 * rate / sum) } else { "-".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_most_stays_on_the_narrowest_terminal() {
        let names = |width| -> Vec<_> {
            fitting(&Snapshot::default(), width).iter().map(|column| column.head.join(" ")).collect()
        };
        assert_eq!(names(10), ["NETWORK ", "STATE "]);
        assert_eq!(names(40), ["NETWORK ", "STATE ", "RTT ms", "DOWN Mbit/s", "UP Mbit/s"]);
        assert!(names(80).len() >= 9, "{:?}", names(80));
        assert_eq!(names(300).len(), 15);
    }

    #[test]
    fn shares_are_of_what_all_paths_carry() {
        assert_eq!((share(1.0, 4.0), share(0.0, 0.0)), ("25".to_owned(), "-".to_owned()));
    }
}
