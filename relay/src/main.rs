//! `tandem-relay`: sets up and runs a relay, and hands out access to it.

#[cfg(target_os = "linux")]
mod allocator;
mod listen;
mod stop;

use std::future::pending;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use ipnet::IpNet;
use tandem_core::print::{print, say};
use tandem_proto::wire::flow::Target;
use tandem_relay::admin;
use tandem_relay::config::{Config, DEFAULT_LISTEN};
use tandem_relay::directory::{Directory, TokenState};
use tandem_relay::egress::{OwnAddresses, TcpEgress};
use tandem_relay::invitation::invitation;
use tandem_relay::manual;
use tandem_relay::rules::AccessRules;
use tandem_relay::serve::{Limits, Measuring, Relay, RelayConfig};
use tandem_relay::tokens::{Claims, watch_revoked};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// The relay of Tandem: bicasting clients reach the internet through it.
#[derive(Parser)]
#[command(name = "tandem-relay", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a relay's directory: keys, settings, a first token. Prints its pairing link and QR code.
    Init {
        #[command(flatten)]
        dir: Dir,
        /// UDP address to listen on; may be given several times. "[::]" takes IPv4 as well.
        #[arg(long, value_name = "ADDRESS:PORT", default_value = DEFAULT_LISTEN, value_parser = socket_address)]
        listen: Vec<SocketAddr>,
        /// Name or address under which clients reach the relay, such as relay.example.org:4433; may be given several
        /// times.
        #[arg(long, value_name = "HOST:PORT", required = true)]
        public: Vec<Target>,
        /// Loopback address where to tell metrics and health over HTTP, such as 127.0.0.1:9433; nowhere if left out.
        #[arg(long, value_name = "ADDRESS:PORT", value_parser = socket_address)]
        admin: Option<SocketAddr>,
    },
    /// Run the relay. Prints a line beginning "ready" once it listens. SIGTERM or SIGINT lets open flows finish for up to 10
    /// seconds; a second one ends at once.
    Serve {
        #[command(flatten)]
        dir: Dir,
        /// Network that clients may reach although it is private or this machine's own, such as 10.1.0.0/16; may be
        /// given several times, in addition to those in relay.toml.
        #[arg(long, value_name = "CIDR", value_parser = network)]
        allow: Vec<IpNet>,
        /// How log lines look: text for people, json for programs. What is logged is up to TANDEM_LOG (info).
        #[arg(long, value_enum, default_value_t = LogFormat::Text, env = "TANDEM_LOG_FORMAT")]
        log_format: LogFormat,
    },
    /// Hand out, show and take back access tokens.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Change the key by which clients know the relay, without pairing them again.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Write man pages and shell completions into a directory, for packages.
    #[command(hide = true)]
    Generate {
        /// Where to; "man" and "completions" are made in it.
        directory: PathBuf,
    },
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Make the next key. A relay that runs from this directory announces it to its clients within a second or two; leave it
    /// so until every device has been connected once.
    Prepare {
        #[command(flatten)]
        dir: Dir,
    },
    /// Make the next key the present one, which counts from the relay's next start on: restart it soon. Devices that have
    /// not been connected since the next key was prepared need a new pairing link.
    Switch {
        #[command(flatten)]
        dir: Dir,
    },
    /// Show the pins of the present key and the next one.
    Show {
        #[command(flatten)]
        dir: Dir,
    },
}

#[derive(Subcommand)]
enum TokenCommand {
    /// Issue a token. Prints its pairing link and QR code.
    Issue {
        #[command(flatten)]
        dir: Dir,
        /// What to call it, as a rule the device.
        #[arg(long, default_value = "device")]
        name: String,
        /// For how many days it is good.
        #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: u32,
    },
    /// Show the tokens issued.
    List {
        #[command(flatten)]
        dir: Dir,
        /// As a JSON array of objects with id, name, issued, expires (RFC 3339) and state (valid, expired, revoked).
        #[arg(long)]
        json: bool,
    },
    /// Take a token back. A relay that runs from this directory ends its sessions within a second or two.
    Revoke {
        #[command(flatten)]
        dir: Dir,
        /// Every token of this name.
        #[arg(long, required_unless_present = "id", conflicts_with = "id")]
        name: Option<String>,
        /// The one token with this id, as "token list" shows it.
        #[arg(long)]
        id: Option<String>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Args)]
struct Dir {
    /// The relay's directory.
    #[arg(long, value_name = "DIRECTORY", env = "TANDEM_RELAY_DIR")]
    dir: PathBuf,
}

fn socket_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write ADDRESS:PORT, for example 0.0.0.0:4433 or [::]:4433".to_owned())
}

fn network(text: &str) -> Result<IpNet, String> {
    text.parse().map_err(|_| "write ADDRESS/LENGTH, for example 10.1.0.0/16 or fd00::/8".to_owned())
}

/// Name and lifetime of the token that comes with a new relay.
const FIRST_TOKEN: (&str, u32) = ("first", 90);

fn main() -> ExitCode {
    let command = Cli::parse().command;
    start_log(if let Command::Serve { log_format, .. } = &command { *log_format } else { LogFormat::Text });
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start_log(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("TANDEM_LOG").unwrap_or_else(|_| "info".into());
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Init { dir, listen, public, admin } => {
            let config = Config { listen, public, allow: Vec::new(), admin, measure: true, limits: Limits::default() };
            let directory = Directory::create(&dir.dir, &config)?;
            issue(&directory, FIRST_TOKEN.0, FIRST_TOKEN.1)
        }
        Command::Serve { dir, allow, .. } => serve(&Directory::open(&dir.dir)?, allow),
        Command::Key(command) => key(command),
        Command::Token(TokenCommand::Issue { dir, name, days }) => issue(&Directory::open(&dir.dir)?, &name, days),
        Command::Token(TokenCommand::List { dir, json }) => list(&Directory::open(&dir.dir)?, json),
        Command::Token(TokenCommand::Revoke { dir, name, id }) => {
            let which = id.or(name).unwrap_or_default();
            for claims in Directory::open(&dir.dir)?.revoke(&which, OffsetDateTime::now_utc())? {
                say(&format!("revoked {} ({})", claims.id, claims.name));
            }
            Ok(())
        }
        Command::Generate { directory } => manual::write(Cli::command(), &directory)
            .with_context(|| format!("{} cannot be written to", directory.display())),
    }
}

fn key(command: KeyCommand) -> anyhow::Result<()> {
    match command {
        KeyCommand::Prepare { dir } => {
            let pin = Directory::open(&dir.dir)?.prepare_key()?;
            say(&format!(
                "The next key is {}. A running relay announces it now. Once every device has been connected, run \"tandem-relay \
                 key switch\" and restart the relay.",
                URL_SAFE_NO_PAD.encode(pin)
            ));
        }
        KeyCommand::Switch { dir } => {
            let pin = Directory::open(&dir.dir)?.switch_key(OffsetDateTime::now_utc())?;
            say(&format!("The key is {} from the relay's next start on: restart it now.", URL_SAFE_NO_PAD.encode(pin)));
        }
        KeyCommand::Show { dir } => {
            let directory = Directory::open(&dir.dir)?;
            say(&format!("present {}", URL_SAFE_NO_PAD.encode(directory.identity()?.pin())));
            if let Some(next) = directory.next_pin()? {
                say(&format!("next    {}", URL_SAFE_NO_PAD.encode(next)));
            }
        }
    }
    Ok(())
}

fn issue(directory: &Directory, name: &str, days: u32) -> anyhow::Result<()> {
    let lifetime = Duration::from_secs(u64::from(days) * 86_400);
    let (link, claims) = directory.issue(name, OffsetDateTime::now_utc(), lifetime)?;
    print(&invitation(&link).to_string())?;
    say(&format!(
        "Token {} ({name}) is good until {}. Whoever has the link can use the relay.",
        claims.id,
        day(claims.expires)?
    ));
    Ok(())
}

fn list(directory: &Directory, json: bool) -> anyhow::Result<()> {
    let tokens = directory.tokens(OffsetDateTime::now_utc())?;
    if json {
        let object = |claims: &Claims, state: TokenState| {
            anyhow::Ok(serde_json::json!({
                "id": claims.id,
                "name": claims.name,
                "issued": claims.issued.format(&Rfc3339)?,
                "expires": claims.expires.format(&Rfc3339)?,
                "state": state.to_string(),
            }))
        };
        let objects =
            tokens.iter().map(|token| object(&token.claims, token.state)).collect::<anyhow::Result<Vec<_>>>()?;
        say(&serde_json::to_string_pretty(&objects)?);
        return Ok(());
    }
    say(&format!("{:<16}  {:<8}  {:<10}  {:<10}  NAME", "ID", "STATE", "ISSUED", "EXPIRES"));
    for token in tokens {
        let (issued, expires) = (day(token.claims.issued)?, day(token.claims.expires)?);
        let state = token.state.to_string();
        say(&format!("{:<16}  {state:<8}  {issued:<10}  {expires:<10}  {}", token.claims.id, token.claims.name));
    }
    Ok(())
}

/// The date of a time, as in `2026-01-31`.
fn day(time: OffsetDateTime) -> anyhow::Result<String> {
    let mut text = time.format(&Rfc3339)?;
    text.truncate("2026-01-31".len());
    Ok(text)
}

fn serve(directory: &Directory, allow: Vec<IpNet>) -> anyhow::Result<()> {
    let config = directory.config()?;
    listen::raise_descriptor_limit();
    let runtime = tokio::runtime::Runtime::new().context("starting the runtime")?;
    runtime.block_on(async {
        let own = OwnAddresses::default();
        own.refresh(&config.public).await;
        let rules = AccessRules::new(config.allow.iter().copied().chain(allow).collect());
        let egress = TcpEgress::new(rules, own.clone());
        let identity = directory.identity()?;
        let sockets = listen::bind(&config.listen)?;
        let addresses = sockets.iter().map(|socket| socket.local_addr()).collect::<Result<Vec<_>, _>>()?;
        let relay_config = RelayConfig {
            next_pin: directory.watch_next_pin(identity.pin())?,
            identity,
            verifier: directory.verifier()?,
            renewer: directory.renewer()?.map(Arc::new),
            revoked: watch_revoked(directory.revoked_path())
                .with_context(|| directory.revoked_path().display().to_string())?,
            limits: config.limits,
            measuring: config.measure.then(|| Measuring::new(listen::bind_tcp(&addresses))).transpose()?,
            seed: None,
        };
        let relay = Relay::bind(relay_config, sockets, egress)?;
        #[cfg(target_os = "linux")]
        relay.bound_memory(allocator::heap_bytes);
        let admin = match config.admin {
            Some(address) => Some(
                TcpListener::bind(address).await.with_context(|| format!("admin cannot listen on TCP {address}"))?,
            ),
            None => None,
        };

        let (drain, monitor) = (CancellationToken::new(), relay.monitor());
        let serving = relay.serve(drain.clone());
        say(&format!("ready {}", addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" ")));
        let telling = async {
            match admin {
                Some(listener) => {
                    say(&format!("admin {}", listener.local_addr()?));
                    admin::serve(listener, monitor, drain.clone()).await
                }
                None => pending().await,
            }
        };
        tokio::select! {
            () = serving => {}
            () = own.keep_fresh(&config.public) => {}
            told = telling => told.context("telling metrics and health")?,
            signal = stop::stopped_twice(drain.clone()) => signal?,
        }
        anyhow::Ok(())
    })?;
    runtime.shutdown_background();
    Ok(())
}
