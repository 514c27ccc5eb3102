//! An experiment as data: who downloads over which networks beside whom, what is stated of it, and which runs it takes.

use tandem_proto::congestion::Algorithm;

use super::claim::Claim;
use super::point::{Amount, Carrier, Point, Scheme, Topology};
use super::record::BedKind;

/// What a figure draws.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shows {
    /// Download time by loss, a panel for each pair of schemes.
    Time,
    /// The sender's window over time, a panel for each scheme.
    Window,
    /// Bytes sent by either side, by loss.
    Bytes,
    /// What the carrier and its competitors get, by loss, a panel for each scheme.
    Sharing,
}

/// One experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// The paper's number, or a word.
    pub id: &'static str,
    /// What is looked at.
    pub title: &'static str,
    /// Where the paper has it; for experiments of ours, what they add to.
    pub citation: &'static str,
    /// Where the full experiment is run.
    pub bed: BedKind,
    /// The networks.
    pub topology: Topology,
    /// Who, with which schemes.
    pub curves: &'static [(Carrier, &'static [Scheme])],
    /// Loss on each network, both ways, in percent.
    pub losses: &'static [f64],
    /// How many TCP flows compete on each network.
    pub rivals: u32,
    /// What those run.
    pub rival: Carrier,
    /// How much is downloaded.
    pub amount: Amount,
    /// What is drawn.
    pub shows: Shows,
    /// What the paper states.
    pub stated: &'static [Claim],
    /// What we want.
    pub aims: &'static [Claim],
}

impl Figure {
    /// The point of a carrier and scheme at a loss.
    pub fn point(&self, carrier: Carrier, scheme: Scheme, loss_percent: f64) -> Point {
        let Self { topology, rivals, rival, amount, .. } = *self;
        Point { carrier, scheme, loss_percent, topology, rivals, rival, amount }
    }

    /// How and where a point is run; `None` if a quick run cannot.
    pub fn as_run(&self, point: Point, quick: bool) -> Option<(BedKind, Point)> {
        if quick { Some((BedKind::Virtual, point.in_virtual_time()?)) } else { Some((self.bed, point)) }
    }

    /// Every run that the figure needs, once each.
    pub fn jobs(&self, quick: bool) -> Vec<(BedKind, Point)> {
        let mut jobs = Vec::new();
        for loss in self.losses {
            let alone = (self.rivals > 0).then(|| self.point(Carrier::Nobody, Scheme::Both, *loss));
            let curves =
                self.curves.iter().flat_map(|(carrier, schemes)| schemes.iter().map(|scheme| (*carrier, *scheme)));
            let points = curves.map(|(carrier, scheme)| self.point(carrier, scheme, *loss));
            jobs.extend(alone.into_iter().chain(points).filter_map(|point| self.as_run(point, quick)));
        }
        jobs
    }

    /// The length of the file, if one is downloaded, in bytes; else zero.
    pub fn file_bytes(&self, quick: bool) -> u64 {
        let point = self.point(Carrier::Nobody, Scheme::Both, 0.0);
        let amount = self.as_run(point, quick).map_or(self.amount, |(_, point)| point.amount);
        match amount {
            Amount::File { bytes, .. } => bytes,
            Amount::Window { .. } => 0,
        }
    }

    /// Whether somebody who asks for `word` means this: its id, or one of the numbers that make it.
    pub fn is_meant(&self, word: &str) -> bool {
        let numbers = self.id.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        self.id == word || numbers && self.id.split('-').any(|number| number == word)
    }

    /// The schemes of its curves, in the paper's order.
    pub fn schemes(&self) -> Vec<Scheme> {
        let has = |scheme: &Scheme| self.curves.iter().any(|(_, schemes)| schemes.contains(scheme));
        Scheme::ALL.into_iter().filter(has).collect()
    }

    /// The controllers that play BBRv3 in it, the draft's first; one for a figure without.
    pub fn bbr3s(&self) -> Vec<Algorithm> {
        let has =
            |algorithm: &Algorithm| self.curves.iter().any(|(carrier, _)| *carrier == Carrier::Tandem(*algorithm));
        let found: Vec<_> = [Algorithm::Bbr3Draft, Algorithm::Bbr3].into_iter().filter(has).collect();
        if found.is_empty() { vec![Algorithm::Bbr3] } else { found }
    }
}
