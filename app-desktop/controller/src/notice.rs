//! Which events of the engine are worth a notification, and what it says.

use tandem_proto::events::Event;

use crate::words::words;

/// A notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// A few words.
    pub title: String,
    /// A line; may be empty.
    pub body: String,
}

/// What is said of an event; `None` where the window says enough.
pub fn of(event: &Event) -> Option<Notice> {
    let words = words();
    let name = |text: &str, network: &str| text.replace("{network}", network);
    let or = |problem: &Option<String>, text: &str| problem.clone().unwrap_or_else(|| text.to_owned());
    let (title, body) = match event {
        Event::Connected { relay } => {
            (words.notice_connected.clone(), words.notice_connected_body.replace("{relay}", relay))
        }
        Event::Disconnected { problem } => (words.notice_disconnected.clone(), or(problem, "")),
        // It follows a disconnection that was told, or changes nothing for the user.
        Event::Problem { .. } | Event::RelayChanged { .. } | Event::AddressChanged { .. } => return None,
        Event::Lost { network, problem } => (name(&words.notice_lost, network), or(problem, &words.notice_lost_body)),
        Event::Back { network } => (name(&words.notice_back, network), String::new()),
        Event::CapNear { network } => (name(&words.notice_cap_near, network), words.notice_cap_near_body.clone()),
        Event::CapReached { network, problem } => {
            (name(&words.notice_cap_reached, network), or(problem, &words.notice_cap_reached_body))
        }
        Event::CapFree { network } => (name(&words.notice_cap_free, network), String::new()),
    };
    Some(Notice { title, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_network_and_a_cap_are_told_by_name_and_with_the_reason() {
        let network = || "wwan0".to_owned();
        let lost = of(&Event::Lost { network: network(), problem: Some("silent".to_owned()) }).unwrap();
        assert_eq!((lost.title.as_str(), lost.body.as_str()), ("wwan0 is lost", "silent"));
        let lost = of(&Event::Lost { network: network(), problem: None }).unwrap();
        assert_eq!(lost.body, "Traffic goes on over the other networks.");
        let cap = of(&Event::CapNear { network: network() }).unwrap();
        assert_eq!(cap.title, "wwan0 is near its cap");
        assert_eq!(of(&Event::Problem { problem: "still".to_owned() }), None);
    }
}
