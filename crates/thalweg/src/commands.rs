//! The commands, one file each.

pub mod audit;
pub mod backup;
pub mod bench;
pub mod completions;
pub mod config;
pub mod consume;
pub mod cursor;
pub mod doctor;
pub mod drain;
pub mod gateway;
pub mod look;
pub mod man;
pub mod nodes;
pub mod pair;
pub mod produce;
pub mod relay;
pub mod serve;
pub mod sharing;
pub mod status;
pub mod steps;
pub mod token;
pub mod topic;
pub mod view;
pub mod workload;
