//! `export` command: writes jobs page by page as JSON lines. Memory use does not depend on the number of jobs.

use super::{name_check::check_filter, open::open_for_reading, print, problem::Problem, selection::ExportArgs, settings::Settings};

pub(super) async fn export(settings: &Settings, args: &ExportArgs) -> Result<(), Problem> {
    args.check()?;
    let (database, store) = open_for_reading(settings).await?;
    let mut filter = args.filter();
    check_filter(&database, store, &filter).await?;
    loop {
        let mut page = database.queue().store(store).jobs().matching(&filter).list().await?;
        database.queue().store(store).add_failures(&mut page.jobs).await?;
        filter.before = page.next;
        if !print::json_lines(&page.jobs)? || page.next.is_none() {
            break;
        }
    }
    database.close().await;
    Ok(())
}
