//! The app's window, driven by WebKit's own WebDriver.

use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Map, json};

use crate::PATIENCE;
use crate::desktop::{Desktop, Process, until, until_with};
use crate::processes::{children, family};

/// See the module.
pub(crate) struct Window {
    client: Client,
    driver: Process,
}

impl Window {
    /// Starts the app under a WebDriver; its window must come up by itself.
    pub(crate) async fn open(desktop: &Desktop, arguments: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let driver = desktop
            .command("WebKitWebDriver")
            .args(["--host=127.0.0.1", &format!("--port={port}")])
            // Without these the app's web view knows nothing of the driver.
            .env("TAURI_AUTOMATION", "true")
            .env("TAURI_WEBVIEW_AUTOMATION", "true")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let driver = Process(driver.unwrap());
        let options = json!({ "binary": env!("CARGO_BIN_EXE_tandem-desktop"), "args": arguments });
        let capabilities = Map::from_iter([("webkitgtk:browserOptions".to_owned(), options)]);
        let end = Instant::now() + PATIENCE;
        let client = loop {
            let mut builder = ClientBuilder::new(HttpConnector::new());
            match builder.capabilities(capabilities.clone()).connect(&format!("http://127.0.0.1:{port}")).await {
                Ok(client) => break client,
                // The driver may not listen yet.
                Err(error) => assert!(Instant::now() < end, "no WebDriver session: {error}"),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        Self { client, driver }
    }

    /// Waits until an element's text contains this.
    pub(crate) async fn see(&self, selector: &str, text: &str) {
        let is = async || self.texts(selector).await.iter().any(|found| found.contains(text));
        let stands = async || format!("{selector} says {:?}", self.texts(selector).await);
        until_with(&format!("{selector} says {text:?}"), is, stands).await;
    }

    /// An element's text.
    pub(crate) async fn text(&self, selector: &str) -> String {
        self.texts(selector).await.into_iter().next().unwrap_or_else(|| panic!("there is no {selector}"))
    }

    /// What every such element says.
    pub(crate) async fn texts(&self, selector: &str) -> Vec<String> {
        let script = "return [...document.querySelectorAll(arguments[0])].map((found) => found.innerText.trim())";
        let found = self.client.execute(script, vec![json!(selector)]).await;
        found.ok().and_then(|found| serde_json::from_value(found).ok()).unwrap_or_default()
    }

    /// Clicks an element.
    pub(crate) async fn click(&self, selector: &str) {
        let element = self.client.wait().at_most(PATIENCE).for_element(Locator::Css(selector)).await;
        element.unwrap_or_else(|error| panic!("{selector}: {error}")).click().await.unwrap();
    }

    /// Clicks the button that says this, once it can be clicked.
    pub(crate) async fn press(&self, label: &str) {
        let path = format!("//button[normalize-space()={label:?}]");
        let is_ready = async || match self.client.find(Locator::XPath(&path)).await {
            Ok(button) => button.is_enabled().await.unwrap_or(false) && button.click().await.is_ok(),
            Err(_) => false,
        };
        until_with(&format!("the button {label:?} is pressed"), is_ready, async || self.text("main").await).await;
    }

    /// Clicks the button that ends the app, and so the session before it can answer.
    pub(crate) async fn press_to_end(&self, label: &str) {
        let path = format!("//button[normalize-space()={label:?}]");
        let button = self.client.wait().at_most(PATIENCE).for_element(Locator::XPath(&path)).await;
        let _ = button.unwrap_or_else(|error| panic!("{label}: {error}")).click().await;
    }

    /// Types into a field.
    pub(crate) async fn type_into(&self, selector: &str, text: &str) {
        let field = self.client.wait().at_most(PATIENCE).for_element(Locator::Css(selector)).await;
        field.unwrap_or_else(|error| panic!("{selector}: {error}")).send_keys(text).await.unwrap();
    }

    /// Chooses an entry of a list by its value.
    pub(crate) async fn choose(&self, selector: &str, value: &str) {
        let list = self.client.wait().at_most(PATIENCE).for_element(Locator::Css(selector)).await;
        list.unwrap_or_else(|error| panic!("{selector}: {error}")).select_by_value(value).await.unwrap();
    }

    /// How many of a canvas's points are not empty.
    pub(crate) async fn painted(&self, selector: &str) -> u64 {
        let script = "const canvas = document.querySelector(arguments[0]);
            if (!canvas || !canvas.width) return 0;
            const points = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
            let painted = 0;
            for (let at = 3; at < points.length; at += 4) if (points[at]) painted += 1;
            return painted;";
        self.client.execute(script, vec![json!(selector)]).await.ok().and_then(|count| count.as_u64()).unwrap_or(0)
    }

    /// Runs a script in the window.
    pub(crate) async fn execute(&self, script: &str) -> serde_json::Value {
        self.client.execute(script, Vec::new()).await.unwrap()
    }

    /// The window's content as a PNG.
    pub(crate) async fn screenshot(&self) -> Vec<u8> {
        self.client.screenshot().await.unwrap()
    }

    /// Gives the window another size, in pixels.
    pub(crate) async fn resize(&self, width: u32, height: u32) {
        self.client.set_window_size(width, height).await.unwrap();
    }

    /// Ends the session, and the app with it.
    pub(crate) async fn close(self) {
        let app = self.app();
        let _ = self.client.close().await;
        // The driver ends it a moment later; the next one that starts must not find it.
        until("the app has ended", async || app.is_none_or(|app| family(app).is_empty())).await;
    }

    /// The process of the app, which the driver has started.
    pub(crate) fn app(&self) -> Option<u32> {
        children(self.driver.0.id()).first().map(|app| app.id)
    }
}
