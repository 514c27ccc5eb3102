//! Has the desktop's proxy settings follow the engine, as the user has chosen.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::Controller;
use crate::engines::chain;
use crate::state::Life;
use crate::system_proxy::{SystemProxy, SystemProxyError};

impl Controller {
    /// Leads the desktop's settings to the proxy that runs, or puts them back, as the user has chosen.
    pub(super) async fn lead_proxy(&mut self) {
        let state = self.state.borrow().clone();
        let proxy = state.snapshot.as_ref().and_then(|snapshot| snapshot.proxy.as_ref()?.parse().ok());
        match proxy.filter(|_| state.settings.system_proxy && state.life == Life::On) {
            None if self.led_to.is_some() => self.restore_proxy().await,
            Some(proxy) if self.led_to != Some(proxy) => {
                // One that failed is tried again when it is switched on again, not four times a second.
                self.led_to = Some(proxy);
                self.change_proxy(move |system| system.set(proxy)).await;
            }
            _ => {}
        }
    }

    pub(super) async fn restore_proxy(&mut self) {
        self.led_to = None;
        self.change_proxy(SystemProxy::restore).await;
    }

    async fn change_proxy(
        &mut self,
        change: impl FnOnce(&SystemProxy) -> Result<(), SystemProxyError> + Send + 'static,
    ) {
        let system = Arc::clone(&self.parts.system_proxy);
        // It fails only while the runtime ends.
        let Ok(done) = spawn_blocking(move || change(&system)).await else { return };
        let problem = done.err().map(|error| chain(&error));
        self.change(|state| {
            state.system_proxy.set = self.led_to.is_some() && problem.is_none();
            state.system_proxy.problem = problem;
        });
    }
}
