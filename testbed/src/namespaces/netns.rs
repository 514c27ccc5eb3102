//! Network namespaces of the kernel: made, entered, configured and removed.
//!
//! A namespace is named `tandem-<process>-<bed>-<role>`, so that several beds can stand side by side and a bed whose
//! process was killed can be recognised: [`remove_leftovers`] removes those, and ends what still runs in them. Addresses
//! and routes are set with iproute2, which every machine that has namespaces has, and whose lines a reader can type.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

/// What every namespace's name begins with.
const PREFIX: &str = "tandem-";
/// Where iproute2 keeps the namespaces it has named.
const NAMED: &str = "/run/netns";
/// Where `ip netns exec` takes a namespace's own files of `/etc` from.
const ETC: &str = "/etc/netns";

/// One namespace; removed when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    handle: File,
}

impl Namespace {
    /// Makes a namespace with loopback up. `bed` keeps the beds of one process apart.
    ///
    /// # Errors
    /// Without privileges or iproute2.
    pub(super) fn create(bed: u32, role: &str) -> Result<Self> {
        let name = format!("{PREFIX}{}-{bed}-{role}", std::process::id());
        run(Command::new("ip").args(["netns", "add", &name]))?;
        let handle = File::open(Path::new(NAMED).join(&name)).context("opening a namespace")?;
        let namespace = Self { name, handle };
        namespace.ip("link set lo up")?;
        Ok(namespace)
    }

    /// The kernel's name of it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `work` on a thread inside the namespace: a socket opened there belongs to it for good.
    ///
    /// # Errors
    /// When the kernel does not let the thread in.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                // SAFETY: setns reads nothing but its arguments, and the descriptor is open.
                let entered = unsafe { libc::setns(self.handle.as_raw_fd(), libc::CLONE_NEWNET) };
                if entered != 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(work())
            });
            inside.join().expect("what runs in a namespace reports errors").context("entering a namespace")
        })
    }

    /// Runs lines of `ip` in the namespace, each without the word `ip`; those that begin with `-6` after the others.
    ///
    /// # Errors
    /// With what `ip` said about the first line that failed.
    pub fn ip(&self, lines: &str) -> Result<()> {
        let (v6, others): (Vec<_>, Vec<_>) = lines.lines().partition(|line| line.starts_with("-6 "));
        self.ip_batch(&["-n", &self.name], &others)?;
        let v6: Vec<_> = v6.iter().filter_map(|line| line.strip_prefix("-6 ")).collect();
        self.ip_batch(&["-6", "-n", &self.name], &v6)
    }

    fn ip_batch(&self, options: &[&str], lines: &[&str]) -> Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        let mut child = Command::new("ip")
            .args(options)
            .args(["-batch", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting ip")?;
        let mut input = child.stdin.take().expect("standard input is piped");
        input.write_all((lines.join("\n") + "\n").as_bytes()).context("talking to ip")?;
        drop(input);
        let output = child.wait_with_output().context("waiting for ip")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "ip in {} refused {lines:?}: {}", self.name, error.trim());
        Ok(())
    }

    /// A program to be started in the namespace, with the namespace's own `/sys` and the files given to it for `/etc`.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Sets a variable of the kernel, for example `net.ipv4.ip_forward`.
    ///
    /// # Errors
    /// When there is none of that name or it refuses the value.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<()> {
        let path = Path::new("/proc/sys").join(name.replace('.', "/"));
        self.enter(|| fs::write(&path, value))?.with_context(|| format!("setting {name} to {value:?}"))
    }

    /// Gives programs in the namespace a file of `/etc` of their own.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn etc(&self, file: &str, text: &str) -> Result<()> {
        let folder = Path::new(ETC).join(&self.name);
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join(file), text))
            .context("writing a namespace's /etc")
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        remove(&self.name);
    }
}

/// A number for a new bed of this process.
pub(super) fn next_bed() -> u32 {
    static BEDS: AtomicU32 = AtomicU32::new(0);
    BEDS.fetch_add(1, Ordering::Relaxed)
}

/// Removes the namespaces of beds whose process is gone, with what still runs in them.
pub(super) fn remove_leftovers() {
    let folders = [Path::new(NAMED), Path::new(ETC)];
    let names = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
        if owner(&name).is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            for process in processes(&name) {
                // SAFETY: kill reads nothing but its arguments; the process runs in a namespace of a bed without owner.
                unsafe { libc::kill(process, libc::SIGKILL) };
            }
            remove(&name);
        }
    }
}

/// The process that made a namespace of that name, if a bed did.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn processes(name: &str) -> Vec<i32> {
    let listed = Command::new("ip").args(["netns", "pids", name]).output();
    let text = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// Nothing is left to be done about a failure: the next bed tries again.
fn remove(name: &str) {
    if PathBuf::from(NAMED).join(name).exists() {
        let _ = run(Command::new("ip").args(["netns", "del", name]));
    }
    let _ = fs::remove_dir_all(Path::new(ETC).join(name));
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_beds_namespace_has_an_owner() {
        assert_eq!(owner("tandem-123-0-client"), Some(123));
        assert_eq!(owner("tandem-x-client"), None);
        assert_eq!(owner("other-123-0-client"), None);
    }
}
