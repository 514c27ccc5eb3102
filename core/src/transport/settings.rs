//! QUIC's settings for a session, with their reasons.

use std::sync::Arc;
use std::time::Duration;

use quinn::{EndpointConfig, IdleTimeout, MtuDiscoveryConfig, TransportConfig, VarInt};
use quinn_proto::RandomConnectionIdGenerator;
use ring::hmac;
use tandem_proto::keys::Role;

use super::congestion::CongestionHandle;

/// Most flows a client may have open at once, the control stream included; more wait for their turn.
pub const STREAMS: u32 = 2_048;

/// How many it may open at first: QUIC keeps a place for each from the beginning, and most sessions are idle. The relay
/// allows more as they are used ([`super::Connection::allow_streams`]).
pub const FIRST_STREAMS: u32 = 100;

/// What one flow may have on its way: a slow reader holds back no more than this.
const FLOW_WINDOW: u32 = 4 << 20;

/// What all flows of a session together may have on their way: slow readers must not use up what others need, nor all
/// memory.
const SESSION_WINDOW: u32 = 64 * FLOW_WINDOW;

/// What a client may have on its way before a relay knows who it is: more than the first flights of any sender.
const FIRST_WINDOW: u32 = 64 << 10;

/// What a sender may have on its way: four times a bandwidth-delay product of 300 Mbit/s and 100 ms.
pub(super) const SEND_WINDOW: u64 = 16 << 20;

/// A session outlives an outage of this length.
const IDLE_TIMEOUT_MS: u32 = 60_000;

/// Keeps the session from idling out; NATs are kept open by the paths' own pings.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// Largest QUIC datagram: with our header, UDP and IPv6 it fills an Ethernet frame.
const LARGEST_DATAGRAM: u16 = 1_500 - 48 - tandem_proto::wire::header::HEADER_LEN as u16;

/// When quinn's search for the MTU begins anew.
const MTU_SEARCH: Duration = Duration::from_secs(1);

/// Connection IDs have one length from the first release on, so that a layout for load balancers fits later.
const CONNECTION_ID_LEN: usize = 8;

/// Settings of an endpoint. With the `identity` of a relay, its stateless resets stay valid over a restart.
pub(super) fn endpoint(seed: Option<[u8; 32]>, identity: Option<&[u8]>) -> EndpointConfig {
    let mut config = match identity {
        Some(identity) => {
            let secret = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, identity), b"tandem/1 stateless reset");
            EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref())))
        }
        None => EndpointConfig::default(),
    };
    config.grease_quic_bit(false).cid_generator(|| Box::new(RandomConnectionIdGenerator::new(CONNECTION_ID_LEN)));
    if let Some(seed) = seed {
        config.rng_seed(Some(seed));
    }
    config
}

pub(super) fn transport(role: Role, congestion: &CongestionHandle, seed: u64) -> Arc<TransportConfig> {
    let mut mtu = MtuDiscoveryConfig::default();
    // Each path's own probes tell what passes, and larger datagrams are not sent: until they are through, quinn's probes
    // fail, and random loss can look like a black hole to it. So its search begins again soon, in few steps.
    mtu.upper_bound(LARGEST_DATAGRAM).minimum_change(100).interval(MTU_SEARCH).black_hole_cooldown(MTU_SEARCH);
    let mut config = TransportConfig::default();
    // Streams are opened by clients alone. A relay's sessions begin small: nobody knows yet who they are.
    let (streams, receive_window, send_window) = match role {
        Role::Client => (0, SESSION_WINDOW, SEND_WINDOW),
        Role::Relay => (FIRST_STREAMS, FIRST_WINDOW, FIRST_WINDOW.into()),
    };
    config
        .max_concurrent_bidi_streams(streams.into())
        .max_concurrent_uni_streams(0u8.into())
        .stream_receive_window(FLOW_WINDOW.into())
        .receive_window(receive_window.into())
        .send_window(send_window)
        .max_idle_timeout(Some(IdleTimeout::from(VarInt::from_u32(IDLE_TIMEOUT_MS))))
        .initial_rtt(Duration::from_millis(100))
        .mtu_discovery_config(Some(mtu))
        .datagram_receive_buffer_size(None)
        .congestion_controller_factory(congestion.factory(seed));
    if role == Role::Client {
        config.keep_alive_interval(Some(KEEP_ALIVE));
    }
    Arc::new(config)
}
