//! Worker binary whose handler uses two states that are built from the pool. If the environment variable `STATE` is set, building the
//! state `Name` fails.

use queue_core::{Context, Handler, JobResult, job};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;

struct Name(String);

struct Size(u32);

#[job(state(Name, Size), output = (String, u32))]
#[derive(Serialize, Deserialize)]
struct TellState {}

impl Handler for TellState {
    async fn run(self, cx: &Context) -> JobResult<(String, u32)> {
        Ok((cx.state::<Name>().0.clone(), cx.state::<Size>().0))
    }
}

async fn name(pool: PgPool) -> anyhow::Result<Name> {
    anyhow::ensure!(std::env::var_os("STATE").is_none(), "no name can be had");
    Ok(Name(sqlx::query_scalar("select current_database()").fetch_one(&pool).await?))
}

async fn size(pool: PgPool) -> sqlx::Result<Size> {
    Ok(Size(pool.options().get_max_connections()))
}

queue_worker::main!(; state = name; state = size);
