//! Events, batches, frames, ids and error codes, as bytes.
//!
//! Nothing here does I/O, looks at a clock, runs a task or trusts its input:
//! any bytes decode to a value or to a [`codec::DecodeError`]. The formats
//! are pages: `docs/format/wire.md`, `docs/format/log.md` and `docs/format/table.md`.

#![forbid(unsafe_code)]

pub mod batch;
pub mod checksum;
pub mod chunk;
pub mod codec;
pub mod error;
pub mod frame;
pub mod id;
pub mod message;
pub mod record;
pub mod step;
pub mod table;
pub mod view;

pub use codec::{Codec, DecodeError};
pub use error::{ErrorCode, ErrorReply};
pub use id::*;
