//! What goes into the core and what comes out of it, apart from messages.

use crate::group_file::GroupFile;
use net::{NetError, Received};
use std::path::PathBuf;

/// Something happened.
#[derive(Debug)]
pub enum Input {
    /// The API was used, or time has passed, or nothing: look.
    Kick,
    /// The group file was read, as [`Output::ReadGroupFile`] asked: the file,
    /// with the endpoints to try.
    GroupFile(Result<(GroupFile, Vec<String>), String>),
    /// The link of this attempt stands.
    LinkUp {
        /// Which.
        attempt: u64,
    },
    /// The link of this attempt is dead, or could not be made. It is handed
    /// in once more if it exists, so that lent memory can be taken back.
    LinkDown {
        /// Which.
        attempt: u64,
        /// Why.
        reason: NetError,
    },
    /// A message arrived.
    Message {
        /// On the link of which attempt.
        attempt: u64,
        /// What.
        message: Received,
    },
}

/// Something to do for whoever drives the core.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Read the group file; answered by [`Input::GroupFile`].
    ReadGroupFile(PathBuf),
    /// Begin a connection; answered by [`Input::LinkUp`] or [`Input::LinkDown`].
    /// It is the present one from now on; the one before is dead.
    Connect {
        /// Names it.
        attempt: u64,
        /// Where to.
        address: String,
    },
    /// End the connection, after what is queued on its control lane. No answer.
    Disconnect {
        /// Which.
        attempt: u64,
        /// Why.
        reason: String,
    },
    /// The core has ended: nothing more will come of it.
    Ended,
}
