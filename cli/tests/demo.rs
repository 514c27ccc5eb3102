//! `tandem demo` as a user starts it: a second for each run, on this machine alone.

use assert_cmd::Command;
use serde_json::Value;

/// The whole demo, relay and all, is waited for at most this long.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem"));
    command.arg("demo").args(arguments).timeout(PATIENCE);
    command
}

#[test]
fn every_run_moves_bytes_and_only_bicast_sends_copies() {
    let output = demo(&["--seconds", "1", "--loss", "2", "--json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let runs = report["runs"].as_array().unwrap();
    let names: Vec<_> =
        runs.iter().map(|run| (run["congestion"].as_str().unwrap(), run["scheme"].as_str().unwrap())).collect();
    let both = |congestion| [(congestion, "unicast"), (congestion, "bidirectional")];
    assert_eq!(names, [both("cubic"), both("bbr3")].concat());
    for run in runs {
        assert_eq!(run.as_object().unwrap().len(), 7, "{run}");
        assert_eq!(run["loss_percent"], 2);
        assert!(run["goodput_mbps"].as_f64().unwrap() > 0.0, "{run}");
        let (copies, link_bytes) = (run["copies"].as_u64().unwrap(), run["link_bytes"].as_f64().unwrap());
        assert_eq!(copies > 0, run["scheme"] == "bidirectional", "{run}");
        // What arrived was sent.
        assert!(link_bytes > run["goodput_mbps"].as_f64().unwrap() * 1e6 / 8.0, "{run}");
        assert!((0.0..50.0).contains(&run["effective_loss_percent"].as_f64().unwrap()), "{run}");
    }
}

#[test]
fn people_get_a_table_and_a_chart_without_colour_codes_in_a_pipe() {
    let output =
        demo(&["--seconds", "1", "--loss", "0", "--scheme", "client", "--congestion", "newreno"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("newreno    client")).count(), 2, "{text}");
    assert!(text.contains('█') && !text.contains('\x1b'), "{text}");
    let progress = String::from_utf8(output.stderr).unwrap();
    assert!(progress.contains("\n1/1  newreno client"), "{progress}");
}

#[test]
fn a_wrong_flag_is_refused_with_what_was_found_and_what_is_allowed() {
    for (arguments, expected) in [
        (["--loss", "120"], "invalid value '120' for '--loss <PERCENT>': a percentage from 0 to 90 is allowed"),
        (["--loss", "NaN"], "invalid value 'NaN' for '--loss <PERCENT>': a percentage from 0 to 90 is allowed"),
        (["--seconds", "0"], "invalid value '0' for '--seconds <SECONDS>': 0 is not in 1..=120"),
        (
            ["--congestion", "bbr9"],
            "congestion controller \"bbr9\" is unknown: bbr3, bbr3-draft, cubic, newreno, bbr1, bbr2 or bbr-cws",
        ),
    ] {
        let output = demo(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(expected), "{text}");
    }
}
