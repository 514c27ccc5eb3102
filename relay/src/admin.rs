//! What the relay tells its operator's tools, over HTTP on a loopback address: `/metrics` for Prometheus, `/healthz` (the
//! program works) and `/readyz` (it takes new clients; 503 once it was told to stop).
//!
//! It tells nothing of clients and targets, and can change nothing. It is for this machine: whoever asks needs no password,
//! so other addresses are refused as configuration is read.

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics;
use crate::serve::Monitor;

/// Answers requests for as long as it is polled.
///
/// # Errors
/// When the listener fails for good.
pub async fn serve(listener: TcpListener, monitor: Monitor, drain: CancellationToken) -> std::io::Result<()> {
    let metrics = move || async move { ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], monitor.metrics()) };
    let ready = move || async move {
        match drain.is_cancelled() {
            false => (StatusCode::OK, "ready\n"),
            true => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        }
    };
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready));
    axum::serve(listener, router).await
}
