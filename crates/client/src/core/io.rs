//! What goes into the core and what comes out of it, apart from messages.

use crate::group_file::GroupFile;
use crate::options::CredentialEnds;
use bytes::Bytes;
use net::{NetError, Received};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Something happened.
#[derive(Debug)]
pub enum Input {
    /// The API was used, or time has passed, or nothing: look.
    Wake,
    /// The group file was read, as [`Output::ReadGroupFile`] asked: the file,
    /// with the endpoints to try.
    GroupFile(Result<(GroupFile, Vec<String>), String>),
    /// The file of the credential was read, as [`Output::ReadCredential`] asked: its content. Or MUNGE has made one, as
    /// [`Output::MakeCredential`] asked.
    Credential(Result<Bytes, String>),
    /// The link stands.
    LinkUp {
        /// The attempt that it is of.
        attempt: u64,
    },
    /// The link is dead, or could not be made. It is handed
    /// in once more if it exists, so that lent memory can be taken back.
    LinkDown {
        /// The attempt that it is of.
        attempt: u64,
        /// Why it is dead.
        reason: NetError,
    },
    /// A message arrived.
    Message {
        /// The attempt of the link that it came by.
        attempt: u64,
        /// The message.
        message: Received,
    },
}

/// What the file of a credential is to hold from now on.
#[derive(Clone, PartialEq, Eq)]
pub struct RenewedCredential {
    /// The file.
    pub path: PathBuf,
    /// What it held. Who has it has what it allows.
    pub before: Bytes,
    /// What it is to hold.
    pub after: Bytes,
    /// How long that is good.
    pub left: Duration,
}

impl fmt::Debug for RenewedCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenewedCredential")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Something to do for what drives the core.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Read the group file; answered by [`Input::GroupFile`].
    ReadGroupFile(PathBuf),
    /// Read the file of the credential; answered by [`Input::Credential`].
    ReadCredential(PathBuf),
    /// Have MUNGE make a credential for the server that has shown a certificate; answered by [`Input::Credential`].
    MakeCredential {
        /// What names MUNGE.
        path: PathBuf,
        /// The certificate's SHA-256.
        certificate: [u8; 32],
    },
    /// Write the credential anew, as long as its file has what it had. No answer.
    RenewCredential(RenewedCredential),
    /// Say that the credential ends. No answer.
    CredentialEnds(CredentialEnds),
    /// Begin a connection; answered by [`Input::LinkUp`] or [`Input::LinkDown`].
    /// It is the present one from now on; the one before is dead.
    Connect {
        /// The number of the attempt.
        attempt: u64,
        /// The server's address.
        address: String,
        /// What is shown in TLS, if the credential is a certificate: it and its key, in PEM.
        certificate: Option<Bytes>,
    },
    /// End the connection, after what is queued on its control lane. No answer.
    Disconnect {
        /// The attempt whose link is to end.
        attempt: u64,
        /// The reason that the server is given.
        reason: String,
    },
    /// The core has ended: nothing more will come of it.
    Ended,
}
