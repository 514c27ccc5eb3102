//! Runs that are kept, read back, set aside and shown.

use serde_json::{Value, json};
use tandem_proto::measure::{Load, SpeedRow};
use tandem_proto::mode::{Mode, Sides};
use tempfile::TempDir;

use super::*;

fn fairness(tcp_beside_mbps: f64) -> Report {
    let row = FairnessRow {
        network: "wlan0".to_owned(),
        tcp_alone_mbps: Some(40.0),
        tcp_beside_mbps: Some(tcp_beside_mbps),
        tunnel_mbps: Some(tcp_beside_mbps),
        problem: None,
    };
    let missing = FairnessRow {
        network: "wwan0".to_owned(),
        tcp_alone_mbps: None,
        tcp_beside_mbps: None,
        tunnel_mbps: Some(20.0),
        problem: Some("no TCP connection".to_owned()),
    };
    Report::Fairness(FairnessReport {
        relay: "home".to_owned(),
        mode: Mode::Bicast(Sides::Both),
        congestion: "bbr3".to_owned(),
        seconds: 10,
        tunnel_mbps: 60.0,
        rows: vec![row, missing],
    })
}

fn speed() -> Report {
    let load = Some(Load { mbps: 47.0, rtt_ms: 23.0, loss_percent: 0.5 });
    let row = SpeedRow {
        networks: vec!["wlan0".to_owned()],
        mode: Mode::Single,
        idle_rtt_ms: Some(20.0),
        down: load,
        up: None,
        problem: Some("hardly anything came through".to_owned()),
    };
    let (relay, congestion) = ("home".to_owned(), "bbr3".to_owned());
    Report::Speed(SpeedReport { relay, congestion, seconds: 8, rows: vec![row] })
}

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep").join("measurements.json");
    (directory, path)
}

#[test]
fn runs_are_kept_and_read_back_and_the_oldest_make_room() {
    let (_directory, path) = place();
    let (mut runs, problem) = Runs::load(&path);
    assert!(problem.is_none() && runs.latest().is_none());
    for number in 0..60u32 {
        runs.add(if number % 2 == 0 { speed() } else { fairness(number.into()) }, 1000 + u64::from(number)).unwrap();
    }
    let (again, problem) = Runs::load(&path);
    assert!(problem.is_none(), "{problem:?}");
    assert_eq!((again.list.len(), again.list[0].id, again.latest()), (MOST_RUNS, 11, Some(60)));
    assert_eq!(again.list, runs.list);
    assert_eq!(again.shown()[0].unix_s, 1059, "the newest comes first");
}

#[test]
fn a_file_that_cannot_be_read_is_set_aside_with_what_it_holds_and_another_is_begun() {
    let (_directory, path) = place();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let broken =
        ["[", "", "{}", "{\"version\":2,\"runs\":\"of another kind\"}", "{\"version\":1,\"runs\":[{\"id\":1}]}"];
    for (number, text) in broken.into_iter().enumerate() {
        fs::write(&path, text).unwrap();
        let (mut runs, problem) = Runs::load(&path);
        let aside = path.with_extension(format!("broken-{}.json", number + 1));
        let words = problem.unwrap().words();
        assert!(words.contains(&aside.display().to_string()), "{words}");
        assert_eq!(words.contains("version 2"), text.contains("\"version\":2"), "{words}");
        assert_eq!(fs::read_to_string(&aside).unwrap(), text, "nothing is lost");
        runs.add(speed(), 1).unwrap();
        assert_eq!(Runs::load(&path).0.latest(), Some(1));
    }
}

#[test]
fn what_can_neither_be_read_nor_set_aside_is_not_written_over() {
    let (_directory, path) = place();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "[").unwrap();
    for number in 1..=MOST_ASIDE {
        fs::write(path.with_extension(format!("broken-{number}.json")), "").unwrap();
    }
    let (mut runs, problem) = Runs::load(&path);
    assert!(matches!(problem, Some(RunsError::Stuck { .. })), "{problem:?}");
    runs.add(speed(), 1).unwrap();
    assert_eq!((runs.shown().len(), fs::read_to_string(&path).unwrap().as_str()), (1, "["));
}

#[test]
fn a_run_that_cannot_be_written_is_shown_and_says_so() {
    let (_directory, path) = place();
    let (mut runs, _) = Runs::load(&path);
    // Where the directory is to be there is a file.
    fs::write(path.parent().unwrap(), "").unwrap();
    let words = runs.add(speed(), 1).unwrap_err().words();
    assert!(words.contains("measurements.json"), "{words}");
    assert_eq!(runs.shown().len(), 1);
}

#[test]
fn what_is_shown_has_what_follows_and_what_the_paper_found() {
    let mut runs = Runs::default();
    runs.add(fairness(30.0), 7).unwrap();
    runs.add(speed(), 8).unwrap();
    let shown = serde_json::to_value(runs.shown()).unwrap();
    let fairness = &shown[1];
    assert_eq!(
        (&fairness["what"], &fairness["mode"], &fairness["bicast"]),
        (&json!("fairness"), &json!("bicast"), &json!("both"))
    );
    let share =
        |utilization_percent: Value, jain: Value| json!({ "utilization_percent": utilization_percent, "jain": jain });
    assert_eq!(fairness["shares"], json!([share(json!(75.0), json!(1.0)), share(Value::Null, Value::Null)]));
    assert_eq!(fairness["paper_kept"], json!({ "percent": 90.0, "at_least": true }));
    assert_eq!(fairness["fair_jain"], json!(0.9));
    assert_eq!((&shown[0]["what"], &shown[0]["rows"][0]["down"]["mbps"]), (&json!("speed"), &json!(47.0)));
}

#[test]
fn the_paper_has_marks_for_its_own_controllers_alone() {
    let both = Mode::Bicast(Sides::Both);
    assert_eq!(paper::kept("bbr1", Mode::Single).map(|kept| kept.percent), Some(28.6));
    assert_eq!(paper::kept("bbr3-draft", both), paper::kept("bbr3", both));
    assert_eq!(paper::kept("cubic", both), None);
}
