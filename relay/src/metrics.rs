//! What the relay counts, for Prometheus: a plain structure with a text form.
//!
//! Names follow Prometheus' conventions: base units, `_total` for what only grows. Nothing is told per device, client or
//! target, so that the number of series is fixed and a scrape reveals nobody. `docs/RELAY.md` lists them.

use std::time::Duration;

use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder, histogram_opts, opts,
};
use tandem_core::transport::HandshakeCounts;
use tandem_proto::wire::flow::{OpenError, RefusedReason};

/// From a target in the same building to one that hardly answers; a connection takes 10 s at most.
const CONNECT_BUCKETS: [f64; 9] = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// The client ended it.
    Client,
    /// The client fell silent or closed the connection.
    Lost,
    /// The token was revoked.
    Revoked,
    /// The token expired.
    Expired,
    /// Another session of the device took its place.
    Replaced,
    /// The client did not keep to the protocol.
    Protocol,
    /// The relay stopped.
    Stopped,
}

impl SessionEnd {
    const ALL: [SessionEnd; 7] = [
        SessionEnd::Client,
        SessionEnd::Lost,
        SessionEnd::Revoked,
        SessionEnd::Expired,
        SessionEnd::Replaced,
        SessionEnd::Protocol,
        SessionEnd::Stopped,
    ];

    fn label(self) -> &'static str {
        match self {
            SessionEnd::Client => "client",
            SessionEnd::Lost => "lost",
            SessionEnd::Revoked => "revoked",
            SessionEnd::Expired => "expired",
            SessionEnd::Replaced => "replaced",
            SessionEnd::Protocol => "protocol",
            SessionEnd::Stopped => "stopped",
        }
    }
}

/// Everything that is counted.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// Sessions that are open.
    pub(crate) sessions: IntGauge,
    sessions_opened: IntCounter,
    sessions_closed: IntCounterVec,
    clients_refused: IntCounterVec,
    handshakes: IntCounterVec,
    /// Flows that are open, or being opened.
    pub(crate) flows: IntGauge,
    flows_opened: IntCounterVec,
    connect: Histogram,
    received: IntCounter,
    sent: IntCounter,
    heap: IntGauge,
    draining: IntGauge,
}

impl Metrics {
    /// All at zero; `sessions_max` is the limit.
    pub(crate) fn new(sessions_max: u32) -> Self {
        let registry = Registry::new();
        let gauge = |name: &str, help: &str| {
            register(&registry, IntGauge::with_opts(Opts::new(format!("tandem_relay_{name}"), help)))
        };
        let counter = |name: &str, help: &str| {
            register(&registry, IntCounter::with_opts(Opts::new(format!("tandem_relay_{name}"), help)))
        };
        let counters = |name: &str, help: &str, label: &str, values: Vec<&str>| {
            let options = Opts::new(format!("tandem_relay_{name}"), help);
            let counters = register(&registry, IntCounterVec::new(options, &[label]));
            // A series that begins with its first event hides that event from rates.
            values.iter().for_each(|value| counters.with_label_values(&[*value]).reset());
            counters
        };
        let info = opts!("tandem_relay_build_info", "The program that runs.").const_label("version", VERSION);
        register(&registry, IntGauge::with_opts(info)).set(1);
        gauge("sessions_max", "Sessions that may be open at once.").set(sessions_max.into());
        let connect: HistogramOpts = histogram_opts!(
            "tandem_relay_flow_connect_duration_seconds",
            "Time from a flow's request to its answer, name resolution included.",
            CONNECT_BUCKETS.to_vec()
        );
        #[cfg(target_os = "linux")]
        registry
            .register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
            .expect("every metric is registered once");
        Self {
            sessions: gauge("sessions", "Sessions that are open."),
            sessions_opened: counter("sessions_opened_total", "Clients that were welcomed."),
            sessions_closed: counters(
                "sessions_closed_total",
                "Sessions that ended, by reason.",
                "reason",
                SessionEnd::ALL.map(SessionEnd::label).to_vec(),
            ),
            clients_refused: counters(
                "clients_refused_total",
                "Connections that got no session, by reason.",
                "reason",
                RefusedReason::ALL.map(refused_label).into_iter().chain([NO_HELLO]).collect(),
            ),
            handshakes: counters(
                "handshakes_total",
                "Newcomers' first datagrams and their handshakes, by outcome.",
                "outcome",
                vec!["completed", "failed", "retried", "dropped", "refused"],
            ),
            flows: gauge("flows", "Flows that are open or being opened."),
            flows_opened: counters(
                "flows_opened_total",
                "Flows that were asked for, by the answer.",
                "outcome",
                OPEN_ERRORS.map(open_label).into_iter().chain([CONNECTED]).collect(),
            ),
            connect: register(&registry, Histogram::with_opts(connect)),
            received: counter("received_bytes_total", "Stream bytes that came from clients."),
            sent: counter("sent_bytes_total", "Stream bytes that went to clients."),
            heap: gauge("heap_bytes", "Memory in use, against limits.memory_mib; 0 where the system does not tell."),
            draining: gauge("draining", "1 once the relay was told to stop."),
            registry,
        }
    }

    pub(crate) fn session_opened(&self) {
        self.sessions.inc();
        self.sessions_opened.inc();
    }

    pub(crate) fn session_closed(&self, end: SessionEnd) {
        self.sessions.dec();
        self.sessions_closed.with_label_values(&[end.label()]).inc();
    }

    /// A connection got no session; `None` if it said no acceptable Hello.
    pub(crate) fn client_refused(&self, reason: Option<RefusedReason>) {
        self.clients_refused.with_label_values(&[reason.map_or(NO_HELLO, refused_label)]).inc();
    }

    /// A flow was answered so long after its request.
    pub(crate) fn flow_answered(&self, answer: Result<(), OpenError>, after: Duration) {
        self.flows_opened.with_label_values(&[answer.err().map_or(CONNECTED, open_label)]).inc();
        self.connect.observe(after.as_secs_f64());
    }

    pub(crate) fn moved(&self, sent: u64, received: u64) {
        self.sent.inc_by(sent);
        self.received.inc_by(received);
    }

    pub(crate) fn set_handshakes(&self, counts: HandshakeCounts) {
        let HandshakeCounts { completed, failed, retried, dropped, refused } = counts;
        let all = [completed, failed, retried, dropped, refused];
        for (outcome, count) in ["completed", "failed", "retried", "dropped", "refused"].into_iter().zip(all) {
            let counter = self.handshakes.with_label_values(&[outcome]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    pub(crate) fn set_heap(&self, bytes: u64) {
        self.heap.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn set_draining(&self, draining: bool) {
        self.draining.set(draining.into());
    }

    /// Prometheus' text format.
    pub(crate) fn to_text(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
const NO_HELLO: &str = "no_hello";
const CONNECTED: &str = "connected";

/// The type of the text format.
pub(crate) const CONTENT_TYPE: &str = prometheus::TEXT_FORMAT;

fn register<C: prometheus::core::Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let collector = made.expect("the names of metrics are valid");
    registry.register(Box::new(collector.clone())).expect("every metric is registered once");
    collector
}

fn refused_label(reason: RefusedReason) -> &'static str {
    match reason {
        RefusedReason::BadToken => "bad_token",
        RefusedReason::Expired => "expired",
        RefusedReason::NotYetValid => "not_yet_valid",
        RefusedReason::Revoked => "revoked",
        RefusedReason::Version => "version",
        RefusedReason::Full => "full",
        RefusedReason::Other => "other",
    }
}

const OPEN_ERRORS: [OpenError; 7] = [
    OpenError::Refused,
    OpenError::NoRoute,
    OpenError::NameNotFound,
    OpenError::TimedOut,
    OpenError::Forbidden,
    OpenError::Limit,
    OpenError::Internal,
];

fn open_label(error: OpenError) -> &'static str {
    match error {
        OpenError::Refused => "refused",
        OpenError::NoRoute => "no_route",
        OpenError::NameNotFound => "name_not_found",
        OpenError::TimedOut => "timed_out",
        OpenError::Forbidden => "forbidden",
        OpenError::Limit => "limit",
        OpenError::Internal => "internal",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_told_and_every_series_is_there_from_the_beginning() {
        let metrics = Metrics::new(7);
        let before = metrics.to_text();
        metrics.session_opened();
        metrics.session_closed(SessionEnd::Revoked);
        metrics.client_refused(None);
        metrics.flow_answered(Err(OpenError::Forbidden), Duration::from_millis(3));
        metrics.moved(5, 6);
        let counts = HandshakeCounts { retried: 4, ..HandshakeCounts::default() };
        metrics.set_handshakes(counts);
        metrics.set_handshakes(counts);
        let after = metrics.to_text();
        let changed = [
            "tandem_relay_sessions_opened_total 1",
            "tandem_relay_sessions_closed_total{reason=\"revoked\"} 1",
            "tandem_relay_clients_refused_total{reason=\"no_hello\"} 1",
            "tandem_relay_flows_opened_total{outcome=\"forbidden\"} 1",
            "tandem_relay_flow_connect_duration_seconds_count 1",
            "tandem_relay_sent_bytes_total 5",
            "tandem_relay_received_bytes_total 6",
            "tandem_relay_handshakes_total{outcome=\"retried\"} 4",
        ];
        for line in changed {
            assert!(after.contains(&format!("\n{line}\n")), "{line} in\n{after}");
            let (series, _) = line.rsplit_once(' ').unwrap();
            assert!(before.contains(&format!("\n{series} 0\n")), "{series} in\n{before}");
        }
        assert!(before.contains("tandem_relay_sessions_max 7") && before.contains("tandem_relay_build_info{version="));
    }
}
