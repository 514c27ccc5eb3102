//! What the window may ask for. Each command is named in `build.rs` and allowed in `capabilities/main.json`.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;
use tandem_controller::history::{Columns, Span};
use tandem_controller::runs::ShownRun;
use tandem_controller::{Refusal, RefusalKind, Settings, State, Wish, qr_svg, report};
use tandem_proto::measure::Kind;
use tandem_proto::mode::Mode;
use tandem_proto::pairing::PairingLink;
use tauri::ipc::Channel;
use tauri::{AppHandle, Builder, Runtime};
use tauri_plugin_autostart::ManagerExt as _;

use crate::shell::{self, Shell};

type Done<T = ()> = Result<T, Refusal>;
type Shared<'a> = tauri::State<'a, Shell>;

/// A builder that answers the window's commands.
pub(crate) fn register<R: Runtime>(builder: Builder<R>) -> Builder<R> {
    builder.invoke_handler(tauri::generate_handler![
        subscribe,
        take_link,
        connect,
        disconnect,
        set_mode,
        set_network,
        read_link,
        pair,
        rename_relay,
        remove_relay,
        prefer_relay,
        link_qr,
        save_settings,
        autostart,
        set_autostart,
        history,
        measure,
        cancel_measuring,
        runs,
        save_report,
        version,
        quit,
    ])
}

#[tauri::command]
fn subscribe(shell: Shared<'_>, channel: Channel<State>) {
    shell.subscribe(channel);
}

#[tauri::command]
fn take_link(shell: Shared<'_>) -> Option<String> {
    shell.take_link()
}

#[tauri::command]
async fn connect(shell: Shared<'_>) -> Done {
    shell.controller().wish(Wish::Connect).await
}

#[tauri::command]
async fn disconnect(shell: Shared<'_>) -> Done {
    shell.controller().wish(Wish::Disconnect).await
}

#[tauri::command]
async fn set_mode(shell: Shared<'_>, mode: Mode) -> Done {
    shell.controller().wish(Wish::Mode(mode)).await
}

#[tauri::command]
async fn set_network(shell: Shared<'_>, network: String, setting: String, value: String) -> Done {
    shell.controller().wish(Wish::SetNetwork { network, setting, value }).await
}

/// What a link says without its secret.
#[derive(Serialize)]
struct LinkAbout {
    addresses: String,
    name: String,
}

#[tauri::command]
fn read_link(link: String) -> Done<LinkAbout> {
    let link = parse(&link)?;
    let addresses = link.relays.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Ok(LinkAbout { addresses, name: link.name })
}

#[tauri::command]
async fn pair(shell: Shared<'_>, link: String, name: Option<String>, allow_file: bool) -> Done {
    let link = parse(&link)?;
    shell.controller().wish(Wish::Pair { link, name, allow_file }).await
}

#[tauri::command]
async fn rename_relay(shell: Shared<'_>, from: String, to: String) -> Done {
    shell.controller().wish(Wish::Rename { from, to }).await
}

#[tauri::command]
async fn remove_relay(shell: Shared<'_>, name: String) -> Done {
    shell.controller().wish(Wish::Remove(name)).await
}

#[tauri::command]
async fn prefer_relay(shell: Shared<'_>, name: Option<String>) -> Done {
    shell.controller().wish(Wish::Prefer(name)).await
}

#[tauri::command]
async fn link_qr(shell: Shared<'_>, name: String) -> Done<String> {
    let controller = shell.controller().clone();
    let picture = tauri::async_runtime::spawn_blocking(move || {
        let link = controller.expose_link(&name)?;
        qr_svg(&link).map_err(|error| other(error.to_string()))
    });
    picture.await.map_err(|error| other(error.to_string()))?
}

#[tauri::command]
async fn save_settings(shell: Shared<'_>, settings: Settings) -> Done {
    shell.controller().wish(Wish::Settings(settings)).await
}

#[tauri::command]
fn autostart<R: Runtime>(app: AppHandle<R>) -> Done<bool> {
    app.autolaunch().is_enabled().map_err(|error| other(error.to_string()))
}

#[tauri::command]
fn set_autostart<R: Runtime>(app: AppHandle<R>, on: bool) -> Done {
    let launch = app.autolaunch();
    let done = if on { launch.enable() } else { launch.disable() };
    done.map_err(|error| other(error.to_string()))
}

#[tauri::command]
fn history(shell: Shared<'_>, span: Span) -> Columns {
    shell.controller().history().lock().columns(span)
}

#[tauri::command]
async fn measure(shell: Shared<'_>, what: Kind, seconds: u16) -> Done {
    shell.controller().wish(Wish::Measure { what, seconds }).await
}

#[tauri::command]
async fn cancel_measuring(shell: Shared<'_>) -> Done {
    shell.controller().wish(Wish::CancelMeasuring).await
}

#[tauri::command]
fn runs(shell: Shared<'_>) -> Vec<ShownRun> {
    shell.controller().runs()
}

#[tauri::command]
async fn save_report(shell: Shared<'_>) -> Done<String> {
    let state = shell.controller().subscribe().borrow().clone();
    let saved = tauri::async_runtime::spawn_blocking(move || {
        let directory = dirs::download_dir().filter(|directory| directory.is_dir()).or_else(dirs::home_dir);
        let directory = directory.ok_or_else(|| other("there is no home directory".to_owned()))?;
        let unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let path = directory.join(format!("tandem-report-{unix_s}.txt"));
        let text = report::text(&state, env!("CARGO_PKG_VERSION"), &crate::log::recent());
        std::fs::write(&path, text).map_err(|error| other(format!("{}: {error}", path.display())))?;
        Ok(path.display().to_string())
    });
    saved.await.map_err(|error| other(error.to_string()))?
}

#[tauri::command]
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

#[tauri::command]
fn quit<R: Runtime>(app: AppHandle<R>) {
    shell::quit(&app);
}

fn parse(link: &str) -> Done<PairingLink> {
    link.parse().map_err(|error: tandem_proto::pairing::LinkError| other(chain(&error)))
}

/// An error with its cause, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

fn other(text: String) -> Refusal {
    Refusal { kind: RefusalKind::Other, text }
}
