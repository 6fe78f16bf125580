//! `main!` takes the function that creates the state as an argument named `state`.

queue_worker::main!(std; states = setup);
