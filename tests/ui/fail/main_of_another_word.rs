//! The factory of the state is named `state`.

queue_worker::main!(std; states = setup);
