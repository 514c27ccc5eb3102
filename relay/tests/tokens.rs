//! The program's files and tokens, from the command line.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::path::Path;
use std::process::{Command, Output};

use assert_cmd::cargo::CommandCargoExt as _;
use tandem_proto::pairing::PairingLink;
use tandem_relay::directory::Directory;
use time::OffsetDateTime;

fn relay(arguments: &[&str], dir: &Path) -> Output {
    let mut command = Command::cargo_bin("tandem-relay").unwrap();
    command.args(arguments).arg("--dir").arg(dir).output().unwrap()
}

/// Runs the program, which must succeed; answers with what it printed.
fn succeed(arguments: &[&str], dir: &Path) -> String {
    let output = relay(arguments, dir);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the program, which must fail; answers with its complaint.
fn fail(arguments: &[&str], dir: &Path) -> String {
    let output = relay(arguments, dir);
    assert!(!output.status.success(), "{arguments:?} succeeded");
    String::from_utf8(output.stderr).unwrap()
}

fn init(dir: &Path) -> PairingLink {
    link_of(&succeed(&["init", "--public", "relay.example.org:4433", "--public", "[2001:db8::1]:443"], dir))
}

fn link_of(printed: &str) -> PairingLink {
    let line = printed.lines().find(|line| line.starts_with("tandem://"));
    line.expect("a pairing link is printed on a line of its own").parse().unwrap()
}

#[test]
fn init_makes_private_files_and_prints_a_link_that_the_relay_takes() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("relay");
    let link = init(&dir);
    let relays: Vec<_> = link.relays.iter().map(ToString::to_string).collect();
    assert_eq!(relays, ["relay.example.org:4433", "[2001:db8::1]:443"]);

    let directory = Directory::open(&dir).unwrap();
    assert_eq!(link.pins, [directory.identity().unwrap().pin()]);
    assert_eq!(directory.config().unwrap().listen, ["[::]:4433".parse().unwrap()]);
    let now = OffsetDateTime::now_utc();
    let claims = directory.verifier().unwrap().verify(&link.token, now).unwrap();
    assert_eq!(claims.name, "first");

    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        for file in std::fs::read_dir(&dir).unwrap() {
            let path = file.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
}

#[test]
fn init_overwrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    init(dir.path());
    let before = std::fs::read(dir.path().join("identity-key.pem")).unwrap();
    let complaint = fail(&["init", "--public", "relay.example.org:4433"], dir.path());
    assert!(complaint.contains("relay.toml exists already"), "{complaint}");
    assert_eq!(std::fs::read(dir.path().join("identity-key.pem")).unwrap(), before);
}

#[test]
fn wrong_arguments_are_refused_with_what_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let complaint = fail(&["init", "--public", "relay.example.org"], dir.path());
    assert!(complaint.contains("HOST:PORT"), "{complaint}");
    let complaint = fail(&["token", "list"], dir.path());
    assert!(complaint.contains("tandem-relay init"), "{complaint}");
    init(dir.path());
    let complaint = fail(&["token", "issue", "--days", "0"], dir.path());
    assert!(complaint.contains("--days") && complaint.contains("1..=3650"), "{complaint}");
    let complaint = fail(&["token", "revoke", "--name", "nobody"], dir.path());
    assert!(complaint.contains("\"nobody\""), "{complaint}");
}

#[test]
fn a_token_is_issued_listed_and_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let first = init(dir.path());
    let link = link_of(&succeed(&["token", "issue", "--name", "Ann's phone", "--days", "7"], dir.path()));
    assert_eq!((&link.pins, &link.relays, link.name.as_str()), (&first.pins, &first.relays, "Ann's phone"));
    assert_ne!(link.token, first.token);

    let listed = |dir: &Path| -> Vec<(String, String)> {
        let json: serde_json::Value = serde_json::from_str(&succeed(&["token", "list", "--json"], dir)).unwrap();
        let text = |token: &serde_json::Value, key: &str| token[key].as_str().unwrap().to_owned();
        json.as_array().unwrap().iter().map(|token| (text(token, "name"), text(token, "state"))).collect()
    };
    let named = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    assert_eq!(listed(dir.path()), [named("first", "valid"), named("Ann's phone", "valid")]);

    let said = succeed(&["token", "revoke", "--name", "Ann's phone"], dir.path());
    assert!(said.starts_with("revoked ") && said.contains("Ann's phone"), "{said}");
    assert_eq!(listed(dir.path()), [named("first", "valid"), named("Ann's phone", "revoked")]);
    let table = succeed(&["token", "list"], dir.path());
    assert!(table.lines().any(|line| line.contains("revoked") && line.ends_with("Ann's phone")), "{table}");

    let json: serde_json::Value = serde_json::from_str(&succeed(&["token", "list", "--json"], dir.path())).unwrap();
    let id = json[0]["id"].as_str().unwrap();
    succeed(&["token", "revoke", "--id", id], dir.path());
    assert_eq!(listed(dir.path())[0], named("first", "revoked"));
    assert!(fail(&["token", "revoke", "--id", id], dir.path()).contains(id));
}
