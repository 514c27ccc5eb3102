//! What is measured, how far it is, and what stays of it.

use tandem_proto::measure::{Event, FairnessReport, FairnessRow, Kind, Progress};

use super::*;
use crate::runs::ShownReport;

fn progress(number: u32) -> Event {
    let step = "wlan0: TCP alone".to_owned();
    Event::Progress(Progress { step, number, of: 3, mbps: Some(40.0), left_s: 12.0 })
}

fn report() -> FairnessReport {
    let row = FairnessRow {
        network: "wlan0".to_owned(),
        tcp_alone_mbps: Some(40.0),
        tcp_beside_mbps: Some(20.0),
        tunnel_mbps: Some(20.0),
        problem: None,
    };
    let mode = Mode::Bicast(Sides::Both);
    let (relay, congestion) = ("home".to_owned(), "bbr3".to_owned());
    FairnessReport { relay, mode, congestion, seconds: 5, tunnel_mbps: 20.0, rows: vec![row] }
}

const FAIRNESS: Wish = Wish::Measure { what: Kind::Fairness, seconds: 5 };

/// Connected, with a measurement that is told by the sender.
async fn measuring() -> (Stand, mpsc::Sender<Event>) {
    let stand = Before::new().paired().start();
    stand.until("connected", |state| state.condition == Condition::Connected).await;
    let sender = stand.engines.measurement();
    stand.handle.wish(FAIRNESS).await.unwrap();
    (stand, sender)
}

#[tokio::test(start_paused = true)]
async fn a_measurement_tells_how_far_it_is_and_its_result_is_there_after_the_next_start() {
    let (stand, sender) = measuring().await;
    assert_eq!(stand.engines.asked(), [Request::Measure { what: Kind::Fairness, seconds: 5 }]);
    for number in 1..=3 {
        sender.send(progress(number)).await.unwrap();
        let is_told = |state: &State| {
            let progress = state.measuring.running.as_ref().and_then(|running| running.progress.as_ref());
            progress.is_some_and(|progress| progress.number == number)
        };
        stand.until("it is told how far it is", is_told).await;
    }
    sender.send(Event::Fairness(report())).await.unwrap();
    let state = stand.until("it is done", |state| state.measuring.latest == Some(1)).await;
    assert_eq!((state.measuring.running, state.measuring.problem), (None, None));
    let runs = stand.handle.runs();
    let ShownReport::Fairness(shown) = &runs[0].report else { panic!("{runs:?}") };
    assert_eq!(
        (&shown.report, shown.shares[0].utilization_percent, shown.shares[0].jain),
        (&report(), Some(50.0), Some(1.0))
    );

    stand.handle.wish(Wish::Quit).await.unwrap();
    let again = Before { files: stand.files, ..Before::new() }.start();
    let state = again.until("it is read", |state| state.measuring.latest.is_some()).await;
    assert_eq!((again.handle.runs(), state.measuring.kept_problem), (runs, None));
}

#[tokio::test(start_paused = true)]
async fn one_thing_is_measured_at_a_time_and_it_can_be_cancelled() {
    let (stand, sender) = measuring().await;
    let refusal = stand.handle.wish(FAIRNESS).await.unwrap_err();
    assert!(refusal.text.contains("running already"), "{refusal:?}");
    stand.handle.wish(Wish::CancelMeasuring).await.unwrap();
    assert!(sender.is_closed(), "the engine is told");
    let state = stand.until("nothing runs", |state| state.measuring.running.is_none()).await;
    assert_eq!((state.measuring.problem, state.measuring.latest), (None, None));
    let _sender = stand.engines.measurement();
    stand.handle.wish(FAIRNESS).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_keeps_a_measurement_from_being_done_is_said_until_the_next_one() {
    let (stand, sender) = measuring().await;
    let why = "the relay offers no measuring: its owner has switched it off, or it is of an older version";
    sender.send(Event::Failed(why.to_owned())).await.unwrap();
    stand.until("it is said", |state| state.measuring.problem.as_deref() == Some(why)).await;
    let sender = stand.engines.measurement();
    stand.handle.wish(FAIRNESS).await.unwrap();
    stand.until("it is said no more", |state| state.measuring.problem.is_none()).await;
    // As it is when the engine stops.
    drop(sender);
    let state = stand.until("it has ended", |state| state.measuring.problem.is_some()).await;
    assert!(state.measuring.running.is_none() && state.measuring.problem.unwrap().contains("stopped"));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_measured_while_tandem_is_off_and_nothing_after_it_has_quit() {
    let mut before = Before::new().paired();
    before.settings.connect_at_start = false;
    let stand = before.start();
    stand.until("off", |state| state.condition == Condition::Off).await;
    let refusal = stand.handle.wish(FAIRNESS).await.unwrap_err();
    assert_eq!(refusal.text, "Tandem is off: connect first");

    let (stand, sender) = measuring().await;
    stand.handle.wish(Wish::Quit).await.unwrap();
    assert!(sender.is_closed());
}

#[tokio::test(start_paused = true)]
async fn earlier_measurements_that_cannot_be_read_are_said_to_be_set_aside() {
    let before = Before::new().paired();
    std::fs::write(before.files.path().join("measurements.json"), "{\"version\":9}").unwrap();
    let stand = before.start();
    let state = stand.until("it is said", |state| state.measuring.kept_problem.is_some()).await;
    let problem = state.measuring.kept_problem.unwrap();
    assert!(problem.contains("version 9") && problem.contains("measurements.broken-1.json"), "{problem}");
}
