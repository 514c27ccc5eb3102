//! What a client's request asks of the proxy, and how it goes on to the origin; without I/O.
//!
//! A request names its origin in its first line: `CONNECT host:port`, or `GET http://host/path`. The latter is sent on in
//! origin-form, with the `Host` of the URL, without the fields that concern the client's connection, and with its body's
//! length told in one way only. What two readers could understand differently is refused. A request in origin-form is
//! meant for a server, not for a proxy: this is how a web page would talk to the proxy behind its user's back, so nothing is
//! forwarded for it whatever its `Host` says.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tandem_proto::guesses::Verdict;
use tandem_proto::wire::flow::{Host, Target, TargetError};

use super::answer::Answer;
use super::body::Body;
use super::fields::{Fields, Limits, Told, room, write_field};
use crate::inbound::Check;

/// How large the head of a request may be.
pub(super) const LIMITS: Limits = Limits { line: 16 * 1024, fields: 32 * 1024 };

const DEFAULT_PORT: u16 = 80;

/// One request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) wish: Wish,
    pub(super) asked: Asked,
    /// What follows the head.
    pub(super) body: Body,
    /// The client means to send another request on its connection.
    pub(super) lasts: bool,
    /// Sending it twice does nothing that sending it once does not (RFC 9110 section 9.2.2), and it has no body.
    pub(super) repeatable: bool,
}

/// What a request wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// A connection to the target.
    Tunnel(Target),
    /// This head, and the body, sent to the target.
    Forward { target: Target, head: Vec<u8> },
    /// An answer of the proxy itself.
    Answer(Answer),
}

/// What the response depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Asked {
    /// The response has no body, whatever its head says.
    pub(super) head_only: bool,
    /// The client would go on in another protocol.
    pub(super) upgrade: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub(super) expects_continue: bool,
    /// The client speaks HTTP/1.0: it knows neither chunks nor informational responses.
    pub(super) old_client: bool,
}

/// Reads the whole head of a request that came to `local`.
///
/// # Errors
/// The answer that it gets before its connection is closed.
pub(super) fn read_request(head: &[u8], check: Option<Check<'_>>, local: SocketAddr) -> Result<Request, Answer> {
    let mut room = room(head);
    let mut parsed = httparse::Request::new(&mut room);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::Version) => return Err(Answer::wrong_version()),
        Err(error) => return Err(Answer::bad_request(format!("this is no HTTP request: {error}"))),
        Ok(httparse::Status::Partial) => return Err(Answer::bad_request("this is no HTTP request")),
    }
    let (Some(method), Some(uri), Some(minor)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(Answer::bad_request("this is no HTTP request"));
    };
    let fields = Fields(parsed.headers);
    let old_client = minor == 0;
    let told = fields.body().map_err(Answer::bad_framing)?;
    let body = match told {
        Told::Nothing => Body::NONE,
        Told::Length(length) => Body::Length(length),
        Told::Chunked if !old_client => Body::chunked(),
        Told::Chunked => return Err(Answer::bad_request("HTTP/1.0 has no Transfer-Encoding")),
        Told::Both => return Err(Answer::bad_request("Content-Length and Transfer-Encoding exclude each other")),
    };
    if fields.values("host").count() > 1 {
        return Err(Answer::bad_request("there is more than one Host"));
    }
    let asked = Asked {
        head_only: method == "HEAD",
        upgrade: !old_client && fields.values("upgrade").next().is_some() && fields.lists("connection", "upgrade"),
        expects_continue: !old_client && fields.lists("expect", "100-continue"),
        old_client,
    };
    let closes = fields.lists("connection", "close") || fields.lists("proxy-connection", "close");
    let repeatable = body.is_done() && matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE");
    let request = |wish| Request { wish, asked, body: body.clone(), lasts: !old_client && !closes, repeatable };

    if uri.starts_with('/') || uri == "*" {
        return own(method, uri, fields, local).map(|answer| request(Wish::Answer(answer)));
    }
    match check.map(|check| authorized(fields, check)) {
        None | Some(Verdict::Right) => {}
        Some(Verdict::Wrong) => return Ok(request(Wish::Answer(Answer::unauthorized()))),
        Some(Verdict::Braked { .. }) => return Ok(request(Wish::Answer(Answer::too_many_guesses()))),
    }
    if method == "CONNECT" {
        if !body.is_done() {
            return Err(Answer::bad_request("CONNECT has no body"));
        }
        let target = uri.parse().map_err(|error| Answer::bad_target(&error))?;
        return Ok(request(Wish::Tunnel(target)));
    }
    let (authority, path) = split_url(method, uri)?;
    let target = read_authority(authority).map_err(|error| Answer::bad_target(&error))?;
    let hops = if matches!(method, "OPTIONS" | "TRACE") { hops_left(fields)? } else { None };
    if hops == Some(0) {
        let answer = if method == "TRACE" { trace(method, uri, fields) } else { Answer::options() };
        return Ok(request(Wish::Answer(answer)));
    }

    let mut out = format!("{method} {path} HTTP/1.1\r\n").into_bytes();
    write_field("Host", authority.as_bytes(), &mut out);
    let mut written_anew = vec!["host"];
    if old_client {
        // Such a client waits for no 100, whatever it says (RFC 9110 section 10.1.1).
        written_anew.push("expect");
    }
    if hops.is_some() {
        written_anew.push("max-forwards");
    }
    fields.hand_on(&written_anew, &mut out);
    if let Some(hops) = hops {
        write_field("Max-Forwards", (hops - 1).to_string().as_bytes(), &mut out);
    }
    match told {
        Told::Length(length) => write_field("Content-Length", length.to_string().as_bytes(), &mut out),
        Told::Chunked => write_field("Transfer-Encoding", b"chunked", &mut out),
        Told::Nothing | Told::Both => {}
    }
    if asked.upgrade {
        write_field("Connection", b"Upgrade", &mut out);
        fields.values("upgrade").for_each(|protocol| write_field("Upgrade", protocol, &mut out));
    }
    out.extend_from_slice(b"\r\n");
    Ok(request(Wish::Forward { target, head: out }))
}

/// Answers a request that is meant for the proxy itself.
fn own(method: &str, path: &str, fields: Fields<'_>, local: SocketAddr) -> Result<Answer, Answer> {
    let host = fields.values("host").next().and_then(|host| std::str::from_utf8(host).ok());
    // A name that someone has made point here (DNS rebinding) is no way to ask.
    let by_address = host.and_then(|host| read_authority(host).ok()).is_some_and(|host| match host.host {
        Host::Ip(IpAddr::V4(_) | IpAddr::V6(_)) => true,
        Host::Name(name) => name.eq_ignore_ascii_case("localhost"),
    });
    if by_address && path == "/proxy.pac" && matches!(method, "GET" | "HEAD") {
        return Ok(Answer::proxy_pac(local));
    }
    Err(Answer::not_a_server(local))
}

/// Whether the client has given the right user name and password (RFC 7617). To give none is no guess.
fn authorized(fields: Fields<'_>, check: Check<'_>) -> Verdict {
    let given = fields.values("proxy-authorization").next().and_then(|value| {
        let (scheme, code) = value.split_at_checked(6)?;
        scheme.eq_ignore_ascii_case(b"basic ").then(|| STANDARD.decode(code.trim_ascii()).ok()).flatten()
    });
    let Some(given) = given else { return Verdict::Wrong };
    let colon = given.iter().position(|byte| *byte == b':');
    colon.map_or(Verdict::Wrong, |colon| check(&given[..colon], &given[colon + 1..]))
}

/// Splits a URL into its authority and what the origin is asked for.
fn split_url<'u>(method: &str, url: &'u str) -> Result<(&'u str, Cow<'u, str>), Answer> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(Answer::bad_request("a proxy is asked for a whole URL, for example http://example.org/"));
    };
    let scheme = scheme.to_ascii_lowercase();
    if !matches!(scheme.as_str(), "http" | "ws") {
        return Err(Answer::wrong_scheme(&scheme));
    }
    if rest.contains('#') {
        return Err(Answer::bad_request("the URL has a fragment, which is not for servers"));
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err(Answer::bad_request("the URL has a user name in it: it belongs into Authorization"));
    }
    let path = match path {
        "" if method == "OPTIONS" => Cow::Borrowed("*"),
        path if path.starts_with('/') => Cow::Borrowed(path),
        path => Cow::Owned(format!("/{path}")),
    };
    Ok((authority, path))
}

/// Reads an authority whose port may be left out.
fn read_authority(authority: &str) -> Result<Target, TargetError> {
    let bare = authority.strip_suffix(':').unwrap_or(authority);
    let colons = bare.matches(':').count();
    let has_port = if bare.starts_with('[') { bare.contains("]:") } else { colons == 1 };
    if has_port {
        return bare.parse();
    }
    if colons > 1 && !bare.starts_with('[') {
        return Err(TargetError::Brackets(authority.to_owned()));
    }
    Ok(Target { host: bare.parse()?, port: DEFAULT_PORT })
}

/// How many more proxies may be asked (RFC 9110 section 7.6.2); `None` for any number.
fn hops_left(fields: Fields<'_>) -> Result<Option<u64>, Answer> {
    let Some(value) = fields.values("max-forwards").next() else {
        return Ok(None);
    };
    let digits = value.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(value).ok()).flatten();
    let hops = digits.and_then(|digits| digits.parse().ok());
    hops.map(Some).ok_or_else(|| Answer::bad_request("Max-Forwards is no number"))
}

/// The request as it came, without what is nobody's business.
fn trace(method: &str, uri: &str, fields: Fields<'_>) -> Answer {
    let mut out = format!("{method} {uri} HTTP/1.1\r\n").into_bytes();
    fields.hand_on(&["authorization", "cookie"], &mut out);
    Answer::trace(String::from_utf8_lossy(&out).into_owned())
}

#[cfg(test)]
mod tests;
