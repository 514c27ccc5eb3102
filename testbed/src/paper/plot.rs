//! Curves as SVG: panels with a common legend. Colours differ in brightness, and dashes and markers tell curves apart
//! without any.

use std::ops::Range;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::element::DashedPathElement;
use plotters::prelude::*;

/// One panel in pixels, and how many stand in a row.
const PANEL: (u32, u32) = (520, 360);
const COLUMNS: usize = 2;
/// Heights of the title and of a line of the legend, and the width of an entry.
const TITLE: u32 = 44;
const LEGEND_LINE: u32 = 24;
const LEGEND_ENTRY: u32 = 260;
const FONT: &str = "sans-serif";
/// The radius of markers.
const RADIUS: i32 = 5;

/// How a curve looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Style {
    colour: RGBColor,
    /// Lengths of a dash and of the gap behind it, in pixels; `None`: a solid line.
    dash: Option<(u32, u32)>,
    width: u32,
    marker: Marker,
    filled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    None,
}

impl Style {
    /// What is ours.
    pub(super) const OURS: Self = Self::new(RGBColor(11, 60, 140), None, 3, Marker::Circle, true);
    /// The draft's BBRv3.
    pub(super) const DRAFT: Self = Self::new(RGBColor(86, 180, 233), Some((10, 4)), 2, Marker::Diamond, false);
    /// BBRv1.
    pub(super) const BBR1: Self = Self::new(RGBColor(214, 120, 0), Some((3, 4)), 2, Marker::Triangle, true);
    /// BBRv2.
    pub(super) const BBR2: Self = Self::new(RGBColor(0, 130, 95), Some((14, 4)), 2, Marker::Square, false);
    /// BBR-CWS.
    pub(super) const BBR_CWS: Self = Self::new(RGBColor(170, 60, 130), Some((3, 3)), 2, Marker::Triangle, false);
    /// TCP, or the competitor on the reference network.
    pub(super) const TCP: Self = Self::new(BLACK, Some((6, 4)), 2, Marker::Square, true);
    /// TCP's second rival, or the competitor on the other network.
    pub(super) const OTHER_TCP: Self = Self::new(RGBColor(130, 130, 130), Some((6, 4)), 2, Marker::Square, false);
    /// What a competitor gets alone.
    pub(super) const ALONE: Self = Self::new(RGBColor(90, 90, 90), Some((1, 4)), 1, Marker::None, false);

    const fn new(colour: RGBColor, dash: Option<(u32, u32)>, width: u32, marker: Marker, filled: bool) -> Self {
        Self { colour, dash, width, marker, filled }
    }

    /// The same without markers and dashes, for a curve of many points.
    #[must_use]
    pub(super) fn plain(self) -> Self {
        Self { marker: Marker::None, dash: None, ..self }
    }
}

/// A value with its spread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Value {
    /// Where on the horizontal axis.
    pub(super) x: f64,
    /// The middle of the runs.
    pub(super) middle: f64,
    /// The least of them.
    pub(super) least: f64,
    /// The most of them.
    pub(super) most: f64,
}

/// A curve.
#[derive(Debug, Clone)]
pub(super) struct Line {
    /// Its name in the legend; equal names are one entry.
    pub(super) name: String,
    /// How it looks.
    pub(super) style: Style,
    /// Its values, from left to right.
    pub(super) values: Vec<Value>,
}

/// What somebody else states.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mark {
    /// Where on the horizontal axis.
    pub(super) x: f64,
    /// The value.
    pub(super) y: f64,
    /// Whether it is exact (0), at least this (1) or at most this (-1).
    pub(super) bound: i32,
    /// The curve that it belongs to, for its colour.
    pub(super) style: Style,
}

/// The horizontal axis.
#[derive(Debug, Clone)]
pub(super) enum Axis {
    /// Places with these names, at 0, 1, and so on.
    Places(Vec<String>),
    /// Numbers from zero to this.
    UpTo(f64),
}

/// One panel.
#[derive(Debug, Clone)]
pub(super) struct Panel {
    /// What it shows.
    pub(super) title: String,
    /// The horizontal axis and its name.
    pub(super) x: (Axis, &'static str),
    /// The vertical axis's name; panels with the same have the same axis.
    pub(super) y: &'static str,
    /// Whether the vertical axis is logarithmic.
    pub(super) logarithmic: bool,
    /// Its curves.
    pub(super) lines: Vec<Line>,
    /// What others state.
    pub(super) marks: Vec<Mark>,
}

/// An axis from one number to another, with lines and labels where they are told to be.
struct Ticks {
    from: f64,
    to: f64,
    at: Vec<f64>,
}

impl Ranged for Ticks {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let share = (value - self.from) / (self.to - self.from);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.at.clone()
    }

    fn range(&self) -> Range<f64> {
        self.from..self.to
    }
}

/// Draws panels under a title; `marks` is what the legend calls marks.
///
/// # Errors
/// When a panel has no size.
pub(super) fn draw(title: &str, panels: &[Panel], marks: &str) -> Result<String> {
    let mut entries: Vec<(String, Option<Style>)> = Vec::new();
    for line in panels.iter().flat_map(|panel| &panel.lines) {
        if entries.iter().all(|(name, _)| *name != line.name) {
            entries.push((line.name.clone(), Some(line.style)));
        }
    }
    if panels.iter().any(|panel| !panel.marks.is_empty()) {
        entries.push((marks.to_owned(), None));
    }
    let columns = COLUMNS.min(panels.len().max(1));
    let rows = panels.len().div_ceil(columns).max(1);
    let width = PANEL.0 * columns as u32;
    let per_line = (width / LEGEND_ENTRY).max(1) as usize;
    let legend = LEGEND_LINE * entries.len().div_ceil(per_line) as u32 + 10;
    let height = TITLE + PANEL.1 * rows as u32 + legend;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        let fail = |error: DrawingAreaErrorKind<_>| anyhow!("drawing {title:?}: {error}");
        root.fill(&WHITE).map_err(fail)?;
        let (head, rest) = root.split_vertically(TITLE);
        head.draw(&Text::new(title, (16, 14), (FONT, 19).into_font())).map_err(fail)?;
        let (body, foot) = rest.split_vertically(height - TITLE - legend);
        for (area, panel) in body.split_evenly((rows, columns)).iter().zip(panels) {
            draw_panel(area, panel, extremes(panels.iter().filter(|other| other.y == panel.y)))?;
        }
        for (index, (name, style)) in entries.iter().enumerate() {
            let at = ((index % per_line) as i32 * LEGEND_ENTRY as i32 + 20, (index / per_line) as i32 * 24 + 12);
            draw_entry(&foot, at, name, *style).map_err(fail)?;
        }
        root.present().map_err(fail)?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawError = DrawingAreaErrorKind<<SVGBackend<'static> as DrawingBackend>::ErrorType>;

fn draw_entry(area: &Area<'_>, (x, y): (i32, i32), name: &str, style: Option<Style>) -> Result<(), DrawError> {
    match style {
        Some(style) => {
            let ends = [(x, y), (x + 38, y)];
            match style.dash {
                Some((dash, gap)) => area.draw(&DashedPathElement::new(ends, dash, gap, stroke(style)))?,
                None => area.draw(&PathElement::new(ends, stroke(style)))?,
            }
            if let Some(points) = outline(style.marker) {
                let points: Vec<_> = points.into_iter().map(|(dx, dy)| (x + 19 + dx, y + dy)).collect();
                let fill = if style.filled { style.colour } else { WHITE };
                area.draw(&Polygon::new(points.clone(), fill.filled()))?;
                area.draw(&PathElement::new(closed(points), style.colour.stroke_width(2)))?;
            }
        }
        None => {
            for points in cross() {
                let points: Vec<_> = points.into_iter().map(|(dx, dy)| (x + 19 + dx, y + dy)).collect();
                area.draw(&PathElement::new(points, BLACK.stroke_width(2)))?;
            }
        }
    }
    area.draw(&Text::new(name.to_owned(), (x + 46, y - 7), (FONT, 14).into_font()))
}

/// The least and the most that panels show; the most is at least 1.
fn extremes<'p>(panels: impl Iterator<Item = &'p Panel>) -> (f64, f64) {
    let of = |panel: &'p Panel| {
        let values = panel.lines.iter().flat_map(|line| &line.values).flat_map(|value| [value.least, value.most]);
        values.chain(panel.marks.iter().map(|mark| mark.y)).filter(|y| y.is_finite())
    };
    let all: Vec<f64> = panels.flat_map(of).collect();
    let most = all.iter().copied().fold(1.0, f64::max);
    (all.iter().copied().fold(most, f64::min), most)
}

/// Draws a panel whose vertical axis has room for these extremes.
fn draw_panel(area: &Area<'_>, panel: &Panel, (least, most): (f64, f64)) -> Result<()> {
    let fail = |error: DrawError| anyhow!("drawing {:?}: {error}", panel.title);
    let scale = |y: f64| if panel.logarithmic { y.max(1e-9).log10() } else { y };
    let (from, to, ticks) = if panel.logarithmic {
        let least = least.max(1e-3);
        (scale(least * 0.85), scale(most * 1.2), decades(least * 0.85, most * 1.2))
    } else {
        (0.0, most * 1.08, even(most * 1.08))
    };
    let (left, right, places) = match &panel.x.0 {
        Axis::Places(names) => (-0.3, names.len() as f64 - 0.7, (0..names.len()).map(|place| place as f64).collect()),
        Axis::UpTo(most) => (0.0, *most, even(*most)),
    };
    let ticks: Vec<f64> = ticks.into_iter().map(scale).collect();
    let (tick_count, place_count) = (ticks.len(), places.len());
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, (FONT, 16))
        .margin(8)
        .margin_right(16)
        .x_label_area_size(40)
        .y_label_area_size(58)
        .build_cartesian_2d(Ticks { from: left, to: right, at: places }, Ticks { from, to, at: ticks })
        .map_err(fail)?;
    // The logarithm and back may leave a hair.
    let number = |value: f64| {
        if (value - value.round()).abs() < 1e-6 { format!("{value:.0}") } else { format!("{value:.1}") }
    };
    let x_label = |x: &f64| match &panel.x.0 {
        Axis::Places(names) => names.get(x.round() as usize).cloned().unwrap_or_default(),
        Axis::UpTo(_) => number(*x),
    };
    let y_label = |y: &f64| number(if panel.logarithmic { 10f64.powf(*y) } else { *y });
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .x_labels(place_count)
        .y_labels(tick_count)
        .x_label_formatter(&x_label)
        .y_label_formatter(&y_label)
        .x_desc(panel.x.1)
        .y_desc(panel.y)
        .label_style((FONT, 13))
        .axis_desc_style((FONT, 14))
        .draw()
        .map_err(fail)?;
    for line in &panel.lines {
        let style = line.style;
        let points: Vec<(f64, f64)> = line.values.iter().map(|value| (value.x, scale(value.middle))).collect();
        match style.dash {
            Some((dash, gap)) => chart.draw_series(DashedLineSeries::new(points.clone(), dash, gap, stroke(style))),
            None => chart.draw_series(LineSeries::new(points.clone(), stroke(style))),
        }
        .map_err(fail)?;
        let spread = line.values.iter().filter(|value| value.least < value.most);
        let bars = spread.map(|Value { x, least, most, .. }| {
            PathElement::new([(*x, scale(*least)), (*x, scale(*most))], style.colour.stroke_width(1))
        });
        chart.draw_series(bars).map_err(fail)?;
        let fill = if style.filled { style.colour } else { WHITE };
        if let Some(shape) = outline(style.marker) {
            let fills = points.iter().map(|at| EmptyElement::at(*at) + Polygon::new(shape.clone(), fill.filled()));
            chart.draw_series(fills).map_err(fail)?;
            let edge = closed(shape);
            let edges = points
                .iter()
                .map(|at| EmptyElement::at(*at) + PathElement::new(edge.clone(), style.colour.stroke_width(2)));
            chart.draw_series(edges).map_err(fail)?;
        }
    }
    for mark in &panel.marks {
        // A cross, and an arrow to where the rest of what is stated lies.
        let mut strokes = cross().to_vec();
        if mark.bound != 0 {
            let end = -16 * mark.bound;
            strokes.push(vec![(0, 0), (0, end)]);
            strokes.push(vec![(-4, end + 5 * mark.bound), (0, end), (4, end + 5 * mark.bound)]);
        }
        for points in strokes {
            let element =
                EmptyElement::at((mark.x, scale(mark.y))) + PathElement::new(points, mark.style.colour.stroke_width(2));
            chart.draw_series([element]).map_err(fail)?;
        }
    }
    Ok(())
}

fn stroke(style: Style) -> ShapeStyle {
    style.colour.stroke_width(style.width)
}

/// A marker's corners around its place; none if there is no marker.
fn outline(marker: Marker) -> Option<Vec<(i32, i32)>> {
    let r = RADIUS;
    match marker {
        Marker::Circle => {
            let corner = |step: i32| {
                let (sin, cos) = (f64::from(step) * std::f64::consts::PI / 8.0).sin_cos();
                ((cos * f64::from(r)).round() as i32, (sin * f64::from(r)).round() as i32)
            };
            Some((0..16).map(corner).collect())
        }
        Marker::Square => Some(vec![(-r, -r), (r, -r), (r, r), (-r, r)]),
        Marker::Triangle => Some(vec![(0, -r - 1), (r + 1, r), (-r - 1, r)]),
        Marker::Diamond => Some(vec![(0, -r - 2), (r + 1, 0), (0, r + 2), (-r - 1, 0)]),
        Marker::None => None,
    }
}

fn cross() -> [Vec<(i32, i32)>; 2] {
    [vec![(-6, -6), (6, 6)], vec![(-6, 6), (6, -6)]]
}

fn closed(mut points: Vec<(i32, i32)>) -> Vec<(i32, i32)> {
    points.extend(points.first().copied());
    points
}

/// Round numbers from zero to `most`, some five of them.
fn even(most: f64) -> Vec<f64> {
    let rough = most / 5.0;
    let decade = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * decade).into_iter().find(|step| *step >= rough);
    let step = step.unwrap_or(rough);
    (0..).map(|count| f64::from(count) * step).take_while(|tick| *tick <= most).collect()
}

/// One, two and five of every decade between two numbers.
fn decades(least: f64, most: f64) -> Vec<f64> {
    let first = least.log10().floor() as i32;
    let last = most.log10().ceil() as i32;
    let ticks = (first..=last).flat_map(|decade| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(decade)));
    ticks.filter(|tick| (least..=most).contains(tick)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(even(108.0), [0.0, 25.0, 50.0, 75.0, 100.0]);
        assert_eq!(even(50.0), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0]);
        assert_eq!(decades(8.0, 110.0), [10.0, 20.0, 50.0, 100.0]);
    }

    #[test]
    fn a_drawing_names_its_curves_once_and_marks_what_others_state() {
        let line = |name: &str, style| Line {
            name: name.to_owned(),
            style,
            values: [(0.0, 9.0), (1.0, 80.0)]
                .map(|(x, middle)| Value { x, middle, least: middle * 0.9, most: middle * 1.1 })
                .to_vec(),
        };
        let panel = |logarithmic| Panel {
            title: "panel".to_owned(),
            x: (Axis::Places(vec!["0".to_owned(), "0.1".to_owned()]), "loss (%)"),
            y: "time (s)",
            logarithmic,
            lines: vec![line("one", Style::OURS), line("two", Style::TCP)],
            marks: vec![Mark { x: 1.0, y: 50.0, bound: 1, style: Style::TCP }],
        };
        let svg = draw("title", &[panel(true), panel(false)], "stated elsewhere").unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for text in ["one", "two", "stated elsewhere", "time (s)"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg.matches("\none\n").count(), 1, "one entry for both panels' curve");
    }
}
