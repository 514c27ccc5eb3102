//! The doctor's findings in words.

use serde::Serialize;
use tandem_core::client::doctor::{Finding, Hint, Matter, Unused, Verdict};

use crate::show::duration;

/// A finding as a person reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Words {
    /// What it is about.
    pub(super) about: String,
    /// How that is.
    pub(super) text: String,
    /// What to do.
    pub(super) advice: Option<String>,
}

impl Words {
    fn new(about: impl Into<String>, text: impl Into<String>) -> Self {
        Self { about: about.into(), text: text.into(), advice: None }
    }

    fn advise(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }
}

/// The words for a finding.
pub(super) fn of(finding: &Finding) -> Words {
    match &finding.matter {
        Matter::Config { path } => Words::new("configuration", format!("{} is in order", path.display())),
        Matter::ConfigWrong { problem } => Words::new("configuration", problem).advise("correct the file"),
        Matter::Pairing { relays } => Words::new("pairing", format!("with {}", relays.join(", "))),
        Matter::NoPairing { problem } => Words::new("pairing", problem),
        Matter::Keychain { holds_pairing: true } => Words::new("keychain", "holds the pairing"),
        Matter::Keychain { holds_pairing: false } => Words::new("keychain", "answers, and holds no pairing"),
        Matter::NoKeychain { problem } => {
            Words::new("keychain", format!("{problem}; `tandem pair` keeps the pairing in a private file instead"))
        }
        Matter::NoEngine => Words::new("client", "not running"),
        Matter::EngineConnected { networks_up, networks } => {
            let words = Words::new("client", format!("running and connected, {networks_up} of {networks} networks up"));
            if networks_up < networks { words.advise("see `tandem paths`, and the networks below") } else { words }
        }
        Matter::EngineTrying { problem } => {
            let why = problem.as_ref().map(|problem| format!(": {problem}")).unwrap_or_default();
            Words::new("client", format!("running, not connected{why}")).advise("see below")
        }
        Matter::EngineSilent { problem } => Words::new("client", format!("does not answer: {problem}"))
            .advise("stop the process and start `tandem run` again"),
        Matter::PortFree { address } => Words::new(format!("listening on {address}"), "free"),
        Matter::PortOurs { address } => Words::new(format!("listening on {address}"), "by the running client"),
        Matter::PortTaken { address, by, pid } => {
            let who = match (by, pid) {
                (Some(name), Some(pid)) => format!("{name} (process {pid})"),
                _ => "another process".to_owned(),
            };
            Words::new(format!("listening on {address}"), format!("taken by {who}"))
                .advise("end it, or choose another port with --listen")
        }
        Matter::PortRefused { address, problem } => {
            Words::new(format!("listening on {address}"), problem).advise("choose another address with --listen")
        }
        Matter::NetworksUnknown { problem } => Words::new("networks", format!("the system does not tell: {problem}")),
        Matter::Network { interface, kind, addresses } => {
            Words::new(format!("network {interface}"), format!("{kind}, up, {}", addresses.join(", ")))
        }
        Matter::NetworkUnused { interface, kind, why } => unused(interface, kind, *why, finding.verdict),
        Matter::NetworkBarred { interface, kind, why } => {
            let words = Words::new(format!("network {interface}"), format!("{kind}, {why}"));
            match finding.verdict {
                Verdict::Ok => words,
                _ => words.advise(format!("wait, or give it another cap: tandem path set {interface} ...")),
            }
        }
        Matter::StateWrong { problem } => Words::new("networks", problem),
        Matter::NetworkMissing { interface } => Words::new(format!("network {interface}"), "there is no such network")
            .advise("correct the name in --interface or the configuration"),
        Matter::NoNetwork => Words::new("networks", "none can be used")
            .advise("connect one, or name one of the unused with --interface to use it anyway"),
        Matter::NameFound { name, addresses, took_ms } => {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            Words::new(format!("name {name}"), format!("{} ({took_ms} ms)", addresses.join(", ")))
        }
        Matter::NameNotFound { name, problem } => Words::new(format!("name {name}"), problem)
            .advise("check the machine's DNS, or pair with an address instead of a name"),
        Matter::Token { relay, expires_in_s, .. } => token(relay, *expires_in_s, finding.verdict),
        Matter::Refused { problem } => Words::new("relay", problem),
        Matter::Clock => Words::new("clock", "nothing says that it is wrong"),
        Matter::ClockWrong { ahead_s } => {
            let side = if *ahead_s > 0 { "ahead" } else { "behind" };
            let by = duration(ahead_s.unsigned_abs() as f64);
            Words::new("clock", format!("this machine's and the relay's differ: {by} {side} at least"))
                .advise("set the clock, of the relay too if this one is right")
        }
        way => of_way(way, finding.verdict),
    }
}

fn of_way(matter: &Matter, verdict: Verdict) -> Words {
    let about = |interface: &str, remote: &std::net::SocketAddr| format!("relay by {interface} at {remote}");
    match matter {
        Matter::Way { interface, remote, .. } => quality(about(interface, remote), matter, verdict),
        Matter::WayAnswers { interface, remote } => Words::new(about(interface, remote), "answers with the pinned key"),
        Matter::WayNoSocket { interface, remote, problem } => {
            Words::new(about(interface, remote), format!("no socket can be opened on this network: {problem}"))
        }
        Matter::WayNoRoute { interface, remote } => {
            let family = if remote.is_ipv4() { "IPv4" } else { "IPv6" };
            let words = Words::new(about(interface, remote), "no route by this network");
            match verdict {
                Verdict::Ok => words,
                _ => words.advise(format!("give it a gateway for {family}, or leave it out with --interface")),
            }
        }
        Matter::WaySilent { interface, remote, hint } => silent(about(interface, remote), remote.port(), *hint),
        Matter::WayWrongPin { interface, remote } => {
            Words::new(about(interface, remote), "answers with another key than the pairing's").advise(
                "pair again if the relay was set up anew; otherwise someone stands between, and must not be trusted",
            )
        }
        Matter::WayWrongProtocol { interface, remote } => {
            Words::new(about(interface, remote), "answers, but does not speak tandem/1")
                .advise("check the address, and that client and relay are of matching versions")
        }
        Matter::WayFailed { interface, remote, problem } => Words::new(about(interface, remote), problem),
        Matter::Silence { interface, remote, open_s, closed_s } => {
            let words = |text: String| Words::new(about(interface, remote), text);
            match (open_s, closed_s) {
                (None, Some(closed)) => words(format!("forgets idle connections within {closed} s")).advise(
                    "idle connections may stall there; prefer another network, or raise the UDP timeout of its router",
                ),
                (Some(open), Some(closed)) => words(format!("stays open in silence for {open} s, not for {closed} s")),
                (Some(open), None) => words(format!("stays open in silence for {open} s at least")),
                (None, None) => words("how long it stays open in silence could not be found out".to_owned()),
            }
        }
        // The others have had their words.
        _ => Words::new("finding", format!("{matter:?}")),
    }
}

fn quality(about: String, matter: &Matter, verdict: Verdict) -> Words {
    let Matter::Way {
        joined,
        rtt_ms,
        jitter_ms,
        up_datagrams,
        up_loss_percent,
        down_datagrams,
        down_loss_percent,
        packet_bytes,
        ..
    } = matter
    else {
        return Words::new(about, "");
    };
    let rtt = rtt_ms.map_or_else(|| "unknown".to_owned(), |rtt| format!("{rtt:.1} ms"));
    let text = format!(
        "works; round trip {rtt}, jitter {jitter_ms:.1} ms, lost {up_loss_percent:.0} % of {up_datagrams} up, \
         {down_loss_percent:.0} % of {down_datagrams} down, packets up to {packet_bytes} bytes"
    );
    let words = Words::new(about, text);
    match (verdict, joined) {
        (Verdict::Ok, _) => words,
        (_, false) => {
            words.advise("it did not join the session and carries no copies: something drops part of the datagrams")
        }
        (_, true) => words.advise("it loses much: `tandem mode bicast` with a second network hides that"),
    }
}

fn silent(about: String, port: u16, hint: Hint) -> Words {
    match hint {
        Hint::PortClosed => Words::new(about, format!("the machine is there, and nothing listens on UDP port {port}"))
            .advise("start tandem-relay there, or correct the port by pairing again"),
        Hint::Filtered => Words::new(about, "a firewall on the way refuses UDP to it")
            .advise(format!("open UDP port {port} there, or use another network")),
        Hint::NoUdpHere => {
            Words::new(about, "no answer; this network lets TCP through and other networks reach the relay")
                .advise("it blocks UDP: Tandem cannot use it, unless its firewall is opened for the relay")
        }
        Hint::NothingHere => Words::new(about, "no answer to anything, while other networks reach the relay")
            .advise("check that this network leads to the internet: a login page, no credit, no signal"),
        Hint::NoUdpAnywhere => Words::new(about, "no answer; its machine answers TCP").advise(format!(
            "check that tandem-relay runs and that firewalls let UDP port {port} through, there and here"
        )),
        Hint::NothingAnywhere => Words::new(about, "no answer to anything")
            .advise("check this machine's internet connection, the relay's address, and that its machine is on"),
    }
}

fn unused(interface: &str, kind: &str, why: Unused, verdict: Verdict) -> Words {
    let (text, advice) = match why {
        Unused::Down => ("not connected", "connect it"),
        Unused::NoAddress => ("without an address", "wait for one, or set it up"),
        Unused::NoFittingAddress => {
            ("without an address of a kind that the relay has", "pair with a relay that has both IPv4 and IPv6")
        }
        Unused::NotNamed => ("other networks were asked for", "name it with --interface"),
        Unused::Inside => ("leads nowhere outside", "name it with --interface to use it anyway"),
    };
    let words = Words::new(format!("network {interface}"), format!("{kind}, not used: {text}"));
    if verdict == Verdict::Ok { words } else { words.advise(advice) }
}

fn token(relay: &str, expires_in_s: u64, verdict: Verdict) -> Words {
    // The relay's words go to a terminal.
    let relay: String = relay.chars().filter(|c| !c.is_control()).collect();
    let words = Words::new("token", format!("taken by {relay}, good for {}", duration(expires_in_s as f64)));
    match verdict {
        Verdict::Ok => words,
        _ => words.advise("get a new pairing link from the relay's operator soon"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(hint: Hint) -> Matter {
        Matter::WaySilent { interface: "wlan0".to_owned(), remote: "192.0.2.1:4433".parse().unwrap(), hint }
    }

    #[test]
    fn every_reason_for_silence_has_words_of_its_own_and_something_to_do() {
        let hints = [
            Hint::PortClosed,
            Hint::Filtered,
            Hint::NoUdpHere,
            Hint::NothingHere,
            Hint::NoUdpAnywhere,
            Hint::NothingAnywhere,
        ];
        let words = hints.map(|hint| of(&Finding { verdict: Verdict::Problem, matter: way(hint) }));
        for (index, one) in words.iter().enumerate() {
            assert_eq!(one.about, "relay by wlan0 at 192.0.2.1:4433");
            assert!(one.advice.is_some() && words[..index].iter().all(|other| other.advice != one.advice), "{one:?}");
        }
    }

    #[test]
    fn what_the_relay_says_keeps_the_terminal_clean() {
        let matter = Matter::Token { relay: "evil\u{1b}[2J".to_owned(), expires_unix: 0, expires_in_s: 7200 };
        let words = of(&Finding { verdict: Verdict::Ok, matter });
        assert_eq!(words.text, "taken by evil[2J, good for 2 h 0 min");
    }

    #[test]
    fn a_way_is_described_with_its_units() {
        let matter = Matter::Way {
            interface: "wlan0".to_owned(),
            remote: "192.0.2.1:4433".parse().unwrap(),
            joined: true,
            rtt_ms: Some(20.04),
            min_rtt_ms: Some(19.0),
            jitter_ms: 0.5,
            up_datagrams: 60,
            up_loss_percent: 0.0,
            down_datagrams: 40,
            down_loss_percent: 7.5,
            mtu_bytes: 1472,
            packet_bytes: 1500,
        };
        let words = of(&Finding { verdict: Verdict::Warning, matter });
        assert_eq!(
            words.text,
            "works; round trip 20.0 ms, jitter 0.5 ms, lost 0 % of 60 up, 8 % of 40 down, packets up to 1500 bytes"
        );
        assert!(words.advice.unwrap().contains("loses much"));
    }
}
