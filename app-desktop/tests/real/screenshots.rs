//! Pictures of every screen in light and dark, for the documentation: `cargo xtask screenshots`.
//!
//! All of them show the real app, and a real engine with a real relay behind emulated networks.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tandem_core::client::host::Host;
use tandem_core::platform::{InterfaceKind, Platform, Scripted};
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::pairing::PairingLink;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::desktop::{Desktop, end, on_a_desktop, until};
use crate::driver::Window;
use crate::far::{Far, card, download_at, emulated, engine};
use crate::measuring::figures;
use crate::picture::Picture;
use crate::taskbar::Taskbar;

/// What the window measures on the pictures, in pixels.
const WIDTH: u32 = 980;
const HEIGHT: u32 = 1240;
/// What is downloaded meanwhile, in bytes per second: 24 Mbit/s. Both networks carry more, so that no queue adds to what the one of
/// them loses.
const LOAD: u64 = 3_000_000;
/// Where the control socket of a client is that has networks which TCP shares too; `cargo xtask screenshots` runs one.
const STAND: &str = "TANDEM_STAND";

#[test]
#[ignore = "writes docs/screenshots: cargo xtask screenshots"]
fn every_screen_in_light_and_dark() {
    in_light_and_dark(async |camera| camera.screens().await);
}

#[test]
#[ignore = "writes docs/screenshots: cargo xtask screenshots"]
fn measurements_in_light_and_dark() {
    match std::env::var(STAND) {
        Ok(control) => in_light_and_dark(async |camera| camera.measurements(&control).await),
        Err(_) => println!("SKIPPED: no pictures of measurements, as {STAND} names no client"),
    }
}

#[test]
#[ignore = "writes docs/screenshots: cargo xtask screenshots"]
fn the_tray_in_light_and_dark() {
    in_light_and_dark(async |camera| camera.tray().await);
}

fn in_light_and_dark(shoot: impl AsyncFn(Camera)) {
    for (name, theme) in [("light", "Adwaita"), ("dark", "Adwaita:dark")] {
        on_a_desktop("en_US.UTF-8", async |desktop| {
            *desktop.theme.lock().unwrap() = theme.to_owned();
            shoot(Camera { desktop, theme: name }).await;
        });
    }
}

struct Camera {
    desktop: Desktop,
    theme: &'static str,
}

impl Camera {
    async fn screens(&self) {
        let window = Window::open(&self.desktop, &[]).await;
        window.resize(WIDTH, HEIGHT).await;
        window.see("h1", "Pair with a relay").await;
        self.take(&window, "pairing").await;
        window.close().await;

        let far = Far::start().await;
        self.desktop.keep_pairing(&far.link);
        self.desktop.write_settings("{\"version\":1,\"connect_at_start\":false}");
        let window = Window::open(&self.desktop, &[]).await;
        window.resize(WIDTH, HEIGHT).await;
        self.at_work(&window, &far).await;
        self.troubles(&window, &far).await;
        window.see("h1", "Off").await;
        self.take(&window, "off").await;
        window.close().await;
    }

    /// Measuring with a client whose networks TCP shares.
    async fn measurements(&self, control: &str) {
        let window = Window::open(&self.desktop, &["--control", control]).await;
        window.resize(WIDTH, HEIGHT).await;
        window.see("h1", "Connected").await;
        window.press("Fairness").await;
        window.press("Measure").await;
        window.see("[data-test=step]", "3 of 3").await;
        window.see("main", "Mbit/s, about 5 s left").await;
        self.take(&window, "fairness-running").await;
        until("there are figures", async || figures(&window, "wifi0").await.len() == 2).await;
        self.take(&window, "fairness").await;
        window.click("input[value=speed]").await;
        window.choose("[data-test=seconds]", "5").await;
        window.press("Measure").await;
        window.see("table", "Round trip, idle").await;
        self.take(&window, "speed").await;
        window.close().await;
    }

    /// The icon and its menu in a real panel.
    async fn tray(&self) {
        let Some(taskbar) = Taskbar::start(&self.desktop).await else { return };
        let far = Far::start().await;
        let (platform, _networks) = emulated(far.relay, [0.0, 0.0]);
        let host = self.host(far.engine(), platform).await;
        host.handle().set_mode(Mode::Bicast(Sides::Both));
        let mut app = self.desktop.start(&["--hidden"]);
        let png = taskbar.menu().await;
        save(&format!("tray-{}.png", self.theme), &png).unwrap();
        end(&mut app).await;
        host.stop().await;
    }

    /// In bicast while one network loses 5 %.
    async fn at_work(&self, window: &Window, far: &Far) {
        let (platform, _networks) = emulated(far.relay, [0.0, 0.05]);
        let host = self.host(far.engine(), platform).await;
        host.handle().set_mode(Mode::Bicast(Sides::Both));
        host.handle().set_network("cellular", "cap-monthly", "10 GB").unwrap();
        let (proxy, origin) = (host.proxy_address().unwrap(), far.origin);
        let mut downloads = JoinSet::new();
        downloads.spawn(async move { download_at(proxy, origin, u64::MAX, LOAD).await });
        window.see("h1", "Connected").await;
        sleep(Duration::from_secs(12)).await;
        self.take(window, "home").await;
        window.press("Live").await;
        window.see("figure", "Throughput").await;
        sleep(Duration::from_secs(25)).await;
        self.take(window, "live").await;
        window.press("Relays").await;
        window.see("article", "in use").await;
        window.press("Show QR code").await;
        window.see("article", "Whoever reads this code").await;
        self.take(window, "relays").await;
        window.press("Settings").await;
        self.take(window, "settings").await;
        window.press("Home").await;
        window.execute("document.documentElement.style.fontSize = '200%'").await;
        sleep(Duration::from_secs(1)).await;
        self.take(window, "home-200").await;
        window.execute("document.documentElement.style.fontSize = ''").await;
        downloads.abort_all();
        host.stop().await;
    }

    async fn troubles(&self, window: &Window, far: &Far) {
        window.press("Home").await;
        let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let lead = |to| Scripted::new(vec![card("wifi", InterfaceKind::Wifi, 1, to)]);
        let silent = nobody.local_addr().unwrap();
        self.trouble(window, far.link.clone(), lead(silent), "No connection", "error-unreachable").await;

        let mut wrong: PairingLink = far.link.parse().unwrap();
        wrong.pins = vec![[7; 32]];
        self.trouble(window, wrong.expose(), lead(far.relay), "No connection", "error-wrong-pin").await;

        let captive = lead(silent);
        captive.set_asker(Arc::new(|_, _, _| {
            Box::pin(async { Ok(b"HTTP/1.1 302 Found\r\nLocation: http://login.example/\r\n\r\n".to_vec()) })
        }));
        self.trouble(window, far.link.clone(), captive, "wants a login", "error-captive").await;
        self.trouble(window, far.link.clone(), Scripted::new(Vec::new()), "No network", "error-no-network").await;
        far.revoke();
        self.trouble(window, far.link.clone(), lead(far.relay), "refuses this device", "error-revoked").await;
    }

    async fn trouble(&self, window: &Window, link: String, platform: Scripted, headline: &str, name: &str) {
        let host = self.host(engine(&link), Arc::new(platform)).await;
        window.see("h1", headline).await;
        window.see("[data-test=problem]", "").await;
        self.take(window, name).await;
        host.stop().await;
    }

    async fn host(&self, config: tandem_core::client::EngineConfig, platform: Arc<dyn Platform>) -> Host {
        Host::start(config, platform, &self.desktop.control()).await.unwrap()
    }

    async fn take(&self, window: &Window, name: &str) {
        // What was just clicked has settled, and a slow machine has drawn it.
        sleep(Duration::from_millis(400)).await;
        let is_drawn = async || Picture::of(&window.screenshot().await).colours() > 40;
        until(&format!("{name} is not blank"), is_drawn).await;
        let png = window.screenshot().await;
        save(&format!("{name}-{}.png", self.theme), &png).unwrap();
    }
}

fn save(name: &str, png: &[u8]) -> io::Result<()> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/screenshots");
    fs::create_dir_all(&directory)?;
    fs::write(directory.join(name), png)
}
