//! The relays that a client is paired with: links with names, in the order in which they came, and which one is preferred.
//!
//! They are kept as text, in a keychain or a private file:
//!
//! ```text
//! tandem-pairings 1
//! * home
//! home tandem://…
//! office tandem://…
//! ```
//!
//! A text that is one link alone, as earlier versions kept, is a list of one. The text holds tokens and is a secret.

use super::{LinkError, PairingLink, Secret};
use crate::wire::flow::Host;

/// The most pairings of a client.
pub const MAX_PAIRINGS: usize = 16;
/// The longest name, in bytes.
const MAX_NAME: usize = 64;
/// The first line: what it is, and the version.
const HEAD: &str = "tandem-pairings 1";
/// The beginning of the line that names the preferred relay.
const PREFER: &str = "* ";

/// A relay, and the name by which its user knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pairing {
    /// Letters, digits, `-`, `.` and `_`.
    pub name: String,
    /// How to reach it.
    pub link: PairingLink,
}

/// Every relay of a client; names are unique.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pairings {
    list: Vec<Pairing>,
    preferred: Option<String>,
}

/// Why a list of pairings cannot be read or changed. No variant repeats a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PairingsError {
    /// Not such a text, or of a later version.
    #[error("the first line must be {HEAD:?}")]
    Head,
    /// A line is not a name and a link.
    #[error("line {0} is not a name and a pairing link")]
    Line(usize),
    /// The link of a line is wrong.
    #[error("line {line} holds no pairing link")]
    Link {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        #[source]
        source: LinkError,
    },
    /// A name cannot be one.
    #[error(
        "{0:?} is no name for a relay: 1 to {MAX_NAME} letters, digits, '-', '.' and '_' are allowed, a letter or digit first"
    )]
    Name(String),
    /// Two would have the same name.
    #[error("there is a relay called {0:?} already")]
    Taken(String),
    /// No relay has the name.
    #[error("there is no relay called {found:?}; {}", known(.names))]
    Unknown {
        /// What was asked for.
        found: String,
        /// What there is.
        names: Vec<String>,
    },
    /// More than a client keeps.
    #[error("a client keeps at most {MAX_PAIRINGS} relays: remove one first")]
    Full,
}

fn known(names: &[String]) -> String {
    if names.is_empty() { "none is known".to_owned() } else { format!("known are: {}", names.join(", ")) }
}

impl Pairings {
    /// All of them, in the order in which they came.
    pub fn list(&self) -> &[Pairing] {
        &self.list
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The name of the preferred relay; `None` to leave the choice to measurement.
    pub fn preferred(&self) -> Option<&str> {
        self.preferred.as_deref()
    }

    /// Adds a link. A relay that is known by its key gets the new link in place of the old one and keeps its name, unless it is
    /// given another. A new one without a name gets that of its first address. Answers with the name.
    ///
    /// # Errors
    /// [`PairingsError`] if the name cannot be one or belongs to another relay, or there are too many.
    pub fn add(&mut self, link: PairingLink, name: Option<&str>) -> Result<String, PairingsError> {
        let same = self.list.iter().position(|known| known.link.is_same_relay(&link));
        let name = match (name, same) {
            (Some(name), _) => {
                check_name(name)?;
                if self.list.iter().enumerate().any(|(at, known)| known.name == name && Some(at) != same) {
                    return Err(PairingsError::Taken(name.to_owned()));
                }
                name.to_owned()
            }
            (None, Some(at)) => self.list[at].name.clone(),
            (None, None) => self.free_name(&link),
        };
        match same {
            Some(at) => {
                let old = std::mem::replace(&mut self.list[at], Pairing { name: name.clone(), link });
                if self.preferred.as_ref() == Some(&old.name) {
                    self.preferred = Some(name.clone());
                }
            }
            None if self.list.len() >= MAX_PAIRINGS => return Err(PairingsError::Full),
            None => self.list.push(Pairing { name: name.clone(), link }),
        }
        Ok(name)
    }

    /// Gives a relay another name.
    ///
    /// # Errors
    /// [`PairingsError`] if it does not exist, or the new name is taken or cannot be one.
    pub fn rename(&mut self, from: &str, to: &str) -> Result<(), PairingsError> {
        let at = self.find(from)?;
        check_name(to)?;
        if from != to && self.list.iter().any(|known| known.name == to) {
            return Err(PairingsError::Taken(to.to_owned()));
        }
        to.clone_into(&mut self.list[at].name);
        if self.preferred.as_deref() == Some(from) {
            self.preferred = Some(to.to_owned());
        }
        Ok(())
    }

    /// Forgets a relay.
    ///
    /// # Errors
    /// [`PairingsError::Unknown`].
    pub fn remove(&mut self, name: &str) -> Result<Pairing, PairingsError> {
        let at = self.find(name)?;
        if self.preferred.as_deref() == Some(name) {
            self.preferred = None;
        }
        Ok(self.list.remove(at))
    }

    /// Prefers a relay, or none.
    ///
    /// # Errors
    /// [`PairingsError::Unknown`].
    pub fn prefer(&mut self, name: Option<&str>) -> Result<(), PairingsError> {
        if let Some(name) = name {
            self.find(name)?;
        }
        self.preferred = name.map(str::to_owned);
        Ok(())
    }

    /// Takes over what a relay has changed of its link, a token or the pin of its next key; `false` if the relay is not there.
    pub fn renew(&mut self, link: &PairingLink) -> bool {
        self.list.iter_mut().any(|known| known.link.renew(link))
    }

    /// The text to keep.
    pub fn to_text(&self) -> Secret {
        let mut text = format!("{HEAD}\n");
        if let Some(name) = &self.preferred {
            text += &format!("{PREFER}{name}\n");
        }
        for Pairing { name, link } in &self.list {
            text += &format!("{name} {}\n", link.expose());
        }
        Secret::new(text)
    }

    /// Reads a text that was kept.
    ///
    /// # Errors
    /// [`PairingsError`] with the line.
    pub fn from_text(text: &str) -> Result<Self, PairingsError> {
        let mut pairings = Pairings::default();
        let text = text.trim();
        if text.starts_with(super::SCHEME) {
            let link = text.parse().map_err(|source| PairingsError::Link { line: 1, source })?;
            pairings.add(link, None)?;
            return Ok(pairings);
        }
        let mut lines = text.lines().enumerate();
        if lines.next().map(|(_, line)| line.trim_end()) != Some(HEAD) {
            return Err(PairingsError::Head);
        }
        let mut preferred = None;
        for (index, line) in lines {
            let line = line.trim();
            if let Some(name) = line.strip_prefix(PREFER) {
                preferred = Some(name);
            } else if !line.is_empty() {
                let (name, link) = line.split_once(' ').ok_or(PairingsError::Line(index + 1))?;
                let link = link.parse().map_err(|source| PairingsError::Link { line: index + 1, source })?;
                pairings.add(link, Some(name))?;
            }
        }
        // One that was removed meanwhile is nobody's preference; an error would repeat a line that may hold a token.
        let _ = pairings.prefer(preferred);
        Ok(pairings)
    }

    /// Reads links that a user gives, one a line or with space between.
    ///
    /// # Errors
    /// [`PairingsError`] with the place among them.
    pub fn from_links(text: &str) -> Result<Self, PairingsError> {
        let mut pairings = Pairings::default();
        for (index, word) in text.split_whitespace().enumerate() {
            let link = word.parse().map_err(|source| PairingsError::Link { line: index + 1, source })?;
            pairings.add(link, None)?;
        }
        Ok(pairings)
    }

    fn find(&self, name: &str) -> Result<usize, PairingsError> {
        self.list.iter().position(|known| known.name == name).ok_or_else(|| PairingsError::Unknown {
            found: name.to_owned(),
            names: self.list.iter().map(|known| known.name.clone()).collect(),
        })
    }

    /// A name made of the link's first address, with a number if that is taken.
    fn free_name(&self, link: &PairingLink) -> String {
        let host = link.relays.first().map_or_else(
            || "relay".to_owned(),
            |relay| match &relay.host {
                Host::Name(name) => name.clone(),
                Host::Ip(ip) => ip.to_string(),
            },
        );
        let allowed = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '-' };
        let mut base: String = host.chars().map(allowed).take(MAX_NAME - 3).collect();
        if !base.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            base.insert(0, 'r');
        }
        let is_free = |name: &String| self.list.iter().all(|known| known.name != *name);
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        std::iter::once(base.clone()).chain(numbered).find(is_free).unwrap_or(base)
    }
}

fn check_name(name: &str) -> Result<(), PairingsError> {
    let good = (1..=MAX_NAME).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b));
    if good { Ok(()) } else { Err(PairingsError::Name(name.chars().take(MAX_NAME).collect())) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn link(host: &str, pin: u8) -> PairingLink {
        PairingLink {
            relays: vec![format!("{host}:4433").parse().unwrap()],
            pins: vec![[pin; 32]],
            token: Secret::new(format!("v4.public.{pin}")),
            name: "phone".to_owned(),
        }
    }

    fn names(pairings: &Pairings) -> Vec<&str> {
        pairings.list().iter().map(|pairing| pairing.name.as_str()).collect()
    }

    #[test]
    fn relays_are_called_by_their_address_unless_told_otherwise_and_no_name_comes_twice() {
        let mut pairings = Pairings::default();
        pairings.add(link("relay.example", 1), None).unwrap();
        pairings.add(link("relay.example", 2), None).unwrap();
        pairings.add(link("[2001:db8::1]", 3), None).unwrap();
        pairings.add(link("192.0.2.1", 4), Some("home")).unwrap();
        assert_eq!(names(&pairings), ["relay.example", "relay.example-2", "2001-db8--1", "home"]);
        assert_eq!(pairings.add(link("other", 5), Some("home")), Err(PairingsError::Taken("home".to_owned())));
        assert!(matches!(pairings.add(link("other", 5), Some("a b")), Err(PairingsError::Name(_))));
    }

    #[test]
    fn a_new_link_of_a_known_relay_takes_the_old_ones_place() {
        let mut pairings = Pairings::default();
        pairings.add(link("relay.example", 1), Some("home")).unwrap();
        pairings.add(link("office.example", 2), None).unwrap();
        pairings.prefer(Some("home")).unwrap();
        let again = PairingLink { token: Secret::new("new".to_owned()), ..link("moved.example", 1) };
        assert_eq!(pairings.add(again.clone(), None).unwrap(), "home");
        assert_eq!(pairings.list()[0], Pairing { name: "home".to_owned(), link: again });
        pairings.add(link("moved.example", 1), Some("attic")).unwrap();
        assert_eq!((names(&pairings), pairings.preferred()), (vec!["attic", "office.example"], Some("attic")));
    }

    #[test]
    fn relays_are_renamed_removed_and_preferred() {
        let mut pairings = Pairings::default();
        for (host, pin) in [("a", 1), ("b", 2)] {
            pairings.add(link(host, pin), None).unwrap();
        }
        pairings.prefer(Some("b")).unwrap();
        pairings.rename("b", "c").unwrap();
        assert_eq!((names(&pairings), pairings.preferred()), (vec!["a", "c"], Some("c")));
        assert_eq!(pairings.rename("a", "c"), Err(PairingsError::Taken("c".to_owned())));
        let unknown = pairings.prefer(Some("b")).unwrap_err().to_string();
        assert_eq!(unknown, "there is no relay called \"b\"; known are: a, c");
        pairings.remove("c").unwrap();
        assert_eq!((names(&pairings), pairings.preferred()), (vec!["a"], None));
        assert!(pairings.remove("c").is_err());
    }

    #[test]
    fn a_renewed_token_and_the_next_pin_are_taken_over_and_nothing_else() {
        let mut pairings = Pairings::default();
        pairings.add(link("a", 1), None).unwrap();
        let renewed =
            PairingLink { pins: vec![[1; 32], [9; 32]], token: Secret::new("new".to_owned()), ..link("b", 1) };
        assert!(pairings.renew(&renewed));
        assert_eq!(pairings.list()[0].link, PairingLink { relays: link("a", 1).relays, ..renewed });
        assert!(!pairings.renew(&link("c", 3)));
    }

    #[test]
    fn what_an_earlier_version_kept_is_a_list_of_one() {
        let pairings = Pairings::from_text(&format!("{}\n", link("relay.example", 1).expose())).unwrap();
        assert_eq!(pairings.list(), [Pairing { name: "relay.example".to_owned(), link: link("relay.example", 1) }]);
    }

    /// SEC-5
    #[test]
    fn a_damaged_text_is_refused_with_the_line_and_without_its_secrets() {
        let mut pairings = Pairings::default();
        pairings.add(link("a", 1), None).unwrap();
        let text = pairings.to_text();
        for (from, to, expected) in [
            ("tandem-pairings 1", "tandem-pairings 2", "first line"),
            ("a tandem", "atandem", "line 2 is not a name"),
            ("tandem://", "tundem://", "line 2 holds no"),
        ] {
            let damaged = text.expose().replace(from, to);
            let error = Pairings::from_text(&damaged).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(expected) && !shown.contains("v4.public"), "{shown}");
        }
    }

    #[test]
    fn links_that_a_user_gives_may_stand_on_lines_or_beside_each_other() {
        let text = format!("{}\n\n {}  {}", link("a", 1).expose(), link("b", 2).expose(), link("b", 3).expose());
        assert_eq!(names(&Pairings::from_links(&text).unwrap()), ["a", "b", "b-2"]);
        assert!(Pairings::from_links("").unwrap().is_empty());
        assert!(matches!(Pairings::from_links("nonsense"), Err(PairingsError::Link { line: 1, .. })));
    }

    proptest! {
        #[test]
        fn pairings_read_back(hosts in prop::collection::vec("[a-z]{1,8}", 0..8), preferred in any::<prop::sample::Index>()) {
            let mut pairings = Pairings::default();
            for (pin, host) in hosts.iter().enumerate() {
                pairings.add(link(host, pin as u8), None).unwrap();
            }
            if !hosts.is_empty() {
                let name = preferred.get(pairings.list()).name.clone();
                pairings.prefer(Some(&name)).unwrap();
            }
            prop_assert_eq!(Pairings::from_text(pairings.to_text().expose()).unwrap(), pairings);
        }

        #[test]
        fn any_text_is_pairings_or_an_error(text in "(tandem-pairings 1\n)?(\\* [a-z]{0,3}\n)?\\PC{0,60}") {
            let _ = Pairings::from_text(&text);
        }
    }
}
