//! What commands, tray and window share: the controller's handle, the window's subscription, a link that waits to be looked at,
//! and the end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tandem_controller::{Handle, State, Wish};
use tandem_proto::pairing::MAX_LINK;
use tauri::async_runtime::JoinHandle;
use tauri::ipc::Channel;
use tauri::{AppHandle, Emitter as _, Manager as _, Runtime};
use tokio::time::timeout;

/// The event that tells the window that there is a link.
const LINK_EVENT: &str = "link";
/// How links begin.
const LINK_SCHEME: &str = "tandem://";
/// How long ending well may take, so that the app is gone within three seconds: the engine takes two at most, and meanwhile the
/// desktop's settings are put back. A tool that hangs does not keep the app from ending; the next start puts back what is left.
const END_LIMIT: Duration = Duration::from_millis(2_500);

/// See the module.
pub(crate) struct Shell {
    controller: Handle,
    running: Mutex<Option<JoinHandle<()>>>,
    subscription: Mutex<Option<JoinHandle<()>>>,
    link: Mutex<Option<String>>,
    ending: AtomicBool,
}

/// Makes the shell known to the app.
pub(crate) fn manage<R: Runtime>(app: &AppHandle<R>, controller: Handle, running: JoinHandle<()>) {
    app.manage(Shell {
        controller,
        running: Mutex::new(Some(running)),
        subscription: Mutex::default(),
        link: Mutex::default(),
        ending: AtomicBool::new(false),
    });
}

impl Shell {
    /// That of this app.
    pub(crate) fn of<R: Runtime>(app: &AppHandle<R>) -> tauri::State<'_, Self> {
        app.state()
    }

    /// The controller.
    pub(crate) fn controller(&self) -> &Handle {
        &self.controller
    }

    /// Tells a window every state from now on, until it is gone or another one asks.
    pub(crate) fn subscribe(&self, channel: Channel<State>) {
        let mut states = self.controller.subscribe();
        let telling = tauri::async_runtime::spawn(async move {
            loop {
                let state = states.borrow_and_update().clone();
                if channel.send(state).is_err() || states.changed().await.is_err() {
                    return;
                }
            }
        });
        if let Some(before) = self.subscription.lock().replace(telling) {
            before.abort();
        }
    }

    /// The window is shown, or there is none any more.
    pub(crate) fn shown(&self, shown: bool) {
        if !shown && let Some(telling) = self.subscription.lock().take() {
            telling.abort();
        }
        let controller = self.controller.clone();
        tauri::async_runtime::spawn(async move { controller.wish(Wish::Shown(shown)).await });
    }

    /// Other programs have opened these texts: a pairing link among them waits for the user, who decides in the window.
    pub(crate) fn opened<R: Runtime>(&self, app: &AppHandle<R>, texts: impl IntoIterator<Item = String>) {
        let is_link = |text: &String| text.starts_with(LINK_SCHEME) && text.len() <= MAX_LINK;
        if let Some(link) = texts.into_iter().find(is_link) {
            *self.link.lock() = Some(link);
            // Without a window there is nobody to tell; the next one asks.
            let _ = app.emit(LINK_EVENT, ());
        }
    }

    /// The link that waits, once.
    pub(crate) fn take_link(&self) -> Option<String> {
        self.link.lock().take()
    }

    /// Ends the controller well, if that is not done yet, and waits for it.
    pub(crate) fn end(&self) {
        let Some(mut running) = self.running.lock().take() else { return };
        let controller = self.controller.clone();
        tauri::async_runtime::block_on(async move {
            let end = async {
                let _ = controller.wish(Wish::Quit).await;
                let _ = (&mut running).await;
            };
            if timeout(END_LIMIT, end).await.is_err() {
                tracing::warn!("ended before everything was done");
                running.abort();
            }
        });
    }
}

/// Ends the app; the controller is ended on the way out.
pub(crate) fn quit<R: Runtime>(app: &AppHandle<R>) {
    if !Shell::of(app).ending.swap(true, Ordering::Relaxed) {
        app.exit(0);
    }
}

/// Ends the app well when the session or a person asks for it.
pub(crate) fn end_on_signals<R: Runtime>(app: AppHandle<R>) {
    tauri::async_runtime::spawn(async move {
        signal().await;
        quit(&app);
    });
}

#[cfg(unix)]
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

#[cfg(not(unix))]
async fn signal() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}
