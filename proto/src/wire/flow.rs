//! Control stream and flow headers: what the two ends say to each other on QUIC streams.
//!
//! The first stream of a session is its control stream ([`ControlMessage`]); every later one is a flow that opens with a
//! request and its answer ([`Target`], [`OpenError`]). All of it is specified in `docs/PROTOCOL.md`, "Control stream" and
//! "Flows".
//!
//! Decoding takes whatever bytes have arrived and answers with a message and its length, with `None` while the message is
//! not whole, or with an error that names the field. Integers are big-endian; lengths are bytes.

mod bytes;
mod close;
mod control_stream;
mod measure;
mod request;
mod target;

pub use bytes::DecodeError;
pub use close::CloseCode;
pub use control_stream::{
    ControlMessage, FRAME_HEAD, GoingAway, Hello, MAX_FRAME, MAX_REASON, MAX_TOKEN, MAX_VERSION_TEXT, Refused,
    RefusedReason, Update, VERSION, VersionRange, Welcome, frame_length,
};
pub use measure::{
    FEATURE_MEASURE, GRANT_LEN, Grant, MAX_MEASURE_SECONDS, Measure, TCP_HEAD, TICKET_LEN, UPLOAD_REPORT_MS,
    decode_tcp_head,
};
pub use request::{
    REQUEST_HEAD, Request, decode_answer, decode_request, encode_answer, encode_request, request_length,
};
pub use target::{Host, MAX_NAME, Target, TargetError};

use serde::{Deserialize, Serialize};

/// Why the relay did not connect a flow; each inbound turns it into its own reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum OpenError {
    /// The target refused the connection.
    #[error("the target refused the connection")]
    Refused,
    /// The relay has no route to the target.
    #[error("the relay has no route to the target")]
    NoRoute,
    /// The name does not resolve.
    #[error("the target's name was not found")]
    NameNotFound,
    /// The target did not answer in time.
    #[error("the target did not answer in time")]
    TimedOut,
    /// The relay's access rules forbid the target.
    #[error("the relay's rules forbid the target")]
    Forbidden,
    /// A limit of the relay is reached.
    #[error("a limit of the relay is reached")]
    Limit,
    /// Anything else: the relay's own failure, or a request that it does not understand.
    #[error("the relay could not serve the request")]
    Internal,
}
