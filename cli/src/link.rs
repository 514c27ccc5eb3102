//! Where the pairing link comes from, and where it is kept.

use std::io::Read as _;
use std::path::Path;
use std::{env, fs, io};

use anyhow::{Context as _, bail};
use tandem_core::secrets::{SecretStore as _, SystemStore};
use tandem_proto::pairing::{MAX_LINK, PairingLink};

use tandem_core::print::print;

/// The environment variable that may hold the link.
const LINK_VARIABLE: &str = "TANDEM_LINK";

/// Keeps a link for later runs.
pub(crate) fn pair(link: &str) -> anyhow::Result<()> {
    let link = parse(link)?;
    let kept = SystemStore::new()?.save(&link).context("the pairing cannot be kept")?;
    let relays: Vec<_> = link.relays.iter().map(ToString::to_string).collect();
    Ok(print(&format!("paired with {}; kept in {kept}\n", relays.join(", ")))?)
}

/// The link to run with: from the first of flag, file, environment, configuration and store that has one.
pub(crate) fn find(flag: Option<&str>, file: Option<&Path>, configured: Option<&Path>) -> anyhow::Result<PairingLink> {
    if let Some(flag) = flag {
        return parse(flag);
    }
    if let Some(file) = file {
        return read_file(file);
    }
    if let Some(text) = env::var_os(LINK_VARIABLE) {
        let text = text.into_string().ok().with_context(|| format!("{LINK_VARIABLE} is not text"))?;
        return text.parse().with_context(|| format!("{LINK_VARIABLE} holds no pairing link"));
    }
    if let Some(file) = configured {
        return read_file(file);
    }
    match SystemStore::new()?.load()? {
        Some(link) => Ok(link),
        None => bail!(
            "no pairing link: get one from the relay (tandem-relay token issue) and run `tandem pair LINK`, or give it \
             with --link, --link-file or {LINK_VARIABLE}"
        ),
    }
}

fn parse(text: &str) -> anyhow::Result<PairingLink> {
    if text != "-" {
        return Ok(text.parse()?);
    }
    let mut text = String::new();
    io::stdin().take(MAX_LINK as u64 + 16).read_to_string(&mut text).context("standard input cannot be read")?;
    text.parse().context("standard input holds no pairing link")
}

fn read_file(path: &Path) -> anyhow::Result<PairingLink> {
    let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    text.parse().with_context(|| format!("{} holds no pairing link", path.display()))
}
