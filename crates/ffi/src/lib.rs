//! The C ABI of Thalweg: what `include/thalweg/thalweg.h` declares.
//!
//! The header says what each function does; here is how. Every function runs
//! inside `boundary::guard`, so that neither an error nor a panic crosses
//! into C. Pointers come in as `Option<&T>`, which has the layout of a pointer
//! that may be NULL; that what they point to is alive is the caller's part of
//! the contract, and so is that nobody frees a handle that another thread uses.

mod boundary;
mod callbacks;
mod consumer;
mod drain;
mod driver;
mod error;
mod event;
mod future;
mod gaps;
mod group;
mod loan;
mod memory;
mod message;
mod options;
mod producer;
mod pull;
mod queue;
mod reader;
mod requester;
mod step_attributes;
mod step_options;
mod step_reader;
mod step_stream;
mod step_view;
mod step_writer;
mod strided;
mod topic;
mod view;

#[cfg(test)]
mod guide;
#[cfg(test)]
mod header;
#[cfg(test)]
mod tests;
