//! An output can be any serde type. Commas inside the type do not end the option.

use std::collections::BTreeMap;

use queue_core::{Context, Handler, JobResult, JobType, job, registry::Registry};
use serde::{Deserialize, Serialize};

#[job(output = Vec<(u8, String)>, queue = "a")]
#[derive(Serialize, Deserialize)]
struct Pairs;

impl Handler for Pairs {
    async fn run(self, _: &Context) -> JobResult<Vec<(u8, String)>> {
        Ok(vec![(1, "one".into())])
    }
}

#[job(output = BTreeMap<String, [Option<u8>; 2]>, queue = "b")]
#[derive(Serialize, Deserialize)]
struct Map;

impl Handler for Map {
    async fn run(self, _: &Context) -> JobResult<BTreeMap<String, [Option<u8>; 2]>> {
        Ok(BTreeMap::new())
    }
}

#[job(output = ())]
#[derive(Serialize, Deserialize)]
struct Nothing;

impl Handler for Nothing {
    async fn run(self, _: &Context) -> JobResult {
        Ok(())
    }
}

fn same<T>(_: T, _: T) {}

fn main() {
    let pairs: <Pairs as JobType>::Output = vec![(1, String::new())];
    let map: <Map as JobType>::Output = BTreeMap::new();
    same(pairs, Vec::new());
    same(map, BTreeMap::new());
    assert_eq!((Pairs::OPTIONS.queue, Map::OPTIONS.queue), ("a", "b"));
    assert_eq!(Registry::linked().unwrap().types().count(), 3);
}
