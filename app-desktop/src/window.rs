//! The one window: made when it is wanted, destroyed when it is closed.

use tauri::{AppHandle, Manager as _, Runtime, WebviewUrl, WebviewWindowBuilder, WindowEvent};

use crate::shell::Shell;
use crate::tray;

const LABEL: &str = "main";
/// The window's size at first, and its least, in logical pixels.
const SIZE: (f64, f64) = (960.0, 760.0);
const LEAST: (f64, f64) = (360.0, 420.0);

/// Shows the window, and brings it to the front.
pub(crate) fn show<R: Runtime>(app: &AppHandle<R>) {
    let shown = match app.get_webview_window(LABEL) {
        Some(window) => {
            // A window manager that refuses one of these leaves the window where it is.
            let _ = window.unminimize();
            let _ = window.show();
            window.set_focus()
        }
        None => make(app),
    };
    if let Err(error) = shown {
        tracing::error!(%error, "the window cannot be shown");
    }
}

fn make<R: Runtime>(app: &AppHandle<R>) -> tauri::Result<()> {
    let window = WebviewWindowBuilder::new(app, LABEL, WebviewUrl::default())
        .title("Tandem")
        .inner_size(SIZE.0, SIZE.1)
        .min_inner_size(LEAST.0, LEAST.1)
        .build()?;
    Shell::of(app).shown(true);
    let (of_event, app) = (window.clone(), app.clone());
    window.on_window_event(move |event| match event {
        // Without a tray there would be no way back but a second start, which not everybody thinks of.
        WindowEvent::CloseRequested { api, .. } if !tray::is_seen(&app) => {
            api.prevent_close();
            let _ = of_event.minimize();
        }
        WindowEvent::Destroyed => Shell::of(&app).shown(false),
        _ => {}
    });
    Ok(())
}
