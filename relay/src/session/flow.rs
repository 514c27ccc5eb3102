//! One flow: the request, the connection to its target, the bytes.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use prometheus::IntGauge;
use tandem_core::dial::{FlowRecv, FlowSend};
use tandem_core::pump::pump;
use tandem_core::transport::{RecvStream, Stream};
use tandem_proto::wire::flow::{OpenError, REQUEST_HEAD, Request, decode_request, encode_answer, request_length};
use tokio::time::{Instant, timeout};

use crate::egress::Egress;
use crate::measure::Job;
use crate::rate::{DeviceRate, Limited};
use crate::serve::Shared;

/// How long a request may take once its stream is there; a stream that never asks must not hold a place.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves a flow until both of its directions are done.
pub(super) async fn serve<E: Egress>(stream: Stream, relay: Arc<Shared<E>>, rate: Option<Arc<DeviceRate>>) {
    let Stream { mut send, mut recv } = stream;
    let _open = OpenFlow::new(&relay.metrics.flows);
    let asked = Instant::now();
    let opened = {
        let open = async {
            let request =
                timeout(REQUEST_TIMEOUT, read_request(&mut recv)).await.unwrap_or(Err(OpenError::TimedOut))?;
            match request {
                Request::Tcp(target) => {
                    let connection = relay.egress.connect(&target).await;
                    tracing::debug!(%target, outcome = ?connection.as_ref().map(drop), "flow");
                    Ok(Opened::Tcp(connection?))
                }
                Request::Measure(what) => {
                    let service = relay.measuring.as_ref().ok_or(OpenError::Forbidden)?;
                    Ok(Opened::Measure(service.judge(what)?))
                }
            }
        };
        tokio::select! {
            opened = open => opened,
            // The client has given up: nobody waits for the answer.
            _ = poll_fn(|cx| send.poll_stopped(cx)) => return,
        }
    };
    relay.metrics.flow_answered(opened.as_ref().map(drop).map_err(|error| *error), asked.elapsed());
    match opened {
        Ok(Opened::Tcp(connection)) => {
            // A stream that breaks here breaks the pump as well, which then resets the connection.
            if send.write_all(&[encode_answer(Ok(()))]).await.is_ok() {
                let stats = pump(Stream { send, recv }.into_flow(), Limited::new(connection, rate)).await;
                tracing::debug!(?stats, "flow ended");
            }
        }
        Ok(Opened::Measure(job)) => job.run(Stream { send, recv }).await,
        Err(error) => refuse(Stream { send, recv }, error).await,
    }
}

/// What a request has led to.
enum Opened<'r, C> {
    Tcp(C),
    Measure(Job<'r>),
}

/// Counts a flow for as long as it is there.
struct OpenFlow(IntGauge);

impl OpenFlow {
    fn new(open: &IntGauge) -> Self {
        open.inc();
        Self(open.clone())
    }
}

impl Drop for OpenFlow {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Answers a flow with an error.
pub(super) async fn refuse(stream: Stream, error: OpenError) {
    let Stream { mut send, mut recv } = stream;
    if send.write_all(&[encode_answer(Err(error))]).await.is_ok() {
        send.finish();
        recv.stop();
        // The answer is lost if the stream is dropped before the client has it and the session ends.
        let _ = poll_fn(|cx| send.poll_stopped(cx)).await;
    }
}

/// Takes exactly the request off the stream.
async fn read_request(recv: &mut RecvStream) -> Result<Request, OpenError> {
    let mut request = [0; REQUEST_HEAD + u8::MAX as usize];
    let (head, rest) = request.split_first_chunk_mut::<REQUEST_HEAD>().expect("the array is longer than a head");
    recv.read_exact(head).await.map_err(|_| OpenError::Internal)?;
    let length = request_length(head).map_err(not_understood)?;
    recv.read_exact(&mut rest[..length - REQUEST_HEAD]).await.map_err(|_| OpenError::Internal)?;
    match decode_request(&request[..length]).map_err(not_understood)? {
        Some((request, _)) => Ok(request),
        None => Err(OpenError::Internal),
    }
}

fn not_understood(error: tandem_proto::wire::flow::DecodeError) -> OpenError {
    tracing::debug!(%error, "request not understood");
    OpenError::Internal
}
