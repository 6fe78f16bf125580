//! `export`: jobs as JSON lines, page by page, so that a million takes no more memory than a thousand.

use queue_core::operate;

use super::{chosen::Export, known_queue::check_filter, open::open_to_look, print, problem::Problem, settings::Settings};

pub(super) async fn export(settings: &Settings, asked: &Export) -> Result<(), Problem> {
    asked.check()?;
    let (database, store) = open_to_look(settings).await?;
    let mut filter = asked.filter();
    check_filter(&database, store, &filter).await?;
    loop {
        let mut page = operate::list(database.pool(), store, &filter).await?;
        operate::add_failures(database.pool(), store, &mut page.jobs).await?;
        filter.before = page.next;
        if !print::json_lines(&page.jobs)? || page.next.is_none() {
            break;
        }
    }
    database.close().await;
    Ok(())
}
