//! The desktop app: a window, a tray icon and notifications around `tandem-controller`, which decides everything.
//!
//! The window's files are the front end in `app-desktop/ui`, built into the program. Its commands are in [`commands`]; the
//! tray presses the same wishes. Closing the window destroys it, and the process of its page with it; the app goes on in
//! the tray, and a second start shows the window again.

mod commands;
mod log;
mod notices;
mod options;
mod shell;
#[cfg(test)]
mod tests;
mod tray;
mod window;

pub use options::Options;

use std::sync::Arc;

use anyhow::Context as _;
use tandem_controller::system_proxy::{SystemProxy, find_desktop};
use tandem_controller::{Controller, LocalEngines, Parts, SettingsFile, SystemLinks};
use tandem_core::platform::System;
use tandem_core::secrets::SystemKeeper;
use tauri::{AppHandle, Builder, RunEvent, Runtime, Wry};
use tauri_plugin_autostart::MacosLauncher;

use self::shell::Shell;

/// The flag of a start that shows no window.
const HIDDEN: &str = "--hidden";

/// Runs the app to its end.
///
/// # Errors
/// When it cannot start.
pub fn run(options: Options) -> anyhow::Result<()> {
    // Each flow takes a descriptor, and the usual soft limit is low; the hard one is what the machine allows.
    let _ = rlimit::increase_nofile_limit(u64::MAX);
    let _writing = log::start(options.log.as_deref());
    let parts = parts(&options)?;
    let hidden = options.hidden;
    let links = options.link.clone().into_iter().collect::<Vec<_>>();
    let second = |app: &AppHandle<Wry>, arguments: Vec<String>, _directory: String| {
        Shell::of(app).opened(app, arguments.into_iter().skip(1));
        window::show(app);
    };
    let app = commands::register(Builder::default())
        .plugin(tauri_plugin_single_instance::init(second))
        .plugin(tauri_plugin_autostart::init(MacosLauncher::LaunchAgent, Some(vec![HIDDEN])))
        .setup(move |app| {
            let handle = app.handle().clone();
            start(&handle, parts);
            Shell::of(&handle).opened(&handle, links);
            let tray = tray::start(&handle);
            if !hidden || !tray.is_seen() {
                window::show(&handle);
            }
            Ok(())
        })
        .build(tauri::generate_context!())
        .context("the app cannot start")?;
    app.run(|app, event| match event {
        // The last window is closed: the app goes on.
        RunEvent::ExitRequested { code: None, api, .. } => api.prevent_exit(),
        RunEvent::Exit => Shell::of(app).end(),
        // Elsewhere links come as arguments of a start.
        #[cfg(target_os = "macos")]
        RunEvent::Opened { urls } => {
            Shell::of(app).opened(app, urls.into_iter().map(String::from));
            window::show(app);
        }
        _ => {}
    });
    Ok(())
}

/// What the controller works with on this machine.
fn parts(options: &Options) -> anyhow::Result<Parts> {
    let directory = dirs::config_dir().context("there is no directory for configuration files")?.join("tandem");
    let state = dirs::state_dir().or_else(dirs::data_local_dir).context("there is no directory for the app's state")?;
    let state = state.join("tandem");
    let control = options.control.clone().map_or_else(tandem_core::client::control::default_path, Ok)?;
    let config = options.config.clone().or_else(|| Some(directory.join("config.toml")).filter(|path| path.exists()));
    Ok(Parts {
        engines: Arc::new(LocalEngines::new(control, config, Arc::new(System))),
        links: Arc::new(SystemLinks),
        keeper: Some(Arc::new(SystemKeeper)),
        settings: SettingsFile::new(directory.join("desktop.json")),
        runs: state.join("measurements.json"),
        system_proxy: Arc::new(SystemProxy::new(find_desktop(), state.join("system-proxy.json"))),
    })
}

/// Starts the controller, and what hands on what it tells.
fn start<R: Runtime>(app: &AppHandle<R>, parts: Parts) {
    let (controller, handle, told) = Controller::new(parts);
    shell::manage(app, handle, tauri::async_runtime::spawn(controller.run()));
    notices::start(told);
    shell::end_on_signals(app.clone());
}
