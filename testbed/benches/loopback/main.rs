//! What a gigabyte costs: processor time of client and relay on loopback, beside a plain QUIC proxy.
//!
//! One download goes from a TCP server through relay and client to a TCP client. The two ends are processes of their own,
//! made of the same parts as the shipped programs, and only their processor time counts. The yardstick is the least proxy
//! that can be made with the same QUIC library and the same two TCP hops. All variants take turns in every round, so that
//! a busy machine disturbs all alike; figures are medians, ratios those of each round.
//!
//! Nothing is emulated and nothing limits the rate: this measures work, not networks. `docs/PERFORMANCE.md` has figures.

mod child;
mod ends;
mod yardstick;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use tandem_proto::congestion::Algorithm;

use child::Child;

/// Measures processor time per gigabyte on loopback.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Arguments {
    /// Size of each download, in GB (10^9 bytes).
    #[arg(long, default_value_t = 2.0)]
    gigabytes: f64,
    /// How often every variant is measured.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Congestion controllers to measure with; may be given several times.
    #[arg(long, default_values = ["cubic", "bbr3"])]
    congestion: Vec<Algorithm>,
    /// Variants to measure; may be given several times.
    #[arg(long, value_enum, default_values = ["yardstick", "single", "bicast"])]
    variant: Vec<Variant>,
    /// Be one end of a variant: how this program starts itself.
    #[arg(long, value_enum, hide = true, requires = "peer")]
    end: Option<End>,
    /// The relay's target, or what the client knows of the relay.
    #[arg(long, hide = true)]
    peer: Option<String>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Variant {
    /// A plain QUIC proxy.
    Yardstick,
    /// Tandem over one of two paths.
    Single,
    /// Tandem over both, both ways.
    Bicast,
}

/// The two processes of a variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum End {
    /// Next to the TCP client.
    Client,
    /// Next to the TCP server.
    Relay,
}

impl Variant {
    fn name(self) -> &'static str {
        match self {
            Variant::Yardstick => "yardstick",
            Variant::Single => "single",
            Variant::Bicast => "bicast",
        }
    }

    /// How many times the yardstick's processor time is allowed.
    fn allowed(self) -> f64 {
        match self {
            Variant::Yardstick => 1.0,
            Variant::Single => 1.3,
            Variant::Bicast => 1.9,
        }
    }
}

/// One download.
#[derive(Clone, Debug)]
struct Cost {
    /// Processor seconds per GB.
    client: f64,
    relay: f64,
    /// Application bytes, in Mbit/s.
    goodput_mbps: f64,
    /// How the networks were used, in words.
    told: String,
}

impl Cost {
    fn total(&self) -> f64 {
        self.client + self.relay
    }
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    match (arguments.end, &arguments.peer) {
        (Some(end), Some(peer)) => be(end, arguments.variant[0], arguments.congestion[0], peer),
        _ => compare(&arguments),
    }
}

fn be(end: End, variant: Variant, congestion: Algorithm, peer: &str) -> Result<()> {
    // As many threads as the shipped programs have.
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    runtime.block_on(async {
        match (variant, end) {
            (Variant::Yardstick, End::Relay) => yardstick::relay(peer, congestion).await,
            (Variant::Yardstick, End::Client) => yardstick::client(peer, congestion).await,
            (_, End::Relay) => ends::relay(peer).await,
            (_, End::Client) => ends::client(variant, congestion, peer).await,
        }
    })
}

fn compare(arguments: &Arguments) -> Result<()> {
    let bytes = (arguments.gigabytes * 1e9) as u64;
    ensure!(bytes > 0, "--gigabytes is {}; it must be more than nothing", arguments.gigabytes);
    let origin = start_origin(bytes)?;
    for congestion in &arguments.congestion {
        println!("\n{congestion}: {} rounds of {} GB\n", arguments.rounds, arguments.gigabytes);
        let mut costs = vec![Vec::new(); arguments.variant.len()];
        for round in 0..arguments.rounds {
            for (variant, costs) in arguments.variant.iter().zip(&mut costs) {
                let cost = download(*variant, *congestion, origin, bytes)
                    .with_context(|| format!("{} with {congestion}, round {}", variant.name(), round + 1))?;
                costs.push(cost);
            }
        }
        print_table(&arguments.variant, &costs);
    }
    Ok(())
}

/// A TCP server that sends so many bytes to whoever connects.
fn start_origin(bytes: u64) -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("listening for the relay")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { continue };
            std::thread::spawn(move || {
                let (block, mut left) = (vec![0x5a; 256 * 1024], bytes);
                while left > 0 {
                    let length = left.min(block.len() as u64) as usize;
                    // A reader that went away shows at the other end of the download.
                    if connection.write_all(&block[..length]).is_err() {
                        return;
                    }
                    left -= length as u64;
                }
            });
        }
    });
    Ok(address)
}

/// Runs both ends of a variant and downloads through them once.
fn download(variant: Variant, congestion: Algorithm, origin: SocketAddr, bytes: u64) -> Result<Cost> {
    let mut relay = Child::start(End::Relay, variant, congestion, &origin.to_string())?;
    let mut client = Child::start(End::Client, variant, congestion, relay.ready())?;
    let entrance: SocketAddr = client.ready().parse().context("the client says where it listens")?;
    let before = (client.processor_seconds()?.0, relay.processor_seconds()?.0);
    let start = Instant::now();
    let mut connection = TcpStream::connect(entrance).context("connecting to the client")?;
    let (mut buffer, mut got) = (vec![0; 256 * 1024], 0);
    loop {
        match connection.read(&mut buffer).context("reading from the client")? {
            0 => break,
            length => got += length as u64,
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    ensure!(got == bytes, "{got} bytes arrived of {bytes}");
    let (after, told) = client.processor_seconds()?;
    let gigabytes = bytes as f64 / 1e9;
    Ok(Cost {
        client: (after - before.0) / gigabytes,
        relay: (relay.processor_seconds()?.0 - before.1) / gigabytes,
        goodput_mbps: bytes as f64 * 8.0 / 1e6 / elapsed,
        told,
    })
}

fn print_table(variants: &[Variant], costs: &[Vec<Cost>]) {
    let yardstick = variants.iter().position(|variant| *variant == Variant::Yardstick);
    println!("             CPU s/GB   client    relay   Mbit/s   ratio (least to most)   allowed");
    for (variant, own) in variants.iter().zip(costs) {
        let of = |value: fn(&Cost) -> f64| median(own.iter().map(value).collect());
        let mut ratios: Vec<_> = yardstick
            .iter()
            .flat_map(|index| own.iter().zip(&costs[*index]))
            .map(|(cost, yardstick)| cost.total() / yardstick.total())
            .collect();
        ratios.sort_by(f64::total_cmp);
        let ratio = match ratios.as_slice() {
            [least, .., most] => format!("{:.2} ({least:.2} to {most:.2})", median(ratios.clone())),
            [only] => format!("{only:.2}"),
            [] => "-".to_owned(),
        };
        let told = own.last().map_or("", |cost| cost.told.as_str());
        println!(
            "{:<12} {:>8.2} {:>8.2} {:>8.2} {:>8.0}   {ratio:<21} {:>9.1}   {told}",
            variant.name(),
            of(|cost| cost.total()),
            of(|cost| cost.client),
            of(|cost| cost.relay),
            of(|cost| cost.goodput_mbps),
            variant.allowed(),
        );
    }
}

/// The middle value, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
