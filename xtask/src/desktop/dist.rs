//! `cargo xtask dist`: the desktop app as a Debian package and, where appimagetool is installed, as an AppImage.
//!
//! Both hold the same tree: the program, a desktop file that also opens `tandem://` links, icons and licences. The package is
//! made by dpkg-deb alone, so that nothing has to be fetched.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::{folder, front_end, output};
use crate::cargo::{cargo, workspace_root};

/// What the program needs at run time: the web view, and the library that speaks with trays.
const DEPENDS: &str = "libc6, libwebkit2gtk-4.1-0, libgtk-3-0 | libgtk-3-0t64";
/// Without these the app works without a tray, and without system proxy settings.
const RECOMMENDS: &str = "libayatana-appindicator3-1, libglib2.0-bin, gnome-keyring | kwalletmanager";

const DESKTOP_FILE: &str = "[Desktop Entry]\n\
    Type=Application\n\
    Name=Tandem\n\
    GenericName=Network bonding client\n\
    Comment=One connection over several networks at once\n\
    Exec=tandem-desktop %u\n\
    Icon=tandem-desktop\n\
    Terminal=false\n\
    Categories=Network;\n\
    MimeType=x-scheme-handler/tandem;\n\
    StartupNotify=true\n\
    X-GNOME-UsesNotifications=true\n";

/// What `cargo xtask dist` is asked to do.
#[derive(Args, Debug)]
pub(crate) struct DistArguments {
    /// How to build the program: release, or app, which takes less time to build.
    #[arg(long, default_value = "release", value_name = "PROFILE")]
    profile: String,
}

/// Builds the packages into target/dist. Returns whether all that can be made here was made.
///
/// # Errors
/// When a tool cannot be started or a file cannot be written.
pub(crate) fn run(arguments: &DistArguments) -> Result<bool> {
    if let Some(missing) = super::missing() {
        bail!("the desktop app cannot be built here: {missing}");
    }
    if !front_end()? {
        return Ok(false);
    }
    let mut build = cargo(&["build", "--package", "tandem-desktop", "--features", "custom-protocol"]);
    build.args(["--profile", &arguments.profile]);
    if !build.status().context("cannot start cargo build")?.success() {
        return Ok(false);
    }
    let dist = workspace_root().join("target/dist");
    let root = dist.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    tree(&root, &arguments.profile)?;
    let package = debian(&dist, &root)?;
    println!("{}", package.display());
    match app_image(&dist, &root)? {
        Some(image) => println!("{}", image.display()),
        None => println!("NOT MADE: the AppImage, which needs appimagetool"),
    }
    Ok(true)
}

/// Everything that is installed.
fn tree(root: &Path, profile: &str) -> Result<()> {
    let put = |from: &Path, to: &str| -> Result<()> {
        let to = root.join(to);
        fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
        fs::copy(from, &to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
        Ok(())
    };
    let program = workspace_root().join("target").join(profile).join("tandem-desktop");
    put(&program, "usr/bin/tandem-desktop")?;
    let stripped = Command::new("strip").arg(root.join("usr/bin/tandem-desktop")).status();
    if !stripped.is_ok_and(|status| status.success()) {
        println!("the program is not stripped: no strip here");
    }
    let icons = folder().join("icons");
    for size in [32, 128, 256] {
        put(
            &icons.join(format!("app-{size}.png")),
            &format!("usr/share/icons/hicolor/{size}x{size}/apps/tandem-desktop.png"),
        )?;
    }
    put(&icons.join("app.svg"), "usr/share/icons/hicolor/scalable/apps/tandem-desktop.svg")?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        put(&workspace_root().join(licence), &format!("usr/share/doc/tandem-desktop/{licence}"))?;
    }
    let applications = root.join("usr/share/applications");
    fs::create_dir_all(&applications)?;
    fs::write(applications.join("tandem-desktop.desktop"), DESKTOP_FILE)?;
    Ok(())
}

fn debian(dist: &Path, root: &Path) -> Result<PathBuf> {
    let architecture =
        output("dpkg", &["--print-architecture"]).context("no dpkg: a Debian package cannot be made here")?;
    let version = env!("CARGO_PKG_VERSION");
    let kilobytes = size(root)? / 1024;
    let control = format!(
        "Package: tandem-desktop\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The Tandem authors <tandem@localhost>\n\
         Installed-Size: {kilobytes}\nSection: net\nPriority: optional\nDepends: {DEPENDS}\nRecommends: {RECOMMENDS}\n\
         Description: desktop app of Tandem\n One QUIC connection over several networks at once, so that what one of them loses\n \
         the others deliver: a window, a tray icon and a local proxy.\n"
    );
    fs::create_dir_all(root.join("DEBIAN"))?;
    fs::write(root.join("DEBIAN/control"), control)?;
    let package = dist.join(format!("tandem-desktop_{version}_{architecture}.deb"));
    let made = Command::new("dpkg-deb").args(["--root-owner-group", "--build"]).arg(root).arg(&package).status();
    let made = made.context("cannot start dpkg-deb")?;
    fs::remove_dir_all(root.join("DEBIAN"))?;
    if !made.success() {
        bail!("dpkg-deb failed");
    }
    Ok(package)
}

/// The same tree as one file that runs where the web view's libraries are installed.
fn app_image(dist: &Path, root: &Path) -> Result<Option<PathBuf>> {
    if output("appimagetool", &["--version"]).is_none() {
        return Ok(None);
    }
    let start = root.join("AppRun");
    fs::write(&start, "#!/bin/sh\nexec \"$(dirname \"$(readlink -f \"$0\")\")/usr/bin/tandem-desktop\" \"$@\"\n")?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&start, fs::Permissions::from_mode(0o755))?;
    }
    fs::copy(root.join("usr/share/applications/tandem-desktop.desktop"), root.join("tandem-desktop.desktop"))?;
    fs::copy(folder().join("icons/app-256.png"), root.join("tandem-desktop.png"))?;
    let image = dist.join(format!("Tandem-{}-{}.AppImage", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH));
    let made = Command::new("appimagetool").arg(root).arg(&image).status().context("cannot start appimagetool")?;
    if !made.success() {
        bail!("appimagetool failed");
    }
    Ok(Some(image))
}

/// How much a folder's files measure, in bytes.
fn size(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let about = entry.metadata()?;
        sum += if about.is_dir() { size(&entry.path())? } else { about.len() };
    }
    Ok(sum)
}
