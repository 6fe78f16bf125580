//! Tests the payload lock file: the payload changes that it detects, the direction of each incompatibility, and the messages.

use std::{collections::BTreeMap, fs, panic::catch_unwind, time::Duration};

use chrono::{DateTime, NaiveDate, Utc};
use queue_core::{JobType, job, testing::Payloads};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

macro_rules! form {
    ($(#[$attribute:meta])* $name:ident { $($fields:tt)* } $($options:tt)*) => {
        #[job(send_only, name = "locked" $($options)*)]
        #[derive(Serialize, Deserialize)]
        $(#[$attribute])*
        struct $name { $($fields)* }
    };
}

fn lock_of<T: JobType>() -> String {
    Payloads::new().job_type::<T>().compare(None, false).unwrap().unwrap()
}

/// Compares a program with the type `B` to a lock file of the type `A`. Returns the messages as an error.
fn changed<A: JobType, B: JobType>() -> Result<(), String> {
    // An unchanged type causes no message.
    assert_eq!(Payloads::new().job_type::<A>().compare(Some(&lock_of::<A>()), false), Ok(None));
    Payloads::new().job_type::<B>().compare(Some(&lock_of::<A>()), false).map(|text| assert_eq!(text, None, "nothing is to be written"))
}

fn is_noticed<A: JobType, B: JobType>(parts: &[&str]) {
    let error = changed::<A, B>().expect_err("it is not noticed");
    for part in parts {
        assert!(error.contains(part), "{part}: {error}");
    }
}

form!(Plain { to: String });
form!(WithOption { to: String, cc: Option<String> });
form!(WithDefault {
    to: String,
    #[serde(default)]
    cc: u8
});
form!(Required { to: String, cc: u8 });
form!(RequiredText { to: String, cc: String });
form!(Renamed { recipient: String });
form!(RenamedWithAlias {
    #[serde(alias = "to")]
    recipient: String
});
form!(RenamedWithDefault {
    #[serde(default)]
    recipient: String
});
form!(Strict { to: String });
form!(WritesOtherwise {
    #[serde(rename(serialize = "recipient"))]
    to: String
});
form!(
    #[serde(deny_unknown_fields)]
    Denying { to: String }
);
form!(ToNumber { to: u32 });
form!(ToMany { to: Vec<String> });
form!(Wide { n: u64 });
form!(Narrow { n: u32 });
form!(Signed { n: i64 });

#[test]
fn added_removed_renamed_and_retyped_fields() {
    // Compatible changes: optional fields are added, and fields become optional, are renamed with an alias or get a wider type.
    assert_eq!(changed::<Plain, Strict>(), Ok(()));
    assert_eq!(changed::<Plain, WithOption>(), Ok(()));
    assert_eq!(changed::<Plain, WithDefault>(), Ok(()));
    assert_eq!(changed::<RequiredText, WithOption>(), Ok(()), "what was needed may be left out");
    assert_eq!(changed::<Plain, RenamedWithAlias>(), Ok(()));
    assert_eq!(changed::<Narrow, Wide>(), Ok(()));
    // Incompatible changes: required fields are added, and fields are removed, renamed or retyped.
    is_noticed::<Plain, Required>(&[
        "`locked`, version 1: {\"to\":\"text\"}",
        "missing field `cc` at `$`",
        "#[serde(default)]",
        "version = 2",
    ]);
    is_noticed::<WithOption, RequiredText>(&["invalid type: null, expected a string at `$.cc`", "set `version = 2`", "upgrade = .."]);
    is_noticed::<RequiredText, Plain>(&["`$.cc` is not read any more", "#[serde(alias", "QUEUE_PAYLOADS=accept"]);
    is_noticed::<RequiredText, Denying>(&["unknown field `cc`", "deny_unknown_fields"]);
    is_noticed::<Plain, Renamed>(&["missing field `recipient`", "#[serde(alias = \"..\")]"]);
    is_noticed::<RenamedWithAlias, Plain>(&["missing field `to`"]);
    is_noticed::<Plain, RenamedWithDefault>(&["`$.to` is not read any more"]);
    is_noticed::<Plain, ToNumber>(&["invalid type: string, expected u32 at `$.to`", "upgrade"]);
    is_noticed::<ToNumber, Plain>(&["invalid type: integer"]);
    is_noticed::<Plain, ToMany>(&["expected a sequence"]);
    is_noticed::<Wide, Narrow>(&["invalid value: integer, expected u32 at `$.n`"]);
    is_noticed::<Narrow, Signed2>(&[]);
    is_noticed::<Signed, Wide>(&["invalid value: integer, expected u64"]);
}

form!(Signed2 { n: i32 });

mod nested {
    use super::{Deserialize, Serialize, changed, is_noticed, job};

    #[derive(Serialize, Deserialize)]
    struct Address {
        street: String,
    }

    #[derive(Serialize, Deserialize)]
    struct NewAddress {
        street: String,
        zip: String,
    }

    #[derive(Serialize, Deserialize)]
    enum Channel {
        Mail(Address),
        Fax { number: u64 },
        Pigeon,
    }

    #[derive(Serialize, Deserialize)]
    enum MoreChannels {
        Mail(Address),
        Fax { number: u64 },
        Pigeon,
        Drum,
    }

    #[derive(Serialize, Deserialize)]
    enum NewChannel {
        Mail(NewAddress),
        Fax { number: u64 },
        Pigeon,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(tag = "kind", content = "of")]
    enum Tagged {
        Mail(Address),
        Fax { number: u64 },
        Pigeon,
    }

    /// Recursive payload type.
    #[derive(Serialize, Deserialize)]
    struct Tree {
        name: String,
        under: Vec<Tree>,
        beside: Option<Box<Tree>>,
    }

    form!(Some_ { by: Vec<Option<Channel>> });
    form!(More { by: Vec<Option<MoreChannels>> });
    form!(Deep { by: Vec<Option<NewChannel>> });
    form!(Adjacent { by: Vec<Option<Tagged>> });
    form!(Recursive { tree: Tree });

    #[test]
    fn variants_nested_types_and_representations_of_enums() {
        assert_eq!(changed::<Some_, More>(), Ok(()), "another variant");
        is_noticed::<More, Some_>(&["unknown variant, expected", "at `$.by[0]", "keep the variant"]);
        is_noticed::<Some_, Deep>(&["missing field `zip` at `$.by[0].Mail`"]);
        is_noticed::<Deep, Some_>(&["`$.by.0.Mail.zip` is not read any more"]);
        is_noticed::<Some_, Adjacent>(&["at `$.by[0]"]);
        is_noticed::<Adjacent, Some_>(&["at `$.by[0]"]);
        assert_eq!(changed::<Recursive, Recursive>(), Ok(()));
        let lock = super::lock_of::<Some_>();
        for form in [
            r#"{"by":[{"Mail":{"street":"text"}}]}"#,
            r#"{"by":[{"Fax":{"number":18446744073709551615}}]}"#,
            r#"{"by":["Pigeon"]}"#,
            r#"{"by":[null]}"#,
        ] {
            assert!(lock.contains(form), "{form}: {lock}");
        }
    }
}

form!(Kinds {
    id: Uuid, at: DateTime<Utc>, day: NaiveDate, took: Duration, map: BTreeMap<u16, f64>, any: Value, pair: (bool, char), of: Option<()>,
    small: std::num::NonZeroU8, from: std::net::IpAddr, list: [i8; 2],
});
form!(Flat {
    to: String,
    #[serde(flatten)]
    rest: Rest
});
form!(FlatMore {
    to: String,
    #[serde(flatten)]
    rest: RestMore
});

#[derive(Serialize, Deserialize)]
struct Rest {
    cc: u8,
}

#[derive(Serialize, Deserialize)]
struct RestMore {
    cc: u8,
    bcc: u8,
}

#[test]
fn values_with_known_formats_are_generated_and_others_need_examples() {
    assert_eq!(changed::<Kinds, Kinds>(), Ok(()));
    let error = Payloads::new().job_type::<Flat>().compare(None, false).unwrap_err();
    assert!(error.contains("`locked`: no example payload can be generated") && error.contains(".example(&job)"), "{error}");
    let flat = || Flat { to: "ada".to_owned(), rest: Rest { cc: 1 } };
    let lock = Payloads::new().example(&flat()).compare(None, false).unwrap().unwrap();
    assert_eq!(Payloads::new().example(&flat()).compare(Some(&lock), false), Ok(None));
    let more = FlatMore { to: "ada".to_owned(), rest: RestMore { cc: 1, bcc: 1 } };
    let error = Payloads::new().example(&more).compare(Some(&lock), false).unwrap_err();
    assert!(error.contains("missing field `bcc`"), "{error}");
}

form!(Second { to: Vec<String> } , version = 2, upgrade = from_v1);
form!(Refusing { to: Vec<String> } , version = 2, upgrade = refuse);

fn from_v1(old: Plain) -> Second {
    Second { to: vec![old.to] }
}

fn refuse(_: Plain) -> Result<Refusing, &'static str> {
    Err("never")
}

#[job(send_only, name = "locked_anew", aliases = ["locked"])]
#[derive(Serialize, Deserialize)]
struct NewName {
    to: String,
}

#[job(send_only, name = "locked_elsewhere")]
#[derive(Serialize, Deserialize)]
struct Elsewhere {
    to: String,
}

#[test]
fn versions_and_names() {
    assert_eq!(changed::<Plain, Second>(), Ok(()), "the upgrade reads it");
    is_noticed::<Second, Plain>(&["`locked`, version 2", "the version went back to 1", "set `version = 2`"]);
    is_noticed::<Plain, Refusing>(&["cannot be upgraded to version 2: never", "fix the upgrade from version 1"]);
    assert_eq!(changed::<Plain, NewName>(), Ok(()));
    is_noticed::<Plain, Elsewhere>(&["there is no job type `locked` any more", "aliases = [\"locked\"]"]);
    // Once the second version is accepted, both versions are in the file, and both must stay readable.
    let both = Payloads::new().job_type::<Second>().compare(Some(&lock_of::<Plain>()), true).unwrap().unwrap();
    assert!(both.contains("locked 1 {\"to\":\"text\"}\nlocked 2 {\"to\":[\"text\"]}\n"), "{both}");
    let error = Payloads::new().job_type::<Refusing>().compare(Some(&both), false).unwrap_err();
    assert!(error.contains("`locked`, version 1:") && !error.contains("`locked`, version 2:"), "{error}");
}

#[test]
fn accepted_changes_are_recorded_and_unreadable_ones_are_never_accepted() {
    let lock = lock_of::<Plain>();
    let more = Payloads::new().job_type::<WithOption>().compare(Some(&lock), true).unwrap().unwrap();
    assert!(more.contains("locked 1 {\"to\":\"text\"}\n") && more.contains("\"cc\":\"text\""), "what was before stays: {more}");
    assert_eq!(Payloads::new().job_type::<WithOption>().compare(Some(&more), true), Ok(None), "written once");
    let less = Payloads::new().job_type::<Plain>().compare(Some(&more), true).unwrap().unwrap();
    assert!(!less.contains("cc\":\"text"), "a field that is lost was accepted: {less}");
    Payloads::new().job_type::<ToNumber>().compare(Some(&lock), true).unwrap_err();
    let error = Payloads::new().job_type::<Plain>().compare(Some("locked 1\n"), false).unwrap_err();
    assert!(error.contains("line 1 does not consist of job type"), "{error}");
}

#[test]
fn a_type_that_does_not_read_its_own_output_is_reported() {
    let error = Payloads::new().job_type::<WritesOtherwise>().compare(None, false).unwrap_err();
    assert!(error.contains("`locked` writes") && error.contains("cannot read it: missing field `to`"), "{error}");
    let example = WritesOtherwise { to: "ada".into() };
    let error = Payloads::new().example(&example).compare(None, false).unwrap_err();
    assert!(error.contains("cannot read it"), "{error}");
}

#[test]
fn the_file_is_written_once_and_then_compared_with() {
    let folder = std::env::temp_dir().join(format!("locked-{}", Uuid::new_v4()));
    fs::create_dir(&folder).unwrap();
    let path = folder.join("jobs.lock");
    Payloads::new().job_type::<Plain>().check(&path);
    let written = fs::read_to_string(&path).unwrap();
    assert!(written.ends_with("locked 1 {\"to\":\"text\"}\n"), "{written}");
    Payloads::new().job_type::<WithOption>().check(&path);
    assert_eq!(fs::read_to_string(&path).unwrap(), written, "left unchanged");
    let at = path.clone();
    let error = catch_unwind(move || Payloads::new().job_type::<Renamed>().check(&at)).unwrap_err();
    let error = error.downcast_ref::<String>().unwrap();
    assert!(error.contains("jobs.lock") && error.contains("jobs that may be waiting"), "{error}");
    fs::remove_dir_all(folder).unwrap();
}
