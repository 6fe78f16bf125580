//! `export`: jobs as JSON lines, page by page, so that a million takes no more memory than a thousand.

use super::{args::Export, open_store, print, problem::Problem, settings::Settings};
use crate::observe;

pub(super) async fn export(settings: &Settings, asked: &Export) -> Result<(), Problem> {
    let store = settings.store()?;
    let database = open_store(settings).await?;
    let mut connection = database.pool().acquire().await?;
    let mut filter = asked.filter();
    loop {
        let mut page = observe::list(&mut connection, store, &filter).await?;
        observe::add_failures(&mut connection, store, &mut page.jobs).await?;
        filter.before = page.next;
        if !print::json_lines(&page.jobs)? || page.next.is_none() {
            break;
        }
    }
    drop(connection);
    database.close().await;
    Ok(())
}
