//! A panel that shows no picture: it takes tray icons over D-Bus, reads their menus and presses them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use zbus::zvariant::{OwnedObjectPath, OwnedValue, Value};
use zbus::{Connection, interface};

use crate::desktop::{Desktop, until, until_with};

/// See the module.
pub(crate) struct Panel {
    bus: Connection,
    items: Arc<Mutex<Vec<String>>>,
}

struct Watcher(Arc<Mutex<Vec<String>>>);

#[interface(name = "org.kde.StatusNotifierWatcher")]
impl Watcher {
    fn register_status_notifier_item(&self, service: String, #[zbus(header)] header: zbus::message::Header<'_>) {
        let sender = header.sender().map(ToString::to_string).unwrap_or_default();
        // An item names its bus name, or its path on the bus name that it speaks from.
        let item = if service.starts_with('/') {
            format!("{sender}{service}")
        } else {
            format!("{service}/StatusNotifierItem")
        };
        self.0.lock().unwrap().push(item);
    }

    #[zbus(property)]
    fn is_status_notifier_host_registered(&self) -> bool {
        true
    }

    #[zbus(property)]
    fn protocol_version(&self) -> i32 {
        0
    }
}

/// A line of a menu: number, label, whether it is marked.
type Line = (i32, String, bool);
/// What dbusmenu sends: number, properties, children.
type Layout = (i32, HashMap<String, OwnedValue>, Vec<OwnedValue>);

impl Panel {
    pub(crate) async fn start(desktop: &Desktop) -> Self {
        let items = Arc::<Mutex<Vec<String>>>::default();
        let builder = zbus::connection::Builder::address(desktop.bus()).unwrap();
        let builder = builder.serve_at("/StatusNotifierWatcher", Watcher(Arc::clone(&items))).unwrap();
        let bus = builder.name("org.kde.StatusNotifierWatcher").unwrap().build().await.unwrap();
        Self { bus, items }
    }

    /// The tray icon that came last, once there is one. It is forgotten, so that the next time waits for another.
    pub(crate) async fn item(&self) -> Item {
        let mut found = None;
        let names = zbus::fdo::DBusProxy::new(&self.bus).await.unwrap();
        let is_found = async || {
            let Some(item) = self.items.lock().unwrap().pop() else { return false };
            // Its program may have ended meanwhile.
            let (service, _) = item.split_at(item.find('/').unwrap());
            let is_alive = names.name_has_owner(service.try_into().unwrap()).await.unwrap();
            found = Some(item).filter(|_| is_alive);
            is_alive
        };
        until("there is a tray icon", is_found).await;
        let item = found.unwrap();
        let (service, path) = item.split_at(item.find('/').unwrap());
        let properties = zbus::fdo::PropertiesProxy::builder(&self.bus)
            .destination(service.to_owned())
            .unwrap()
            .path(path.to_owned())
            .unwrap()
            .build()
            .await
            .unwrap();
        let of_item = "org.kde.StatusNotifierItem".try_into().unwrap();
        let menu: OwnedValue = properties.get(of_item, "Menu").await.unwrap();
        let menu = OwnedObjectPath::try_from(menu).unwrap().to_string();
        Item { bus: self.bus.clone(), service: service.to_owned(), menu }
    }
}

/// A tray icon.
pub(crate) struct Item {
    bus: Connection,
    service: String,
    menu: String,
}

impl Item {
    async fn lines(&self) -> Vec<Line> {
        let arguments = (0_i32, -1_i32, Vec::<String>::new());
        let answer = self.call("GetLayout", &arguments).await;
        let Ok((_, (_, _, children))) = answer.body().deserialize::<(u32, Layout)>() else { return Vec::new() };
        let line = |child: OwnedValue| {
            let Value::Structure(line) = &*child else { return None };
            let [Value::I32(id), Value::Dict(properties), ..] = line.fields() else { return None };
            let label = properties.get::<&str, &str>(&"label").ok().flatten()?;
            let state = properties.get::<&str, i32>(&"toggle-state").ok().flatten();
            // An underscore marks a key; two stand for one.
            Some((*id, label.replace("__", "\0").replace('_', "").replace('\0', "_"), state == Some(1)))
        };
        children.into_iter().filter_map(line).collect()
    }

    async fn call(
        &self,
        method: &str,
        arguments: &(impl serde::Serialize + zbus::zvariant::DynamicType),
    ) -> zbus::Message {
        let called = self.bus.call_method(
            Some(self.service.as_str()),
            self.menu.as_str(),
            Some("com.canonical.dbusmenu"),
            method,
            arguments,
        );
        called.await.unwrap()
    }

    /// Waits until a line says this.
    pub(crate) async fn see(&self, label: &str) {
        let is = async || self.lines().await.iter().any(|(_, found, _)| found == label);
        until_with(&format!("the menu says {label:?}"), is, async || format!("{:?}", self.lines().await)).await;
    }

    /// The lines that are marked.
    pub(crate) async fn marked(&self) -> Vec<String> {
        self.lines().await.into_iter().filter(|(_, _, marked)| *marked).map(|(_, label, _)| label).collect()
    }

    /// Presses the line that says this.
    pub(crate) async fn press(&self, label: &str) {
        self.see(label).await;
        let lines = self.lines().await;
        let (id, ..) = lines.iter().find(|(_, found, _)| found == label).unwrap();
        self.call("Event", &(*id, "clicked", Value::from(0_i32), 0_u32)).await;
    }
}
