//! A flow against a model of TCP: whatever both ends do in whatever order, every byte and every ending is right.
//!
//! An application and a server act in random order: write, read slowly or not at all, finish, close, reset; the session may
//! end under the flow. What each end may see follows from what the other did:
//!
//! - bytes, in order, from the first on, and no others;
//! - a clean end only if the other finished or closed, and only behind its last byte;
//! - a reset only if the other reset or closed, or the session ended;
//! - in the end one of both: whoever does not finish is not taken for finished.
//!
//! The flow goes through the real pumps over a flow in memory, and over a whole session through lossy networks.

mod bed;

use std::io::{self, IoSlice};
use std::time::Duration;

use bed::{Bed, link, open};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use tandem_core::dial::memory::{self as flow_memory};
use tandem_core::pump::memory::{MemoryTcp, pair};
use tandem_core::pump::{PumpEnd, TcpLike, pump};
use tandem_netem::{LinkConfig, Loss};
use tandem_testbed::virtual_time::run;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Something that happens; the ends are 0, the application, and 1, the server.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// Writes as much of so many bytes as fits.
    Write(usize, usize),
    /// Reads at most so many.
    Read(usize, usize),
    /// Ends its half.
    Finish(usize),
    /// Closes both halves.
    Close(usize),
    Reset(usize),
    /// The session ends.
    Cut,
    /// Time passes, in milliseconds.
    Wait(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let size = prop_oneof![1usize..2_000, 10_000usize..200_000];
    let act = prop_oneof![
        8 => (0usize..2, size.clone()).prop_map(|(end, bytes)| Act::Write(end, bytes)),
        8 => (0usize..2, size).prop_map(|(end, bytes)| Act::Read(end, bytes)),
        3 => (0usize..2).prop_map(Act::Finish),
        1 => (0usize..2).prop_map(Act::Close),
        1 => (0usize..2).prop_map(Act::Reset),
        6 => (1u64..300).prop_map(Act::Wait),
    ];
    // Most flows live long enough to become interesting, few meet the end of their session.
    (prop::collection::vec(act, 1..60), 0u8..10).prop_map(|(mut acts, cut)| {
        if cut == 0 {
            let at = acts.len() / 2;
            acts.insert(at, Act::Cut);
        }
        acts
    })
}

/// One end's connection, and what the model knows of it.
struct End {
    tcp: Option<MemoryTcp>,
    written: usize,
    finished: bool,
    /// Closed or reset.
    gone: bool,
    was_reset: bool,
    read: usize,
    /// What reading came to: the clean end, or an error.
    saw: Option<Result<(), io::ErrorKind>>,
}

impl End {
    fn new(tcp: MemoryTcp) -> Self {
        Self { tcp: Some(tcp), written: 0, finished: false, gone: false, was_reset: false, read: 0, saw: None }
    }
}

/// What byte stands at a place of an end's stream.
fn byte(end: usize, place: usize) -> u8 {
    (place * 7 + place / 251 + 101 * end) as u8
}

struct Model {
    ends: [End; 2],
    cut: bool,
}

impl Model {
    fn write(&mut self, end: usize, bytes: usize) {
        let this = &mut self.ends[end];
        let Some(tcp) = this.tcp.as_ref().filter(|_| !this.finished) else { return };
        let data: Vec<u8> = (this.written..this.written + bytes).map(|place| byte(end, place)).collect();
        match tcp.try_write(&[IoSlice::new(&data)]) {
            Ok(taken) => this.written += taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => assert!(self.ends[1 - end].gone || self.cut, "end {end} cannot write, and the other is there"),
        }
    }

    /// Reads what is there, up to so many bytes.
    fn read(&mut self, end: usize, most: usize) {
        let [this, other] = self.ends.get_disjoint_mut([end, 1 - end]).expect("two ends");
        let Some(tcp) = this.tcp.as_ref().filter(|_| this.saw.is_none()) else { return };
        let mut buffer = vec![0; most];
        match tcp.try_read(&mut buffer) {
            Ok(0) => {
                assert!(other.finished || other.gone, "end {end} sees a clean end that nobody made");
                assert!(!other.was_reset || other.finished, "end {end} sees a clean end where the other was reset");
                assert_eq!(this.read, other.written, "end {end} sees the clean end early");
                this.saw = Some(Ok(()));
            }
            Ok(length) => {
                for (index, got) in buffer[..length].iter().enumerate() {
                    let place = this.read + index;
                    assert!(place < other.written, "end {end} reads byte {place} of {}", other.written);
                    assert_eq!(*got, byte(1 - end, place), "byte {place} at end {end}");
                }
                this.read += length;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                assert!(other.gone || self.cut, "end {end} sees a reset that nobody made");
                this.saw = Some(Err(error.kind()));
            }
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Write(end, bytes) => self.write(end, bytes),
            Act::Read(end, most) => self.read(end, most),
            Act::Finish(end) => {
                let this = &mut self.ends[end];
                // Finishing a connection that the far side reset finishes nothing.
                this.finished |= this.tcp.as_ref().is_some_and(|tcp| tcp.finish().is_ok());
            }
            Act::Close(end) => {
                let this = &mut self.ends[end];
                if this.tcp.take().is_some() {
                    this.gone = true;
                }
            }
            Act::Reset(end) => {
                let this = &mut self.ends[end];
                if let Some(tcp) = this.tcp.take() {
                    tcp.reset();
                    (this.gone, this.was_reset) = (true, true);
                }
            }
            Act::Cut | Act::Wait(_) => unreachable!("the caller's"),
        }
    }

    /// Nothing happens any more but reading: each end that is there must learn how the other ended.
    async fn read_out(&mut self) {
        for end in 0..2 {
            self.act(Act::Finish(end));
        }
        for _ in 0..20_000 {
            for end in 0..2 {
                self.read(end, 1 << 16);
            }
            if self.ends.iter().all(|end| end.tcp.is_none() || end.saw.is_some()) {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
        for (name, [this, other]) in
            [("application", [&self.ends[0], &self.ends[1]]), ("server", [&self.ends[1], &self.ends[0]])]
        {
            if this.tcp.is_none() {
                continue;
            }
            let saw = this.saw.unwrap_or_else(|| panic!("the {name} never learns the end"));
            if other.was_reset && !other.finished {
                assert!(saw.is_err(), "the {name} takes a reset connection for a finished one");
            }
            if !self.cut && !other.gone {
                assert_eq!(saw, Ok(()), "the {name} sees a reset although both finished");
                assert_eq!(this.read, other.written);
            }
        }
    }

    /// Nobody closed early, and the session held.
    fn is_undisturbed(&self) -> bool {
        !self.cut && self.ends.iter().all(|end| !end.gone)
    }
}

/// Carries out the acts and checks what comes of them; `cut` ends the session.
async fn play(acts: &[Act], ends: [MemoryTcp; 2], pumps: Vec<JoinHandle<PumpEnd>>, mut cut: impl AsyncFnMut()) {
    let mut model = Model { ends: ends.map(End::new), cut: false };
    for act in acts {
        match act {
            Act::Wait(ms) => sleep(Duration::from_millis(*ms)).await,
            Act::Cut => {
                model.cut = true;
                cut().await;
            }
            act => model.act(*act),
        }
    }
    model.read_out().await;
    let undisturbed = model.is_undisturbed();
    drop(model);
    for pumping in pumps {
        let end = timeout(Duration::from_secs(60), pumping).await.expect("a pump never ends").expect("a pump fails");
        assert!(!undisturbed || end == PumpEnd::Finished, "{end:?} although both finished");
    }
}

fn in_memory(acts: &[Act], tcp_window: usize, flow_window: usize) {
    run(async {
        let (app, inbound) = pair(tcp_window);
        let (egress, server) = pair(tcp_window);
        let (near, far, line) = flow_memory::pair(flow_window);
        let pumps = vec![
            tokio::spawn(async { pump(near, inbound).await.end }),
            tokio::spawn(async { pump(far, egress).await.end }),
        ];
        play(acts, [app, server], pumps, async || line.cut()).await;
    });
}

fn over_a_session(acts: &[Act], link: impl Fn(u64) -> LinkConfig) {
    run(async {
        let mut bed = Bed::new(link);
        let engine = bed.engine(bed.config()).await;
        let (app, pumping) = open(&engine.handle().dial(), "door:80").await.expect("the door is open");
        let server = bed.doors.lock().pop().expect("the relay is connected");
        play(acts, [app, server], vec![pumping], async || bed.crash_and_restart_relay()).await;
        engine.stop().await;
    });
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(4), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(500))]

    /// TCP-1, TCP-2, TCP-3
    #[test]
    fn through_two_pumps_every_byte_and_ending_is_right(
        acts in acts(),
        tcp_window in prop_oneof![Just(100usize), Just(64 * 1024)],
        flow_window in prop_oneof![Just(1usize), Just(3_000), Just(300_000)],
    ) {
        // A window of one byte is for few bytes.
        let flow_window = if flow_window == 1 && acts.len() > 10 { 500 } else { flow_window };
        in_memory(&acts, tcp_window, flow_window);
    }
}

proptest! {
    #![proptest_config(cases(40))]

    /// TCP-1, TCP-2, TCP-3
    #[test]
    fn over_a_session_through_bad_networks_every_byte_and_ending_is_right(acts in acts(), seed in 0u64..1_000) {
        over_a_session(&acts, |index| LinkConfig { loss: Loss::Random(0.03), ..link(15, seed + index) });
    }
}
