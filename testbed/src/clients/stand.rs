//! The stand: a folder, servers, a relay and two clients on loopback, all gone when it is dropped.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use super::servers::{make_files, servers};
use crate::namespaces::Programs;

/// Longer than anything takes to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Seconds that a trial may take before it counts as hanging.
const LIMIT: &str = "120";
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Ports of the servers.
pub(super) struct Ports {
    pub(super) http: u16,
    pub(super) https: u16,
    pub(super) ws: u16,
    pub(super) ssh: u16,
    /// Nobody listens there.
    closed: u16,
}

impl Ports {
    fn choose() -> Result<Self> {
        // Held until all are chosen, so that they differ.
        let listeners = (0..5).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<Vec<_>, _>>()?;
        let ports = listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<Result<Vec<_>>>()?;
        Ok(Self { http: ports[0], https: ports[1], ws: ports[2], ssh: ports[3], closed: ports[4] })
    }
}

/// A server to be started.
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) command: Command,
    /// It is ready when it listens there.
    pub(super) port: u16,
}

/// Everything that the trials need.
pub struct Stand {
    ports: Ports,
    proxy: SocketAddr,
    locked: SocketAddr,
    // Ended before their folder goes.
    _running: Vec<Running>,
    folder: TempDir,
}

impl Stand {
    /// Makes the files and starts everything.
    ///
    /// # Errors
    /// When something that is installed does not start.
    pub fn build(programs: &Programs) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("tandem-clients-").tempdir().context("making a folder")?;
        make_files(folder.path()).context("making the files that are served")?;
        let ports = Ports::choose()?;
        let mut running = Vec::new();
        for Server { name, command, port } in servers(folder.path(), &ports)? {
            running.push(Running::start(name, command, folder.path())?);
            wait_for(name, port)?;
        }
        let link = relay(programs, folder.path(), &mut running)?;
        let proxy = client(programs, folder.path(), &link, "open", "", &mut running)?;
        let locked = "[proxy]\nuser = \"ann\"\npassword = \"secret\"\n";
        let locked = client(programs, folder.path(), &link, "locked", locked, &mut running)?;
        Ok(Self { ports, proxy, locked, _running: running, folder })
    }

    /// A shell that runs a trial's line, in a folder of its own.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub fn shell(&self, name: &str, line: &str) -> Result<Command> {
        let (folder, Ports { http, https, ws, ssh, closed }) = (self.folder.path(), &self.ports);
        let place = folder.join(name);
        fs::create_dir_all(&place)?;
        // coreutils' timeout ends the line with all that it has started.
        let mut shell = Command::new("timeout");
        shell.args([LIMIT, "sh", "-c"]).arg(line).current_dir(&place).stdin(Stdio::null());
        for variable in ["http_proxy", "https_proxy", "all_proxy", "no_proxy"] {
            shell.env_remove(variable).env_remove(variable.to_uppercase());
        }
        for variable in ["CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"] {
            shell.env_remove(variable);
        }
        shell.env("HOME", &place).env("GIT_CONFIG_NOSYSTEM", "1");
        shell.env("PROXY", self.proxy.to_string()).env("LOCKED", self.locked.to_string());
        shell.env("STAND", folder).env("WWW", folder.join("www")).env("CA", folder.join("ca.pem"));
        shell.env("KEY", folder.join("user_key")).env("HOSTS", folder.join("known_hosts"));
        for (name, port) in [("HTTP", http), ("HTTPS", https), ("WS", ws), ("SSH", ssh), ("CLOSED", closed)] {
            shell.env(name, port.to_string());
        }
        Ok(shell)
    }
}

/// Whether a program, or with `python:` in front a module of Python, is there.
pub(super) fn installed(name: &str) -> bool {
    let mut command = Command::new(if name.starts_with("python:") { "python3" } else { "sh" });
    match name.strip_prefix("python:") {
        Some(module) => command.arg("-c").arg(format!("import {module}")),
        None => command.arg("-c").arg(format!("PATH=$PATH:/usr/sbin command -v {name}")),
    };
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Starts a relay that may reach loopback; its pairing link.
fn relay(programs: &Programs, folder: &Path, running: &mut Vec<Running>) -> Result<String> {
    let place = folder.join("relay");
    let port = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let address = format!("127.0.0.1:{port}");
    let mut init = Command::new(programs.tandem_relay());
    let output = init
        .args(["init", "--listen", &address, "--public", &address, "--dir"])
        .arg(&place)
        .output()
        .context("tandem-relay init")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let link = printed.split_whitespace().find(|word| word.starts_with("tandem://"));
    let link = link.context("tandem-relay init printed no link")?.to_owned();
    let mut serve = Command::new(programs.tandem_relay());
    serve.args(["serve", "--allow", "127.0.0.0/8", "--dir"]).arg(&place);
    let mut relay = Running::start("relay", serve, folder)?;
    relay.line("ready")?;
    running.push(relay);
    Ok(link)
}

/// Starts a client with more lines of configuration; where its proxy listens.
fn client(
    programs: &Programs,
    folder: &Path,
    link: &str,
    name: &str,
    more: &str,
    running: &mut Vec<Running>,
) -> Result<SocketAddr> {
    let (file, control) = (folder.join(format!("{name}.toml")), folder.join(format!("{name}.sock")));
    fs::write(&file, format!("version = 1\ninterfaces = [\"lo\"]\n{more}"))?;
    let mut run = Command::new(programs.tandem());
    run.args(["run", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
    run.env("TANDEM_LINK", link).env("TANDEM_CONTROL", control);
    let mut client = Running::start(name, run, folder)?;
    let line = client.line("HTTP proxy on ")?;
    running.push(client);
    line.parse().with_context(|| format!("the client's proxy is {line:?}"))
}

fn wait_for(name: &str, port: u16) -> Result<()> {
    let started = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        ensure!(started.elapsed() < PATIENCE, "{name} does not listen on port {port}");
        sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// A program that runs beside the trials; ended when dropped.
struct Running {
    name: String,
    child: Child,
    log: PathBuf,
    output: Option<BufReader<Box<dyn Read + Send>>>,
}

impl Running {
    fn start(name: &str, mut command: Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        // A group of its own, so that its children end with it.
        let mut child = command.process_group(0).spawn().with_context(|| format!("starting {name}"))?;
        let output = child.stdout.take().map(|output| BufReader::new(Box::new(output) as Box<dyn Read + Send>));
        Ok(Self { name: name.to_owned(), child, log, output })
    }

    /// Waits for a line that begins so; the rest of it.
    fn line(&mut self, beginning: &str) -> Result<String> {
        let mut output = self.output.take().context("its output was read before")?;
        loop {
            let mut line = String::new();
            if output.read_line(&mut line)? == 0 {
                bail!("{} did not start: {}", self.name, fs::read_to_string(&self.log).unwrap_or_default());
            }
            if let Some(rest) = line.trim().strip_prefix(beginning) {
                // Whatever else it prints must not block it.
                std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
                return Ok(rest.to_owned());
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).map(|id| -id);
        if let Ok(group) = group {
            // SAFETY: kill reads nothing but its arguments; the group is that of a child that was not waited for.
            unsafe { libc::kill(group, libc::SIGTERM) };
        }
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if started.elapsed() > Duration::from_secs(10) {
                let _ = self.child.kill();
            }
            sleep(LOOK_AGAIN);
        }
    }
}
