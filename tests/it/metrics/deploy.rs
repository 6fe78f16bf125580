//! Checks the files of `deploy`. Files that cannot run here are parsed as their consumers parse them. Each metric and label in the files
//! must exist.

use std::{collections::BTreeSet, fs, process::Command};

use serde_json::Value;
use tests::skipped;

use super::documented;

fn text(name: &str) -> String {
    fs::read_to_string(format!("{}/../deploy/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn yaml(name: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(&text(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn alerts() -> Vec<Value> {
    let file = yaml("alerts.yaml").remove(0);
    file["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap().clone()).collect()
}

fn panels() -> Vec<Value> {
    let dashboard: Value = serde_json::from_str(&text("grafana.json")).unwrap();
    dashboard["panels"].as_array().unwrap().clone()
}

/// Returns the words in an expression that start with a prefix of the worker's metric or label names.
fn names(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words
        .filter(|word| ["queue_", "messaging_", "db_client_", "error_"].iter().any(|prefix| word.starts_with(prefix)))
        .map(str::to_owned)
        .collect()
}

#[test]
fn alerts_and_dashboard_query_only_existing_metrics() {
    let mut known = BTreeSet::new();
    for row in documented() {
        known.extend(row.labels);
        if row.kind == "histogram" {
            known.extend(["bucket", "sum", "count"].map(|part| format!("{}_{part}", row.prometheus)));
        } else {
            known.insert(row.prometheus);
        }
    }
    let expressions: Vec<String> = alerts().iter().map(|rule| rule["expr"].as_str().unwrap().to_owned()).collect();
    let drawn: Vec<String> = panels()
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap().clone())
        .map(|target| target["expr"].as_str().unwrap().to_owned())
        .collect();
    assert!(expressions.len() >= 10 && drawn.len() >= 20, "{} {}", expressions.len(), drawn.len());
    for expression in expressions.iter().chain(&drawn).chain([&text("grafana.json"), &text("alerts.yaml")]) {
        let named = names(expression);
        let unknown: Vec<&String> = named.difference(&known).collect();
        assert!(unknown.is_empty() && !named.is_empty(), "{unknown:?} in {expression}");
        let (opened, closed) = (expression.matches(['(', '{', '[']).count(), expression.matches([')', '}', ']']).count());
        assert_eq!(opened, closed, "{expression}");
    }
    let drawn = drawn.concat();
    let forgotten: Vec<String> = documented().into_iter().map(|row| row.prometheus).filter(|name| !drawn.contains(name.as_str())).collect();
    assert!(forgotten.is_empty(), "on no panel: {forgotten:?}");
}

#[test]
fn each_alert_has_a_severity_and_a_link_to_its_documentation() {
    let mut seen = BTreeSet::new();
    for rule in alerts() {
        assert!(seen.insert(rule["alert"].as_str().unwrap().to_owned()), "{rule} is there twice");
        assert!(["page", "ticket"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{rule}");
        let runbook = rule["annotations"]["runbook"].as_str().unwrap();
        assert!(!rule["annotations"]["summary"].as_str().unwrap().is_empty(), "{rule}");
        if let Some((page, heading)) = runbook.split_once(", \"") {
            let page = fs::read_to_string(format!("{}/../{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
            let heading = heading.split('"').next().unwrap();
            assert!(page.contains(&format!("\n## {heading}\n")), "{runbook}");
        }
    }
}

#[test]
fn each_panel_has_its_position() {
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for panel in panels() {
        let place = &panel["gridPos"];
        assert!(ids.insert(panel["id"].as_i64()) && places.insert((place["x"].as_i64(), place["y"].as_i64())), "{panel}");
        assert!(
            !panel["title"].as_str().unwrap().is_empty() && place["x"].as_i64().unwrap() + place["w"].as_i64().unwrap() <= 24,
            "{panel}"
        );
    }
}

/// Parses a duration in milliseconds, seconds or minutes. Returns milliseconds.
fn ms(written: &str) -> u64 {
    let number: u64 = written.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse().unwrap();
    number
        * if written.ends_with("ms") {
            1
        } else if written.ends_with('m') {
            60_000
        } else {
            1000
        }
}

#[test]
fn the_manifests_fit_together_and_a_worker_has_time_to_drain() {
    let documents = yaml("kubernetes.yaml");
    let of = |kind: &str| documents.iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"));
    for document in &documents {
        let has_kind = ["apiVersion", "kind"].iter().all(|key| document[*key].is_string());
        assert!(has_kind && document["metadata"]["name"].is_string() && document["spec"].is_object(), "{document}");
    }
    let deployment = &of("Deployment")["spec"];
    let labels = &deployment["template"]["metadata"]["labels"];
    for selector in [&deployment["selector"], &of("PodDisruptionBudget")["spec"]["selector"], &of("PodMonitor")["spec"]["selector"]] {
        assert_eq!(&selector["matchLabels"], labels);
    }
    assert_eq!(of("ScaledObject")["spec"]["scaleTargetRef"]["name"], of("Deployment")["metadata"]["name"]);
    let pod = &deployment["template"]["spec"];
    let container = &pod["containers"][0];
    let variable =
        |name: &str| container["env"].as_array().unwrap().iter().find(|env| env["name"] == name).unwrap()["value"].as_str().unwrap();
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() * 1000 >= ms(variable("QUEUE_GRACE")) + 10_000);
    let port = &container["ports"][0];
    assert!(variable("QUEUE_HEALTH").ends_with(&format!(":{}", port["containerPort"])));
    for (probe, path) in [("startupProbe", "/livez"), ("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        assert_eq!((&container[probe]["httpGet"]["path"], &container[probe]["httpGet"]["port"]), (&Value::from(path), &port["name"]));
    }
    let monitored = &of("PodMonitor")["spec"]["podMetricsEndpoints"][0];
    assert_eq!((&monitored["path"], &monitored["port"]), (&Value::from("/metrics"), &port["name"]));
    let annotations = &deployment["template"]["metadata"]["annotations"];
    assert_eq!(annotations["prometheus.io/port"].as_str().unwrap(), port["containerPort"].to_string());
    let secure = &container["securityContext"];
    assert_eq!((&secure["readOnlyRootFilesystem"], &secure["allowPrivilegeEscalation"]), (&Value::from(true), &Value::from(false)));
    assert!(pod["securityContext"]["runAsNonRoot"] == true && container["resources"]["requests"].is_object(), "{pod}");
    let query = of("ScaledObject")["spec"]["triggers"][0]["metadata"]["query"].as_str().unwrap();
    let known: BTreeSet<String> = documented().into_iter().map(|row| row.prometheus).collect();
    assert!(names(query).is_subset(&known) && !names(query).is_empty(), "{query}");
}

#[test]
fn compose_unit_and_image_give_a_worker_time_and_check_its_health() {
    let worker = &yaml("compose.yaml").remove(0)["services"]["worker"];
    let grace = worker["command"].as_array().unwrap().iter().skip_while(|word| *word != "--grace").nth(1).unwrap().as_str().unwrap();
    assert!(ms(worker["stop_grace_period"].as_str().unwrap()) >= ms(grace) + 10_000, "{worker}");
    // The bundled binary has no handlers, so the package must be given.
    assert!(worker["build"]["args"]["PACKAGE"].as_str().unwrap().starts_with("${PACKAGE:?"), "{worker}");
    let (image, unit) = (text("Dockerfile"), text("queue-worker.service"));
    assert!(
        image.contains("HEALTHCHECK ")
            && image.contains("/livez")
            && image.contains("ENV QUEUE_HEALTH=[::]:8080")
            && image.contains("\nUSER ")
    );
    assert!(unit.contains("Type=notify") && unit.contains("Environment=QUEUE_HEALTH=127.0.0.1:8080"));
    let features = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../queue-worker/Cargo.toml")).unwrap();
    let built = image.lines().find_map(|line| line.strip_prefix("ARG FEATURES=queue-worker/")).unwrap();
    assert!(features.contains(&format!("\n{built} = [")), "{built} is a feature");
}

#[test]
fn the_unit_is_valid_for_systemd() {
    let name = "systemd-analyze";
    if Command::new(name).arg("--version").output().is_err() {
        return skipped("deploy/queue-worker.service", "there is no systemd-analyze");
    }
    let folder = std::env::temp_dir().join(format!("queue-unit-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let unit = folder.join("queue-worker.service");
    // Neither the worker nor its manual pages are installed here, so the unit file must not refer to them.
    let here =
        text("queue-worker.service").replace("/usr/local/bin/queue-worker", "/bin/true").replace("Documentation=man:queue-worker(1)\n", "");
    fs::write(&unit, here).unwrap();
    let verified = Command::new(name).args(["verify", "--man=no", unit.to_str().unwrap()]).output().unwrap();
    let message = String::from_utf8_lossy(&verified.stderr).into_owned();
    fs::remove_dir_all(folder).unwrap();
    if !verified.status.success() && !message.contains("queue-worker.service") {
        return skipped("deploy/queue-worker.service", "systemd-analyze does not work on this machine");
    }
    assert!(verified.status.success() && !message.contains("queue-worker.service:"), "{message}");
}
