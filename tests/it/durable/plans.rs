//! Tests the outcomes of durable jobs with different plans, case by case.

use queue_core::{
    Job as _,
    JobState::{self, Completed, Dead, Scheduled},
};
use tests::eventually;

use super::{Part, Plan, db, done, journal, pairs, plan, step};

/// Test case: name, parts, final state, effects with their attempt numbers, optional step names, and the output or a part of the error.
type Case = (&'static str, Vec<Part>, JobState, &'static [(&'static str, i64)], Option<&'static [&'static str]>, &'static [&'static str]);

/// Runs all cases concurrently. Each job is sent the signals `paid` and `vote` before it starts.
async fn play(cases: Vec<Case>) {
    let (db, mut jobs) = (db().await, Vec::new());
    for (_, parts, ..) in &cases {
        jobs.push(plan(parts.clone()).enqueue(&db.pool).await.unwrap().id());
    }
    db.run("select queue.signal(id, 'paid', '7'), queue.signal(id, 'vote', '\"one\"') from queue.job").await;
    db.run_while(db.worker().register::<Plan>().queue("default", cases.len()), async {
        for (job, (name, _, state, ..)) in jobs.iter().zip(&cases) {
            eventually(name, async || db.state(*job).await == Some(*state)).await;
        }
    })
    .await;
    for (job, (name, _, state, expected, steps, texts)) in jobs.into_iter().zip(cases) {
        assert_eq!(done(&db, job).await, pairs(expected), "{name}");
        if let Some(steps) = steps {
            assert_eq!(journal(&db, job).await, steps, "{name}");
        }
        if state == Completed {
            assert_eq!(db.output(job).await, serde_json::json!(texts), "{name}");
        } else if state == Dead {
            let error = db.dead_error(job).await;
            assert!(texts.iter().all(|text| error.contains(text)), "{name}: {error}");
        }
    }
    db.finish().await;
}

fn fails(name: &str) -> Part {
    Part::FailOnce(name.to_owned())
}

fn tx(name: &str) -> Part {
    Part::StepTx(name.to_owned())
}

#[tokio::test]
async fn plans_have_their_expected_outcomes() {
    let vote = || Part::Votes("vote".into(), 1);
    // The job completes on its fourth attempt, although only two attempts without progress are permitted. Each attempt makes progress.
    let again = vec![step("a"), fails("x"), step("b"), fails("y"), fails("z"), step("c")];
    let at_once = vec![Part::Many(300), fails("x")];
    let (long, longer) = (vec![Part::Receive("x".repeat(195))], vec![step(&"x".repeat(201))]);
    let all = &["a", "b", "c", "x", "y", "z"];
    play(vec![
        ("a step is done once, and what fails again", again, Completed, &[("a", 1), ("b", 2), ("c", 4)], Some(all), &["a", "b", "c"]),
        ("with its journal", vec![tx("a"), fails("x"), tx("b")], Completed, &[("a", 0), ("b", 0)], Some(&["a", "b", "x"]), &["a", "b"]),
        ("or not at all", vec![Part::Undone("u".into())], Dead, &[], Some(&[]), &["as told"]),
        ("a panic leaves what was done", vec![step("a"), Part::Panic], Dead, &[("a", 1)], Some(&["a"]), &[]),
        ("steps may be under way together", at_once, Completed, &[], None, &["44850"]),
        ("a name is asked for once an attempt", vec![step("a"), step("a")], Dead, &[("a", 1)], Some(&["a"]), &["the step `a`", "twice"]),
        ("a name is not longer", longer, Dead, &[], Some(&[]), &["1 to 200 bytes"]),
        ("nor that of a signal", long, Dead, &[], Some(&[]), &["limited to 190 bytes"]),
        ("no name is that of the end of a wait", vec![step("paid (timeout)")], Dead, &[], Some(&[]), &["are reserved"]),
        ("a payload fits", vec![Part::Receive("paid".into())], Dead, &[], None, &["the journaled output does not fit the type"]),
        ("a signal is asked for once an attempt", vec![vote(), vote()], Dead, &[], None, &["the attempt uses this step name twice"]),
        ("a short wait for a signal ends in place", vec![Part::Within("never".into(), 200)], Completed, &[], None, &["none"]),
    ])
    .await;
}

#[tokio::test]
#[ignore = "deep"]
async fn short_sleeps_are_waited_for_in_place_and_a_step_beside_a_sleep_comes_first() {
    play(vec![
        ("short", vec![Part::Sleep("nap".into(), 30), Part::Race(40)], Completed, &[], None, &["slept"]),
        ("long", vec![Part::Race(3_600_000)], Scheduled, &[], None, &[]),
        ("beside", vec![Part::Beside(3_600_000)], Scheduled, &[("beside", 1)], Some(&["beside", "besides"]), &[]),
    ])
    .await;
}
