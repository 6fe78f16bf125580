//! Tests metrics. Each metric is compared with the database after real jobs, with its documentation, and with the queries of alerts and
//! dashboards.

mod deploy;
mod meter;
mod paused;
mod scrape;

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use tokio::net::TcpStream;

use crate::health::get;

/// Label names and values, sorted.
type Labels = Vec<(String, String)>;

/// Result of one scrape.
#[derive(Debug, Default)]
struct Scrape {
    /// Type of each metric by its name.
    types: BTreeMap<String, String>,
    /// Name, labels and value of each sample.
    values: Vec<(String, Labels, f64)>,
}

impl Scrape {
    async fn of(address: SocketAddr) -> Self {
        let mut response = None;
        for _ in 0..30 {
            // A machine that freezes may delay the response.
            response = get(address, "/metrics").await;
            if response.is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let Some((status, text)) = response else {
            panic!("{address} gives no answer: {:?}", TcpStream::connect(address).await.map(drop));
        };
        assert_eq!(status, 200, "{text}");
        let mut scrape = Self::default();
        for line in text.lines() {
            if let Some(declaration) = line.strip_prefix("# TYPE ") {
                let (name, kind) = declaration.split_once(' ').unwrap();
                assert!(scrape.types.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} is there twice");
            } else if !line.starts_with('#') {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
                let mut labels: Labels = labels.trim_end_matches('}').split("\",").filter_map(label).collect();
                labels.sort();
                scrape.values.push((name.to_owned(), labels, value.parse().unwrap_or_else(|error| panic!("{line}: {error}"))));
            }
        }
        scrape
    }

    /// Returns the sum of the samples that have at least these labels, or `None` if there are no samples.
    fn sum(&self, name: &str, required: &[(&str, &str)]) -> Option<f64> {
        let has = |labels: &[(String, String)]| required.iter().all(|(label, value)| labels.iter().any(|(l, v)| l == label && v == value));
        let found: Vec<f64> =
            self.values.iter().filter(|(known, labels, _)| known == name && has(labels)).map(|(.., value)| *value).collect();
        (!found.is_empty()).then(|| found.iter().sum())
    }
}

fn label(written: &str) -> Option<(String, String)> {
    let (name, value) = written.split_once("=\"")?;
    Some((name.to_owned(), value.trim_end_matches('"').to_owned()))
}

/// Row of a table in docs/METRICS.md: names in Prometheus and OpenTelemetry, type, unit and labels.
struct Documented {
    prometheus: String,
    otel: String,
    kind: String,
    unit: String,
    labels: Vec<String>,
}

fn documented() -> Vec<Documented> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/METRICS.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let word = |cell: &str| cell.trim().trim_matches('`').to_owned();
    let found: Vec<Documented> = rows
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
            let labels = cells[4].split(',').map(word).filter(|label| !label.is_empty()).collect();
            Documented { prometheus: word(cells[0]), otel: word(cells[1]), kind: word(cells[2]), unit: word(cells[3]), labels }
        })
        .collect();
    assert!(found.len() > 15, "the tables were found");
    found
}

/// Duration for which a worker caches statistics of the store.
const REMEMBERED: Duration = Duration::from_secs(5);
