//! The programs when the machine gives them little, or somebody wants much: descriptors and memory.
//!
//! Real processes on loopback, and real limits. What is asserted is that they go on, and what they are left with.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tandem_testbed::namespaces::{Programs, limit_descriptors};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_socks::tcp::Socks5Stream;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// So few that a handful of connections use them up.
const FEW: u64 = 64;

/// A program that runs; killed when dropped.
struct Running(Child);

impl Running {
    /// Starts it; answers with what follows `ready` in its first line.
    fn start(command: &mut Command, ready: &str) -> (Self, String) {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        let rest = line.trim().strip_prefix(ready).unwrap_or_else(|| panic!("it says {line:?}")).trim().to_owned();
        (Self(child), rest)
    }

    fn limit(&self, descriptors: u64) {
        limit_descriptors(self.0.id(), descriptors).unwrap();
    }

    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.0.id())).unwrap().count()
    }

    /// Bytes of memory it holds.
    fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1_024
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A relay, a client of it and a server, all on loopback.
struct Product {
    relay: Running,
    client: Running,
    relay_address: SocketAddr,
    proxy: SocketAddr,
    server: SocketAddr,
    _folder: TempDir,
}

impl Product {
    async fn start() -> Self {
        let programs = Programs::beside_this_one().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let (dir, home) = (folder.path().join("relay"), folder.path().join("home"));
        fs::create_dir(&home).unwrap();
        // The link names the relay's port, so it must be known before: one that was free just now.
        let free = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut init = Command::new(programs.tandem_relay());
        let init =
            init.arg("init").arg("--dir").arg(&dir).args(["--listen", &free, "--public", &free]).output().unwrap();
        let printed = String::from_utf8(init.stdout).unwrap();
        let link = printed.lines().find(|line| line.starts_with("tandem://")).unwrap();
        let mut serve = Command::new(programs.tandem_relay());
        serve.arg("serve").arg("--dir").arg(&dir).args(["--allow", "127.0.0.0/8"]);
        let (relay, relay_address) = Running::start(&mut serve, "ready");
        let mut run = Command::new(programs.tandem());
        run.args(["run", "--interface", "lo", "--listen", "127.0.0.1:0"]).env("TANDEM_LINK", link).env("HOME", &home);
        run.env("TANDEM_CONTROL", folder.path().join("control.sock"));
        let (client, proxy) = Running::start(&mut run, "SOCKS5 proxy on");
        let (relay_address, proxy) = (relay_address.parse().unwrap(), proxy.parse().unwrap());
        let product = Self { relay, client, relay_address, proxy, server: server().await, _folder: folder };
        product.fetch_in_the_end().await;
        product
    }

    /// Asks the server for something short through the proxy.
    async fn fetch(&self) -> Result<(), String> {
        fetch(self.proxy, self.server).await
    }

    /// The same again and again until it works.
    async fn fetch_in_the_end(&self) {
        let started = Instant::now();
        while let Err(error) = self.fetch().await {
            assert!(started.elapsed() < PATIENCE, "nothing is served any more: {error}");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until both programs have as few descriptors as before.
    async fn settle(&self, client: usize, relay: usize) {
        let started = Instant::now();
        while self.client.descriptors() > client + 10 || self.relay.descriptors() > relay + 10 {
            let now = (self.client.descriptors(), self.relay.descriptors());
            assert!(started.elapsed() < PATIENCE, "{now:?} descriptors, before {:?}", (client, relay));
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Sends 1,000 bytes to whoever sends one, and ends.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                if tcp.read_u8().await.is_ok() {
                    let _ = tcp.write_all(&[7; 1_000]).await;
                }
            });
        }
    });
    address
}

async fn open(proxy: SocketAddr, server: SocketAddr) -> Result<TcpStream, String> {
    let opened = timeout(PATIENCE, Socks5Stream::connect(proxy, server)).await;
    let stream = opened.map_err(|_| "no answer of the proxy")?.map_err(|error| error.to_string())?;
    Ok(stream.into_inner())
}

async fn fetch(proxy: SocketAddr, server: SocketAddr) -> Result<(), String> {
    let mut tcp = open(proxy, server).await?;
    let exchange = async {
        tcp.write_u8(1).await?;
        let mut got = Vec::new();
        tcp.read_to_end(&mut got).await.map(|_| got.len())
    };
    match timeout(PATIENCE, exchange).await.map_err(|_| "the answer hangs")? {
        Ok(1_000) => Ok(()),
        Ok(length) => Err(format!("{length} bytes came")),
        Err(error) => Err(error.to_string()),
    }
}

/// FLOWS-1, shorter: all 20,000 by `cargo xtask cases`.
#[tokio::test(flavor = "multi_thread")]
async fn short_requests_in_plenty_all_succeed_and_leave_no_descriptor_behind() {
    let product = Product::start().await;
    product.client.limit(1_024);
    product.relay.limit(1_024);
    let before = (product.client.descriptors(), product.relay.descriptors());
    let places = Arc::new(Semaphore::new(50));
    let mut going = JoinSet::new();
    for _ in 0..1_500 {
        let place = Arc::clone(&places).acquire_owned().await.unwrap();
        let (proxy, server) = (product.proxy, product.server);
        going.spawn(async move {
            let fetched = fetch(proxy, server).await;
            drop(place);
            fetched
        });
    }
    for fetched in going.join_all().await {
        assert_eq!(fetched, Ok(()));
    }
    product.settle(before.0, before.1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_ran_out_of_descriptors_serves_again_once_there_are_some() {
    let product = Product::start().await;
    let before = (product.client.descriptors(), product.relay.descriptors());
    product.client.limit(FEW);
    // Connections that never say what they want, more than there are descriptors, and among them good ones.
    let mut silent = Vec::new();
    for _ in 0..3 * FEW {
        silent.push(TcpStream::connect(product.proxy).await.unwrap());
    }
    product.fetch_in_the_end().await;
    drop(silent);
    // Connections that hold what they have.
    let mut opening = JoinSet::new();
    for _ in 0..2 * FEW {
        opening.spawn(timeout(Duration::from_secs(5), open(product.proxy, product.server)));
    }
    let held: Vec<_> = opening.join_all().await.into_iter().flatten().flatten().collect();
    assert!(held.len() < FEW as usize, "{} connections with {FEW} descriptors", held.len());
    drop(held);
    product.fetch_in_the_end().await;
    product.settle(before.0, before.1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_ran_out_of_descriptors_says_so_and_serves_again_once_there_are_some() {
    let product = Product::start().await;
    let before = (product.client.descriptors(), product.relay.descriptors());
    product.relay.limit(FEW);
    let mut opening = JoinSet::new();
    for _ in 0..3 * FEW {
        opening.spawn(open(product.proxy, product.server));
    }
    let (held, refused): (Vec<_>, Vec<_>) = opening.join_all().await.into_iter().partition(Result::is_ok);
    assert!(!held.is_empty() && held.len() < FEW as usize, "{} connections with {FEW} descriptors", held.len());
    assert_eq!(held.len() + refused.len(), 3 * FEW as usize);
    drop(held);
    product.fetch_in_the_end().await;
    product.settle(before.0, before.1).await;
}

/// Datagrams for sessions that do not exist, garbage, and Initials without end, from many addresses.
#[tokio::test(flavor = "multi_thread")]
async fn floods_of_datagrams_cost_the_relay_bounded_memory_and_end_no_session() {
    const SOURCES: usize = 200;
    const EACH: usize = 500;
    let product = Product::start().await;
    let before = product.relay.memory();
    let mut flood = JoinSet::new();
    for source in 0..SOURCES {
        let to = product.relay_address;
        flood.spawn(async move {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            for number in 0..EACH {
                let mut payload = vec![source as u8; 1_200];
                match number % 3 {
                    // A control datagram, a framed one, an Initial: each of its own session.
                    0 => payload[0] = 0b0010_0000,
                    1 => payload[0] = 0b0001_0000,
                    _ => payload[..6].copy_from_slice(&[0xc0, 0, 0, 0, 1, 8]),
                }
                payload[6..14].copy_from_slice(&((source * EACH + number) as u64).to_be_bytes());
                let _ = socket.send_to(&payload, to).await;
            }
        });
    }
    flood.join_all().await;
    product.fetch_in_the_end().await;
    let grown = product.relay.memory().saturating_sub(before);
    eprintln!("{} datagrams: {:.1} MB more", SOURCES * EACH, grown as f64 / 1e6);
    assert!(grown < 64_000_000, "{grown} bytes more");
}
