//! What was measured before: the last runs, in a file that survives the app, and what is shown of them.
//!
//! The file is `tandem/measurements.json` in the user's state directory. One that cannot be read is set aside under another
//! name, and said; where that fails too, nothing is written over it.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tandem_proto::measure::{FairnessReport, FairnessRow, SpeedReport};

use crate::engines::chain;
use crate::paper::{self, Kept};
use crate::settings::replace;

/// The version of the file that this program reads and writes.
const VERSION: u32 = 1;
/// Runs kept; the oldest make room.
pub const MOST_RUNS: usize = 50;
/// The longest file that is read, in bytes; [`MOST_RUNS`] with a dozen networks each are far below.
const MAX_FILE: u64 = 4 << 20;
/// Names that are tried for what is set aside.
const MOST_ASIDE: u32 = 100;

/// What came of a measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Report {
    /// Of each network alone and of all of them.
    Speed(SpeedReport),
    /// Of TCP alone and beside the tunnel.
    Fairness(FairnessReport),
}

/// A measurement that is done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its number; later ones have greater ones.
    pub id: u64,
    /// When it ended, in seconds since the Unix epoch.
    pub unix_s: u64,
    /// What came of it.
    pub report: Report,
}

/// The runs that are kept, the oldest first.
#[derive(Debug, Default)]
pub struct Runs {
    file: Option<PathBuf>,
    list: Vec<Run>,
}

/// A run as the window shows it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownRun {
    /// See [`Run::id`].
    pub id: u64,
    /// See [`Run::unix_s`].
    pub unix_s: u64,
    /// What came of it.
    #[serde(flatten)]
    pub report: ShownReport,
}

/// See [`Report`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "what")]
pub enum ShownReport {
    /// As it was told.
    Speed(SpeedReport),
    /// With what follows from it.
    Fairness(ShownFairness),
}

/// A report on fairness with what the paper has in its place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ShownFairness {
    /// As it was told.
    #[serde(flatten)]
    pub report: FairnessReport,
    /// What follows for each network, in the order of the report's rows.
    pub shares: Vec<Share>,
    /// What TCP kept in the paper in this mode.
    pub paper_kept: Option<Kept>,
    /// From what on shares count as fair.
    pub fair_jain: f64,
}

/// What follows from a row.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// See [`FairnessRow::utilization_percent`].
    pub utilization_percent: Option<f64>,
    /// See [`FairnessRow::jain`].
    pub jain: Option<f64>,
}

/// Why runs cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// What was there cannot be read; it was set aside.
    #[error("earlier measurements cannot be read and were set aside as {aside}")]
    SetAside {
        /// Under which name.
        aside: PathBuf,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// What was there can neither be read nor set aside.
    #[error("earlier measurements in {path} can neither be read nor set aside; new ones are lost when Tandem ends")]
    Stuck {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
    /// A new one cannot be written.
    #[error("the measurement cannot be kept in {path}")]
    NotKept {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        #[source]
        source: io::Error,
    },
}

/// The part that every version has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Content {
    version: u32,
    runs: Vec<Run>,
}

impl Runs {
    /// Those that are kept in this file; beside it, why those of before are not among them.
    pub fn load(path: &Path) -> (Self, Option<RunsError>) {
        let source = match read(path) {
            Ok(list) => return (Self { file: Some(path.to_owned()), list }, None),
            Err(source) => source,
        };
        match set_aside(path) {
            Ok(aside) => {
                let runs = Self { file: Some(path.to_owned()), list: Vec::new() };
                (runs, Some(RunsError::SetAside { aside, source }))
            }
            Err(_) => (Self::default(), Some(RunsError::Stuck { path: path.to_owned(), source })),
        }
    }

    /// Takes a new one.
    ///
    /// # Errors
    /// [`RunsError::NotKept`]; it is shown nevertheless, as long as the app runs.
    pub fn add(&mut self, report: Report, unix_s: u64) -> Result<(), RunsError> {
        let id = self.latest().unwrap_or(0) + 1;
        self.list.push(Run { id, unix_s, report });
        let over = self.list.len().saturating_sub(MOST_RUNS);
        self.list.drain(..over);
        let Some(path) = &self.file else { return Ok(()) };
        let content = Content { version: VERSION, runs: self.list.clone() };
        let kept = serde_json::to_vec_pretty(&content).map_err(io::Error::other).and_then(|text| replace(path, &text));
        kept.map_err(|source| RunsError::NotKept { path: path.clone(), source })
    }

    /// The newest one's number.
    pub fn latest(&self) -> Option<u64> {
        self.list.last().map(|run| run.id)
    }

    /// What is shown, the newest first.
    pub fn shown(&self) -> Vec<ShownRun> {
        self.list.iter().rev().map(Run::shown).collect()
    }
}

impl Run {
    fn shown(&self) -> ShownRun {
        let report = match &self.report {
            Report::Speed(report) => ShownReport::Speed(report.clone()),
            Report::Fairness(report) => {
                let share =
                    |row: &FairnessRow| Share { utilization_percent: row.utilization_percent(), jain: row.jain() };
                ShownReport::Fairness(ShownFairness {
                    shares: report.rows.iter().map(share).collect(),
                    paper_kept: paper::kept(&report.congestion, report.mode),
                    fair_jain: paper::FAIR_JAIN,
                    report: report.clone(),
                })
            }
        };
        ShownRun { id: self.id, unix_s: self.unix_s, report }
    }
}

fn read(path: &Path) -> io::Result<Vec<Run>> {
    let mut text = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        file => file?.take(MAX_FILE + 1).read_to_end(&mut text)?,
    };
    if text.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("it is longer than {MAX_FILE} bytes")));
    }
    // The version first: what else another one holds is not known.
    let Versioned { version } = serde_json::from_slice(&text)?;
    if version != VERSION {
        return Err(io::Error::other(format!("it is of version {version}; this program reads version {VERSION}")));
    }
    let Content { mut runs, .. } = serde_json::from_slice(&text)?;
    runs.sort_by_key(|run| run.id);
    Ok(runs)
}

/// Gives a file a name that none has yet.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    for number in 1..=MOST_ASIDE {
        let aside = path.with_extension(format!("broken-{number}.json"));
        if !fs::exists(&aside)? {
            fs::rename(path, &aside)?;
            return Ok(aside);
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

impl RunsError {
    /// In words for a person.
    pub(crate) fn words(&self) -> String {
        chain(self)
    }
}

#[cfg(test)]
mod tests;
