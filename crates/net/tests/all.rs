//! Messages over links: one program, so that it is linked once. Tests that need a process of their own
//! stand beside it.

mod conformance;
mod copies;
mod faults;
mod planted;
mod reactor;
mod sim;
