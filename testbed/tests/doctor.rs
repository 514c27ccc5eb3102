//! The doctor in virtual time: ways with loss and without, dead ones, and NATs that forget.

mod bed;

use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bed::{Bed, card, link};
use parking_lot::Mutex;
use quinn::udp::{RecvMeta, Transmit};
use tandem_core::client::doctor::{Mapping, Outcome, Way, examine_ways};
use tandem_core::platform::{Binder, Bound, Scripted};
use tandem_core::transport::PathSocket;
use tandem_core::transport::socket::Writable;
use tandem_netem::{Direction, LinkConfig, Loss};
use tandem_testbed::virtual_time::run;
use tokio::time::Instant;

async fn ways(bed: &Bed, platform: &Scripted, full: bool) -> Vec<Way> {
    let pairing = bed.config().relays[0].link.clone();
    examine_ways(&pairing, Vec::new(), Arc::new(platform.clone()), full, Arc::new(|_| {})).await.1
}

#[test]
fn a_way_is_measured_as_its_network_is() {
    run(async {
        let lossy = |seed| LinkConfig { loss: Loss::Random(if seed > 2 { 0.2 } else { 0.0 }), ..link(15, seed) };
        let bed = Bed::new(lossy);
        let found = ways(&bed, &bed.platform, false).await;
        let reached = |index: usize| match &found[index].outcome {
            Outcome::Reached(reached) => reached.clone(),
            other => panic!("{other:?}"),
        };
        let (clean, lossy) = (reached(0), reached(1));
        assert_eq!((clean.joined, clean.loss_percent, clean.mtu_bytes), (true, [0.0; 2], 1472));
        assert!((30.0..33.0).contains(&clean.rtt_ms.unwrap()), "{clean:?}");
        assert!(lossy.loss_percent.iter().all(|loss| (5.0..40.0).contains(loss)), "{lossy:?}");
    });
}

#[test]
fn a_dead_way_is_silent_and_the_other_is_not() {
    run(async {
        let bed = Bed::new(|seed| link(15, seed));
        bed.lines[0].cut(Direction::Up);
        let found = ways(&bed, &bed.platform, false).await;
        assert!(matches!(found[0].outcome, Outcome::Silent(_)), "{found:?}");
        assert!(matches!(found[1].outcome, Outcome::Reached(_)), "{found:?}");
    });
}

#[test]
fn a_nat_that_forgets_is_told_from_one_that_does_not() {
    run(async {
        let bed = Bed::new(|seed| link(15, seed));
        let forgetful = forgetting(&bed, Duration::from_secs(30));
        let found = ways(&bed, &forgetful, true).await;
        assert_eq!(found[0].mapping, Some(Mapping { open_s: Some(25), closed_s: Some(35) }));
        assert_eq!(found[1].mapping, Some(Mapping { open_s: Some(50), closed_s: None }));
    });
}

/// The bed's machine, whose first network stands behind a NAT that forgets what was silent for so long.
fn forgetting(bed: &Bed, memory: Duration) -> Scripted {
    let (first, bind) = card(&bed.network, &bed.lines[0], 0);
    let forgetting: Binder = Arc::new(move |remote| {
        let bound = bind(remote)?;
        let socket = Forgetting { inner: bound.socket, memory, last_sent: Mutex::new(None) };
        Ok(Bound { socket: Arc::new(socket), remote: bound.remote })
    });
    Scripted::new(vec![(first, forgetting), card(&bed.network, &bed.lines[1], 1)])
}

/// A socket behind a NAT that lets in only what follows something that left within its memory.
#[derive(Debug)]
struct Forgetting {
    inner: Arc<dyn PathSocket>,
    memory: Duration,
    last_sent: Mutex<Option<Instant>>,
}

impl PathSocket for Forgetting {
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        loop {
            let received = self.inner.poll_recv(cx, bufs, meta);
            let open = self.last_sent.lock().is_some_and(|sent| sent.elapsed() < self.memory);
            if open || received.is_pending() {
                return received;
            }
        }
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        *self.last_sent.lock() = Some(Instant::now());
        self.inner.try_send(transmit)
    }

    fn writable(self: Arc<Self>) -> Writable {
        Arc::clone(&self.inner).writable()
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }
}
