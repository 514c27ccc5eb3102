//! A panel that people use, Xfce's, to see the tray icon and its menu as they are drawn. For pictures alone: what the menu says
//! and does is tested without it.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use tokio::time::sleep;

use crate::desktop::{Desktop, Process, is_there, until};
use crate::picture::Picture;

/// The screen's width, and where the panel draws the last icon.
const WIDTH: i16 = 1100;
const ICON: (i16, i16) = (WIDTH - 12, 16);
/// What is taken of the screen: its upper right corner.
const PART: (u16, u16) = (340, 300);
/// The service in which Xfce's programs keep their settings.
const SETTINGS: &str = "/usr/lib/x86_64-linux-gnu/xfce4/xfconf/xfconfd";
/// A panel with a tray at its right end.
const LAYOUT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<channel name="xfce4-panel" version="1.0">
  <property name="configver" type="int" value="2"/>
  <property name="panels" type="array">
    <value type="int" value="1"/>
    <property name="panel-1" type="empty">
      <property name="position" type="string" value="p=6;x=0;y=0"/>
      <property name="length" type="uint" value="100"/>
      <property name="position-locked" type="bool" value="true"/>
      <property name="size" type="uint" value="32"/>
      <property name="plugin-ids" type="array"><value type="int" value="1"/><value type="int" value="2"/></property>
    </property>
  </property>
  <property name="plugins" type="empty">
    <property name="plugin-1" type="string" value="separator">
      <property name="expand" type="bool" value="true"/>
      <property name="style" type="uint" value="0"/>
    </property>
    <property name="plugin-2" type="string" value="systray"/>
  </property>
</channel>
"#;

/// See the module.
pub(crate) struct Taskbar<'d> {
    desktop: &'d Desktop,
    // In the order in which they are to go.
    _panel: Process,
    _settings: Process,
}

impl<'d> Taskbar<'d> {
    /// Starts one; says so where it is not installed.
    pub(crate) async fn start(desktop: &'d Desktop) -> Option<Self> {
        if !is_there("xfce4-panel") || !fs::exists(SETTINGS).unwrap() {
            println!("SKIPPED: no picture of the tray without the packages xfce4-panel and xfconf");
            return None;
        }
        let layout = desktop.home().join("config/xfce4/xfconf/xfce-perchannel-xml");
        fs::create_dir_all(&layout).unwrap();
        fs::write(layout.join("xfce4-panel.xml"), LAYOUT).unwrap();
        desktop.screen().paint(0x0058_6e82);
        let start = |program: &str, arguments: &[&str]| {
            let mut command = desktop.command(program);
            Process(command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
        };
        let settings = start(SETTINGS, &[]);
        until("there are settings for the panel", async || desktop.has_on_bus("org.xfce.Xfconf").await).await;
        let panel = start("xfce4-panel", &["--disable-wm-check"]);
        until("the panel takes icons", async || desktop.has_on_bus("org.kde.StatusNotifierWatcher").await).await;
        Some(Self { desktop, _panel: panel, _settings: settings })
    }

    /// The icon with its menu open, once both are drawn.
    pub(crate) async fn menu(&self) -> Vec<u8> {
        let screen = self.desktop.screen();
        let at_icon = || Picture::of(&screen.picture(WIDTH - 24, 4, 24, 24)).colours();
        until("the panel shows the icon", async || at_icon() > 4).await;
        // The icon says how things stand, which the app learns first.
        sleep(Duration::from_secs(3)).await;
        screen.click(ICON.0, ICON.1);
        let shown = || screen.picture(WIDTH - PART.0 as i16, 0, PART.0, PART.1);
        let colours = Picture::of(&shown()).colours();
        until("the menu is open", async || Picture::of(&shown()).colours() > colours).await;
        sleep(Duration::from_secs(1)).await;
        shown()
    }
}
