//! The command line: flags and their help.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use tandem_core::client::{DEFAULT_LISTEN, default_state};
use tandem_core::config::Config;
use tandem_core::inbound::Forward;
use tandem_proto::congestion::Algorithm;
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::networks::Settings;
use tandem_proto::wire::flow::MAX_MEASURE_SECONDS;
use tracing_subscriber::EnvFilter;

use crate::link::{self, Paired};

/// One QUIC connection over several networks at once, behind a local proxy.
#[derive(Debug, Parser)]
#[command(name = "tandem", version, propagate_version = true)]
pub(crate) struct Arguments {
    /// What to log: a level (error, warn, info, debug, trace) or target=level,... [default: info for run, else warn]
    #[arg(long, global = true, env = "TANDEM_LOG", value_name = "FILTER", value_parser = log_filter)]
    pub(crate) log: Option<String>,
    /// The control socket of the running client [default: in the user's runtime directory]
    #[arg(long, global = true, env = "TANDEM_CONTROL", value_name = "PATH")]
    pub(crate) control: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Keep a relay's pairing link in the keychain, or in a private file where there is none, beside those of other relays. A
    /// new link of a known relay takes the old one's place.
    Pair {
        /// The link (tandem://...), or - to read it from standard input, where no process list shows it.
        #[arg(value_name = "LINK|-")]
        link: String,
        /// What to call the relay [default: its address]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
    /// Show and change which relays `tandem pair` has kept.
    #[command(subcommand)]
    Relay(RelayCommand),
    /// Run the client: a local proxy whose connections travel over all networks to the relay.
    Run(Box<RunOptions>),
    /// Show how the running client stands, once or with --watch again and again.
    Status(StatusOptions),
    /// Show the paths of the running client.
    Paths(Output),
    /// Say what a network is for and what it may carry, or show all of them.
    #[command(subcommand)]
    Path(PathCommand),
    /// Tell what happens to the running client, a line each, until it or you have enough.
    Events(EventsOptions),
    /// Show the counters of the running client.
    Stats(Output),
    /// Measure the networks of the running client against its relay, beside whatever else it does. The data counts for the
    /// networks' caps.
    #[command(subcommand)]
    Measure(MeasureCommand),
    /// Change how the running client uses its paths.
    Mode(ModeArguments),
    /// Stop the running client.
    Stop,
    /// Find out what stands between this machine and its relay, and what to do about it: networks, routes, names, UDP,
    /// packet sizes, loss, keychain, token, clock, ports. With or without a running client. Ends with 1 if something must
    /// be done.
    Doctor(DoctorOptions),
    /// Show what bicasting does: a server, a relay and a client in this process, two lossy networks emulated between
    /// them, and one download after another. Takes half a minute, no privileges and no network.
    Demo(DemoOptions),
    /// Write man pages and shell completions into a directory, for packages.
    #[command(hide = true)]
    Generate {
        /// Where to; "man" and "completions" are made in it.
        directory: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum RelayCommand {
    /// Show the relays, without their tokens.
    List(ListOutput),
    /// Give a relay another name.
    Rename {
        /// Its name now.
        from: String,
        /// The new one: letters, digits, '-', '.' and '_'.
        to: String,
    },
    /// Forget a relay and the right to use it.
    Remove {
        /// Its name.
        name: String,
    },
    /// Prefer a relay: it is used whenever it answers, and others when it does not. Counts from the client's next start on.
    Use {
        /// Its name.
        #[arg(required_unless_present = "nearest")]
        name: Option<String>,
        /// Prefer none: use the nearest that answers.
        #[arg(long, conflicts_with = "name")]
        nearest: bool,
    },
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum MeasureCommand {
    /// Each network alone, and all of them at once: throughput both ways, round-trip time under load, loss.
    Speed(MeasureOptions),
    /// A TCP download on each network, alone and beside one through the tunnel: what others on the network keep.
    Fairness(MeasureOptions),
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct MeasureOptions {
    /// How long each transfer takes, in seconds, 1 to 60.
    #[arg(long, value_name = "SECONDS", default_value_t = 8,
        value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_MEASURE_SECONDS)))]
    pub(crate) seconds: u16,
    /// Print the report as JSON (progress goes to standard error).
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct ListOutput {
    /// As a JSON array of objects with name, addresses, preferred and paired_as (the token's name at the relay).
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Output {
    /// Print the whole snapshot as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PathCommand {
    /// Show every network of the running client: what it is for, what it has carried, its caps.
    List(Output),
    /// Set something for a network. It goes before the configuration, at once and after restarts, until it is reset.
    ///
    /// role: use, backup (carries data only while no network for use works), never. metered: true or false; a metered
    /// network is a backup unless a role is set. cap-daily, cap-monthly: the most it may carry, both ways with all headers,
    /// such as "500 MB" or "2 GB" (at least 10 MB), or none. reset-day: the day of the month on which a month begins.
    /// soft-percent: the share of a cap from which on the network is slowed to 1 Mbit/s; 100 for never.
    #[command(verbatim_doc_comment)]
    Set {
        /// The interface's name, for example wwan0.
        network: String,
        #[arg(value_parser = PossibleValuesParser::new(Settings::NAMES))]
        setting: String,
        value: String,
    },
    /// Forget what was set for a network; what the configuration says holds again.
    Reset {
        /// The interface's name.
        network: String,
    },
}

#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct EventsOptions {
    /// Print each event as one line of JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusOptions {
    #[command(flatten)]
    pub(crate) output: Output,
    /// Stay, and show it anew again and again: on a terminal as a picture (q quits), else a line each time; with --json the
    /// snapshot as one line each time.
    #[arg(long)]
    pub(crate) watch: bool,
    /// How often, in seconds, 0.2 to 60.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = watch_interval, requires = "watch")]
    pub(crate) interval: Duration,
}

/// What a client works with: `run` uses it, `doctor` looks into it.
#[derive(Debug, Args)]
pub(crate) struct Setup {
    /// A relay's pairing link, or - to read links from standard input; may be given several times. Else they come from
    /// --link-file, the environment's TANDEM_LINK, the configuration, or what `tandem pair` has kept.
    #[arg(long = "link", value_name = "LINK|-", conflicts_with = "link_files")]
    links: Vec<String>,
    /// A file with pairing links, one a line; may be given several times. Renewed tokens are written there.
    #[arg(long = "link-file", value_name = "FILE")]
    link_files: Vec<PathBuf>,
    /// Where the proxy listens, for SOCKS5 and HTTP alike [default: 127.0.0.1:1080]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = socket_address)]
    listen: Option<SocketAddr>,
    /// A network interface to use; may be given several times [default: every way to the internet]
    #[arg(long = "interface", value_name = "NAME")]
    interfaces: Vec<String>,
    /// Where to keep what networks carry, and what is set for them by `tandem path set`
    /// [default: tandem/networks.json in the user's state directory]
    #[arg(long, value_name = "FILE", env = "TANDEM_STATE")]
    state: Option<PathBuf>,
    /// A configuration file; flags go before it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) setup: Setup,
    /// How to use the networks [default: single]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<ModeWord>,
    /// Whose datagrams are sent twice in bicast mode: client, server or both; alone it means --mode bicast
    /// [default: both]
    #[arg(long, value_name = "SIDES")]
    pub(crate) bicast: Option<Sides>,
    /// The congestion controller: bbr3, bbr3-draft, cubic, newreno, bbr1, bbr2 or bbr-cws. With bicast all but bbr3 can be
    /// quite unfair to others who share a network with it [default: bbr3]
    #[arg(long, value_name = "NAME")]
    pub(crate) congestion: Option<Algorithm>,
    /// Join a local address to one target behind the relay, for example 127.0.0.1:8080=example.org:80; may be given
    /// several times
    #[arg(long = "forward", value_name = "LISTEN=TARGET")]
    pub(crate) forwards: Vec<Forward>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorOptions {
    /// Print the findings as JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also find out how long each network stays open in silence, which takes a minute.
    #[arg(long)]
    pub(crate) full: bool,
    #[command(flatten)]
    pub(crate) setup: Setup,
}

#[derive(Debug, Args)]
pub(crate) struct ModeArguments {
    #[arg(value_enum)]
    mode: ModeWord,
    /// Whose datagrams are sent twice: client, server or both [default: both]
    #[arg(value_name = "SIDES")]
    bicast: Option<Sides>,
}

#[derive(Debug, Args)]
pub(crate) struct DemoOptions {
    /// Print the results as JSON (progress goes to standard error).
    #[arg(long)]
    pub(crate) json: bool,
    /// Datagrams that each network loses at random, both ways, in percent, 0 to 90.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0, value_parser = loss_percent)]
    pub(crate) loss: f64,
    /// How long each download runs, in seconds, 1 to 120.
    #[arg(long, value_name = "SECONDS", default_value_t = 6, value_parser = clap::value_parser!(u64).range(1..=120))]
    pub(crate) seconds: u64,
    /// Only this scheme; may be given several times [default: unicast and bidirectional]
    #[arg(long = "scheme", value_enum, value_name = "SCHEME")]
    pub(crate) schemes: Vec<Scheme>,
    /// Only this congestion controller: bbr3, bbr3-draft, cubic, newreno, bbr1, bbr2 or bbr-cws; may be given several
    /// times [default: cubic and bbr3]
    #[arg(long = "congestion", value_name = "NAME")]
    pub(crate) controllers: Vec<Algorithm>,
}

/// The paper's names of the modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheme {
    /// Each datagram travels on one network.
    Unicast,
    /// The client's datagrams travel on both networks.
    Client,
    /// The relay's datagrams travel on both networks.
    Server,
    /// All datagrams travel on both networks.
    Bidirectional,
}

impl From<Scheme> for Mode {
    fn from(scheme: Scheme) -> Mode {
        match scheme {
            Scheme::Unicast => Mode::Single,
            Scheme::Client => Mode::Bicast(Sides::Client),
            Scheme::Server => Mode::Bicast(Sides::Server),
            Scheme::Bidirectional => Mode::Bicast(Sides::Both),
        }
    }
}

/// Checks a filter, which has no copy and so is made where it is used.
fn log_filter(text: &str) -> Result<String, String> {
    let checked = EnvFilter::try_new(text).map(|_| text.to_owned());
    checked.map_err(|_| "write a level (error, warn, info, debug, trace) or target=level,...".to_owned())
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write ADDRESS:PORT, for example 127.0.0.1:1080 or [::1]:1080".to_owned())
}

fn watch_interval(text: &str) -> Result<Duration, String> {
    let allowed = text.parse().ok().filter(|seconds| (0.2..=60.0).contains(seconds));
    allowed.map(Duration::from_secs_f64).ok_or_else(|| "0.2 to 60 seconds are allowed".to_owned())
}

/// Beyond this hardly a handshake comes through.
const MAX_LOSS_PERCENT: f64 = 90.0;

fn loss_percent(text: &str) -> Result<f64, String> {
    let allowed = text.parse().ok().filter(|percent| (0.0..=MAX_LOSS_PERCENT).contains(percent));
    allowed.ok_or_else(|| format!("a percentage from 0 to {MAX_LOSS_PERCENT} is allowed"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeWord {
    /// Each datagram travels on the best path; another takes over when that one fails.
    Single,
    /// Datagrams travel on every path at once.
    Bicast,
}

impl ModeArguments {
    pub(crate) fn mode(&self) -> Mode {
        mode(Some(self.mode), self.bicast).unwrap_or_default()
    }
}

impl Setup {
    /// The pairing links by flags, environment, configuration or keychain, in this order.
    pub(crate) fn links(&self, file: &Config) -> anyhow::Result<Paired> {
        link::find(&self.links, &self.link_files, file.link_file.as_deref())
    }

    /// Where the proxy listens.
    pub(crate) fn listen(&self, file: &Config) -> SocketAddr {
        self.listen.or(file.listen).unwrap_or(DEFAULT_LISTEN)
    }

    /// Where what networks carry is kept.
    pub(crate) fn state(&self) -> Option<PathBuf> {
        self.state.clone().or_else(default_state)
    }

    /// The networks to use; empty for every way to the internet.
    pub(crate) fn interfaces(self, file: Vec<String>) -> Vec<String> {
        if self.interfaces.is_empty() { file } else { self.interfaces }
    }
}

impl RunOptions {
    pub(crate) fn mode(&self) -> Option<Mode> {
        mode(self.mode, self.bicast)
    }
}

/// Ends the program as for any other wrong command line if the two contradict each other.
fn mode(word: Option<ModeWord>, sides: Option<Sides>) -> Option<Mode> {
    match (word, sides) {
        (None, None) => None,
        (Some(ModeWord::Single), None) => Some(Mode::Single),
        (Some(ModeWord::Single), Some(sides)) => {
            let message = format!("{sides} says whose datagrams are sent twice, but the mode is single");
            Arguments::command().error(ErrorKind::ArgumentConflict, message).exit()
        }
        (Some(ModeWord::Bicast) | None, sides) => Some(Mode::Bicast(sides.unwrap_or_default())),
    }
}
