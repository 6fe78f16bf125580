//! Bugs that queues have had, to be put into this one: `cargo chaos --bugs` does it, one at a time (`docs/RELIABILITY.md`).
//!
//! The list is of this crate and not of the program that plays them, so that a test can hold it against the files.

/// One bug, and the scene that must report it.
#[derive(Debug)]
pub struct Bug {
    /// What it is called.
    pub name: &'static str,
    /// Of `cargo chaos --bugs`.
    pub scene: &'static str,
    /// What it is.
    pub is: Is,
}

/// Where it is.
#[derive(Debug)]
pub enum Is {
    /// Behind a switch in the code.
    Switch(&'static str),
    /// In statements: file, what stands there, what stands there instead.
    Edits(&'static [(&'static str, &'static str, &'static str)]),
}

/// All of them.
pub const BUGS: [Bug; 12] = [
    Bug {
        name: "settle by id only",
        scene: "zombies",
        is: Is::Edits(&[("settle.sql", "join listed l on l.token = s.token and l.id = s.id", "cross join (select false as cancelling) l")]),
    },
    Bug {
        name: "settle by state only",
        scene: "zombies",
        is: Is::Edits(&[
            ("settle.sql", "where l.token = any ($1)\n", "where l.ids && $2\n"),
            ("settle.sql", "join listed l on l.token = s.token and l.id = s.id", "join listed l on l.id = s.id"),
        ]),
    },
    Bug {
        name: "attempt number instead of token",
        scene: "zombies",
        is: Is::Edits(&[
            ("settle.sql", "where l.token = any ($1)\n", "where l.ids && $2\n"),
            (
                "settle.sql",
                "join listed l on l.token = s.token and l.id = s.id",
                "join listed l on l.id = s.id and l.attempts = s.attempts",
            ),
        ]),
    },
    Bug {
        name: "attempt counted at the end",
        scene: "kills",
        is: Is::Edits(&[
            ("claim.sql", "least(attempts + 1, 32767)::smallint as attempts", "attempts"),
            ("claim.sql", "t.id, t.attempts,", "t.id, (t.attempts + 1)::smallint as attempts,"),
        ]),
    },
    // Locks and reads under one snapshot, which is older than what the lock waited for.
    Bug {
        name: "recover in one statement",
        scene: "zombies",
        is: Is::Edits(&[
            ("silent.sql", "for update of l skip locked", ""),
            (
                "recover.sql",
                "delete from queue.lease\n  where token = any ($1)\n  returning claimed_at, ids, attempts, crashes, cancelling\n)",
                "select claimed_at, ids, attempts, crashes, cancelling from queue.lease where token = any ($1)\n), gone as (\n  delete from queue.lease where token = any ($1)\n)",
            ),
        ]),
    },
    Bug { name: "no floor rescan", scene: "late", is: Is::Switch("no_rescan") },
    Bug { name: "idle flag without the second claim", scene: "sleep", is: Is::Switch("idle_flag_alone") },
    Bug { name: "heartbeat on the handlers' runtime", scene: "busy", is: Is::Switch("heartbeat_among_handlers") },
    Bug {
        name: "recovery that ignores crashes",
        scene: "poison",
        is: Is::Edits(&[("recover.sql", "(u.crashes + 1)::smallint as crashes", "u.crashes")]),
    },
    Bug { name: "payloads decoded as a batch", scene: "unreadable", is: Is::Switch("decode_as_a_batch") },
    Bug { name: "effects committed before the settle", scene: "kills", is: Is::Switch("effects_first") },
    // Every job is ready at once, and a claim passes over those of which an earlier one of the key is seen: one that is not yet committed is not.
    Bug {
        name: "FIFO by NOT EXISTS",
        scene: "order",
        is: Is::Edits(&[
            ("3_keys.sql", "  perform queue.lock_key(job_key);\n", ""),
            ("3_keys.sql", "where not exists (select from queue.active_key a where a.key = job_key) and", "where false and"),
            ("3_keys.sql", "is_head := found;", "is_head := true;"),
            (
                "claim.sql",
                "where r.lane = l.lane and r.seq >= l.floor\n",
                "where r.lane = l.lane and r.seq >= l.floor and not exists (
                   select from queue.job j join queue.job e on e.key = j.key and e.id < j.id join queue.living v on v.id = e.id where j.id = r.id
                 )\n",
            ),
        ]),
    },
];
