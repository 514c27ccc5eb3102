//! What runs came to, as lines of JSON in a file that only grows: a run that was stopped goes on where it was.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::point::Point;

/// Which bed a run was made on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BedKind {
    /// The programs and the kernel's TCP in network namespaces.
    Namespaces,
    /// The transport in virtual time.
    Virtual,
}

/// What a run came to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// How long was measured, in seconds: the file's download, or the window.
    pub seconds: f64,
    /// Bytes that the carrier's application got in that time.
    pub bytes: u64,
    /// Whether all that was asked for came in time; a window always has.
    pub finished: bool,
    /// What each network's competitors got in the window, in Mbit/s, summed over them.
    pub rivals_mbps: Vec<f64>,
    /// Packets of the carrier from the relay by network: which one carried the originals.
    pub carried: Vec<u64>,
    /// Bytes of IP packets that the client's side, and the server's, put on all networks while it was measured, of
    /// competitors too.
    pub sent_bytes: [u64; 2],
    /// Acknowledgement frames that the relay got; only known in virtual time.
    pub acknowledgements: Option<u64>,
    /// Window of the relay's sender in bytes, at times in seconds; only known in virtual time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub window: Vec<(f64, u64)>,
}

impl Measured {
    /// What the carrier's application got, in Mbit/s.
    pub fn goodput_mbps(&self) -> f64 {
        self.bytes as f64 * 8e-6 / self.seconds
    }

    /// The network that carried more of the carrier's packets; the first, unless the other carried a hundredth more: where every
    /// packet is copied, chance decides which carries some more.
    pub fn reference(&self) -> usize {
        let carried = |network: usize| self.carried.get(network).copied().unwrap_or_default();
        usize::from(carried(1) > carried(0) + carried(0) / 100)
    }
}

/// The machine while a run was made: on a busy one figures of real sockets are disturbed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Processes that wanted to run over the minute before, as the kernel tells it.
    pub load_before: f64,
    /// The share of processor time that nobody used during the run, in percent.
    pub idle_percent: f64,
    /// Processors.
    pub processors: usize,
    /// The kernel's release.
    pub kernel: String,
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Where it was run.
    pub bed: BedKind,
    /// What was run.
    pub point: Point,
    /// Where all chance came from.
    pub seed: u64,
    /// The commit of the project, with `+` behind it if the sources were changed since.
    pub commit: String,
    /// When it ended, by the machine's clock (RFC 3339, UTC).
    pub at: String,
    /// The machine then.
    pub machine: Machine,
    /// What it came to.
    pub measured: Measured,
}

impl Record {
    /// Whether it is of that run.
    fn is_of(&self, bed: BedKind, point: &Point, seed: u64) -> bool {
        self.bed == bed && self.seed == seed && self.point == *point
    }
}

/// The file of all runs, and what is in it.
#[derive(Debug)]
pub struct Records {
    path: PathBuf,
    all: Vec<Record>,
}

impl Records {
    /// Reads the file, if there is one. A last line that was cut off by the end of its run is forgotten.
    ///
    /// # Errors
    /// When it cannot be read, or another line is not a record.
    pub fn open(path: &Path) -> Result<Self> {
        let mut all = Vec::new();
        if path.exists() {
            let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            for (number, line) in text[..whole].lines().enumerate() {
                match serde_json::from_str(line) {
                    Ok(record) => all.push(record),
                    Err(error) => bail!("{}, line {}: {error}; remove the line", path.display(), number + 1),
                }
            }
            if whole < text.len() {
                eprintln!("{}: the last line is not whole and is forgotten", path.display());
                let file = File::options().write(true).open(path).context("opening the records")?;
                file.set_len(whole as u64).context("cutting off the records' last line")?;
            }
        }
        Ok(Self { path: path.to_owned(), all })
    }

    /// Every record, the oldest first.
    pub fn all(&self) -> &[Record] {
        &self.all
    }

    /// Whether that run has been made.
    pub fn has(&self, bed: BedKind, point: &Point, seed: u64) -> bool {
        self.all.iter().any(|record| record.is_of(bed, point, seed))
    }

    /// Whether the newest of that run's records was made with that commit.
    pub fn is_of_commit(&self, bed: BedKind, point: &Point, seed: u64, commit: &str) -> bool {
        let newest = self.all.iter().rfind(|record| record.is_of(bed, point, seed));
        newest.is_some_and(|record| record.commit == commit)
    }

    /// The newest record of each seed of a point, in the order of the seeds.
    pub fn of(&self, bed: BedKind, point: &Point) -> Vec<&Record> {
        let mut newest: Vec<&Record> = Vec::new();
        for record in self.all.iter().filter(|record| record.is_of(bed, point, record.seed)) {
            match newest.iter_mut().find(|known| known.seed == record.seed) {
                Some(known) => *known = record,
                None => newest.push(record),
            }
        }
        newest.sort_by_key(|record| record.seed);
        newest
    }

    /// Adds a record, to the file first. Returns its line.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&mut self, record: Record) -> Result<String> {
        let line = serde_json::to_string(&record).context("writing a record")?;
        let write = || -> std::io::Result<()> {
            if let Some(folder) = self.path.parent() {
                fs::create_dir_all(folder)?;
            }
            let mut file = File::options().create(true).append(true).open(&self.path)?;
            file.write_all(format!("{line}\n").as_bytes())
        };
        write().with_context(|| format!("writing {}", self.path.display()))?;
        self.all.push(record);
        Ok(line)
    }
}

/// Processor time of the machine so far: all, and idle, in the kernel's ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessorTime {
    all: u64,
    idle: u64,
}

impl ProcessorTime {
    /// Until now; zero where the system does not tell.
    pub(super) fn now() -> Self {
        Self::read(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn read(stat: &str) -> Self {
        // user, nice, system, idle, waiting for disks, interrupts twice, stolen; guests are in user already (proc_stat(5)).
        let ticks = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
        let ticks: Vec<u64> = ticks.filter_map(|ticks| ticks.parse().ok()).collect();
        let idle = ticks.iter().skip(3).take(2).sum();
        Self { all: ticks.iter().sum(), idle }
    }

    /// The share that nobody used since `before`, in percent.
    pub(super) fn idle_since(self, before: Self) -> f64 {
        let all = self.all.saturating_sub(before.all).max(1);
        self.idle.saturating_sub(before.idle) as f64 * 100.0 / all as f64
    }
}

/// The mean number of processes that wanted to run over the last minute.
pub(super) fn load_average() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|load| load.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::point::{Amount, Carrier, Scheme, Topology};

    fn point(loss_percent: f64) -> Point {
        Point {
            carrier: Carrier::TcpCubic,
            scheme: Scheme::Unicast,
            loss_percent,
            topology: Topology::PAPER,
            rivals: 0,
            rival: Carrier::TcpCubic,
            amount: Amount::File { bytes: 1_000, longest_s: 1 },
        }
    }

    fn record(loss_percent: f64, seed: u64, bytes: u64) -> Record {
        Record {
            bed: BedKind::Virtual,
            point: point(loss_percent),
            seed,
            commit: "0000000".to_owned(),
            at: "2026-01-01T00:00:00Z".to_owned(),
            machine: Machine::default(),
            measured: Measured { seconds: 1.0, bytes, finished: true, ..Measured::default() },
        }
    }

    #[test]
    fn a_run_that_was_killed_while_it_wrote_goes_on_behind_its_last_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("below/points.jsonl");
        let mut records = Records::open(&path).unwrap();
        records.add(record(0.1, 2, 1)).unwrap();
        records.add(record(0.1, 1, 2)).unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        file.write_all(b"{\"bed\":\"virt").unwrap();

        let mut records = Records::open(&path).unwrap();
        assert!(records.has(BedKind::Virtual, &point(0.1), 1));
        assert!(!records.has(BedKind::Namespaces, &point(0.1), 1));
        assert!(!records.has(BedKind::Virtual, &point(0.3), 1));
        records.add(record(0.1, 2, 3)).unwrap();
        let records = Records::open(&path).unwrap();
        let bytes: Vec<_> = records.of(BedKind::Virtual, &point(0.1)).iter().map(|r| r.measured.bytes).collect();
        assert_eq!(bytes, [2, 3], "by seed, the newest of each");
        assert!(records.is_of_commit(BedKind::Virtual, &point(0.1), 2, "0000000"));
        assert!(!records.is_of_commit(BedKind::Virtual, &point(0.1), 2, "1111111"));
    }

    #[test]
    fn a_line_in_the_middle_that_is_no_record_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("points.jsonl");
        let mut records = Records::open(&path).unwrap();
        records.add(record(0.0, 1, 1)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}{{}}\n{text}")).unwrap();
        let error = format!("{:#}", Records::open(&path).unwrap_err());
        assert!(error.contains("line 2"), "{error}");
    }

    #[test]
    fn idle_time_is_a_share_of_what_passed() {
        let before = ProcessorTime::read("cpu  100 0 100 700 100 0 0 0 9 9\ncpu0 1 1 1 1\n");
        let after = ProcessorTime::read("cpu  250 0 150 850 150 0 0 0 9 9\n");
        assert_eq!(after.idle_since(before), 50.0);
    }

    #[test]
    fn the_reference_is_the_network_that_carried_most() {
        let reference = |carried: &[u64]| Measured { carried: carried.to_vec(), ..Measured::default() }.reference();
        assert_eq!([reference(&[500, 900]), reference(&[900, 500]), reference(&[9]), reference(&[])], [1, 0, 0, 0]);
        assert_eq!(reference(&[1_000, 1_009]), 0, "copied whole, neither carries the originals");
    }
}
