//! The controller with scripted engines, in virtual time.

mod measuring;

use std::collections::BTreeMap;
use std::io;

use tandem_proto::mode::{Mode, Sides};
use tandem_proto::pairing::{PairingLink, Secret};
use tandem_proto::stats::{NetworkStats, PathState, PathStats, SessionState, Snapshot};
use tempfile::TempDir;

use super::*;
use crate::links::MemoryLinks;
use crate::scripted::ScriptedEngines;
use crate::system_proxy::{Desktop, Value};

/// A desktop's settings in memory.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<BTreeMap<String, Value>>>);

impl Memory {
    fn proxy(&self) -> Value {
        self.0.lock().get("proxy").cloned().flatten()
    }
}

impl Desktop for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn leading_to(&self, proxy: SocketAddr) -> Vec<(String, Value)> {
        vec![("proxy".to_owned(), Some(proxy.to_string()))]
    }

    fn read(&self, setting: &str) -> io::Result<Value> {
        Ok(self.0.lock().get(setting).cloned().flatten())
    }

    fn write(&self, setting: &str, value: &Value) -> io::Result<()> {
        self.0.lock().insert(setting.to_owned(), value.clone());
        Ok(())
    }
}

/// A controller that runs, and what is around it.
struct Stand {
    handle: Handle,
    engines: ScriptedEngines,
    links: Arc<MemoryLinks>,
    desktop: Memory,
    notices: mpsc::Receiver<Notice>,
    files: TempDir,
}

struct Before {
    engines: ScriptedEngines,
    links: MemoryLinks,
    settings: Settings,
    desktop: Memory,
    files: TempDir,
}

impl Before {
    /// Nothing is paired and nothing runs.
    fn new() -> Self {
        Self {
            engines: ScriptedEngines::new(connected()),
            links: MemoryLinks::default(),
            settings: Settings::default(),
            desktop: Memory::default(),
            files: tempfile::tempdir().unwrap(),
        }
    }

    fn paired(self) -> Self {
        self.links.change(true, Box::new(|pairings| pairings.add(link(1), Some("home")).map(drop))).unwrap();
        self
    }

    fn start(self) -> Stand {
        let settings = SettingsFile::new(self.files.path().join("desktop.json"));
        if self.settings != Settings::default() {
            settings.save(&self.settings).unwrap();
        }
        let links = Arc::new(self.links);
        let journal = self.files.path().join("journal");
        let parts = Parts {
            engines: Arc::new(self.engines.clone()),
            links: links.clone(),
            keeper: None,
            settings,
            runs: self.files.path().join("measurements.json"),
            system_proxy: Arc::new(SystemProxy::new(Some(Box::new(self.desktop.clone())), journal)),
        };
        let (controller, handle, notices) = Controller::new(parts);
        tokio::spawn(controller.run());
        let Self { engines, desktop, files, .. } = self;
        Stand { handle, engines, links, desktop, notices, files }
    }
}

impl Stand {
    /// Waits for a condition; virtual time passes only while nothing else is to be done.
    async fn until(&self, what: &str, is: impl Fn(&State) -> bool) -> State {
        let mut states = self.handle.subscribe();
        let waited = tokio::time::timeout(Duration::from_secs(60), states.wait_for(|state| is(state))).await;
        match waited {
            Ok(state) => state.expect("the controller runs").clone(),
            Err(_) => panic!("never {what}: {:?}", self.handle.subscribe().borrow()),
        }
    }
}

fn link(pin: u8) -> PairingLink {
    PairingLink {
        relays: vec![format!("relay{pin}.example:4433").parse().unwrap()],
        pins: vec![[pin; 32]],
        token: Secret::new("v4.public.c2VjcmV0".to_owned()),
        name: "laptop".to_owned(),
    }
}

fn connected() -> Snapshot {
    let path = |name: &str| PathStats { interface: name.to_owned(), state: PathState::Up, ..PathStats::default() };
    let network = |name: &str| NetworkStats { name: name.to_owned(), present: true, ..NetworkStats::default() };
    Snapshot {
        state: SessionState::Connected,
        relay: "relay1.example:4433".to_owned(),
        proxy: Some("127.0.0.1:1080".to_owned()),
        paths: vec![path("wlan0"), path("wwan0")],
        networks: vec![network("wlan0"), network("wwan0")],
        ..Snapshot::default()
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_pairing_the_app_waits_and_a_link_connects() {
    let stand = Before::new().start();
    stand.until("unpaired", |state| state.condition == Condition::Unpaired).await;
    let pair = Wish::Pair { link: link(1), name: Some("home".to_owned()), allow_file: false };
    stand.handle.wish(pair).await.unwrap();
    let state = stand.until("connected", |state| state.condition == Condition::Connected).await;
    assert_eq!((state.relays[0].name.as_str(), state.relays[0].paired_as.as_str()), ("home", "laptop"));
    assert!(!state.elsewhere);
    let shown = serde_json::to_string(&state).unwrap();
    assert!(!shown.contains("c2VjcmV0"), "no secret is shown: {shown}");
}

#[tokio::test(start_paused = true)]
async fn where_there_is_no_keychain_the_user_is_asked_before_a_file_is_used() {
    let mut before = Before::new();
    before.links.without_keychain = true;
    let stand = before.start();
    let pair = |allow_file| Wish::Pair { link: link(1), name: None, allow_file };
    let refusal = stand.handle.wish(pair(false)).await.unwrap_err();
    assert_eq!(refusal.kind, RefusalKind::NoKeychain);
    assert!(stand.links.load().unwrap().0.is_empty());
    stand.handle.wish(pair(true)).await.unwrap();
    stand.until("connected", |state| state.condition == Condition::Connected).await;
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_runs_already_is_shown_and_steered_and_left_running_at_the_end() {
    let before = Before::new().paired();
    before.engines.tell(Some(connected()));
    let stand = before.start();
    let state = stand.until("connected", |state| state.condition == Condition::Connected).await;
    assert!(state.elsewhere);
    assert!(stand.engines.started().is_empty());
    let mode = Mode::Bicast(Sides::Both);
    stand.handle.wish(Wish::Mode(mode)).await.unwrap();
    stand.until("in bicast", |state| state.snapshot.as_ref().is_some_and(|snapshot| snapshot.mode == mode)).await;
    assert_eq!(stand.engines.asked(), [Request::Mode(mode)]);
    stand.handle.wish(Wish::Quit).await.unwrap();
    assert_eq!(stand.engines.asked(), [], "nobody asked it to stop");
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_appears_or_goes_is_noticed_within_a_second() {
    let mut before = Before::new().paired();
    before.settings.connect_at_start = false;
    let stand = before.start();
    stand.until("off", |state| state.condition == Condition::Off).await;
    stand.engines.tell(Some(connected()));
    let began = Instant::now();
    let state = stand.until("connected", |state| state.condition == Condition::Connected).await;
    assert!(state.elsewhere && began.elapsed() <= HIDDEN, "{:?}", began.elapsed());
    stand.engines.tell(None);
    let began = Instant::now();
    stand.until("off", |state| state.condition == Condition::Off && state.snapshot.is_none()).await;
    assert!(began.elapsed() <= HIDDEN, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_mode_chosen_last_is_that_of_the_next_start() {
    let mut before = Before::new().paired();
    before.settings.connect_at_start = false;
    let stand = before.start();
    let mode = Mode::Bicast(Sides::Client);
    stand.handle.wish(Wish::Mode(mode)).await.unwrap();
    stand.handle.wish(Wish::Connect).await.unwrap();
    assert_eq!(stand.engines.started()[0].mode, Some(mode));
    let kept = SettingsFile::new(stand.files.path().join("desktop.json")).load().unwrap();
    assert_eq!(kept.mode, Some(Chosen { mode }));
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_does_not_start_says_why_and_can_be_tried_again() {
    let before = Before::new().paired();
    before.engines.fail("cannot listen on 127.0.0.1:1080");
    let stand = before.start();
    let state = stand.until("off", |state| state.condition == Condition::Off && state.fault.is_some()).await;
    assert_eq!(state.fault.as_deref(), Some("cannot listen on 127.0.0.1:1080"));
    let refusal = stand.handle.wish(Wish::Connect).await.unwrap_err();
    assert!(refusal.text.contains("1080"), "{refusal:?}");
}

#[tokio::test(start_paused = true)]
async fn relays_are_renamed_without_a_new_start_and_removed_with_one() {
    let before = Before::new().paired();
    before.links.change(true, Box::new(|pairings| pairings.add(link(2), Some("office")).map(drop))).unwrap();
    let stand = before.start();
    stand.until("connected", |state| state.condition == Condition::Connected).await;
    let rename = Wish::Rename { from: "home".to_owned(), to: "attic".to_owned() };
    stand.handle.wish(rename).await.unwrap();
    assert_eq!(stand.engines.started().len(), 1);
    stand.handle.wish(Wish::Prefer(Some("office".to_owned()))).await.unwrap();
    assert_eq!(stand.engines.started()[1].pairings.preferred(), Some("office"));
    stand.handle.wish(Wish::Remove("attic".to_owned())).await.unwrap();
    assert_eq!(stand.engines.started()[2].pairings.list().len(), 1);
    stand.handle.wish(Wish::Remove("office".to_owned())).await.unwrap();
    stand.until("unpaired", |state| state.condition == Condition::Unpaired).await;
    assert_eq!(stand.engines.started().len(), 3);
    let refusal = stand.handle.wish(Wish::Remove("office".to_owned())).await.unwrap_err();
    assert!(refusal.text.contains("no relay called"), "{refusal:?}");
}

#[tokio::test(start_paused = true)]
async fn the_desktops_proxy_follows_the_engine_and_is_put_back() {
    let mut before = Before::new().paired();
    before.settings.system_proxy = true;
    let stand = before.start();
    stand.until("led to the proxy", |state| state.system_proxy.set).await;
    assert_eq!(stand.desktop.proxy().as_deref(), Some("127.0.0.1:1080"));
    stand.handle.wish(Wish::Disconnect).await.unwrap();
    assert_eq!(stand.desktop.proxy(), None);
    stand.handle.wish(Wish::Connect).await.unwrap();
    assert!(stand.desktop.proxy().is_some());
    let off = Settings { system_proxy: false, ..Settings::default() };
    stand.handle.wish(Wish::Settings(off)).await.unwrap();
    assert_eq!(stand.desktop.proxy(), None);
    stand.handle.wish(Wish::Settings(Settings { system_proxy: true, ..Settings::default() })).await.unwrap();
    assert!(stand.desktop.proxy().is_some());
    stand.handle.wish(Wish::Quit).await.unwrap();
    assert_eq!(stand.desktop.proxy(), None);
}

/// DESK-3
#[tokio::test(start_paused = true)]
async fn after_a_crash_the_next_start_puts_the_desktops_proxy_back() {
    let mut before = Before::new().paired();
    before.settings.connect_at_start = false;
    let crashed = SystemProxy::new(Some(Box::new(before.desktop.clone())), before.files.path().join("journal"));
    crashed.set("127.0.0.1:1080".parse().unwrap()).unwrap();
    let stand = before.start();
    stand.until("off", |state| state.condition == Condition::Off).await;
    assert_eq!(stand.desktop.proxy(), None);
}

#[tokio::test(start_paused = true)]
async fn a_network_that_is_lost_is_told_once_and_only_if_that_is_wished() {
    let mut stand = Before::new().paired().start();
    stand.until("connected", |state| state.condition == Condition::Connected).await;
    let mut snapshot = connected();
    snapshot.paths[1].state = PathState::Down;
    stand.engines.tell(Some(snapshot));
    let notice = tokio::time::timeout(Duration::from_secs(10), stand.notices.recv()).await.unwrap().unwrap();
    assert_eq!(notice.title, "wwan0 is lost");
    let quiet = Settings { notify: false, ..Settings::default() };
    stand.handle.wish(Wish::Settings(quiet)).await.unwrap();
    stand.engines.tell(Some(connected()));
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert!(stand.notices.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn the_history_has_a_sample_a_second_whether_the_window_is_shown_or_not() {
    let stand = Before::new().paired().start();
    for shown in [true, false] {
        stand.handle.wish(Wish::Shown(shown)).await.unwrap();
        let before = stand.handle.history().lock().columns(crate::history::Span::Minute).unix_s.len();
        tokio::time::sleep(Duration::from_secs(20)).await;
        let after = stand.handle.history().lock().columns(crate::history::Span::Minute).unix_s.len();
        assert!((18..=22).contains(&(after - before)), "{}", after - before);
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_is_exposed_by_name_and_to_nobody_who_names_none() {
    let stand = Before::new().paired().start();
    assert_eq!(stand.handle.expose_link("home").unwrap(), link(1).expose());
    assert!(stand.handle.expose_link("other").is_err());
}
