//! The words of tray and notifications, from the one file that holds every text of the app.
//!
//! `app-desktop/strings/en.json` has a part `shell`, which is read here, and a part `window`, which the front end reads. A
//! translation is another such file.

use std::sync::LazyLock;

use serde::Deserialize;

/// The texts of this language.
static WORDS: LazyLock<Words> = LazyLock::new(|| {
    let file: File =
        serde_json::from_str(include_str!("../../strings/en.json")).expect("the file is part of the program");
    file.shell
});

#[derive(Deserialize)]
struct File {
    shell: Words,
}

/// Texts by what they are for; `{network}` and `{relay}` in them are replaced.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Words {
    pub connected: String,
    pub connecting: String,
    pub starting: String,
    pub stopping: String,
    pub off: String,
    pub unpaired: String,
    pub no_network: String,
    pub captive: String,
    pub refused: String,
    pub unreachable: String,
    pub open: String,
    pub connect: String,
    pub disconnect: String,
    pub single: String,
    pub bicast_both: String,
    pub bicast_server: String,
    pub bicast_client: String,
    pub quit: String,
    pub notice_connected: String,
    pub notice_connected_body: String,
    pub notice_disconnected: String,
    pub notice_lost: String,
    pub notice_lost_body: String,
    pub notice_back: String,
    pub notice_cap_near: String,
    pub notice_cap_near_body: String,
    pub notice_cap_reached: String,
    pub notice_cap_reached_body: String,
    pub notice_cap_free: String,
}

/// The texts.
pub fn words() -> &'static Words {
    &WORDS
}
