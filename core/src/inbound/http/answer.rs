//! What the proxy itself answers: a status, the reason for programs (`Proxy-Status`, RFC 9209), and a line for people.

use std::net::SocketAddr;

use tandem_proto::wire::flow::{OpenError, Target, TargetError};

use super::fields::{BadFraming, TooLarge};
use crate::dial::DialError;

/// An answer that comes from no origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    status: u16,
    /// The error type of RFC 9209 section 2.3; `None` for what is no error.
    error: Option<&'static str>,
    /// The content's type, and further fields with their line ends.
    fields: &'static str,
    text: String,
}

const TEXT: &str = "Content-Type: text/plain; charset=utf-8\r\n";

impl Answer {
    fn new(status: u16, error: &'static str, text: impl Into<String>) -> Self {
        Self { status, error: Some(error), fields: TEXT, text: text.into() }
    }

    /// A request that is no proper one.
    pub(super) fn bad_request(text: impl Into<String>) -> Self {
        Self::new(400, "http_request_error", text)
    }

    pub(super) fn bad_target(error: &TargetError) -> Self {
        Self::bad_request(error.to_string())
    }

    pub(super) fn bad_framing(error: BadFraming) -> Self {
        match error {
            BadFraming::Length => Self::bad_request("Content-Length is no number, or there are several that differ"),
            BadFraming::Coding => Self::new(
                501,
                "http_request_error",
                "only the transfer coding \"chunked\" is known here, and only once",
            ),
        }
    }

    pub(super) fn too_large(part: TooLarge, limit: usize) -> Self {
        match part {
            TooLarge::Line => {
                Self::new(414, "http_request_error", format!("the request's first line has more than {limit} bytes"))
            }
            TooLarge::Fields => {
                Self::new(431, "http_request_error", format!("the request's fields have more than {limit} bytes"))
            }
        }
    }

    pub(super) fn too_slow() -> Self {
        Self::new(408, "http_request_error", "the request did not come in time")
    }

    pub(super) fn wrong_version() -> Self {
        Self::new(505, "http_request_error", "this proxy speaks HTTP/1.1 and 1.0")
    }

    /// A URL whose scheme the proxy cannot serve by itself.
    pub(super) fn wrong_scheme(scheme: &str) -> Self {
        let text = match scheme {
            "https" | "wss" => format!("{scheme} URLs are not fetched by this proxy: use CONNECT, as browsers do"),
            _ => "only http URLs are fetched by this proxy; for other protocols use CONNECT or SOCKS5".to_owned(),
        };
        Self::new(501, "http_request_error", text)
    }

    /// A request for the proxy as if it were a server.
    pub(super) fn not_a_server(local: SocketAddr) -> Self {
        Self::bad_request(format!(
            "This is a proxy and no website. Enter {local} as the HTTP proxy (for HTTPS too) or as the SOCKS5 proxy of \
             your browser or system, or http://{local}/proxy.pac as its automatic configuration."
        ))
    }

    pub(super) fn unauthorized() -> Self {
        let fields = "Content-Type: text/plain; charset=utf-8\r\n\
                      Proxy-Authenticate: Basic realm=\"Tandem\", charset=\"UTF-8\"\r\n";
        let text = "this proxy wants its user name and password".to_owned();
        Self { status: 407, error: Some("http_request_denied"), fields, text }
    }

    /// A client from whose address too many wrong passwords came.
    pub(super) fn too_many_guesses() -> Self {
        let fields = "Content-Type: text/plain; charset=utf-8\r\nRetry-After: 10\r\n";
        let text = "too many wrong passwords came from this address: the next is looked at in some seconds".to_owned();
        Self { status: 429, error: Some("http_request_denied"), fields, text }
    }

    /// A target that could not be reached.
    pub(super) fn not_reached(target: &Target, error: &DialError) -> Self {
        let (status, kind) = match error {
            DialError::Open(OpenError::Refused) => (502, "connection_refused"),
            DialError::Open(OpenError::NoRoute) => (502, "destination_ip_unroutable"),
            DialError::Open(OpenError::NameNotFound) => (502, "dns_error"),
            DialError::Open(OpenError::TimedOut) => (504, "connection_timeout"),
            DialError::Open(OpenError::Forbidden) => (403, "destination_ip_prohibited"),
            DialError::Open(OpenError::Limit) => (503, "connection_limit_reached"),
            DialError::Open(OpenError::Internal) => (502, "proxy_internal_error"),
            DialError::NotConnected => (503, "destination_unavailable"),
        };
        Self::new(status, kind, format!("{target} was not reached: {error}"))
    }

    /// The origin has closed or broken its connection before it answered.
    pub(super) fn no_answer(target: &Target) -> Self {
        Self::new(502, "connection_terminated", format!("{target} ended the connection without an answer"))
    }

    /// The origin's answer is none.
    pub(super) fn bad_response(target: &Target, error: &'static str, what: &str) -> Self {
        Self::new(502, error, format!("{target} answered, but {what}"))
    }

    /// What `OPTIONS` gets where no proxy further on is to be asked.
    pub(super) fn options() -> Self {
        Self { status: 200, error: None, fields: TEXT, text: String::new() }
    }

    /// The request as it came here, for `TRACE`.
    pub(super) fn trace(request: String) -> Self {
        Self { status: 200, error: None, fields: "Content-Type: message/http\r\n", text: request }
    }

    /// The automatic configuration for browsers: everything but this machine by the proxy.
    pub(super) fn proxy_pac(local: SocketAddr) -> Self {
        let text = format!(
            "function FindProxyForURL(url, host) {{\n  \
               if (host == \"localhost\" || host == \"[::1]\" || shExpMatch(host, \"127.*\")) return \"DIRECT\";\n  \
               return \"PROXY {local}\";\n}}\n"
        );
        Self { status: 200, error: None, fields: "Content-Type: application/x-ns-proxy-autoconfig\r\n", text }
    }

    /// The whole response; without its content for a client that asked for the head alone.
    pub(super) fn bytes(&self, close: bool, head_only: bool) -> Vec<u8> {
        let newline = if self.error.is_some() { "\n" } else { "" };
        let mut out = format!("HTTP/1.1 {} {}\r\n{}", self.status, reason(self.status), self.fields);
        if let Some(error) = self.error {
            out += &format!("Proxy-Status: Tandem; error={error}\r\n");
        }
        // A page must not find out more about the proxy than that it is there.
        out += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n";
        out += if close { "Connection: close\r\n" } else { "" };
        out += &format!("Content-Length: {}\r\n\r\n", self.text.len() + newline.len());
        if !head_only {
            out += &self.text;
            out += newline;
        }
        out.into_bytes()
    }

    /// The status code.
    pub(super) fn status(&self) -> u16 {
        self.status
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        407 => "Proxy Authentication Required",
        408 => "Request Timeout",
        414 => "URI Too Long",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SOCKS-6, for HTTP
    #[test]
    fn every_failure_has_the_status_that_tells_it() {
        let target = "example.org:80".parse().unwrap();
        let answer = |error: DialError| {
            let answer = Answer::not_reached(&target, &error);
            (answer.status, answer.error.unwrap())
        };
        let open = |error| answer(DialError::Open(error));
        assert_eq!(open(OpenError::Refused), (502, "connection_refused"));
        assert_eq!(open(OpenError::NoRoute), (502, "destination_ip_unroutable"));
        assert_eq!(open(OpenError::NameNotFound), (502, "dns_error"));
        assert_eq!(open(OpenError::TimedOut), (504, "connection_timeout"));
        assert_eq!(open(OpenError::Forbidden), (403, "destination_ip_prohibited"));
        assert_eq!(open(OpenError::Limit), (503, "connection_limit_reached"));
        assert_eq!(open(OpenError::Internal), (502, "proxy_internal_error"));
        assert_eq!(answer(DialError::NotConnected), (503, "destination_unavailable"));
    }

    #[test]
    fn an_answer_says_what_is_wrong_to_programs_and_to_people() {
        let target = "[2001:db8::1]:80".parse().unwrap();
        let answer = Answer::not_reached(&target, &DialError::NotConnected);
        let text = String::from_utf8(answer.bytes(true, false)).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{head}");
        assert!(head.contains("\r\nProxy-Status: Tandem; error=destination_unavailable\r\n"), "{head}");
        assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
        assert!(head.ends_with(&format!("\r\nContent-Length: {}", body.len())), "{head}");
        assert_eq!(body, "[2001:db8::1]:80 was not reached: there is no connection to the relay\n");
        assert!(answer.bytes(false, true).ends_with(b"\r\n\r\n"));
    }
}
