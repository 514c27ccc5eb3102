//! What nobody may take without end: time, room, and the proxy itself without its password.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tandem_proto::pairing::Secret;

use super::*;
use crate::inbound::Credentials;
use crate::inbound::waiting::MAX_IDLE;

/// HTTP-5
#[tokio::test]
async fn heads_up_to_32_kib_pass_and_larger_ones_get_431_and_a_close() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let line = format!("GET {} HTTP/1.1\r\n", origin.url("/"));
    let value = "x".repeat(LIMITS.fields - "A: \r\n".len());
    let mut fits = client(&proxy, format!("{line}A: {value}\r\n\r\n")).await;
    let mut server = origin.accept().await;
    assert!(head(&mut server).await.ends_with(&format!("A: {value}\r\n\r\n")));
    server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    head(&mut fits).await;
    // Many small ones as well.
    fits.write_all(format!("{line}{}\r\n", "a:\r\n".repeat(LIMITS.fields / 4)).as_bytes()).await.unwrap();
    assert_eq!(head(&mut server).await.matches("a: \r\n").count(), LIMITS.fields / 4);

    for head in [format!("{line}A: {value}x\r\n\r\n"), format!("{line}A: {}", "x".repeat(200_000))] {
        let text = rest(&mut client(&proxy, head).await).await;
        assert!(text.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{text}");
    }
    let text = rest(&mut client(&proxy, format!("GET http://a.test/{}", "x".repeat(LIMITS.line))).await).await;
    assert!(text.starts_with("HTTP/1.1 414 URI Too Long\r\n"), "{text}");
}

/// SEC-3
#[tokio::test(start_paused = true)]
async fn a_client_that_trickles_its_head_is_closed_after_thirty_seconds_in_all() {
    let proxy = start(Service::Proxy(None), Silent).await;
    let begin = Instant::now();
    let (mut reader, mut writer) = client(&proxy, "GET http://a.test/ HTTP/1.1\r\nA: ").await.into_split();
    let trickle = tokio::spawn(async move {
        while writer.write_all(b"x").await.is_ok() {
            sleep(Duration::from_secs(4)).await;
        }
    });
    let mut text = String::new();
    // A byte that arrives after the close may turn it into a reset.
    let _ = reader.read_to_string(&mut text).await;
    let took = begin.elapsed();
    assert!(text.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{text}");
    assert!((HANDSHAKE_LIMIT..HANDSHAKE_LIMIT + Duration::from_secs(5)).contains(&took), "{took:?}");
    trickle.abort();
}

/// SEC-3
#[tokio::test(start_paused = true)]
async fn a_client_that_says_nothing_is_closed_after_thirty_seconds() {
    let proxy = start(Service::Proxy(None), Silent).await;
    let begin = Instant::now();
    let mut silent = client(&proxy, "").await;
    assert_eq!(silent.read(&mut [0; 1]).await.unwrap(), 0);
    assert!((HANDSHAKE_LIMIT..HANDSHAKE_LIMIT * 2).contains(&begin.elapsed()), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_a_minute() {
    let proxy = proxy().await;
    let mut idle = client(&proxy, "GET http://unknown.test/ HTTP/1.1\r\n\r\n").await;
    let head = head(&mut idle).await;
    let length = head.split_once("Content-Length: ").unwrap().1.trim().parse().unwrap();
    exactly(&mut idle, length).await;
    let begin = Instant::now();
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap(), 0);
    assert!((IDLE_LIMIT - Duration::from_secs(1)..IDLE_LIMIT * 2).contains(&begin.elapsed()), "{:?}", begin.elapsed());
}

/// SEC-3
#[tokio::test]
async fn eight_hundred_half_heads_and_many_idle_clients_keep_no_good_one_out() {
    let needed = 2 * (800 + MAX_IDLE as u64 + 10) + 200;
    let limit = rlimit::increase_nofile_limit(needed).unwrap();
    assert!(limit >= needed, "this test needs {needed} descriptors and may have {limit}");
    let (proxy, origin) = (proxy().await, shouting_origin().await);
    let mut dawdlers = Vec::new();
    for _ in 0..800 {
        dawdlers.push(client(&proxy, "GET http://a.test/ HT").await);
    }
    let mut idle = Vec::new();
    for _ in 0..MAX_IDLE + 10 {
        let mut tcp = client(&proxy, "GET http://unknown.test/ HTTP/1.1\r\n\r\n").await;
        assert!(head(&mut tcp).await.starts_with("HTTP/1.1 502 "));
        idle.push(tcp);
    }
    let mut good = client(&proxy, format!("CONNECT origin.test:{} HTTP/1.1\r\n\r\nstill here", origin.port())).await;
    head(&mut good).await;
    good.shutdown().await.unwrap();
    assert_eq!(rest(&mut good).await, "STILL HERE");
    // Too many idle ones made room for each other, the longest idle first.
    let text = rest(&mut idle[0]).await;
    assert!(text.ends_with('\n'), "{text}");
}

/// SOCKS-2, for HTTP
#[tokio::test]
async fn with_a_password_set_a_client_is_asked_for_it_and_served_with_it() {
    let credentials = Credentials { user: "ann".to_owned(), password: Secret::new("secret".to_owned()) };
    let proxy = start(Service::Proxy(Some(credentials)), origin_name()).await;
    let origin = Played::new().await;
    let get = |field: &str| format!("GET {} HTTP/1.1\r\n{field}\r\n", origin.url("/"));
    let mut tcp = client(&proxy, get("")).await;
    let refusal = head(&mut tcp).await;
    assert!(refusal.starts_with("HTTP/1.1 407 Proxy Authentication Required\r\n"), "{refusal}");
    assert!(refusal.contains("\r\nProxy-Authenticate: Basic realm=\"Tandem\""), "{refusal}");
    let length = refusal.split_once("Content-Length: ").unwrap().1.trim().parse().unwrap();
    exactly(&mut tcp, length).await;
    // The same connection goes on, as browsers expect.
    let field = format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode("ann:secret"));
    tcp.write_all(get(&field).as_bytes()).await.unwrap();
    let mut server = origin.accept().await;
    let asked = head(&mut server).await;
    assert!(!asked.to_ascii_lowercase().contains("authorization"), "{asked}");
    server.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    assert_eq!(head(&mut tcp).await, "HTTP/1.1 204 No Content\r\n\r\n");
    // And SOCKS5 without it is refused as before.
    let mut socks = client(&proxy, [5, 1, 0]).await;
    assert_eq!(exactly(&mut socks, 2).await, [5, 0xff]);
}

/// How many and how often is tried in virtual time; here, that it is the whole proxy's.
#[tokio::test]
async fn after_many_wrong_passwords_none_is_looked_at_for_a_while() {
    let credentials = Credentials { user: "ann".to_owned(), password: Secret::new("secret".to_owned()) };
    let proxy = start(Service::Proxy(Some(credentials)), Silent).await;
    let mut braked = None;
    for guess in 0..1_000 {
        // By SOCKS5, and by HTTP: it is one budget.
        let mut socks = client(&proxy, format!("\x05\x01\x02\x01\x03ann\x07{guess:07}")).await;
        assert_eq!(exactly(&mut socks, 4).await, [5, 2, 1, 1]);
        let code = STANDARD.encode(format!("ann:{guess}"));
        let field = format!("Proxy-Authorization: Basic {code}\r\n");
        let mut http = client(&proxy, format!("CONNECT origin.test:80 HTTP/1.1\r\n{field}\r\n")).await;
        let answer = head(&mut http).await;
        if answer.starts_with("HTTP/1.1 429 Too Many Requests\r\n") {
            assert!(answer.contains("\r\nRetry-After: 10\r\n"), "{answer}");
            braked = Some(guess);
            break;
        }
        assert!(answer.starts_with("HTTP/1.1 407 "), "{answer}");
    }
    assert!(braked.is_some_and(|guess| guess >= 4), "{braked:?}");
    // Who gives no password is asked for it as before.
    let mut http = client(&proxy, "CONNECT origin.test:80 HTTP/1.1\r\n\r\n").await;
    assert!(head(&mut http).await.starts_with("HTTP/1.1 407 "));
}

/// A page in a browser can make it send such requests to the proxy's port; nothing comes of them but an explanation.
#[tokio::test]
async fn a_web_page_gets_nothing_from_the_proxys_port() {
    let (proxy, origin) = (proxy().await, Played::new().await);
    let forged = format!("GET {} HTTP/1.1\r\n\r\n", origin.url("/"));
    for request in [
        format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.local),
        format!("GET / HTTP/1.1\r\nHost: origin.test:{}\r\n\r\n", origin.port()),
        // The body of a form is no second request.
        format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{forged}", forged.len()),
        format!("POST / HTTP/1.1\r\nHost: x\r\n\r\n{forged}"),
    ] {
        let text = rest(&mut client(&proxy, request).await).await;
        assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text}");
        assert_eq!(text.matches("HTTP/1.1 ").count(), 1, "{text}");
        assert!(!text.to_ascii_lowercase().contains("access-control"), "{text}");
    }
    assert_eq!(proxy.flows.total(), 0);
}
