//! Tells Tauri which commands the window may call, and embeds its files.

/// Every command of `src/commands.rs`; each is allowed to the window in `capabilities/main.json`.
const COMMANDS: &[&str] = &[
    "subscribe",
    "take_link",
    "connect",
    "disconnect",
    "set_mode",
    "set_network",
    "read_link",
    "pair",
    "rename_relay",
    "remove_relay",
    "prefer_relay",
    "link_qr",
    "save_settings",
    "autostart",
    "set_autostart",
    "history",
    "measure",
    "cancel_measuring",
    "runs",
    "save_report",
    "version",
    "quit",
];

fn main() {
    let commands = tauri_build::AppManifest::new().commands(COMMANDS);
    let attributes = tauri_build::Attributes::new().app_manifest(commands);
    if let Err(error) = tauri_build::try_build(attributes) {
        println!("cargo::error={error:#}");
    }
}
