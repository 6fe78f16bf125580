//! Static files of the dashboard, embedded in the binary. Browsers cache each file until the next release.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::LazyLock,
};

use axum::{
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{
    path::Path,
    problem::{HandlerResult, Problem},
};

struct Asset {
    name: &'static str,
    kind: &'static str,
    plain: &'static [u8],
    /// Content compressed with gzip, or `None` if the file is served uncompressed only.
    gzip: Option<&'static [u8]>,
}

const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";

static ASSETS: [Asset; 4] = [
    Asset { name: "style.css", kind: CSS, plain: include_bytes!("../../assets/style.css"), gzip: None },
    Asset { name: "dashboard.js", kind: JS, plain: include_bytes!("../../assets/dashboard.js"), gzip: None },
    Asset {
        name: "htmx.js",
        kind: JS,
        plain: include_bytes!("../../assets/htmx.min.js"),
        gzip: Some(include_bytes!("../../assets/htmx.min.js.gz")),
    },
    Asset { name: "icon.svg", kind: "image/svg+xml", plain: include_bytes!("../../assets/icon.svg"), gzip: None },
];

/// Hash of all asset contents. Asset links contain the hash, so a browser never uses a file cached from another release.
pub(super) static VERSION: LazyLock<String> = LazyLock::new(|| {
    let mut hash = DefaultHasher::new();
    for asset in &ASSETS {
        asset.plain.hash(&mut hash);
    }
    format!("{:016x}", hash.finish())
});

pub(super) async fn asset(Path(name): Path<String>, headers: HeaderMap) -> HandlerResult<Response> {
    let asset = ASSETS.iter().find(|asset| asset.name == name).ok_or_else(|| Problem::not_found("not found"))?;
    let tag = format!("\"{}\"", *VERSION);
    let kept = [(header::CACHE_CONTROL, "public, max-age=31536000, immutable".to_owned()), (header::ETAG, tag.clone())];
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        return Ok((StatusCode::NOT_MODIFIED, kept).into_response());
    }
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let takes_gzip = accepted.split(',').any(|coding| coding.split(';').next().is_some_and(|name| name.trim() == "gzip"));
    let kind = [(header::CONTENT_TYPE, asset.kind), (header::VARY, "accept-encoding")];
    Ok(match asset.gzip.filter(|_| takes_gzip) {
        Some(gzip) => (kept, kind, [(header::CONTENT_ENCODING, "gzip")], gzip).into_response(),
        None => (kept, kind, asset.plain).into_response(),
    })
}
