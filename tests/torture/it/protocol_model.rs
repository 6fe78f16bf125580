//! Checks a model of the worker protocol that runs without a database. Explores every order of steps with a bounded number of faults. The
//! checker must also find the violations in broken variants of the protocol.

mod state;
mod step;

use std::collections::{HashMap, VecDeque};

use stateright::{Checker as _, HasDiscoveries, Model, Property};

use state::{JOBS, State, WORKERS};
use step::{Protocol, Step, Variant};

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.faults)]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        actions.extend(self.steps(state));
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        Some(self.after(state, step))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(ONE_PLACE, |_, state: &State| {
                (0..JOBS).all(|job| state.db.places(job) == usize::from(state.enqueued >> job & 1))
            }),
            Property::always(ONE_LEASE, |_, state: &State| (0..JOBS).all(|job| state.db.leased(job) <= 1)),
            Property::always(STAYS_COMPLETED, |_, state: &State| (0..JOBS).all(|job| state.completed >> job & 1 <= state.db.done[job])),
            Property::always(COMPLETED_ONLY, |_, state: &State| (0..JOBS).all(|job| state.db.done[job] == 0 || state.db.places(job) == 1)),
            Property::always(OWN_LEASE, |_, state: &State| !state.wrong),
            Property::sometimes("all are completed", |_, state: &State| is_finished(state)),
            Property::sometimes("a verdict is refused", |_, state: &State| state.refused),
        ];
        if self.punctual {
            properties.push(Property::always(ONE_RUNNER, |_, state: &State| (0..JOBS).all(|job| runners(state, job) <= 1)));
        }
        properties
    }

    /// Excludes states with high sequence numbers or attempt numbers, because both grow without bound.
    fn within_boundary(&self, state: &State) -> bool {
        state.db.next <= 4 && state.db.attempts.iter().all(|attempts| *attempts <= 4)
    }
}

const ONE_PLACE: &str = "a job whose enqueue was acknowledged is in exactly one place, others in none";
const ONE_LEASE: &str = "a job is in at most one lease";
const STAYS_COMPLETED: &str = "a job whose completion was acknowledged stays completed";
const COMPLETED_ONLY: &str = "a completed job is not queued and does not run again";
const OWN_LEASE: &str = "a verdict takes effect only under its own lease";
const ONE_RUNNER: &str = "no job runs on two workers";

fn is_finished(state: &State) -> bool {
    state.db.done.iter().all(|done| *done == 1)
}

fn runners(state: &State, job: usize) -> usize {
    (0..WORKERS).filter(|worker| state.workers[*worker].held.iter().any(|(_, ids)| ids & 1 << job != 0)).count()
}

/// Explores the full state space. Panics unless every property holds.
fn holds(protocol: Protocol) {
    let checked = protocol.checker().threads(2).spawn_bfs().join();
    println!("{protocol:?}: {} states, {} deep", checked.unique_state_count(), checked.max_depth());
    checked.assert_properties();
}

/// Returns the shortest path to a state that violates `property`.
fn broken(protocol: Protocol, property: &'static str) -> Vec<Step> {
    let checked = protocol.checker().finish_when(HasDiscoveries::AnyOf([property].into())).spawn_bfs().join();
    let way = checked.discovery(property).unwrap_or_else(|| panic!("no violation found in {protocol:?}")).into_actions();
    println!("{protocol:?}, {} states: {way:?}", checked.unique_state_count());
    way
}

/// Returns a stuck state, if any, and the total number of states. Without further faults, no sequence of steps from a stuck state completes
/// all jobs.
fn stuck(protocol: Protocol) -> (Option<State>, usize) {
    let first = State::new(protocol.faults);
    let mut numbers = HashMap::from([(first.clone(), 0)]);
    let (mut states, mut from) = (vec![first], vec![Vec::new()]);
    let mut at = 0;
    while at < states.len() {
        for step in protocol.steps(&states[at]) {
            let next = protocol.after(&states[at], step);
            let fault = step.is_fault(&states[at]);
            let number = *numbers.entry(next).or_insert_with_key(|next| {
                states.push(next.clone());
                from.push(Vec::new());
                states.len() - 1
            });
            if !fault {
                from[number].push(at);
            }
        }
        at += 1;
    }
    // Searches backwards from the states in which all jobs are finished.
    let mut good: Vec<bool> = states.iter().map(is_finished).collect();
    let mut queue: VecDeque<usize> = (0..states.len()).filter(|at| good[*at]).collect();
    while let Some(at) = queue.pop_front() {
        for before in std::mem::take(&mut from[at]) {
            if !std::mem::replace(&mut good[before], true) {
                queue.push_back(before);
            }
        }
    }
    (good.iter().position(|good| !good).map(|at| states[at].clone()), states.len())
}

/// Maximum number of faults on a path, unless `PROTOCOL_FAULTS` is set. The low number keeps the test short.
const FAULTS: u8 = 2;

fn protocol(variant: Variant) -> Protocol {
    let faults = std::env::var("PROTOCOL_FAULTS").ok().map_or(FAULTS, |faults| faults.parse().unwrap());
    Protocol { variant, faults, punctual: false }
}

#[test]
fn despite_losses_and_delays_every_job_is_in_one_place_and_settled_once() {
    holds(protocol(Variant::Ours));
}

#[test]
fn every_job_can_complete_from_every_reachable_state() {
    let (stuck, states) = stuck(protocol(Variant::Ours));
    println!("{states} states");
    assert_eq!(stuck, None);
}

#[test]
fn with_accurate_clocks_no_job_runs_on_two_workers() {
    holds(Protocol { punctual: true, ..protocol(Variant::Ours) });
}

#[test]
fn a_verdict_that_names_only_its_job_ends_the_attempt_of_another() {
    let way = broken(protocol(Variant::SettlesById), OWN_LEASE);
    assert!(way.iter().filter(|step| matches!(step, Step::Claim(..))).count() >= 2, "another worker has claimed it");
}

#[test]
fn an_attempt_s_number_is_given_out_again_after_a_commit_was_lost() {
    let way = broken(protocol(Variant::SettlesByAttempt), OWN_LEASE);
    assert!(way.contains(&Step::Failover));
}

#[test]
fn a_sequence_gives_out_a_token_again_after_a_commit_was_lost() {
    let way = broken(protocol(Variant::SequenceTokens), OWN_LEASE);
    assert!(way.contains(&Step::Failover));
}

#[test]
fn a_recovery_that_reads_before_it_locks_requeues_a_completed_job() {
    let way = broken(protocol(Variant::RecoversAtOnce), COMPLETED_ONLY);
    let at = |predicate: fn(&Step) -> bool| way.iter().position(predicate);
    let settled = at(|step| matches!(step, Step::Settle(..) | Step::Retry(..) | Step::LateSettle(_, true)));
    assert!(at(|step| *step == Step::Find) < settled && settled < at(|step| *step == Step::TakeBack), "{way:?}");
}

#[test]
fn a_claim_without_a_reply_that_is_never_given_back_keeps_its_jobs() {
    let state = stuck(protocol(Variant::ForgetsStrays)).0.unwrap();
    assert!(state.db.leases.iter().any(|row| row.worker.is_some()), "held by a live worker: {state:?}");
}

#[test]
fn a_claim_without_a_reply_may_execute_after_it_was_given_back_once() {
    assert!(stuck(protocol(Variant::GivesBackOnce)).0.is_some());
}

#[test]
fn a_worker_that_continues_while_its_row_expires_runs_jobs_of_another() {
    let way = broken(Protocol { punctual: true, ..protocol(Variant::NeverFences) }, ONE_RUNNER);
    assert!(way.iter().any(|step| matches!(step, Step::Expire(_))) && way.contains(&Step::TakeBack));
}
