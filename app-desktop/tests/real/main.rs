//! The real app on a virtual screen: a web view driven by WebDriver, a tray over D-Bus, the desktop's own settings, a real
//! engine, and a real relay behind emulated networks.
//!
//! Needs Xvfb, dbus-daemon, WebKitWebDriver and gsettings; where one is missing the tests say loudly that they
//! are skipped. What takes how long is not asserted: machines that check changes are slow.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod costs;
mod desktop;
mod driver;
mod far;
mod keyring;
mod measuring;
mod panel;
mod picture;
mod processes;
mod screen;
mod screenshots;
mod taskbar;

use std::time::Duration;

use tandem_core::client::control::{self, Request};
use tandem_core::client::host::Host;
use tandem_proto::mode::{Mode, Sides};
use tandem_proto::stats::{PathState, SessionState, Snapshot};

use self::desktop::{Desktop, on_a_desktop, until};
use self::driver::Window;
use self::far::{Far, download, emulated};
use self::panel::Panel;
use self::picture::Picture;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

async fn status(desktop: &Desktop) -> Option<Snapshot> {
    control::ask(&desktop.control(), &Request::Status).await.ok().flatten()
}

/// The language is C, as in some autostarts: the window is not blank there either.
#[test]
fn a_user_pairs_connects_downloads_and_changes_the_mode() {
    on_a_desktop("C", async |desktop| {
        let far = Far::start().await;
        desktop.write_config("[proxy]\nlisten = \"127.0.0.1:0\"\n", "interfaces = [\"lo\"]\n");
        let window = Window::open(&desktop, &[]).await;

        // There is no keychain on this desktop: the user is asked before a file is used.
        window.type_into("textarea", &far.link).await;
        window.see("#link-about", "A relay at 127.0.0.1:").await;
        window.press("Pair").await;
        window.press("Keep it in a private file").await;
        window.see("h1", "Connected").await;
        let kept = std::fs::read_to_string(desktop.home().join("config/tandem/pairing")).unwrap();
        assert!(kept.contains("tandem://"), "the pairing is in the file that the user chose");

        let proxy = window.text("[data-test=proxy]").await.parse().unwrap();
        assert_eq!(download(proxy, far.origin, 3_000_000).await, 3_000_000);
        window.see("[data-test=download]", "3.0 MB").await;
        let told = status(&desktop).await.unwrap();
        assert_eq!(
            (told.state, told.down.flow_bytes),
            (SessionState::Connected, 3_000_000),
            "one truth for every program"
        );

        window.click("input[value=bicast]").await;
        window.see("fieldset.sides", "Downloads").await;
        window.click("input[value=server]").await;
        until("the mode is another", async || {
            status(&desktop).await.is_some_and(|told| told.mode == Mode::Bicast(Sides::Server))
        })
        .await;

        // A slow machine may not have drawn it yet.
        until("the window is not blank", async || Picture::of(&window.screenshot().await).colours() > 40).await;
        window.press("Live").await;
        window.see("figure", "Throughput").await;
        until("something is drawn", async || window.painted("canvas").await > 500).await;

        window.press("Home").await;
        window.click("button[role=switch]").await;
        window.see("h1", "Off").await;
        assert!(std::net::TcpStream::connect(proxy).is_err(), "nobody listens any more");
        assert!(status(&desktop).await.is_none());
        window.close().await;
    });
}

#[test]
fn an_engine_that_runs_already_is_shown_with_all_its_networks_and_steered() {
    on_a_desktop("en_US.UTF-8", async |desktop| {
        let far = Far::start().await;
        let (platform, networks) = emulated(far.relay, [0.0, 0.05]);
        let host = Host::start(far.engine(), platform, &desktop.control()).await.unwrap();
        let window = Window::open(&desktop, &[]).await;
        window.see("h1", "Connected").await;
        window.see("main", "started by another program").await;
        for network in ["wifi", "cellular"] {
            window.see(&format!("[data-network={network}]"), "carries traffic").await;
        }
        window.click("input[value=bicast]").await;
        let is_bicast = async || host.handle().snapshot().mode == Mode::Bicast(Sides::Both);
        until("the engine is in bicast", is_bicast).await;
        networks[1].cut(tandem_netem::Direction::Up);
        networks[1].cut(tandem_netem::Direction::Down);
        window.see("[data-network=cellular]", "no answer").await;
        window.see("h1", "Connected").await;
        window.close().await;
        let left = host.handle().snapshot();
        assert!(left.paths.iter().any(|path| path.state == PathState::Up), "it runs on without the app: {left:?}");
        host.stop().await;
    });
}

/// DESK-2
#[test]
fn the_tray_steers_the_app_and_opens_its_window_and_quit_ends_everything() {
    on_a_desktop("C", async |desktop| {
        let far = Far::start().await;
        let (platform, _networks) = emulated(far.relay, [0.0, 0.0]);
        let host = Host::start(far.engine(), platform, &desktop.control()).await.unwrap();
        let panel = Panel::start(&desktop).await;
        let mut app = desktop.start(&["--hidden"]);
        let tray = panel.item().await;
        tray.see("Connected").await;
        assert!(!desktop.shows_window(), "it was started hidden");

        tray.press("Bicast: both directions").await;
        let is_bicast = async || host.handle().snapshot().mode == Mode::Bicast(Sides::Both);
        until("the engine is in bicast", is_bicast).await;
        until("the menu marks it", async || tray.marked().await == ["Bicast: both directions"]).await;

        tray.press("Open Tandem").await;
        until("the window is shown", async || desktop.shows_window()).await;
        desktop.close_window();
        until("the window is gone", async || !desktop.shows_window()).await;
        assert!(app.try_wait().unwrap().is_none(), "closing the window leaves the app running");
        // A second start shows the window of the first.
        let second = desktop.start(&[]).wait().unwrap();
        assert!(second.success(), "{second}");
        until("the window is shown again", async || desktop.shows_window()).await;

        tray.press("Quit").await;
        until("the app has ended", async || app.try_wait().unwrap().is_some_and(|status| status.success())).await;
        assert_eq!(host.handle().snapshot().state, SessionState::Connected, "another program's engine runs on");
        host.stop().await;
    });
}

/// DESK-1
#[test]
fn without_a_tray_or_its_library_the_window_opens_and_has_every_action() {
    on_a_desktop("C", async |desktop| {
        // Hidden or not: there would be no other way in.
        let mut app = desktop.start(&["--hidden"]);
        until("the window is shown", async || desktop.shows_window()).await;
        desktop::end(&mut app).await;

        desktop.hide_tray_library();
        let window = Window::open(&desktop, &["--hidden"]).await;
        window.see("h1", "Pair with a relay").await;
        window.press("Settings").await;
        window.press_to_end("Quit Tandem").await;
        until("the app has ended", async || !desktop.shows_window()).await;
    });
}

/// DESK-2, DESK-3
#[test]
fn the_desktops_proxy_is_put_back_after_quitting_and_after_a_crash() {
    on_a_desktop("C", async |desktop| {
        let far = Far::start().await;
        desktop.write_config("[proxy]\nlisten = \"127.0.0.1:0\"\n", "interfaces = [\"lo\"]\n");
        desktop.keep_pairing(&far.link);
        desktop.write_settings("{\"version\":1,\"system_proxy\":true}");
        desktop.set_proxy_setting("org.gnome.system.proxy.http", "host", "'proxy.example'");
        let before = desktop.proxy_settings();

        let mut app = desktop.start(&["--hidden"]);
        until("the desktop's settings lead to Tandem", async || desktop.proxy_settings().contains("mode 'manual'"))
            .await;
        let proxy = status(&desktop).await.unwrap().proxy.unwrap();
        let port = proxy.rsplit(':').next().unwrap();
        assert!(desktop.proxy_settings().contains(&format!("http port {port}")), "{}", desktop.proxy_settings());
        app.kill().unwrap();
        app.wait().unwrap();
        assert!(desktop.proxy_settings().contains("mode 'manual'"), "a crash leaves them as they are");

        desktop.write_settings("{\"version\":1,\"system_proxy\":false}");
        let mut app = desktop.start(&["--hidden"]);
        until("they are put back", async || desktop.proxy_settings() == before).await;
        desktop::end(&mut app).await;

        desktop.write_settings("{\"version\":1,\"system_proxy\":true}");
        let mut app = desktop.start(&["--hidden"]);
        until("they lead to Tandem again", async || desktop.proxy_settings().contains("mode 'manual'")).await;
        desktop::end(&mut app).await;
        assert_eq!(desktop.proxy_settings(), before, "put back on the way out");
        assert!(status(&desktop).await.is_none());
    });
}

/// DESK-3
#[test]
fn kdes_proxy_settings_are_put_back_too() {
    if !desktop::is_there("kwriteconfig5") {
        println!("SKIPPED: this test needs the package libkf5config-bin");
        return;
    }
    on_a_desktop("C", async |desktop| {
        let far = Far::start().await;
        *desktop.kind.lock().unwrap() = "KDE".to_owned();
        desktop.write_config("[proxy]\nlisten = \"127.0.0.1:0\"\n", "interfaces = [\"lo\"]\n");
        desktop.keep_pairing(&far.link);
        desktop.write_settings("{\"version\":1,\"system_proxy\":true}");
        let file = desktop.home().join("config/kioslaverc");
        std::fs::write(file, "[Proxy Settings]\nProxyType=2\nhttpProxy=http://proxy.example 3128\n").unwrap();
        let before = desktop.kde_settings();
        assert!(before.contains("ProxyType 2") && before.contains("socksProxy unset"), "{before}");
        let mut app = desktop.start(&["--hidden"]);
        until("they lead to Tandem", async || desktop.kde_settings().contains("ProxyType 1")).await;
        assert!(desktop.kde_settings().contains("socksProxy socks://127.0.0.1 "), "{}", desktop.kde_settings());
        desktop::end(&mut app).await;
        assert_eq!(desktop.kde_settings(), before);
    });
}

#[test]
fn a_link_that_another_program_opens_waits_for_the_user_in_the_running_app() {
    on_a_desktop("C", async |desktop| {
        let far = Far::start().await;
        let window = Window::open(&desktop, &[]).await;
        window.see("h1", "Pair with a relay").await;
        let second = desktop.start(&[&far.link]).wait().unwrap();
        assert!(second.success(), "{second}");
        window.see("form", "A program opened this link").await;
        window.see("#link-about", "A relay at 127.0.0.1:").await;
        assert!(!desktop.home().join("config/tandem/pairing").exists(), "nothing is kept before the user says so");
        window.close().await;
    });
}
