//! Functions of a distributed store, each in two versions. The local version, in a separate schema, runs on the store's node and bypasses
//! the cluster's planner. The entry point, in the store's schema, exists on every node and forwards calls to the store's node.

use sqlx::{AssertSqlSafe, PgConnection, Row as _, postgres::PgRow};

use super::node_names::{LocalName, NodeNames, local_schema, writes};
use crate::schema::store::Store;

/// Functions that create and drop partitions. These functions must run on the coordinator.
pub(super) const COORDINATOR_FUNCTIONS: [&str; 4] = ["add_days", "drop_day", "worker_add_days", "worker_drop_day"];

/// Body of `ensure_lanes` in a distributed store. With this body, the function returns no lanes, so a bulk enqueue calls an entry point
/// for each chunk of its jobs. The ids and sequence numbers of a chunk are then allocated on the store's node.
const ENSURE_LANES_BODY: &str = "
-- Entry point on the node that the store is on.
begin
  now := pg_catalog.clock_timestamp();
  payload_limit := queue.payload_limit();
  has_capacity := false;
end
";

/// Prefix with a `delete` that matches no row, so that Citus treats the query as a write.
const AS_WRITER: &str = "with fence as (delete from queue.fence f where f.nothing operator(pg_catalog.=) -1 returning 1) ";

/// First line of every entry point. Functions that contain this line are not converted again.
const MARK: &str = "-- Entry point on the node that the store is on.";

/// Returns the object names to use on the store's node; `None` if the store is not distributed.
pub(super) async fn load_node_names(connection: &mut PgConnection, store: Store) -> sqlx::Result<Option<NodeNames>> {
    let tables = tables(connection, store).await?;
    let functions: Vec<String> = functions(connection, store).await?.iter().map(|row| row.try_get("name")).collect::<sqlx::Result<_>>()?;
    let mut named: Vec<(String, LocalName)> = functions.into_iter().map(|name| (name, LocalName::Function)).collect();
    let mut any = false;
    for row in &tables {
        let (name, shard): (String, Option<i64>) = (row.try_get("name")?, row.try_get("shard")?);
        any |= shard.is_some();
        if let Some(shard) = shard {
            let constraints: Vec<String> = row.try_get("constraints")?;
            named.extend(constraints.into_iter().map(|name| (name, LocalName::Constraint(shard.to_string()))));
        }
        named.push((name, shard.map_or(LocalName::View, |shard| LocalName::Shard(shard.to_string()))));
    }
    Ok(any.then(|| NodeNames::new(store.schema(), named)))
}

async fn tables(connection: &mut PgConnection, store: Store) -> sqlx::Result<Vec<PgRow>> {
    sqlx::query(store.anywhere().sql(include_str!("../../../citus/tables_of.sql"))).bind(store.schema()).fetch_all(connection).await
}

async fn functions(connection: &mut PgConnection, store: Store) -> sqlx::Result<Vec<PgRow>> {
    sqlx::query(store.anywhere().sql(include_str!("../../../citus/functions.sql")))
        .bind(store.schema())
        .bind(&COORDINATOR_FUNCTIONS[..])
        .fetch_all(connection)
        .await
}

/// Creates the local version and the entry point of every function that has no entry point yet, and a local function for each view.
pub(super) async fn create_functions(connection: &mut PgConnection, store: Store) -> sqlx::Result<()> {
    let Some(home) = load_node_names(connection, store).await? else { return Ok(()) };
    let here = local_schema(store.schema());
    for row in tables(connection, store).await? {
        let (name, definition): (String, Option<String>) = (row.try_get("name")?, row.try_get("definition")?);
        let Some(definition) = definition else { continue };
        let definition = home.replace_names(&restore_schema_name(&definition, store));
        // Statements on the store's node call a function instead of reading the view. The planner inlines the function.
        let text = format!(
            "create or replace function {here}.{name}() returns setof queue.{name} language sql stable as $body$ {} $body$",
            definition.trim_end().trim_end_matches(';')
        );
        execute_text(connection, &store.rewrite_text(&text)).await?;
    }
    for row in functions(connection, store).await? {
        let (name, whole, body): (String, String, String) = (row.try_get("name")?, row.try_get("whole")?, row.try_get("body")?);
        if body.contains(MARK) {
            continue;
        }
        let (volatility, language): (String, String) = (row.try_get("volatility")?, row.try_get("language")?);
        let whole = restore_schema_name(&whole, store);
        let Some((head, _)) = whole.split_once("\nAS $") else { continue };
        let head = head.replacen("FUNCTION queue.", &format!("FUNCTION {here}."), 1);
        // Citus treats `lock table` on a shard as a change to the shard, and rejects changes to shards by default.
        let head = if body.contains("lock table ") { format!("{head}\n SET citus.enable_manual_changes_to_shards TO 'on'") } else { head };
        let mut inner = home.replace_names(&restore_schema_name(&body, store));
        inner = inner.replace("pg_catalog.pg_notify(", "pg_notify(").replace("pg_notify(", &format!("{here}.send("));
        if volatility == "v" && writes(&body) {
            inner = add_fence(&inner, &language, &here);
        }
        execute_text(connection, &store.rewrite_text(&format!("{head}\nas $here_body${inner}$here_body$"))).await?;
        let body = if name == "ensure_lanes" { ENSURE_LANES_BODY.to_owned() } else { entry_point_body(&row, &name, &here)? };
        let mut made = with_entry_point_body(&whole, &body);
        let row_type: Option<String> = row.try_get("row_type")?;
        if let Some(columns) = row_type {
            // The result columns have the same names as the arguments, which PL/pgSQL does not allow. The entry point returns the columns
            // as a composite type instead.
            let arguments: String = row.try_get("arguments")?;
            for text in [
                format!("create type {here}.{name}_row as ({columns})"),
                format!("drop function queue.{name}({})", restore_schema_name(&arguments, store)),
            ] {
                execute_text(connection, &store.rewrite_text(&text)).await?;
            }
            made = with_type(&made, &format!("{here}.{name}_row"));
        }
        execute_text(connection, &store.rewrite_text(&made)).await?;
    }
    Ok(())
}

/// Adds a fence check to the start of a function body. The check rejects writes after the store has moved to another node.
fn add_fence(body: &str, language: &str, here: &str) -> String {
    if language == "sql" {
        return format!("select {here}.held();\n{body}");
    }
    // The fence check comes before all other declarations. Otherwise, a declaration that allocates a sequence number would lock the
    // sequence first. That lock would block `arrive`, which prepares a node after the store has moved to it.
    let begins = if body.trim_start().starts_with("begin\n") { body.find("begin\n") } else { body.find("\nbegin\n").map(|at| at + 1) };
    let declares = body.find("declare\n").filter(|at| begins.is_some_and(|begins| *at < begins));
    match (declares, begins) {
        (Some(at), _) => {
            let at = at + "declare\n".len();
            format!("{}  is_held boolean := {here}.held();\n{}", &body[..at], &body[at..])
        }
        (None, Some(at)) => format!("{}begin\n  perform {here}.held();\n{}", &body[..at], &body[at + "begin\n".len()..]),
        (None, None) => body.to_owned(),
    }
}

/// Converts a function to an entry point with the body `body`. The entry point runs with the caller's privileges and settings.
fn with_entry_point_body(whole: &str, body: &str) -> String {
    let head = whole.split_once("\nAS $").map_or(whole, |(head, _)| head);
    let kept = head.lines().filter(|line| !line.starts_with(" SET "));
    let head: Vec<String> = kept
        .map(|line| {
            let line = if line.starts_with(" LANGUAGE ") { line.replace("LANGUAGE sql", "LANGUAGE plpgsql") } else { line.to_owned() };
            // Only the local version on the store's node is `SECURITY DEFINER`. An entry point with `SECURITY DEFINER` would connect to
            // the store's node as the owner instead of the caller.
            if line.starts_with(' ') { line.replace(" SECURITY DEFINER", "") } else { line }
        })
        .collect();
    format!("{}\nas $entry${body}$entry$", head.join("\n"))
}

/// Replaces the result type `TABLE(..)` of a function with `SETOF` and the type `row_type`.
fn with_type(text: &str, row_type: &str) -> String {
    let lines =
        text.lines().map(|line| if line.starts_with(" RETURNS TABLE(") { format!(" RETURNS SETOF {row_type}") } else { line.to_owned() });
    lines.collect::<Vec<_>>().join("\n")
}

fn entry_point_body(row: &PgRow, name: &str, here: &str) -> sqlx::Result<String> {
    let (many, inputs, result, kind): (bool, i32, String, String) =
        (row.try_get("many")?, row.try_get("inputs")?, row.try_get("result")?, row.try_get("kind")?);
    let (volatility, outputs, language): (String, Vec<String>, String) =
        (row.try_get("volatility")?, row.try_get("outputs")?, row.try_get("language")?);
    let arguments: Vec<String> = (1..=inputs).map(|nr| format!("${nr}")).collect();
    let call = format!("{here}.{name}({})", arguments.join(", "));
    // On a node without shards, PostgreSQL would inline a local SQL function before Citus plans the query. Calls from other nodes therefore
    // name the entry point, which is not inlined.
    let far_call = if language == "sql" { format!("queue.{name}({})", arguments.join(", ")) } else { call.clone() };
    let near = |what: &str, into: &str| format!("select {what}{into} from {call} t");
    let far = |what: &str, into: &str| format!("{AS_WRITER}select {what}{into} from queue.place p cross join lateral {far_call} t");
    let (declare, near, far, end) = if many {
        (String::new(), format!("return query {}", near("t.*", "")), format!("return query {}", far("t.*", "")), "return")
    } else if result == "void" {
        ("declare\n  done integer;\n".to_owned(), near("1", " into done"), far("1", " into done"), "return")
    } else if !outputs.is_empty() {
        let into = format!(" into {}", outputs.join(", "));
        (String::new(), near("t.*", &into), far("t.*", &into), "return")
    } else if kind == "c" {
        (format!("declare\n  result {result};\n"), near("t.*", " into result"), far("t.*", " into result"), "return result")
    } else {
        (format!("declare\n  result {result};\n"), near("t", " into result"), far("t", " into result"), "return result")
    };
    let ways = if volatility == "v" {
        // A transaction that writes prevents a move of the store until the transaction ends. If a move is in progress, the transaction
        // waits for the end of the move and then uses the new node. A read-only transaction does not affect moves.
        let far_read = far.replace(AS_WRITER, "");
        let reads = "pg_catalog.current_setting('transaction_read_only') operator(pg_catalog.=) 'on'::pg_catalog.text";
        format!("  if {here}.holds() then\n    {near};\n  elsif {reads} then\n    {far_read};\n  else\n    {far};\n  end if;\n")
    } else {
        format!("  if {here}.is_here() then\n    {near};\n  else\n    {};\n  end if;\n", far.replace(AS_WRITER, ""))
    };
    Ok(format!("\n{MARK}\n#variable_conflict use_column\n{declare}begin\n{ways}  {end};\nend\n"))
}

/// Replaces the store's schema name with `queue` in texts from the catalogs. The catalogs quote a schema name only if necessary, so both
/// the quoted and the unquoted form are replaced.
fn restore_schema_name(text: &str, store: Store) -> String {
    let schema = store.schema();
    if schema == "queue" {
        return text.to_owned();
    }
    let text = text.replace(&format!("\"{schema}\"."), "queue.");
    let bare = format!("{schema}.");
    let mut out = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some(at) = rest.find(&bare) {
        let before = rest[..at].chars().next_back().or(out.chars().next_back());
        let ends_word = before.is_some_and(|c| c.is_ascii_alphanumeric() || "_.:-\"'".contains(c));
        out.push_str(&rest[..at]);
        out.push_str(if ends_word { &bare } else { "queue." });
        rest = &rest[at + bare.len()..];
    }
    out.push_str(rest);
    out
}

async fn execute_text(connection: &mut PgConnection, text: &str) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned())).execute(connection).await.map(drop).inspect_err(|_| {
        tracing::debug!("{text}");
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that fails may panic")]
mod tests {
    use super::*;

    #[test]
    fn schema_names_are_restored_everywhere() {
        let store = Store::new("shop").unwrap();
        let text = "from (shop.job j join \"shop\".lane l on true) where workshop.id = '{shop.x}' and a.shop.b returns shop.removed_entry";
        let want = "from (queue.job j join queue.lane l on true) where workshop.id = '{queue.x}' and a.shop.b returns queue.removed_entry";
        assert_eq!(restore_schema_name(text, store), want);
    }

    #[test]
    fn an_entry_point_has_the_rights_of_its_caller() {
        let whole = "CREATE OR REPLACE FUNCTION queue.f()\n RETURNS bigint\n LANGUAGE sql\n STABLE SECURITY DEFINER\n SET search_path TO 'pg_catalog'\nAS $x$..$x$";
        let want = "CREATE OR REPLACE FUNCTION queue.f()\n RETURNS bigint\n LANGUAGE plpgsql\n STABLE\nas $entry$ body $entry$";
        assert_eq!(with_entry_point_body(whole, " body "), want);
    }
}
