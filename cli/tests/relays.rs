//! `tandem` with several relays, kept pairings that relays change, and keys that are rotated: as processes, over loopback.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tandem_core::transport::{PathSocket, UdpPathSocket};
use tandem_proto::pairing::{PairingLink, Pairings};
use tandem_relay::config::Config;
use tandem_relay::directory::Directory;
use tandem_relay::egress::{OwnAddresses, TcpEgress};
use tandem_relay::rules::AccessRules;
use tandem_relay::serve::{Limits, Relay, RelayConfig};
use tandem_relay::tokens::watch_revoked;
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

const LOCALHOST: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// No command waits for a keychain that hangs; on an idle machine 3 s are the limit.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);
const DAY: Duration = Duration::from_secs(86_400);

/// A relay in this process that works from a directory.
struct Station {
    directory: Directory,
    address: SocketAddr,
    drain: CancellationToken,
    serving: JoinHandle<()>,
    _files: TempDir,
}

impl Station {
    fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let socket = std::net::UdpSocket::bind(LOCALHOST).unwrap();
        let address = socket.local_addr().unwrap();
        let public = vec![address.to_string().parse().unwrap()];
        let limits = Limits::default();
        let config = Config { listen: vec![address], public, allow: Vec::new(), admin: None, measure: true, limits };
        let directory = Directory::create(&files.path().join("relay"), &config).unwrap();
        let drain = CancellationToken::new();
        let serving = serve(&directory, socket, drain.clone());
        Self { directory, address, drain, serving, _files: files }
    }

    /// Ends, and starts again with the key that its directory holds now.
    async fn restart(&mut self) {
        self.kill().await;
        let socket = std::net::UdpSocket::bind(self.address).unwrap();
        self.drain = CancellationToken::new();
        self.serving = serve(&self.directory, socket, self.drain.clone());
    }

    async fn kill(&mut self) {
        self.serving.abort();
        // quinn's own task lets go of the socket a moment later.
        let deadline = Instant::now() + PATIENCE;
        while !self.serving.is_finished() || std::net::UdpSocket::bind(self.address).is_err() {
            assert!(Instant::now() < deadline, "the socket is not released");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// A token that was issued so many days ago and lives for ninety.
    fn link(&self, days_ago: i64) -> PairingLink {
        let issued = OffsetDateTime::now_utc() - time::Duration::days(days_ago);
        self.directory.issue("test", issued, 90 * DAY).unwrap().0
    }
}

fn serve(directory: &Directory, socket: std::net::UdpSocket, drain: CancellationToken) -> JoinHandle<()> {
    let socket: Arc<dyn PathSocket> = UdpPathSocket::new(socket).unwrap();
    let identity = directory.identity().unwrap();
    let config = RelayConfig {
        next_pin: directory.watch_next_pin(identity.pin()).unwrap(),
        identity,
        verifier: directory.verifier().unwrap(),
        renewer: directory.renewer().unwrap().map(Arc::new),
        revoked: watch_revoked(directory.revoked_path()).unwrap(),
        limits: Limits::default(),
        measuring: None,
        seed: None,
    };
    let rules = AccessRules::new(vec!["127.0.0.0/8".parse().unwrap()]);
    let relay = Relay::bind(config, vec![socket], TcpEgress::new(rules, OwnAddresses::default())).unwrap();
    tokio::spawn(relay.serve(drain))
}

/// A user's home with a keychain that accepts connections and never answers.
struct Home {
    directory: TempDir,
    _keychain: UnixListener,
}

impl Home {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let keychain = UnixListener::bind(directory.path().join("bus")).unwrap();
        Self { directory, _keychain: keychain }
    }

    fn tandem(&self, arguments: &[&str]) -> Command {
        let path = |name: &str| self.directory.path().join(name);
        let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.directory.path())
            .env("XDG_CONFIG_HOME", path("config"))
            .env("XDG_CACHE_HOME", path("cache"))
            .env("XDG_RUNTIME_DIR", path("runtime"))
            .env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}", path("bus").display()))
            .stdin(Stdio::null());
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.tandem(arguments).output().unwrap()
    }

    /// Runs a command that must succeed, in time; answers with what it printed.
    fn succeeds(&self, arguments: &[&str]) -> String {
        let start = Instant::now();
        let output = self.output(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(start.elapsed() < COMMAND_LIMIT, "{arguments:?}: {:?}", start.elapsed());
        String::from_utf8(output.stdout).unwrap()
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(!output.status.success(), "{arguments:?} succeeded");
        String::from_utf8(output.stderr).unwrap()
    }

    fn pair(&self, link: &PairingLink, name: &str) {
        self.succeeds(&["pair", "--name", name, &link.expose()]);
    }

    fn pairing_file(&self) -> PathBuf {
        self.directory.path().join("config").join("tandem").join("pairing")
    }

    /// The link kept under a name.
    fn kept(&self, name: &str) -> PairingLink {
        let text = fs::read_to_string(self.pairing_file()).unwrap();
        let pairings = Pairings::from_text(&text).unwrap();
        pairings.list().iter().find(|pairing| pairing.name == name).unwrap().link.clone()
    }

    fn run(&self, arguments: &[&str]) -> Running {
        let all = [&["run", "--listen", "127.0.0.1:0", "--interface", "lo"], arguments].concat();
        let log = fs::File::create(self.directory.path().join("log")).unwrap();
        let mut child = self.tandem(&all).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        // Someone must read on, or the client's later lines would find a closed pipe.
        std::thread::spawn(move || output.lines().for_each(drop));
        let proxy = line.trim().rsplit(' ').next().unwrap().parse().unwrap();
        Running { child, proxy }
    }

    fn status(&self) -> Value {
        serde_json::from_slice(&self.output(&["status", "--json"]).stdout).unwrap_or_default()
    }

    async fn until(&self, what: &str, condition: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if condition(&status) {
                return status;
            }
            let log = || fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "not so in time: {what}; {status:#}\n{}", log());
            sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A running client; killed when dropped.
struct Running {
    child: Child,
    proxy: SocketAddr,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn uses(name: &'static str) -> impl Fn(&Value) -> bool {
    move |status| {
        let relays = status["relays"].as_array().map(Vec::as_slice).unwrap_or_default();
        status["state"] == "connected" && relays.iter().any(|relay| relay["name"] == name && relay["state"] == "used")
    }
}

/// A server on loopback that sends back what it gets.
async fn mirror() -> SocketAddr {
    let listener = TcpListener::bind(LOCALHOST).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = tcp.split();
                let _ = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    address
}

/// A connection through the proxy.
async fn connect(proxy: SocketAddr, to: SocketAddr) -> TcpStream {
    let opening = async {
        let mut app = TcpStream::connect(proxy).await.unwrap();
        let SocketAddr::V4(v4) = to else { panic!("{to}") };
        let request = [&b"\x05\x01\x00\x05\x01\x00\x01"[..], &v4.ip().octets(), &v4.port().to_be_bytes()].concat();
        app.write_all(&request).await.unwrap();
        let mut replies = [0; 12];
        app.read_exact(&mut replies).await.unwrap();
        assert_eq!(replies[..4], [5, 0, 5, 0]);
        app
    };
    timeout(PATIENCE, opening).await.unwrap()
}

async fn echo(app: &mut TcpStream, text: &[u8]) {
    app.write_all(text).await.unwrap();
    let mut got = vec![0; text.len()];
    timeout(PATIENCE, app.read_exact(&mut got)).await.unwrap().unwrap();
    assert_eq!(got, text);
}

/// KEY-1, SEC-5
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_are_added_listed_renamed_preferred_and_removed_in_time_without_a_keychain_and_without_a_token_shown() {
    let (home, stations) = (Home::new(), [Station::start(), Station::start()]);
    let links = stations.each_ref().map(|station| station.link(0));
    assert!(home.succeeds(&["relay", "list"]).contains("no relay is known"));
    home.succeeds(&["pair", &links[0].expose()]);
    home.pair(&links[1], "office");
    home.succeeds(&["relay", "rename", "127.0.0.1", "home"]);
    home.succeeds(&["relay", "use", "office"]);
    let listed = home.succeeds(&["relay", "list"]);
    for text in ["home", "office", "preferred", &stations[0].address.to_string()] {
        assert!(listed.contains(text), "{listed}");
    }
    let json: Value = serde_json::from_str(&home.succeeds(&["relay", "list", "--json"])).unwrap();
    assert_eq!((&json[0]["name"], &json[0]["preferred"]), (&"home".into(), &false.into()));
    assert_eq!((&json[1]["name"], &json[1]["preferred"]), (&"office".into(), &true.into()));
    for text in [listed, json.to_string()] {
        assert!(!text.contains("v4.public") && !text.contains(&links[0].token.expose()[20..40]), "{text}");
    }
    let unknown = home.fails(&["relay", "use", "attic"]);
    assert!(unknown.contains("there is no relay called \"attic\"; known are: home, office"), "{unknown}");

    // A new link of a known relay takes the old one's place.
    home.succeeds(&["pair", &stations[0].link(1).expose()]);
    assert_ne!(home.kept("home").token, links[0].token);
    home.succeeds(&["relay", "use", "--nearest"]);
    home.succeeds(&["relay", "remove", "office"]);
    home.succeeds(&["relay", "remove", "home"]);
    assert!(!home.pairing_file().exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_moves_when_its_relay_goes_away_and_again_when_the_other_one_dies() {
    let (home, mut stations) = (Home::new(), [Station::start(), Station::start()]);
    home.pair(&stations[0].link(0), "first");
    home.pair(&stations[1].link(0), "second");
    home.succeeds(&["relay", "use", "first"]);
    let running = home.run(&[]);
    home.until("the preferred relay is used", uses("first")).await;
    let origin = mirror().await;
    let mut old = connect(running.proxy, origin).await;
    echo(&mut old, b"before").await;

    stations[0].drain.cancel();
    home.until("the second is used", uses("second")).await;
    let mut new = connect(running.proxy, origin).await;
    echo(&mut new, b"by the second").await;
    echo(&mut old, b"by the first still").await;
    drop(old);
    timeout(PATIENCE, &mut stations[0].serving).await.unwrap().unwrap();
    stations[0].restart().await;

    stations[1].kill().await;
    let mut after = connect(running.proxy, origin).await;
    echo(&mut after, b"by the first again").await;
    home.until("the first is used", uses("first")).await;
    // What was open ends with a reset, as TCP does.
    let mut rest = Vec::new();
    let ended = timeout(PATIENCE, new.read_to_end(&mut rest)).await.unwrap();
    assert!(ended.is_err(), "{rest:?}");
    let status = String::from_utf8(home.output(&["status"]).stdout).unwrap();
    assert!(status.contains("RELAY") && status.contains("first*"), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_renewed_and_kept_while_the_client_runs_and_revoking_it_takes_both_back() {
    let (home, station) = (Home::new(), Station::start());
    // Thirty of ninety days are left on the sixtieth.
    let young = station.link(59);
    home.pair(&young, "relay");
    let running = home.run(&[]);
    home.until("it is connected", uses("relay")).await;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(home.kept("relay").token, young.token, "a young token stays");
    drop(running);

    let old = station.link(61);
    home.pair(&old, "relay");
    let mut running = home.run(&[]);
    home.until("it is connected", uses("relay")).await;
    let deadline = Instant::now() + PATIENCE;
    while home.kept("relay").token == old.token {
        assert!(Instant::now() < deadline, "no renewed token is kept");
        sleep(Duration::from_millis(20)).await;
    }
    let kept = home.kept("relay");
    assert_eq!(kept, PairingLink { token: kept.token.clone(), ..old.clone() });
    let now = OffsetDateTime::now_utc();
    let verifier = station.directory.verifier().unwrap();
    let claims = [&old.token, &kept.token].map(|token| verifier.verify(token, now).unwrap());
    assert_eq!(claims[0].id, claims[1].id);
    assert!((claims[1].expires - now).whole_days() >= 89, "{claims:?}");
    let status = home.status();
    assert_eq!(status["relays"][0]["token_expires"], claims[1].expires.unix_timestamp());
    let listed = station.directory.tokens(now).unwrap();
    assert_eq!(listed.last().unwrap().claims.expires, claims[1].expires);

    station.directory.revoke(&claims[0].id, now).unwrap();
    let ended = async {
        while running.child.try_wait().unwrap().is_none() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("the client ends");
    for link in [old, kept] {
        let said = home.fails(&["run", "--listen", "127.0.0.1:0", "--interface", "lo", "--link", &link.expose()]);
        assert!(said.contains("this pairing was revoked"), "{said}");
    }
    let log = fs::read_to_string(home.directory.path().join("log")).unwrap();
    assert!(!log.contains("v4.public"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_token_is_kept_in_the_file_that_the_link_came_from() {
    let (home, station) = (Home::new(), Station::start());
    let old = station.link(80);
    let file = home.directory.path().join("link");
    fs::write(&file, old.expose() + "\n").unwrap();
    let _running = home.run(&["--link-file", file.to_str().unwrap()]);
    let kept = |file: &Path| fs::read_to_string(file).unwrap().trim().parse::<PairingLink>().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while kept(&file).token == old.token {
        assert!(Instant::now() < deadline, "no renewed token is kept");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_rotated_without_pairing_anew_and_a_client_that_missed_it_is_told_to() {
    let (seeing, missing, mut station) = (Home::new(), Home::new(), Station::start());
    let link = station.link(0);
    let old = link.pins[0];
    for home in [&seeing, &missing] {
        home.pair(&link, "relay");
    }
    let _running = seeing.run(&[]);
    seeing.until("it is connected", uses("relay")).await;
    let new = station.directory.prepare_key().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while seeing.kept("relay").pins != [old, new] {
        assert!(Instant::now() < deadline, "the next pin is not kept: {:?}", seeing.kept("relay").pins);
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(station.directory.switch_key(OffsetDateTime::now_utc()).unwrap(), new);
    // The relay goes on with its old key until it is restarted, and clients must not drop the new one.
    sleep(Duration::from_millis(2500)).await;
    assert_eq!(seeing.kept("relay").pins, [old, new]);
    station.restart().await;
    let origin = mirror().await;
    let mut app = connect(_running.proxy, origin).await;
    echo(&mut app, b"with the new key").await;
    let deadline = Instant::now() + PATIENCE;
    while seeing.kept("relay").pins != [new] {
        assert!(Instant::now() < deadline, "the old pin is not dropped: {:?}", seeing.kept("relay").pins);
        sleep(Duration::from_millis(20)).await;
    }

    let _other = missing.run(&[]);
    let told = |status: &Value| {
        let problem = status["problem"].as_str().unwrap_or_default();
        problem.contains("the relay's key is not the one in the pairing link: pair again")
    };
    missing.until("it is told to pair again", told).await;
}
