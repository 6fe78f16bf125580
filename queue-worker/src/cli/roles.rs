//! `roles` command: creates the database roles of a store.

use queue_core::Roles;
use serde_json::json;

use super::{args::RolesArgs, name_check::check_queue, open::open_store, print, problem::Problem, settings::Settings};

pub(super) async fn roles(settings: &Settings, args: &RolesArgs) -> Result<(), Problem> {
    let store = settings.store()?;
    let roles = match &args.producer {
        Some(role) => Roles::of_producer(store, role, &args.queues.iter().map(String::as_str).collect::<Vec<_>>())?,
        None => Roles::of(store),
    };
    let roles = if let Some(prefix) = &args.prefix { roles.prefix(prefix)? } else { roles };
    let schema = store.schema();
    if args.print {
        return if args.output.json {
            print::json(&json!({ "schema": schema, "sql": roles.print() }))
        } else {
            print::lines(&roles.print())
        };
    }
    let (database, store) = open_store(settings).await?;
    for queue in &args.queues {
        check_queue(&database, store, Some(queue)).await?;
    }
    let mut connection = database.pool().acquire().await?;
    roles.apply(&mut connection).await?;
    drop(connection);
    database.close().await;
    let names = roles.names();
    if args.output.json {
        return print::json(&json!({ "schema": schema, "roles": names }));
    }
    let shown = names.join(", ");
    let example = names.iter().find(|name| !name.ends_with("_owner"));
    let example = example.map_or_else(String::new, |name| format!("\ngrant access with: grant \"{name}\" to USER"));
    print::lines(&format!("the schema `{schema}` has the roles {shown}{example}"))
}
