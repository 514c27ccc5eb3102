//! The runner of the paper's experiments, on short runs: that they are made, kept, drawn and not repeated, never what
//! they come to.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use tandem_netem::Direction;
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::Sides;
use tandem_testbed::namespaces::{
    Bed, CELL, KernelTcp, Origin, Plan, Programs, WIFI, Watched, connect_plainly, download_by, or_skip,
};
use tandem_testbed::paper::{Amount, BedKind, Bench, Carrier, FIGURES, Figure, Records, Scheme, Shows, jobs, render};

const OURS: Carrier = Carrier::Tandem(Algorithm::Bbr3);

fn figure(id: &str) -> Figure {
    *FIGURES.iter().find(|figure| figure.id == id).unwrap()
}

/// Makes the figures' runs, writes them down, draws them; what is on the page then.
async fn run(figures: &[Figure], quick: bool, programs: Option<Programs>) -> (Records, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runs.jsonl");
    let bench = Bench::new(programs, folder.path().join("logs"));
    let mut records = Records::open(&file).unwrap();
    let wanted = jobs(figures.iter(), quick, &[1]);
    for job in &wanted {
        let record = bench.run(job).await.unwrap_or_else(|error| panic!("{}: {error:#}", job.1));
        records.add(record).unwrap();
    }
    // What a later run reads is what this one wrote.
    let records = Records::open(&file).unwrap();
    assert!(wanted.iter().all(|(bed, point, seed)| records.has(*bed, point, *seed)));
    for figure in figures {
        let written = render(figure, &records, quick, folder.path()).unwrap();
        assert!(written.iter().any(|name| name.ends_with(".svg")), "{written:?}");
        assert!(written.contains(&format!("figure-{}.csv", figure.id)), "{written:?}");
    }
    let page = std::fs::read_to_string(folder.path().join("README.md")).unwrap();
    let again = page.clone();
    figures.iter().for_each(|figure| drop(render(figure, &records, quick, folder.path()).unwrap()));
    assert_eq!(
        std::fs::read_to_string(folder.path().join("README.md")).unwrap(),
        again,
        "written again, nothing changes"
    );
    (records, page)
}

#[tokio::test]
async fn quick_runs_in_virtual_time_are_made_kept_and_drawn() {
    let curves: &[(Carrier, &[Scheme])] =
        &[(Carrier::TcpCubic, &[Scheme::Unicast]), (OURS, &[Scheme::Unicast, Scheme::Both])];
    let losses = &[0.0, 1.0];
    let amount = Amount::File { bytes: 3_000_000, longest_s: 10 };
    let times = Figure { curves, losses, amount, stated: &[], aims: &[], ..figure("6") };
    let window = Figure { losses: &[10.0], curves: &[(OURS, &[Scheme::Both])], stated: &[], ..times };
    let window = Figure { id: "8-9", bed: BedKind::Virtual, shows: Shows::Window, ..window };
    let (records, page) = run(&[times, window], true, None).await;
    assert_eq!(records.all().len(), 7);
    assert!(records.all().iter().all(|record| record.bed == BedKind::Virtual));
    assert!(records.all().iter().all(|record| record.measured.acknowledgements.is_some_and(|count| count > 10)));
    assert!(page.contains("figure-6.svg") && page.contains("figure-8-9.svg"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_on_real_sockets_are_made_beside_the_kernels_tcp() {
    if !or_skip("runs_on_real_sockets_are_made_beside_the_kernels_tcp") {
        return;
    }
    let programs = Programs::beside_this_one().unwrap();
    let amount = Amount::Window { settle_s: 0, window_s: 1 };
    let curves: &[(Carrier, &[Scheme])] = &[(OURS, &[Scheme::Both])];
    let sharing = Figure { curves, losses: &[0.1], amount, ..figure("15") };
    let sharing = Figure { stated: &[], aims: &[], ..sharing };
    let curves: &[(Carrier, &[Scheme])] = &[(Carrier::TcpCubic, &[Scheme::Both])];
    let amount = Amount::File { bytes: 1_000_000, longest_s: 30 };
    let times = Figure { curves, losses: &[1.0], amount, stated: &[], aims: &[], ..figure("7") };
    let (records, page) = run(&[sharing, times], false, Some(programs)).await;
    let [alone, beside, file] = records.all() else { panic!("three runs: {records:?}") };
    for record in [alone, beside] {
        assert!(record.measured.rivals_mbps.iter().all(|rate| *rate > 0.0), "{record:?}");
    }
    assert_eq!(alone.measured.bytes, 0);
    assert!(beside.measured.bytes > 0 && beside.measured.carried.iter().all(|datagrams| *datagrams > 0), "{beside:?}");
    assert!(file.measured.finished && file.measured.bytes == 1_000_000, "{file:?}");
    // Copied on the other network too.
    assert!(file.measured.sent_bytes[1] > 2_000_000, "{file:?}");
    assert!(page.contains("Tandem's BBRv3") && page.contains("figure-7.svg"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_tcp_bicasts_by_the_links_alone() {
    if !or_skip("plain_tcp_bicasts_by_the_links_alone") {
        return;
    }
    let bed = Bed::build(&Plan::paper(0.02, 1)).unwrap();
    let _origin = Origin::start(&bed).unwrap();
    let sent = |network: usize, direction| bed.network(network).counters(direction).offered;
    let mut by = vec![KernelTcp::Cubic];
    by.extend(KernelTcp::Bbr.is_there().then_some(KernelTcp::Bbr));
    for by in by {
        for (sides, up, down) in [(Sides::Client, true, false), (Sides::Server, false, true), (Sides::Both, true, true)]
        {
            bed.copy_tcp(Some(sides));
            let (counts, before) = (bed.copy_counts(), [Direction::Up, Direction::Down].map(|way| sent(CELL, way)));
            let tcp = connect_plainly(&bed, WIFI).await.unwrap();
            assert!(download_by(tcp, by, 1_000_000, &Watched::new()).await.unwrap().is_intact());
            let copied = [Direction::Up, Direction::Down].map(|way| sent(CELL, way));
            assert_eq!(
                [copied[0] > before[0], copied[1] > before[1]],
                [up, down],
                "{sides}: the other network carries"
            );
            let now = bed.copy_counts();
            assert!(now.copied > counts.copied && now.second > counts.second, "{sides}: {now:?}");
            assert!(now.arrived + now.second <= 2 * now.copied && now.arrived <= now.copied, "{now:?}");
        }
    }
    // One network falls silent, and the flow does not.
    let tcp = connect_plainly(&bed, WIFI).await.unwrap();
    bed.network(WIFI).silence();
    assert!(download_by(tcp, KernelTcp::Cubic, 100_000, &Watched::new()).await.unwrap().is_intact());
}
