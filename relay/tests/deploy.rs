//! What is shipped beside the program fits it: the board shows metrics that exist, the page for operators tells of all of them
//! and of every setting, and the service's file names what the program has.

mod bed;

use std::collections::BTreeSet;
use std::path::Path;

use bed::Bed;
use tandem_relay::config::Config;
use tandem_relay::serve::Limits;

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of metrics in a text, without what the parts of a histogram add.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let names = words.filter(|word| word.starts_with("tandem_relay_") || word.starts_with("process_"));
    names.map(|name| name.trim_end_matches("_bucket").to_owned()).collect()
}

/// The names that the relay tells.
fn told(bed: &Bed) -> BTreeSet<String> {
    let text = bed.monitor.metrics();
    text.lines().filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned())).collect()
}

#[tokio::test]
async fn the_board_shows_metrics_that_exist() {
    let told = told(&Bed::start(&[], Limits::default()));
    let board: serde_json::Value = serde_json::from_str(&read("deploy/grafana/tandem-relay.json")).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let shown: BTreeSet<_> = targets.flat_map(|target| metrics(target["expr"].as_str().unwrap())).collect();
    assert!(shown.len() > 10, "{shown:?}");
    assert!(shown.is_subset(&told), "{:?}", shown.difference(&told));
}

#[tokio::test]
async fn the_operators_page_tells_of_every_metric_and_setting() {
    let told = told(&Bed::start(&[], Limits::default()));
    let page = read("docs/RELAY.md");
    let ours: BTreeSet<_> = told.into_iter().filter(|name| name.starts_with("tandem_relay_")).collect();
    let described = metrics(&page);
    assert!(ours.is_subset(&described), "{:?}", ours.difference(&described));
    let described: BTreeSet<_> = described.into_iter().filter(|name| name.starts_with("tandem_relay_")).collect();
    assert!(described.is_subset(&ours), "{:?}", described.difference(&ours));
    let config = Config {
        listen: vec!["[::]:4433".parse().unwrap()],
        public: vec!["relay.example.org:4433".parse().unwrap()],
        allow: Vec::new(),
        admin: None,
        measure: true,
        limits: Limits::default(),
    };
    for line in config.to_text().lines() {
        if let Some((key, value)) = line.trim_start_matches("# ").split_once(" = ") {
            assert!(page.contains(&format!("`{key}`")), "{key}");
            // Limits with their defaults.
            let is_limit = value.bytes().all(|byte| byte.is_ascii_digit()) && key != "version";
            assert!(!is_limit || page.contains(&format!("| `{key}` | {value} |")), "{key} = {value}");
        }
    }
}

#[test]
fn the_services_files_start_the_program_as_it_is() {
    let unit = read("deploy/tandem-relay.service");
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/tandem-relay ")).unwrap();
    assert_eq!(start, "serve --dir /var/lib/tandem-relay");
    assert!(read("deploy/Dockerfile").contains("TANDEM_RELAY_DIR=/data"));
    assert!(read("deploy/prometheus.yml").contains(tandem_relay::config::DEFAULT_ADMIN));
}
