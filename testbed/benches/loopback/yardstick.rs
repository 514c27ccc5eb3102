//! The least proxy with the same QUIC library and the same two TCP hops: what everything is measured against.
//!
//! A stream for each TCP connection, the library's defaults, no protocol of its own. Bytes are moved through buffers as
//! large as the product's: a proxy with one system call for each QUIC packet would be too easy to beat.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tandem_proto::congestion::Algorithm;
use tandem_testbed::Identity;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::child::answer;
use crate::ends::udp_socket;

const SEED: [u8; 32] = [1; 32];
/// The name in the identity's certificate.
const NAME: &str = "relay.test";
/// As large as the product's reads of TCP.
const BUFFER_BYTES: usize = 128 * 1024;

/// The end next to the TCP server. Ready with its address.
pub(crate) async fn relay(target: &str, congestion: Algorithm) -> Result<()> {
    let target: SocketAddr = target.parse().context("the target")?;
    let identity = Identity::from_seed(SEED);
    let key = PrivatePkcs8KeyDer::from(identity.key);
    let mut config = ServerConfig::with_single_cert(vec![CertificateDer::from(identity.certificate)], key.into())?;
    config.transport_config(transport(congestion));
    let endpoint = endpoint(Some(config))?;
    let address = endpoint.local_addr()?;
    tokio::spawn(async move {
        while let Some(incoming) = endpoint.accept().await {
            tokio::spawn(serve(incoming, target));
        }
    });
    answer(address.to_string(), String::new).await
}

async fn serve(incoming: quinn::Incoming, target: SocketAddr) -> Result<()> {
    let connection = incoming.await?;
    // Until the client closes the connection.
    while let Ok((send, mut receive)) = connection.accept_bi().await {
        tokio::spawn(async move {
            receive.read_exact(&mut [0; 1]).await?;
            join(TcpStream::connect(target).await?, send, receive).await
        });
    }
    Ok(())
}

/// The end next to the TCP client. Ready with the address that it listens on.
pub(crate) async fn client(relay: &str, congestion: Algorithm) -> Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(Identity::from_seed(SEED).certificate))?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    config.transport_config(transport(congestion));
    let endpoint = endpoint(None)?;
    let connection = endpoint.connect_with(config, relay.parse().context("the relay's address")?, NAME)?.await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let connection = connection.clone();
            tokio::spawn(async move {
                let (mut send, receive) = connection.open_bi().await?;
                // The relay learns of a stream by its first byte, and the target of this download speaks first.
                send.write_all(&[0]).await?;
                join(tcp, send, receive).await
            });
        }
    });
    answer(address.to_string(), String::new).await
}

/// An endpoint on a socket like the product's.
fn endpoint(server: Option<ServerConfig>) -> std::io::Result<Endpoint> {
    Endpoint::new(EndpointConfig::default(), server, udp_socket()?, Arc::new(TokioRuntime))
}

fn transport(congestion: Algorithm) -> Arc<TransportConfig> {
    let factory: Arc<dyn ControllerFactory + Send + Sync> = match congestion {
        Algorithm::Cubic => Arc::new(CubicConfig::default()),
        Algorithm::NewReno => Arc::new(NewRenoConfig::default()),
        // The only one it has.
        Algorithm::Bbr1 | Algorithm::Bbr2 | Algorithm::Bbr3 | Algorithm::Bbr3Draft | Algorithm::BbrCws => {
            Arc::new(BbrConfig::default())
        }
    };
    let mut config = TransportConfig::default();
    config.congestion_controller_factory(factory);
    Arc::new(config)
}

/// Moves bytes both ways until both have ended.
async fn join(tcp: TcpStream, mut send: quinn::SendStream, mut receive: quinn::RecvStream) -> Result<()> {
    tcp.set_nodelay(true)?;
    let (mut read, mut write) = tcp.into_split();
    let up = async {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            match read.read(&mut buffer).await? {
                0 => break,
                length => send.write_all(&buffer[..length]).await?,
            }
        }
        send.finish()?;
        anyhow::Ok(())
    };
    let down = async {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Some(length) = receive.read(&mut buffer).await? {
            write.write_all(&buffer[..length]).await?;
        }
        write.shutdown().await?;
        anyhow::Ok(())
    };
    tokio::try_join!(up, down)?;
    Ok(())
}
