//! What the app costs in memory and processor time, hidden and shown, idle and at 100 Mbit/s: `cargo xtask app-costs`.
//!
//! The engine of `tandem run` is the yardstick: it is measured alone, and then the app that shows and steers it, so that what the
//! app's processes take is what the app costs beyond the engine. At last the app hosts the engine itself.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tandem_netem::{Bitrate, Forwarder, LinkConfig};
use tandem_proto::pairing::PairingLink;
use tandem_proto::stats::SessionState;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::desktop::{self, Desktop, Process, on_a_desktop, until, until_with};
use crate::driver::Window;
use crate::far::{Far, LOCALHOST, download};
use crate::panel::Panel;
use crate::processes::{family, memory};
use crate::status;

/// The program `tandem`; `cargo xtask app-costs` builds it.
const CLIENT: &str = "TANDEM_CLIENT";
/// Where it logs.
const LOG: &str = "engine.log";
/// How long each state is looked at, and how long it may settle before.
const LENGTH: Duration = Duration::from_secs(20);
const SETTLE: Duration = Duration::from_secs(5);
/// What the hidden app may take beyond the engine, in percent of a core.
const HIDDEN_LIMIT: f64 = 1.0;

#[test]
#[ignore = "takes minutes: cargo xtask app-costs"]
fn what_the_app_costs_beside_its_engine() {
    let Ok(client) = std::env::var(CLIENT) else {
        println!("SKIPPED: {CLIENT} names no program");
        return;
    };
    on_a_desktop("C", async |desktop| {
        let far = Far::start().await;
        let delay = Duration::from_millis(10);
        let link = LinkConfig { rate: Some(Bitrate::from_mbit(100)), delay, ..LinkConfig::default() };
        let link = link.with_queue_bdp(2.0, 2 * delay);
        let line = Forwarder::spawn(LOCALHOST, far.relay, link.clone(), LinkConfig { seed: 1, ..link }).unwrap();
        let mut pairing: PairingLink = far.link.parse().unwrap();
        pairing.relays = vec![line.local_addr().to_string().parse().unwrap()];
        desktop.keep_pairing(&pairing.expose());
        desktop.write_config("[proxy]\nlisten = \"127.0.0.1:0\"\n", "interfaces = [\"lo\"]\n");
        let panel = Panel::start(&desktop).await;
        Costs { desktop, far, panel }.of_all(&client).await;
    });
}

struct Costs {
    desktop: Desktop,
    far: Far,
    panel: Panel,
}

impl Costs {
    async fn of_all(&self, client: &str) {
        println!("| | state | processor, % of a core | memory, MB | Mbit/s |\n| --- | --- | --- | --- | --- |");
        let log = File::create(self.desktop.home().join(LOG)).unwrap();
        let config = self.desktop.home().join("config/tandem/config.toml");
        let engine = self
            .desktop
            .command(client)
            .args(["run", "--config"])
            .arg(config)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let engine = Process(engine.unwrap());
        self.idle_and_at_work("engine alone", "", engine.0.id()).await;

        let mut app = self.hidden().await;
        for percent in self.idle_and_at_work("app beside it", "hidden", app.id()).await {
            assert!(percent <= HIDDEN_LIMIT, "hidden it takes {percent:.1} % beyond the engine");
        }
        desktop::end(&mut app).await;
        let window = Window::open(&self.desktop, &[]).await;
        window.see("h1", "Connected").await;
        let shown = window.app().unwrap();
        self.idle_and_at_work("app beside it", "home shown", shown).await;
        window.press("Live").await;
        self.idle_and_at_work("app beside it", "live view shown", shown).await;
        window.close().await;
        drop(engine);

        let mut app = self.hidden().await;
        self.idle_and_at_work("app with its engine", "hidden", app.id()).await;
        let begun = Instant::now();
        let load = self.load().await;
        sleep(SETTLE).await;
        desktop::end(&mut app).await;
        println!(
            "\nQuitting in the middle of a download took {:.1} s.",
            begun.elapsed().as_secs_f64() - SETTLE.as_secs_f64()
        );
        load.abort();
    }

    /// The app with its window closed again: what it leaves behind counts.
    async fn hidden(&self) -> desktop::App {
        let app = self.desktop.start(&["--hidden"]);
        let tray = self.panel.item().await;
        tray.see("Connected").await;
        tray.press("Open Tandem").await;
        until("the window is shown", async || self.desktop.shows_window()).await;
        sleep(SETTLE).await;
        self.desktop.close_window();
        // WebKit's network process stays as long as the app; what it takes is counted too.
        let has_page = || family(app.id()).iter().any(|process| process.name.starts_with("WebKitWebProc"));
        until("the web view is gone", async || !has_page()).await;
        app
    }

    async fn idle_and_at_work(&self, what: &str, state: &str, id: u32) -> [f64; 2] {
        self.connected().await;
        let idle = self.take(what, &format!("{state} idle"), id).await;
        let load = self.load().await;
        let at_work = self.take(what, &format!("{state} at work"), id).await;
        load.abort();
        [idle, at_work]
    }

    async fn connected(&self) {
        let is_connected = async || {
            status(&self.desktop)
                .await
                .is_some_and(|told| told.state == SessionState::Connected && told.proxy.is_some())
        };
        let log = async || fs::read_to_string(self.desktop.home().join(LOG)).unwrap_or_default();
        until_with("there is a connection", is_connected, log).await;
    }

    async fn load(&self) -> JoinHandle<u64> {
        let proxy = status(&self.desktop).await.unwrap().proxy.unwrap().parse().unwrap();
        let origin = self.far.origin;
        tokio::spawn(async move { download(proxy, origin, u64::MAX).await })
    }

    /// What a family of processes takes in a state, in percent of a core.
    async fn take(&self, what: &str, state: &str, id: u32) -> f64 {
        sleep(SETTLE).await;
        let used = || family(id).iter().map(|process| process.processor.as_secs_f64()).sum::<f64>();
        let bytes = async || status(&self.desktop).await.unwrap().down.flow_bytes;
        let (before, from, begun) = (used(), bytes().await, Instant::now());
        sleep(LENGTH).await;
        let seconds = begun.elapsed().as_secs_f64();
        let percent = 100.0 * (used() - before) / seconds;
        let mbps = (bytes().await - from) as f64 * 8e-6 / seconds;
        let processes: Vec<_> = family(id).iter().map(|process| (process.name.clone(), memory(process.id))).collect();
        let megabytes = |bytes: u64| format!("{:.0}", bytes as f64 / 1e6);
        let all = megabytes(processes.iter().map(|(_, bytes)| bytes).sum());
        let each: Vec<_> = processes.iter().map(|(name, bytes)| format!("{name} {}", megabytes(*bytes))).collect();
        let each = if each.len() > 1 { format!(" ({})", each.join(", ")) } else { String::new() };
        println!("| {what} | {} | {percent:.1} | {all}{each} | {mbps:.0} |", state.trim());
        percent
    }
}
