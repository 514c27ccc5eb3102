//! The product's own programs over the kernel's networking, in namespaces; skipped, loudly, without root.
//!
//! What is asserted is that everything works and arrives, never how fast: that is measured by `cargo xtask cases`.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::time::Duration;

use tandem_netem::Direction;
use tandem_testbed::namespaces::{
    Bed, CELL, Capture, Client, Echo, ORIGIN, Origin, Plan, Programs, Relay, WIFI, Watched, connect_plainly, download,
    or_skip, upload,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Product {
    client: Client,
    _relay: Relay,
    _origin: Origin,
    bed: Bed,
}

async fn start(plan: &Plan, arguments: &[&str]) -> Product {
    let programs = Programs::beside_this_one().unwrap();
    let bed = Bed::build(plan).unwrap();
    let origin = Origin::start(&bed).unwrap();
    let relay = Relay::start_plain(&bed, &programs).unwrap();
    let client = Client::start(&bed, &programs, &relay, arguments).unwrap();
    client.paths_up(2).await.unwrap();
    Product { client, _relay: relay, _origin: origin, bed }
}

impl Product {
    async fn fetch(&self, length: u64) {
        let fetch = async { download(self.client.connect().await.unwrap(), length, &Watched::new()).await.unwrap() };
        timeout(PATIENCE, fetch).await.expect("a download ends");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_tcp_passes_the_bed_whole_over_either_network() {
    if !or_skip("plain_tcp_passes_the_bed_whole_over_either_network") {
        return;
    }
    let bed = Bed::build(&Plan::standard(1)).unwrap();
    let _origin = Origin::start(&bed).unwrap();
    for network in [WIFI, CELL] {
        let before = bed.network(network).counters(Direction::Down).delivered;
        let tcp = connect_plainly(&bed, network).await.unwrap();
        let trace = download(tcp, 1_000_000, &Watched::new()).await.unwrap();
        assert!(trace.is_intact());
        assert!(bed.network(network).counters(Direction::Down).delivered - before > 600);
        upload(connect_plainly(&bed, network).await.unwrap(), network as u64, 500_000).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_arrives_in_every_mode_over_lossy_networks() {
    if !or_skip("everything_arrives_in_every_mode_over_lossy_networks") {
        return;
    }
    for mode in [&["--mode", "single"][..], &["--bicast", "client"], &["--bicast", "server"], &["--bicast", "both"]] {
        let product = start(&Plan::paper(0.01, 1), mode).await;
        product.fetch(2_000_000).await;
        let tcp = product.client.connect().await.unwrap();
        timeout(PATIENCE, upload(tcp, 1, 1_000_000)).await.expect("an upload ends").unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn speed_and_fairness_are_measured_on_every_network() {
    if !or_skip("speed_and_fairness_are_measured_on_every_network") {
        return;
    }
    let product = start(&Plan::paper(0.0, 7), &["--bicast", "both"]).await;
    let programs = Programs::beside_this_one().unwrap();
    let control = product.bed.folder().join("control.sock");
    let measure = async |what: &str| {
        let mut command = tokio::process::Command::new(programs.tandem());
        command.args(["measure", what, "--seconds", "2", "--json", "--control"]).arg(&control);
        let output = timeout(PATIENCE, command.output()).await.unwrap().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let speed = measure("speed").await;
    let rows = speed["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3, "{speed}");
    for row in rows {
        assert!(row["down"]["mbps"].as_f64().unwrap() > 0.1 && row["up"]["mbps"].as_f64().unwrap() > 0.1, "{speed}");
    }
    let fairness = measure("fairness").await;
    assert!(fairness["tunnel_mbps"].as_f64().unwrap() > 0.1, "{fairness}");
    let rows = fairness["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{fairness}");
    for row in rows {
        for figure in ["tcp_alone_mbps", "tcp_beside_mbps", "tunnel_mbps"] {
            assert!(row[figure].as_f64().unwrap() > 0.1, "{fairness}");
        }
    }
    // What TCP carried beside the tunnel counts as well: at 0.1 Mbit/s in the least for 4 s.
    let status = product.client.snapshot().await.unwrap();
    let used = |network: &serde_json::Value| network["used_today_bytes"].as_u64().unwrap();
    assert!(status.0["networks"].as_array().unwrap().iter().all(|network| used(network) > 50_000), "{}", status.0);
}

/// PATH-3: that flows live; how long pauses are is measured by `cargo xtask cases`.
#[tokio::test(flavor = "multi_thread")]
async fn a_nat_that_changes_the_port_ends_no_flow() {
    if !or_skip("a_nat_that_changes_the_port_ends_no_flow") {
        return;
    }
    let product = start(&Plan::standard(2), &["--mode", "single"]).await;
    let mut echo = Echo::begin(product.client.connect().await.unwrap()).await.unwrap();
    for _ in 0..3 {
        for network in [WIFI, CELL] {
            product.bed.network(network).rebind();
        }
        timeout(PATIENCE, echo.ping()).await.expect("the echo answers").unwrap();
        product.fetch(200_000).await;
    }
    assert!(product.bed.network(WIFI).rebindings() >= 3);
}

/// MULTI-6: both interfaces in one subnet; each packet leaves by its own interface, and either may be lost.
#[tokio::test(flavor = "multi_thread")]
async fn two_interfaces_in_one_subnet_are_two_paths() {
    if !or_skip("two_interfaces_in_one_subnet_are_two_paths") {
        return;
    }
    let product = start(&Plan::standard(3).in_one_subnet(), &["--mode", "bicast"]).await;
    product.fetch(1_000_000).await;
    for network in [WIFI, CELL] {
        let down = product.bed.network(network).counters(Direction::Down);
        assert!(down.delivered_bytes > 100_000, "{down:?}");
    }
    for network in [WIFI, CELL] {
        product.bed.network(network).silence();
        product.fetch(300_000).await;
        product.bed.network(network).revive();
        product.client.paths_up(2).await.unwrap();
    }
}

/// SOCKS-7: with a dead resolver, targets given by name work in either protocol, and nobody is asked for a name.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_dead_resolver_names_work_and_no_question_leaves_the_client() {
    if !or_skip("with_a_dead_resolver_names_work_and_no_question_leaves_the_client") {
        return;
    }
    let programs = Programs::beside_this_one().unwrap();
    let bed = Bed::build(&Plan::standard(4)).unwrap();
    // Before the programs start: they read it once.
    bed.client().etc("resolv.conf", "nameserver 198.18.0.1\n").unwrap();
    bed.relay().etc("hosts", &format!("{ORIGIN} origin.test\n")).unwrap();
    let _origin = Origin::start(&bed).unwrap();
    let relay = Relay::start_plain(&bed, &programs).unwrap();
    let capture = Capture::start(bed.client()).unwrap();
    let client = Client::start(&bed, &programs, &relay, &["--mode", "bicast"]).unwrap();
    client.paths_up(2).await.unwrap();

    let port = Origin::ADDRESS.port();
    let name = [&b"\x05\x01\x00\x05\x01\x00\x03\x0borigin.test"[..], &port.to_be_bytes()].concat();
    let connect = format!("CONNECT origin.test:{port} HTTP/1.1\r\n\r\n").into_bytes();
    let established = b"HTTP/1.1 200 Connection established\r\n\r\n";
    for (request, reply) in [(name, &[5, 0, 5, 0, 0, 1, 0, 0, 0, 0, 0, 0][..]), (connect, established)] {
        let mut tcp = client.connect_to_proxy().await.unwrap();
        tcp.write_all(&request).await.unwrap();
        let mut got = vec![0; reply.len()];
        timeout(PATIENCE, tcp.read_exact(&mut got)).await.expect("the proxy answers").unwrap();
        assert_eq!(got, reply);
        let fetch = async { download(tcp, 100_000, &Watched::new()).await.unwrap() };
        assert!(timeout(PATIENCE, fetch).await.expect("a download ends").is_intact());
    }
    let seen = capture.stop();
    assert!(seen.packets > 100, "the capture works: {seen:?}");
    assert_eq!(seen.names, 0, "{seen:?}");

    // And it would have seen one.
    let capture = Capture::start(bed.client()).unwrap();
    let asked = bed.client().enter(|| {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
        socket.send_to(b"a question", "198.18.0.1:53")
    });
    asked.unwrap().unwrap();
    assert_eq!(capture.stop().names, 1);
}
