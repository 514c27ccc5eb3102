//! Requests, good and bad.

use proptest::prelude::*;
use tandem_proto::pairing::Secret;

use super::*;
use crate::inbound::Credentials;

fn local() -> SocketAddr {
    "127.0.0.1:1080".parse().unwrap()
}

fn read(head: &str) -> Result<Request, Answer> {
    read_request(head.as_bytes(), None, local())
}

fn status(head: &str) -> u16 {
    match read(head) {
        Err(answer) | Ok(Request { wish: Wish::Answer(answer), .. }) => answer.status(),
        Ok(request) => panic!("{head:?} passes as {request:?}"),
    }
}

/// The target and the head that goes there.
fn forwarded(head: &str) -> (String, String) {
    match read(head).map(|request| request.wish) {
        Ok(Wish::Forward { target, head }) => (target.to_string(), String::from_utf8(head).unwrap()),
        other => panic!("{head:?} becomes {other:?}"),
    }
}

/// HTTP-1
#[test]
fn a_url_becomes_origin_form_with_its_own_host() {
    let (target, head) = forwarded(
        "GET http://Origin.test:8080/a/b?c=d HTTP/1.1\r\nAccept: */*\r\nHost: other.test\r\n\
         Proxy-Connection: keep-alive\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\n\
         Proxy-Authorization: Basic c2VjcmV0\r\nX-Kept: As It Is\r\n\r\n",
    );
    assert_eq!(target, "Origin.test:8080");
    assert_eq!(head, "GET /a/b?c=d HTTP/1.1\r\nHost: Origin.test:8080\r\nAccept: */*\r\nX-Kept: As It Is\r\n\r\n");
    for (url, target, line) in [
        ("http://a.test", "a.test:80", "GET / HTTP/1.1"),
        ("HTTP://a.test?q", "a.test:80", "GET /?q HTTP/1.1"),
        ("http://a.test:/x", "a.test:80", "GET /x HTTP/1.1"),
        ("http://192.0.2.1:81/", "192.0.2.1:81", "GET / HTTP/1.1"),
        ("ws://a.test/chat", "a.test:80", "GET /chat HTTP/1.1"),
        ("http://a.test/http://b.test/", "a.test:80", "GET /http://b.test/ HTTP/1.1"),
    ] {
        let (found, head) = forwarded(&format!("GET {url} HTTP/1.1\r\n\r\n"));
        assert_eq!((found.as_str(), head.lines().next().unwrap()), (target, line), "{url}");
    }
}

/// HTTP-2
#[test]
fn ipv6_authorities_need_brackets_and_connect_a_port() {
    assert_eq!(forwarded("GET http://[2001:db8::1]:81/ HTTP/1.1\r\n\r\n").0, "[2001:db8::1]:81");
    let (target, head) = forwarded("GET http://[2001:db8::1]/ HTTP/1.1\r\n\r\n");
    assert_eq!(target, "[2001:db8::1]:80");
    assert!(head.contains("Host: [2001:db8::1]\r\n"), "{head}");
    let wish = read("CONNECT [2001:db8::1]:443 HTTP/1.1\r\n\r\n").unwrap().wish;
    assert_eq!(wish, Wish::Tunnel("[2001:db8::1]:443".parse().unwrap()));
    for target in
        ["2001:db8::1:443", "example.org", "[2001:db8::1]", "example.org:", "example.org:0", ":443", "a@b:443"]
    {
        assert_eq!(status(&format!("CONNECT {target} HTTP/1.1\r\n\r\n")), 400, "{target}");
    }
    for authority in
        ["2001:db8::1", "2001:db8::1:80", "::1", "", ":80", "a:b", "a:99999", "[::1", "[a]", "[::1]x", "u:p@a"]
    {
        assert_eq!(status(&format!("GET http://{authority}/ HTTP/1.1\r\n\r\n")), 400, "{authority}");
    }
}

/// HTTP-3
#[test]
fn an_upgrade_is_asked_of_the_origin_and_no_other_field_of_the_connection() {
    let text = "GET http://a.test/chat HTTP/1.1\r\nConnection: keep-alive, Upgrade, X-Hop\r\nUpgrade: websocket\r\n\
                X-Hop: 1\r\nSec-WebSocket-Key: x\r\n\r\n";
    assert!(read(text).unwrap().asked.upgrade);
    let head = forwarded(text).1;
    assert!(head.ends_with("\r\nSec-WebSocket-Key: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), "{head}");
    let without = read("GET http://a.test/ HTTP/1.1\r\nUpgrade: websocket\r\n\r\n").unwrap();
    assert!(!without.asked.upgrade);
}

#[test]
fn a_bodys_length_is_told_once_whatever_the_client_said() {
    let text =
        "PUT http://a.test/ HTTP/1.1\r\nContent-Length: 5, 5\r\nExpect: 100-continue\r\ncontent-length: 5\r\n\r\n";
    let request = read(text).unwrap();
    assert_eq!((request.body, request.asked.expects_continue, request.repeatable), (Body::Length(5), true, false));
    let head = forwarded(text).1;
    assert!(head.ends_with("\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"), "{head}");
    let chunked = "POST http://a.test/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(read(chunked).unwrap().body, Body::chunked());
    assert!(forwarded(chunked).1.ends_with("\r\nTransfer-Encoding: chunked\r\n\r\n"));
}

#[test]
fn what_could_smuggle_a_request_past_the_proxy_is_refused() {
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 6",
        "Content-Length: +5",
        "Content-Length:",
        "A: b\r\n c: d",
        "A : b",
        "A: b\rC: d",
        "A: \0",
        "no colon",
        "Host: a\r\nHost: b",
    ] {
        assert_eq!(status(&format!("POST http://a.test/ HTTP/1.1\r\n{fields}\r\n\r\n")), 400, "{fields:?}");
    }
    assert_eq!(status("POST http://a.test/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"), 501);
    assert_eq!(status("POST http://a.test/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400);
    assert_eq!(status("CONNECT a.test:1 HTTP/1.1\r\nContent-Length: 5\r\n\r\n"), 400);
    assert_eq!(status("GET  http://a.test/ HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(status("GET http://a.test/ HTTP/2.0\r\n\r\n"), 505);
}

#[test]
fn what_is_not_fetched_here_is_told_apart() {
    assert_eq!(status("GET https://a.test/ HTTP/1.1\r\n\r\n"), 501);
    assert_eq!(status("GET ftp://a.test/ HTTP/1.1\r\n\r\n"), 501);
    assert_eq!(status("GET a.test HTTP/1.1\r\n\r\n"), 400);
    assert_eq!(status("GET http://a.test/#x HTTP/1.1\r\n\r\n"), 400);
}

#[test]
fn a_web_page_cannot_use_the_proxy_as_its_server() {
    for head in [
        "GET / HTTP/1.1\r\nHost: 127.0.0.1:1080\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: rebound.test\r\n\r\n",
        "POST /http://a.test/ HTTP/1.1\r\nHost: localhost:1080\r\nContent-Length: 9\r\n\r\n",
        "GET /proxy.pac HTTP/1.1\r\nHost: rebound.test\r\n\r\n",
        "GET /proxy.pac HTTP/1.1\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1:1080\r\n\r\n",
    ] {
        assert_eq!(read(head).unwrap_err().status(), 400, "{head:?}");
    }
    let Wish::Answer(answer) = read("GET /proxy.pac HTTP/1.1\r\nHost: localhost:1080\r\n\r\n").unwrap().wish else {
        panic!("no answer");
    };
    let text = String::from_utf8(answer.bytes(false, false)).unwrap();
    assert!(text.contains("return \"PROXY 127.0.0.1:1080\";"), "{text}");
}

/// SOCKS-2, for HTTP: only the right user name and password lead anywhere.
#[test]
fn with_a_password_set_nothing_is_served_without_it() {
    let credentials = Credentials { user: "ann".to_owned(), password: Secret::new("se:cret".to_owned()) };
    let check = |user: &[u8], password: &[u8]| match credentials.accept(user, password) {
        true => Verdict::Right,
        false => Verdict::Wrong,
    };
    let ask = |line: &str, field: &str| {
        let head = format!("{line} HTTP/1.1\r\n{field}\r\n\r\n");
        match read_request(head.as_bytes(), Some(&check), local()) {
            Err(answer) | Ok(Request { wish: Wish::Answer(answer), .. }) => answer.status(),
            Ok(_) => 0,
        }
    };
    let basic = |text: &str| format!("Proxy-Authorization: Basic {}", STANDARD.encode(text));
    for line in ["CONNECT a.test:443", "GET http://a.test/"] {
        assert_eq!(ask(line, &basic("ann:se:cret")), 0);
        assert_eq!(ask(line, &basic("ann:se:cret").replace("Basic", "bAsIc")), 0);
        for wrong in ["ann:secret", "ann:", "ann", "", ":se:cret", "Ann:se:cret", "ann:se:cret "] {
            assert_eq!(ask(line, &basic(wrong)), 407, "{wrong}");
        }
        for wrong in
            ["A: b", "Proxy-Authorization: Basic !!", "Proxy-Authorization: Basic", "Authorization: Basic YTpi"]
        {
            assert_eq!(ask(line, wrong), 407, "{wrong}");
        }
    }
    assert_eq!(ask("GET /", "Host: 127.0.0.1"), 400);
}

#[test]
fn max_forwards_counts_down_and_ends_here() {
    let (_, head) = forwarded("OPTIONS http://a.test HTTP/1.1\r\nMax-Forwards: 2\r\n\r\n");
    assert_eq!(head, "OPTIONS * HTTP/1.1\r\nHost: a.test\r\nMax-Forwards: 1\r\n\r\n");
    let (_, head) = forwarded("GET http://a.test/ HTTP/1.1\r\nMax-Forwards: 0\r\n\r\n");
    assert!(head.contains("Max-Forwards: 0\r\n"), "{head}");
    assert_eq!(status("OPTIONS http://a.test/ HTTP/1.1\r\nMax-Forwards: 0\r\n\r\n"), 200);
    assert_eq!(status("TRACE http://a.test/ HTTP/1.1\r\nMax-Forwards: x\r\n\r\n"), 400);
    let traced = read("TRACE http://a.test/x HTTP/1.1\r\nCookie: secret\r\nA: b\r\nMax-Forwards: 0\r\n\r\n").unwrap();
    let Wish::Answer(answer) = traced.wish else { panic!("no answer") };
    let text = String::from_utf8(answer.bytes(false, false)).unwrap();
    assert!(text.ends_with("\r\n\r\nTRACE http://a.test/x HTTP/1.1\r\nA: b\r\nMax-Forwards: 0\r\n"), "{text}");
}

#[test]
fn a_connection_lasts_unless_one_side_says_otherwise() {
    let lasts = |version: &str, field: &str| {
        read(&format!("GET http://a.test/ HTTP/{version}\r\n{field}\r\n\r\n")).unwrap().lasts
    };
    assert!(lasts("1.1", "A: b"));
    assert!(!lasts("1.1", "Connection: Close"));
    assert!(!lasts("1.1", "Proxy-Connection: close"));
    assert!(!lasts("1.0", "Connection: keep-alive"));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(
        start in prop_oneof![Just("GET http://a.test/"), Just("CONNECT a.test:1"), Just("GET /"), Just("")],
        bytes in prop::collection::vec(prop_oneof![Just(b'\r'), Just(b'\n'), Just(b':'), Just(b' '), any::<u8>()], 0..200),
    ) {
        let head = [start.as_bytes(), b" HTTP/1.1\r\n", &bytes, b"\r\n\r\n"].concat();
        if let Ok(Request { wish: Wish::Forward { head, .. }, .. }) = read_request(&head, None, local()) {
            // What goes on can be read again, and ends where it should.
            let mut room = room(&head);
            let mut again = httparse::Request::new(&mut room);
            prop_assert_eq!(again.parse(&head), Ok(httparse::Status::Complete(head.len())));
        }
    }
}
