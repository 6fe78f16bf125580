//! What attacks the statements and the protocol, apart from the suite because it takes minutes: faults at work (`cargo chaos`), each guard of
//! each statement removed (`cargo guards`), two and three statements at once and models of the protocol (`cargo torture`).

#[cfg(feature = "mutants")]
pub mod chaos;
pub mod guards;
pub mod seeded;
