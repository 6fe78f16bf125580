//! Tests the JSON API with a client that knows only the OpenAPI document. The client calls every operation and checks every response
//! against the document.

use std::collections::BTreeMap;

use queue_core::{Job as _, Queue, operate, options::Limit, schedule};
use serde_json::{Value, json};
use tests::{Act, Do, TestDb};

use super::{Served, client::Client, some_jobs};

/// One operation of the OpenAPI document.
pub(super) struct Operation {
    method: String,
    path: String,
    /// Names of the path parameters.
    parts: Vec<String>,
    body: Option<Value>,
    pub(super) answer: Value,
}

/// Parsed OpenAPI document.
pub(super) struct ApiDocument {
    document: Value,
    pub(super) operations: Vec<Operation>,
}

impl ApiDocument {
    pub(super) async fn fetch(client: &Client) -> Self {
        let document = client.get("/api/v1/openapi.json").await.json();
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
        assert!(!document.to_string().contains("```"), "descriptions contain no examples in Rust");
        let mut operations = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
                let parts: Vec<String> =
                    parameters.iter().filter(|of| of["in"] == "path").map(|of| of["name"].as_str().unwrap().to_owned()).collect();
                let named = path.matches('{').count();
                assert_eq!(parts.len(), named, "{path}: every part of the path is described");
                assert!(
                    parameters.iter().filter(|of| of["in"] == "query").all(|of| of["required"] != true && of["description"].is_string())
                );
                assert!(operation["summary"].as_str().is_some_and(|text| !text.is_empty()), "{method} {path} has a description");
                operations.push(Operation {
                    method: method.to_uppercase(),
                    path: path.clone(),
                    parts,
                    body: Some(operation["requestBody"]["content"]["application/json"]["schema"].clone()).filter(Value::is_object),
                    answer: operation["responses"]["200"]["content"]["application/json"]["schema"].clone(),
                });
            }
        }
        Self { document, operations }
    }

    /// Checks a value against a schema. Returns the first violation, or `None` if the value is valid.
    pub(super) fn fault(&self, schema: &Value, value: &Value, at: &str) -> Option<String> {
        if let Some(reference) = schema["$ref"].as_str() {
            let found = self.document.pointer(reference.trim_start_matches('#')).unwrap_or_else(|| panic!("{reference} leads nowhere"));
            return self.fault(found, value, at);
        }
        let faults = |schemas: &Value| schemas.as_array().map(|all| all.iter().map(|one| self.fault(one, value, at)).collect::<Vec<_>>());
        if let Some(faults) = faults(&schema["oneOf"]).or_else(|| faults(&schema["anyOf"])) {
            return if faults.iter().any(Option::is_none) { None } else { faults.into_iter().flatten().next() };
        }
        if schema["allOf"].is_array() {
            return self.inside(&self.merged(schema), value, at);
        }
        if let Some(known) = schema["enum"].as_array() {
            return (!known.contains(value)).then(|| format!("{at}: {value} is none of {known:?}"));
        }
        let types = match &schema["type"] {
            Value::String(one) => vec![one.as_str()],
            Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
            _ => return None,
        };
        let is = |kind: &&str| match *kind {
            "null" => value.is_null(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("the type {other} is unknown"),
        };
        if !types.iter().any(is) {
            return Some(format!("{at}: {value} is no {types:?}"));
        }
        self.inside(schema, value, at)
    }

    /// Merges the parts of an `allOf` schema into one object schema.
    fn merged(&self, schema: &Value) -> Value {
        let mut whole = json!({ "type": "object", "properties": {}, "required": [] });
        for part in schema["allOf"].as_array().unwrap() {
            let part = part["$ref"].as_str().map_or(part, |reference| self.document.pointer(reference.trim_start_matches('#')).unwrap());
            let fields = part["properties"].as_object().unwrap_or_else(|| panic!("flattened, and no object: {part}"));
            whole["properties"].as_object_mut().unwrap().extend(fields.clone());
            whole["required"].as_array_mut().unwrap().extend(part["required"].as_array().cloned().unwrap_or_default());
        }
        whole
    }

    fn inside(&self, schema: &Value, value: &Value, at: &str) -> Option<String> {
        if let Some(values) = value.as_array() {
            return values.iter().find_map(|value| self.fault(&schema["items"], value, &format!("{at}[]")));
        }
        let fields = value.as_object()?;
        let missing =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).find(|name| !fields.contains_key(*name));
        if let Some(missing) = missing {
            return Some(format!("{at}.{missing} is missing"));
        }
        let properties = schema["properties"].as_object()?;
        fields.iter().find_map(|(name, value)| match properties.get(name) {
            Some(schema) => self.fault(schema, value, &format!("{at}.{name}")),
            None if schema.get("additionalProperties").is_some() => None,
            None => Some(format!("{at}.{name} is not described")),
        })
    }
}

/// Fills the store with at least one object of every kind. Returns the path parameters by path prefix.
async fn full(db: &TestDb) -> BTreeMap<&'static str, String> {
    let [done, ..] = some_jobs(db).await;
    sqlx::query("insert into queue.log (id, attempt, at, cut, text) values ($1, 1, now(), 0, 'said')")
        .bind(done)
        .execute(&db.pool)
        .await
        .unwrap();
    Queue::new(&db.pool).set_capacity("mail", Some(10)).await.unwrap();
    Queue::new(&db.pool).pause_with_reason(&operate::Scope::queue("mail"), Some("because")).await.unwrap();
    Queue::new(&db.pool).set_limit("type:do", Limit::new().concurrency(3), Some("why")).await.unwrap();
    let hourly = schedule::Schedule::cron("0 * * * *").job(&Do { act: Act::Ok("tick".into()) });
    Queue::new(&db.pool).schedule("hourly").create(&hourly).await.unwrap();
    Queue::new(&db.pool).schedule("hourly").run_now().await.unwrap();
    BTreeMap::from([
        ("/api/v1/jobs/{id}", done.to_string()),
        ("/api/v1/schedules/{name}", "hourly".into()),
        ("/api/v1/limits/{name}", "type:do".into()),
    ])
}

#[tokio::test]
async fn the_document_alone_suffices_to_call_every_operation() {
    let db = TestDb::new().await;
    let names = full(&db).await;
    let step = "insert into queue.step (id, name, attempt, at, ran_ms) select j.id, 'a', 1, now(), 1 from queue.job j;
        insert into queue.signal (id, name) select j.id, 'a' from queue.job j;
        insert into queue.child (parent, name, id) select j.id, 'a', j.id from queue.job j;
        insert into queue.gather (parent, name) select j.id, 'a' from queue.job j;
        insert into queue.node (flow, name, id, after, on_dead) select j.id, 'a', j.id, '{}', '{}' from queue.job j";
    sqlx::raw_sql(step).execute(&db.pool).await.unwrap();
    let served = Served::new(&db).await;
    let described = ApiDocument::fetch(&served.client).await;
    let (mut checked, mut refused) = (0, 0);
    for operation in &described.operations {
        let place = names.iter().find(|(place, _)| operation.path.starts_with(**place)).map_or("mail", |(_, name)| name.as_str());
        let path = operation.parts.iter().fold(operation.path.clone(), |path, part| path.replace(&format!("{{{part}}}"), place));
        if operation.method == "GET" {
            let answer = served.client.get(&path).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            let value = answer.json();
            assert_eq!(described.fault(&operation.answer, &value, &operation.path), None, "{value}");
            let is_empty = value.as_array().is_some_and(Vec::is_empty);
            assert!(
                !is_empty || ["/api/v1/acts", "/api/v1/audit", "/api/v1/workers"].contains(&path.as_str()) || path.ends_with("/keys"),
                "{path} answers with something to check"
            );
            checked += 1;
        } else {
            // Operations with a request body reject a body of the wrong type. Operations without a request body ignore it.
            let answer = served.client.post(&path, &json!([1])).await;
            let expected = if operation.body.is_some() { vec![400] } else { vec![200, 404] };
            assert!(expected.contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
            refused += 1;
        }
    }
    println!("{checked} operations read, {refused} write");
    assert!(checked >= 11 && refused >= 11, "{checked} {refused}");
    db.finish().await;
}

#[tokio::test]
async fn an_operation_is_called_as_the_document_describes_it() {
    let db = TestDb::new().await;
    let [_, dead, _] = some_jobs(&db).await;
    let served = Served::new(&db).await;
    let described = ApiDocument::fetch(&served.client).await;
    let of = |path: &str| described.operations.iter().find(|operation| operation.method == "POST" && operation.path == path).unwrap();
    let one = of("/api/v1/jobs/{id}/act");
    let body = json!({ "act": "requeue" });
    assert_eq!(described.fault(one.body.as_ref().unwrap(), &body, "body"), None);
    assert!(
        described.fault(one.body.as_ref().unwrap(), &json!({ "act": "explode" }), "body").is_some(),
        "a wrong body is seen before it is sent"
    );
    let answer = served.client.post(&format!("/api/v1/jobs/{dead}/act"), &body).await.json();
    assert_eq!(described.fault(&one.answer, &answer, "answer"), None, "{answer}");
    let pause = of("/api/v1/pause");
    let body = json!({ "queue": "default", "reason": "x" });
    assert_eq!(described.fault(pause.body.as_ref().unwrap(), &body, "body"), None);
    let answer = served.client.post("/api/v1/pause", &body).await.json();
    assert_eq!(described.fault(&pause.answer, &answer, "answer"), None, "{answer}");
    let missing = served.client.get("/api/v1/jobs/7").await;
    let wrong = json!({ "$ref": "#/components/schemas/ErrorResponse" });
    assert_eq!((missing.status, described.fault(&wrong, &missing.json(), "wrong")), (404, None));
    db.finish().await;
}

#[tokio::test]
async fn every_route_is_documented_and_every_documented_route_exists() {
    let db = TestDb::new().await;
    let served = Served::new(&db).await;
    let described = ApiDocument::fetch(&served.client).await;
    let source = include_str!("../../../queue-worker/src/dashboard/api/mod.rs");
    assert_eq!(source.matches("routes!(").count(), described.operations.len(), "each handler is one operation");
    let document = include_str!("../../../queue-worker/src/dashboard/api/document.rs");
    let undescribed = [source, document].map(|source| source.matches(".route(").count());
    assert_eq!(undescribed, [0, 1], "nothing but the document is there undescribed");
    for operation in &described.operations {
        let path = operation.path.replace(['{', '}'], "");
        let other = if operation.method == "GET" { "POST" } else { "GET" };
        let taken = described.operations.iter().any(|known| known.path == operation.path && known.method == other);
        let answer = served.client.ask(other, &path, &[("Content-Type", "application/json")], "{}").await;
        assert!(taken || answer.status == 405, "{other} {path}: {}", answer.status);
    }
    for path in ["/api", "/api/v1", "/api/v1/", "/api/v2/overview", "/api/v1/nothing"] {
        let answer = served.client.get(path).await;
        assert_eq!((answer.status, answer.header("content-type")), (404, Some("application/json")), "{path}");
    }
    db.finish().await;
}

#[tokio::test]
async fn ids_are_strings_and_unknown_fields_of_a_filter_are_refused() {
    let db = TestDb::new().await;
    let job = Do { act: Act::Ok("x".into()) }.enqueue(&db.pool).await.unwrap().id();
    let served = Served::new(&db).await;
    assert_eq!(served.client.get("/api/v1/jobs").await.json()["jobs"][0]["id"], json!(job.to_string()));
    let misspelt = json!({ "act": "cancel", "at_most": 9, "filter": { "queu": "mail" } });
    assert_eq!(served.client.post("/api/v1/jobs/act", &misspelt).await.status, 400, "a misspelt filter is not everything");
    assert_eq!(served.client.get("/api/v1/jobs?queu=mail").await.status, 400);
    assert_eq!(db.state(job).await, Some(queue_core::JobState::Ready));
    db.finish().await;
}
