//! Hours of a bad day in minutes: networks that lose, stall, die, move and shrink at random, modes that change, and flows
//! that check every byte both ways all the while.
//!
//! The short run is two minutes of virtual time for each of two seeds. `TANDEM_LONG_RUN=3600` makes it an hour, and
//! `TANDEM_SEEDS=5` begins with other seeds; the seed and every event are printed.
#![expect(clippy::unwrap_used, reason = "the whole file is a test")]

mod bed;

use std::sync::Arc;
use std::time::Duration;

use bed::{PATIENCE, card, download, link, open, pattern, read_all, scenario};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tandem_core::dial::Dial;
use tandem_netem::{Bitrate, Direction, LinkConfig, Loss};
use tandem_proto::mode::{Mode, Sides};
use tandem_testbed::Line;
use tandem_testbed::virtual_time::elapsed;
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const BOTH: [Direction; 2] = [Direction::Up, Direction::Down];
const MODES: [Mode; 4] =
    [Mode::Single, Mode::Bicast(Sides::Client), Mode::Bicast(Sides::Server), Mode::Bicast(Sides::Both)];

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

/// Flows one after the other, each of which checks every byte; how many.
async fn flows(dial: Arc<dyn Dial>, seed: u64, end: Duration) -> u64 {
    let mut chance = Pcg64::seed_from_u64(seed);
    let mut done = 0;
    while elapsed() < end {
        let bytes = 10u32.pow(chance.random_range(2..=5)) * chance.random_range(1..=5);
        let sent = pattern(bytes as usize);
        let fetch = chance.random_bool(0.5);
        // Nothing can be opened while no network works for long; what is open must live.
        let Ok((mut app, _)) = open(&dial, if fetch { "blob:80" } else { "mirror:80" }).await else {
            sleep(Duration::from_secs(1)).await;
            continue;
        };
        if fetch {
            app.write_u32(bytes).await.unwrap();
        } else {
            app.write_all(&sent).await.unwrap();
            app.shutdown().await.unwrap();
        }
        let got = read_all(&mut app).await;
        assert!(got == sent, "{} of {bytes} bytes came back, fetched: {fetch}", got.len());
        done += 1;
        sleep(Duration::from_millis(chance.random_range(0..200))).await;
    }
    done
}

fn long_run(seed: u64, span: Duration) {
    let link = |seed| {
        LinkConfig { rate: Some(Bitrate::from_mbit(20)), ..link(20, seed) }.with_queue_time(Duration::from_millis(100))
    };
    scenario(link, async |bed| {
        let mut chance = Pcg64::seed_from_u64(seed);
        let cards: Vec<_> = (0..2).map(|n| card(&bed.network, &bed.lines[n as usize], n)).collect();
        bed.platform.set(cards.clone());
        let engine = bed.engine(bed.config()).await;
        let dial = engine.handle().dial();
        download(&dial, 1).await;
        let mut load = JoinSet::new();
        for flow in 0..4 {
            load.spawn(flows(Arc::clone(&dial), seed * 100 + flow, span));
        }
        let mut port = 20_000u16;
        while elapsed() < span {
            let index = usize::from(chance.random_bool(0.5));
            let line = &bed.lines[index];
            let way = BOTH[usize::from(chance.random_bool(0.5))];
            let event = chance.random_range(0..10);
            let lasting = Duration::from_millis(chance.random_range(50..6_000));
            println!("seed {seed}, {:?}: event {event} on path {index} {way:?} for {lasting:?}", elapsed());
            match event {
                0 | 1 => line.set_loss(way, Loss::Random(chance.random_range(0.0..0.3))).unwrap(),
                2 => BOTH.iter().for_each(|way| line.cut(*way)),
                3 => line.cut(way),
                4 => bed.each_direction(Line::cut),
                5 => {
                    port += 1;
                    line.rebind(([203, 0, 113, 50 + index as u8], port).into());
                }
                6 => line.set_delay(way, Duration::from_millis(chance.random_range(5..150))).unwrap(),
                7 => line.set_mtu(way, Some(chance.random_range(1_280..1_500))).unwrap(),
                8 => engine.handle().set_mode(MODES[chance.random_range(0..4)]),
                _ => {
                    // One network goes, and comes back with another socket.
                    let other = vec![cards[1 - index].clone()];
                    bed.platform.set(other);
                    sleep(lasting).await;
                    bed.platform.set(cards.clone());
                }
            }
            sleep(lasting).await;
            bed.each_direction(Line::restore);
            if chance.random_bool(0.3) {
                for (line, way) in bed.lines.iter().flat_map(|line| BOTH.map(|way| (line, way))) {
                    line.set_loss(way, Loss::None).unwrap();
                    line.set_mtu(way, None).unwrap();
                    line.set_delay(way, Duration::from_millis(20)).unwrap();
                }
            }
            sleep(Duration::from_millis(chance.random_range(100..3_000))).await;
        }
        let mut done = 0;
        while let Some(count) = timeout(4 * PATIENCE, load.join_next()).await.expect("no flow hangs") {
            done += count.unwrap();
        }
        println!("seed {seed}: {done} flows in {:?}", elapsed());
        assert!(done > span.as_secs(), "{done} flows");
        let snapshot = engine.handle().snapshot();
        assert!(snapshot.paths.len() <= 2, "{snapshot:#?}");
        // The relay's serving ends only once every session has.
        engine.stop().await;
        bed.drain.cancel();
        timeout(PATIENCE, bed.relay).await.expect("no session is left at the relay").unwrap();
    });
}

/// MULTI-12, PATH-3, PATH-5, PATH-8 together.
#[test]
fn no_byte_is_lost_and_no_state_left_over_in_a_run_of_random_trouble() {
    let first = setting("TANDEM_SEEDS", 1);
    let span = Duration::from_secs(setting("TANDEM_LONG_RUN", 120));
    for seed in first..first + 2 {
        long_run(seed, span);
    }
}
