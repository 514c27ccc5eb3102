//! t
use std::time::Duration;
use tandem_netem::Bitrate;
use tandem_proto::{
    congestion::Algorithm,
    mode::{Mode, Sides},
};
use tandem_testbed::*;
fn main() {
    for loss in [0.01] {
        for alg in [Algorithm::Bbr1] {
            for case in ["exit"] {
                for seed in 1..=1 {
                    let (m, st, h) = virtual_time::run(async move {
                        let n = if case == "solo" { 1 } else { 2 };
                        let paths =
                            vec![PathLinks::symmetric(Bitrate::from_mbit(100), Duration::from_millis(10), loss); n];
                        let s = Scenario { paths, congestion: alg, mode: Mode::Bicast(Sides::Both), seed };
                        let bed = s.connect().await.unwrap();
                        if case == "exit" || case == "entrance" {
                            for d in [tandem_netem::Direction::Up, tandem_netem::Direction::Down] {
                                bed.lines[0].set_hostility(
                                    d,
                                    Some(Hostility {
                                        interval: Duration::from_micros(120),
                                        seed,
                                        vantage: if case == "exit" { Vantage::Exit } else { Vantage::Entrance },
                                    }),
                                );
                            }
                        }
                        let (c, r) = (bed.client.clone(), bed.relay.clone());
                        tokio::spawn(async move {
                            loop {
                                tokio::time::sleep(Duration::from_millis(100)).await;
                                let s = c.stats();
                                let rs = r.stats();
                                println!(
                                    "{:?} c copies {} {:?} mtu {:?} {:?} {:?} | r {:?} {:?}",
                                    virtual_time::elapsed(),
                                    s.counters.copies,
                                    s.link
                                        .paths
                                        .iter()
                                        .map(|p| (p.state, p.preferred, p.mtu_bytes, p.up.send_errors, p.up.datagrams))
                                        .collect::<Vec<_>>(),
                                    s.mtu_bytes,
                                    s.counters.oversized,
                                    s.link.paths[0].problem,
                                    rs.link
                                        .paths
                                        .iter()
                                        .map(|p| (p.state, p.preferred, p.mtu_bytes))
                                        .collect::<Vec<_>>(),
                                    rs.counters.copies
                                );
                            }
                        });
                        let m = bed.measure_download(Amount::Time(Duration::from_secs(4))).await.unwrap();
                        (m, bed.relay.stats(), bed.client.stats())
                    });
                    println!(
                        "{loss} {alg} {case} {seed}: {:.1} Mbit/s loss {:.2} p99 {:.1} gap {:.0} {:?} fwd {:?} c {:?} hold {:?}",
                        m.download.goodput_mbps(),
                        m.quic_loss_percent,
                        m.pings.p99_ms(),
                        m.download.longest_gap.as_secs_f64() * 1e3,
                        st.congestion,
                        st.counters.forged,
                        h.counters,
                        h.hold
                    );
                    if case == "entrance" || case == "exit" {
                        for p in &st.link.paths {
                            println!(
                                "   {} {:?} rtt {:?} min {:?} q {} loss {:.1}",
                                p.id, p.state, p.srtt_ms, p.min_rtt_ms, p.down.queue_ms, p.down.total_loss_percent
                            );
                        }
                    }
                }
            }
        }
    }
}
