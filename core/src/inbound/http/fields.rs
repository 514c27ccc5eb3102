//! What the heads of requests and responses have in common: where they end, and what their fields say.
//!
//! Nothing here does I/O. The bytes of a head are checked by `httparse`; sizes are bytes.

use std::collections::HashSet;

use httparse::Header;

/// Fields that concern one connection and not the message (RFC 9110 section 7.6.1), the proxy's own, and the ones that say
/// how long a body is: those are written anew.
const NOT_HANDED_ON: [&str; 10] = [
    "connection",
    "content-length",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// Looks for the empty line that ends a head, in bytes that arrive in pieces; each byte is looked at once.
#[derive(Debug)]
pub(super) struct HeadEnd {
    limits: Limits,
    /// Bytes that were looked at.
    seen: usize,
    line_start: usize,
    /// Length of the first line with its end, once it is whole.
    first_line: Option<usize>,
}

/// How large a head may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Bytes of its first line.
    pub(super) line: usize,
    /// Bytes of all its fields, with their line ends.
    pub(super) fields: usize,
}

/// Which part of a head is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TooLarge {
    Line,
    Fields,
}

impl HeadEnd {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, seen: 0, line_start: 0, first_line: None }
    }

    /// Whether any byte was looked at.
    pub(super) fn has_begun(&self) -> bool {
        self.seen > 0
    }

    /// The head's length in bytes that begin with it; `None` while more must come.
    pub(super) fn find(&mut self, bytes: &[u8]) -> Result<Option<usize>, TooLarge> {
        while let Some(length) = bytes[self.seen..].iter().position(|byte| *byte == b'\n') {
            let end = self.seen + length;
            let empty = matches!(&bytes[self.line_start..end], b"" | b"\r");
            (self.seen, self.line_start) = (end + 1, end + 1);
            if empty {
                self.check(end.saturating_sub(1))?;
                return Ok(Some(end + 1));
            }
            self.first_line.get_or_insert(end + 1);
        }
        self.seen = bytes.len();
        self.check(bytes.len())?;
        Ok(None)
    }

    fn check(&self, length: usize) -> Result<(), TooLarge> {
        match self.first_line {
            None if length > self.limits.line => Err(TooLarge::Line),
            Some(line) if line > self.limits.line => Err(TooLarge::Line),
            Some(line) if length > line + self.limits.fields => Err(TooLarge::Fields),
            _ => Ok(()),
        }
    }
}

/// Room for the fields of a head.
pub(super) fn room(head: &[u8]) -> Vec<Header<'_>> {
    vec![httparse::EMPTY_HEADER; head.iter().filter(|byte| **byte == b'\n').count()]
}

/// How a body's length is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Nothing,
    Length(u64),
    Chunked,
    /// By both, which is how requests are smuggled past a proxy.
    Both,
}

/// Why what a head says about its body cannot be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadFraming {
    /// A length that is no number, or several that differ.
    Length,
    /// A transfer coding other than `chunked`.
    Coding,
}

/// The fields of one head.
#[derive(Clone, Copy)]
pub(super) struct Fields<'h>(pub(super) &'h [Header<'h>]);

impl<'h> Fields<'h> {
    /// The values of all fields of a name, in lower case, in order.
    pub(super) fn values(self, name: &str) -> impl Iterator<Item = &'h [u8]> {
        self.0.iter().filter(move |field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    }

    /// The elements of a list.
    pub(super) fn elements(self, name: &str) -> impl Iterator<Item = &'h [u8]> {
        let elements = self.values(name).flat_map(|value| value.split(|byte| *byte == b','));
        elements.map(<[u8]>::trim_ascii).filter(|element| !element.is_empty())
    }

    pub(super) fn lists(self, name: &str, element: &str) -> bool {
        self.elements(name).any(|listed| listed.eq_ignore_ascii_case(element.as_bytes()))
    }

    /// How the body's length is told (RFC 9112 section 6).
    pub(super) fn body(self) -> Result<Told, BadFraming> {
        let mut length = None;
        for element in self.elements("content-length") {
            let digits = element.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(element).ok()).flatten();
            let value: u64 = digits.and_then(|digits| digits.parse().ok()).ok_or(BadFraming::Length)?;
            if length.replace(value).is_some_and(|other| other != value) {
                return Err(BadFraming::Length);
            }
        }
        // An empty value tells nothing and must not pass for the absence of the field.
        if length.is_none() && self.values("content-length").next().is_some() {
            return Err(BadFraming::Length);
        }
        if self.values("transfer-encoding").next().is_none() {
            return Ok(length.map_or(Told::Nothing, Told::Length));
        }
        let mut codings = self.elements("transfer-encoding");
        match (codings.next(), codings.next()) {
            (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => {}
            _ => return Err(BadFraming::Coding),
        }
        Ok(if length.is_some() { Told::Both } else { Told::Chunked })
    }

    /// Writes the fields that go on to the other side, as they came, except those named.
    pub(super) fn hand_on(self, except: &[&str], out: &mut Vec<u8>) {
        let named: HashSet<Vec<u8>> = self.elements("connection").map(<[u8]>::to_ascii_lowercase).collect();
        for Header { name, value } in self.0 {
            let is = |other: &&str| name.eq_ignore_ascii_case(other);
            let of_the_connection = named.contains(name.to_ascii_lowercase().as_bytes());
            // Nobody may talk us out of the host that is asked.
            if NOT_HANDED_ON.iter().any(is) || except.iter().any(is) || of_the_connection && !is(&"host") {
                continue;
            }
            write_field(name, value, out);
        }
    }
}

/// Writes one field with its line end.
pub(super) fn write_field(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { line: 20, fields: 30 };

    fn find(bytes: &[u8]) -> Result<Option<usize>, TooLarge> {
        HeadEnd::new(LIMITS).find(bytes)
    }

    #[test]
    fn a_head_ends_with_its_empty_line_wherever_it_is_cut() {
        for head in [&b"GET / HTTP/1.1\r\nA: b\r\n\r\n"[..], b"GET / HTTP/1.1\nA: b\n\n", b"GET / HTTP/1.1\r\n\r\n"] {
            let bytes = [head, b"body\r\n\r\n"].concat();
            assert_eq!(find(&bytes), Ok(Some(head.len())));
            for cut in 1..head.len() {
                let mut end = HeadEnd::new(LIMITS);
                assert_eq!(end.find(&bytes[..cut]), Ok(None));
                assert_eq!(end.find(&bytes), Ok(Some(head.len())));
            }
        }
    }

    #[test]
    fn what_is_too_large_is_told_before_it_ends() {
        assert_eq!(find(&[b'a'; 20]), Ok(None));
        assert_eq!(find(&[b'a'; 21]), Err(TooLarge::Line));
        assert_eq!(find(b"GET /12345678901234567890\r\n\r\n"), Err(TooLarge::Line));
        let with = |length: usize| [b"GET /\r\n", &vec![b'a'; length][..]].concat();
        assert_eq!(find(&with(30)), Ok(None));
        assert_eq!(find(&with(31)), Err(TooLarge::Fields));
        let exactly = [&with(28)[..], b"\r\n\r\n"].concat();
        assert_eq!(find(&exactly), Ok(Some(exactly.len())));
        assert_eq!(find(&[&with(29)[..], b"\r\n\r\n"].concat()), Err(TooLarge::Fields));
    }

    fn header(name: &'static str, value: &'static str) -> Header<'static> {
        Header { name, value: value.as_bytes() }
    }

    #[test]
    fn a_bodys_length_is_told_in_one_way_only() {
        let body = |fields: &[(&'static str, &'static str)]| {
            let fields: Vec<_> = fields.iter().map(|(name, value)| header(name, value)).collect();
            Fields(&fields).body()
        };
        assert_eq!(body(&[]), Ok(Told::Nothing));
        assert_eq!(body(&[("Content-Length", "12")]), Ok(Told::Length(12)));
        assert_eq!(body(&[("Content-Length", "12, 12"), ("content-length", "12")]), Ok(Told::Length(12)));
        assert_eq!(body(&[("Transfer-Encoding", "Chunked")]), Ok(Told::Chunked));
        assert_eq!(body(&[("Transfer-Encoding", "chunked"), ("Content-Length", "1")]), Ok(Told::Both));
        for bad in ["", "-1", "+1", "1 2", "0x10", "12, 13", "99999999999999999999", "1;"] {
            assert_eq!(body(&[("Content-Length", bad)]), Err(BadFraming::Length), "{bad}");
        }
        for bad in ["", "gzip", "gzip, chunked", "chunked, chunked", "xchunked", "chunked;q=1"] {
            assert_eq!(body(&[("Transfer-Encoding", bad)]), Err(BadFraming::Coding), "{bad}");
        }
    }

    #[test]
    fn what_belongs_to_one_connection_goes_no_further() {
        let fields = [
            header("Host", "a"),
            header("Connection", "close, X-Secret,, host"),
            header("x-secret", "1"),
            header("Proxy-Authorization", "Basic x"),
            header("Keep-Alive", "5"),
            header("X-Left", "left"),
            header("Expect", "100-continue"),
        ];
        let mut out = Vec::new();
        Fields(&fields).hand_on(&["expect"], &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "Host: a\r\nX-Left: left\r\n");
    }
}
