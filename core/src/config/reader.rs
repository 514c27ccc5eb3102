//! Reads TOML with a memory of lines, and knows which keys exist where.

use std::fmt::Display;
use std::net::SocketAddr;
use std::path::Path;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ConfigError;

/// Every table and its keys. The first is the top of the file.
const SCHEMA: [(&str, &[&str]); 4] = [
    (
        "",
        &[
            "version",
            "mode",
            "bicast",
            "congestion",
            "interfaces",
            "captive_check",
            "link_file",
            "proxy",
            "network",
            "forward",
        ],
    ),
    ("proxy", &["listen", "user", "password"]),
    ("network", &["name", "role", "metered", "cap_daily", "cap_monthly", "reset_day", "soft_percent"]),
    ("forward", &["listen", "target"]),
];

/// A parsed file.
pub(super) struct Document<'t> {
    path: &'t Path,
    text: &'t str,
    root: Spanned<DeTable<'t>>,
}

/// One table of a file, its keys checked.
pub(super) struct Table<'d> {
    document: &'d Document<'d>,
    /// Where it begins, in bytes.
    start: usize,
    entries: &'d DeTable<'d>,
}

impl<'t> Document<'t> {
    /// Parses a text; only TOML's own rules are checked.
    pub(super) fn parse(path: &'t Path, text: &'t str) -> Result<Self, ConfigError> {
        let root = DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            problem(path, text, at, error.message().to_owned())
        })?;
        Ok(Self { path, text, root })
    }

    /// The keys outside all tables.
    pub(super) fn top(&self) -> Result<Table<'_>, ConfigError> {
        self.checked("", self.root.span().start, self.root.get_ref())
    }

    /// A table that may appear once.
    pub(super) fn table(&self, name: &str) -> Result<Option<Table<'_>>, ConfigError> {
        let Some(value) = self.root.get_ref().get(name) else {
            return Ok(None);
        };
        let DeValue::Table(entries) = value.get_ref() else {
            return Err(self.problem(value.span().start, format!("{name} must be a table, written [{name}]")));
        };
        self.checked(name, value.span().start, entries).map(Some)
    }

    /// A table that may appear any number of times.
    pub(super) fn tables(&self, name: &str) -> Result<Vec<Table<'_>>, ConfigError> {
        let Some(value) = self.root.get_ref().get(name) else {
            return Ok(Vec::new());
        };
        let wrong = |at| self.problem(at, format!("{name} must be a list of tables, each written [[{name}]]"));
        let DeValue::Array(items) = value.get_ref() else {
            return Err(wrong(value.span().start));
        };
        let table = |item: &'_ Spanned<DeValue<'_>>| item.span().start;
        items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::Table(entries) => self.checked(name, table(item), entries),
                _ => Err(wrong(table(item))),
            })
            .collect()
    }

    /// A table whose keys all exist.
    fn checked<'d>(&'d self, name: &str, start: usize, entries: &'d DeTable<'d>) -> Result<Table<'d>, ConfigError> {
        let known = SCHEMA.iter().find(|(table, _)| *table == name).map_or(&[][..], |(_, keys)| keys);
        for key in entries.keys() {
            if !known.contains(&key.get_ref().as_ref()) {
                return Err(self.problem(key.span().start, unknown_key(key.get_ref(), name, known)));
            }
        }
        Ok(Table { document: self, start, entries })
    }

    fn problem(&self, at: usize, text: String) -> ConfigError {
        problem(self.path, self.text, at, text)
    }
}

impl<'d> Table<'d> {
    /// A complaint about a key of this table.
    pub(super) fn wrong(&self, key: &str, what: impl Display) -> ConfigError {
        let at = self.entries.get_key_value(key).map_or(self.start, |(key, _)| key.span().start);
        self.document.problem(at, format!("{key} {what}"))
    }

    /// A complaint that a key is not there.
    pub(super) fn missing(&self, key: &str) -> ConfigError {
        self.wrong(key, "is missing")
    }

    fn expected(&self, key: &str, found: &DeValue<'_>, allowed: &str) -> ConfigError {
        self.wrong(key, format_args!("is of type {}; it must be {allowed}", found.type_str()))
    }

    pub(super) fn string(&self, key: &str) -> Result<Option<&'d str>, ConfigError> {
        let read = |value: &'d Spanned<DeValue<'d>>| {
            let value = value.get_ref();
            value.as_str().ok_or_else(|| self.expected(key, value, "a string"))
        };
        self.entries.get(key).map(read).transpose()
    }

    pub(super) fn strings(&self, key: &str) -> Result<Vec<String>, ConfigError> {
        let Some(value) = self.entries.get(key) else {
            return Ok(Vec::new());
        };
        let allowed = "a list of strings";
        let items = value.get_ref().as_array().ok_or_else(|| self.expected(key, value.get_ref(), allowed))?;
        let text = |item: &Spanned<DeValue<'_>>| item.get_ref().as_str().map(str::to_owned);
        items.iter().map(|item| text(item).ok_or_else(|| self.expected(key, item.get_ref(), allowed))).collect()
    }

    pub(super) fn integer(&self, key: &str, allowed: &str) -> Result<Option<i64>, ConfigError> {
        let read = |value: &Spanned<DeValue<'_>>| {
            let integer = value.get_ref().as_integer();
            let number = integer.and_then(|integer| i64::from_str_radix(integer.as_str(), integer.radix()).ok());
            number.ok_or_else(|| self.expected(key, value.get_ref(), allowed))
        };
        self.entries.get(key).map(read).transpose()
    }

    pub(super) fn truth(&self, key: &str) -> Result<Option<bool>, ConfigError> {
        let read = |value: &Spanned<DeValue<'_>>| {
            let value = value.get_ref();
            value.as_bool().ok_or_else(|| self.expected(key, value, "true or false"))
        };
        self.entries.get(key).map(read).transpose()
    }

    /// A string that is parsed into a value whose error says what is allowed.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&self, key: &str) -> Result<Option<T>, ConfigError> {
        let parse = |text: &str| text.parse().map_err(|error| self.wrong(key, format_args!("is wrong: {error}")));
        self.string(key)?.map(parse).transpose()
    }

    pub(super) fn address(&self, key: &str) -> Result<Option<SocketAddr>, ConfigError> {
        let allowed = "must be an address and a port, for example 127.0.0.1:1080 or [::1]:1080";
        let parse = |text: &str| text.parse().map_err(|_| self.wrong(key, format_args!("is {text:?}; it {allowed}")));
        self.string(key)?.map(parse).transpose()
    }
}

fn unknown_key(key: &str, table: &str, known: &[&str]) -> String {
    let elsewhere: Vec<_> =
        SCHEMA.iter().filter(|(_, keys)| keys.contains(&key)).map(|(table, _)| place(table)).collect();
    let here = place(table);
    if !elsewhere.is_empty() {
        return format!("{key} does not belong {here}; it belongs {}", elsewhere.join(" or "));
    }
    let nearest = known.iter().max_by(|a, b| {
        let likeness = |name: &&str| strsim::jaro_winkler(key, name);
        likeness(a).total_cmp(&likeness(b))
    });
    format!("{key} is not a key {here}; the nearest is {}", nearest.copied().unwrap_or_default())
}

fn place(table: &str) -> String {
    match table {
        "" => "at the top of the file".to_owned(),
        "forward" | "network" => format!("in [[{table}]]"),
        table => format!("in [{table}]"),
    }
}

fn problem(path: &Path, text: &str, at: usize, problem: String) -> ConfigError {
    let before = text.get(..at).unwrap_or(text);
    ConfigError::Text { path: path.to_owned(), line: before.matches('\n').count() + 1, problem }
}
