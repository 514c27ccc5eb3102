//! What the fuzzers run: every parser that reads what strangers send, and the state machines behind them.
//!
//! A [`Target`] is a function over bytes that panics when something does not hold, and inputs to begin from. It runs in
//! two ways: as a libFuzzer target that learns from coverage (`fuzz/`, `cargo xtask fuzz`), and in the tests by [`Mutator`],
//! which has no such eye but takes the same steps every time and needs no tools. An input that once broke something is
//! kept in `fuzz/regressions/TARGET` and tried by both.
//!
//! Targets of parsers check more than that nothing panics: what is read can be written, and reads back the same. Those of
//! state machines (`link`, `hold`, `peers`) check what must always hold of them.

mod hold;
mod input;
mod link;
mod local;
mod mutate;
mod peers;
mod server;
mod wire;

pub use mutate::Mutator;

use std::path::PathBuf;
use std::{fs, io};

/// Something to be fuzzed.
#[derive(Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Valid inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Takes one input; panics if something does not hold.
    pub run: fn(&[u8]),
    /// Memory that one input may make it keep at once, in bytes.
    pub most_memory: u64,
    /// Inputs tried in the tests: a second's worth or two.
    pub tries: u32,
}

const KB: u64 = 1_000;
const MB: u64 = 1_000_000;

/// Every target.
pub const TARGETS: &[Target] = &[
    Target { name: "header", seeds: wire::header_seeds, run: wire::header, most_memory: 64 * KB, tries: 200_000 },
    Target { name: "control", seeds: wire::control_seeds, run: wire::control, most_memory: 64 * KB, tries: 200_000 },
    Target { name: "request", seeds: wire::request_seeds, run: wire::request, most_memory: 16 * KB, tries: 200_000 },
    Target { name: "frames", seeds: wire::frame_seeds, run: wire::frames, most_memory: 64 * KB, tries: 100_000 },
    Target { name: "pairing", seeds: wire::pairing_seeds, run: wire::pairing, most_memory: 64 * KB, tries: 50_000 },
    Target { name: "target", seeds: wire::target_seeds, run: wire::target, most_memory: 64 * KB, tries: 100_000 },
    Target { name: "link", seeds: link::seeds, run: link::run, most_memory: 16 * MB, tries: 1_500 },
    Target { name: "hold", seeds: hold::seeds, run: hold::run, most_memory: 8 * MB, tries: 1_500 },
    Target { name: "peers", seeds: peers::seeds, run: peers::run, most_memory: 2 * MB, tries: 2_000 },
    Target { name: "socks", seeds: local::socks_seeds, run: local::socks, most_memory: 64 * KB, tries: 10_000 },
    Target { name: "http", seeds: local::http_seeds, run: local::http, most_memory: MB, tries: 20_000 },
    Target { name: "config", seeds: local::config_seeds, run: local::config, most_memory: 4 * MB, tries: 10_000 },
    Target { name: "ask", seeds: local::ask_seeds, run: local::ask, most_memory: MB, tries: 50_000 },
    Target { name: "captive", seeds: local::captive_seeds, run: local::captive, most_memory: MB, tries: 50_000 },
    Target { name: "names", seeds: local::names_seeds, run: local::names, most_memory: MB, tries: 50_000 },
    Target {
        name: "settings",
        seeds: server::settings_seeds,
        run: server::settings,
        most_memory: 4 * MB,
        tries: 10_000,
    },
    Target { name: "token", seeds: server::token_seeds, run: server::token, most_memory: MB, tries: 10_000 },
    Target { name: "revoked", seeds: server::revoked_seeds, run: server::revoked, most_memory: MB, tries: 50_000 },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

impl Target {
    /// The inputs that once broke it, with their files.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn regressions(&self) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/regressions").join(self.name);
        let files = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            files => files?,
        };
        let mut paths = files.map(|file| file.map(|file| file.path())).collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        paths.into_iter().map(|path| fs::read(&path).map(|bytes| (path, bytes))).collect()
    }
}
