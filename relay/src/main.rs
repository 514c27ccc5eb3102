//! `tandem-relay`: sets up a relay and hands out access to it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tandem_proto::wire::flow::Target;
use tandem_relay::config::{Config, DEFAULT_LISTEN};
use tandem_relay::directory::{Directory, TokenState};
use tandem_relay::invitation::invitation;
use tandem_relay::tokens::Claims;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The relay of Tandem: bicasting clients reach the internet through it.
#[derive(Parser)]
#[command(version)]
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
        #[arg(long, value_name = "ADDRESS:PORT", default_value = DEFAULT_LISTEN)]
        listen: Vec<SocketAddr>,
        /// Name or address under which clients reach the relay, such as relay.example.org:4433; may be given several
        /// times.
        #[arg(long, value_name = "HOST:PORT", required = true)]
        public: Vec<Target>,
    },
    /// Hand out, show and take back access tokens.
    #[command(subcommand)]
    Token(TokenCommand),
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

#[derive(Args)]
struct Dir {
    /// The relay's directory.
    #[arg(long, value_name = "DIRECTORY", env = "TANDEM_RELAY_DIR")]
    dir: PathBuf,
}

/// Name and lifetime of the token that comes with a new relay.
const FIRST_TOKEN: (&str, u32) = ("first", 90);

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("TANDEM_LOG").unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Init { dir, listen, public } => {
            let config = Config { listen, public, allow: Vec::new() };
            let directory = Directory::create(&dir.dir, &config)?;
            issue(&directory, FIRST_TOKEN.0, FIRST_TOKEN.1)
        }
        Command::Token(TokenCommand::Issue { dir, name, days }) => issue(&Directory::open(&dir.dir)?, &name, days),
        Command::Token(TokenCommand::List { dir, json }) => list(&Directory::open(&dir.dir)?, json),
        Command::Token(TokenCommand::Revoke { dir, name, id }) => {
            let which = id.or(name).unwrap_or_default();
            for claims in Directory::open(&dir.dir)?.revoke(&which, OffsetDateTime::now_utc())? {
                println!("revoked {} ({})", claims.id, claims.name);
            }
            Ok(())
        }
    }
}

fn issue(directory: &Directory, name: &str, days: u32) -> anyhow::Result<()> {
    let lifetime = Duration::from_secs(u64::from(days) * 86_400);
    let (link, claims) = directory.issue(name, OffsetDateTime::now_utc(), lifetime)?;
    print!("{}", invitation(&link));
    println!(
        "Token {} ({name}) is good until {}. Whoever has the link can use the relay.",
        claims.id,
        day(claims.expires)?
    );
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
        println!("{}", serde_json::to_string_pretty(&objects)?);
        return Ok(());
    }
    println!("{:<16}  {:<8}  {:<10}  {:<10}  NAME", "ID", "STATE", "ISSUED", "EXPIRES");
    for token in tokens {
        let (issued, expires) = (day(token.claims.issued)?, day(token.claims.expires)?);
        let state = token.state.to_string();
        println!("{:<16}  {state:<8}  {issued:<10}  {expires:<10}  {}", token.claims.id, token.claims.name);
    }
    Ok(())
}

/// The date of a time, as in `2026-01-31`.
fn day(time: OffsetDateTime) -> anyhow::Result<String> {
    let mut text = time.format(&Rfc3339)?;
    text.truncate("2026-01-31".len());
    Ok(text)
}
