//! The app's log: a file a day in `tandem/logs` in the user's state directory, the last five of them, and standard error.

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::{fs, panic};

use tracing_appender::non_blocking::WorkerGuard;
use tracing_appender::rolling::{RollingFileAppender, Rotation};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Files kept.
const MOST_FILES: usize = 5;
const PREFIX: &str = "tandem";

/// Where the files are; `None` without a home.
fn directory() -> Option<PathBuf> {
    let state = dirs::state_dir().or_else(dirs::data_local_dir)?;
    Some(state.join("tandem").join("logs"))
}

/// Begins to log; what waits is written when the answer is dropped.
pub(crate) fn start(filter: Option<&str>) -> Option<WorkerGuard> {
    let filter = EnvFilter::try_new(filter.unwrap_or("info")).unwrap_or_else(|_| EnvFilter::new("info"));
    let plain = fmt::layer().with_target(false).with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    let files = directory().and_then(|directory| {
        let rotation = RollingFileAppender::builder().rotation(Rotation::DAILY).max_log_files(MOST_FILES);
        rotation.filename_prefix(PREFIX).filename_suffix("log").build(directory).ok()
    });
    let (file, guard) = match files.map(tracing_appender::non_blocking) {
        Some((writer, guard)) => (Some(fmt::layer().with_ansi(false).with_writer(writer)), Some(guard)),
        None => (None, None),
    };
    tracing_subscriber::registry().with(filter).with(plain).with(file).init();
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        tracing::error!("{panic}");
        before(panic);
    }));
    guard
}

/// What the newest two files hold, the older one first.
pub(crate) fn recent() -> String {
    let files = directory().and_then(|directory| fs::read_dir(directory).ok());
    let mut paths: Vec<_> = files.into_iter().flatten().flatten().map(|file| file.path()).collect();
    // Their names end with the date.
    paths.sort();
    let newest = paths.iter().rev().take(2).rev();
    newest.map(|path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()).collect()
}
