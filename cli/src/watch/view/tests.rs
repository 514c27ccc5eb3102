//! The view drawn into memory at several sizes, compared with what was looked at once and found good.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use tandem_proto::mode::Sides;
use tandem_proto::path::order::PathRole;
use tandem_proto::stats::{NetworkStats, PathDirection, PathStats};

use super::*;

fn snapshot() -> Snapshot {
    let path = |id, interface: &str, state, srtt_ms, rate, loss| PathStats {
        id,
        interface: interface.to_owned(),
        state,
        srtt_ms: Some(srtt_ms),
        jitter_ms: 0.8,
        mtu_bytes: 1472,
        preferred: id == 0,
        down: PathDirection {
            rate_mbps: rate,
            loss_percent: loss,
            total_loss_percent: loss / 2.0,
            queue_ms: 12.5,
            ..PathDirection::default()
        },
        up: PathDirection { rate_mbps: rate / 10.0, ..PathDirection::default() },
        ..PathStats::default()
    };
    let mut lost = path(1, "wwan0", PathState::Down, 61.2, 0.0, 100.0);
    lost.problem = Some("no answer for 300 ms".to_owned());
    let direction = |goodput_mbps, flow_bytes| {
        let mut direction =
            DirectionStats { goodput_mbps, flow_bytes, copies_skipped: 12, ..DirectionStats::default() };
        (direction.datagrams, direction.copies, direction.link_bytes) = (152_030, 140_111, flow_bytes * 2);
        direction.effective_loss_percent = 0.014;
        direction
    };
    Snapshot {
        state: SessionState::Connected,
        relay: "relay.example.org:4433".to_owned(),
        mode: Mode::Bicast(Sides::Both),
        congestion: "bbr1".to_owned(),
        uptime_s: 3725.0,
        flows_open: 3,
        flows_total: 41,
        srtt_ms: 20.4,
        cwnd_bytes: 263_000,
        phase: "startup".to_owned(),
        pacing_mbps: Some(12.34),
        up: direction(8.8, 12_000_000),
        down: direction(88.2, 1_234_567_890),
        paths: vec![path(0, "wlan0", PathState::Up, 20.1, 88.0, 1.25), lost],
        ..Snapshot::default()
    }
}

fn drawn(latest: Result<&Snapshot, &String>, width: u16, height: u16) -> String {
    let mut history = History::new(Duration::from_secs(1));
    for second in 0..40 {
        let mut then = Snapshot::default();
        then.down.goodput_mbps = 80.0 + f64::from(second % 10);
        then.up.goodput_mbps = f64::from(second % 4);
        history.push(Some(&then));
    }
    let view = View { latest, history: &history, colours: Colours(false) };
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.render(frame)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn a_wide_terminal_shows_everything() {
    insta::assert_snapshot!(drawn(Ok(&snapshot()), 140, 24));
}

#[test]
fn eighty_columns_show_what_matters() {
    insta::assert_snapshot!(drawn(Ok(&snapshot()), 80, 24));
}

#[test]
fn roles_and_reached_caps_are_shown_where_there_are_any() {
    let mut snapshot = snapshot();
    snapshot.paths[1].role = PathRole::Backup;
    let problem = Some("its cap of 500 MB a day is reached: not used until 2026-12-02".to_owned());
    snapshot.networks = vec![NetworkStats { name: "wwan1".to_owned(), problem, ..NetworkStats::default() }];
    let text = drawn(Ok(&snapshot), 100, 24);
    assert!(text.contains("ROLE") && text.contains("backup"), "{text}");
    assert!(text.contains("wwan1: its cap of 500 MB a day is reached"), "{text}");
}

#[test]
fn a_small_window_keeps_the_paths_and_their_states() {
    insta::assert_snapshot!(drawn(Ok(&snapshot()), 40, 10));
}

#[test]
fn a_client_that_cannot_connect_says_why() {
    let problem = Some("the relay does not answer: is it running, and is UDP to its port open?".to_owned());
    let snapshot = Snapshot { state: SessionState::Connecting, problem, paths: Vec::new(), ..snapshot() };
    insta::assert_snapshot!(drawn(Ok(&snapshot), 80, 8));
}

#[test]
fn a_client_that_ended_is_waited_for() {
    let problem = "no client is running (no answer at /run/user/1000/tandem/control.sock)".to_owned();
    let text = drawn(Err(&problem), 80, 8);
    assert!(text.contains("no client is running") && text.contains("q quits"), "{text}");
}

#[test]
fn no_size_is_too_small_and_no_name_too_long() {
    let mut snapshot = snapshot();
    snapshot.paths[0].interface = "a-network-with-quite-a-long-name".to_owned();
    for (width, height) in [(1, 1), (5, 3), (20, 2), (300, 100), (12, 7)] {
        drawn(Ok(&snapshot), width, height);
    }
}

#[test]
fn states_are_told_by_colour_unless_it_is_unwanted() {
    let (with, without) = (Colours(true), Colours(false));
    let styles = [PathState::Up, PathState::Joining, PathState::Down].map(|state| with.path(state).fg);
    assert_eq!(styles, [Some(Color::Green), Some(Color::Yellow), Some(Color::Red)]);
    assert_eq!(without.path(PathState::Up).fg, None);
}
