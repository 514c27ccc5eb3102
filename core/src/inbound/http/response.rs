//! What an origin's response says, and how it goes on to the client; without I/O.
//!
//! A response keeps its fields but for those of the origin's connection. Its body goes on as it comes; where neither a
//! length nor chunks tell its end, the end of the origin's connection does, and then the client's connection ends too.
//! Origins are read with the leniency of browsers, so that what works without the proxy works with it.

use httparse::ParserConfig;

use super::body::Body;
use super::fields::{BadFraming, Fields, Limits, Told, room, write_field};
use super::request::Asked;

/// How large the head of a response may be: what browsers take.
pub(super) const LIMITS: Limits = Limits { line: 16 * 1024, fields: 256 * 1024 };

/// One response, final or informational.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) kind: Kind,
    /// As it goes to the client.
    pub(super) head: Vec<u8>,
    pub(super) body: Body,
    /// The client understands no chunks, so it gets the payload alone.
    pub(super) payload_only: bool,
    /// The client's connection may carry another request after it.
    pub(super) client_lasts: bool,
    /// The origin's connection may.
    pub(super) origin_lasts: bool,
}

/// What a response is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Another one follows.
    Informational,
    /// The origin says that the body is welcome; another response follows.
    Continue,
    /// From here on the connection carries another protocol.
    Switched,
    Final,
}

/// A response that cannot be handed on: the error type of RFC 9209 and what is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadResponse(pub(super) &'static str, pub(super) &'static str);

const NO_HTTP: BadResponse = BadResponse("http_protocol_error", "not in HTTP/1");

/// Reads the whole head of a response. `client_lasts` is what is still possible for the client's connection.
pub(super) fn read_response(head: &[u8], asked: Asked, client_lasts: bool) -> Result<Response, BadResponse> {
    let mut room = room(head);
    let mut parsed = httparse::Response::new(&mut room);
    let mut lenient = ParserConfig::default();
    lenient.allow_spaces_after_header_name_in_responses(true).ignore_invalid_headers_in_responses(true);
    if !matches!(lenient.parse_response(&mut parsed, head), Ok(httparse::Status::Complete(_))) {
        return Err(NO_HTTP);
    }
    let (Some(minor), Some(status)) = (parsed.version, parsed.code) else {
        return Err(NO_HTTP);
    };
    let fields = Fields(parsed.headers);
    let kind = match status {
        101 if asked.upgrade => Kind::Switched,
        101 => return Err(BadResponse("http_upgrade_failed", "with another protocol, which nobody has asked for")),
        100 => Kind::Continue,
        102..=199 => Kind::Informational,
        200..=999 => Kind::Final,
        _ => return Err(NO_HTTP),
    };
    let told = fields.body().map_err(|error| match error {
        BadFraming::Length => BadResponse("http_response_body_size", "its length is no number, or there are several"),
        BadFraming::Coding => {
            BadResponse("http_response_transfer_coding", "in a transfer coding that nobody asked for")
        }
    })?;
    let bodyless = kind != Kind::Final || asked.head_only || matches!(status, 204 | 304);
    let body = match told {
        _ if bodyless => Body::NONE,
        Told::Length(length) => Body::Length(length),
        Told::Chunked | Told::Both => Body::chunked(),
        Told::Nothing => Body::UntilClose,
    };
    let payload_only = matches!(body, Body::Chunked(_)) && asked.old_client;
    let client_lasts = client_lasts && !payload_only && body != Body::UntilClose;
    let origin_lasts =
        minor == 1 && !fields.lists("connection", "close") && body != Body::UntilClose && told != Told::Both;

    let mut out = format!("HTTP/1.1 {status} {}\r\n", parsed.reason.unwrap_or_default()).into_bytes();
    fields.hand_on(&[], &mut out);
    match told {
        // They have none whatever they say (RFC 9110 section 8.6); a HEAD or 304 tells of a body that is not sent.
        Told::Length(length) if status >= 200 && status != 204 => {
            write_field("Content-Length", length.to_string().as_bytes(), &mut out);
        }
        Told::Chunked | Told::Both if !bodyless && !payload_only => {
            write_field("Transfer-Encoding", b"chunked", &mut out);
        }
        _ => {}
    }
    match kind {
        Kind::Switched => {
            write_field("Connection", b"Upgrade", &mut out);
            fields.values("upgrade").for_each(|protocol| write_field("Upgrade", protocol, &mut out));
        }
        Kind::Final if !client_lasts => write_field("Connection", b"close", &mut out),
        _ => {}
    }
    out.extend_from_slice(b"\r\n");
    Ok(Response { kind, head: out, body, payload_only, client_lasts, origin_lasts })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ASKED: Asked = Asked { head_only: false, upgrade: false, expects_continue: false, old_client: false };

    fn read(head: &str, asked: Asked) -> Response {
        read_response(head.as_bytes(), asked, true).unwrap()
    }

    fn text(response: &Response) -> &str {
        std::str::from_utf8(&response.head).unwrap()
    }

    #[test]
    fn a_response_goes_on_without_the_fields_of_the_origins_connection() {
        let response = read(
            "HTTP/1.0 200 Fine\r\nServer : x\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
             Set-Cookie: a\r\nset-cookie: b\r\nContent-Length: 5\r\n\r\n",
            ASKED,
        );
        assert_eq!(
            text(&response),
            "HTTP/1.1 200 Fine\r\nServer: x\r\nSet-Cookie: a\r\nset-cookie: b\r\nContent-Length: 5\r\n\r\n"
        );
        assert_eq!((response.body, response.client_lasts, response.origin_lasts), (Body::Length(5), true, false));
    }

    #[test]
    fn the_end_of_a_body_follows_the_request_and_the_status() {
        let body = |head: &str, asked| read(&format!("HTTP/1.1 {head}\r\n\r\n"), asked).body;
        let head_only = Asked { head_only: true, ..ASKED };
        assert_eq!(body("200 OK\r\nContent-Length: 5", head_only), Body::NONE);
        assert_eq!(body("200 OK\r\nTransfer-Encoding: chunked", head_only), Body::NONE);
        assert_eq!(body("204 No\r\nContent-Length: 5", ASKED), Body::NONE);
        assert_eq!(body("304 No\r\nContent-Length: 5", ASKED), Body::NONE);
        assert_eq!(body("200 OK\r\nTransfer-Encoding: chunked", ASKED), Body::chunked());
        assert_eq!(body("200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5", ASKED), Body::chunked());
        assert_eq!(body("200 OK", ASKED), Body::UntilClose);
        assert_eq!(body("103 Early Hints\r\nLink: x", ASKED), Body::NONE);
        // The length stays where it tells of a body that is not sent, and goes where it tells of none.
        assert!(text(&read("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", head_only)).contains("Content-Length: 5"));
        assert!(!text(&read("HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\n", ASKED)).contains("Content-Length"));
        let both = read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", ASKED);
        assert!(!text(&both).contains("Content-Length"));
        assert!(!both.origin_lasts && both.client_lasts);
    }

    #[test]
    fn where_only_the_close_tells_the_end_the_client_is_told_so() {
        let response = read("HTTP/1.1 200 OK\r\n\r\n", ASKED);
        assert!(!response.client_lasts && !response.origin_lasts);
        assert!(text(&response).contains("\r\nConnection: close\r\n"));
        let old = read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Asked { old_client: true, ..ASKED });
        assert!(old.payload_only && !old.client_lasts);
        assert_eq!(text(&old), "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
    }

    /// HTTP-3
    #[test]
    fn a_switch_of_protocols_passes_only_if_it_was_asked_for() {
        let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nA: b\r\n\r\n";
        assert_eq!(read_response(head.as_bytes(), ASKED, true).unwrap_err().0, "http_upgrade_failed");
        let response = read(head, Asked { upgrade: true, ..ASKED });
        assert_eq!(response.kind, Kind::Switched);
        let expected = "HTTP/1.1 101 Switching Protocols\r\nA: b\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        assert_eq!(text(&response), expected);
    }

    #[test]
    fn informational_responses_are_told_apart() {
        let kind = |status: &str| read(&format!("HTTP/1.1 {status}\r\n\r\n"), ASKED).kind;
        assert_eq!(kind("100 Continue"), Kind::Continue);
        assert_eq!(kind("103 Early Hints"), Kind::Informational);
        assert_eq!(kind("200"), Kind::Final);
    }

    #[test]
    fn what_is_no_response_is_told_as_such() {
        for head in [
            "SSH-2.0-OpenSSH_9.2\r\n\r\n",
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 20\r\n\r\n",
            "HTTP/1.1 099 x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        ] {
            assert!(read_response(head.as_bytes(), ASKED, true).is_err(), "{head:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            bytes in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b':'), Just(b' '), any::<u8>()], 0..200),
            upgrade: bool,
        ) {
            let head = [b"HTTP/1.1 200 OK\r\n", &bytes[..], b"\r\n\r\n"].concat();
            if let Ok(response) = read_response(&head, Asked { upgrade, ..ASKED }, true) {
                let mut room = room(&response.head);
                let mut again = httparse::Response::new(&mut room);
                prop_assert_eq!(again.parse(&response.head), Ok(httparse::Status::Complete(response.head.len())));
            }
        }
    }
}
