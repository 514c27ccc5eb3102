//! How a flow opens: the client's request and the relay's answer (`docs/PROTOCOL.md`, "Flows" and "Measuring").
//!
//! A request's first [`REQUEST_HEAD`] bytes tell how long it is, so that a reader can take exactly the request off the
//! stream and leave the flow's own bytes where they are. An answer is one byte.

use std::net::IpAddr;

use super::bytes::Reader;
use super::measure::{KIND_MEASURE, Measure};
use super::{DecodeError, Host, OpenError, Target};

/// Bytes of a request from which [`request_length`] tells its whole length.
pub const REQUEST_HEAD: usize = 5;

const KIND_TCP: u8 = 1;
const HOST_NAME: u8 = 1;
const HOST_IPV4: u8 = 4;
const HOST_IPV6: u8 = 6;

/// What the client wants of a new stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A TCP flow to a target.
    Tcp(Target),
    /// The measuring service of the relay itself.
    Measure(Measure),
}

/// Appends the request for a TCP flow to `target`.
///
/// # Errors
/// [`DecodeError`] for a target that the far side would refuse: port 0, or a name that [`Host`]'s parser would not take.
pub fn encode_request(target: &Target, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    check_port(target.port)?;
    let mut head = |host_kind: u8, host: &[u8]| {
        let length = u8::try_from(host.len()).expect("a checked name and an address fit one length byte");
        out.extend_from_slice(&[KIND_TCP, host_kind, length]);
        out.extend_from_slice(&target.port.to_be_bytes());
        out.extend_from_slice(host);
    };
    match &target.host {
        Host::Name(name) if Host::is_possible_name(name.as_bytes()) => head(HOST_NAME, name.as_bytes()),
        Host::Name(_) => return Err(WRONG_NAME),
        Host::Ip(IpAddr::V4(ip)) => head(HOST_IPV4, &ip.octets()),
        Host::Ip(IpAddr::V6(ip)) => head(HOST_IPV6, &ip.octets()),
    }
    Ok(())
}

/// The whole length of a request, in bytes, from its head.
///
/// # Errors
/// [`DecodeError`] for a kind of flow or host that this version does not know; nothing is known of the rest then.
pub fn request_length(head: &[u8; REQUEST_HEAD]) -> Result<usize, DecodeError> {
    let [kind, host_kind, length, ..] = *head;
    match kind {
        KIND_TCP => {}
        KIND_MEASURE => return Measure::decode(*head).map(|_| REQUEST_HEAD),
        other => {
            let allowed = "1 (TCP), 2 (measure)";
            return Err(DecodeError::Value { field: "flow kind", found: other.into(), allowed });
        }
    }
    let (right, allowed) = match host_kind {
        HOST_NAME => (length >= 1, "1 to 255 for a name"),
        HOST_IPV4 => (length == 4, "4 for an IPv4 address"),
        HOST_IPV6 => (length == 16, "16 for an IPv6 address"),
        other => {
            let allowed = "1 (name), 4 (IPv4), 6 (IPv6)";
            return Err(DecodeError::Value { field: "host kind", found: other.into(), allowed });
        }
    };
    if !right {
        return Err(DecodeError::Value { field: "host length", found: length.into(), allowed });
    }
    Ok(REQUEST_HEAD + usize::from(length))
}

/// Reads a request off the front of `bytes`; answers with it and its length, or `None` while it is not whole.
///
/// # Errors
/// [`DecodeError`] for anything that is no request of this version; the flow is to be answered with
/// [`OpenError::Internal`].
pub fn decode_request(bytes: &[u8]) -> Result<Option<(Request, usize)>, DecodeError> {
    let Some(head) = bytes.first_chunk::<REQUEST_HEAD>() else {
        return Ok(None);
    };
    let length = request_length(head)?;
    let Some(request) = bytes.get(..length) else {
        return Ok(None);
    };
    if head[0] == KIND_MEASURE {
        return Ok(Some((Request::Measure(Measure::decode(*head)?), length)));
    }
    let [_, host_kind, _, port @ ..] = *head;
    let port = u16::from_be_bytes(port);
    check_port(port)?;
    let mut host = Reader::new(&request[REQUEST_HEAD..]);
    let host = match host_kind {
        HOST_IPV4 => Host::Ip(host.array::<4>("IPv4 address")?.into()),
        HOST_IPV6 => Host::Ip(host.array::<16>("IPv6 address")?.into()),
        _ => {
            let name = &request[REQUEST_HEAD..];
            if !Host::is_possible_name(name) {
                return Err(WRONG_NAME);
            }
            Host::Name(String::from_utf8(name.to_vec()).map_err(|_| WRONG_NAME)?)
        }
    };
    Ok(Some((Request::Tcp(Target { host, port }), length)))
}

const WRONG_NAME: DecodeError =
    DecodeError::Text { field: "host name", allowed: "1 to 255 printable ASCII characters other than []:/@," };

fn check_port(port: u16) -> Result<(), DecodeError> {
    match port {
        0 => Err(DecodeError::Value { field: "port", found: 0, allowed: "1 to 65535" }),
        _ => Ok(()),
    }
}

/// The relay's answer as its one byte.
pub fn encode_answer(answer: Result<(), OpenError>) -> u8 {
    match answer {
        Ok(()) => 0,
        Err(OpenError::Refused) => 1,
        Err(OpenError::NoRoute) => 2,
        Err(OpenError::NameNotFound) => 3,
        Err(OpenError::TimedOut) => 4,
        Err(OpenError::Forbidden) => 5,
        Err(OpenError::Limit) => 6,
        Err(OpenError::Internal) => 255,
    }
}

/// What the relay answered. A number that this version does not know is a failure of a kind that it does not know, which
/// is [`OpenError::Internal`].
///
/// # Errors
/// The relay's reason for not connecting the flow.
pub fn decode_answer(byte: u8) -> Result<(), OpenError> {
    match byte {
        0 => Ok(()),
        1 => Err(OpenError::Refused),
        2 => Err(OpenError::NoRoute),
        3 => Err(OpenError::NameNotFound),
        4 => Err(OpenError::TimedOut),
        5 => Err(OpenError::Forbidden),
        6 => Err(OpenError::Limit),
        _ => Err(OpenError::Internal),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn targets() -> impl Strategy<Value = Target> {
        let host = prop_oneof![
            "[a-zA-Z0-9._-]{1,255}".prop_map(Host::Name),
            any::<[u8; 4]>().prop_map(|octets| Host::Ip(octets.into())),
            any::<[u8; 16]>().prop_map(|octets| Host::Ip(octets.into())),
        ];
        (host, 1..=u16::MAX).prop_map(|(host, port)| Target { host, port })
    }

    proptest! {
        #[test]
        fn a_request_reads_back_and_leaves_the_flows_bytes(target in targets(), rest in prop::collection::vec(any::<u8>(), 0..20)) {
            let mut bytes = Vec::new();
            encode_request(&target, &mut bytes).unwrap();
            let length = bytes.len();
            prop_assert_eq!(request_length(bytes.first_chunk().unwrap()), Ok(length));
            for cut in 0..length {
                prop_assert_eq!(decode_request(&bytes[..cut]), Ok(None));
            }
            bytes.extend_from_slice(&rest);
            prop_assert_eq!(decode_request(&bytes), Ok(Some((Request::Tcp(target), length))));
        }

        #[test]
        fn any_bytes_are_a_request_an_error_or_too_few(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(Some((request, used))) = decode_request(&bytes) {
                let mut again = Vec::new();
                match request {
                    Request::Tcp(target) => encode_request(&target, &mut again).unwrap(),
                    Request::Measure(measure) => again.extend(measure.encode()),
                }
                prop_assert_eq!(&again[..], &bytes[..used]);
            }
        }
    }

    #[test]
    fn a_wrong_request_is_refused_with_its_field() {
        let error = |bytes: &[u8]| decode_request(bytes).unwrap_err().to_string();
        assert!(error(&[3, 4, 4, 0, 80]).contains("flow kind is 3"));
        assert!(error(&[1, 3, 4, 0, 80]).contains("host kind is 3"));
        assert!(error(&[1, 4, 16, 0, 80]).contains("host length is 16"));
        assert!(error(&[1, 1, 0, 0, 80]).contains("host length is 0"));
        assert!(error(&[1, 4, 4, 0, 0, 1, 2, 3, 4]).contains("port is 0"));
        assert!(error(&[1, 1, 2, 0, 80, b'a', b'\n']).contains("host name"));
    }

    #[test]
    fn every_answer_reads_back_and_an_unknown_one_is_an_internal_failure() {
        use OpenError::{Forbidden, Internal, Limit, NameNotFound, NoRoute, Refused, TimedOut};
        let errors = [Refused, NoRoute, NameNotFound, TimedOut, Forbidden, Limit, Internal];
        for answer in errors.map(Err).into_iter().chain([Ok(())]) {
            assert_eq!(decode_answer(encode_answer(answer)), answer);
        }
        assert_eq!(decode_answer(77), Err(Internal));
    }
}
