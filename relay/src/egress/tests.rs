//! Tests of the real egress, against this machine's loopback.

use tokio::net::TcpListener;

use super::*;

fn egress(allowed: &[&str]) -> TcpEgress {
    let allowed = allowed.iter().map(|net| net.parse().unwrap()).collect();
    TcpEgress::new(AccessRules::new(allowed), OwnAddresses::default())
}

async fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// SEC-1
#[tokio::test]
async fn loopback_is_refused_by_address_and_by_name_without_a_packet() {
    let (listener, port) = listener().await;
    let egress = egress(&[]);
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "localhost", "tenant.localhost"] {
        let target = format!("{host}:{port}").parse().unwrap();
        assert_eq!(egress.connect(&target).await.map(drop), Err(OpenError::Forbidden), "{host}");
    }
    let name = Target { host: Host::Name("127.0.0.1".to_owned()), port };
    assert_eq!(egress.connect(&name).await.map(drop), Err(OpenError::Forbidden));
    let accepted = tokio::time::timeout(Duration::from_millis(50), listener.accept()).await;
    assert!(accepted.is_err(), "a connection was made");
}

#[tokio::test]
async fn an_allowed_network_is_reached_by_address_and_by_name() {
    let (listener, port) = listener().await;
    let egress = egress(&["127.0.0.0/8"]);
    for host in ["127.0.0.1", "localhost"] {
        let target = format!("{host}:{port}").parse().unwrap();
        let connection = egress.connect(&target).await.unwrap();
        let (_, peer) = listener.accept().await.unwrap();
        assert_eq!(connection.local_addr().unwrap(), peer);
    }
}

/// SOCKS-6
#[tokio::test]
async fn a_closed_port_is_told_as_refused() {
    let (listener, port) = listener().await;
    drop(listener);
    let target = format!("127.0.0.1:{port}").parse().unwrap();
    assert_eq!(egress(&["127.0.0.0/8"]).connect(&target).await.map(drop), Err(OpenError::Refused));
}

/// SOCKS-6
#[test]
fn io_errors_keep_their_meaning() {
    let meaning = |kind: io::ErrorKind| open_error(&kind.into());
    assert_eq!(meaning(io::ErrorKind::ConnectionRefused), OpenError::Refused);
    assert_eq!(meaning(io::ErrorKind::HostUnreachable), OpenError::NoRoute);
    assert_eq!(meaning(io::ErrorKind::NetworkUnreachable), OpenError::NoRoute);
    assert_eq!(meaning(io::ErrorKind::TimedOut), OpenError::TimedOut);
    assert_eq!(meaning(io::ErrorKind::Other), OpenError::Internal);
    #[cfg(unix)]
    assert_eq!(open_error(&io::Error::from_raw_os_error(libc::EMFILE)), OpenError::Limit);
}
