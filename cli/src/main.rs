//! `tandem`: the headless client and its owner's tool.
//!
//! `pair` keeps a pairing link, `relay` shows and changes what is kept, `run` is the client itself, and `status`, `paths`,
//! `path`, `events`, `stats`, `measure`, `mode` and `stop` talk to a running one through its control socket; `doctor` finds out why
//! there is no connection, or a bad one, and `demo` shows
//! all of it on one machine. Output is for people; with `--json` it is for programs, of a running client the snapshot that
//! every surface shows.

mod args;
mod demo;
mod doctor;
mod events;
mod link;
mod measure;
mod run;
mod show;
mod shutdown;
mod watch;

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser as _};
use tandem_core::client::control::{self, Request};
use tandem_proto::measure::Kind;
use tandem_proto::networks::Settings;
use tandem_relay::manual;
use tracing_subscriber::EnvFilter;

use self::args::{Arguments, Command, MeasureCommand, PathCommand};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match start(arguments) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "tandem: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let default = if matches!(arguments.command, Command::Run(_)) { "info" } else { "warn" };
    let filter = EnvFilter::new(arguments.log.as_deref().unwrap_or(default));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_target(false);
    log.with_writer(io::stderr).with_ansi(io::stderr().is_terminal()).init();
    let runtime = tokio::runtime::Runtime::new().context("cannot start")?;
    runtime.block_on(carry_out(arguments))
}

async fn carry_out(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let control = || arguments.control.clone().map_or_else(control::default_path, Ok);
    let ask = async |request| control::ask(&control()?, &request).await;
    let done = match arguments.command {
        // A machine without a place for the socket has no running client.
        Command::Doctor(options) => return doctor::run(options, control().ok()).await,
        Command::Pair { link, name } => link::pair(&link, name.as_deref()),
        Command::Relay(command) => link::relay(&command),
        Command::Run(options) => run::run(*options, &control()?).await,
        Command::Demo(options) => demo::run(options).await,
        Command::Generate { directory } => manual::write(Arguments::command(), &directory)
            .with_context(|| format!("{} cannot be written to", directory.display())),
        Command::Mode(mode) => {
            let mode = mode.mode();
            ask(Request::Mode(mode)).await?;
            Ok(tandem_core::print::print(&format!("mode is now {mode}\n"))?)
        }
        Command::Measure(MeasureCommand::Speed(options)) => measure::run(&control()?, Kind::Speed, options).await,
        Command::Measure(MeasureCommand::Fairness(options)) => measure::run(&control()?, Kind::Fairness, options).await,
        Command::Stop => {
            ask(Request::Stop).await?;
            Ok(())
        }
        Command::Status(options) if options.watch => {
            watch::watch(&control()?, options.interval, options.output.json).await
        }
        Command::Status(options) => show::show(ask(Request::Status).await?, options.output, show::status),
        Command::Paths(output) => show::show(ask(Request::Status).await?, output, show::paths),
        Command::Path(PathCommand::List(output)) => show::show(ask(Request::Status).await?, output, show::networks),
        Command::Path(PathCommand::Set { network, setting, value }) => {
            // Whether or not a client runs.
            Settings::default().set(&setting, &value)?;
            let text = format!("{network}: {setting} is now {value}\n");
            ask(Request::Set { network, setting, value }).await?;
            Ok(tandem_core::print::print(&text)?)
        }
        Command::Path(PathCommand::Reset { network }) => {
            ask(Request::Reset { network }).await?;
            Ok(())
        }
        Command::Events(options) => events::tell(&control()?, options.json).await,
        Command::Stats(output) => show::show(ask(Request::Status).await?, output, show::stats),
    };
    done.map(|()| ExitCode::SUCCESS)
}
