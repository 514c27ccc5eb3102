//! The pairing in a real keychain, GNOME's, which answers on the test's own bus.

use std::io::Write as _;
use std::process::Stdio;

use tandem_proto::stats::SessionState;

use crate::desktop::{Desktop, Process, is_there, on_a_desktop, until};
use crate::driver::Window;
use crate::far::Far;
use crate::status;

/// What opens the keychain, as at a login.
const PASSWORD: &[u8] = b"open sesame";

/// Starts the keychain, open, as a login does.
async fn unlocked(desktop: &Desktop) -> Process {
    let mut command = desktop.command("gnome-keyring-daemon");
    command.args(["--foreground", "--components=secrets", "--unlock"]);
    let daemon = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut daemon = daemon.unwrap();
    daemon.stdin.take().unwrap().write_all(PASSWORD).unwrap();
    let daemon = Process(daemon);
    until("the keychain answers", async || desktop.has_on_bus("org.freedesktop.secrets").await).await;
    daemon
}

/// KEY-1
#[test]
fn a_pairing_goes_to_the_keychain_and_comes_back_after_a_restart_of_both() {
    if !is_there("gnome-keyring-daemon") {
        println!("SKIPPED: this test needs the package gnome-keyring");
        return;
    }
    on_a_desktop("C", async |desktop| {
        let far = Far::start().await;
        desktop.write_config("[proxy]\nlisten = \"127.0.0.1:0\"\n", "interfaces = [\"lo\"]\n");
        let keyring = unlocked(&desktop).await;
        let window = Window::open(&desktop, &[]).await;
        window.type_into("textarea", &far.link).await;
        window.see("#link-about", "A relay at 127.0.0.1:").await;
        window.press("Pair").await;
        // Nobody is asked for anything else.
        window.see("h1", "Connected").await;
        window.press("Relays").await;
        window.see("main", "The pairings are kept in the keychain.").await;
        assert!(!desktop.home().join("config/tandem/pairing").exists(), "there is no file with the secret");
        window.close().await;
        drop(keyring);

        let _keyring = unlocked(&desktop).await;
        let mut app = desktop.start(&["--hidden"]);
        let is_connected = async || status(&desktop).await.is_some_and(|told| told.state == SessionState::Connected);
        until("it is connected again", is_connected).await;
        crate::desktop::end(&mut app).await;
    });
}
