//! What is put back, when, and what is not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use std::sync::Mutex;

use super::*;

/// Settings in memory; fails from the given write on.
#[derive(Clone)]
struct Memory {
    settings: Arc<Mutex<BTreeMap<String, Value>>>,
    writes_left: Arc<AtomicUsize>,
}

impl Memory {
    fn new() -> Self {
        let settings = [("mode", Some("none")), ("host", None), ("port", Some("8080"))];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.map(str::to_owned)));
        Self { settings: Arc::new(Mutex::new(settings.into())), writes_left: Arc::new(AtomicUsize::new(usize::MAX)) }
    }

    fn all(&self) -> BTreeMap<String, Value> {
        self.settings.lock().unwrap().clone()
    }
}

impl Desktop for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn leading_to(&self, proxy: SocketAddr) -> Vec<(String, Value)> {
        let settings =
            [("mode", "manual".to_owned()), ("host", proxy.ip().to_string()), ("port", proxy.port().to_string())];
        settings.map(|(name, value)| (name.to_owned(), Some(value))).into()
    }

    fn read(&self, setting: &str) -> io::Result<Value> {
        Ok(self.all()[setting].clone())
    }

    fn write(&self, setting: &str, value: &Value) -> io::Result<()> {
        let left = self.writes_left.load(Ordering::Relaxed);
        if left == 0 {
            self.writes_left.store(usize::MAX, Ordering::Relaxed);
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.writes_left.store(left - 1, Ordering::Relaxed);
        self.settings.lock().unwrap().insert(setting.to_owned(), value.clone());
        Ok(())
    }
}

fn proxy() -> SocketAddr {
    "127.0.0.1:1080".parse().unwrap()
}

#[test]
fn settings_lead_to_the_proxy_and_are_put_back_as_they_were() {
    let directory = tempfile::tempdir().unwrap();
    let memory = Memory::new();
    let before = memory.all();
    let system = SystemProxy::new(Some(Box::new(memory.clone())), directory.path().join("deep").join("journal"));
    system.set(proxy()).unwrap();
    assert_eq!(memory.all(), memory.leading_to(proxy()).into_iter().collect());
    // Twice, as when the proxy moves: what was there first is what is put back.
    system.set("127.0.0.1:1081".parse().unwrap()).unwrap();
    system.restore().unwrap();
    assert_eq!(memory.all(), before);
    system.restore().unwrap();
}

/// DESK-3
#[test]
fn after_a_crash_the_next_one_puts_back() {
    let directory = tempfile::tempdir().unwrap();
    let memory = Memory::new();
    let before = memory.all();
    let system = |memory: &Memory| SystemProxy::new(Some(Box::new(memory.clone())), directory.path().join("journal"));
    system(&memory).set(proxy()).unwrap();
    system(&memory).restore().unwrap();
    assert_eq!(memory.all(), before);
}

/// DESK-3
#[test]
fn what_someone_else_has_changed_meanwhile_is_theirs() {
    let directory = tempfile::tempdir().unwrap();
    let memory = Memory::new();
    let system = SystemProxy::new(Some(Box::new(memory.clone())), directory.path().join("journal"));
    system.set(proxy()).unwrap();
    memory.write("port", &Some("3128".to_owned())).unwrap();
    system.restore().unwrap();
    assert_eq!(memory.all()["port"], Some("3128".to_owned()));
    assert_eq!(memory.all()["mode"], Some("none".to_owned()));
}

#[test]
fn a_change_that_fails_in_the_middle_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let memory = Memory::new();
    let before = memory.all();
    let system = SystemProxy::new(Some(Box::new(memory.clone())), directory.path().join("journal"));
    memory.writes_left.store(2, Ordering::Relaxed);
    let error = system.set(proxy()).unwrap_err();
    assert!(matches!(error, SystemProxyError::Setting { .. }), "{error}");
    assert_eq!(memory.all(), before);
}

#[test]
fn without_a_desktop_nothing_is_set_and_nothing_fails_to_be_put_back() {
    let directory = tempfile::tempdir().unwrap();
    let system = SystemProxy::new(None, directory.path().join("journal"));
    assert!(matches!(system.set(proxy()), Err(SystemProxyError::NoDesktop)));
    system.restore().unwrap();
}
