//! Networks as their user sees them: what each is for, what it has carried, and what it may still carry.
//!
//! A network is known by the name of its interface. [`Settings`] come from the configuration and, before it, from commands;
//! [`Account`] counts what the network carries by local days and months, and rules ([`Ruling`]) whether it carries a path,
//! and how fast. [`Book`] holds every account, and says what is to be kept over restarts ([`Kept`]).
//!
//! What counts are whole IP packets in both directions: originals, copies, control datagrams and handshakes, with the headers
//! of IP and UDP. The shell counts them and charges them here; it passes in the local date and the time.

mod account;
mod book;
mod calendar;
mod kind;
mod settings;
mod size;

pub use account::{Account, Bar, CapState, Period, Ruling, SLOW_RATE};
pub use book::{Book, Kept, KeptError};
pub use calendar::{Date, WrongDate};
pub use kind::InterfaceKind;
pub use settings::{Cap, MIN_CAP, NetworkRole, Rules, SettingError, Settings};
pub use size::{DataSize, WrongSize};
