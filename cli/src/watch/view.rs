//! What `status --watch` shows, drawn into a frame of any size.
//!
//! From top to bottom: how the session stands, its rates with a minute's history, the paths, what copies cost and what they
//! were good for, the controller. What does not fit below is left out; what does not fit beside is shortened by column.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table};
use tandem_proto::mode::Mode;
use tandem_proto::stats::{DirectionStats, PathState, SessionState, Snapshot};

use super::columns::{self, GAP};
use super::history::{Chart, History};
use crate::show::{bytes, duration, restraint};

/// Width of the rates' text beside their charts.
const RATE_WIDTH: u16 = 34;

/// What is drawn.
pub(super) struct View<'a> {
    /// The last snapshot, or why there is none.
    pub(super) latest: Result<&'a Snapshot, &'a String>,
    pub(super) history: &'a History,
    pub(super) colours: Colours,
}

/// Whether colours are used; emphasis is, in either case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Colours(bool);

impl Colours {
    /// As the environment's NO_COLOR says.
    pub(super) fn from_environment() -> Self {
        Self(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()))
    }

    fn of(self, colour: Color) -> Style {
        if self.0 { Style::new().fg(colour) } else { Style::new() }
    }

    fn path(self, state: PathState) -> Style {
        match state {
            PathState::Up => self.of(Color::Green),
            PathState::Joining => self.of(Color::Yellow),
            PathState::Down => self.of(Color::Red).add_modifier(Modifier::BOLD),
        }
    }

    fn session(self, state: SessionState) -> Style {
        match state {
            SessionState::Connected => self.of(Color::Green),
            SessionState::Connecting => self.of(Color::Yellow),
            SessionState::Stopped => self.of(Color::Red),
        }
    }
}

impl View<'_> {
    pub(super) fn render(&self, frame: &mut Frame<'_>) {
        let mut place = frame.area();
        let footer = Line::from("q quits").style(Style::new().add_modifier(Modifier::DIM));
        if place.height > 6 {
            let [above, below] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(place);
            frame.render_widget(footer, below);
            place = above;
        }
        let mut rest = Rest(place);
        match self.latest {
            Ok(snapshot) => self.snapshot(snapshot, &mut rest, frame),
            Err(problem) => self.lines(vec![self.problem(problem)], &mut rest, frame),
        }
    }

    fn snapshot(&self, snapshot: &Snapshot, rest: &mut Rest, frame: &mut Frame<'_>) {
        self.lines(self.heading(snapshot), rest, frame);
        self.rate("down", &snapshot.down, |history, width| history.down(width), rest, frame);
        self.rate("up", &snapshot.up, |history, width| history.up(width), rest, frame);
        if !snapshot.paths.is_empty() {
            rest.skip();
            self.paths(snapshot, rest, frame);
            let problem = |path: &tandem_proto::stats::PathStats| {
                let problem = path.problem.as_ref()?;
                Some(self.problem(&format!("{}: {problem}", path.interface)))
            };
            self.lines(snapshot.paths.iter().filter_map(problem).collect(), rest, frame);
        }
        let restraints = snapshot.networks.iter().filter_map(restraint);
        self.lines(
            restraints.map(|text| Line::from(text).style(self.colours.of(Color::Yellow))).collect(),
            rest,
            frame,
        );
        if snapshot.state == SessionState::Connected {
            rest.skip();
            self.lines(copies(snapshot), rest, frame);
            rest.skip();
            self.lines(vec![controller(snapshot)], rest, frame);
        }
    }

    fn heading(&self, snapshot: &Snapshot) -> Vec<Line<'static>> {
        let state = match snapshot.state {
            SessionState::Connected => "connected",
            SessionState::Connecting => "connecting",
            SessionState::Stopped => "stopped",
        };
        let mut text = format!(" to {}", snapshot.relay);
        if snapshot.state == SessionState::Connected {
            text += &format!(" for {}", duration(snapshot.uptime_s));
        }
        let style = self.colours.session(snapshot.state).add_modifier(Modifier::BOLD);
        let mut lines = vec![Line::from(vec![Span::styled(state, style), Span::raw(text)])];
        if let Some(problem) = &snapshot.problem {
            lines.push(self.problem(problem));
        }
        lines.push(Line::from(format!(
            "mode {}, {}; connections: {} open, {} so far",
            snapshot.mode, snapshot.congestion, snapshot.flows_open, snapshot.flows_total
        )));
        lines
    }

    fn problem(&self, text: &str) -> Line<'static> {
        Line::from(text.to_owned()).style(self.colours.of(Color::Red))
    }

    /// A direction's rate and loss, and beside it the last minute.
    fn rate(
        &self,
        name: &str,
        direction: &DirectionStats,
        chart: impl Fn(&History, usize) -> Chart,
        rest: &mut Rest,
        frame: &mut Frame<'_>,
    ) {
        let Some(area) = rest.take(1) else { return };
        let text = format!("{name:<5}{:7.1} Mbit/s {:>9}", direction.goodput_mbps, bytes(direction.flow_bytes));
        let [left, middle, right] =
            Layout::horizontal([Constraint::Length(RATE_WIDTH), Constraint::Fill(1), Constraint::Length(18)])
                .areas(area);
        frame.render_widget(Paragraph::new(text), left);
        if middle.width < 10 {
            return;
        }
        let chart = chart(self.history, usize::from(middle.width));
        let bars = Rect { width: chart.bars.len() as u16, ..middle };
        frame.render_widget(Sparkline::default().data(&chart.bars).style(self.colours.of(Color::Cyan)), bars);
        frame.render_widget(Paragraph::new(format!(" 1 min, top {:.1}", chart.highest_mbps)), right);
    }

    fn paths(&self, snapshot: &Snapshot, rest: &mut Rest, frame: &mut Frame<'_>) {
        let several = snapshot.paths.len() > 1;
        let Some(area) = rest.take(2 + snapshot.paths.len() as u16 + u16::from(several)) else { return };
        let columns = columns::fitting(snapshot, area.width);
        let row = |texts: Vec<String>| {
            let cell =
                |(text, column): (String, &columns::Column)| Cell::from(Line::from(text).alignment(column.alignment));
            Row::new(texts.into_iter().zip(&columns).map(cell).collect::<Vec<_>>())
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let head = |line: usize| row(columns.iter().map(|column| column.head[line].to_owned()).collect()).style(bold);
        let mut rows = vec![head(0), head(1)];
        for path in &snapshot.paths {
            let cells = row(columns.iter().map(|column| column.cell(path)).collect());
            rows.push(cells.style(self.colours.path(path.state)));
        }
        if several {
            rows.push(row(columns.iter().map(|column| column.total(snapshot)).collect()));
        }
        let widths: Vec<_> = columns.iter().map(columns::Column::constraint).collect();
        frame.render_widget(Table::new(rows, widths).column_spacing(GAP), area);
    }

    fn lines(&self, lines: Vec<Line<'static>>, rest: &mut Rest, frame: &mut Frame<'_>) {
        for line in lines {
            let Some(area) = rest.take(1) else { return };
            frame.render_widget(line, area);
        }
    }
}

/// What copies were sent for, and what they cost.
fn copies(snapshot: &Snapshot) -> Vec<Line<'static>> {
    if snapshot.mode == Mode::Single && snapshot.down.copies + snapshot.up.copies == 0 {
        return Vec::new();
    }
    let head = Line::from("COPIES       SENT   SKIPPED  OF DATAGRAMS  LOST STILL  ON ALL LINKS");
    let row = |(name, direction): (&str, &DirectionStats)| {
        Line::from(format!(
            "{name:<6}{:>11}{:>10}{:>14}{:>10.3} %{:>14}",
            direction.copies,
            direction.copies_skipped,
            direction.datagrams,
            direction.effective_loss_percent,
            bytes(direction.link_bytes)
        ))
    };
    let mut lines = vec![head.style(Style::new().add_modifier(Modifier::BOLD))];
    lines.extend([("down", &snapshot.down), ("up", &snapshot.up)].map(row));
    lines
}

/// What the controller of the upload is about: the one that runs here.
fn controller(snapshot: &Snapshot) -> Line<'static> {
    let pacing = snapshot.pacing_mbps.map_or_else(String::new, |rate| format!(", paced at {rate:.1} Mbit/s"));
    Line::from(format!(
        "upload: {} in {}, window {}{pacing}, round trip {:.1} ms",
        snapshot.congestion,
        snapshot.phase,
        bytes(snapshot.cwnd_bytes),
        snapshot.srtt_ms
    ))
}

/// What is still free, from the top.
struct Rest(Rect);

impl Rest {
    /// The next lines; fewer where there are no more, `None` where there is none.
    fn take(&mut self, height: u16) -> Option<Rect> {
        let height = height.min(self.0.height);
        let taken = Rect { height, ..self.0 };
        self.0.y += height;
        self.0.height -= height;
        (height > 0).then_some(taken)
    }

    /// Leaves a line free.
    fn skip(&mut self) {
        self.take(1);
    }
}

#[cfg(test)]
mod tests;
