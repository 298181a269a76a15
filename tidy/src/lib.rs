//! Development only: the rules that the repository keeps about itself.
//!
//! Each rule is a function from what it looks at to complaints, so that its own
//! tests can show it something bad; `tests/repository.rs` shows it the
//! repository. A complaint says what is wrong, where, and how to put it right.

#![forbid(unsafe_code)]

pub mod cycles;
pub mod documents;
pub mod owners;
pub mod rooms;
pub mod sources;
pub mod tree;
pub mod words;
