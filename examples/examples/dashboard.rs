//! Nests the dashboard in an application's web server, under its own path and behind the application's authentication. The program fetches
//! some pages and exits.

use axum::{
    Router,
    extract::Request,
    http::StatusCode,
    middleware::{Next, from_fn},
    response::{IntoResponse as _, Response},
};
use queue_core::{Context, Handler, Job, JobResult, Store, job};
use queue_worker::{
    Database,
    dashboard::{self, Actor, Options},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

#[job]
#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

impl Handler for SendEmail {
    async fn run(self, _: &Context) -> JobResult<()> {
        Ok(())
    }
}

/// Simulates the authentication of the application's server: identifies the user or rejects the request.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let Some(user) = request.headers().get("x-user").and_then(|user| user.to_str().ok()).map(str::to_owned) else {
        return StatusCode::UNAUTHORIZED.into_response();
    };
    request.extensions_mut().insert(Actor(user));
    next.run(request).await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = Database::from_env().await?;
    database.migrate(Store::default()).await?;
    let mail = SendEmail { to: "ada@example.com".into() }.enqueue(database.pool()).await?;

    let options = Options::default().host("admin.example.com").redact("send_email", ["to"]);
    let admin = dashboard::service(database.pool().clone(), Store::default(), options)?;
    let app = Router::new().nest_service("/queue", admin).layer(from_fn(authenticate));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move { axum::serve(listener, app).await });

    for (path, wanted) in [("/queue", "Overview"), ("/queue/jobs", "send_email"), (&format!("/queue/jobs/{}", mail.id()), "(hidden)")] {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: admin.example.com\r\nX-User: ada\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await?;
        anyhow::ensure!(page.starts_with("HTTP/1.1 200") && page.contains(wanted) && !page.contains("ada@example.com"), "{path}: {page}");
        println!("http://{address}{path}: {} bytes", page.len());
    }
    server.abort();
    mail.cancel(database.pool()).await?;
    database.close().await;
    Ok(())
}
