//! Congestion controllers as pure state machines; they know no QUIC library.
