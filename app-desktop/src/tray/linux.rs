//! Linux, where a tray needs a library and a panel that shows it.

use std::time::Duration;

use libloading::Library;
use zbus::fdo::DBusProxy;

/// The libraries that speak with a tray, as the tray's own crate looks for them; it panics if there is none.
const LIBRARIES: [&str; 4] =
    ["libayatana-appindicator3.so.1", "libappindicator3.so.1", "libayatana-appindicator3.so", "libappindicator3.so"];
/// Who shows icons.
const WATCHER: &str = "org.kde.StatusNotifierWatcher";
/// How long the session's bus may take to answer.
const BUS_LIMIT: Duration = Duration::from_secs(1);

/// Whether the library is there.
pub(super) fn is_possible() -> bool {
    // SAFETY: the library is the one that the tray loads next in any case; its initialisers are run by that as well.
    LIBRARIES.into_iter().any(|name| unsafe { Library::new(name) }.is_ok())
}

/// Whether something shows icons. A panel that comes later is not waited for: the window is shown until then.
pub(super) fn is_shown() -> bool {
    tauri::async_runtime::block_on(async {
        let asked = async {
            let bus = zbus::Connection::session().await?;
            DBusProxy::new(&bus).await?.name_has_owner(WATCHER.try_into()?).await.map_err(zbus::Error::from)
        };
        matches!(tokio::time::timeout(BUS_LIMIT, asked).await, Ok(Ok(true)))
    })
}
