//! The tray icon and its menu, drawn from what the controller says should stand there.
//!
//! Where the system has no tray, or the library that speaks with it is missing, there is none: the window has every action
//! as well.

#[cfg_attr(target_os = "linux", path = "tray/linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "tray/other.rs")]
mod presence;

use tandem_controller::tray::{Action, Icon, Item, headline, icon, menu};
use tandem_controller::{Handle, State, Wish};
use tauri::image::Image;
use tauri::include_image;
use tauri::menu::{CheckMenuItem, IsMenuItem, Menu, MenuItem, PredefinedMenuItem};
use tauri::tray::{TrayIcon, TrayIconBuilder};
use tauri::{AppHandle, Manager as _, Runtime};

use crate::shell::{Shell, quit};
use crate::window;

const ID: &str = "main";

/// Whether there is a tray icon that people can see.
pub(crate) struct Tray {
    seen: bool,
}

impl Tray {
    pub(crate) fn is_seen(&self) -> bool {
        self.seen
    }
}

/// Whether this app has a tray icon that people can see.
pub(crate) fn is_seen<R: Runtime>(app: &AppHandle<R>) -> bool {
    app.try_state::<Tray>().is_some_and(|tray| tray.is_seen())
}

/// Shows the tray icon where that is possible, and keeps it as the state is.
pub(crate) fn start<R: Runtime>(app: &AppHandle<R>) -> tauri::State<'_, Tray> {
    let tray = presence::is_possible().then(|| make(app).inspect_err(|error| tracing::warn!(%error, "no tray icon")));
    let tray = tray.and_then(Result::ok);
    app.manage(Tray { seen: tray.is_some() && presence::is_shown() });
    if let Some(tray) = tray {
        let (app, states) = (app.clone(), Shell::of(app).controller().clone());
        tauri::async_runtime::spawn(async move { follow(app, tray, states).await });
    }
    app.state()
}

fn make<R: Runtime>(app: &AppHandle<R>) -> tauri::Result<TrayIcon<R>> {
    let state = Shell::of(app).controller().subscribe().borrow().clone();
    let mut builder = TrayIconBuilder::with_id(ID)
        .icon(picture(icon(&state)))
        .tooltip("Tandem")
        .menu(&draw(app, &menu(&state))?)
        .on_menu_event(|app, event| {
            if let Some(action) = Action::of_id(event.id().as_ref()) {
                press(app, action);
            }
        });
    // Else the icon's picture goes to a directory that all users share.
    if let Ok(directory) = app.path().app_cache_dir() {
        builder = builder.temp_dir_path(directory);
    }
    builder.build(app)
}

/// Keeps the icon and menu as the state is, until the controller ends.
async fn follow<R: Runtime>(app: AppHandle<R>, tray: TrayIcon<R>, controller: Handle) {
    let mut states = controller.subscribe();
    let (mut shown_menu, mut shown_icon) = (Vec::new(), None);
    loop {
        let state: State = states.borrow_and_update().clone();
        let items = menu(&state);
        if items != shown_menu {
            let drawn = draw(&app, &items).and_then(|menu| tray.set_menu(Some(menu)));
            let titled = drawn.and_then(|()| tray.set_tooltip(Some(format!("Tandem: {}", headline(&state)))));
            if let Err(error) = titled {
                tracing::debug!(%error, "the tray's menu cannot be changed");
            }
            shown_menu = items;
        }
        if shown_icon != Some(icon(&state)) {
            shown_icon = Some(icon(&state));
            if let Err(error) = tray.set_icon(Some(picture(icon(&state)))) {
                tracing::debug!(%error, "the tray's icon cannot be changed");
            }
        }
        if states.changed().await.is_err() {
            return;
        }
    }
}

fn draw<R: Runtime>(app: &AppHandle<R>, items: &[Item]) -> tauri::Result<Menu<R>> {
    let drawn = Menu::new(app)?;
    for item in items {
        let item: Box<dyn IsMenuItem<R>> = match item {
            Item::Text(text) => Box::new(MenuItem::new(app, text, false, None::<&str>)?),
            Item::Button { action, label } => Box::new(MenuItem::with_id(app, action.id(), label, true, None::<&str>)?),
            Item::Choice { action, label, marked } => {
                Box::new(CheckMenuItem::with_id(app, action.id(), label, true, *marked, None::<&str>)?)
            }
            Item::Separator => Box::new(PredefinedMenuItem::separator(app)?),
        };
        drawn.append(item.as_ref())?;
    }
    Ok(drawn)
}

/// Does what was pressed.
pub(crate) fn press<R: Runtime>(app: &AppHandle<R>, action: Action) {
    let wish = match action {
        Action::Open => return window::show(app),
        Action::Quit => return quit(app),
        Action::Connect => Wish::Connect,
        Action::Disconnect => Wish::Disconnect,
        Action::Mode(mode) => Wish::Mode(mode),
    };
    let controller = Shell::of(app).controller().clone();
    // The state and the log tell of a refusal.
    tauri::async_runtime::spawn(async move { controller.wish(wish).await });
}

fn picture(icon: Icon) -> Image<'static> {
    match icon {
        Icon::Off => include_image!("icons/tray-off.png"),
        Icon::Trouble => include_image!("icons/tray-trouble.png"),
        Icon::On => include_image!("icons/tray-on.png"),
    }
}
