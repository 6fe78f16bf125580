use super::*;

fn places(url: &str) -> Vec<String> {
    let read = Address::read(url).unwrap_or_else(|error| panic!("{url}: {error}"));
    read.hosts.iter().map(|host| format!("{}:{}", host.get_host(), host.get_port())).collect()
}

fn refused(url: &str) -> String {
    Address::read(url).err().unwrap_or_else(|| panic!("{url} was taken")).to_string()
}

#[test]
fn f86_a_url_names_one_host_or_several_in_the_form_of_libpq() {
    for (url, expected) in [
        ("postgres://u:p@one:1,two:2/d", &["one:1", "two:2"][..]),
        ("postgresql://one:1,two:2,10.0.0.3:3", &["one:1", "two:2", "10.0.0.3:3"]),
        ("postgres://u@[::1]:1,[fe80::2]:2/d", &["::1:1", "fe80::2:2"]),
        ("postgres://u@/d?host=one,two&port=1,2", &["one:1", "two:2"]),
        ("postgres:///d?host=one%2Ctwo&port=7", &["one:7", "two:7"]),
        ("postgres://u@one,two/d?port=7", &["one:7", "two:7"]),
        ("postgres://u@one:5/d", &["one:5"]),
        ("postgres://u,x:p,q@one:5/d", &["one:5"]),
    ] {
        assert_eq!(places(url), expected, "{url}");
    }
    let sockets = Address::read("postgres://u@/d?host=/run/a,/run/b").unwrap().hosts;
    let sockets: Vec<_> = sockets.iter().map(|host| host.get_socket().unwrap().display().to_string()).collect();
    assert_eq!(sockets, ["/run/a", "/run/b"]);
    let read = Address::read("postgres://u:s%2Fecret@h:5,i/d?application_name=a@b&options[work_mem]=1MB").unwrap();
    for host in &read.hosts {
        assert_eq!((host.get_username(), host.get_database(), host.get_application_name()), ("u", Some("d"), Some("a@b")));
        assert_eq!(host.get_options(), Some("-c work_mem=1MB"));
    }
}

#[test]
fn of_several_hosts_one_that_takes_writes_is_wanted_and_of_one_it_is_enough_that_it_answers() {
    let target = |url: &str| Address::read(url).unwrap().wanted;
    assert_eq!((target("postgres://a,b/d"), target("postgres://a/d")), (TargetSession::ReadWrite, TargetSession::Any));
    let (primary, standby) = (ServerState { standby: false, read_only: false }, ServerState { standby: true, read_only: true });
    let set_read_only = ServerState { standby: false, read_only: true };
    for (word, takes) in [
        ("any", [true, true, true]),
        ("read-write", [true, false, false]),
        ("read-only", [false, true, true]),
        ("primary", [true, false, true]),
        ("standby", [false, true, false]),
        ("prefer-standby", [true, true, true]),
    ] {
        let target = target(&format!("postgres://a,b/d?target_session_attrs={word}"));
        assert_eq!([primary, standby, set_read_only].map(|state| target.takes(state)), takes, "{word}");
        assert_eq!(target.prefers_other(primary), word == "prefer-standby");
    }
    assert!(refused("postgres://a/d?target_session_attrs=write").contains("read-write"));
}

#[test]
fn an_unknown_parameter_is_rejected_by_name() {
    let error = refused("postgres://u:secret@h/d?sslmode=require&channel_bindung=require");
    assert!(error.contains("`channel_bindung`") && error.contains("target_session_attrs") && !error.contains("secret"), "{error}");
    assert!(refused("postgres://h/d?Sslmode=require").contains("`Sslmode`"), "as the driver and libpq have it");
    for (url, why) in [
        ("postgres://a:1,b:2/d?port=1,2,3", "differ in length"),
        ("postgres://a,,b/d", "empty entry"),
        ("postgres://a,/d", "empty entry"),
        ("postgres://a/d?connect_timeout=soon", "connect_timeout"),
    ] {
        assert!(refused(url).contains(why), "{url}: {}", refused(url));
    }
    let patience = |url: &str| Address::read(url).unwrap().patience;
    assert_eq!((patience("postgres://a/d?connect_timeout=3"), patience("postgres://a/d")), (Duration::from_secs(3), PATIENCE));
}

#[test]
fn f64_no_part_of_a_password_passes_for_a_host_a_database_or_a_parameter() {
    for url in [
        "u:secret@h/d",
        "postgres://u:1/secret@h/d",
        "postgres://u:1#secret@h/d",
        "postgres://u:1?secret@h/d",
        "postgres://u:1?secret&x@h/d",
        "postgres://u:1?x&secret#@h/d",
        "mysql://u:secret@h/d",
        "secret::",
        "",
    ] {
        let error = refused(url);
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn what_providers_hand_out_is_taken_where_it_is_met_and_else_told_how_to_write() {
    for taken in [
        "channel_binding=prefer",
        "gssencmode=disable",
        "sslnegotiation=postgres",
        "keepalives=1&keepalives_idle=30&keepalives_interval=10&keepalives_count=3&tcp_user_timeout=5000",
        "fallback_application_name=psql&client_encoding=UTF8&load_balance_hosts=disable&ssl_min_protocol_version=TLSv1.2",
        "schema=public&pgbouncer=true&connection_limit=5&pool_timeout=10&socket_timeout=5",
    ] {
        assert_eq!(places(&format!("postgres://u@h/d?sslmode=require&{taken}")), ["h:5432"], "{taken}");
    }
    // The driver reads the files of these parameters only if `sslmode` requires them. The value of `sslkey` may also be the key itself.
    for taken in ["sslrootcert=/no/such/ca.pem&sslmode=require", "sslcert=&sslkey=&sslmode=disable", "sslkey=LS0tLS1&sslmode=require"] {
        assert_eq!(places(&format!("postgres://u@h/d?{taken}")), ["h:5432"], "{taken}");
    }
    for (not, instead) in [
        ("channel_binding=require", "sslmode=verify-full"),
        ("gssencmode=require", "sslmode=verify-full"),
        ("sslnegotiation=direct", "remove it"),
        ("client_encoding=LATIN1", "UTF8"),
        ("load_balance_hosts=random", "remove it"),
        ("passfile=/x", "PGPASSFILE"),
        ("service=app", "into the URL"),
        ("sslaccept=strict", "sslmode=verify-full"),
        ("sslmode=verify-full&sslrootcert=/no/such/ca.pem", "`/no/such/ca.pem`"),
        ("sslkey=/no/such/key&sslmode=require", "`/no/such/key`"),
        ("sslcrl=/x", "`sslcrl`"),
    ] {
        let error = refused(&format!("postgres://u@h/d?{not}"));
        assert!(error.contains(instead), "{not}: {error}");
    }
    let one = |query: &str| Address::read(&format!("postgres://u@h/d?{query}")).unwrap().hosts.remove(0);
    assert_eq!(one("schema=shop").get_options(), Some("-c search_path=\"shop\""));
    for mode in ["", "&sslmode=require"] {
        assert!(
            matches!(one(&format!("sslrootcert=system{mode}")).get_ssl_mode(), sqlx::postgres::PgSslMode::VerifyFull),
            "as libpq has it"
        );
    }
}

/// Checks the default user. The driver's default is `anonymous` if `whoami` is built without its feature `std`.
#[test]
fn without_a_user_in_the_url_it_is_the_user_of_the_system() {
    let hosts = Address::read("postgres://localhost/d").unwrap().hosts;
    assert!(!["anonymous", "unknown", ""].contains(&hosts[0].get_username()), "{}", hosts[0].get_username());
}
