//! Why a network does not lead to the relay: a login page in between, UDP that is blocked, no way there, or nothing that can
//! be told.
//!
//! A network on which the relay is silent is looked at by TCP: a plain HTTP request goes to the relay's own address, port
//! 80, over that network alone. A captive network answers it itself, with a redirect or a page, whatever the address
//! (RFC 8952 describes such networks). No third party is asked, and nobody learns more than that this device tries to
//! reach that address, which the handshakes tell anyway; it is done only while the relay is silent there. If the relay's
//! machine runs a web server, that answers the same request over a network that works in the same way, which is compared.
//!
//! [`Suspicions`] decides when to look, and [`Finding`] what the outcome means; the shell does the looking.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::Instant;

/// Where a captive network is met: it intercepts the port of plain HTTP.
pub(super) const PORT: u16 = 80;
/// A network is looked at when the relay has been silent there for so long: joining takes a round trip.
const SILENCE: Duration = Duration::from_secs(1);
/// And again after this long, while it stays silent.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Networks remembered.
const MOST_NETWORKS: usize = 32;

/// The request: what captive networks expect of devices that look for them.
pub(super) fn request(relay: IpAddr) -> String {
    let host = match relay {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    format!(
        "GET /generate_204 HTTP/1.1\r\nHost: {host}\r\nUser-Agent: tandem\r\nAccept: */*\r\nCache-Control: no-cache\r\nConnection: close\r\n\r\n"
    )
}

/// What came back of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// An HTTP answer: its status, and where it sends the client.
    Http { status: u16, location: Option<String> },
    /// The far side is there: it refused, or spoke something else.
    Reached,
    /// The system knows no way there.
    NoRoute,
    /// Nothing.
    Silent,
}

/// What a network's trouble seems to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// It wants a login first.
    Captive,
    /// The relay's machine is there, but the relay does not answer.
    UdpBlocked,
    /// No way to the relay.
    NoRoute,
    /// Whatever is sent, nothing comes back; with what the system knows of a possible reason.
    NoAnswer(Option<String>),
}

impl Finding {
    /// Whether it says more than that nothing is heard.
    pub(super) fn tells_more_than_silence(&self) -> bool {
        *self != Finding::NoAnswer(None)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Captive => f.write_str("captive: sign in to the network"),
            Finding::UdpBlocked => f.write_str(
                "the relay's machine answers by TCP but the relay is silent: is UDP blocked on this network?",
            ),
            Finding::NoRoute => f.write_str("no route to the relay"),
            Finding::NoAnswer(None) => f.write_str("nothing comes back from the relay"),
            Finding::NoAnswer(Some(reason)) => write!(f, "nothing comes back from the relay: {reason}"),
        }
    }
}

impl Outcome {
    /// Reads what came back.
    pub(super) fn of(answer: &io::Result<Vec<u8>>) -> Self {
        match answer {
            Ok(bytes) => http(bytes).unwrap_or(Outcome::Reached),
            Err(error) => match error.kind() {
                io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => Outcome::Reached,
                io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => Outcome::NoRoute,
                _ => Outcome::Silent,
            },
        }
    }

    /// What it means; `elsewhere` is what the same request brought over a network that works, if there is one, and
    /// `obstacle` what the system knows that could keep answers away.
    pub(super) fn finding(&self, relay: IpAddr, elsewhere: Option<&Outcome>, obstacle: Option<String>) -> Finding {
        match self {
            Outcome::Http { .. } if elsewhere == Some(self) => Finding::UdpBlocked,
            // RFC 6585, section 6.
            Outcome::Http { status: 511, .. } => Finding::Captive,
            Outcome::Http { status: 300..=399, location: Some(location) } if leads_to(location, relay) => {
                Finding::UdpBlocked
            }
            Outcome::Http { status: 200..=399, .. } => Finding::Captive,
            Outcome::Http { .. } | Outcome::Reached => Finding::UdpBlocked,
            Outcome::NoRoute => Finding::NoRoute,
            Outcome::Silent => Finding::NoAnswer(obstacle),
        }
    }
}

/// Reads the head of an HTTP answer.
fn http(bytes: &[u8]) -> Option<Outcome> {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.split('\n').map(str::trim_end);
    let status = lines.next()?.strip_prefix("HTTP/")?.split(' ').nth(1)?.parse().ok()?;
    let named =
        |line: &str| line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
    let headers = lines.take_while(|line| !line.is_empty()).filter_map(named);
    let location = headers.into_iter().find(|(name, _)| name == "location").map(|(_, value)| value);
    Some(Outcome::Http { status, location })
}

/// Whether a redirect stays with the relay's own machine, as one to HTTPS does.
fn leads_to(location: &str, relay: IpAddr) -> bool {
    let Some((_, rest)) = location.split_once("://") else { return true };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.parse::<IpAddr>().is_ok_and(|host| host == relay)
}

/// One network whose relay is silent, and where on it the relay should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Silent {
    pub(super) network: String,
    pub(super) relay: SocketAddr,
}

/// Which networks are silent, since when, and what was found.
#[derive(Debug, Default)]
pub(super) struct Suspicions {
    networks: BTreeMap<String, Suspicion>,
}

#[derive(Debug)]
struct Suspicion {
    relay: SocketAddr,
    look_at: Instant,
    finding: Option<Finding>,
}

impl Suspicions {
    /// The networks on which the relay is silent now.
    pub(super) fn see(&mut self, silent: &[Silent], now: Instant) {
        self.networks.retain(|name, _| silent.iter().any(|network| network.network == *name));
        for Silent { network, relay } in silent {
            if let Some(known) = self.networks.get_mut(network) {
                known.relay = *relay;
            } else if self.networks.len() < MOST_NETWORKS {
                let suspicion = Suspicion { relay: *relay, look_at: now + SILENCE, finding: None };
                self.networks.insert(network.clone(), suspicion);
            }
        }
    }

    /// A network that is to be looked at now; each is named once until it is due again.
    pub(super) fn due(&mut self, now: Instant) -> Option<Silent> {
        let (name, due) = self.networks.iter_mut().find(|(_, network)| network.look_at <= now)?;
        due.look_at = now + LOOK_AGAIN;
        Some(Silent { network: name.clone(), relay: due.relay })
    }

    /// When the next one is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.networks.values().map(|network| network.look_at).min()
    }

    /// What a look brought; nothing if the relay was heard on that network meanwhile.
    pub(super) fn found(&mut self, network: &str, finding: Finding) {
        if let Some(known) = self.networks.get_mut(network) {
            known.finding = Some(finding);
        }
    }

    /// What may be so, until a look has told more.
    pub(super) fn suspect(&mut self, network: &str, finding: Finding) {
        if let Some(known) = self.networks.get_mut(network) {
            known.finding.get_or_insert(finding);
        }
    }

    /// What is known, by network.
    pub(super) fn findings(&self) -> BTreeMap<String, Finding> {
        let known = self.networks.iter().filter_map(|(name, known)| Some((name.clone(), known.finding.clone()?)));
        known.collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn relay() -> IpAddr {
        "192.0.2.1".parse().unwrap()
    }

    fn finding(answer: &str, elsewhere: Option<&str>) -> Finding {
        let outcome = |text: &str| Outcome::of(&Ok(text.as_bytes().to_vec()));
        outcome(answer).finding(relay(), elsewhere.map(outcome).as_ref(), None)
    }

    /// MULTI-5
    #[test]
    fn a_redirect_a_page_and_the_status_for_it_tell_a_captive_network() {
        let answers = [
            "HTTP/1.1 302 Found\r\nLocation: http://login.hotel.example/?u=1\r\n\r\n",
            "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n<html>Sign in</html>",
            "HTTP/1.1 511 Network Authentication Required\r\n\r\n",
            "HTTP/1.1 307 Temporary Redirect\nlocation:https://10.0.0.1:8443/portal\n\n",
        ];
        for answer in answers {
            assert_eq!(finding(answer, None), Finding::Captive, "{answer}");
        }
    }

    #[test]
    fn a_web_server_on_the_relays_own_machine_is_no_captive_network() {
        let page = "HTTP/1.1 200 OK\r\n\r\nWelcome";
        assert_eq!(finding(page, Some(page)), Finding::UdpBlocked);
        assert_eq!(
            finding("HTTP/1.1 301 Moved\r\nLocation: https://192.0.2.1/generate_204\r\n\r\n", None),
            Finding::UdpBlocked
        );
        assert_eq!(finding("HTTP/1.1 404 Not Found\r\n\r\n", None), Finding::UdpBlocked);
        assert_eq!(finding("SSH-2.0-OpenSSH\r\n", None), Finding::UdpBlocked);
    }

    /// MULTI-7
    #[test]
    fn an_error_of_the_system_is_told_in_words() {
        let finding = |kind: io::ErrorKind, obstacle: Option<&str>| {
            Outcome::of(&Err(kind.into())).finding(relay(), None, obstacle.map(str::to_owned)).to_string()
        };
        assert_eq!(finding(io::ErrorKind::NetworkUnreachable, None), "no route to the relay");
        assert_eq!(finding(io::ErrorKind::TimedOut, None), "nothing comes back from the relay");
        let told = finding(io::ErrorKind::TimedOut, Some("the reverse-path filter of cell0 is strict"));
        assert_eq!(told, "nothing comes back from the relay: the reverse-path filter of cell0 is strict");
        assert!(finding(io::ErrorKind::ConnectionRefused, None).contains("UDP blocked"));
    }

    #[test]
    fn a_network_is_looked_at_after_a_second_of_silence_then_seldom_and_forgotten_when_it_is_heard() {
        let start = Instant::now();
        let silent = [Silent { network: "wifi0".to_owned(), relay: SocketAddr::new(relay(), 4433) }];
        let mut suspicions = Suspicions::default();
        suspicions.see(&silent, start);
        assert_eq!(suspicions.due(start + SECOND / 2), None);
        assert_eq!(suspicions.poll_timeout(), Some(start + SECOND));
        assert_eq!(suspicions.due(start + SECOND), Some(silent[0].clone()));
        assert_eq!(suspicions.due(start + 2 * SECOND), None);
        suspicions.suspect("wifi0", Finding::NoRoute);
        suspicions.found("wifi0", Finding::Captive);
        suspicions.suspect("wifi0", Finding::NoRoute);
        suspicions.found("cell0", Finding::Captive);
        suspicions.see(&silent, start + 3 * SECOND);
        assert_eq!(suspicions.findings().into_iter().collect::<Vec<_>>(), [("wifi0".to_owned(), Finding::Captive)]);
        assert!(suspicions.due(start + 11 * SECOND).is_some());
        suspicions.see(&[], start + 12 * SECOND);
        assert!(suspicions.findings().is_empty());
        assert_eq!(suspicions.poll_timeout(), None);
    }

    proptest! {
        #[test]
        fn any_answer_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200), head in any::<bool>()) {
            let bytes = if head { [&b"HTTP/1.1 302 x\r\nLocation: "[..], &bytes].concat() } else { bytes };
            let _ = Outcome::of(&Ok(bytes)).finding(relay(), None, None);
        }
    }
}
