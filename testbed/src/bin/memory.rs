//! How much memory the programs take: idle, and a relay with thousands of idle sessions; started by `cargo xtask bench memory`.
//!
//! Relay and client are the shipped programs, on loopback; the sessions are made by this process with the client's transport,
//! a socket and a path each. Memory is what the kernel says: `VmRSS`, and without the pages of the program's file, `RssAnon`.

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> std::process::ExitCode {
    eprintln!("memory is read from /proc: this needs Linux");
    std::process::ExitCode::FAILURE
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io::{BufRead, BufReader, Write};
    use std::net::{SocketAddr, UdpSocket};
    use std::path::{Path, PathBuf};
    use std::process::{Child, Command, Stdio};
    use std::time::Duration;

    use anyhow::{Context, Result, ensure};
    use clap::Parser;
    use tandem_core::dial::FlowSend as _;
    use tandem_core::transport::{Client, ConnectConfig, Connection, PathSpec, Stream, UdpPathSocket};
    use tandem_proto::congestion::Algorithm;
    use tandem_proto::mode::Mode;
    use tandem_proto::pairing::PairingLink;
    use tandem_proto::wire::flow::{ControlMessage, FRAME_HEAD, Hello, VersionRange, frame_length};
    use tokio::task::JoinSet;
    use tokio::time::{sleep, timeout};

    /// Sessions that shake hands at the same time.
    const AT_ONCE: usize = 16;
    /// On a busy machine a client may be too slow for the relay, and tries again.
    const TRIES: usize = 5;
    /// A session comes up within this on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Measures the memory of relay and client.
    #[derive(Parser)]
    #[command(name = "cargo xtask bench memory", bin_name = "cargo xtask bench memory")]
    struct Arguments {
        /// Idle sessions to measure with; may be given several times, growing.
        #[arg(long, default_values_t = [1_000, 5_000])]
        sessions: Vec<usize>,
        /// Bytes that each session downloads before it idles, from a server on loopback.
        #[arg(long, default_value_t = 0)]
        download: u64,
        /// How long everything idles before it is measured, in seconds: more than two pings.
        #[arg(long, default_value_t = 35)]
        idle: u64,
    }

    /// A process that ends with this.
    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            // It may have ended by itself.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    struct Relay {
        process: Running,
        address: SocketAddr,
        link: PairingLink,
    }

    pub(super) fn main() -> Result<()> {
        let arguments = Arguments::parse();
        rlimit::increase_nofile_limit(u64::MAX).context("raising the limit of open files")?;
        let folder = tempfile::tempdir().context("a folder for the relay")?;
        let programs = std::env::current_exe()?.parent().context("this program's folder")?.to_owned();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        runtime.block_on(measure(&arguments, &programs, folder.path()))
    }

    async fn measure(arguments: &Arguments, programs: &Path, folder: &Path) -> Result<()> {
        let most = arguments.sessions.iter().copied().max().unwrap_or(0);
        let relay = start_relay(programs, &folder.join("relay"), most)?;
        let client = start_client(programs, folder, &relay.link)?;
        println!("{:<34} {:>9} {:>9} {:>14}", "", "VmRSS MB", "anon MB", "kB a session");
        sleep(Duration::from_secs(arguments.idle)).await;
        print_line("client, idle with one session", memory(client.0.id())?, None);
        let idle = memory(relay.process.0.id())?;
        print_line("relay, idle with one session", idle, None);
        drop(client);

        let origin = start_origin(arguments.download)?;
        let mut sessions = Vec::new();
        for count in &arguments.sessions {
            open_sessions(&relay, *count, &mut sessions).await?;
            if arguments.download > 0 {
                for (connection, _) in &sessions {
                    download(connection, origin).await?;
                }
            }
            sleep(Duration::from_secs(arguments.idle)).await;
            for (connection, _) in &sessions {
                let state = timeout(Duration::ZERO, connection.closed()).await;
                ensure!(state.is_err(), "a session ended: {:?}", state.ok());
            }
            let now = memory(relay.process.0.id())?;
            let each = (now.resident - idle.resident) as f64 / *count as f64;
            print_line(&format!("relay, {count} idle sessions"), now, Some(each));
        }
        Ok(())
    }

    fn start_relay(programs: &Path, folder: &Path, sessions: usize) -> Result<Relay> {
        let program = programs.join("tandem-relay");
        let mut init = Command::new(&program);
        init.args(["init", "--listen", "127.0.0.1:0", "--public", "127.0.0.1:4433", "--dir"]).arg(folder);
        let printed = String::from_utf8(init.output().context("tandem-relay init")?.stdout)?;
        let link = printed.lines().find(|line| line.starts_with("tandem://")).context("no pairing link")?;
        let mut link: PairingLink = link.parse()?;
        // All come from one network, and with one token.
        let file = folder.join("relay.toml");
        let limits = format!(
            "[limits]\nsessions = {0}\nsessions_per_device = {0}\nmemory_mib = 4096\n\
             handshakes_per_second = 100000\nhandshakes_per_second_and_network = 100000\n",
            sessions + 10
        );
        let text = std::fs::read_to_string(&file)?.replace("[limits]\n", &limits);
        std::fs::write(&file, text)?;
        let mut serve = Command::new(&program);
        serve.args(["serve", "--allow", "127.0.0.0/8", "--dir"]).arg(folder).env("TANDEM_LOG", "warn");
        let mut process = Running(serve.stdout(Stdio::piped()).spawn().context("tandem-relay serve")?);
        let mut line = String::new();
        BufReader::new(process.0.stdout.as_mut().context("standard output")?).read_line(&mut line)?;
        let address =
            line.trim().strip_prefix("ready ").with_context(|| format!("the relay says {line:?}"))?.parse()?;
        link.relays = vec![SocketAddr::to_string(&address).parse()?];
        Ok(Relay { process, address, link })
    }

    fn start_client(programs: &Path, folder: &Path, link: &PairingLink) -> Result<Running> {
        let file = folder.join("link");
        std::fs::write(&file, link.expose())?;
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        let mut run = Command::new(programs.join("tandem"));
        run.args(["run", "--interface", "lo", "--listen", "127.0.0.1:0", "--link-file"]).arg(&file);
        run.arg("--control").arg(folder.join("control"));
        let mut process = Running(run.stdout(Stdio::piped()).spawn().context("tandem run")?);
        let mut line = String::new();
        BufReader::new(process.0.stdout.as_mut().context("standard output")?).read_line(&mut line)?;
        ensure!(!line.is_empty(), "the client did not start");
        Ok(process)
    }

    /// Opens sessions until there are so many; each keeps its control stream.
    async fn open_sessions(relay: &Relay, count: usize, sessions: &mut Vec<(Connection, Stream)>) -> Result<()> {
        let mut opening = JoinSet::new();
        while sessions.len() + opening.len() < count || !opening.is_empty() {
            if sessions.len() + opening.len() < count && opening.len() < AT_ONCE {
                opening.spawn(timeout(PATIENCE * TRIES as u32, keep_trying(relay.address, relay.link.clone())));
                continue;
            }
            let Some(opened) = opening.join_next().await else { break };
            sessions.push(opened.context("opening a session")?.context("a session did not come up")??);
        }
        Ok(())
    }

    async fn keep_trying(relay: SocketAddr, link: PairingLink) -> Result<(Connection, Stream)> {
        for _ in 1..TRIES {
            if let Ok(session) = open_session(relay, link.clone()).await {
                return Ok(session);
            }
        }
        open_session(relay, link).await
    }

    async fn open_session(relay: SocketAddr, link: PairingLink) -> Result<(Connection, Stream)> {
        let socket = UdpPathSocket::new(UdpSocket::bind("127.0.0.1:0")?)?;
        let spec = PathSpec { interface: "lo".to_owned(), socket, remote: relay };
        let config = ConnectConfig { pins: link.pins, congestion: Algorithm::Bbr3, mode: Mode::Single, seed: None };
        let connection = Client::connect(config, vec![spec]).await?;
        let mut control = connection.open_stream().await?;
        let hello = Hello {
            versions: VersionRange::OURS,
            features: 0,
            congestion: Some(Algorithm::Bbr3),
            token: link.token,
            client: "memory".to_owned(),
        };
        let mut frame = Vec::new();
        ControlMessage::Hello(hello).encode(&mut frame);
        control.send.write_all(&frame).await?;
        let mut head = [0; FRAME_HEAD];
        control.recv.read_exact(&mut head).await?;
        let mut answer = head.to_vec();
        answer.resize(frame_length(&head)?, 0);
        control.recv.read_exact(&mut answer[FRAME_HEAD..]).await?;
        let answer = ControlMessage::decode(&answer)?;
        ensure!(matches!(answer, Some((ControlMessage::Welcome(_), _))), "{answer:?}");
        Ok((connection, control))
    }

    async fn download(connection: &Connection, origin: SocketAddr) -> Result<()> {
        let mut stream = connection.open_stream().await?;
        let mut request = Vec::new();
        tandem_proto::wire::flow::encode_request(&origin.to_string().parse()?, &mut request)?;
        stream.send.write_all(&request).await?;
        stream.send.finish();
        while stream.recv.read_chunk().await?.is_some() {}
        Ok(())
    }

    /// A TCP server that sends so many bytes to whoever connects.
    fn start_origin(bytes: u64) -> Result<SocketAddr> {
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            let block = vec![0x5a; bytes as usize];
            for connection in listener.incoming() {
                // Whoever went away shows at the other end of the download.
                let _ = connection.and_then(|mut connection| connection.write_all(&block));
            }
        });
        Ok(address)
    }

    /// In kB.
    #[derive(Clone, Copy)]
    struct Memory {
        resident: u64,
        anonymous: u64,
    }

    fn memory(process: u32) -> Result<Memory> {
        let path = PathBuf::from(format!("/proc/{process}/status"));
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.trim_start_matches(':').trim().strip_suffix(" kB"));
            number.and_then(|number| number.parse().ok()).with_context(|| format!("{name} in {}", path.display()))
        };
        Ok(Memory { resident: field("VmRSS")?, anonymous: field("RssAnon")? })
    }

    fn print_line(what: &str, memory: Memory, each: Option<f64>) {
        let each = each.map_or(String::new(), |each| format!("{each:.1}"));
        let (resident, anonymous) = (memory.resident as f64 / 1e3, memory.anonymous as f64 / 1e3);
        println!("{what:<34} {resident:>9.1} {anonymous:>9.1} {each:>14}");
    }
}
