//! Validators, partition selectors and serializers from shared libraries that
//! users write in C or C++ against `include/thalweg/plugin.h`.
//!
//! [`Loader`] is a client's [`topic::Plugins`]: it finds a library by its
//! search path, checks what it exports, and hands out trait objects that call
//! it. Foreign code is held to its side of the contract where that can be
//! done: it gets no memory to overrun, what it returns is checked, and what it
//! says is cut. That it keeps to the rest, threads and exceptions above all, is
//! its own promise.

mod abi;
mod foreign;
mod library;
mod output;

pub use library::{Loader, PATH_VARIABLE};
