//! A server: an executor for the broker's node, with listeners, disk
//! threads, configuration, group file and drain. Also embedded in another
//! program, offering an in-process endpoint.
//!
//! Knows no client.

#![forbid(unsafe_code)]

mod access_files;
pub mod address;
mod amqp_listener;
mod audit_trail;
mod backup;
mod certificates;
mod check;
pub mod cluster;
pub mod config;
mod descriptors;
mod directory;
mod disk_threads;
mod durable_file;
pub mod environment;
mod error;
mod examine_threads;
mod examiner;
mod exchange;
pub mod executor;
mod fate;
mod file_system;
mod group_file;
mod host;
mod interruption;
mod issuing;
mod key_files;
mod member_file;
mod nic;
mod opening;
mod origin;
mod placement;
mod rare_line;
mod rules_file;
mod running;
mod server;
mod server_log;
mod shard_count;
mod shards;
mod storages;
mod strangers;
mod system;
mod value;

pub use access_files::{AccessFiles, Revocation};
pub use backup::{Backup, back_up};
pub use check::{Finding, Verdict, check};
pub use config::Config;
pub use descriptors::raise_limit as raise_limit_of_files;
pub use directory::{DataDirectory, Looked, TOKEN_BYTES};
pub use error::{ConfigError, ServerError};
pub use file_system::{FileSystem, measure_sync};
pub use group_file::{Group, GroupFile};
pub use host::Host;
pub use interruption::Interruption;
pub use nic::Interfaces;
pub use origin::{Origin, Settings};
pub use placement::Cores;
pub use server::{DrainHandle, Server};
pub use server_log::{Level, LevelFilter, LogRecord, ServerLog};
pub use shard_count::{SHARDS_MAX, Shards};
pub use storages::Storages;
