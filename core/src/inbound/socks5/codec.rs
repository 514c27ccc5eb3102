//! The server's side of a SOCKS5 handshake (RFC 1928, RFC 1929), without I/O.
//!
//! A [`Handshake`] says how many bytes it wants next and answers, once it has them, with an [`Event`]: bytes to send, the
//! target to connect to, or a last reply before closing. It never takes a byte beyond the request, so what an eager client
//! sends behind it stays in the socket and belongs to the flow. Segments may be cut anywhere.
//!
//! Names are handed on unresolved. Only CONNECT is served; BIND and UDP ASSOCIATE are answered with "command not
//! supported".

use std::net::{Ipv4Addr, Ipv6Addr};

use tandem_proto::guesses::Verdict;
use tandem_proto::wire::flow::{Host, OpenError, Target};

use crate::dial::DialError;
use crate::inbound::Check;

const VERSION: u8 = 5;
const METHOD_NONE: u8 = 0;
const METHOD_PASSWORD: u8 = 2;
const METHOD_UNACCEPTABLE: u8 = 0xff;
/// Version of the username/password exchange (RFC 1929 section 2).
const PASSWORD_VERSION: u8 = 1;
const COMMAND_CONNECT: u8 = 1;
const ADDRESS_IPV4: u8 = 1;
const ADDRESS_NAME: u8 = 3;
const ADDRESS_IPV6: u8 = 4;

/// Bytes of the longest message, a username and password of 255 bytes each.
pub(super) const MAX_MESSAGE: usize = 3 + 255 + 255;

/// The reply codes of RFC 1928 section 6 that are used here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Reply {
    Succeeded = 0,
    GeneralFailure = 1,
    NotAllowed = 2,
    NetworkUnreachable = 3,
    HostUnreachable = 4,
    ConnectionRefused = 5,
    TtlExpired = 6,
    CommandNotSupported = 7,
    AddressTypeNotSupported = 8,
}

impl Reply {
    /// The reply as sent. The bound address is left unspecified: it is the relay's, and of no use to the client.
    pub(super) fn bytes(self) -> [u8; 10] {
        [VERSION, self as u8, 0, ADDRESS_IPV4, 0, 0, 0, 0, 0, 0]
    }
}

impl From<&DialError> for Reply {
    fn from(error: &DialError) -> Self {
        match error {
            DialError::Open(OpenError::Refused) => Reply::ConnectionRefused,
            DialError::Open(OpenError::NoRoute) => Reply::NetworkUnreachable,
            DialError::Open(OpenError::NameNotFound) => Reply::HostUnreachable,
            DialError::Open(OpenError::TimedOut) => Reply::TtlExpired,
            DialError::Open(OpenError::Forbidden) => Reply::NotAllowed,
            DialError::Open(OpenError::Limit | OpenError::Internal) | DialError::NotConnected => Reply::GeneralFailure,
        }
    }
}

/// What a handshake wants done after a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// Send these two bytes and go on.
    Send([u8; 2]),
    /// The request is whole and good; the handshake is over, the reply is the caller's.
    Connect(Target),
    /// Send these bytes, then close.
    Refuse(Refusal),
}

/// The last words to a client that is turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Not SOCKS5 at all: nothing it would understand can be said.
    Silent,
    /// Method or password refused.
    Short([u8; 2]),
    /// The request cannot be served.
    Reply(Reply),
}

/// Where a handshake stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    Password,
    Request,
}

/// One client's handshake.
pub(super) struct Handshake<'a> {
    check: Option<Check<'a>>,
    phase: Phase,
    message: [u8; MAX_MESSAGE],
    length: usize,
}

impl<'a> Handshake<'a> {
    /// Starts a handshake; where there is a check, every client must pass it.
    pub(super) fn new(check: Option<Check<'a>>) -> Self {
        Self { check, phase: Phase::Greeting, message: [0; MAX_MESSAGE], length: 0 }
    }

    /// Where the next bytes go: exactly as many as may be read now, at least one.
    pub(super) fn space(&mut self) -> &mut [u8] {
        let wanted = self.wanted();
        &mut self.message[self.length..wanted]
    }

    /// Takes note that `length` bytes were read into [`Handshake::space`].
    pub(super) fn handle_read(&mut self, length: usize) -> Option<Event> {
        self.length = (self.length + length).min(self.wanted());
        if let Some(refusal) = self.early_refusal() {
            return Some(Event::Refuse(refusal));
        }
        if self.length < self.wanted() {
            return None;
        }
        let message = &self.message[..self.length];
        let event = match self.phase {
            Phase::Greeting => self.choose_method(&message[2..]),
            Phase::Password => self.check_password(message),
            Phase::Request => return Some(read_request(message)),
        };
        self.phase = match event {
            Event::Send([VERSION, METHOD_PASSWORD]) => Phase::Password,
            _ => Phase::Request,
        };
        self.length = 0;
        Some(event)
    }

    /// The whole length of the message under way as far as its first bytes tell.
    fn wanted(&self) -> usize {
        let byte = |place: usize| (place < self.length).then(|| usize::from(self.message[place]));
        match self.phase {
            Phase::Greeting => byte(1).map_or(2, |methods| 2 + methods),
            Phase::Password => match byte(1) {
                None => 2,
                Some(user) => byte(2 + user).map_or(3 + user, |password| 3 + user + password),
            },
            Phase::Request => match (byte(3), byte(4)) {
                (Some(address), Some(name)) => match address as u8 {
                    ADDRESS_IPV4 => 10,
                    ADDRESS_IPV6 => 22,
                    ADDRESS_NAME => 7 + name,
                    _ => 5,
                },
                _ => 5,
            },
        }
    }

    /// A refusal that the bytes so far already justify.
    fn early_refusal(&self) -> Option<Refusal> {
        let message = &self.message[..self.length];
        match (self.phase, message) {
            (Phase::Greeting | Phase::Request, [version, ..]) if *version != VERSION => Some(Refusal::Silent),
            (Phase::Password, [version, ..]) if *version != PASSWORD_VERSION => Some(Refusal::Silent),
            (Phase::Request, [_, _, _, address, ..])
                if ![ADDRESS_IPV4, ADDRESS_NAME, ADDRESS_IPV6].contains(address) =>
            {
                Some(Refusal::Reply(Reply::AddressTypeNotSupported))
            }
            _ => None,
        }
    }

    fn choose_method(&self, offered: &[u8]) -> Event {
        let wanted = if self.check.is_some() { METHOD_PASSWORD } else { METHOD_NONE };
        if offered.contains(&wanted) {
            Event::Send([VERSION, wanted])
        } else {
            Event::Refuse(Refusal::Short([VERSION, METHOD_UNACCEPTABLE]))
        }
    }

    fn check_password(&self, message: &[u8]) -> Event {
        let user_end = 2 + usize::from(message[1]);
        let (user, password) = (&message[2..user_end], &message[user_end + 1..]);
        match self.check {
            Some(check) if check(user, password) == Verdict::Right => Event::Send([PASSWORD_VERSION, 0]),
            _ => Event::Refuse(Refusal::Short([PASSWORD_VERSION, 1])),
        }
    }
}

fn read_request(message: &[u8]) -> Event {
    let refuse = |reply| Event::Refuse(Refusal::Reply(reply));
    if message[1] != COMMAND_CONNECT {
        return refuse(Reply::CommandNotSupported);
    }
    let (address, port) = message[4..].split_at(message.len() - 6);
    let port = u16::from_be_bytes([port[0], port[1]]);
    let host = match message[3] {
        ADDRESS_IPV4 => <[u8; 4]>::try_from(address).ok().map(|octets| Host::Ip(Ipv4Addr::from(octets).into())),
        ADDRESS_IPV6 => <[u8; 16]>::try_from(address).ok().map(|octets| Host::Ip(Ipv6Addr::from(octets).into())),
        // An address spelled as a name is an address; a name that cannot exist is one that does not resolve.
        _ => std::str::from_utf8(&address[1..]).ok().and_then(|name| name.parse().ok()),
    };
    match host {
        None => refuse(Reply::HostUnreachable),
        Some(_) if port == 0 => refuse(Reply::GeneralFailure),
        Some(host) => Event::Connect(Target { host, port }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::inbound::credentials::example_check;

    const REQUEST: &[u8] = b"\x05\x01\x00\x03\x0bexample.org\x01\xbb";

    /// Feeds `input` in pieces of at most `piece` bytes; answers with the events and the bytes left over.
    fn run<'i>(check: Option<Check<'_>>, mut input: &'i [u8], piece: usize) -> (Vec<Event>, &'i [u8]) {
        let mut handshake = Handshake::new(check);
        let mut events = Vec::new();
        while !input.is_empty() {
            let space = handshake.space();
            assert!(!space.is_empty());
            let length = space.len().min(piece).min(input.len());
            space[..length].copy_from_slice(&input[..length]);
            input = &input[length..];
            let event = handshake.handle_read(length);
            let last = matches!(event, Some(Event::Connect(_) | Event::Refuse(_)));
            events.extend(event);
            if last {
                break;
            }
        }
        (events, input)
    }

    fn example() -> Event {
        Event::Connect(Target { host: Host::Name("example.org".to_owned()), port: 443 })
    }

    /// SOCKS-1
    #[test]
    fn any_cut_of_the_segments_gives_the_same_events_and_leaves_the_data_alone() {
        let input = [b"\x05\x01\x00", REQUEST, b"early data"].concat();
        let whole = run(None, &input, usize::MAX);
        assert_eq!(whole, (vec![Event::Send([5, 0]), example()], &b"early data"[..]));
        for piece in 1..20 {
            assert_eq!(run(None, &input, piece), whole);
        }
    }

    /// SOCKS-2
    #[test]
    fn methods_are_chosen_by_whether_a_password_is_set() {
        let refused = Event::Refuse(Refusal::Short([5, 0xff]));
        assert_eq!(run(None, b"\x05\x01\x02", 9).0, std::slice::from_ref(&refused));
        assert_eq!(run(None, b"\x05\x02\x00\x02", 9).0, [Event::Send([5, 0])]);
        assert_eq!(run(None, b"\x05\x00", 9).0, std::slice::from_ref(&refused));
        assert_eq!(run(Some(&example_check), b"\x05\x01\x00", 9).0, [refused]);
        let ten = b"\x05\x0a\x00\x01\x03\x04\x05\x06\x07\x08\x09\x02";
        assert_eq!(run(Some(&example_check), ten, 99).0, [Event::Send([5, 2])]);
    }

    #[test]
    fn only_the_right_password_leads_to_the_request() {
        let login =
            |password: &[u8]| [b"\x05\x01\x02\x01\x03ann", &[password.len() as u8][..], password, REQUEST].concat();
        let good = run(Some(&example_check), &login(b"secret"), 1).0;
        assert_eq!(good, [Event::Send([5, 2]), Event::Send([1, 0]), example()]);
        for wrong in [&b"Secret"[..], b"", b"secret1", &[0xff; 255]] {
            let events = run(Some(&example_check), &login(wrong), 7).0;
            assert_eq!(events, [Event::Send([5, 2]), Event::Refuse(Refusal::Short([1, 1]))]);
        }
    }

    #[test]
    fn addresses_and_names_become_targets() {
        let ask = |request: &[u8]| run(None, &[b"\x05\x01\x00", request].concat(), 99).0.pop().unwrap();
        let target = |text: &str| Event::Connect(text.parse().unwrap());
        assert_eq!(ask(b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50"), target("192.0.2.1:80"));
        let v6 = b"\x05\x01\x00\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50";
        assert_eq!(ask(v6), target("[2001:db8::1]:80"));
        assert_eq!(ask(b"\x05\x01\x00\x03\x09192.0.2.1\x00\x50"), target("192.0.2.1:80"));
    }

    #[test]
    fn what_cannot_be_served_gets_its_reply() {
        let ask = |request: &[u8]| run(None, &[b"\x05\x01\x00", request].concat(), 99).0.pop().unwrap();
        let reply = |reply| Event::Refuse(Refusal::Reply(reply));
        for command in [0, 2, 3, 9] {
            let request = [5, command, 0, 1, 0, 0, 0, 0, 0, 0];
            assert_eq!(ask(&request), reply(Reply::CommandNotSupported));
        }
        assert_eq!(ask(b"\x05\x01\x00\x02"), reply(Reply::AddressTypeNotSupported));
        assert_eq!(ask(b"\x05\x01\x00\x03\x00\x00\x50"), reply(Reply::HostUnreachable));
        assert_eq!(ask(b"\x05\x01\x00\x03\x03a b\x00\x50"), reply(Reply::HostUnreachable));
        assert_eq!(ask(b"\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x00"), reply(Reply::GeneralFailure));
        for other in [&b"GET / HTTP/1.1\r\n"[..], b"\x04\x01\x00\x50"] {
            assert_eq!(run(None, other, 1).0, [Event::Refuse(Refusal::Silent)]);
        }
    }

    /// SOCKS-6
    #[test]
    fn every_failure_has_the_reply_code_that_tells_it() {
        let reply = |error: OpenError| Reply::from(&DialError::Open(error)) as u8;
        assert_eq!(reply(OpenError::Refused), 5);
        assert_eq!(reply(OpenError::NoRoute), 3);
        assert_eq!(reply(OpenError::NameNotFound), 4);
        assert_eq!(reply(OpenError::TimedOut), 6);
        assert_eq!(reply(OpenError::Forbidden), 2);
        assert_eq!(reply(OpenError::Limit), 1);
        assert_eq!(Reply::from(&DialError::NotConnected) as u8, 1);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_end_in_the_same_events(
            input in prop::collection::vec(prop_oneof![Just(5u8), Just(1), Just(0), Just(3), any::<u8>()], 0..600),
            piece in 1usize..40,
            password: bool,
        ) {
            let check = password.then_some(&example_check as Check<'_>);
            let (events, rest) = run(check, &input, piece);
            let (expected, expected_rest) = run(check, &input, usize::MAX);
            if matches!(events.last(), Some(Event::Connect(_))) {
                prop_assert_eq!(rest, expected_rest);
            }
            prop_assert_eq!(events, expected);
        }
    }
}
