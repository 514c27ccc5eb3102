//! Configuration files, good and bad.

use proptest::prelude::*;

use tandem_proto::networks::NetworkRole;

use super::*;

fn parse(text: &str) -> Result<Config, ConfigError> {
    Config::parse(Path::new("/etc/tandem.toml"), text)
}

fn error(text: &str) -> String {
    parse(text).unwrap_err().to_string()
}

#[test]
fn a_full_file_becomes_checked_values() {
    let config = parse(
        r#"
        version = 1
        mode = "bicast"
        bicast = "server"
        congestion = "bbr1"
        interfaces = ["wlan0", "wwan0"]
        captive_check = false
        link_file = "link"
        [proxy]
        listen = "[::1]:1081"
        user = "ann"
        password = "secret"
        [[network]]
        name = "wlan0"
        [[network]]
        name = "wwan0"
        role = "backup"
        metered = true
        cap_daily = "500 MB"
        cap_monthly = "10 GB"
        reset_day = 15
        soft_percent = 90
        [[forward]]
        listen = "127.0.0.1:8080"
        target = "example.org:80"
        [[forward]]
        listen = "127.0.0.1:8081"
        target = "[2001:db8::1]:81"
        "#,
    )
    .unwrap();
    assert_eq!(config.mode, Some(Mode::Bicast(Sides::Server)));
    assert_eq!(config.congestion, Some(Algorithm::Bbr1));
    assert_eq!(config.interfaces, ["wlan0", "wwan0"]);
    let rules = config.networks[1].1.rules();
    assert_eq!((config.networks[1].0.as_str(), rules.role, rules.metered), ("wwan0", NetworkRole::Backup, true));
    assert_eq!((rules.cap_daily, rules.cap_monthly), (Some(500_000_000), Some(10_000_000_000)));
    assert_eq!((rules.reset_day, rules.soft_percent, config.networks.len()), (15, 90, 2));
    assert_eq!(config.captive_check, Some(false));
    assert_eq!(config.link_file, Some(PathBuf::from("/etc/link")));
    assert_eq!(config.listen, Some("[::1]:1081".parse().unwrap()));
    assert_eq!(config.credentials.unwrap().user, "ann");
    let forwards: Vec<_> = config.forwards.iter().map(ToString::to_string).collect();
    assert_eq!(forwards, ["127.0.0.1:8080=example.org:80", "127.0.0.1:8081=[2001:db8::1]:81"]);
}

#[test]
fn a_file_may_say_nothing_but_its_version() {
    assert_eq!(parse("version = 1").unwrap(), Config::default());
    let alone = parse("version = 1\nbicast = \"client\"").unwrap();
    assert_eq!(alone.mode, Some(Mode::Bicast(Sides::Client)));
}

/// CONF-1
#[test]
fn a_networks_keys_are_checked_with_their_lines() {
    for (line, words) in [
        ("roll = \"use\"", "/etc/tandem.toml:4: roll is not a key in [[network]]; the nearest is role"),
        ("role = \"always\"", ":4: role is \"always\"; it must be use, backup or never"),
        ("role = 1", ":4: role is of type integer; it must be a string"),
        ("metered = \"yes\"", ":4: metered is of type string; it must be true or false"),
        ("cap_daily = \"9 MB\"", ":4: cap_daily is \"9 MB\"; it must be none, or at least 10 MB"),
        ("cap_monthly = 5", ":4: cap_monthly is of type integer"),
        ("reset_day = 32", ":4: reset_day is \"32\"; it must be a day of the month, 1 to 31"),
        ("soft_percent = 0", ":4: soft_percent is \"0\"; it must be a percentage from 1 to 100"),
        ("[[network]]\nname = \"wwan0\"", ":5: name is \"wwan0\"; it must be another interface's name"),
        ("[[network]]\nrole = \"use\"", ":4: name is missing"),
        ("[proxy]\ncap_daily = \"1 GB\"", ":5: cap_daily does not belong in [proxy]; it belongs in [[network]]"),
    ] {
        let text = error(&format!("version = 1\n[[network]]\nname = \"wwan0\"\n{line}\n"));
        assert!(text.contains(words), "{line}: {text}");
    }
}

/// CONF-1
#[test]
fn an_unknown_key_is_refused_with_file_line_key_and_the_nearest() {
    let text = error("version = 1\n\ncongestoin = \"cubic\"\n");
    assert_eq!(text, "/etc/tandem.toml:3: congestoin is not a key at the top of the file; the nearest is congestion");
    let text = error("version = 1\n[proxy]\nlistne = \"127.0.0.1:1080\"\n");
    assert_eq!(text, "/etc/tandem.toml:3: listne is not a key in [proxy]; the nearest is listen");
    let text = error("version = 1\n[[forward]]\nlisten = \"127.0.0.1:1\"\ntarget = \"a:1\"\n[[forward]]\ntagret = 1");
    assert_eq!(text, "/etc/tandem.toml:6: tagret is not a key in [[forward]]; the nearest is target");
    let text = error("version = 1\n[prox]\nlisten = \"127.0.0.1:1080\"\n");
    assert_eq!(text, "/etc/tandem.toml:2: prox is not a key at the top of the file; the nearest is proxy");
}

/// CONF-1
#[test]
fn a_misplaced_key_is_refused_with_the_place_where_it_belongs() {
    let text = error("version = 1\nlisten = \"127.0.0.1:1080\"\n");
    let expected = "listen does not belong at the top of the file; it belongs in [proxy] or in [[forward]]";
    assert_eq!(text, format!("/etc/tandem.toml:2: {expected}"));
    let text = error("version = 1\n[proxy]\nuser = \"a\"\nmode = \"single\"\n");
    assert_eq!(text, "/etc/tandem.toml:4: mode does not belong in [proxy]; it belongs at the top of the file");
}

/// CONF-1
#[test]
fn a_wrong_value_is_refused_with_its_line_and_what_is_allowed() {
    for (text, expected) in [
        ("version = 2", ":1: version must be 1"),
        ("mode = \"single\"", ":1: version is missing: write version = 1"),
        ("version = \"1\"", ":1: version is of type string; it must be 1"),
        ("version = 1\nmode = \"both\"", ":2: mode must be \"single\" or \"bicast\""),
        ("version = 1\nmode = \"single\"\nbicast = \"both\"", ":3: bicast needs mode = \"bicast\""),
        ("version = 1\nmode = \"bicast\"\nbicast = \"up\"", ":3: bicast is wrong: bicast side \"up\" is unknown"),
        ("version = 1\ncongestion = \"bbr\"", ":2: congestion is wrong: congestion controller \"bbr\" is unknown"),
        ("version = 1\ncaptive_check = 1", ":2: captive_check is of type integer; it must be true or false"),
        ("version = 1\ninterfaces = \"wlan0\"", ":2: interfaces is of type string; it must be a list of strings"),
        ("version = 1\nproxy = 3", ":2: proxy must be a table, written [proxy]"),
        ("version = 1\n[forward]\nlisten = \"127.0.0.1:1\"", ":2: forward must be a list of tables"),
        ("version = 1\n[proxy]\nlisten = \"1080\"", ":3: listen is \"1080\"; it must be an address and a port"),
        ("version = 1\n[proxy]\nuser = \"ann\"", ":3: user needs a password"),
        ("version = 1\n[proxy]\nuser = \"a:b\"\npassword = \"c\"", ":3: user must have no colon"),
        ("version = 1\n[[forward]]\nlisten = \"127.0.0.1:1\"", ":2: target is missing"),
        ("version = 1\nmode = \n", ":2: "),
    ] {
        let found = error(text);
        assert!(found.starts_with("/etc/tandem.toml") && found.contains(expected), "{text:?} gave {found:?}");
    }
}

/// SEC-5
#[test]
fn a_password_is_not_shown() {
    let text = "version = 1\n[proxy]\nuser = \"ann\"\npassword = \"hunter2\"\n";
    assert!(!format!("{:?}", parse(text).unwrap()).contains("hunter2"));
    let too_long = format!("version = 1\n[proxy]\nuser = \"ann\"\npassword = \"{}\"\n", "hunter2".repeat(99));
    assert!(!error(&too_long).contains("hunter2"));
}

/// Lines of which files are made: right ones, slips, and TOML's own punctuation.
fn line() -> impl Strategy<Value = String> {
    let key = prop_oneof![
        Just("version"),
        Just("mode"),
        Just("bicast"),
        Just("congestion"),
        Just("interfaces"),
        Just("captive_check"),
        Just("link_file"),
        Just("proxy"),
        Just("forward"),
        Just("listen"),
        Just("user"),
        Just("password"),
        Just("target"),
        Just("x.y"),
    ];
    let value = prop_oneof![
        Just("1".to_owned()),
        Just("\"single\"".to_owned()),
        Just("\"bicast\"".to_owned()),
        Just("\"127.0.0.1:1\"".to_owned()),
        Just("[\"a\", 2]".to_owned()),
        Just("{ listen = 3 }".to_owned()),
        Just("1979-05-27".to_owned()),
        Just("\"\"\"".to_owned()),
        "\"\\PC{0,300}\"",
        "\\PC{0,20}",
    ];
    prop_oneof![
        6 => (key, value).prop_map(|(key, value)| format!("{key} = {value}")),
        1 => Just("[proxy]".to_owned()),
        1 => Just("[[forward]]".to_owned()),
        1 => "\\PC{0,40}",
    ]
}

proptest! {
    /// CONF-1: whatever the file holds, it is taken or refused with the file's name and a line.
    #[test]
    fn any_text_is_taken_or_refused_with_file_and_line(lines in prop::collection::vec(line(), 0..12), first: bool) {
        let head = if first { "version = 1\n" } else { "" };
        let text = format!("{head}{}", lines.join("\n"));
        if let Err(error) = parse(&text) {
            let found = error.to_string();
            let rest = found.strip_prefix("/etc/tandem.toml:").unwrap_or_else(|| panic!("{found}"));
            let line: usize = rest.split(':').next().unwrap().parse().unwrap_or_else(|_| panic!("{found}"));
            prop_assert!((1..=text.split('\n').count()).contains(&line), "{found}");
        }
    }
}
