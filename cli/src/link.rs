//! Where pairing links come from, and where they are kept: `tandem pair`, `tandem relay`, and the links to run with.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{env, io};

use anyhow::{Context as _, bail};
use serde_json::json;
use tandem_core::print::print;
use tandem_core::secrets::{Keeper, Kept, LinkFiles, SecretStore as _, SystemKeeper, SystemStore};
use tandem_proto::pairing::{MAX_LINK, MAX_PAIRINGS, Pairing, PairingLink, Pairings};

use crate::args::RelayCommand;
use crate::show;

/// The environment variable that may hold the links.
const LINK_VARIABLE: &str = "TANDEM_LINK";

/// The relays to run with.
pub(crate) struct Paired {
    pub(crate) pairings: Pairings,
    /// Where a changed link is kept; `None` for links given by hand.
    pub(crate) keeper: Option<Arc<dyn Keeper>>,
}

/// Keeps a link for later runs, beside those of other relays.
pub(crate) fn pair(link: &str, name: Option<&str>) -> anyhow::Result<()> {
    let given = read(&[link.to_owned()])?;
    let [Pairing { link, .. }] = given.list() else { bail!("pair with one relay at a time") };
    let store = SystemStore::new()?;
    let (name, kept) =
        store.update(|pairings| pairings.add(link.clone(), name)).context("the pairing cannot be kept")?;
    let kept = kept.map_or_else(String::new, |kept| format!("; kept in {kept}"));
    Ok(print(&format!("paired with {}, called {name}{kept}\n", addresses(link)))?)
}

/// Shows and changes which relays are known.
pub(crate) fn relay(command: &RelayCommand) -> anyhow::Result<()> {
    let store = SystemStore::new()?;
    let kept = |kept: Option<Kept>| kept.map_or_else(String::new, |kept| format!("; kept in {kept}"));
    let text = match command {
        RelayCommand::List(output) => list(&store.load()?, output.json)?,
        RelayCommand::Rename { from, to } => {
            let ((), place) = store.update(|pairings| pairings.rename(from, to))?;
            format!("{from} is now called {to}{}\n", kept(place))
        }
        RelayCommand::Remove { name } => {
            let (gone, _) = store.update(|pairings| pairings.remove(name))?;
            format!("forgot {name} ({})\n", addresses(&gone.link))
        }
        RelayCommand::Use { name, .. } => {
            store.update(|pairings| pairings.prefer(name.as_deref()))?;
            match name {
                Some(name) => format!("{name} is used whenever it answers, from the next start of the client on\n"),
                None => "the nearest relay is used, from the next start of the client on\n".to_owned(),
            }
        }
    };
    Ok(print(&text)?)
}

/// The pairings as a table or JSON; without their tokens.
fn list(pairings: &Pairings, json: bool) -> anyhow::Result<String> {
    let is_preferred = |pairing: &Pairing| pairings.preferred() == Some(&*pairing.name);
    if json {
        let object = |pairing: &Pairing| {
            json!({
                "name": pairing.name,
                "addresses": addresses(&pairing.link),
                "preferred": is_preferred(pairing),
                "paired_as": pairing.link.name,
            })
        };
        let objects: Vec<_> = pairings.list().iter().map(object).collect();
        return Ok(serde_json::to_string_pretty(&objects)? + "\n");
    }
    if pairings.is_empty() {
        return Ok(format!("no relay is known: {HOW_TO_PAIR}\n"));
    }
    let mut rows = vec![["RELAY", "ADDRESSES", "PAIRED AS", ""].map(str::to_owned).to_vec()];
    for pairing in pairings.list() {
        let preferred = if is_preferred(pairing) { "preferred" } else { "" };
        rows.push(vec![
            pairing.name.clone(),
            addresses(&pairing.link),
            pairing.link.name.clone(),
            preferred.to_owned(),
        ]);
    }
    Ok(show::table(&rows))
}

const HOW_TO_PAIR: &str = "get a link from the relay (tandem-relay token issue) and run `tandem pair LINK`";

fn addresses(link: &PairingLink) -> String {
    link.relays.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The links to run with: from the first of flags, files, environment, configuration and store that has any.
pub(crate) fn find(flags: &[String], files: &[PathBuf], configured: Option<&Path>) -> anyhow::Result<Paired> {
    if !flags.is_empty() {
        return Ok(Paired { pairings: read(flags)?, keeper: None });
    }
    if !files.is_empty() {
        return from_files(files.to_vec());
    }
    if let Some(text) = env::var_os(LINK_VARIABLE) {
        let text = text.into_string().ok().with_context(|| format!("{LINK_VARIABLE} is not text"))?;
        return Ok(Paired { pairings: parse(&text, LINK_VARIABLE)?, keeper: None });
    }
    if let Some(file) = configured {
        return from_files(vec![file.to_owned()]);
    }
    let pairings = SystemStore::new()?.load()?;
    if pairings.is_empty() {
        bail!("no pairing link: {HOW_TO_PAIR}, or give it with --link, --link-file or {LINK_VARIABLE}");
    }
    Ok(Paired { pairings, keeper: Some(Arc::new(SystemKeeper)) })
}

/// The links of flags, each of which may be `-` for standard input.
fn read(flags: &[String]) -> anyhow::Result<Pairings> {
    let mut all = Pairings::default();
    for flag in flags {
        let given = match flag.as_str() {
            "-" => {
                let (mut text, longest) = (String::new(), (MAX_LINK + 16) * MAX_PAIRINGS);
                let mut input = io::stdin().take(longest as u64);
                input.read_to_string(&mut text).context("standard input cannot be read")?;
                parse(&text, "standard input")?
            }
            link => {
                let mut one = Pairings::default();
                one.add(link.parse()?, None)?;
                one
            }
        };
        for pairing in given.list() {
            all.add(pairing.link.clone(), None)?;
        }
    }
    Ok(all)
}

fn parse(text: &str, place: &str) -> anyhow::Result<Pairings> {
    let pairings = Pairings::from_links(text).with_context(|| format!("{place} holds no pairing link"))?;
    if pairings.is_empty() {
        bail!("{place} holds no pairing link");
    }
    Ok(pairings)
}

fn from_files(paths: Vec<PathBuf>) -> anyhow::Result<Paired> {
    let files = LinkFiles::new(paths);
    let pairings = files.load()?;
    if pairings.is_empty() {
        bail!("the file holds no pairing link");
    }
    Ok(Paired { pairings, keeper: Some(Arc::new(files)) })
}
