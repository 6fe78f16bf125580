//! Tests findings about objects on the search path that do not belong to the store, and about privileges of PUBLIC.

use queue_core::operate::{Checkup, FindingKind};
use tests::TestDb;

use super::{found_by, is_cured, make, one};

#[tokio::test]
async fn planted_functions_and_operators_are_found_and_dropped() {
    let db = TestDb::new().await;
    let checkup = Checkup::default();
    assert!(found_by(&db.pool, &checkup, FindingKind::Planted).await.is_empty());
    make(&db.pool, "create function public.mine(int) returns int language sql return $1").await;
    assert!(found_by(&db.pool, &checkup, FindingKind::Planted).await.is_empty(), "a name of our own is no finding");
    let planted = "create function public.now(text) returns text language sql return $1;
      create function public.less(integer, text) returns boolean language sql return true;
      create operator public.< (function = public.less, leftarg = integer, rightarg = text);
      create function public.not_so(integer) returns boolean language sql return true;
      create operator public.- (function = public.not_so, rightarg = box)";
    make(&db.pool, &planted.replace("create function public.not_so(integer)", "create function public.not_so(box)")).await;
    let found = one(&db.pool, &checkup, FindingKind::Planted).await;
    assert_eq!(found.facts["found"], 3, "{found:#?}");
    is_cured(&db.url, &db.pool, &checkup, FindingKind::Planted).await;
    db.finish().await;
}

#[tokio::test]
#[ignore = "deep"]
async fn privileges_of_public_are_found_and_revoked() {
    let db = TestDb::new().await;
    let checkup = Checkup::default();
    for kind in [FindingKind::PublicGrants, FindingKind::OpenSchema] {
        assert!(found_by(&db.pool, &checkup, kind).await.is_empty(), "{kind}");
    }
    make(&db.pool, "grant create on schema public to public").await;
    is_cured(&db.url, &db.pool, &checkup, FindingKind::OpenSchema).await;
    for grant in [
        "grant usage on schema queue to public",
        "grant select on queue.job to public",
        "grant select (payload) on queue.job to public",
        "grant usage on sequence queue.id_seq to public",
        "grant execute on function queue.cancel to public",
    ] {
        make(&db.pool, grant).await;
        assert_eq!(one(&db.pool, &checkup, FindingKind::PublicGrants).await.facts["found"], 1, "{grant}");
        is_cured(&db.url, &db.pool, &checkup, FindingKind::PublicGrants).await;
    }
    db.finish().await;
}

#[tokio::test]
async fn foreign_objects_in_the_store_are_found_and_dropped() {
    let db = TestDb::new().await;
    let checkup = Checkup::default();
    assert!(found_by(&db.pool, &checkup, FindingKind::ForeignObject).await.is_empty());
    let role = format!("guest_{}", uuid::Uuid::new_v4().simple());
    make(&db.pool, "create function public.spy() returns trigger language plpgsql as 'begin return new; end'").await;
    make(&db.pool, &format!("create role {role}; create table queue.note (n int); alter table queue.note owner to {role}")).await;
    is_cured(&db.url, &db.pool, &checkup, FindingKind::ForeignObject).await;
    make(&db.pool, "create trigger spy before insert on queue.ready for each row execute function public.spy()").await;
    assert_eq!(one(&db.pool, &checkup, FindingKind::ForeignObject).await.facts["object"], "trigger spy on queue.ready");
    is_cured(&db.url, &db.pool, &checkup, FindingKind::ForeignObject).await;
    let overload = format!(
        "create function queue.enqueue(text) returns bigint language sql return 1; revoke all on function queue.enqueue(text) from public; alter function queue.enqueue(text) owner to {role}"
    );
    make(&db.pool, &overload).await;
    is_cured(&db.url, &db.pool, &checkup, FindingKind::ForeignObject).await;
    make(&db.pool, &format!("drop role {role}")).await;
    db.finish().await;
}
