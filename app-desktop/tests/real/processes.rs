//! Processes, by what Linux tells of them in /proc: whose children they are, and what they cost.

use std::fs;
use std::time::Duration;

/// A process at one moment.
#[derive(Debug, Clone)]
pub(crate) struct Process {
    pub(crate) id: u32,
    parent: u32,
    pub(crate) name: String,
    /// Processor time since it began, in user and kernel mode.
    pub(crate) processor: Duration,
}

/// How finely processor time is counted: Linux's USER_HZ.
const TICKS_PER_SECOND: f64 = 100.0;

/// The children of a process.
pub(crate) fn children(of: u32) -> Vec<Process> {
    all().into_iter().filter(|process| process.parent == of).collect()
}

/// A process with its descendants; empty if it is gone.
pub(crate) fn family(of: u32) -> Vec<Process> {
    let all = all();
    let mut family: Vec<Process> = all.iter().filter(|process| process.id == of).cloned().collect();
    let mut next = 0;
    while let Some(parent) = family.get(next).map(|process| process.id) {
        family.extend(all.iter().filter(|process| process.parent == parent).cloned());
        next += 1;
    }
    family
}

/// Memory of a process in bytes, where what it shares with others counts in parts: Linux's PSS.
pub(crate) fn memory(id: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kibibytes = line.and_then(|line| line.trim().split(' ').next()?.parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// `None` if it is gone, or dead and not yet waited for.
fn read(id: u32) -> Option<Process> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name stands in parentheses, and may hold some.
    let (head, tail) = text.rsplit_once(')')?;
    let name = head.split_once('(')?.1.to_owned();
    let fields: Vec<&str> = tail.split_whitespace().collect();
    let number = |field: usize| fields.get(field)?.parse::<u64>().ok();
    // The first thread may be dead while others still end.
    let threads = fs::read_dir(format!("/proc/{id}/task")).ok()?.count();
    if *fields.first()? == "Z" && threads <= 1 {
        return None;
    }
    let parent = u32::try_from(number(1)?).ok()?;
    let ticks = number(11)? + number(12)?;
    Some(Process { id, parent, name, processor: Duration::from_secs_f64(ticks as f64 / TICKS_PER_SECOND) })
}
