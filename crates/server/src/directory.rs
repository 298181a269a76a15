//! The data directory: its identity, its token, and who owns it now.

use crate::access_files::AccessFiles;
use crate::durable_file::{self, make_private, read_if_there};
use crate::error::ServerError;
use crate::group_file::hex;
use crate::host::{Host, random_u128};
use crate::member_file::MemberFile;
use memory::LockedFile;
use rustix::fs::{Access, access};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::codec::OLDER_ADVICE;
use wire::{DirectoryId, ServerInstance};

/// Bytes of the token that clients present.
pub const TOKEN_BYTES: usize = 32;
/// The version of the directory's layout, and of all that is in it, that this code makes.
const FORMAT: u32 = 3;
pub(crate) const IDENTITY_FILE: &str = "directory.json";
const TOKEN_FILE: &str = "token";
pub(crate) const LOCK_FILE: &str = "lock";

/// An open data directory. Nobody else has it until it is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    id: DirectoryId,
    instance: ServerInstance,
    token: [u8; TOKEN_BYTES],
    /// Whether `directory.json` says that it is elsewhere: it was moved, or is a copy.
    is_elsewhere: bool,
    lock: Arc<LockedFile>,
    /// Whom a server on it believes.
    access: AccessFiles,
    /// What an operator should know of how it was opened.
    cautions: Vec<String>,
}

/// What there is where a data directory is to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked {
    /// Nothing: the start makes it.
    Absent,
    /// A directory that no server has used yet.
    Empty,
    /// A data directory.
    Known {
        /// Its permanent identity.
        id: DirectoryId,
        /// What an operator should know of it: that it is a copy whose original is still there,
        /// with the same id; that others can read its token.
        cautions: Vec<String>,
    },
}

/// Who has a data directory: the content of its lock file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Owner {
    host: String,
    boot_id: String,
    pid: u32,
    instance: String,
}

impl std::fmt::Display for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "process {} on {} (instance {})",
            self.pid, self.host, self.instance
        )
    }
}

#[derive(Serialize, Deserialize)]
struct Identity {
    format: u32,
    directory: String,
    /// Where it was when a server last started on it. Directories of before do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
}

impl DataDirectory {
    /// Opens the data directory at `path` for this process, making it if it is
    /// not there.
    ///
    /// # Errors
    /// [`ServerError::Locked`] if a server of this host has it;
    /// [`ServerError::LockedElsewhere`] if one on another host did not give it
    /// back, unless `take_over`.
    pub fn open(path: &Path, host: &Host, take_over: bool) -> Result<Self, ServerError> {
        make_private(path)?;
        let path = path
            .canonicalize()
            .map_err(ServerError::file(format!("resolving {}", path.display())))?;
        refuse_foreign(&path)?;
        let instance = ServerInstance(random_u128());
        let mut cautions = Vec::new();
        let lock = lock(&path, host, instance, take_over, &mut cautions)?;
        let (id, is_elsewhere) = identity(&path, &mut cautions)?;
        let token = token(&path)?;
        cautions.extend(shared_token(&path));
        let access = AccessFiles::within(&path);
        cautions.extend(access.make()?);
        Ok(Self {
            path,
            id,
            is_elsewhere,
            instance,
            token,
            lock: Arc::new(lock),
            access,
            cautions,
        })
    }

    /// What a start would find at `path`. Changes nothing; the lock is held shared for a moment.
    ///
    /// # Errors
    /// As [`DataDirectory::open`].
    pub fn look(path: &Path, host: &Host, take_over: bool) -> Result<Looked, ServerError> {
        match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Looked::Absent);
            }
            other => other.map_err(ServerError::file(format!("looking at {}", path.display())))?,
        };
        refuse_foreign(path)?;
        access(path, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| {
            ServerError::file(format!("writing to {}", path.display()))(error.into())
        })?;
        if let Some((_, record)) = try_lock(path, Lock::Shared, false)? {
            refuse_elsewhere(path, record, host, take_over)?;
        }
        let identity = read_whole_identity(path)?;
        read_token(path)?;
        let Some((id, before)) = identity else {
            return Ok(Looked::Empty);
        };
        let path = path.canonicalize();
        let path = path.map_err(ServerError::file("resolving the directory".to_owned()))?;
        let copy = match before.as_deref() == Some(path.as_path()) {
            true => None,
            false => refuse_copy(&path, id, before.as_deref())?,
        };
        let cautions = copy.into_iter().chain(shared_token(&path)).collect();
        Ok(Looked::Known { id, cautions })
    }

    /// Whom a server on the data directory at `path` believes, whether one runs or not: if it is a part of a cluster, whom all
    /// servers of that believe. Or whom a gateway does, whose directory has such files, too.
    ///
    /// # Errors
    /// [`ServerError::Directory`] if no server was started there.
    pub fn access_at(path: &Path) -> Result<AccessFiles, ServerError> {
        if let Some(member) = MemberFile::read(path)? {
            return Ok(AccessFiles::within(&member.clients()));
        }
        let files = AccessFiles::within(path);
        match read_identity(path)? {
            Some(_) => Ok(files),
            None if files.are_there() => Ok(files),
            None => Err(ServerError::Directory {
                directory: path.to_owned(),
                why: "it is no data directory: start a server on it first, which makes the key \
                      that tokens are signed with"
                    .to_owned(),
            }),
        }
    }

    /// Notes where the directory is now. To be called when the start has gone through: one that is
    /// refused changes nothing.
    pub fn keep_path(&self) -> Result<(), ServerError> {
        if !self.is_elsewhere {
            return Ok(());
        }
        match write_identity(&self.path, self.id) {
            // It only says where the directory is, and the next start writes it.
            Err(ServerError::File { source, .. })
                if source.kind() == std::io::ErrorKind::StorageFull =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// Where it is, absolute.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its permanent identity.
    pub fn id(&self) -> DirectoryId {
        self.id
    }

    /// This run of a server.
    pub fn instance(&self) -> ServerInstance {
        self.instance
    }

    /// What clients present.
    pub fn token(&self) -> &[u8; TOKEN_BYTES] {
        &self.token
    }

    /// Whom a server on it believes, and what was revoked.
    pub fn access(&self) -> &AccessFiles {
        &self.access
    }

    /// What an operator should know of how it was opened.
    pub fn cautions(&self) -> &[String] {
        &self.cautions
    }

    /// What keeps others of this host out for as long as it is held, beyond the life of this object.
    pub(crate) fn lock(&self) -> Arc<LockedFile> {
        self.lock.clone()
    }

    /// Gives the directory back: who comes next, from whichever host, may
    /// have it. Dropping it instead leaves the owner's record behind.
    pub fn give_back(self) -> Result<(), ServerError> {
        write_owner(&self.lock, "").map_err(ServerError::file(format!(
            "clearing {}",
            self.path.join(LOCK_FILE).display()
        )))
    }
}

/// The least length of a lock file: a record is padded with spaces up to it.
const LOCK_BYTES: usize = 512;

/// Writes the owner's record, or none, over the one before: the file keeps its length and its
/// place on the disk, so that a full disk takes the next one too.
fn write_owner(lock: &File, text: &str) -> std::io::Result<()> {
    let padded = format!("{text:<LOCK_BYTES$}");
    lock.write_all_at(padded.as_bytes(), 0)?;
    lock.set_len(padded.len() as u64)?;
    lock.sync_all()
}

/// Of what leads to `path`, which may not be there, the last directory that is.
pub(crate) fn nearest(path: &Path) -> std::io::Result<PathBuf> {
    let absolute = std::path::absolute(path)?;
    let there = absolute.ancestors().find(|path| path.exists());
    Ok(there.unwrap_or(&absolute).to_owned())
}

/// Makes sure that nobody else gets into a directory, made by whomever.
pub(crate) fn refuse_shared(path: &Path) -> Result<(), ServerError> {
    let found = std::fs::symlink_metadata(path)
        .map_err(ServerError::file(format!("looking at {}", path.display())))?;
    let is_ours = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    if is_ours && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(ServerError::Directory {
        directory: path.to_owned(),
        why: "it is to be a directory of this user alone, mode 0700".to_owned(),
    })
}

/// A directory with content that no server made is not touched.
fn refuse_foreign(path: &Path) -> Result<(), ServerError> {
    if path.join(IDENTITY_FILE).exists() || path.join(LOCK_FILE).exists() {
        return Ok(());
    }
    let mut entries = std::fs::read_dir(path)
        .map_err(ServerError::file(format!("listing {}", path.display())))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(ServerError::Directory {
            directory: path.to_owned(),
            why: format!("it is not empty, and has no {IDENTITY_FILE}: it is no data directory"),
        }),
    }
}

/// Whom a lock keeps out.
#[derive(Clone, Copy)]
enum Lock {
    /// Who has it alone.
    Shared,
    /// Everybody.
    Exclusive,
}

/// The lock file, locked, and who had it before, as far as its record says. `None` if it is not
/// there, and not to be made.
///
/// # Errors
/// [`ServerError::Locked`] if another process has it.
fn try_lock(
    directory: &Path,
    how: Lock,
    make: bool,
) -> Result<Option<(LockedFile, Option<Owner>)>, ServerError> {
    let path = directory.join(LOCK_FILE);
    let locking = || ServerError::file(format!("locking {}", path.display()));
    let opened = OpenOptions::new()
        .read(true)
        .write(make)
        .create(make)
        .truncate(false)
        .mode(0o600)
        .open(&path);
    let mut file = match opened {
        Err(error) if !make && error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(locking())?,
    };
    let locked = match how {
        Lock::Shared => file.try_lock_shared(),
        Lock::Exclusive => file.try_lock(),
    };
    let locked = match locked {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(error)) => return Err(locking()(error)),
    };
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(locking())?;
    let record: Option<Owner> = serde_json::from_str(&text).ok();
    if !locked {
        return Err(ServerError::Locked {
            directory: directory.to_owned(),
            owner: record.map_or("it has not said yet who it is".to_owned(), |owner| {
                owner.to_string()
            }),
        });
    }
    Ok(Some((LockedFile::new(file), record)))
}

/// To be asked with the lock held, so that the process that wrote the record on this machine is
/// dead. Another host's lock may not be visible from here. The boot id says machines apart that
/// a container's host name does not.
fn refuse_elsewhere(
    directory: &Path,
    record: Option<Owner>,
    host: &Host,
    take_over: bool,
) -> Result<(), ServerError> {
    match record {
        Some(owner) if owner.host != host.name && owner.boot_id != host.boot_id && !take_over => {
            Err(ServerError::LockedElsewhere {
                directory: directory.to_owned(),
                owner: owner.to_string(),
            })
        }
        _ => Ok(()),
    }
}

fn lock(
    directory: &Path,
    host: &Host,
    instance: ServerInstance,
    take_over: bool,
    cautions: &mut Vec<String>,
) -> Result<LockedFile, ServerError> {
    let path = directory.join(LOCK_FILE);
    let locked = try_lock(directory, Lock::Exclusive, true)?;
    let (file, record) = locked.expect("it was made");
    refuse_elsewhere(directory, record, host, take_over)?;
    let owner = Owner {
        host: host.name.clone(),
        boot_id: host.boot_id.clone(),
        pid: std::process::id(),
        instance: instance.to_string(),
    };
    // Written in place: the lock belongs to this very file.
    let text = serde_json::to_string(&owner).expect("texts and numbers become JSON");
    match write_owner(&file, &text) {
        // The lock holds on this host; only others cannot read who has it.
        Err(error) if error.kind() == std::io::ErrorKind::StorageFull => cautions.push(format!(
            "{}: there is no space for the record of who has the directory: servers on other \
             hosts do not see that it is taken",
            path.display()
        )),
        other => other.map_err(ServerError::file(format!("locking {}", path.display())))?,
    }
    Ok(file)
}

/// The id of a directory that is locked, which is made if there is none, and whether it is known
/// at another place.
fn identity(
    directory: &Path,
    cautions: &mut Vec<String>,
) -> Result<(DirectoryId, bool), ServerError> {
    let Some((id, path)) = read_whole_identity(directory)? else {
        let id = DirectoryId(random_u128());
        write_identity(directory, id)?;
        durable_file::sync_parent(directory).map_err(ServerError::file(format!(
            "syncing the parent of {}",
            directory.display()
        )))?;
        return Ok((id, false));
    };
    let is_elsewhere = path.as_deref() != Some(directory);
    if is_elsewhere {
        cautions.extend(refuse_copy(directory, id, path.as_deref())?);
    }
    Ok((id, is_elsewhere))
}

/// Makes `id` the id of a directory.
pub(crate) fn write_identity(directory: &Path, id: DirectoryId) -> Result<(), ServerError> {
    let identity = Identity {
        format: FORMAT,
        directory: id.to_string(),
        path: directory.to_str().map(str::to_owned),
    };
    let mut text = serde_json::to_string(&identity).expect("texts and numbers become JSON");
    text.push('\n');
    durable_file::write(&directory.join(IDENTITY_FILE), text.as_bytes())
}

/// A directory that a server last started on at `before` may have been moved; or it was copied, and
/// the original is still there, with the same id. Says so then.
///
/// # Errors
/// If a server has the original: clients would take the one for the other.
fn refuse_copy(
    directory: &Path,
    id: DirectoryId,
    before: Option<&Path>,
) -> Result<Option<String>, ServerError> {
    let Some(before) = before else {
        return Ok(None);
    };
    // It may not be readable from here, and then it is not the one that clients of this user find.
    let has_id = matches!(read_identity(before), Ok(Some(found)) if found == id);
    let place = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let is_other = match (place(before), place(directory)) {
        (Ok(one), Ok(other)) => one != other,
        _ => false,
    };
    if !has_id || !is_other {
        return Ok(None);
    }
    let what = format!(
        "it is a copy of {}, and has the same id, {id}: clients take the one for the other. \
         `thalweg backup` makes copies that have an id of their own",
        before.display()
    );
    match try_lock(before, Lock::Shared, false) {
        Err(ServerError::Locked { owner, .. }) => Err(ServerError::Directory {
            directory: directory.to_owned(),
            why: format!("{what}. A server has the original: {owner}"),
        }),
        _ => Ok(Some(format!("{}: {what}", directory.display()))),
    }
}

/// The directory's id, if it has one.
pub(crate) fn read_identity(directory: &Path) -> Result<Option<DirectoryId>, ServerError> {
    Ok(read_whole_identity(directory)?.map(|(id, _)| id))
}

/// The id, and where the directory was when a server last started on it.
fn read_whole_identity(
    directory: &Path,
) -> Result<Option<(DirectoryId, Option<PathBuf>)>, ServerError> {
    let Some(text) = read_if_there(&directory.join(IDENTITY_FILE))? else {
        return Ok(None);
    };
    let refuse = |why: String| ServerError::Directory {
        directory: directory.to_owned(),
        why,
    };
    let identity: Identity = serde_json::from_str(&text)
        .map_err(|error| refuse(format!("{IDENTITY_FILE} cannot be understood: {error}")))?;
    if identity.format != FORMAT {
        let format = identity.format;
        let why = match format < FORMAT {
            true => format!("written by an older version of Thalweg, {OLDER_ADVICE}"),
            false => "written by a newer version of Thalweg: start that version".to_owned(),
        };
        return Err(refuse(format!(
            "its format is {format}, this server knows format {FORMAT}: {why}"
        )));
    }
    u128::from_str_radix(&identity.directory, 16)
        .map(|id| Some((DirectoryId(id), identity.path.map(PathBuf::from))))
        .map_err(|error| refuse(format!("{IDENTITY_FILE}: the directory's id: {error}")))
}

pub(crate) fn token(directory: &Path) -> Result<[u8; TOKEN_BYTES], ServerError> {
    if let Some(token) = read_token(directory)? {
        return Ok(token);
    }
    let mut token = [0; TOKEN_BYTES];
    getrandom::fill(&mut token).expect("the kernel gives random bytes once it has booted");
    let path = directory.join(TOKEN_FILE);
    durable_file::write(&path, format!("{}\n", hex(&token)).as_bytes())?;
    Ok(token)
}

/// That others than the owner of a directory may have its token, by which clients are let in.
fn shared_token(directory: &Path) -> Option<String> {
    let path = directory.join(TOKEN_FILE);
    let mode = std::fs::metadata(&path).ok()?.mode() & 0o777;
    (mode & 0o077 != 0).then(|| {
        format!(
            "{} has the mode {mode:04o}: others than its user may have the token by which clients \
             are let in. Its mode is to be 0600; removed, it is made anew by the next start",
            path.display()
        )
    })
}

fn read_token(directory: &Path) -> Result<Option<[u8; TOKEN_BYTES]>, ServerError> {
    let Some(text) = read_if_there(&directory.join(TOKEN_FILE))? else {
        return Ok(None);
    };
    let token = parse_token(text.trim()).ok_or_else(|| ServerError::Directory {
        directory: directory.to_owned(),
        why: format!("{TOKEN_FILE} is not {TOKEN_BYTES} bytes in hexadecimal digits"),
    })?;
    Ok(Some(token))
}

fn parse_token(text: &str) -> Option<[u8; TOKEN_BYTES]> {
    let mut token = [0; TOKEN_BYTES];
    if text.len() != TOKEN_BYTES * 2 || !text.is_ascii() {
        return None;
    }
    for (byte, digits) in token.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = std::str::from_utf8(digits).ok()?;
        *byte = u8::from_str_radix(digits, 16).ok()?;
    }
    Some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn host(name: &str) -> Host {
        Host {
            name: name.to_owned(),
            boot_id: format!("boot of {name}"),
        }
    }

    #[test]
    fn identity_and_token_stay_and_the_instance_changes() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let first = DataDirectory::open(&path, &host("here"), false).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o700
        );
        for file in [IDENTITY_FILE, TOKEN_FILE, LOCK_FILE] {
            let mode = std::fs::metadata(path.join(file))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{file}");
        }
        let before = (first.id(), *first.token(), first.instance());
        first.give_back().unwrap();
        let second = DataDirectory::open(&path, &host("here"), false).unwrap();
        assert_eq!((second.id(), *second.token()), (before.0, before.1));
        assert_ne!(second.instance(), before.2);
    }

    #[test]
    fn a_token_that_others_can_read_is_warned_of() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("data");
        let opened = DataDirectory::open(&path, &host("here"), false).unwrap();
        assert_eq!(opened.cautions(), [""; 0]);
        opened.give_back().unwrap();
        let readable = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(path.join(TOKEN_FILE), readable).unwrap();
        let Looked::Known { cautions, .. } =
            DataDirectory::look(&path, &host("here"), false).unwrap()
        else {
            panic!("it is a data directory");
        };
        assert!(cautions[0].contains("the mode 0644"), "{cautions:?}");
        let opened = DataDirectory::open(&path, &host("here"), false).unwrap();
        assert_eq!(opened.cautions(), cautions);
    }

    #[test]
    fn a_second_server_is_refused_and_the_owner_named() {
        let parent = tempfile::tempdir().unwrap();
        let first = DataDirectory::open(parent.path(), &host("here"), false).unwrap();
        let error = DataDirectory::open(parent.path(), &host("here"), true).unwrap_err();
        assert!(matches!(error, ServerError::Locked { .. }));
        let text = error.to_string();
        assert!(
            text.contains(&format!("process {} on here", std::process::id())),
            "{text}"
        );
        assert!(text.contains(&first.instance().to_string()), "{text}");
        drop(first);
        DataDirectory::open(parent.path(), &host("here"), false).unwrap();
    }

    #[test]
    fn a_record_from_another_host_is_refused_unless_taken_over_or_given_back() {
        let parent = tempfile::tempdir().unwrap();
        drop(DataDirectory::open(parent.path(), &host("there"), false).unwrap());
        let error = DataDirectory::open(parent.path(), &host("here"), false).unwrap_err();
        assert!(matches!(error, ServerError::LockedElsewhere { .. }));
        assert!(error.to_string().contains("on there"), "{error}");
        let taken = DataDirectory::open(parent.path(), &host("here"), true).unwrap();
        taken.give_back().unwrap();
        DataDirectory::open(parent.path(), &host("there"), false).unwrap();
    }

    #[test]
    fn a_copy_is_told_from_a_directory_that_was_moved() {
        let parent = tempfile::tempdir().unwrap();
        let [original, copy, moved] = ["original", "copy", "moved"].map(|n| parent.path().join(n));
        let open = |path: &Path| DataDirectory::open(path, &host("here"), false);
        let copied = || {
            std::fs::create_dir_all(&copy).unwrap();
            std::fs::copy(original.join(IDENTITY_FILE), copy.join(IDENTITY_FILE)).unwrap();
        };
        let running = open(&original).unwrap();
        let id = running.id();
        copied();
        let look = DataDirectory::look(&copy, &host("here"), false);
        for refused in [look.unwrap_err(), open(&copy).unwrap_err()] {
            let text = refused.to_string();
            let original = original.canonicalize().unwrap();
            assert!(
                text.contains(&format!("a copy of {}", original.display())),
                "{text}"
            );
            assert!(text.contains("thalweg backup"), "{text}");
            assert!(
                text.contains(&format!("process {}", std::process::id())),
                "{text}"
            );
        }
        running.give_back().unwrap();
        // Nobody has the original: it may be the copy that is to go on, and the operator hears of it.
        let second = open(&copy).unwrap();
        assert_eq!(second.id(), id);
        assert!(
            second.cautions()[0].contains("it is a copy of"),
            "{:?}",
            second.cautions()
        );
        // Until a start has gone through, nothing is changed.
        let kept = std::fs::read(original.join(IDENTITY_FILE)).unwrap();
        assert_eq!(std::fs::read(copy.join(IDENTITY_FILE)).unwrap(), kept);
        second.keep_path().unwrap();
        second.give_back().unwrap();
        assert!(open(&copy).unwrap().cautions().is_empty());
        // One that was moved is none, and is known at its new place.
        std::fs::rename(&original, &moved).unwrap();
        let third = open(&moved).unwrap();
        assert_eq!((third.id(), third.cautions().len()), (id, 0));
        third.keep_path().unwrap();
        let text = std::fs::read_to_string(moved.join(IDENTITY_FILE)).unwrap();
        assert!(text.contains("/moved\""), "{text}");
    }

    #[test]
    fn somebody_elses_directory_is_not_touched() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::write(parent.path().join("thesis.tex"), "x").unwrap();
        let error = DataDirectory::open(parent.path(), &host("here"), false).unwrap_err();
        assert!(
            error.to_string().contains("it is no data directory"),
            "{error}"
        );
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_that_others_get_into_is_refused_for_sockets() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("sockets");
        make_private(&path).unwrap();
        refuse_shared(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o750)).unwrap();
        assert!(refuse_shared(&path).is_err());
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(parent.path(), &link).unwrap();
        assert!(refuse_shared(&link).is_err());
    }

    #[test]
    fn a_directory_of_an_older_format_is_refused_with_what_to_do() {
        let parent = tempfile::tempdir().unwrap();
        let identity = parent.path().join(IDENTITY_FILE);
        let text = r#"{"format":1,"directory":"1"}"#;
        std::fs::write(&identity, text).unwrap();
        let error = DataDirectory::open(parent.path(), &host("here"), false).unwrap_err();
        assert!(
            error.to_string().ends_with(
                "its format is 1, this server knows format 3: written by an older version of \
                 Thalweg, whose format this one does not read: read the events out with that \
                 version, and push them to a server of this one with an empty data directory"
            ),
            "{error}"
        );
        assert_eq!(std::fs::read_to_string(&identity).unwrap(), text);
    }

    #[test]
    fn damaged_identity_and_token_are_refused() {
        let parent = tempfile::tempdir().unwrap();
        drop(DataDirectory::open(parent.path(), &host("here"), false).unwrap());
        let token_path = parent.path().join(TOKEN_FILE);
        let token = std::fs::read(&token_path).unwrap();
        std::fs::write(&token_path, "12").unwrap();
        assert!(DataDirectory::open(parent.path(), &host("here"), false).is_err());
        std::fs::write(&token_path, token).unwrap();
        std::fs::write(
            parent.path().join(IDENTITY_FILE),
            r#"{"format":4,"directory":"1"}"#,
        )
        .unwrap();
        let error = DataDirectory::open(parent.path(), &host("here"), false).unwrap_err();
        assert!(
            error.to_string().contains(
                "its format is 4, this server knows format 3: written by a newer version"
            ),
            "{error}"
        );
    }
}
