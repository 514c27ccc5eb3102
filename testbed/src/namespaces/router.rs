//! The router between a client's networks and the internet: a thread that carries packets between TAP devices.
//!
//! Each of the client's networks is a device in the client's namespace, two [`Link`]s, one for each direction, and a
//! [`Behaviour`]: what the network does beside being slow. Everything from a client passes the network's `up` link and is
//! then translated and handed to the internet's device, in the relay's namespace; everything back is translated and passes
//! the `down` link. The router refuses sources that are not of the network they come from, as access networks do.
//!
//! One thread sleeps until a device has something or a packet is due (to some tens of microseconds), then carries all
//! there is. Links and behaviour can be changed at any time through a [`Network`].

mod carry;
mod copies;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ipnet::{Ipv4Net, Ipv6Net};
use parking_lot::Mutex;
use tandem_netem::{Counters, Direction, Link, LinkConfig};
use tandem_proto::mode::Sides;

use super::dns::Names;
use super::frame::Frame;
use super::nat::Nat;
use super::packet::Ecn;
use super::product::processor_time;
use super::tap::Tap;
use copies::Copies;
pub use copies::CopyCounts;
pub(super) use copies::Mark;

/// How long to wait while a device that has failed is reported as ready again and again.
const PAUSE: Duration = Duration::from_millis(1);

/// The nice value of the router's thread.
const PRIORITY: libc::c_int = -15;

/// What a network does to packets beside what its links do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behaviour {
    /// The IPv4 subnet; the gateway and name server is its first address. `None`: no IPv4.
    pub v4: Option<Ipv4Net>,
    /// The IPv6 subnet, routed without translation; the gateway is its first address. `None`: no IPv6.
    pub v6: Option<Ipv6Net>,
    /// The address that IPv4 flows have outside.
    pub public: Ipv4Addr,
    /// After how long without a packet from inside a UDP flow is forgotten; `None`: never.
    pub udp_timeout: Option<Duration>,
    /// How often every UDP flow gets another port; `None`: never.
    pub rebind_every: Option<Duration>,
    /// What happens to the ECN bits of packets from the client.
    pub ecn_up: Ecn,
    /// What happens to the ECN bits of packets to the client.
    pub ecn_down: Ecn,
    /// The server of a login page: every name leads to it, TCP to port 80 ends at it, all else is dropped. `None`: logged in.
    pub captive: Option<Ipv4Addr>,
    /// Whether IPv6 looks right and leads nowhere.
    pub dead_v6: bool,
    /// Whether UDP is dropped, but for questions to the name server.
    pub blocks_udp: bool,
    /// Whether there are NAT64 and DNS64, for a network without IPv4.
    pub nat64: bool,
}

impl Behaviour {
    /// A network with that subnet and public address that does nothing unusual.
    pub fn plain(v4: Ipv4Net, public: Ipv4Addr) -> Self {
        Self {
            v4: Some(v4),
            v6: None,
            public,
            udp_timeout: None,
            rebind_every: None,
            ecn_up: Ecn::Keep,
            ecn_down: Ecn::Keep,
            captive: None,
            dead_v6: false,
            blocks_udp: false,
            nat64: false,
        }
    }

    /// The gateway of IPv4.
    pub fn gateway_v4(&self) -> Option<Ipv4Addr> {
        self.v4?.hosts().next()
    }

    /// The gateway of IPv6.
    pub fn gateway_v6(&self) -> Option<Ipv6Addr> {
        Some(Ipv6Addr::from(u128::from(self.v6?.network()) + 1))
    }
}

/// What a network has refused so far, in packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refused {
    /// From the client, with a source that is not of this network.
    pub foreign_source: u64,
    /// By the login page, dead IPv6, blocked UDP, or because nothing translates them.
    pub unroutable: u64,
}

/// One of the client's networks, as the router has it.
#[derive(Debug)]
pub(super) struct Access {
    tap: Tap,
    host: [u8; 6],
    behaviour: Behaviour,
    up: Link<Frame>,
    down: Link<Frame>,
    refused: Refused,
    next_rebind: Option<Instant>,
    /// The IPv6 addresses seen on the network, the oldest first.
    hosts_v6: Vec<Ipv6Addr>,
}

impl Access {
    /// A network whose host has the link-layer address `host`.
    pub(super) fn new(tap: Tap, host: [u8; 6], behaviour: Behaviour, up: LinkConfig, down: LinkConfig) -> Result<Self> {
        let now = Instant::now();
        Ok(Self {
            tap,
            host,
            next_rebind: behaviour.rebind_every.map(|every| now + every),
            behaviour,
            up: Link::new(up, now).context("the link up")?,
            down: Link::new(down, now).context("the link down")?,
            refused: Refused::default(),
            hosts_v6: Vec::new(),
        })
    }

    fn link(&mut self, direction: Direction) -> &mut Link<Frame> {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }
}

/// The side of the internet: a device in the relay's namespace.
#[derive(Debug)]
pub(super) struct Internet {
    pub(super) tap: Tap,
    /// The link-layer address of the relay's end.
    pub(super) host: [u8; 6],
    /// The gateways of the relay.
    pub(super) gateways: [IpAddr; 2],
}

#[derive(Debug)]
struct State {
    accesses: Vec<Access>,
    internet: Internet,
    nat: Nat,
    names: Names,
    copies: Copies,
    stopped: bool,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    wake: OwnedFd,
    /// The kernel's number of the thread, once it runs.
    thread: AtomicI32,
}

impl Shared {
    fn wake(&self) {
        let one = 1u64;
        // SAFETY: writes eight bytes of a number that lives until after the call. It fails only when the count is full,
        // and then the thread is awake.
        unsafe { libc::write(self.wake.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

/// The running router; stops when dropped.
#[derive(Debug)]
pub(super) struct Router {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Router {
    /// Starts to carry.
    pub(super) fn start(accesses: Vec<Access>, internet: Internet, names: Names) -> Result<Self> {
        // SAFETY: creates a descriptor that is owned from here on, if it is one.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(io::Error::last_os_error()).context("making the router's alarm clock");
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        let wake = unsafe { OwnedFd::from_raw_fd(wake) };
        let state = State { accesses, internet, nat: Nat::default(), names, copies: Copies::default(), stopped: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), wake, thread: AtomicI32::new(0) });
        let running = shared.clone();
        let thread = thread::Builder::new().name("router".into()).spawn(move || run(&running))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// The network with that number.
    pub(super) fn network(&self, index: usize) -> Network {
        Network { shared: self.shared.clone(), index }
    }

    /// Processor time that the thread has used.
    pub(super) fn processor(&self) -> Duration {
        let thread = self.shared.thread.load(Ordering::Relaxed);
        processor_time(Path::new(&format!("/proc/self/task/{thread}/stat")))
    }

    /// Sends the TCP packets of these sides over every network from now on, and hands on the first of their copies;
    /// `None`: none.
    pub(super) fn copy_tcp(&self, sides: Option<Sides>) {
        self.shared.state.lock().copies.set_sides(sides);
    }

    /// What has become of copied packets.
    pub(super) fn copy_counts(&self) -> CopyCounts {
        self.shared.state.lock().copies.counts()
    }

    /// Changes what the name servers know.
    pub(super) fn change_names(&self, change: impl FnOnce(&mut Names)) {
        change(&mut self.shared.state.lock().names);
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// One of the client's networks, to be watched and changed while packets pass.
#[derive(Debug, Clone)]
pub struct Network {
    shared: Arc<Shared>,
    index: usize,
}

impl Network {
    fn with<T>(&self, work: impl FnOnce(&mut State, usize) -> T) -> T {
        let done = work(&mut self.shared.state.lock(), self.index);
        self.shared.wake();
        done
    }

    /// Lets nothing through in one direction until [`restore`](Self::restore).
    pub fn cut(&self, direction: Direction) {
        self.with(|state, index| state.accesses[index].link(direction).cut(Instant::now()));
    }

    /// Ends a cut.
    pub fn restore(&self, direction: Direction) {
        self.with(|state, index| state.accesses[index].link(direction).restore(Instant::now()));
    }

    /// Cuts both directions: the network falls silent.
    pub fn silence(&self) {
        self.cut(Direction::Up);
        self.cut(Direction::Down);
    }

    /// Ends a silence.
    pub fn revive(&self) {
        self.restore(Direction::Up);
        self.restore(Direction::Down);
    }

    /// Changes one direction's link.
    ///
    /// # Panics
    /// If the changed configuration is refused: the case that asks for it is wrong.
    pub fn change_link(&self, direction: Direction, change: impl FnOnce(&mut LinkConfig)) {
        self.with(|state, index| {
            let link = state.accesses[index].link(direction);
            let mut config = link.config().clone();
            change(&mut config);
            link.set_config(Instant::now(), config).expect("a case asks for links that can be");
        });
    }

    /// Changes both directions' links alike.
    pub fn change_links(&self, change: impl Fn(&mut LinkConfig)) {
        self.change_link(Direction::Up, &change);
        self.change_link(Direction::Down, &change);
    }

    /// Changes what the network does beside.
    pub fn change(&self, change: impl FnOnce(&mut Behaviour)) {
        self.with(|state, index| {
            let access = &mut state.accesses[index];
            change(&mut access.behaviour);
            access.next_rebind = access.behaviour.rebind_every.map(|every| Instant::now() + every);
        });
    }

    /// Gives every UDP flow another port outside, at once.
    pub fn rebind(&self) {
        self.with(|state, index| state.nat.rebind(index));
    }

    /// What has happened to packets in one direction.
    pub fn counters(&self, direction: Direction) -> Counters {
        self.with(|state, index| state.accesses[index].link(direction).counters())
    }

    /// How long a packet would wait in one direction's queue now.
    pub fn queue_delay(&self, direction: Direction) -> Duration {
        self.with(|state, index| state.accesses[index].link(direction).queue_delay(Instant::now()))
    }

    /// What the network has refused.
    pub fn refused(&self) -> Refused {
        self.with(|state, index| state.accesses[index].refused)
    }

    /// How often a flow of any network got another port outside.
    pub fn rebindings(&self) -> u64 {
        self.with(|state, _| state.nat.rebindings())
    }
}

/// The router's thread.
fn run(shared: &Shared) {
    // SAFETY: reads the thread's number.
    shared.thread.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    // SAFETY: sets how late this thread may be woken, in nanoseconds; it fails for no reason that matters.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    // SAFETY: makes this thread go before others; a link must be punctual on a busy machine too.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, PRIORITY) };
    let mut polled: Vec<libc::pollfd> = {
        let state = shared.state.lock();
        let taps = state.accesses.iter().map(|access| &access.tap).chain([&state.internet.tap]);
        let descriptors = taps.map(Tap::descriptor).chain([shared.wake.as_raw_fd()]);
        descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect()
    };
    let mut ready = vec![true; polled.len()];
    loop {
        let next = {
            let mut state = shared.state.lock();
            if state.stopped {
                return;
            }
            // Behind the devices comes the alarm clock.
            state.turn(&ready[..ready.len() - 1]);
            state.next()
        };
        let timeout = next.map(|next| {
            let wait = next.saturating_duration_since(Instant::now());
            libc::timespec { tv_sec: wait.as_secs() as libc::time_t, tv_nsec: wait.subsec_nanos() as libc::c_long }
        });
        let timeout = timeout.as_ref().map_or(std::ptr::null(), |timeout| &raw const *timeout);
        // SAFETY: the list and the time live until after the call, and the signal mask is none.
        unsafe { libc::ppoll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout, std::ptr::null()) };
        for (ready, polled) in ready.iter_mut().zip(&polled) {
            *ready = polled.revents & libc::POLLIN != 0;
        }
        if polled.iter().any(|polled| polled.revents & !libc::POLLIN != 0) {
            thread::sleep(PAUSE);
        }
        if ready.last() == Some(&true) {
            let mut count = 0u64;
            // SAFETY: reads eight bytes into a number that lives until after the call.
            unsafe { libc::read(shared.wake.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
    }
}
