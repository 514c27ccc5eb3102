//! Shows the controller's notifications on the desktop.

use notify_rust::Notification;
use tandem_controller::notice::Notice;
use tokio::sync::mpsc;

/// Shows what is told, until nothing can be told any more.
pub(crate) fn start(mut told: mpsc::Receiver<Notice>) {
    tauri::async_runtime::spawn(async move {
        while let Some(notice) = told.recv().await {
            // A service that hangs holds up the next notification and nothing else.
            let shown = tauri::async_runtime::spawn_blocking(move || show(&notice)).await;
            if let Ok(Err(error)) = shown {
                tracing::debug!(%error, "the notification was not shown");
            }
        }
    });
}

fn show(notice: &Notice) -> Result<(), notify_rust::error::Error> {
    Notification::new()
        .appname("Tandem")
        .summary(&notice.title)
        .body(&notice.body)
        .icon("tandem-desktop")
        .show()
        .map(drop)
}
