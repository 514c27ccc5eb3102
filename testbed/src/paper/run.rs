//! Runs what is missing, one point after another, and makes drawings, tables and the page of what is there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::figure::Figure;
use super::page;
use super::plot;
use super::point::{Amount, Carrier, Point};
use super::record::{BedKind, Machine, ProcessorTime, Record, Records, load_average};
use super::report::Report;
use super::{in_namespaces, in_virtual_time};
use crate::namespaces::{Programs, Turn};

/// What the legend calls stated values.
const STATED: &str = "stated by the paper";

/// One run: where, what, and its seed.
pub type Job = (BedKind, Point, u64);

/// The runs that figures need, each once; every point has its first seed before any has its second.
pub fn jobs<'f>(figures: impl Iterator<Item = &'f Figure>, quick: bool, seeds: &[u64]) -> Vec<Job> {
    let mut points: Vec<(BedKind, Point)> = Vec::new();
    for job in figures.flat_map(|figure| figure.jobs(quick)) {
        if !points.contains(&job) {
            points.push(job);
        }
    }
    seeds.iter().flat_map(|seed| points.iter().map(|(bed, point)| (*bed, *point, *seed))).collect()
}

/// What runs are made with.
#[derive(Debug)]
pub struct Bench {
    /// The programs; `None` where none are needed.
    pub programs: Option<Programs>,
    /// Where their logs go.
    pub logs: PathBuf,
    /// The commit that is tried.
    pub commit: String,
}

impl Bench {
    /// A bench for these programs, in the working copy of this folder.
    pub fn new(programs: Option<Programs>, logs: PathBuf) -> Self {
        Self { programs, logs, commit: commit() }
    }

    /// Makes one run.
    ///
    /// # Errors
    /// When it cannot be made or a transfer breaks; nothing is to be read from it then.
    pub async fn run(&self, (bed, point, seed): &Job) -> Result<Record> {
        let (load_before, before) = (load_average(), ProcessorTime::now());
        let measured = match bed {
            BedKind::Namespaces => {
                let _turn = Turn::wait("paper").await?;
                let programs = self.programs.as_ref().context("a run in namespaces needs the programs")?;
                in_namespaces::run(programs, point, *seed, &self.logs).await?
            }
            BedKind::Virtual => {
                let point = *point;
                let seed = *seed;
                // The clock of virtual time needs a thread without another runtime.
                let run = std::thread::spawn(move || in_virtual_time::run(&point, seed));
                tokio::task::spawn_blocking(move || run.join()).await?.ok().context("the run panicked")??
            }
        };
        let carried = point.carrier == Carrier::Nobody || measured.bytes > 0;
        ensure!(carried && measured.seconds > 0.0, "nothing came");
        let machine = Machine {
            load_before,
            idle_percent: (ProcessorTime::now().idle_since(before) * 10.0).round() / 10.0,
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        };
        let at = OffsetDateTime::now_utc().replace_nanosecond(0).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let at = at.format(&Rfc3339).context("writing the time")?;
        let commit = self.commit.clone();
        Ok(Record { bed: *bed, point: *point, seed: *seed, commit, at, machine, measured })
    }
}

/// The commit of the working copy around this folder, with `+` if its sources were changed since; `unknown` without one.
pub(super) fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=10", "HEAD"]) else { return "unknown".to_owned() };
    // What is measured is written to docs itself.
    let changed = git(&["status", "--porcelain", "--", ":!docs"]).is_none_or(|changes| !changes.is_empty());
    if changed { commit + "+" } else { commit }
}

/// Tells how long is left, from how long runs have taken so far.
#[derive(Debug)]
pub(super) struct Progress {
    expected_left: Duration,
    expected_done: Duration,
    taken: Duration,
}

impl Progress {
    /// At the start of these runs.
    pub(super) fn new(jobs: &[Job]) -> Self {
        let expected_left = jobs.iter().map(|(bed, point, _)| expected(*bed, point)).sum();
        Self { expected_left, expected_done: Duration::ZERO, taken: Duration::ZERO }
    }

    /// After a run that began then.
    pub(super) fn done(&mut self, (bed, point, _): &Job, began: Instant) {
        let expected = expected(*bed, point);
        self.expected_left = self.expected_left.saturating_sub(expected);
        self.expected_done += expected;
        self.taken += began.elapsed();
    }

    /// How long is left, in words.
    pub(super) fn left(&self) -> String {
        let pace = if self.expected_done.is_zero() {
            1.0
        } else {
            self.taken.as_secs_f64() / self.expected_done.as_secs_f64()
        };
        let minutes = (self.expected_left.as_secs_f64() * pace / 60.0).ceil() as u64;
        match (minutes / 60, minutes % 60) {
            (0, minutes) => format!("{minutes} min"),
            (hours, minutes) => format!("{hours} h {minutes} min"),
        }
    }
}

/// A first guess at how long a run takes.
fn expected(bed: BedKind, point: &Point) -> Duration {
    let flows = 1.0 + 2.0 * f64::from(point.rivals);
    match (bed, point.amount) {
        (BedKind::Namespaces, Amount::Window { .. }) => point.amount.longest() + Duration::from_secs(2),
        // At a link's rate, a second for building the bed; TCP on a path with loss takes as long as it is let.
        (_, Amount::File { bytes, longest_s }) => {
            let whole = bytes as f64 * 8.0 / 90e6 + 2.0;
            let slow = point.carrier == Carrier::TcpCubic && point.loss_percent >= 1.0;
            Duration::from_secs_f64(if slow { longest_s as f64 } else { whole.min(longest_s as f64) })
        }
        (BedKind::Virtual, Amount::Window { .. }) => point.amount.longest().mul_f64(flows),
    }
}

/// Makes a figure's drawings and values of what there is, and writes them into the page. Returns the files' names.
///
/// # Errors
/// When a file cannot be read or written.
pub fn render(figure: &Figure, records: &Records, quick: bool, folder: &Path) -> Result<Vec<String>> {
    let report = Report { figure, records, quick };
    let mut written = Vec::new();
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let mut write = |name: String, text: &str| {
        let path = folder.join(&name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        written.push(name);
        anyhow::Ok(())
    };
    for drawing in report.drawings() {
        let svg = plot::draw(&drawing.title, &drawing.panels, STATED)?;
        write(format!("figure-{}{}.svg", figure.id, drawing.suffix), &svg)?;
    }
    if !report.all().is_empty() {
        write(format!("figure-{}.csv", figure.id), &report.csv())?;
    }
    let page = folder.join("README.md");
    let before = if page.exists() { fs::read_to_string(&page).context("reading the page")? } else { String::new() };
    write("README.md".to_owned(), &page::write(&before, &report))?;
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::FIGURES;

    #[test]
    fn every_point_is_run_once_with_a_seed_before_any_is_with_the_next() {
        let chosen = || FIGURES.iter().filter(|figure| matches!(figure.id, "6" | "7" | "12"));
        let of_two: usize = chosen().filter(|figure| figure.id != "12").map(|figure| figure.jobs(false).len()).sum();
        let jobs = jobs(chosen(), false, &[1, 2]);
        assert_eq!(jobs.len(), 2 * of_two, "figure 12's runs are those of 6 and 7");
        let (first, second) = jobs.split_at(of_two);
        assert!(first.iter().all(|job| job.2 == 1) && second.iter().all(|job| job.2 == 2));
    }

    #[test]
    fn time_left_follows_how_long_runs_have_taken() {
        let figure = FIGURES.iter().find(|figure| figure.id == "15").unwrap();
        let jobs = jobs([figure].into_iter(), false, &[1]);
        let mut progress = Progress::new(&jobs);
        // 36 runs of 40 s.
        assert_eq!(progress.left(), "24 min");
        progress.done(&jobs[0], Instant::now() - Duration::from_secs(80));
        assert_eq!(progress.left(), "47 min");
    }
}
