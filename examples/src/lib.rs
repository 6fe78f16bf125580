//! Examples: each file in `examples/` shows one idea.
