//! How connections end: TCP's endings through the proxy, failures in words, and a stop.

use tandem_proto::wire::flow::OpenError;
use tokio::sync::Notify;

use super::*;

/// TCP-1: through CONNECT the halves end one by one.
#[tokio::test]
async fn a_tunnel_keeps_half_closed_connections_open() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let mut client = client(&proxy, format!("CONNECT origin.test:{} HTTP/1.1\r\n\r\n", origin.port())).await;
    head(&mut client).await;
    let mut server = origin.accept().await;
    client.write_all(b"request").await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(rest(&mut server).await, "request");
    server.write_all(b"reply").await.unwrap();
    drop(server);
    assert_eq!(rest(&mut client).await, "reply");
}

/// TCP-1: a client that finishes writing behind its request still gets the whole response.
#[tokio::test]
async fn a_client_that_finishes_after_its_request_gets_the_whole_response() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let mut client =
        client(&proxy, format!("POST {} HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", origin.url("/"))).await;
    client.shutdown().await.unwrap();
    let mut server = origin.accept().await;
    head(&mut server).await;
    assert_eq!(exactly(&mut server, 5).await, b"hello");
    sleep(Duration::from_millis(100)).await;
    server.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let body = String::from_utf8(vec![b'x'; 300_000]).unwrap();
    server.write_all(body.as_bytes()).await.unwrap();
    drop(server);
    // Nothing but the origin's clean end tells that this was all.
    let text = rest(&mut client).await;
    assert!(text == format!("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{body}"), "{} bytes", text.len());
}

/// TCP-2
#[tokio::test]
async fn a_tunnel_passes_resets_both_ways() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let connect = format!("CONNECT origin.test:{} HTTP/1.1\r\n\r\n", origin.port());
    for by_origin in [true, false] {
        let mut client = client(&proxy, &connect).await;
        head(&mut client).await;
        let mut server = origin.accept().await;
        let (resets, finds_out) = if by_origin { (server, &mut client) } else { (client, &mut server) };
        resets.reset_on_drop(true);
        drop(resets);
        assert_reset(finds_out).await;
    }
}

/// TCP-2
#[tokio::test]
async fn a_response_that_breaks_off_resets_the_client() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let get = format!("GET {} HTTP/1.1\r\n\r\n", origin.url("/"));
    for (answer, resets) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", false),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense", false),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", true),
    ] {
        let mut client = client(&proxy, &get).await;
        let mut server = origin.accept().await;
        head(&mut server).await;
        server.write_all(answer.as_bytes()).await.unwrap();
        if resets {
            // A reset overtakes what it follows.
            head(&mut client).await;
        }
        server.reset_on_drop(resets);
        drop(server);
        assert_reset(&mut client).await;
    }
}

/// TCP-2, the other way round.
#[tokio::test]
async fn a_client_that_resets_in_mid_exchange_resets_the_origin() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    for (method, fields) in [("GET", ""), ("POST", "Content-Length: 5\r\n")] {
        let client = client(&proxy, format!("{method} {} HTTP/1.1\r\n{fields}\r\n", origin.url("/"))).await;
        let mut server = origin.accept().await;
        head(&mut server).await;
        client.reset_on_drop(true);
        drop(client);
        assert_reset(&mut server).await;
    }
}

#[tokio::test]
async fn a_request_that_ends_too_early_resets_the_origin() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let mut client =
        client(&proxy, format!("POST {} HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf", origin.url("/"))).await;
    let mut server = origin.accept().await;
    head(&mut server).await;
    client.shutdown().await.unwrap();
    assert_reset(&mut server).await;
}

#[tokio::test]
async fn broken_chunks_of_a_request_get_400_and_reset_the_origin() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let request = format!("POST {} HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\n", origin.url("/"));
    let mut client = client(&proxy, request).await;
    let text = rest(&mut client).await;
    assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text}");
    let mut server = origin.accept().await;
    let error = within(server.read_to_end(&mut Vec::new())).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn what_is_no_http_gets_502() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    for (answer, error) in [
        ("SSH-2.0-OpenSSH_9.2\r\n\r\n", "http_protocol_error"),
        ("HTTP/1.1 200 OK\r\nA: ", "http_response_incomplete"),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", "http_upgrade_failed"),
        ("", "connection_terminated"),
    ] {
        let mut client = client(&proxy, format!("GET {} HTTP/1.1\r\n\r\n", origin.url("/"))).await;
        let mut server = origin.accept().await;
        head(&mut server).await;
        server.write_all(answer.as_bytes()).await.unwrap();
        drop(server);
        let text = rest(&mut client).await;
        assert!(text.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{text}");
        assert!(text.contains(&format!("Proxy-Status: Tandem; error={error}\r\n")), "{text}");
    }
}

/// SOCKS-6, for HTTP
#[tokio::test]
async fn a_failure_reaches_the_client_as_its_status() {
    for (error, status) in [
        (DialError::Open(OpenError::Refused), "502 Bad Gateway"),
        (DialError::Open(OpenError::NoRoute), "502 Bad Gateway"),
        (DialError::Open(OpenError::NameNotFound), "502 Bad Gateway"),
        (DialError::Open(OpenError::Forbidden), "403 Forbidden"),
        (DialError::Open(OpenError::Limit), "503 Service Unavailable"),
        (DialError::NotConnected, "503 Service Unavailable"),
    ] {
        let proxy = start(Service::Proxy(None), Failing(error.clone())).await;
        for line in ["CONNECT origin.test:443", "GET http://origin.test:443/"] {
            let mut client = client(&proxy, format!("{line} HTTP/1.1\r\nConnection: close\r\n\r\n")).await;
            let text = rest(&mut client).await;
            assert!(text.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{text}");
            assert!(text.ends_with(&format!("origin.test:443 was not reached: {error}\n")), "{text}");
        }
        // After a failure the connection can be used again.
        let mut client = client(&proxy, "GET http://origin.test/ HTTP/1.1\r\n\r\n".repeat(2)).await;
        for _ in 0..2 {
            let head = head(&mut client).await;
            let length = head.split_once("Content-Length: ").unwrap().1.trim().parse().unwrap();
            exactly(&mut client, length).await;
        }
        assert_eq!(proxy.flows.total(), 0);
    }
}

/// SOCKS-6, for HTTP
#[tokio::test(start_paused = true)]
async fn a_target_that_never_answers_gives_504_within_ten_seconds() {
    let proxy = start(Service::Proxy(None), Silent).await;
    let begin = Instant::now();
    let mut client = client(&proxy, "CONNECT origin.test:443 HTTP/1.1\r\n\r\n").await;
    let mut status = [0; 12];
    client.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 504");
    assert!(begin.elapsed() <= Duration::from_millis(10_100), "{:?}", begin.elapsed());
}

/// A dial that connects once it is allowed to.
struct Held(Arc<Notify>);

impl Dial for Held {
    fn open_tcp(&self, target: Target) -> Pin<Box<dyn Future<Output = Result<Flow, DialError>> + Send + '_>> {
        Box::pin(async {
            self.0.notified().await;
            origin_name().open_tcp(target).await
        })
    }
}

/// SOCKS-6, for HTTP
#[tokio::test]
async fn connect_succeeds_only_once_there_is_a_connection() {
    let (allowed, origin) = (Arc::new(Notify::new()), Played::new().await);
    let proxy = start(Service::Proxy(None), Held(Arc::clone(&allowed))).await;
    let mut client = client(&proxy, format!("CONNECT origin.test:{} HTTP/1.1\r\n\r\n", origin.port())).await;
    let early = tokio::time::timeout(Duration::from_millis(200), client.read_u8()).await;
    assert!(early.is_err(), "{early:?}");
    allowed.notify_one();
    assert_eq!(head(&mut client).await, "HTTP/1.1 200 Connection established\r\n\r\n");
}

/// TCP-3, for HTTP: a stop lets a response under way arrive and ends idle connections.
#[tokio::test]
async fn a_stop_lets_responses_end_and_closes_idle_connections() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let get = format!("GET {} HTTP/1.1\r\n\r\n", origin.url("/"));
    let mut idle = client(&proxy, &get).await;
    let mut server = origin.accept().await;
    head(&mut server).await;
    server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    head(&mut idle).await;
    let mut busy = client(&proxy, &get).await;
    let mut server = origin.accept().await;
    head(&mut server).await;

    proxy.stop.cancel();
    assert_eq!(rest(&mut idle).await, "");
    sleep(Duration::from_millis(500)).await;
    server.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nan answer").await.unwrap();
    let text = rest(&mut busy).await;
    assert!(text.ends_with("\r\n\r\nan answer"), "{text}");
    within(proxy.task).await.unwrap();
    assert_eq!(proxy.flows.open(), 0);
}

#[tokio::test]
async fn a_slow_reader_holds_the_origin_back() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let _client = client(&proxy, format!("GET {} HTTP/1.1\r\n\r\n", origin.url("/"))).await;
    let mut server = origin.accept().await;
    head(&mut server).await;
    server.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let (mut written, chunk) = (0, vec![0; 256 * 1024]);
    while tokio::time::timeout(Duration::from_millis(300), server.writable()).await.is_ok() {
        written += server.try_write(&chunk).unwrap_or(0);
        assert!(written < 64 << 20, "nothing held the origin back");
    }
}
