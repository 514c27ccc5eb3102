//! Requests and responses: whose they are, in which order, and that they arrive whole.

use super::*;

/// HTTP-1
#[tokio::test]
async fn requests_to_different_hosts_on_one_connection_reach_their_own_and_are_answered_in_order() {
    let (proxy, a, b) = (proxy().await, Played::new().await, Played::new().await);
    let get = |url: String| format!("GET {url} HTTP/1.1\r\nHost: nowhere.test\r\n\r\n");
    // Sent at once: the answers must come in the order of the requests all the same.
    let requests = [get(a.url("/1")), get(a.url("/2")), get(b.url("/3")), get(a.url("/4"))].concat();
    let mut client = client(&proxy, requests).await;
    let answer = async |tcp: &mut TcpStream, path: &str, port: u16| {
        assert_eq!(head(tcp).await, format!("GET {path} HTTP/1.1\r\nHost: origin.test:{port}\r\n\r\n"));
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}", path.len());
        tcp.write_all(text.as_bytes()).await.unwrap();
    };
    let mut at_a = a.accept().await;
    answer(&mut at_a, "/1", a.port()).await;
    // The second one to the same host comes over the same connection.
    answer(&mut at_a, "/2", a.port()).await;
    let mut at_b = b.accept().await;
    answer(&mut at_b, "/3", b.port()).await;
    answer(&mut a.accept().await, "/4", a.port()).await;
    for path in ["/1", "/2", "/3", "/4"] {
        assert_eq!(head(&mut client).await, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
        assert_eq!(exactly(&mut client, 2).await, path.as_bytes());
    }
    assert_eq!(proxy.flows.total(), 3);
}

/// A dial that notes what it was asked for and connects elsewhere.
struct Noting(Arc<Mutex<Vec<String>>>, u16);

impl Dial for Noting {
    fn open_tcp(&self, target: Target) -> Pin<Box<dyn Future<Output = Result<Flow, DialError>> + Send + '_>> {
        self.0.lock().push(target.to_string());
        let target = format!("127.0.0.1:{}", self.1).parse().unwrap();
        Box::pin(async { Loopback::default().open_tcp(target).await })
    }
}

/// HTTP-2
#[tokio::test]
async fn ipv6_authorities_reach_their_target() {
    let (origin, asked) = (Played::new().await, Arc::default());
    let proxy = start(Service::Proxy(None), Noting(Arc::clone(&asked), origin.port())).await;
    let mut tunnel = client(&proxy, "CONNECT [2001:db8::1]:443 HTTP/1.1\r\nHost: [2001:db8::1]:443\r\n\r\n").await;
    assert_eq!(head(&mut tunnel).await, "HTTP/1.1 200 Connection established\r\n\r\n");
    let mut fetch = client(&proxy, "GET http://[2001:db8::1]:81/x HTTP/1.1\r\n\r\n").await;
    origin.accept().await;
    let mut at_origin = origin.accept().await;
    assert_eq!(head(&mut at_origin).await, "GET /x HTTP/1.1\r\nHost: [2001:db8::1]:81\r\n\r\n");
    at_origin.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    assert_eq!(head(&mut fetch).await, "HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(*asked.lock(), ["[2001:db8::1]:443", "[2001:db8::1]:81"]);
    for line in ["CONNECT 2001:db8::1:443", "CONNECT example.org", "GET http://2001:db8::1/"] {
        let text = rest(&mut client(&proxy, format!("{line} HTTP/1.1\r\n\r\n")).await).await;
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{line}: {text}");
    }
}

/// HTTP-3
#[tokio::test]
async fn a_websocket_handshake_passes_and_then_bytes_both_ways() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let request = format!(
        "GET {} HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\nearly ",
        origin.url("/chat").replace("http:", "ws:")
    );
    let mut client = client(&proxy, request).await;
    let mut server = origin.accept().await;
    let asked = head(&mut server).await;
    assert!(asked.ends_with("Sec-WebSocket-Key: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"), "{asked}");
    let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
    server.write_all(format!("{switch}first ").as_bytes()).await.unwrap();
    assert_eq!(head(&mut client).await, switch);
    client.write_all(b"and late").await.unwrap();
    assert_eq!(exactly(&mut server, 14).await, b"early and late");
    server.write_all(b"and second").await.unwrap();
    assert_eq!(exactly(&mut client, 16).await, b"first and second");
    // One side ends, the other may go on.
    server.shutdown().await.unwrap();
    assert_eq!(rest(&mut client).await, "");
    client.write_all(b"last").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut server).await, "last");
}

/// HTTP-4
#[tokio::test]
async fn an_upload_that_waits_for_100_gets_the_origins_or_ours_and_finishes() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let put = format!("PUT {} HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", origin.url("/"));
    for says_it in [true, false] {
        let mut client = client(&proxy, &put).await;
        let mut server = origin.accept().await;
        assert!(head(&mut server).await.contains("Expect: 100-continue\r\n"));
        if says_it {
            server.write_all(b"HTTP/1.1 100 Continue\r\nX-From: origin\r\n\r\n").await.unwrap();
            assert_eq!(head(&mut client).await, "HTTP/1.1 100 Continue\r\nX-From: origin\r\n\r\n");
        } else {
            assert_eq!(head(&mut client).await, "HTTP/1.1 100 Continue\r\n\r\n");
            // An origin that says it too late is not heard twice.
            server.write_all(b"HTTP/1.1 100 Continue\r\nX-From: origin\r\n\r\n").await.unwrap();
        }
        client.write_all(b"hello").await.unwrap();
        assert_eq!(exactly(&mut server, 5).await, b"hello");
        server.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        assert_eq!(head(&mut client).await, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    }
}

/// HTTP-4: an origin that wants no upload is heard before the upload.
#[tokio::test]
async fn an_early_refusal_of_an_upload_reaches_the_client_and_ends_its_connection() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let put = format!("PUT {} HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n", origin.url("/"));
    let mut client = client(&proxy, put).await;
    let mut server = origin.accept().await;
    head(&mut server).await;
    server.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno").await.unwrap();
    let expected = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";
    assert_eq!(rest(&mut client).await, expected);
}

#[tokio::test]
async fn large_bodies_pass_whole_in_both_framings() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let data = pattern(1_500_000);
    let mut chunked = Vec::new();
    for chunk in data.chunks(70_001) {
        chunked.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\nDigest: x\r\n\r\n");
    for (field, body) in
        [("Transfer-Encoding: chunked".to_owned(), chunked), (format!("Content-Length: {}", data.len()), data)]
    {
        let request = format!("POST {} HTTP/1.1\r\n{field}\r\n\r\n", origin.url("/"));
        let client = client(&proxy, request).await;
        let (length, sent) = (body.len(), body.clone());
        let server = tokio::spawn({
            let field = field.clone();
            let mut server = origin.accept().await;
            async move {
                assert!(head(&mut server).await.ends_with(&format!("{field}\r\n\r\n")));
                let got = exactly(&mut server, length).await;
                server.write_all(format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n").as_bytes()).await.unwrap();
                server.write_all(&got).await.unwrap();
                server
            }
        });
        let (mut reader, mut writer) = client.into_split();
        let writing = tokio::spawn(async move {
            writer.write_all(&sent).await.unwrap();
            writer
        });
        let expected = [format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n").as_bytes(), &body].concat();
        let mut got = vec![0; expected.len()];
        within(reader.read_exact(&mut got)).await.unwrap();
        assert!(got == expected, "{field}");
        drop((within(writing).await.unwrap(), within(server).await.unwrap()));
    }
}

#[tokio::test]
async fn responses_without_a_body_leave_the_connection_ready_for_the_next() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let mut client = client(&proxy, "").await;
    let mut server = None;
    for (method, answers) in [
        ("HEAD", &["HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n"][..]),
        ("GET", &["HTTP/1.1 204 No Content\r\n\r\n"]),
        ("GET", &["HTTP/1.1 304 Not Modified\r\nContent-Length: 12345\r\n\r\n"]),
        ("GET", &["HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]),
        ("OPTIONS", &["HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"]),
    ] {
        client.write_all(format!("{method} {} HTTP/1.1\r\n\r\n", origin.url("/")).as_bytes()).await.unwrap();
        if server.is_none() {
            server = Some(origin.accept().await);
        }
        let server = server.as_mut().unwrap();
        assert!(head(server).await.starts_with(&format!("{method} / HTTP/1.1\r\n")));
        for answer in answers {
            server.write_all(answer.as_bytes()).await.unwrap();
            assert_eq!(head(&mut client).await, *answer);
        }
    }
    assert_eq!(proxy.flows.total(), 1);
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_the_payload_of_chunks_and_a_close() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let request = format!("GET {} HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", origin.url("/"));
    let mut client = client(&proxy, request).await;
    let mut server = origin.accept().await;
    head(&mut server).await;
    server.set_nodelay(true).unwrap();
    let answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for part in [answer, "5\r\n", "hello", "\r\n", "2;x=y\r\n, ", "\r\n0\r\n", "\r\n"] {
        server.write_all(part.as_bytes()).await.unwrap();
        // So that each arrives by itself.
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(rest(&mut client).await, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello, ");
}

#[tokio::test]
async fn a_kept_connection_that_the_origin_has_closed_costs_no_request() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let get = format!("GET {} HTTP/1.1\r\n\r\n", origin.url("/"));
    let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
    let mut client = client(&proxy, &get).await;
    let mut server = origin.accept().await;
    head(&mut server).await;
    server.write_all(answer).await.unwrap();
    head(&mut client).await;
    // The origin reads the second request and ends without an answer, as one that was about to close does.
    client.write_all(get.as_bytes()).await.unwrap();
    head(&mut server).await;
    drop(server);
    let mut server = origin.accept().await;
    head(&mut server).await;
    server.write_all(answer).await.unwrap();
    assert_eq!(head(&mut client).await.as_bytes(), answer);
    // What must not be sent twice gets a connection of its own.
    client.write_all(get.replace("GET", "POST").as_bytes()).await.unwrap();
    let mut server = origin.accept().await;
    assert!(head(&mut server).await.starts_with("POST / "));
    drop(server);
    let text = rest(&mut client).await;
    assert!(text.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{text}");
    assert!(text.contains("Proxy-Status: Tandem; error=connection_terminated\r\n"), "{text}");
}

/// SOCKS-1, for HTTP
#[tokio::test]
async fn a_client_that_sends_byte_by_byte_is_served_like_any_other() {
    let (proxy, origin) = (proxy().await, shouting_origin().await);
    let mut tcp = client(&proxy, "").await;
    tcp.set_nodelay(true).unwrap();
    for byte in format!("CONNECT origin.test:{} HTTP/1.1\r\nA: b\r\n\r\n", origin.port()).bytes() {
        tcp.write_all(&[byte]).await.unwrap();
        sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(head(&mut tcp).await, "HTTP/1.1 200 Connection established\r\n\r\n");
    tcp.write_all(b"hello").await.unwrap();
    tcp.shutdown().await.unwrap();
    assert_eq!(rest(&mut tcp).await, "HELLO");
}

/// SOCKS-1, for HTTP
#[tokio::test]
async fn data_sent_along_with_connect_reaches_the_origin() {
    let (proxy, origin) = (proxy().await, shouting_origin().await);
    let mut tcp = client(&proxy, format!("CONNECT origin.test:{} HTTP/1.1\r\n\r\nearly ", origin.port())).await;
    head(&mut tcp).await;
    tcp.write_all(b"and late").await.unwrap();
    tcp.shutdown().await.unwrap();
    assert_eq!(rest(&mut tcp).await, "EARLY AND LATE");
}
