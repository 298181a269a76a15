//! How servers come to be a cluster: which of the servers that a launcher starts together each one is ([`Ranks`]), how
//! they find each other in a directory on a shared file system and who founds ([`Rendezvous`]), and who they are to
//! each other ([`ClusterAuthority`]).
//!
//! There is no network here. The drawing is in the crate's README, the files are in `docs/format/rendezvous.md`.
//!
//! ```
//! use server::Host;
//! use server::cluster::{Arrival, Decision, Given, Ranks, Rendezvous, SharedDirectory};
//! use std::time::Duration;
//!
//! let parent = tempfile::tempdir()?;
//! let ranks = Ranks::find(Given { rank: Some(0), size: Some(1) }, |name| std::env::var(name).ok())?;
//! let host = Host::this();
//! let mut shared = SharedDirectory::open(&parent.path().join("cluster"), &host)?;
//! let arrival = Arrival {
//!     rank: ranks.rank,
//!     size: ranks.size,
//!     voters: 1,
//!     settings: Vec::new(),
//!     directory: wire::DirectoryId(7),
//!     peers: vec!["tls://node7:9000".to_owned()],
//!     endpoints: vec![vec!["tcp://node7:9001".to_owned()]],
//!     member: None,
//! };
//! let mut rendezvous = Rendezvous::enter(arrival, &host, &mut shared)?;
//! let decision = rendezvous.meet(Duration::from_secs(120), &mut shared)?;
//! assert!(matches!(decision, Decision::Found { .. }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod authority;
mod client_files;
#[cfg(test)]
mod fake_share;
mod faults;
mod local_nodes;
mod part;
mod rank_file;
mod ranks;
mod refused;
mod rendezvous;
#[cfg(test)]
mod rendezvous_tests;
mod shared;
#[cfg(test)]
mod simulation;
mod watch;

pub use authority::{AUTHORITY_FILE, ClusterAuthority, PeerCertificates, PeerIdentity};
pub(crate) use client_files::ClientFiles;
pub(crate) use part::{ClusterPart, Seat, placed, refuse_without};
pub use rank_file::{Membership, RECORD_FILE, RankFile, Record, RunId, cluster_of, rank_file_name};
pub use ranks::{Given, RANKS_MAX, RankError, Ranks};
pub use refused::{Absence, Contradiction, Missing, Refused, Waiting};
pub use rendezvous::{Arrival, Contact, Decision, Founder, Rendezvous};
pub use shared::{Published, Shared, SharedDirectory};
