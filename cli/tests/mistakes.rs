//! Mistakes that people make on the command line and in files: each is answered by what is wrong and what would be right,
//! with 2 for a wrong command line and 1 for everything else.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use tempfile::TempDir;

const LINK: &str = "tandem://192.0.2.1:4433/?v=1&pin=BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc&token=v4.public.YQ";

/// A home of a user who has never run the program, without a keychain.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Makes a file in the folder that the program runs in.
    fn file(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    /// Runs the program with arguments that are separated by spaces; answers with its exit code and what it complains.
    fn tandem(&self, arguments: &str) -> (i32, String) {
        let home = self.0.path();
        let output = Command::new(env!("CARGO_BIN_EXE_tandem"))
            .args(arguments.split(' '))
            .current_dir(home)
            .env_clear()
            .env("HOME", home)
            .env("XDG_RUNTIME_DIR", home.join("run"))
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    /// What it says must hold each of these parts.
    fn fails(&self, arguments: &str, code: i32, parts: &[&str]) {
        let (found, text) = self.tandem(arguments);
        assert_eq!(found, code, "{arguments}: {text}");
        for part in parts {
            assert!(text.contains(part), "{arguments}: {part:?} is not in: {text}");
        }
    }
}

#[test]
fn a_wrong_command_line_ends_with_2_and_says_what_is_right() {
    let home = Home::new();
    home.fails("start", 2, &["unrecognized subcommand 'start'", "status"]);
    home.fails("mode dual", 2, &["'dual'", "single, bicast"]);
    home.fails("mode single both", 2, &["both", "the mode is single"]);
    home.fails("run --mode single --bicast client", 2, &["client", "the mode is single"]);
    home.fails("run --listen 127.0.0.1", 2, &["--listen", "write ADDRESS:PORT", "127.0.0.1:1080"]);
    home.fails("run --listen 1080", 2, &["write ADDRESS:PORT"]);
    home.fails("run --congestion bbr4", 2, &["bbr4", "bbr3, bbr3-draft, cubic, newreno, bbr1, bbr2 or bbr-cws"]);
    home.fails("run --forward 8080:example.org:80", 2, &["LISTEN=TARGET", "127.0.0.1:8080=example.org:80"]);
    home.fails("run --forward 127.0.0.1:1=2001:db8::1:80", 2, &["needs brackets"]);
    home.fails("run --link-file a --link b", 2, &["--link", "--link-file"]);
    home.fails("--log =x status", 2, &["--log", "error, warn, info, debug, trace"]);
    home.fails("status --watch --interval 0", 2, &["0.2 to 60 seconds"]);
    home.fails("status --interval 2", 2, &["--watch"]);
    home.fails("demo --loss 101", 2, &["0 to 90"]);
}

#[test]
fn a_command_that_needs_a_running_client_says_how_to_start_one() {
    let home = Home::new();
    for command in ["status", "paths", "stats", "stop", "mode bicast"] {
        home.fails(command, 1, &["no client is running", "tandem run"]);
    }
}

#[test]
fn a_link_that_is_none_is_told_by_what_is_wrong_with_it() {
    let home = Home::new();
    home.fails("run", 1, &["no pairing link", "tandem-relay token issue", "tandem pair LINK"]);
    home.fails("pair https://relay.example.org/", 1, &["begins with tandem://"]);
    home.fails(&format!("pair {}", &LINK[..60]), 1, &["pin of the pairing link", "43 characters"]);
    home.fails(&format!("pair {}", LINK.replace("v=1", "v=2")), 1, &["version", "update"]);
    home.fails("pair -", 1, &["standard input holds no pairing link"]);
    home.fails("run --link-file nothere", 1, &["nothere cannot be read", "No such file"]);
    home.file("bad", "hello");
    home.fails("run --link-file bad", 1, &["bad ", "holds no pairing link", "tandem://"]);
}

#[test]
fn a_configuration_file_that_is_wrong_is_told_by_line_and_key() {
    let home = Home::new();
    home.fails("run --config nothere.toml", 1, &["nothere.toml cannot be read"]);
    for (text, parts) in [
        ("version = 1\nmod = \"bicast\"\n", &["c.toml:2", "mod ", "nearest is mode"][..]),
        ("mode = \"bicast\"\n", &["c.toml:1", "version is missing"]),
        ("version = 2\n", &["c.toml:1", "version must be 1"]),
        ("version = 1\nmode = \"both\"\n", &["c.toml:2", "\"single\" or \"bicast\""]),
        ("version = 1\n[proxy]\nlisten = \"1080\"\n", &["c.toml:3", "127.0.0.1:1080"]),
        ("version = 1\nmode = \"bicast\n", &["c.toml:2"]),
    ] {
        home.file("c.toml", text);
        home.fails("run --config c.toml", 1, parts);
    }
}

#[test]
fn an_address_that_cannot_be_listened_on_is_told_with_what_may_help() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let run = |listen: &str| format!("run --interface lo --link {LINK} --listen {listen}");
    home.fails(&run(&address.to_string()), 1, &["cannot listen on", "another program", "--listen"]);
    home.fails(&run("203.0.113.7:1080"), 1, &["no address of this machine"]);
}
