//! The command line of the app.

use std::path::PathBuf;

use clap::Parser;

/// The desktop app of Tandem: one QUIC connection over several networks at once.
#[derive(Debug, Clone, Parser)]
#[command(name = "tandem-desktop", version)]
pub struct Options {
    /// Start in the tray, without a window; with one where there is no tray.
    #[arg(long)]
    pub hidden: bool,
    /// The configuration file of the engine, as for `tandem run` [default: tandem/config.toml in the user's configuration
    /// directory, if it is there]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The control socket of the running client, or of the one that is started [default: in the user's runtime directory]
    #[arg(long, env = "TANDEM_CONTROL", value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// What to log: a level (error, warn, info, debug, trace) or target=level,... [default: info]
    #[arg(long, env = "TANDEM_LOG", value_name = "FILTER")]
    pub log: Option<String>,
    /// A pairing link (tandem://...) that the window shows; it is kept only if the user says so there.
    #[arg(value_name = "LINK")]
    pub link: Option<String>,
}
