//! What is made of the pool is `state`.

queue_worker::main!(std; states = setup);
