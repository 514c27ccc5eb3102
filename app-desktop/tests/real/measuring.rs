//! Measuring from the window: against a real relay, by this app's engine and by another program's.

use tandem_core::client::host::Host;

use crate::desktop::{Desktop, on_a_desktop, until};
use crate::driver::Window;
use crate::far::{Far, emulated};
use crate::status;

/// What stands beside a network's bars, as numbers: what TCP kept in percent, and Jain's index.
pub(crate) async fn figures(window: &Window, network: &str) -> Vec<f64> {
    let texts = window.texts(&format!("[data-bar={network}] .value")).await;
    texts.iter().filter_map(|text| text.trim_end_matches(" %").parse().ok()).collect()
}

async fn open(desktop: &Desktop) -> Window {
    let window = Window::open(desktop, &[]).await;
    window.see("h1", "Connected").await;
    window.press("Fairness").await;
    window
}

#[test]
fn fairness_is_measured_through_a_real_relay_and_still_there_after_a_restart() {
    on_a_desktop("C", async |desktop| {
        let far = Far::start().await;
        desktop.write_config("[proxy]\nlisten = \"127.0.0.1:0\"\n", "interfaces = [\"lo\"]\n");
        desktop.keep_pairing(&far.link);
        let window = open(&desktop).await;
        window.see("main", "Nothing was measured yet").await;
        window.choose("[data-test=seconds]", "5").await;
        window.press("Measure").await;
        window.see("[data-test=step]", "1 of 2: lo: TCP alone").await;
        window.see("[data-test=step]", "2 of 2: TCP beside the tunnel").await;
        until("there are figures", async || figures(&window, "lo").await.len() == 2).await;
        let shown = figures(&window, "lo").await;
        assert!(shown[0] > 0.0 && (0.5..=1.0).contains(&shown[1]), "{shown:?}");
        window.see("[data-test=run]", "Mbit/s").await;
        window.see("[data-test=run]", "The paper: over 90 %").await;
        window.see("[data-test=run]", "Through home, 5 s for each transfer").await;
        window.close().await;
        until("the engine has ended", async || status(&desktop).await.is_none()).await;

        let window = open(&desktop).await;
        until("the figures are there again", async || figures(&window, "lo").await == shown).await;
        window.close().await;
    });
}

#[test]
fn another_programs_engine_measures_too_until_the_user_cancels() {
    on_a_desktop("C", async |desktop| {
        let far = Far::start().await;
        let (platform, _networks) = emulated(far.relay, [0.0, 0.0]);
        let host = Host::start(far.engine(), platform, &desktop.control()).await.unwrap();
        let window = open(&desktop).await;
        window.click("input[value=speed]").await;
        window.press("Measure").await;
        window.see("[data-test=step]", "1 of 6: wifi: download").await;
        window.see("main", "Mbit/s, about").await;
        window.press("Cancel").await;
        window.see("main", "Nothing was measured yet").await;
        // The engine knows: it measures for the next one who asks.
        window.click("input[value=speed]").await;
        window.press("Measure").await;
        window.see("[data-test=step]", "1 of 6: wifi: download").await;
        window.close().await;
        host.stop().await;
    });
}

#[test]
fn a_relay_whose_owner_has_switched_measuring_off_is_said_to_offer_none() {
    on_a_desktop("C", async |desktop| {
        let far = Far::start_with(false).await;
        let (platform, _networks) = emulated(far.relay, [0.0, 0.0]);
        let host = Host::start(far.engine(), platform, &desktop.control()).await.unwrap();
        let window = open(&desktop).await;
        window.press("Measure").await;
        window.see("[role=alert]", "its owner has switched it off").await;
        window.close().await;
        host.stop().await;
    });
}
