//! The paper's figures and tables as data, and more experiments of the same kind: who downloads over which networks beside
//! whom, what the paper states, and what we want.
//!
//! The paper is "Communication Bicasting for Improving Throughput and Fairness in Multihomed Networks Using QUIC with BBRv3",
//! Telecom 2026, 7(2), 29 (doi 10.3390/telecom7020029); sections and figures are its own.
//! Its plots' points are not in its text, so that only stated values are here. It states neither its queue nor whether
//! packets are lost before or behind it; its TCP figures fit an end-to-end round trip of 10 ms.

use tandem_proto::congestion::Algorithm;

use super::claim::Quantity::{
    Acknowledgements, Goodput, Jain, Kept, ServerBytesOf, ServerBytesOfLossless, TimeChange, Together,
};
use super::claim::Stated::{About, AtLeast, AtMost, Between};
use super::claim::Which::{Other, Reference};
use super::claim::{Claim, Curve, Quantity, Role, Stated};
use super::figure::{Figure, Shows};
use super::point::Scheme::{Both, Client, Server, Unicast};
use super::point::{Amount, Carrier, Scheme, Topology};
use super::record::BedKind;

const TCP: Carrier = Carrier::TcpCubic;
const BBR1: Carrier = Carrier::Tandem(Algorithm::Bbr1);
const BBR2: Carrier = Carrier::Tandem(Algorithm::Bbr2);
const BBR_CWS: Carrier = Carrier::Tandem(Algorithm::BbrCws);
const BBR3: Carrier = Carrier::Tandem(Algorithm::Bbr3);
const BBR3_DRAFT: Carrier = Carrier::Tandem(Algorithm::Bbr3Draft);

const fn curve(role: Role, scheme: Scheme) -> Curve {
    (role, scheme)
}

/// What the paper states in a section.
const fn paper(source: &'static str, quantity: Quantity, loss_percent: f64, stated: Stated) -> Claim {
    Claim { source, quantity, loss_percent, stated }
}

/// What we want.
const fn aim(quantity: Quantity, loss_percent: f64, stated: Stated) -> Claim {
    Claim { source: "aim", quantity, loss_percent, stated }
}

/// 100 MB, as the paper's; what takes more than a minute is measured by what has come.
const FILE: Amount = Amount::File { bytes: 100_000_000, longest_s: 60 };
/// Half a minute once all flows have found their rates.
const WINDOW: Amount = Amount::Window { settle_s: 8, window_s: 30 };

/// Results in percentage points or Mbit/s that are nearer than this agree: runs of either side differ by as much.
const NEAR: f64 = 10.0;

/// "Fair", of two flows: one has at most twice what the other has. The paper has no number.
const FAIR: Stated = AtLeast(0.9);

const FIGURE_6: Figure = Figure {
    id: "6",
    title: "Download time of 100 MB, server's packets once",
    citation: "Figure 6, section 4.2.2; section 6",
    bed: BedKind::Namespaces,
    topology: Topology::PAPER,
    curves: &[
        (TCP, &[Unicast, Client]),
        (Carrier::TcpBbr, &[Unicast]),
        (BBR1, &[Unicast, Client]),
        (BBR3_DRAFT, &[Unicast, Client]),
        (BBR3, &[Unicast, Client]),
    ],
    losses: &[0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 15.0],
    rivals: 0,
    rival: TCP,
    amount: FILE,
    shows: Shows::Time,
    stated: &[
        paper("4.2.2", TimeChange(curve(Role::Bbr1, Unicast), curve(Role::Tcp, Unicast)), 1.0, Between(-87.0, -80.0)),
        paper("4.2.2", TimeChange(curve(Role::Bbr1, Client), curve(Role::Tcp, Client)), 1.0, Between(-87.0, -80.0)),
        paper("4.2.2", TimeChange(curve(Role::Bbr1, Unicast), curve(Role::Tcp, Unicast)), 2.0, About(-90.0, 5.0)),
        paper("4.2.2", TimeChange(curve(Role::Bbr1, Client), curve(Role::Tcp, Client)), 2.0, About(-90.0, 5.0)),
        paper("4.2.2", TimeChange(curve(Role::Bbr3, Unicast), curve(Role::Tcp, Unicast)), 1.0, About(-32.0, NEAR)),
        paper("4.2.2", TimeChange(curve(Role::Bbr3, Unicast), curve(Role::Tcp, Unicast)), 2.0, About(-56.0, NEAR)),
        paper("4.2.2", TimeChange(curve(Role::Bbr3, Client), curve(Role::Tcp, Client)), 1.0, About(-23.0, NEAR)),
        paper("4.2.2", TimeChange(curve(Role::Bbr3, Client), curve(Role::Tcp, Client)), 2.0, About(-43.0, NEAR)),
        paper("4.2.2", TimeChange(curve(Role::Bbr3, Client), curve(Role::Bbr3, Unicast)), 3.0, About(130.0, 30.0)),
        paper("1", Goodput(curve(Role::Tcp, Unicast)), 1.0, About(13.4, 2.0)),
    ],
    aims: &[
        aim(Goodput(curve(Role::Bbr3, Unicast)), 0.0, AtLeast(88.0)),
        aim(Goodput(curve(Role::Bbr3, Unicast)), 1.0, AtLeast(85.0)),
        aim(TimeChange(curve(Role::Bbr3, Client), curve(Role::Bbr3, Unicast)), 3.0, AtMost(5.0)),
    ],
};

const FIGURE_7: Figure = Figure {
    id: "7",
    title: "Download time of 100 MB, server's packets twice",
    citation: "Figure 7, section 4.2.2; section 6",
    curves: &[
        (TCP, &[Server, Both]),
        (Carrier::TcpBbr, &[Both]),
        (BBR1, &[Server, Both]),
        (BBR3_DRAFT, &[Server, Both]),
        (BBR3, &[Server, Both]),
    ],
    losses: &[0.0, 1.0, 3.0, 5.0, 7.0, 10.0, 15.0, 20.0, 40.0],
    stated: &[
        paper("4.2.2", TimeChange(curve(Role::Bbr1, Both), curve(Role::Tcp, Both)), 1.0, About(0.0, NEAR)),
        paper("4.2.2", TimeChange(curve(Role::Bbr1, Both), curve(Role::Tcp, Both)), 3.0, About(0.0, NEAR)),
        paper("4.2.2", TimeChange(curve(Role::Bbr1, Server), curve(Role::Tcp, Server)), 5.0, About(-35.0, NEAR)),
        paper("4.2.2", TimeChange(curve(Role::Bbr1, Both), curve(Role::Tcp, Both)), 5.0, About(-35.0, NEAR)),
        paper("4.2.2", TimeChange(curve(Role::Bbr1, Server), curve(Role::Tcp, Server)), 10.0, About(-82.0, NEAR)),
        paper("4.2.2", TimeChange(curve(Role::Bbr1, Both), curve(Role::Tcp, Both)), 10.0, About(-82.0, NEAR)),
        paper("4.2.2", TimeChange(curve(Role::Bbr3, Server), curve(Role::Tcp, Server)), 5.0, AtLeast(0.0)),
        paper("4.2.2", TimeChange(curve(Role::Bbr3, Both), curve(Role::Tcp, Both)), 5.0, AtLeast(0.0)),
        paper("4.2.2", TimeChange(curve(Role::Bbr3, Server), curve(Role::Tcp, Server)), 10.0, About(-40.0, NEAR)),
        paper("4.2.2", TimeChange(curve(Role::Bbr3, Both), curve(Role::Tcp, Both)), 10.0, About(-28.0, NEAR)),
        paper("4.2.2", TimeChange(curve(Role::Bbr3, Both), curve(Role::Bbr3, Server)), 5.0, Between(110.0, 200.0)),
        paper("4.2.2", TimeChange(curve(Role::Bbr3, Both), curve(Role::Bbr3, Server)), 10.0, Between(110.0, 200.0)),
    ],
    aims: &[
        aim(Goodput(curve(Role::Bbr3, Both)), 0.0, AtLeast(88.0)),
        aim(Goodput(curve(Role::Bbr3, Server)), 0.0, AtLeast(88.0)),
        aim(Goodput(curve(Role::Bbr3, Both)), 1.0, AtLeast(88.0)),
        aim(Goodput(curve(Role::Bbr3, Server)), 1.0, AtLeast(88.0)),
        aim(Goodput(curve(Role::Bbr3, Both)), 5.0, AtLeast(88.0)),
        aim(Goodput(curve(Role::Bbr3, Server)), 5.0, AtLeast(88.0)),
        aim(Goodput(curve(Role::Bbr3, Both)), 10.0, AtLeast(83.0)),
        aim(Goodput(curve(Role::Bbr3, Server)), 10.0, AtLeast(83.0)),
        // 0.86 and 0.75 of what both losses together leave of a link, less its headers.
        aim(Goodput(curve(Role::Bbr3, Both)), 20.0, AtLeast(78.0)),
        aim(Goodput(curve(Role::Bbr3, Server)), 20.0, AtLeast(78.0)),
        aim(Goodput(curve(Role::Bbr3, Both)), 40.0, AtLeast(59.0)),
        aim(Goodput(curve(Role::Bbr3, Server)), 40.0, AtLeast(59.0)),
        aim(TimeChange(curve(Role::Bbr3, Both), curve(Role::Bbr3, Server)), 10.0, AtMost(5.0)),
    ],
    ..FIGURE_6
};

const FIGURES_8_9: Figure = Figure {
    id: "8-9",
    title: "The sender's window at 10 % loss, server's packets once",
    citation: "Figures 8 and 9, section 4.2.3",
    bed: BedKind::Virtual,
    curves: &[(BBR3_DRAFT, &[Unicast, Client]), (BBR3, &[Unicast, Client])],
    losses: &[10.0],
    shows: Shows::Window,
    stated: &[
        paper("4.2.3", Acknowledgements(curve(Role::Bbr3, Unicast)), 10.0, About(12_849.0, 3_000.0)),
        paper("4.2.3", Acknowledgements(curve(Role::Bbr3, Client)), 10.0, About(18_116.0, 3_000.0)),
    ],
    aims: &[],
    ..FIGURE_6
};

const FIGURES_10_11: Figure = Figure {
    id: "10-11",
    title: "The sender's window at 20 % loss, server's packets twice",
    citation: "Figures 10 and 11, section 4.2.3",
    curves: &[(BBR3_DRAFT, &[Server, Both]), (BBR3, &[Server, Both])],
    losses: &[20.0],
    stated: &[
        paper("4.2.3", Acknowledgements(curve(Role::Bbr3, Server)), 20.0, About(6_775.0, 3_000.0)),
        paper("4.2.3", Acknowledgements(curve(Role::Bbr3, Both)), 20.0, About(16_163.0, 3_000.0)),
    ],
    ..FIGURES_8_9
};

const FIGURE_12: Figure = Figure {
    id: "12",
    title: "Bytes that 100 MB cost",
    citation: "Figure 12, section 4.2.4",
    curves: &[(BBR1, &Scheme::ALL), (BBR3_DRAFT, &Scheme::ALL), (BBR3, &Scheme::ALL)],
    losses: &[0.0, 1.0, 3.0, 5.0, 10.0, 15.0],
    shows: Shows::Bytes,
    stated: &[
        paper("4.2.4", ServerBytesOfLossless(curve(Role::Bbr1, Unicast)), 15.0, About(120.0, 5.0)),
        paper("4.2.4", ServerBytesOfLossless(curve(Role::Bbr1, Client)), 15.0, About(120.0, 5.0)),
        paper("4.2.4", ServerBytesOfLossless(curve(Role::Bbr1, Server)), 15.0, About(104.0, 5.0)),
        paper("4.2.4", ServerBytesOfLossless(curve(Role::Bbr1, Both)), 15.0, About(104.0, 5.0)),
        paper("4.2.4", ServerBytesOfLossless(curve(Role::Bbr3, Unicast)), 15.0, About(120.0, 5.0)),
        paper("4.2.4", ServerBytesOfLossless(curve(Role::Bbr3, Both)), 15.0, About(104.0, 5.0)),
        paper("4.2.4", ServerBytesOf(curve(Role::Bbr1, Both), curve(Role::Bbr1, Client)), 0.0, Between(170.0, 200.0)),
        paper(
            "4.2.4",
            ServerBytesOf(curve(Role::Bbr3, Server), curve(Role::Bbr3, Unicast)),
            0.0,
            Between(170.0, 200.0),
        ),
        paper("4.2.4", ServerBytesOf(curve(Role::Bbr3, Both), curve(Role::Bbr3, Client)), 15.0, Between(170.0, 200.0)),
    ],
    aims: &[aim(ServerBytesOfLossless(curve(Role::Bbr3, Both)), 15.0, AtMost(104.0))],
    ..FIGURE_6
};

const FIGURE_14: Figure = Figure {
    id: "14",
    title: "BBRv1 beside a CUBIC flow on each network",
    citation: "Figure 14 and table 6, section 4.3.2",
    curves: &[(BBR1, &Scheme::ALL)],
    losses: &[0.0, 0.1, 0.3, 1.0],
    rivals: 1,
    amount: WINDOW,
    shows: Shows::Sharing,
    stated: &[
        paper("4.3.2", Jain(curve(Role::Bbr1, Unicast)), 0.0, FAIR),
        paper("4.3.2", Jain(curve(Role::Bbr1, Client)), 0.0, FAIR),
        paper("4.3.2", Jain(curve(Role::Bbr1, Server)), 0.0, FAIR),
        paper("4.3.2", Jain(curve(Role::Bbr1, Both)), 0.0, FAIR),
        paper("4.3.2", Kept(curve(Role::Bbr1, Unicast), Reference), 0.1, About(28.6, NEAR)),
        paper("4.3.2", Kept(curve(Role::Bbr1, Unicast), Reference), 0.3, AtMost(50.0)),
        paper("4.3.2", Kept(curve(Role::Bbr1, Unicast), Reference), 1.0, AtMost(50.0)),
        paper("4.3.2", Goodput(curve(Role::Bbr1, Unicast)), 0.1, About(78.3, NEAR)),
        paper("4.3.2", Goodput(curve(Role::Bbr1, Unicast)), 1.0, About(87.2, NEAR)),
        paper("4.3.2", Kept(curve(Role::Bbr1, Client), Reference), 0.1, About(74.6, NEAR)),
        paper("4.3.2", Kept(curve(Role::Bbr1, Client), Reference), 1.0, AtLeast(70.0)),
        paper("4.3.2", Kept(curve(Role::Bbr1, Client), Other), 0.1, About(100.0, NEAR)),
        paper("4.3.2", Kept(curve(Role::Bbr1, Server), Reference), 0.1, About(65.0, NEAR)),
        paper("4.3.2", Kept(curve(Role::Bbr1, Server), Other), 0.1, About(65.0, NEAR)),
        paper("4.3.2", Kept(curve(Role::Bbr1, Server), Reference), 0.3, AtMost(50.0)),
        paper("4.3.2", Goodput(curve(Role::Bbr1, Server)), 0.1, About(73.1, NEAR)),
        paper("4.3.2", Goodput(curve(Role::Bbr1, Server)), 1.0, About(86.5, NEAR)),
        paper("4.3.2", Kept(curve(Role::Bbr1, Both), Reference), 0.1, About(66.1, NEAR)),
        paper("4.3.2", Kept(curve(Role::Bbr1, Both), Other), 0.1, About(66.1, NEAR)),
        paper("4.3.2", Goodput(curve(Role::Bbr1, Both)), 0.1, About(69.3, NEAR)),
        paper("4.3.2", Goodput(curve(Role::Bbr1, Both)), 1.0, About(84.6, NEAR)),
    ],
    aims: &[],
    ..FIGURE_6
};

const FIGURE_15: Figure = Figure {
    id: "15",
    title: "BBRv3 beside a CUBIC flow on each network",
    citation: "Figure 15 and table 7, section 4.3.2",
    curves: &[(BBR3_DRAFT, &Scheme::ALL), (BBR3, &Scheme::ALL)],
    stated: &[
        paper("4.3.2", Jain(curve(Role::Bbr3, Unicast)), 0.0, FAIR),
        paper("4.3.2", Jain(curve(Role::Bbr3, Client)), 0.0, FAIR),
        paper("4.3.2", Jain(curve(Role::Bbr3, Server)), 0.0, FAIR),
        paper("4.3.2", Jain(curve(Role::Bbr3, Both)), 0.0, FAIR),
        paper("4.3.2", Kept(curve(Role::Bbr3, Unicast), Reference), 0.1, AtLeast(90.0)),
        paper("4.3.2", Kept(curve(Role::Bbr3, Unicast), Reference), 1.0, AtLeast(90.0)),
        paper("4.3.2", Goodput(curve(Role::Bbr3, Unicast)), 0.1, About(45.0, NEAR)),
        paper("4.3.2", Goodput(curve(Role::Bbr3, Unicast)), 1.0, About(23.0, NEAR)),
        paper("4.3.2", Together(curve(Role::Bbr3, Unicast)), 0.1, About(76.8, NEAR)),
        paper("4.3.2", Together(curve(Role::Bbr3, Unicast)), 1.0, About(33.6, NEAR)),
        paper("4.3.2", Kept(curve(Role::Bbr3, Client), Reference), 0.1, AtLeast(85.0)),
        paper("4.3.2", Kept(curve(Role::Bbr3, Client), Reference), 1.0, AtLeast(85.0)),
        paper("4.3.2", Goodput(curve(Role::Bbr3, Client)), 0.1, About(46.5, NEAR)),
        paper("4.3.2", Goodput(curve(Role::Bbr3, Client)), 1.0, About(25.5, NEAR)),
        paper("4.3.2", Kept(curve(Role::Bbr3, Server), Reference), 0.1, About(82.0, NEAR)),
        paper("4.3.2", Goodput(curve(Role::Bbr3, Server)), 0.1, About(54.8, NEAR)),
        paper("4.3.2", Goodput(curve(Role::Bbr3, Server)), 1.0, About(68.8, NEAR)),
        paper("4.3.2", Together(curve(Role::Bbr3, Server)), 0.1, Between(77.0, 96.0)),
        paper("4.3.2", Together(curve(Role::Bbr3, Server)), 1.0, Between(77.0, 96.0)),
        paper("4.3.2", Kept(curve(Role::Bbr3, Both), Reference), 0.1, AtLeast(90.0)),
        paper("4.3.2", Kept(curve(Role::Bbr3, Both), Other), 0.1, AtLeast(90.0)),
        paper("4.3.2", Kept(curve(Role::Bbr3, Both), Reference), 1.0, AtLeast(90.0)),
        paper("4.3.2", Kept(curve(Role::Bbr3, Both), Other), 1.0, AtLeast(90.0)),
        paper("4.3.2", Goodput(curve(Role::Bbr3, Both)), 0.1, About(49.4, NEAR)),
        paper("4.3.2", Goodput(curve(Role::Bbr3, Both)), 1.0, About(66.9, NEAR)),
        paper("4.3.2", Together(curve(Role::Bbr3, Both)), 0.1, Between(75.0, 83.0)),
        paper("4.3.2", Together(curve(Role::Bbr3, Both)), 1.0, Between(75.0, 83.0)),
    ],
    aims: &[
        aim(Goodput(curve(Role::Bbr3, Both)), 0.0, Between(30.0, 60.0)),
        aim(Goodput(curve(Role::Bbr3, Unicast)), 0.0, Between(30.0, 60.0)),
        aim(Kept(curve(Role::Bbr3, Both), Reference), 0.1, AtLeast(80.0)),
        aim(Kept(curve(Role::Bbr3, Both), Other), 0.1, AtLeast(90.0)),
        aim(Together(curve(Role::Bbr3, Both)), 0.1, AtLeast(84.0)),
        aim(Kept(curve(Role::Bbr3, Both), Reference), 0.3, AtLeast(80.0)),
        aim(Kept(curve(Role::Bbr3, Both), Other), 0.3, AtLeast(90.0)),
        aim(Together(curve(Role::Bbr3, Both)), 0.3, AtLeast(84.0)),
        aim(Kept(curve(Role::Bbr3, Both), Reference), 1.0, AtLeast(80.0)),
        aim(Kept(curve(Role::Bbr3, Both), Other), 1.0, AtLeast(90.0)),
        aim(Together(curve(Role::Bbr3, Both)), 1.0, AtLeast(84.0)),
        aim(Goodput(curve(Role::Bbr3, Unicast)), 0.1, AtLeast(52.0)),
        aim(Kept(curve(Role::Bbr3, Unicast), Reference), 0.1, AtLeast(80.0)),
        aim(Goodput(curve(Role::Bbr3, Unicast)), 0.3, AtLeast(52.0)),
        aim(Kept(curve(Role::Bbr3, Unicast), Reference), 0.3, AtLeast(80.0)),
        aim(Goodput(curve(Role::Bbr3, Unicast)), 1.0, AtLeast(52.0)),
        aim(Kept(curve(Role::Bbr3, Unicast), Reference), 1.0, AtLeast(80.0)),
    ],
    ..FIGURE_14
};

/// Four bandwidth-delay products, as many home routers have.
const DEEP: Topology = Topology { queue_bdp: 4.0, ..Topology::PAPER };

/// Bicasting beside others than the paper's.
const BESIDE: &[(Carrier, &[Scheme])] = &[(BBR3_DRAFT, &[Both]), (BBR3, &[Both])];

/// The versions of BBR by their drafts, and what was made of the first.
const VERSIONS: &[(Carrier, &[Scheme])] =
    &[(BBR1, &[Unicast, Both]), (BBR_CWS, &[Unicast, Both]), (BBR2, &[Unicast, Both]), (BBR3_DRAFT, &[Unicast, Both])];

/// Every experiment: the paper's, then ours.
pub const FIGURES: &[Figure] = &[
    FIGURE_6,
    FIGURE_7,
    FIGURES_8_9,
    FIGURES_10_11,
    FIGURE_12,
    FIGURE_14,
    FIGURE_15,
    Figure {
        id: "unequal",
        title: "BBRv3 over 100 and 20 Mbit/s, the second 10 ms longer, beside a CUBIC flow on each",
        citation: "Adds to figure 15: the paper's networks are alike",
        topology: Topology { rates_mbit: [100, 20], rtts_ms: [10, 20], ..Topology::PAPER },
        curves: BESIDE,
        stated: &[],
        aims: &[
            aim(Kept(curve(Role::Bbr3, Both), Other), 0.0, AtLeast(90.0)),
            aim(Kept(curve(Role::Bbr3, Both), Other), 0.1, AtLeast(90.0)),
            aim(Kept(curve(Role::Bbr3, Both), Other), 1.0, AtLeast(90.0)),
        ],
        ..FIGURE_15
    },
    Figure {
        id: "two-flows",
        title: "BBRv3 beside two CUBIC flows on each network",
        citation: "Adds to figure 15",
        curves: BESIDE,
        rivals: 2,
        stated: &[],
        aims: &[],
        ..FIGURE_15
    },
    Figure {
        id: "four-flows",
        title: "BBRv3 beside four CUBIC flows on each network",
        citation: "Adds to figure 15",
        curves: BESIDE,
        rivals: 4,
        stated: &[],
        aims: &[],
        ..FIGURE_15
    },
    Figure {
        id: "beside-bbr",
        title: "BBRv3 beside a flow of the kernel's BBR on each network",
        citation: "Adds to figure 15",
        curves: BESIDE,
        rival: Carrier::TcpBbr,
        stated: &[],
        aims: &[],
        ..FIGURE_15
    },
    Figure {
        id: "versions-time",
        title: "Download time of 100 MB with BBRv2 and BBR-CWS for comparison",
        citation: "Adds to figures 6 and 7",
        curves: VERSIONS,
        losses: &[0.0, 1.0, 3.0, 5.0, 10.0, 15.0],
        stated: &[],
        aims: &[],
        ..FIGURE_6
    },
    Figure {
        id: "versions-beside",
        title: "BBRv2 and BBR-CWS for comparison beside a CUBIC flow on each network",
        citation: "Adds to figures 14 and 15",
        curves: VERSIONS,
        stated: &[],
        ..FIGURE_14
    },
    Figure {
        id: "deep-versions-beside",
        title: "BBRv2 and BBR-CWS for comparison beside a CUBIC flow on each network, queue of 4 BDP",
        citation: "Adds to figures 14 and 15",
        topology: DEEP,
        curves: VERSIONS,
        stated: &[],
        ..FIGURE_14
    },
    Figure {
        id: "deep-6",
        title: "Download time of 100 MB, server's packets once, queue of 4 BDP",
        citation: "Adds to figure 6, whose queue is not stated",
        topology: DEEP,
        ..FIGURE_6
    },
    Figure {
        id: "deep-7",
        title: "Download time of 100 MB, server's packets twice, queue of 4 BDP",
        citation: "Adds to figure 7, whose queue is not stated",
        topology: DEEP,
        ..FIGURE_7
    },
    Figure {
        id: "deep-14",
        title: "BBRv1 beside a CUBIC flow on each network, queue of 4 BDP",
        citation: "Adds to figure 14, whose queue is not stated",
        topology: DEEP,
        ..FIGURE_14
    },
    Figure {
        id: "deep-15",
        title: "BBRv3 beside a CUBIC flow on each network, queue of 4 BDP",
        citation: "Adds to figure 15, whose queue is not stated",
        topology: DEEP,
        ..FIGURE_15
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_and_table_of_the_papers_experiments_is_there_once() {
        for number in ["6", "7", "8", "9", "10", "11", "12", "14", "15"] {
            assert_eq!(FIGURES.iter().filter(|figure| figure.is_meant(number)).count(), 1, "figure {number}");
        }
        for table in ["table 6", "table 7"] {
            assert!(FIGURES.iter().any(|figure| figure.citation.contains(table)), "{table}");
        }
        for figure in FIGURES {
            assert_eq!(FIGURES.iter().filter(|other| other.id == figure.id).count(), 1, "{}", figure.id);
        }
    }

    #[test]
    fn every_claim_is_about_runs_that_are_made() {
        for figure in FIGURES {
            let jobs = figure.jobs(false);
            for claim in figure.stated.iter().chain(figure.aims) {
                let lossless = matches!(claim.quantity, Quantity::ServerBytesOfLossless(_)).then_some(0.0);
                for loss in lossless.into_iter().chain([claim.loss_percent]) {
                    for ((role, scheme), bbr3) in claim
                        .quantity
                        .curves()
                        .into_iter()
                        .flat_map(|curve| figure.bbr3s().into_iter().map(move |bbr3| (curve, bbr3)))
                    {
                        let point = figure.point(role.carrier(bbr3), scheme, loss);
                        assert!(jobs.contains(&(figure.bed, point)), "figure {}: {point} for {claim:?}", figure.id);
                    }
                }
                let shares = matches!(claim.quantity, Quantity::Kept(..) | Quantity::Together(_) | Quantity::Jain(_));
                assert!(!shares || figure.rivals > 0, "figure {}: {claim:?} needs competitors", figure.id);
                let counted = matches!(claim.quantity, Quantity::Acknowledgements(_));
                assert!(!counted || figure.bed == BedKind::Virtual, "figure {}: {claim:?}", figure.id);
            }
        }
    }

    #[test]
    fn what_the_paper_states_names_its_section_and_what_we_want_does_not() {
        for figure in FIGURES {
            assert!(figure.stated.iter().all(|claim| claim.source.starts_with(|first: char| first.is_ascii_digit())));
            assert!(figure.aims.iter().all(|claim| claim.source == "aim"));
            assert!(!figure.citation.is_empty() && !figure.title.is_empty());
            for claim in figure.stated.iter().chain(figure.aims) {
                let sound = match claim.stated {
                    Stated::Between(least, most) => least < most,
                    Stated::About(_, tolerance) => tolerance > 0.0,
                    _ => true,
                };
                assert!(sound, "figure {}: {claim:?}", figure.id);
            }
        }
    }

    #[test]
    fn fairness_is_tried_beside_cubic_and_judged_against_cubic_alone() {
        for figure in FIGURES.iter().filter(|figure| figure.rivals > 0) {
            for loss in figure.losses {
                let alone = figure.point(Carrier::Nobody, Both, *loss);
                assert!(figure.jobs(false).contains(&(figure.bed, alone)), "figure {}", figure.id);
            }
        }
    }

    #[test]
    fn runs_that_figures_share_are_the_same_points() {
        let of = |id: &str| FIGURES.iter().find(|figure| figure.id == id).unwrap().jobs(false);
        let (six, seven) = (of("6"), of("7"));
        for job in of("12") {
            assert!(six.contains(&job) || seven.contains(&job), "{}", job.1);
        }
    }
}
