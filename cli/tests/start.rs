//! How `tandem` starts: with or without a pairing, with good and bad configuration, beside another one.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

const TOKEN: &str = "v4.public.c2VjcmV0LXRva2VuLWZvci10ZXN0cw";
/// `ann:correct-horse-battery` and `ann:correct-horse-batterie` in base64.
const HTTP_LOGIN: &str = "YW5uOmNvcnJlY3QtaG9yc2UtYmF0dGVyeQ==";
const HTTP_WRONG_LOGIN: &str = "YW5uOmNvcnJlY3QtaG9yc2UtYmF0dGVyaWU=";
/// Starting waits for no keychain that hangs; on an idle machine 3 s are the limit.
const START_LIMIT: Duration = Duration::from_secs(20);

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

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn tandem(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
        command
            .args(arguments)
            .env_clear()
            .env("HOME", self.directory.path())
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("XDG_RUNTIME_DIR", self.path("runtime"))
            .env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={}", self.path("bus").display()))
            .stdin(Stdio::null());
        command
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.tandem(arguments).output().unwrap()
    }

    /// Runs a client that is expected to fail, and answers with what it said.
    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    fn run(&self, arguments: &[&str]) -> Running {
        let all = [&["run", "--listen", "127.0.0.1:0", "--interface", "lo"], arguments].concat();
        self.start(self.tandem(&all))
    }

    fn start(&self, mut command: Command) -> Running {
        let start = Instant::now();
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Running { child, first_line: line, took: start.elapsed() }
    }
}

/// A running client; killed when dropped.
struct Running {
    child: Child,
    first_line: String,
    took: Duration,
}

impl Running {
    fn assert_started(&self) {
        assert!(self.first_line.starts_with("SOCKS5 proxy on 127.0.0.1:"), "{:?}", self.first_line);
        assert!(self.took < START_LIMIT, "{:?}", self.took);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn link() -> String {
    format!("tandem://127.0.0.1:9/?v=1&pin={}&token={TOKEN}", "A".repeat(43))
}

/// KEY-1
#[test]
fn without_a_keychain_a_link_from_file_or_environment_starts_in_time() {
    let home = Home::new();
    let file = home.path("link");
    fs::write(&file, link()).unwrap();
    home.run(&["--link-file", file.to_str().unwrap()]).assert_started();

    let home = Home::new();
    let mut command = home.tandem(&["run", "--listen", "127.0.0.1:0"]);
    command.env("TANDEM_LINK", link());
    home.start(command).assert_started();
}

/// KEY-1
#[test]
fn without_a_keychain_and_a_link_it_says_in_time_what_to_do() {
    let home = Home::new();
    let start = Instant::now();
    let text = home.fails(&["run", "--listen", "127.0.0.1:0"]);
    assert!(start.elapsed() < START_LIMIT, "{:?}", start.elapsed());
    for way in ["tandem pair LINK", "--link", "--link-file", "TANDEM_LINK"] {
        assert!(text.contains(way), "{text}");
    }
}

/// KEY-1
#[test]
fn without_a_keychain_a_pairing_is_kept_in_a_private_file_and_used() {
    let home = Home::new();
    let output = home.output(&["pair", &link()]);
    assert!(output.status.success(), "{output:?}");
    let file = home.path("config").join("tandem").join("pairing");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(String::from_utf8(output.stdout).unwrap().contains(file.to_str().unwrap()));
    home.run(&[]).assert_started();
}

/// CONF-1
#[test]
fn a_wrong_configuration_stops_the_start() {
    let home = Home::new();
    let file = home.path("tandem.toml");
    fs::write(&file, "version = 1\n[proxy]\nlistne = \"127.0.0.1:0\"\n").unwrap();
    let text = home.fails(&["run", "--config", file.to_str().unwrap(), "--link", &link()]);
    let expected = format!("{}:3: listne is not a key in [proxy]; the nearest is listen", file.display());
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn a_running_client_answers_and_stops_and_a_second_one_is_refused() {
    let home = Home::new();
    let mut running = home.run(&["--link", &link(), "--mode", "bicast"]);
    running.assert_started();

    let output = home.output(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["state"], "connecting");
    assert_eq!((&status["mode"], &status["bicast"]), (&"bicast".into(), &"both".into()));
    assert!(home.output(&["mode", "bicast", "server"]).status.success());
    let text = String::from_utf8(home.output(&["status"]).stdout).unwrap();
    assert!(text.contains("mode bicast server"), "{text}");

    let text = home.fails(&["run", "--listen", "127.0.0.1:0", "--link", &link()]);
    assert!(text.contains("another client is running"), "{text}");

    assert!(home.output(&["stop"]).status.success());
    let deadline = Instant::now() + Duration::from_secs(10);
    while running.child.try_wait().unwrap().is_none() {
        assert!(Instant::now() < deadline, "the client does not stop");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(home.fails(&["status"]).contains("no client is running"));
}

#[test]
fn what_is_set_for_a_network_holds_after_a_restart_until_it_is_reset() {
    let home = Home::new();
    for (arguments, words) in [
        (["set", "lo", "role", "always"], "role is \"always\"; it must be use, backup or never"),
        (["set", "lo", "cap-daily", "1 MB"], "at least 10 MB"),
        (["set", "lo", "colour", "red"], "possible values: role, metered, cap-daily"),
        (["set", "lo", "role", "never"], "no client is running"),
    ] {
        let text = home.fails(&[&["path"], &arguments[..]].concat());
        assert!(text.contains(words), "{text}");
    }
    let list = || {
        let networks = &serde_json::from_slice::<serde_json::Value>(&home.output(&["path", "list", "--json"]).stdout);
        networks.as_ref().unwrap()["networks"].clone()
    };
    for start in 0..2 {
        let mut running = home.run(&["--link", &link()]);
        running.assert_started();
        if start == 0 {
            assert!(home.output(&["path", "set", "lo", "role", "never"]).status.success());
            assert!(home.output(&["path", "set", "lo", "cap-monthly", "2 GB"]).status.success());
        }
        assert_eq!((&list()[0]["name"], &list()[0]["role"]), (&"lo".into(), &"never".into()));
        assert_eq!(list()[0]["cap_monthly_bytes"], 2_000_000_000u64);
        let text = String::from_utf8(home.output(&["path", "list"]).stdout).unwrap();
        assert!(text.contains("lo: never used, as set"), "{text}");
        let problem = || String::from_utf8(home.output(&["status"]).stdout).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while !problem().contains("no network can be used: lo: never used") {
            assert!(Instant::now() < deadline, "{}", problem());
            std::thread::sleep(Duration::from_millis(50));
        }
        if start == 1 {
            assert!(home.output(&["path", "reset", "lo"]).status.success());
            assert_eq!(list()[0]["role"], "use");
            assert!(home.fails(&["path", "reset", "lo"]).contains("nothing was set for \"lo\""));
        }
        assert!(home.output(&["stop"]).status.success());
        running.child.wait().unwrap();
    }
}

#[test]
fn what_was_kept_of_networks_is_not_forgotten_when_it_is_damaged() {
    let home = Home::new();
    let file = home.path("networks.json");
    fs::write(&file, "{\"version\":1,").unwrap();
    let state = file.to_str().unwrap();
    let text = home.fails(&["run", "--listen", "127.0.0.1:0", "--link", &link(), "--state", state]);
    assert!(text.contains("networks.json") && text.contains("is damaged"), "{text}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "{\"version\":1,");
}

/// SEC-4
#[test]
fn unless_told_otherwise_it_listens_on_loopback_alone() {
    let home = Home::new();
    // The default port may be taken here; then the refusal tells the address.
    let mut child =
        home.tandem(&["run", "--link", &link()]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let _ = child.kill();
    let output = child.wait_with_output().unwrap();
    let text = line + &String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("SOCKS5 proxy on 127.0.0.1:1080") || text.contains("cannot listen on 127.0.0.1:1080"),
        "{text}"
    );
}

/// SEC-5
#[test]
fn the_proxys_password_is_in_no_output_at_the_highest_level() {
    let home = Home::new();
    let file = home.path("tandem.toml");
    let password = "correct-horse-battery";
    let config = format!("version = 1\ninterfaces = [\"lo\"]\n[proxy]\nuser = \"ann\"\npassword = \"{password}\"\n");
    fs::write(&file, config).unwrap();
    let mut command = home.tandem(&["--log", "trace", "run", "--listen", "127.0.0.1:0"]);
    command
        .args(["--config", file.to_str().unwrap()])
        .env("TANDEM_LINK", link())
        .stderr(fs::File::create(home.path("log")).unwrap());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let proxy = line.trim().rsplit(' ').next().unwrap().to_owned();
    for (password, verdict) in [(password, 0), ("correct-horse-batterie", 1)] {
        let mut tcp = TcpStream::connect(&proxy).unwrap();
        let login = [b"\x05\x01\x02\x01\x03ann", &[password.len() as u8][..], password.as_bytes()].concat();
        tcp.write_all(&login).unwrap();
        let mut replies = [0; 4];
        tcp.read_exact(&mut replies).unwrap();
        assert_eq!(replies, [5, 2, 1, verdict]);
    }
    // The same over HTTP: base64 of ann and the password, right and wrong.
    for (code, status) in [(HTTP_LOGIN, b"HTTP/1.1 501"), (HTTP_WRONG_LOGIN, b"HTTP/1.1 407")] {
        let mut tcp = TcpStream::connect(&proxy).unwrap();
        let request = format!("GET https://example.org/ HTTP/1.1\r\nProxy-Authorization: Basic {code}\r\n\r\n");
        tcp.write_all(request.as_bytes()).unwrap();
        let mut replies = [0; 12];
        tcp.read_exact(&mut replies).unwrap();
        assert_eq!(&replies, status);
    }
    assert!(home.output(&["stop"]).status.success());
    child.wait().unwrap();
    let log = fs::read_to_string(home.path("log")).unwrap();
    assert!(log.contains("SOCKS client turned away"), "{log}");
    assert!(log.contains("HTTP request answered by the proxy itself"), "{log}");
    assert!(!log.contains("correct-horse") && !log.contains("99, 111, 114, 114, 101, 99, 116"), "{log}");
    assert!(!log.contains(HTTP_LOGIN) && !log.contains(&HTTP_WRONG_LOGIN[..20]), "{log}");
}

/// SEC-5
#[test]
fn the_token_is_in_no_output_at_the_highest_level() {
    let home = Home::new();
    let mut command = home.tandem(&["--log", "trace", "run", "--listen", "127.0.0.1:0", "--interface", "lo"]);
    command.env("TANDEM_LINK", link()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !home.output(&["status"]).status.success() {
        assert!(Instant::now() < deadline, "the client does not start");
    }
    assert!(home.output(&["stop"]).status.success());
    let output = child.wait_with_output().unwrap();
    let mangled = format!("{}x&nonsense=1", link());
    let failed = home.output(&["--log", "trace", "run", "--link", &mangled]);
    assert!(!output.stderr.is_empty() && !failed.stderr.is_empty());
    for bytes in [output.stdout, output.stderr, failed.stdout, failed.stderr] {
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(&TOKEN[10..]) && !text.contains("secret-token"), "{text}");
    }
}
