//! What goes into the core and what comes out of it, apart from messages.

use crate::group_file::GroupFile;
use crate::options::CredentialEnds;
use bytes::Bytes;
use net::{NetError, Received};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use wire::ServerInstance;

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
    /// A further connection has joined, as [`Output::OpenStripe`] asked, or why it has not.
    Stripe {
        /// The attempt of the link that it was to join.
        attempt: u64,
        /// What came of it.
        result: Result<(), String>,
    },
}

/// How a further connection of a session is opened.
#[derive(Clone, PartialEq, Eq)]
pub struct StripeDial {
    /// Where the first one went.
    pub address: String,
    /// What is shown in TLS.
    pub certificate: Option<Bytes>,
    /// The first message's head, with the session's key. Who has it has the session.
    pub hello: Bytes,
    /// The server that has to answer.
    pub instance: ServerInstance,
}

impl fmt::Debug for StripeDial {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StripeDial")
            .field("address", &self.address)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
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
    /// What the link of this attempt sends and receives is in chunks from here on: [`Link::striped`], before it is polled
    /// again. No answer.
    ///
    /// [`Link::striped`]: net::Link::striped
    Stripe {
        /// The attempt.
        attempt: u64,
    },
    /// Open a further connection for the link of this attempt; answered by [`Input::Stripe`].
    OpenStripe {
        /// The attempt.
        attempt: u64,
        /// How.
        dial: StripeDial,
    },
    /// Give up the further connection that is being opened. No answer.
    DropStripe,
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
