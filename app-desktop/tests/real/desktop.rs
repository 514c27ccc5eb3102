//! A desktop for one test: a virtual screen, a session bus and a home of its own.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tandem_core::client::control;
use tandem_core::secrets::{SecretFile, SecretStore as _};
use tandem_proto::pairing::Pairings;
use tempfile::TempDir;

use crate::PATIENCE;
use crate::screen::Screen;

/// One desktop at a time: a slow machine has enough to do with one web view.
static ONE: Mutex<()> = Mutex::new(());

/// What the desktop is made of, and the Debian packages that hold it.
const TOOLS: [(&str, &str); 4] = [
    ("Xvfb", "xvfb"),
    ("dbus-daemon", "dbus"),
    ("WebKitWebDriver", "webkit2gtk-driver"),
    ("gsettings", "libglib2.0-bin"),
];

/// A session's bus that starts no services, whatever is installed: there is no keychain on it, for instance.
const BUS: &str = "<busconfig><type>session</type><listen>unix:tmpdir=/tmp</listen><policy context=\"default\">\
    <allow send_destination=\"*\" eavesdrop=\"true\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>";

/// A process that is killed when it is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// See the module.
pub(crate) struct Desktop {
    home: TempDir,
    display: String,
    bus: String,
    language: String,
    libraries: OnceCell<PathBuf>,
    /// What kind of desktop it says it is.
    pub(crate) kind: Mutex<String>,
    /// The theme that GTK and the web view take their colours from.
    pub(crate) theme: Mutex<String>,
    screen: Screen,
    _bus: Process,
    _server: Process,
}

/// Runs a test on a desktop of its own, whose language this is; says so where a tool for that is missing.
pub(crate) fn on_a_desktop(language: &str, test: impl AsyncFnOnce(Desktop)) {
    let missing: Vec<_> = TOOLS.into_iter().filter(|(tool, _)| !is_there(tool)).map(|(_, package)| package).collect();
    if !missing.is_empty() {
        println!("SKIPPED: this test needs the packages {}", missing.join(", "));
        return;
    }
    // A test that failed before has let go of it as well.
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { test(Desktop::new(language)).await });
    runtime.shutdown_timeout(Duration::from_secs(1));
}

pub(crate) fn is_there(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(tool).is_file())
}

impl Desktop {
    fn new(language: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        for directory in ["config/tandem", "state", "cache", "data", "run"] {
            fs::create_dir_all(home.path().join(directory)).unwrap();
        }
        private(&home.path().join("run"));
        let server = Command::new("Xvfb")
            .args(["-displayfd", "1", "-screen", "0", "1100x1500x24", "-nolisten", "tcp"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut server = Process(server.unwrap());
        let display = format!(":{}", first_line(&mut server));
        let configuration = home.path().join("bus.conf");
        fs::write(&configuration, BUS).unwrap();
        let bus = Command::new("dbus-daemon")
            .args(["--nofork", "--print-address=1", "--config-file"])
            .arg(configuration)
            .env("HOME", home.path())
            .env("XDG_RUNTIME_DIR", home.path().join("run"))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut bus = Process(bus.unwrap());
        let address = first_line(&mut bus);
        Self {
            home,
            screen: Screen::of(&display),
            display,
            bus: address,
            language: language.to_owned(),
            libraries: OnceCell::new(),
            kind: Mutex::new("GNOME".to_owned()),
            theme: Mutex::new("Adwaita".to_owned()),
            _bus: bus,
            _server: server,
        }
    }

    /// The user's home.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// The address of the session's bus.
    pub(crate) fn bus(&self) -> &str {
        &self.bus
    }

    /// Whether a service of this name is there.
    pub(crate) async fn has_on_bus(&self, name: &str) -> bool {
        let bus = zbus::connection::Builder::address(self.bus()).unwrap().build().await.unwrap();
        let bus = zbus::fdo::DBusProxy::new(&bus).await.unwrap();
        bus.name_has_owner(name.try_into().unwrap()).await.unwrap()
    }

    /// The control socket of the user's client.
    pub(crate) fn control(&self) -> PathBuf {
        self.home().join("run/tandem/control.sock")
    }

    /// A program in this session.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let directory = |name: &str| self.home().join(name);
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("XDG_CONFIG_HOME", directory("config"))
            .env("XDG_STATE_HOME", directory("state"))
            .env("XDG_CACHE_HOME", directory("cache"))
            .env("XDG_DATA_HOME", directory("data"))
            .env("XDG_RUNTIME_DIR", directory("run"))
            .env("DBUS_SESSION_BUS_ADDRESS", &self.bus)
            .env("DISPLAY", &self.display)
            .env("LANG", &self.language)
            .env("XDG_CURRENT_DESKTOP", &*self.kind.lock().unwrap())
            .env("GTK_THEME", &*self.theme.lock().unwrap())
            // Settings in a file of this home, without another service.
            .env("GSETTINGS_BACKEND", "keyfile")
            // Nobody listens to the accessibility bus here.
            .env("NO_AT_BRIDGE", "1")
            .stdin(Stdio::null());
        if let Some(libraries) = self.libraries.get() {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    /// The app, without a WebDriver.
    pub(crate) fn start_app(&self, arguments: &[&str]) -> Child {
        let log = File::options().create(true).append(true).open(self.home().join("app.log")).unwrap();
        let mut command = self.command(env!("CARGO_BIN_EXE_tandem-desktop"));
        command.args(arguments).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap()
    }

    /// The same; killed at the end of the test.
    pub(crate) fn start(&self, arguments: &[&str]) -> App {
        App(Process(self.start_app(arguments)))
    }

    /// Writes the engine's configuration file.
    pub(crate) fn write_config(&self, tables: &str, keys: &str) {
        let text = format!("version = 1\n{keys}\n{tables}");
        fs::write(self.home().join("config/tandem/config.toml"), text).unwrap();
    }

    /// Writes the user's choices.
    pub(crate) fn write_settings(&self, text: &str) {
        fs::write(self.home().join("config/tandem/desktop.json"), text).unwrap();
    }

    /// Keeps a pairing where the user has chosen the file before.
    pub(crate) fn keep_pairing(&self, link: &str) {
        let mut pairings = Pairings::default();
        pairings.add(link.parse().unwrap(), Some("home")).unwrap();
        SecretFile::new(self.home().join("config/tandem/pairing")).save(&pairings).unwrap();
    }

    /// The screen.
    pub(crate) fn screen(&self) -> &Screen {
        &self.screen
    }

    /// Whether the app's window is on the screen.
    pub(crate) fn shows_window(&self) -> bool {
        self.screen.window().is_some()
    }

    /// Closes the app's window as a window manager does.
    pub(crate) fn close_window(&self) {
        self.screen.close(self.screen.window().expect("there is a window"));
    }

    /// The libraries that speak with a tray cannot be loaded from now on.
    pub(crate) fn hide_tray_library(&self) {
        let directory = self.home().join("libraries");
        fs::create_dir_all(&directory).unwrap();
        for name in ["libayatana-appindicator3", "libappindicator3"] {
            for end in ["so", "so.1"] {
                fs::write(directory.join(format!("{name}.{end}")), "not a library").unwrap();
            }
        }
        self.libraries.set(directory).unwrap();
    }

    /// Every proxy setting of the desktop, a line each.
    pub(crate) fn proxy_settings(&self) -> String {
        let mut text = String::new();
        for (schema, keys) in [
            ("", &["mode"][..]),
            (".http", &["host", "port"]),
            (".https", &["host", "port"]),
            (".socks", &["host", "port"]),
        ] {
            for key in keys {
                let output =
                    self.command("gsettings").args(["get", &format!("org.gnome.system.proxy{schema}"), key]).output();
                let value = String::from_utf8(output.unwrap().stdout).unwrap();
                let _ = writeln!(text, "{} {key} {}", schema.trim_start_matches('.'), value.trim());
            }
        }
        text
    }

    /// KDE's proxy settings, a line each.
    pub(crate) fn kde_settings(&self) -> String {
        let read = |key: &&str| {
            let group = ["--file", "kioslaverc", "--group", "Proxy Settings", "--default", "unset", "--key", key];
            let output = self.command("kreadconfig5").args(group).output().unwrap();
            format!("{key} {}", String::from_utf8(output.stdout).unwrap())
        };
        ["ProxyType", "httpProxy", "httpsProxy", "socksProxy"].iter().map(read).collect()
    }

    /// Changes one as its user does.
    pub(crate) fn set_proxy_setting(&self, schema: &str, key: &str, value: &str) {
        assert!(self.command("gsettings").args(["set", schema, key, value]).status().unwrap().success());
    }
}

/// A running app.
pub(crate) struct App(Process);

impl App {
    pub(crate) fn try_wait(&mut self) -> std::io::Result<Option<std::process::ExitStatus>> {
        self.0.0.try_wait()
    }

    pub(crate) fn wait(&mut self) -> std::io::Result<std::process::ExitStatus> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.try_wait()? {
                Some(status) => return Ok(status),
                None => assert!(Instant::now() < until, "the app does not end"),
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn kill(&mut self) -> std::io::Result<()> {
        self.0.0.kill()
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.0.id()
    }
}

/// Ends an app well, as the end of a session does.
pub(crate) async fn end(app: &mut App) {
    let asked = Command::new("kill").args(["-TERM", &app.id().to_string()]).status().unwrap();
    assert!(asked.success());
    let status = app.wait().unwrap();
    assert!(status.success(), "{status}");
}

/// Waits for a condition.
pub(crate) async fn until(what: &str, is: impl AsyncFnMut() -> bool) {
    until_with(what, is, async || String::new()).await;
}

/// The same; says how things stand if it never comes.
pub(crate) async fn until_with(what: &str, mut is: impl AsyncFnMut() -> bool, stands: impl AsyncFn() -> String) {
    let end = Instant::now() + PATIENCE;
    while !is().await {
        assert!(Instant::now() < end, "never: {what}; {}", stands().await);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn first_line(process: &mut Process) -> String {
    let mut line = String::new();
    let mut output = BufReader::new(process.0.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    // Someone must read on, or its later lines would find a closed pipe.
    std::thread::spawn(move || output.lines().for_each(drop));
    line.trim().to_owned()
}

fn private(directory: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
}

/// The path that the app takes by default is the one that is asked here.
#[test]
fn the_control_socket_is_where_it_is_looked_for() {
    let default = control::default_path().unwrap();
    assert!(default.ends_with("tandem/control.sock"), "{}", default.display());
}
