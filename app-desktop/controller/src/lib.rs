//! What the desktop app decides, without a window: the app around it shows a [`State`] and hands on [`Wish`]es.
//!
//! The [`Controller`] attaches to an engine that runs, or hosts one; it knows engines, pairings and the desktop's proxy
//! settings by traits ([`Engines`], [`Links`], [`system_proxy::Desktop`]), so that scripted ones drive every screen
//! ([`ScriptedEngines`]). What tray and notifications say is made here too, as data.

mod controller;
mod engines;
pub mod history;
mod links;
pub mod notice;
mod qr;
pub mod report;
mod scripted;
mod settings;
mod state;
pub mod system_proxy;
pub mod tray;
mod words;

pub use controller::{Controller, Handle, Parts, Refusal, RefusalKind, Wish};
pub use engines::{Answer, EngineFault, Engines, LocalEngines, Start};
pub use links::{Change, Links, MemoryLinks, SystemLinks};
pub use qr::{QrError, qr_svg};
pub use scripted::ScriptedEngines;
pub use settings::{Chosen, Settings, SettingsError, SettingsFile};
pub use state::{Condition, Life, Relay, State, SystemProxyState};
pub use words::{Words, words};
