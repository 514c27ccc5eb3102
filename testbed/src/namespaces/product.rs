//! The product's own programs in the bed: started as a user starts them, watched as a user may.
//!
//! The relay is set up with `tandem-relay init`, the client is given the link with `tandem pair`; both are stopped when
//! dropped. Their logs lie in the bed's folder.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UnixStream};
use tokio::time::{Instant, sleep, timeout};

use super::bed::{Bed, RELAY};
use super::netns::Namespace;
use super::origin::Origin;

/// Where the client's proxy listens.
const PROXY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1_080);
/// Longer than anything that is not measured takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The programs, as cargo has built them.
#[derive(Debug, Clone)]
pub struct Programs {
    folder: PathBuf,
}

impl Programs {
    /// The programs that lie where this one does.
    ///
    /// # Errors
    /// When they have not been built.
    pub fn beside_this_one() -> Result<Self> {
        let this = std::env::current_exe().context("this program's own path")?;
        let folder = this.ancestors().find(|folder| folder.join("tandem").is_file()).map(Path::to_owned);
        let folder = folder.with_context(|| {
            format!("no tandem beside {}; build it with: cargo build -p tandem-cli -p tandem-relay", this.display())
        })?;
        ensure!(folder.join("tandem-relay").is_file(), "no tandem-relay in {}", folder.display());
        Ok(Self { folder })
    }

    /// The client's.
    pub fn tandem(&self) -> PathBuf {
        self.folder.join("tandem")
    }

    /// The relay's.
    pub fn tandem_relay(&self) -> PathBuf {
        self.folder.join("tandem-relay")
    }
}

/// A running relay.
#[derive(Debug)]
pub struct Relay {
    process: Process,
    link: String,
}

impl Relay {
    /// Sets a relay up, known by `public` names or addresses with ports, and starts it.
    ///
    /// # Errors
    /// With the end of its log when it does not become ready.
    pub fn start(bed: &Bed, programs: &Programs, public: &[&str]) -> Result<Self> {
        Self::start_with(bed, programs, public, &[])
    }

    /// The same, with variables in the running relay's environment.
    ///
    /// # Errors
    /// With the end of its log when it does not become ready.
    pub fn start_with(bed: &Bed, programs: &Programs, public: &[&str], environment: &[(&str, String)]) -> Result<Self> {
        Self::set_up(bed, programs, "relay", public, &[], environment)
    }

    /// One of several relays: it listens on that address alone, and its files and log have that name.
    ///
    /// # Errors
    /// With the end of its log when it does not become ready.
    pub fn start_at(bed: &Bed, programs: &Programs, name: &str, address: Ipv4Addr) -> Result<Self> {
        let at = format!("{address}:4433");
        Self::set_up(bed, programs, name, &[&at], &["--listen", &at], &[])
    }

    fn set_up(
        bed: &Bed,
        programs: &Programs,
        name: &str,
        public: &[&str],
        more: &[&str],
        environment: &[(&str, String)],
    ) -> Result<Self> {
        let folder = bed.folder().join(name);
        let mut init = bed.relay().command(&programs.tandem_relay());
        init.args(["init", "--dir"]).arg(&folder).args(more);
        for public in public {
            init.args(["--public", public]);
        }
        let printed = output(&mut init)?;
        let link = printed.split_whitespace().find(|word| word.starts_with("tandem://"));
        let link = link.context("tandem-relay init printed no link")?.to_owned();
        let mut serve = bed.relay().command(&programs.tandem_relay());
        serve.args(["serve", "--dir"]).arg(&folder).envs(environment.iter().map(|(name, value)| (name, value)));
        let process = Process::start(serve, name, bed.logs(), "ready")?;
        Ok(Self { process, link })
    }

    /// A relay at the bed's usual address.
    ///
    /// # Errors
    /// With the end of its log when it does not become ready.
    pub fn start_plain(bed: &Bed, programs: &Programs) -> Result<Self> {
        Self::start(bed, programs, &[&format!("{RELAY}:4433")])
    }

    /// The pairing link: a secret.
    pub fn link(&self) -> &str {
        &self.link
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }
}

/// A running client.
#[derive(Debug)]
pub struct Client {
    process: Process,
    control: PathBuf,
    namespace: Arc<Namespace>,
}

impl Client {
    /// Pairs and starts a client with more arguments of `tandem run`.
    ///
    /// # Errors
    /// With the end of its log when it does not open its proxy.
    pub fn start(bed: &Bed, programs: &Programs, relay: &Relay, arguments: &[&str]) -> Result<Self> {
        Self::start_with(bed, programs, relay, arguments, &[])
    }

    /// The same, with variables in the running client's environment.
    ///
    /// # Errors
    /// With the end of its log when it does not open its proxy.
    pub fn start_with(
        bed: &Bed,
        programs: &Programs,
        relay: &Relay,
        arguments: &[&str],
        environment: &[(&str, String)],
    ) -> Result<Self> {
        Self::start_paired(bed, programs, &[relay.link()], arguments, environment)
    }

    /// The same, paired with the relays of these links.
    ///
    /// # Errors
    /// With the end of its log when it does not open its proxy.
    pub fn start_paired(
        bed: &Bed,
        programs: &Programs,
        links: &[&str],
        arguments: &[&str],
        environment: &[(&str, String)],
    ) -> Result<Self> {
        let home = bed.folder().join("home");
        fs::create_dir_all(&home).context("making the client's home")?;
        let control = bed.folder().join("control.sock");
        let tandem = |arguments: &[&str]| {
            let mut command = bed.client().command(&programs.tandem());
            command.args(arguments).env("HOME", &home).env("TANDEM_CONTROL", &control);
            for variable in
                ["XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "DBUS_SESSION_BUS_ADDRESS", "TANDEM_LINK"]
            {
                command.env_remove(variable);
            }
            command
        };
        for link in links {
            let mut pair = tandem(&["pair", "-"]);
            let pairing = pair.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
            let mut pairing = pairing.context("starting tandem pair")?;
            pairing.stdin.take().context("its input")?.write_all(link.as_bytes())?;
            ensure!(pairing.wait()?.success(), "tandem pair failed");
        }
        let mut run = tandem(&["run"]);
        run.args(arguments).envs(environment.iter().map(|(name, value)| (name, value)));
        let process = Process::start(run, "client", bed.logs(), "")?;
        let mut client = Self { process, control, namespace: bed.client().clone() };
        client.wait_for_proxy()?;
        Ok(client)
    }

    fn wait_for_proxy(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            let tried = self.namespace.enter(|| std::net::TcpStream::connect(PROXY))?;
            if tried.is_ok() {
                return Ok(());
            }
            if started.elapsed() > PATIENCE || self.process.has_ended() {
                bail!("the client does not open its proxy; its log ends:\n{}", self.process.log_tail());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Where it can be asked and steered.
    pub fn control(&self) -> &Path {
        &self.control
    }

    /// Its process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Waits for its end, after [`command`](Self::command) or a signal has asked for it.
    ///
    /// # Errors
    /// When it does not come.
    pub async fn ended(&mut self) -> Result<()> {
        let started = Instant::now();
        while !self.process.has_ended() {
            ensure!(started.elapsed() < PATIENCE, "the client does not end");
            sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// One request on the control socket.
    ///
    /// # Errors
    /// When the client does not answer, or refuses.
    pub async fn command(&self, request: &Value) -> Result<Value> {
        let exchange = async {
            let mut socket = UnixStream::connect(&self.control).await.context("opening the control socket")?;
            socket.write_all(format!("{request}\n").as_bytes()).await?;
            let mut line = String::new();
            tokio::io::BufReader::new(socket).read_line(&mut line).await?;
            let mut answer: Value = serde_json::from_str(&line).context("reading the client's answer")?;
            match answer.get_mut("ok") {
                Some(ok) => Ok(ok.take()),
                None => bail!("the client answered {line}"),
            }
        };
        timeout(PATIENCE, exchange).await.context("the client does not answer")?
    }

    /// How the client stands.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot(self.command(&serde_json::json!({ "command": "status" })).await?))
    }

    /// Waits until the snapshot is as wanted; how long that took.
    ///
    /// # Errors
    /// When it has not come within the time.
    pub async fn wait_for(&self, what: &str, within: Duration, wanted: impl Fn(&Snapshot) -> bool) -> Result<Duration> {
        let started = Instant::now();
        loop {
            let snapshot = self.snapshot().await?;
            if wanted(&snapshot) {
                return Ok(started.elapsed());
            }
            ensure!(started.elapsed() < within, "no {what} within {within:?}; paths: {}", snapshot.describe());
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until that many paths are up.
    ///
    /// # Errors
    /// When they do not come up in time.
    pub async fn paths_up(&self, count: usize) -> Result<Duration> {
        self.wait_for(&format!("{count} paths up"), PATIENCE, |snapshot| snapshot.paths_up() == count).await
    }

    /// Opens a connection to the origin through the proxy.
    ///
    /// # Errors
    /// When proxy or relay refuse, or do not answer within 30 s.
    pub async fn connect(&self) -> Result<TcpStream> {
        self.connector().connect().await
    }

    /// Opens a connection to the client's proxy itself.
    ///
    /// # Errors
    /// When the proxy does not take it.
    pub async fn connect_to_proxy(&self) -> Result<TcpStream> {
        socket(&self.namespace, None)?.connect(PROXY).await.context("connecting to the proxy")
    }

    /// What opens connections on behalf of tasks that cannot borrow the client.
    pub fn connector(&self) -> Connector {
        Connector(self.namespace.clone())
    }
}

/// Opens connections to the origin through the client's proxy.
#[derive(Debug, Clone)]
pub struct Connector(Arc<Namespace>);

impl Connector {
    /// Opens one.
    ///
    /// # Errors
    /// When proxy or relay refuse, or do not answer within 30 s.
    pub async fn connect(&self) -> Result<TcpStream> {
        let open = async {
            let tcp = socket(&self.0, None)?.connect(PROXY).await.context("connecting to the proxy")?;
            tcp.set_nodelay(true)?;
            let through = tokio_socks::tcp::Socks5Stream::connect_with_socket(tcp, Origin::ADDRESS).await;
            Ok(through.context("connecting through the proxy")?.into_inner())
        };
        timeout(PATIENCE, open).await.context("the proxy does not answer")?
    }
}

/// Opens a plain connection to the origin over one of the client's networks, without the product.
///
/// # Errors
/// When it does not come about within 30 s.
pub async fn connect_plainly(bed: &Bed, network: usize) -> Result<TcpStream> {
    let socket = socket(bed.client(), Some(bed.interface(network)))?;
    let connected = timeout(PATIENCE, socket.connect(Origin::ADDRESS)).await;
    connected.context("no plain connection in time")?.context("connecting plainly")
}

fn socket(namespace: &Namespace, interface: Option<&str>) -> Result<TcpSocket> {
    let socket = namespace.enter(|| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind_device(interface.map(str::as_bytes))?;
        socket.set_tcp_congestion(b"cubic")?;
        socket.set_nonblocking(true)?;
        std::io::Result::Ok(socket)
    })?;
    Ok(TcpSocket::from_std_stream(socket.context("opening a socket")?.into()))
}

/// What `tandem status --json` says.
#[derive(Debug, Clone)]
pub struct Snapshot(pub Value);

impl Snapshot {
    /// The object of a path on that interface.
    pub fn path(&self, interface: &str) -> Option<&Value> {
        self.0["paths"].as_array()?.iter().find(|path| path["interface"] == interface)
    }

    /// Whether the path on that interface is up.
    pub fn is_up(&self, interface: &str) -> bool {
        self.path(interface).is_some_and(|path| path["state"] == "up")
    }

    /// Whether the path on that interface is the preferred one.
    pub fn is_preferred(&self, interface: &str) -> bool {
        self.path(interface).is_some_and(|path| path["preferred"] == true)
    }

    /// How many paths are up.
    pub fn paths_up(&self) -> usize {
        self.0["paths"].as_array().map_or(0, |paths| paths.iter().filter(|path| path["state"] == "up").count())
    }

    /// A number of a path, for example `["down", "datagrams"]`; zero if it is not there.
    pub fn number(&self, interface: &str, keys: &[&str]) -> f64 {
        let value = self.path(interface).and_then(|path| keys.iter().try_fold(path, |value, key| value.get(key)));
        value.and_then(Value::as_f64).unwrap_or_default()
    }

    /// The state of connection and paths in one line.
    pub fn describe(&self) -> String {
        let path = |path: &Value| {
            let preferred = if path["preferred"] == true { "*" } else { "" };
            let problem = path["problem"].as_str().map(|problem| format!(" ({problem})")).unwrap_or_default();
            format!("{}{preferred} {}{problem}", path["interface"].as_str().unwrap_or("?"), path["state"])
        };
        let paths = self.0["paths"].as_array().map(|paths| paths.iter().map(path).collect::<Vec<_>>().join(", "));
        format!("{} [{}] {}", self.0["state"], paths.unwrap_or_default(), self.0["problem"].as_str().unwrap_or(""))
    }
}

/// A program that runs in the bed; ended when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program whose log goes to a file, and waits for its first line if that is to begin with `ready`.
    fn start(mut command: Command, name: &str, folder: &Path, ready: &str) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log).context("opening a log")?;
        command.stdin(Stdio::null()).stderr(file.try_clone()?);
        command.stdout(if ready.is_empty() { Stdio::from(file) } else { Stdio::piped() });
        let child = command.spawn().with_context(|| format!("starting the {name}"))?;
        let mut process = Self { child, log };
        if let Some(output) = process.child.stdout.take() {
            let mut line = String::new();
            let mut reader = BufReader::new(output);
            reader.read_line(&mut line).with_context(|| format!("listening to the {name}"))?;
            if !line.starts_with(ready) {
                bail!("the {name} did not start: {}", process.log_tail());
            }
            // Whatever else it prints must not block it.
            std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        }
        Ok(process)
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// The last lines of its log.
    pub fn log_tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill reads nothing but its arguments; the process is a child of ours that has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Bytes of memory it holds.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.unwrap_or_default() * 1_024
    }

    /// Its open descriptors.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.id())).map_or(0, Iterator::count)
    }

    /// Lets it have at most so many descriptors from now on.
    ///
    /// # Errors
    /// The operating system's.
    pub fn limit_descriptors(&self, most: u64) -> Result<()> {
        limit_descriptors(self.id(), most)
    }

    /// Processor time it has used.
    pub fn processor(&self) -> Duration {
        processor_time(Path::new(&format!("/proc/{}/stat", self.id())))
    }
}

/// Lets a child of this process have at most so many descriptors from now on.
///
/// # Errors
/// The operating system's.
pub fn limit_descriptors(child: u32, most: u64) -> Result<()> {
    let limit = libc::rlimit64 { rlim_cur: most, rlim_max: most };
    // SAFETY: reads `limit`, which lives as long as the call; the old limit is not asked for.
    let done = unsafe { libc::prlimit64(child as i32, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    ensure!(done == 0, "limiting descriptors: {}", std::io::Error::last_os_error());
    Ok(())
}

/// The time that the process or thread with that file has used, user and system.
pub(super) fn processor_time(stat: &Path) -> Duration {
    let stat = fs::read_to_string(stat).unwrap_or_default();
    // Behind the name, which may hold anything but a closing bracket last: fields 3 and up; 14 and 15 are the times.
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
    // SAFETY: reads a constant of the system.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) }.max(1) as f64;
    Duration::from_secs_f64(ticks as f64 / per_second)
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{:?} failed: {}", command.get_program(), error.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
