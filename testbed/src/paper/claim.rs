//! What is stated of an experiment, by the paper or as this project's aim, and what our records say to it.

use std::fmt;

use tandem_proto::congestion::Algorithm;
use tandem_proto::measure::jain;

use super::figure::Figure;
use super::point::{Carrier, Point, Scheme};
use super::record::{BedKind, Measured, Records};

/// A carrier, as the paper speaks of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// TCP with CUBIC.
    Tcp,
    /// QUIC with BBRv1.
    Bbr1,
    /// QUIC with BBRv2, which the paper does not have.
    Bbr2,
    /// QUIC with BBR-CWS, which the paper does not have.
    BbrCws,
    /// QUIC with BBRv3: the paper's was its library's of that time, ours are the draft's and the default.
    Bbr3,
}

/// A curve of a figure: who, and whose packets travel twice.
pub type Curve = (Role, Scheme);

/// The network whose competitor is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// The one that carries the originals: most of the carrier's packets.
    Reference,
    /// The other.
    Other,
}

/// Something that can be read from records.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantity {
    /// How much longer the first curve's download takes than the second's, in percent.
    TimeChange(Curve, Curve),
    /// What the application gets, in Mbit/s.
    Goodput(Curve),
    /// Throughput utilization (section 4.3.2): what the competitor on a network gets of what it gets alone, in percent.
    Kept(Curve, Which),
    /// What the carrier and the competitor on the reference network get together, in Mbit/s.
    Together(Curve),
    /// Jain's index of the carrier and the competitors on the reference network.
    Jain(Curve),
    /// Acknowledgement frames that the sender gets during the download; of one that was cut off as many as it would have got.
    Acknowledgements(Curve),
    /// Bytes that the server sends, in percent of those without loss.
    ServerBytesOfLossless(Curve),
    /// Bytes that the server sends with the first curve, in percent of those with the second.
    ServerBytesOf(Curve, Curve),
}

/// What is stated of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stated {
    /// About this; within the tolerance behind it, which is ours, two results agree.
    About(f64, f64),
    /// Between these.
    Between(f64, f64),
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// A statement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Claim {
    /// The section that states it, or `aim`.
    pub source: &'static str,
    /// What it is about.
    pub quantity: Quantity,
    /// At which loss on each network, in percent.
    pub loss_percent: f64,
    /// What it states.
    pub stated: Stated,
}

impl Stated {
    /// Whether a measured value is what was stated.
    pub fn agrees(self, value: f64) -> bool {
        match self {
            Stated::About(stated, tolerance) => (value - stated).abs() <= tolerance,
            Stated::Between(least, most) => (least..=most).contains(&value),
            Stated::AtLeast(least) => value >= least,
            Stated::AtMost(most) => value <= most,
        }
    }

    /// One value to draw: the middle, or the bound.
    pub fn value(self) -> f64 {
        match self {
            Stated::About(value, _) | Stated::AtLeast(value) | Stated::AtMost(value) => value,
            Stated::Between(least, most) => (least + most) / 2.0,
        }
    }
}

impl fmt::Display for Stated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stated::About(value, _) => write!(f, "{value}"),
            Stated::Between(least, most) => write!(f, "{least} to {most}"),
            Stated::AtLeast(least) => write!(f, "≥ {least}"),
            Stated::AtMost(most) => write!(f, "≤ {most}"),
        }
    }
}

impl Role {
    /// Who plays it, if BBRv3 is played by `bbr3`.
    pub fn carrier(self, bbr3: Algorithm) -> Carrier {
        match self {
            Role::Tcp => Carrier::TcpCubic,
            Role::Bbr1 => Carrier::Tandem(Algorithm::Bbr1),
            Role::Bbr2 => Carrier::Tandem(Algorithm::Bbr2),
            Role::BbrCws => Carrier::Tandem(Algorithm::BbrCws),
            Role::Bbr3 => Carrier::Tandem(bbr3),
        }
    }

    fn title(self) -> &'static str {
        match self {
            Role::Tcp => "TCP",
            Role::Bbr1 => "BBRv1",
            Role::Bbr2 => "BBRv2",
            Role::BbrCws => "BBR-CWS",
            Role::Bbr3 => "BBRv3",
        }
    }
}

impl Quantity {
    /// The curves that it is about.
    pub fn curves(self) -> Vec<Curve> {
        match self {
            Quantity::TimeChange(of, against) | Quantity::ServerBytesOf(of, against) => vec![of, against],
            Quantity::Goodput(of)
            | Quantity::Kept(of, _)
            | Quantity::Together(of)
            | Quantity::Jain(of)
            | Quantity::Acknowledgements(of)
            | Quantity::ServerBytesOfLossless(of) => vec![of],
        }
    }

    /// Its unit; empty for a number.
    pub fn unit(self) -> &'static str {
        match self {
            Quantity::Goodput(_) | Quantity::Together(_) => "Mbit/s",
            Quantity::Acknowledgements(_) | Quantity::Jain(_) => "",
            _ => "%",
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |(role, scheme): Curve| format!("{} {}", role.title(), scheme.title());
        match *self {
            Quantity::TimeChange(of, against) => write!(f, "{}: time against {}", name(of), name(against)),
            Quantity::Goodput(of) => write!(f, "{}: goodput", name(of)),
            Quantity::Kept(of, Which::Reference) => write!(f, "{}: TCP on the reference network keeps", name(of)),
            Quantity::Kept(of, Which::Other) => write!(f, "{}: TCP on the other network keeps", name(of)),
            Quantity::Together(of) => write!(f, "{}: with TCP on the reference network", name(of)),
            Quantity::Jain(of) => write!(f, "{}: Jain's index on the reference network", name(of)),
            Quantity::Acknowledgements(of) => write!(f, "{}: acknowledgements at the server", name(of)),
            Quantity::ServerBytesOfLossless(of) => write!(f, "{}: server's bytes, of those at 0 %", name(of)),
            Quantity::ServerBytesOf(of, against) => write!(f, "{}: server's bytes, of {}", name(of), name(against)),
        }
    }
}

/// How a claim is read: from which runs, and who plays BBRv3.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading<'r> {
    /// The records.
    pub(super) records: &'r Records,
    /// The figure.
    pub(super) figure: &'r Figure,
    /// Whether the quick runs are meant.
    pub(super) quick: bool,
    /// Who plays BBRv3.
    pub(super) bbr3: Algorithm,
}

impl<'r> Reading<'r> {
    /// The bed and the point of a curve at a loss, as they are run; `None` if they are not.
    pub(super) fn job(&self, (role, scheme): Curve, loss_percent: f64) -> Option<(BedKind, Point)> {
        let point = self.figure.point(role.carrier(self.bbr3), scheme, loss_percent);
        self.figure.as_run(point, self.quick)
    }

    /// What the runs of a curve came to, by seed.
    pub(super) fn runs(&self, curve: Curve, loss_percent: f64) -> Vec<&'r Measured> {
        let job = self.job(curve, loss_percent);
        self.of(job)
    }

    /// What the competitors' runs without anybody came to.
    pub(super) fn alone(&self, loss_percent: f64) -> Vec<&'r Measured> {
        let point = self.figure.point(Carrier::Nobody, Scheme::Both, loss_percent);
        self.of(self.figure.as_run(point, self.quick))
    }

    fn of(&self, job: Option<(BedKind, Point)>) -> Vec<&'r Measured> {
        let Some((bed, point)) = job else { return Vec::new() };
        self.records.of(bed, &point).into_iter().map(|record| &record.measured).collect()
    }

    /// The value of a quantity in each run of its first curve; empty while runs are missing.
    pub(super) fn values(&self, quantity: Quantity, loss_percent: f64) -> Vec<f64> {
        let each = |of: Curve, value: &dyn Fn(&Measured) -> f64| -> Vec<f64> {
            self.runs(of, loss_percent).into_iter().map(value).collect()
        };
        // A ratio whose base is not there yet has no value.
        let share_of = |base: Option<f64>, of: Curve, value: &dyn Fn(&Measured) -> f64| {
            base.map_or_else(Vec::new, |base| each(of, &|measured| value(measured) * 100.0 / base))
        };
        let middle = |of: Curve, loss: f64, value: &dyn Fn(&Measured) -> f64| {
            median(&mut self.runs(of, loss).into_iter().map(value).collect::<Vec<_>>())
        };
        let file = self.figure.file_bytes(self.quick) as f64;
        let time = |measured: &Measured| file * 8e-6 / measured.goodput_mbps();
        // What was sent for each byte that arrived: a file that was cut off is measured like a whole one.
        let sent = |measured: &Measured| measured.sent_bytes[1] as f64 / measured.bytes.max(1) as f64;
        match quantity {
            Quantity::TimeChange(of, against) => {
                let shares = share_of(middle(against, loss_percent, &time), of, &time);
                shares.into_iter().map(|share| share - 100.0).collect()
            }
            Quantity::Goodput(of) => each(of, &Measured::goodput_mbps),
            Quantity::Kept(of, which) => {
                let network = |measured: &Measured| match which {
                    Which::Reference => measured.reference(),
                    Which::Other => 1 - measured.reference(),
                };
                let alone = self.alone(loss_percent);
                let alone = [0, 1].map(|network| {
                    median(&mut alone.iter().filter_map(|m| m.rivals_mbps.get(network).copied()).collect::<Vec<_>>())
                });
                let kept = |measured: &&Measured| {
                    let network = network(measured);
                    Some(measured.rivals_mbps.get(network)? * 100.0 / alone[network]?)
                };
                self.runs(of, loss_percent).iter().filter_map(kept).collect()
            }
            Quantity::Together(of) => each(of, &|measured| {
                measured.goodput_mbps() + measured.rivals_mbps.get(measured.reference()).copied().unwrap_or_default()
            }),
            Quantity::Jain(of) => {
                let index = |measured: &&Measured| {
                    let rivals = self.figure.rivals;
                    let rate = measured.rivals_mbps.get(measured.reference()).copied().unwrap_or_default();
                    let shares = std::iter::repeat_n(rate / f64::from(rivals), rivals as usize);
                    jain(shares.chain([measured.goodput_mbps()]))
                };
                self.runs(of, loss_percent).iter().filter_map(index).collect()
            }
            Quantity::Acknowledgements(of) => {
                let whole = |run: &&Measured| Some(run.acknowledgements? as f64 * file / run.bytes.max(1) as f64);
                self.runs(of, loss_percent).iter().filter_map(whole).collect()
            }
            Quantity::ServerBytesOfLossless(of) => share_of(middle(of, 0.0, &sent), of, &sent),
            Quantity::ServerBytesOf(of, against) => share_of(middle(against, loss_percent, &sent), of, &sent),
        }
    }
}

/// The middle value; of an even number the mean of the middle two; `None` of none.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[half]),
        _ => Some((values[half - 1] + values[half]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn a_value_agrees_within_what_is_stated() {
        assert!(Stated::About(-32.0, 10.0).agrees(-41.0) && !Stated::About(-32.0, 10.0).agrees(-43.0));
        assert!(Stated::Between(75.0, 83.0).agrees(75.0) && !Stated::Between(75.0, 83.0).agrees(84.0));
        assert!(Stated::AtLeast(90.0).agrees(90.0) && !Stated::AtMost(90.0).agrees(91.0));
        assert!(!Stated::AtLeast(90.0).agrees(f64::NAN));
    }
}
