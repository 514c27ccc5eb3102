//! What the desktop app decides, without a window: the app around it shows a [`State`] and hands on [`Wish`]es.
//!
//! The [`Controller`] attaches to an engine that runs, or hosts one; it knows engines, pairings and the desktop's proxy
//! settings by traits ([`Engines`], [`Links`], [`system_proxy::Desktop`]), so that scripted ones drive every screen
//! ([`ScriptedEngines`]). What tray and notifications say is made here too, as data.

mod controller;
mod engines;
mod handle;
pub mod history;
mod links;
pub mod notice;
pub mod paper;
mod qr;
pub mod report;
pub mod runs;
mod scripted;
mod settings;
mod state;
pub mod system_proxy;
pub mod tray;
mod words;

pub use controller::{Controller, Parts};
pub use engines::{Answer, EngineFault, Engines, LocalEngines, Measurement, Start};
pub use handle::{Handle, Refusal, RefusalKind, Wish};
pub use links::{Change, Links, MemoryLinks, SystemLinks};
pub use qr::{QrError, qr_svg};
pub use scripted::ScriptedEngines;
pub use settings::{Chosen, Settings, SettingsError, SettingsFile};
pub use state::{Condition, Life, MeasuringState, Relay, Running, State, SystemProxyState};
pub use words::{Words, words};
