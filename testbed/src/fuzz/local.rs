//! What reaches the client from its own machine and from the networks' servers: applications, files, other processes,
//! login pages, resolvers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use tandem_core::client::control::Request;
use tandem_core::client::fuzzing;
use tandem_core::config::Config;
use tandem_core::inbound::Forward;
use tandem_core::inbound::http_fuzzing::{self as http, Fate};
use tandem_core::inbound::socks5_fuzzing as socks5;
use tandem_core::platform::read_resolved_reply;
use tandem_proto::stats::Snapshot;

use super::input::Input;

/// A SOCKS5 client. However its bytes are cut, they mean the same.
pub(super) fn socks(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (password, piece) = (input.u8() & 1 == 1, usize::from(input.u8()));
    let rest = input.bytes(usize::MAX);
    let whole = socks5::handshake(rest, usize::MAX, password);
    assert_eq!(socks5::handshake(rest, piece, password).1, whole.1);
}

pub(super) fn socks_seeds() -> Vec<Vec<u8>> {
    let name = b"\x05\x01\x00\x05\x01\x00\x03\x0bexample.org\x01\xbbGET / HTTP/1.1\r\n";
    let v6 = b"\x05\x02\x00\x02\x05\x01\x00\x04\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01\x00\x50";
    let login = b"\x05\x01\x02\x01\x03ann\x06secret\x05\x01\x00\x01\xc0\x00\x02\x01\x00\x50";
    let associate = b"\x05\x01\x00\x05\x03\x00\x01\0\0\0\0\0\0";
    let with = |head: [u8; 2], bytes: &[u8]| [&head[..], bytes].concat();
    vec![
        with([0, 3], name),
        with([0, 1], v6),
        with([1, 7], login),
        with([0, 255], associate),
        with([0, 9], b"\x04\x01\x00\x50"),
    ]
}

/// An HTTP client, and an origin. However the bytes are cut, they mean the same, and what goes on can be read in one way
/// only.
pub(super) fn http(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let (flags, piece) = (input.u8(), usize::from(input.u8()));
    let rest = input.bytes(usize::MAX);
    let (is_request, flag) = (flags & 1 == 0, flags & 2 != 0);
    let read = |piece| if is_request { http::request(rest, piece, flag) } else { http::response(rest, piece, flag) };
    let fate = read(usize::MAX);
    assert_eq!(read(piece), fate);
    let Fate::GoesOn(head, _) = fate else { return };
    let head = head.strip_suffix(b"\r\n\r\n").expect("a head ends with an empty line");
    let lines: Vec<_> =
        head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line)).collect();
    assert!(lines.iter().all(|line| !line.is_empty() && !line.contains(&b'\r')), "{}", head.escape_ascii());
    let named = |name: &str| {
        let is = |line: &&&[u8]| {
            line.split(|byte| *byte == b':').next().is_some_and(|key| key.eq_ignore_ascii_case(name.as_bytes()))
        };
        lines[1..].iter().filter(is).count()
    };
    assert!(named("content-length") + named("transfer-encoding") <= 1, "{}", head.escape_ascii());
    if is_request {
        assert_eq!(named("host"), 1, "{}", head.escape_ascii());
        assert_eq!(named("proxy-authorization"), 0, "{}", head.escape_ascii());
        let target = lines[0].split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        assert!(target.starts_with(b"/") || target == b"*", "{}", head.escape_ascii());
    }
}

pub(super) fn http_seeds() -> Vec<Vec<u8>> {
    let requests = [
        "GET http://example.org/a?b HTTP/1.1\r\nHost: example.org\r\nProxy-Connection: keep-alive\r\nAccept: */*\r\n\r\n",
        "POST http://[2001:db8::1]:8080/ HTTP/1.1\r\nhost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello",
        "PUT http://example.org HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: x, close\r\nX: 1\r\n\r\n5;a=b\r\nhello\r\n0\r\nT: 1\r\n\r\n",
        "CONNECT example.org:443 HTTP/1.1\r\nProxy-Authorization: Basic YW5uOnNlY3JldA==\r\n\r\n",
        "GET ws://example.org/ HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "TRACE http://example.org/ HTTP/1.1\r\nMax-Forwards: 3\r\n\r\n",
        "GET / HTTP/1.0\n\n",
    ];
    let responses = [
        "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n\r\n1\r\na\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.0 304 N\r\nContent-Length: 7\r\n\r\n",
    ];
    let with = |flags: u8, text: &&str| [&[flags, 7][..], text.as_bytes()].concat();
    let requests = requests.iter().flat_map(|text| [with(0, text), with(2, text)]);
    requests.chain(responses.iter().flat_map(|text| [with(1, text), with(3, text)])).collect()
}

/// The client's configuration file, and a forward of the command line.
pub(super) fn config(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Err(error) = Config::parse(Path::new("tandem.toml"), &text) {
        let shown = error.to_string();
        assert!(shown.starts_with("tandem.toml:"), "{shown} names no place");
    }
    if let Ok(forward) = text.parse::<Forward>() {
        assert_eq!(forward.to_string().parse::<Forward>(), Ok(forward));
    }
}

pub(super) fn config_seeds() -> Vec<Vec<u8>> {
    let whole = "version = 1\nmode = \"bicast\"\nbicast = \"both\"\ncongestion = \"bbr3\"\ninterfaces = [\"wlan0\"]\n\
        captive_check = true\nlink_file = \"pairing-link\"\n\n[proxy]\nlisten = \"127.0.0.1:1080\"\nuser = \"ann\"\n\
        password = \"secret\"\n\n[[forward]]\nlisten = \"127.0.0.1:8080\"\ntarget = \"example.org:80\"\n\n\
        [[network]]\nname = \"wwan0\"\nrole = \"backup\"\nmetered = true\ncap_daily = \"500 MB\"\n\
        cap_monthly = \"none\"\nreset_day = 31\nsoft_percent = 80\n";
    let wrong = "version = 1\nmodee = \"single\"\n[sock]\nlisten = 3\n";
    [whole, "version = 1\n", wrong, "127.0.0.1:8080=example.org:80"].map(|text| text.as_bytes().to_vec()).to_vec()
}

/// A request on the control socket, and the snapshot that answers it.
pub(super) fn ask(bytes: &[u8]) {
    if let Ok(request) = serde_json::from_slice::<Request>(bytes) {
        let again = serde_json::to_vec(&request).expect("a request can be written");
        assert_eq!(serde_json::from_slice::<Request>(&again).expect("and read"), request);
    }
    if let Ok(snapshot) = serde_json::from_slice::<Snapshot>(bytes) {
        serde_json::to_vec(&snapshot).expect("a snapshot can be written");
    }
}

pub(super) fn ask_seeds() -> Vec<Vec<u8>> {
    let requests = [
        r#"{"command":"status"}"#,
        r#"{"command":"mode","mode":"bicast","bicast":"both"}"#,
        r#"{"command":"mode","mode":"single"}"#,
        r#"{"command":"stop"}"#,
    ];
    let snapshot = serde_json::to_vec(&Snapshot::default()).expect("a snapshot can be written");
    requests.iter().map(|text| text.as_bytes().to_vec()).chain([snapshot]).collect()
}

/// The answer of a login page, or of whatever stands at the relay's address.
pub(super) fn captive(bytes: &[u8]) {
    for relay in [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let words = fuzzing::captive(bytes.to_vec(), relay);
        assert!(words.len() < 200 && !words.chars().any(char::is_control), "{words:?}");
    }
}

pub(super) fn captive_seeds() -> Vec<Vec<u8>> {
    let redirect = "HTTP/1.1 302 Found\r\nLocation: http://login.example/?a=b\r\nContent-Length: 0\r\n\r\n";
    let own = "HTTP/1.1 301 Moved\r\nlocation: https://192.0.2.1/x\r\n\r\n";
    let v6 = "HTTP/1.0 307 T\nLocation: //[::1]:443/\n\n";
    [redirect, own, v6, "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 511 N\r\n\r\n", "SSH-2.0-x\r\n"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
}

/// The answers of a network's resolvers.
pub(super) fn names(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let target = Ipv4Addr::from(input.u32());
    let rest = input.bytes(usize::MAX);
    let (addresses, _) = rest.as_chunks::<16>();
    let mut answers: Vec<IpAddr> = addresses.iter().map(|octets| IpAddr::from(*octets)).collect();
    answers.extend(read_resolved_reply(rest).unwrap_or_default());
    let found = fuzzing::nat64(&answers, target);
    assert!(found.len() <= 4, "{} addresses to be tried", found.len());
}

pub(super) fn names_seeds() -> Vec<Vec<u8>> {
    let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address").octets().to_vec();
    let prefixes =
        ["64:ff9b::c000:aa", "2001:db8:122:344:c0:0:aa00::", "2001:db8:c000:aa::", "2001:db8:122:3c0:0:aa00::"];
    let addresses: Vec<u8> = [vec![192, 0, 2, 1]].into_iter().chain(prefixes.map(address)).flatten().collect();
    let reply = br#"1234{"parameters":{"addresses":[{"ifindex":7,"family":2,"address":[192,0,2,1]},{"family":10,"address":[0,100,255,155,0,0,0,0,0,0,0,0,192,0,0,170]}],"name":"a","flags":1}}"#;
    let refusal = br#"1234{"error":"io.systemd.Resolve.NoNameServers","parameters":{}}"#;
    vec![addresses, reply.to_vec(), refusal.to_vec()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_configuration_that_fuzzing_begins_with_is_a_valid_one() {
        let text = String::from_utf8(config_seeds().remove(0)).expect("text");
        Config::parse(Path::new("tandem.toml"), &text).expect("valid");
    }
}
