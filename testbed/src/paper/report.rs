//! Records as curves, as rows for spreadsheets, and beside what is stated.

use tandem_proto::congestion::Algorithm;

use super::claim::{Claim, Quantity, Reading, Role, Stated, Which, median};
use super::figure::{Figure, Shows};
use super::plot::{Axis, Line, Mark, Panel, Style, Value};
use super::point::{Carrier, Scheme};
use super::record::{Measured, Record, Records};

/// A figure, the records, and which of them are meant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Report<'r> {
    /// The figure.
    pub(super) figure: &'r Figure,
    /// All records.
    pub(super) records: &'r Records,
    /// Whether quick runs are meant.
    pub(super) quick: bool,
}

/// One drawing: what its file's name has behind the figure's, its title, its panels.
#[derive(Debug)]
pub(super) struct Drawing {
    /// Empty if the figure has one drawing.
    pub(super) suffix: String,
    /// Its title.
    pub(super) title: String,
    /// Its panels.
    pub(super) panels: Vec<Panel>,
}

/// The middle, the least and the most of some runs, and how many.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    /// The middle.
    pub(super) middle: f64,
    /// The least.
    pub(super) least: f64,
    /// The most.
    pub(super) most: f64,
    /// How many runs.
    pub(super) runs: usize,
}

impl Summary {
    /// Of these values; `None` of none.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        let middle = median(&mut sorted)?;
        Some(Self { middle, least: *sorted.first()?, most: *sorted.last()?, runs: sorted.len() })
    }
}

/// One value of one curve.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// The carrier's name.
    pub(super) carrier: &'static str,
    /// The scheme.
    pub(super) scheme: Scheme,
    /// Loss on each network, in percent.
    pub(super) loss_percent: f64,
    /// What it is, with its unit.
    pub(super) quantity: &'static str,
    /// The runs.
    pub(super) summary: Summary,
}

/// What is stated beside what our runs say.
#[derive(Debug, Clone)]
pub(super) struct Beside {
    /// The statement.
    pub(super) claim: Claim,
    /// Ours, for each who plays BBRv3; `None`: not measured yet.
    pub(super) ours: Vec<Option<Summary>>,
}

impl<'r> Report<'r> {
    fn reading(&self, bbr3: Algorithm) -> Reading<'r> {
        Reading { records: self.records, figure: self.figure, quick: self.quick, bbr3 }
    }

    /// The records of the figure's runs.
    pub(super) fn all(&self) -> Vec<&'r Record> {
        let jobs = self.figure.jobs(self.quick);
        jobs.iter().flat_map(|(bed, point)| self.records.of(*bed, point)).collect()
    }

    /// What a carrier's runs with a scheme at a loss came to.
    fn runs(&self, carrier: Carrier, scheme: Scheme, loss_percent: f64) -> Vec<&'r Measured> {
        let point = self.figure.point(carrier, scheme, loss_percent);
        let Some((bed, point)) = self.figure.as_run(point, self.quick) else { return Vec::new() };
        self.records.of(bed, &point).into_iter().map(|record| &record.measured).collect()
    }

    /// Everything that is drawn and more, as rows.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        let file = self.figure.file_bytes(self.quick) as f64;
        let curves = self.figure.curves.iter().flat_map(|(carrier, schemes)| schemes.iter().map(|s| (*carrier, *s)));
        let alone = (self.figure.rivals > 0).then_some((Carrier::Nobody, Scheme::Both));
        for (carrier, scheme) in alone.into_iter().chain(curves) {
            for loss_percent in self.figure.losses.iter().copied() {
                let runs = self.runs(carrier, scheme, loss_percent);
                let mut add = |quantity, values: Vec<f64>| {
                    let Some(summary) = Summary::of(&values) else { return };
                    rows.push(Row { carrier: carrier.name(), scheme, loss_percent, quantity, summary });
                };
                let each = |value: &dyn Fn(&Measured) -> f64| runs.iter().map(|run| value(run)).collect::<Vec<_>>();
                if carrier != Carrier::Nobody {
                    add("goodput (Mbit/s)", each(&Measured::goodput_mbps));
                }
                if self.figure.rivals == 0 {
                    add("download time (s)", each(&|run| file * 8e-6 / run.goodput_mbps()));
                    add("sent by the client per byte", each(&|run| run.sent_bytes[0] as f64 / run.bytes.max(1) as f64));
                    add("sent by the server per byte", each(&|run| run.sent_bytes[1] as f64 / run.bytes.max(1) as f64));
                } else if carrier == Carrier::Nobody {
                    add("TCP on the first network (Mbit/s)", each(&|run| rival(run, 0)));
                    add("TCP on the second network (Mbit/s)", each(&|run| rival(run, 1)));
                } else {
                    add("TCP on the reference network (Mbit/s)", each(&|run| rival(run, run.reference())));
                    if scheme.networks() > 1 {
                        add("TCP on the other network (Mbit/s)", each(&|run| rival(run, 1 - run.reference())));
                    }
                }
                if let Some((role, bbr3)) = role(carrier).filter(|_| self.figure.rivals == 0) {
                    let count = Quantity::Acknowledgements((role, scheme));
                    add("acknowledgements at the server", self.reading(bbr3).values(count, loss_percent));
                }
                if let Some((role, bbr3)) = role(carrier).filter(|_| self.figure.rivals > 0) {
                    let kept = |which| self.reading(bbr3).values(Quantity::Kept((role, scheme), which), loss_percent);
                    add("kept on the reference network (%)", kept(Which::Reference));
                    add("kept on the other network (%)", kept(Which::Other));
                    let jain = self.reading(bbr3).values(Quantity::Jain((role, scheme)), loss_percent);
                    add("Jain's index on the reference network", jain);
                }
            }
        }
        rows
    }

    /// The rows as comma-separated values.
    pub(super) fn csv(&self) -> String {
        let mut text = "carrier,scheme,loss_percent,quantity,median,least,most,runs\n".to_owned();
        for Row { carrier, scheme, loss_percent, quantity, summary } in self.rows() {
            let Summary { middle, least, most, runs } = summary;
            let scheme = scheme.title();
            text += &format!("{carrier},{scheme},{loss_percent},{quantity},{middle:.3},{least:.3},{most:.3},{runs}\n");
        }
        text
    }

    /// Each of these statements beside ours; BBRv3 is played by each of `players` in turn.
    pub(super) fn beside(&self, claims: &[Claim], players: &[Algorithm]) -> Vec<Beside> {
        let of = |claim: &Claim| {
            let value = |bbr3| Summary::of(&self.reading(bbr3).values(claim.quantity, claim.loss_percent));
            Beside { claim: *claim, ours: players.iter().map(|bbr3| value(*bbr3)).collect() }
        };
        claims.iter().map(of).collect()
    }

    /// The drawings for which there are runs.
    pub(super) fn drawings(&self) -> Vec<Drawing> {
        let Figure { title, shows, .. } = *self.figure;
        let title = match (self.quick, self.figure.file_bytes(true)) {
            (false, _) => title.to_owned(),
            (true, 0) => format!("{title} (quick, in virtual time)"),
            (true, _) => format!("{title} (quick: a tenth of it, in virtual time)"),
        };
        let one = |panels| vec![Drawing { suffix: String::new(), title: title.clone(), panels }];
        let mut drawings = match shows {
            Shows::Time => one(self.times()),
            Shows::Window => one(self.windows()),
            Shows::Bytes => one(self.bytes()),
            Shows::Sharing => {
                let carriers: Vec<_> = self.figure.curves.iter().map(|(carrier, _)| *carrier).collect();
                let drawing = |carrier: &Carrier| Drawing {
                    suffix: if carriers.len() > 1 { format!("-{}", carrier.name()) } else { String::new() },
                    title: format!("{}: {title}", carrier.title()),
                    panels: self.sharing(*carrier),
                };
                carriers.iter().map(drawing).collect()
            }
        };
        for panel in drawings.iter_mut().flat_map(|drawing| &mut drawing.panels) {
            panel.lines.retain(|line| !line.values.is_empty());
        }
        drawings.retain(|drawing| drawing.panels.iter().any(|panel| !panel.lines.is_empty()));
        drawings
    }

    fn places(&self) -> (Axis, &'static str) {
        let places = self.figure.losses.iter().map(f64::to_string).collect();
        (Axis::Places(places), "loss on each network, both ways (%)")
    }

    /// A curve over all losses.
    fn line(
        &self,
        name: impl Into<String>,
        style: Style,
        carrier: Carrier,
        scheme: Scheme,
        value: &dyn Fn(&Measured) -> f64,
    ) -> Line {
        let at = |(place, loss): (usize, &f64)| {
            let values: Vec<f64> = self.runs(carrier, scheme, *loss).into_iter().map(value).collect();
            let Summary { middle, least, most, .. } = Summary::of(&values)?;
            Some(Value { x: place as f64, middle, least, most })
        };
        Line { name: name.into(), style, values: self.figure.losses.iter().enumerate().filter_map(at).collect() }
    }

    /// Where a loss stands on the axis.
    fn place(&self, loss_percent: f64) -> Option<f64> {
        self.figure.losses.iter().position(|loss| *loss == loss_percent).map(|place| place as f64)
    }

    fn times(&self) -> Vec<Panel> {
        let file = self.figure.file_bytes(self.quick) as f64;
        let time = |run: &Measured| file * 8e-6 / run.goodput_mbps();
        let panel = |scheme: Scheme| {
            let carriers = self.figure.curves.iter().filter(|(_, schemes)| schemes.contains(&scheme));
            let lines = carriers.map(|(carrier, _)| {
                let shown = self.as_shown(*carrier);
                self.line(shown.title(), style(shown), *carrier, scheme, &time)
            });
            // A stated change is drawn from our time of what it is stated against.
            let mark = |claim: &Claim| {
                let (of, y) = match claim.quantity {
                    Quantity::TimeChange(of, against) if of.1 == scheme => {
                        let runs = self.reading(Algorithm::Bbr3Draft).runs(against, claim.loss_percent);
                        let base = median(&mut runs.into_iter().map(time).collect::<Vec<_>>())?;
                        (of, base * (1.0 + claim.stated.value() / 100.0))
                    }
                    Quantity::Goodput(of) if of.1 == scheme => (of, file * 8e-6 / claim.stated.value()),
                    _ => return None,
                };
                let carrier = self.as_shown(of.0.carrier(Algorithm::Bbr3Draft));
                Some(Mark { x: self.place(claim.loss_percent)?, y, bound: bound(claim.stated), style: style(carrier) })
            };
            Panel {
                title: scheme.title().to_owned(),
                x: self.places(),
                y: "download time (s)",
                logarithmic: true,
                lines: lines.collect(),
                marks: self.figure.stated.iter().filter_map(mark).collect(),
            }
        };
        self.figure.schemes().into_iter().map(panel).collect()
    }

    fn windows(&self) -> Vec<Panel> {
        let panel = |scheme: Scheme| {
            let course = |(carrier, _): &(Carrier, &[Scheme])| {
                let runs = self.runs(*carrier, scheme, self.figure.losses[0]);
                let course = runs.first().map(|run| run.window.as_slice()).unwrap_or_default();
                let value = |(at, bytes): &(f64, u64)| {
                    let middle = *bytes as f64 / 1e3;
                    Value { x: *at, middle, least: middle, most: middle }
                };
                let values = course.iter().map(value).collect();
                Line { name: carrier.title().to_owned(), style: style(*carrier).plain(), values }
            };
            let lines: Vec<Line> = self.figure.curves.iter().map(course).collect();
            let last = lines.iter().flat_map(|line| &line.values).map(|value| value.x).fold(1.0, f64::max);
            Panel {
                title: scheme.title().to_owned(),
                x: (Axis::UpTo(last), "time (s)"),
                y: "congestion window (kB)",
                logarithmic: true,
                lines,
                marks: Vec::new(),
            }
        };
        self.figure.schemes().into_iter().map(panel).collect()
    }

    fn bytes(&self) -> Vec<Panel> {
        let file = self.figure.file_bytes(self.quick) as f64;
        let styles = [Style::TCP, Style::DRAFT, Style::BBR1, Style::OURS];
        let panel = |carrier: Carrier, side: usize| {
            let sent = |run: &Measured| run.sent_bytes[side] as f64 / run.bytes.max(1) as f64 * file / 1e6;
            let lines = Scheme::ALL.into_iter().zip(styles);
            let lines: Vec<Line> =
                lines.map(|(scheme, style)| self.line(scheme.title(), style, carrier, scheme, &sent)).collect();
            let mark = |claim: &Claim| {
                let Quantity::ServerBytesOfLossless((role, scheme)) = claim.quantity else { return None };
                if self.figure.bbr3s().into_iter().all(|bbr3| role.carrier(bbr3) != carrier) {
                    return None;
                }
                let line = lines.iter().find(|line| line.name == scheme.title())?;
                let lossless = line.values.iter().find(|value| value.x == 0.0)?.middle;
                let y = lossless * claim.stated.value() / 100.0;
                let x = self.place(claim.loss_percent)?;
                Some(Mark { x, y, bound: bound(claim.stated), style: line.style })
            };
            let marks = if side == 1 { self.figure.stated.iter().filter_map(mark).collect() } else { Vec::new() };
            Panel {
                title: carrier.title().to_owned(),
                x: self.places(),
                y: if side == 0 { "sent by the client (MB)" } else { "sent by the server (MB)" },
                logarithmic: false,
                lines,
                marks,
            }
        };
        self.figure.curves.iter().flat_map(|(carrier, _)| [panel(*carrier, 0), panel(*carrier, 1)]).collect()
    }

    fn sharing(&self, carrier: Carrier) -> Vec<Panel> {
        let schemes = self.figure.curves.iter().find(|(known, _)| *known == carrier).map_or(&[][..], |(_, s)| *s);
        let panel = |scheme: Scheme| {
            let rivals = self.as_shown(self.figure.rival).title();
            let name = |which: &str| match self.figure.rivals {
                1 => format!("{rivals}, {which} network"),
                count => format!("{count} {rivals}, {which} network"),
            };
            let alone = |network: usize| {
                let title = if network == 0 { "the same alone".to_owned() } else { "alone, second network".to_owned() };
                self.line(title, Style::ALONE, Carrier::Nobody, Scheme::Both, &|run| rival(run, network))
            };
            let mut lines = vec![
                self.line("QUIC", style(carrier), carrier, scheme, &Measured::goodput_mbps),
                self.line(name("reference"), Style::TCP, carrier, scheme, &|run| rival(run, run.reference())),
            ];
            if scheme.networks() > 1 {
                lines.push(
                    self.line(name("other"), Style::OTHER_TCP, carrier, scheme, &|run| rival(run, 1 - run.reference())),
                );
            }
            lines.push(alone(0));
            let [rate, other] = self.figure.topology.rates_mbit;
            if rate != other {
                lines.push(alone(1));
            }
            let mark = |claim: &Claim| {
                let (of, y, style) = match claim.quantity {
                    Quantity::Goodput(of) => (of, claim.stated.value(), style(carrier)),
                    Quantity::Kept(of, which) => {
                        let runs = self.reading(Algorithm::Bbr3Draft).alone(claim.loss_percent);
                        let alone = median(&mut runs.into_iter().map(|run| rival(run, 0)).collect::<Vec<_>>())?;
                        let style = if which == Which::Reference { Style::TCP } else { Style::OTHER_TCP };
                        (of, alone * claim.stated.value() / 100.0, style)
                    }
                    _ => return None,
                };
                let x = self.place(claim.loss_percent)?;
                (of.1 == scheme).then_some(Mark { x, y, bound: bound(claim.stated), style })
            };
            Panel {
                title: scheme.title().to_owned(),
                x: self.places(),
                y: "goodput (Mbit/s)",
                logarithmic: false,
                lines,
                marks: self.figure.stated.iter().filter_map(mark).collect(),
            }
        };
        schemes.iter().map(|scheme| panel(*scheme)).collect()
    }

    /// The carrier that really ran: in virtual time another stands in for the kernel's.
    fn as_shown(&self, carrier: Carrier) -> Carrier {
        let point = self.figure.point(carrier, Scheme::Both, 0.0);
        self.figure.as_run(point, self.quick).map_or(carrier, |(_, point)| point.carrier)
    }
}

/// What competitors on a network got, in Mbit/s.
fn rival(run: &Measured, network: usize) -> f64 {
    run.rivals_mbps.get(network).copied().unwrap_or(f64::NAN)
}

/// Who the carrier is to the paper, and which BBRv3 that means.
fn role(carrier: Carrier) -> Option<(Role, Algorithm)> {
    match carrier {
        Carrier::Tandem(Algorithm::Bbr1) => Some((Role::Bbr1, Algorithm::Bbr3)),
        Carrier::Tandem(Algorithm::Bbr2) => Some((Role::Bbr2, Algorithm::Bbr3)),
        Carrier::Tandem(Algorithm::BbrCws) => Some((Role::BbrCws, Algorithm::Bbr3)),
        Carrier::Tandem(bbr3 @ (Algorithm::Bbr3 | Algorithm::Bbr3Draft)) => Some((Role::Bbr3, bbr3)),
        Carrier::TcpCubic => Some((Role::Tcp, Algorithm::Bbr3)),
        _ => None,
    }
}

fn style(carrier: Carrier) -> Style {
    match carrier {
        Carrier::Tandem(Algorithm::Bbr3) => Style::OURS,
        Carrier::Tandem(Algorithm::Bbr3Draft) => Style::DRAFT,
        Carrier::Tandem(Algorithm::Bbr1) => Style::BBR1,
        Carrier::Tandem(Algorithm::Bbr2) => Style::BBR2,
        Carrier::Tandem(Algorithm::BbrCws) => Style::BBR_CWS,
        Carrier::TcpBbr => Style::OTHER_TCP,
        _ => Style::TCP,
    }
}

fn bound(stated: Stated) -> i32 {
    match stated {
        Stated::About(..) | Stated::Between(..) => 0,
        Stated::AtLeast(_) => 1,
        Stated::AtMost(_) => -1,
    }
}
