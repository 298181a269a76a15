//! The token of a run's clients, which is to expire.
//!
//! ```text
//!  clients start          go                                  expires
//!  ───┬──────┬──────┬─────┬──────────────────────────────────────┬────────────────┬──►
//!     put    put    put   the last one, good for its life        no events        another one, if there is to be one
//! ```
//!
//! Until go the file has a new one each third of the life, so that clients are let in however long they take to start;
//! they read it again when two thirds of the life of theirs are over. So theirs expires that long after go.

use crate::commands::token;
use crate::failure::{About, Failure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The life of the token that ends the fault.
const LATER: Duration = Duration::from_secs(24 * 3600);

/// The file, and what is put into it.
pub struct Tokens {
    /// Where the server's data is.
    data: PathBuf,
    file: PathBuf,
    life: Duration,
    /// When the last one was put there.
    put: Option<Instant>,
    /// Whether the last one is there.
    is_last: bool,
}

impl Tokens {
    /// Of a server's data, in this file, each good for so long.
    pub fn new(data: PathBuf, file: PathBuf, life: Duration) -> Self {
        Self {
            data,
            file,
            life,
            put: None,
            is_last: false,
        }
    }

    /// Where it is.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// A run begins.
    pub fn begin(&mut self) -> Result<(), Failure> {
        self.is_last = false;
        self.write(self.life)
    }

    /// Puts a new one there if it is time for that.
    pub fn renew(&mut self) -> Result<(), Failure> {
        let is_due = self.put.is_some_and(|put| put.elapsed() >= self.life / 3);
        match is_due && !self.is_last {
            true => self.write(self.life),
            false => Ok(()),
        }
    }

    /// The run goes: the life of the last one begins.
    pub fn go(&mut self) -> Result<(), Failure> {
        self.is_last = true;
        self.write(self.life)
    }

    /// The fault is over.
    pub fn end(&mut self) -> Result<(), Failure> {
        self.write(LATER)
    }

    fn write(&mut self, life: Duration) -> Result<(), Failure> {
        let token = token::of_member(&self.data, life)?;
        let written = client::credential_file::write(&self.file, token.as_bytes());
        written.about(self.file.display().to_string())?;
        self.put = Some(Instant::now());
        Ok(())
    }
}
