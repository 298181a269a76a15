//! Voters under one seed and a virtual clock, with everything going wrong that may, and a judge
//! that looks at every step. See the README.

mod admin;
mod client;
mod disk_witness;
mod judge;
mod links;
mod machine;
mod plan;
mod run;
mod tests;
mod trace;
mod world;
