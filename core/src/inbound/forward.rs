//! A static forward: whoever connects is joined to one fixed target.
//!
//! The protocol has no words for a failure, so a connection whose flow cannot be opened is reset.

use tandem_proto::wire::flow::Target;
use tokio::net::TcpStream;

use super::Shared;
use crate::pump::{TcpLike, pump_counted};

pub(super) async fn serve(tcp: TcpStream, target: &Target, shared: &Shared) {
    tcp.reset_on_drop(true);
    if let Some(Ok(flow)) = shared.open(&tcp, target).await {
        let stats = pump_counted(flow, tcp, shared.flows.count()).await;
        tracing::debug!(%target, ?stats, "flow ended");
    }
}
