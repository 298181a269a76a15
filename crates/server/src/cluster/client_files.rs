//! What all servers of a cluster are to clients: one token, one access, one authority of TLS. They lie in `clients` of the
//! directory that the servers share, in the form that a data directory has for a server that is alone.

use crate::access_files::AccessFiles;
use crate::certificates;
use crate::directory::{self, TOKEN_BYTES};
use crate::durable_file::{self, make_private, sync_parent};
use crate::error::ServerError;
use crate::host::{Host, random_u128};
use crate::member_file::CLIENTS;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use wire::DirectoryId;

/// Whose id stands for the cluster in certificates, unless the setting `site` names one.
const SITE_FILE: &str = "site";

/// What all servers of a cluster are to clients.
#[derive(Debug, Clone)]
pub(crate) struct ClientFiles {
    pub path: PathBuf,
    pub site: DirectoryId,
    pub token: [u8; TOKEN_BYTES],
    pub access: AccessFiles,
}

impl ClientFiles {
    /// Reads them, or makes them. Where several servers make them at once, those of one are taken by all.
    ///
    /// # Errors
    /// If they cannot be read or written.
    pub fn open(shared: &Path, host: &Host) -> Result<Self, ServerError> {
        let path = shared.join(CLIENTS);
        if !path.join(SITE_FILE).is_file() {
            make(shared, &path, host)?;
        }
        let damaged = |why: &str| ServerError::Directory {
            directory: path.clone(),
            why: format!("{SITE_FILE} {why}"),
        };
        let text = durable_file::read_if_there(&path.join(SITE_FILE))?;
        let text = text.ok_or_else(|| damaged("is missing"))?;
        let site = u128::from_str_radix(text.trim(), 16);
        Ok(Self {
            site: DirectoryId(site.map_err(|_| damaged("is no number of 32 hexadecimal digits"))?),
            token: directory::token(&path)?,
            access: AccessFiles::within(&path),
            path,
        })
    }
}

/// Makes all of them under another name. A folder is renamed as a whole, and never onto one that has something.
fn make(shared: &Path, path: &Path, host: &Host) -> Result<(), ServerError> {
    let name = host.name.replace('/', "_");
    let made = shared.join(format!(".{CLIENTS}.{name}.{:032x}.tmp", random_u128()));
    let site = DirectoryId(random_u128());
    let filled = make_private(&made).and_then(|()| {
        directory::token(&made)?;
        AccessFiles::within(&made).make()?;
        certificates::make_authority(&made, site, SystemTime::now())?;
        durable_file::write(&made.join(SITE_FILE), format!("{site}\n").as_bytes())
    });
    let renamed = filled.and_then(|()| {
        let renamed = match std::fs::rename(&made, path) {
            Err(error) if is_taken(&error) => Ok(()),
            renamed => renamed,
        };
        renamed
            .and_then(|()| sync_parent(path))
            .map_err(ServerError::file(format!("making {}", path.display())))
    });
    // After the rename it is not there.
    let _ = std::fs::remove_dir_all(&made);
    renamed
}

/// As rename(2) has it: another server was first.
fn is_taken(error: &std::io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::NOTEMPTY, Errno::EXIST].contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn servers_that_start_at_once_and_later_have_the_same_and_nothing_else_stays() {
        let shared = tempfile::tempdir().unwrap();
        let open = || {
            let files = ClientFiles::open(shared.path(), &Host::this()).unwrap();
            let issuer = std::fs::read(files.path.join("access/issuer")).unwrap();
            let authority = std::fs::read(files.path.join("tls/authority.pem")).unwrap();
            (files.site, files.token, issuer, authority)
        };
        let together = Barrier::new(8);
        let mut all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        together.wait();
                        open()
                    })
                })
                .collect();
            threads.into_iter().map(|one| one.join().unwrap()).collect()
        });
        all.push(open());
        assert!(all.iter().all(|one| *one == all[0]));
        assert_eq!(std::fs::read_dir(shared.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_damaged_is_named_and_not_made_anew() {
        let shared = tempfile::tempdir().unwrap();
        let files = ClientFiles::open(shared.path(), &Host::this()).unwrap();
        std::fs::write(files.path.join(SITE_FILE), "?").unwrap();
        let error = ClientFiles::open(shared.path(), &Host::this()).unwrap_err();
        assert!(
            error.to_string().contains("clients: site is no number"),
            "{error}"
        );
        std::fs::remove_file(files.path.join(SITE_FILE)).unwrap();
        let error = ClientFiles::open(shared.path(), &Host::this()).unwrap_err();
        assert!(error.to_string().contains("site is missing"), "{error}");
    }
}
