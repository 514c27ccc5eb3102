//! One line of how a client stands, for logs and pipes.

use std::fmt::Write as _;
use std::time::Duration;

use tandem_proto::stats::{SessionState, Snapshot};

use crate::show::state_word;

/// The line for a snapshot taken `elapsed` after the watching began.
pub(super) fn of(snapshot: &Snapshot, elapsed: Duration) -> String {
    let mut text = format!("{:8.1} s", elapsed.as_secs_f64());
    match snapshot.state {
        SessionState::Connected => {
            let (down, up) = (&snapshot.down, &snapshot.up);
            let _ = write!(
                text,
                "  down {:.1} Mbit/s, lost {:.2} %; up {:.1} Mbit/s, lost {:.2} %",
                down.goodput_mbps, down.effective_loss_percent, up.goodput_mbps, up.effective_loss_percent
            );
        }
        SessionState::Connecting => text.push_str("  connecting"),
        SessionState::Stopped => text.push_str("  stopped"),
    }
    if let Some(problem) = &snapshot.problem {
        let _ = write!(text, ": {problem}");
    }
    for path in &snapshot.paths {
        let _ = write!(text, " | {} {}", path.interface, state_word(path.state));
        if let Some(rtt) = path.srtt_ms {
            let _ = write!(text, " {rtt:.1} ms");
        }
        let _ = write!(
            text,
            ", down {:.1} Mbit/s, lost {:.1} %, up {:.1} Mbit/s, lost {:.1} %",
            path.down.rate_mbps, path.down.loss_percent, path.up.rate_mbps, path.up.loss_percent
        );
        if let Some(problem) = &path.problem {
            let _ = write!(text, ", {problem}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use tandem_proto::stats::{PathState, PathStats};

    use super::*;

    #[test]
    fn a_line_tells_rates_losses_and_every_path() {
        let path = PathStats {
            interface: "wlan0".to_owned(),
            state: PathState::Up,
            srtt_ms: Some(20.04),
            problem: Some("cannot send".to_owned()),
            ..PathStats::default()
        };
        let mut snapshot = Snapshot { state: SessionState::Connected, paths: vec![path], ..Snapshot::default() };
        snapshot.down.goodput_mbps = 88.26;
        assert_eq!(
            of(&snapshot, Duration::from_millis(1500)),
            "     1.5 s  down 88.3 Mbit/s, lost 0.00 %; up 0.0 Mbit/s, lost 0.00 % | wlan0 up 20.0 ms, down 0.0 Mbit/s, \
             lost 0.0 %, up 0.0 Mbit/s, lost 0.0 %, cannot send"
        );
    }

    #[test]
    fn a_client_without_a_session_says_why() {
        let problem = Some("the relay does not answer".to_owned());
        let snapshot = Snapshot { state: SessionState::Connecting, problem, ..Snapshot::default() };
        assert_eq!(of(&snapshot, Duration::ZERO), "     0.0 s  connecting: the relay does not answer");
    }
}
