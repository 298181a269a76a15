//! Whom a server believes: the files in `access` of its data directory, which are the page
//! `docs/format/directory.md`.

use crate::durable_file::{self, make_private, read_if_there};
use crate::error::ServerError;
use crate::examiner::Others;
use crate::group_file::hex;
use crate::key_files::KeyFiles;
use crate::rules_file;
use crate::server_log::ServerLog;
use access::{IssuerKey, PublicKey, Rules, SEED_BYTES, Seed, TokenId, Trust};
use broker::Line;
use broker::node::Input;
use broker::{AccessChange, IssuersChange};
use issuers::{Issuers, KeysFound, KnownKeys};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

const DIRECTORY: &str = "access";
const ISSUER_FILE: &str = "issuer";
const REVOKED_FILE: &str = "revoked";
const RULES_FILE: &str = "rules.json";
const ISSUERS_FILE: &str = "issuers.json";

/// The files that say whom a server believes.
#[derive(Debug, Clone)]
pub struct AccessFiles {
    data: PathBuf,
    path: PathBuf,
    key_files: KeyFiles,
}

/// What a look at the files found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Whose tokens are taken, if that can be known.
    trust: Option<Trust>,
    /// Who may do what, and how much, if that can be known.
    rules: Option<Rules>,
    /// Files that are there, of those without which more is allowed.
    there: Vec<&'static str>,
    /// Whose credentials are taken besides, if that can be known.
    issuers: Option<Issuers>,
    /// What there is of their keys.
    keys: BTreeMap<PathBuf, KeysFound>,
    /// What an operator should know.
    strange: Vec<String>,
}

impl Found {
    /// A file that was there is gone, an editor's doing perhaps: nobody is allowed more by that.
    fn keep_of(&mut self, before: &[&'static str]) {
        for file in before {
            if self.there.contains(file) {
                continue;
            }
            self.there.push(file);
            match *file {
                RULES_FILE => self.rules = None,
                _ => self.trust = None,
            }
            self.strange.push(format!(
                "{DIRECTORY}/{file} is gone: what it said holds until the next start, or until it is there again"
            ));
        }
    }
}

/// Whom a server that runs believes.
#[derive(Debug)]
pub struct Believed {
    files: AccessFiles,
    found: Found,
    keys: KnownKeys,
    others: Arc<Others>,
}

impl Believed {
    /// What the files say at a start.
    pub(crate) fn at_start(files: &AccessFiles, log: &ServerLog) -> Self {
        let nobody = Found {
            trust: None,
            rules: None,
            there: Vec::new(),
            issuers: None,
            keys: BTreeMap::new(),
            strange: Vec::new(),
        };
        let mut believed = Self {
            files: files.clone(),
            found: nobody,
            keys: KnownKeys::default(),
            others: Arc::default(),
        };
        believed.changed(files.look(), log);
        if believed.found.rules.is_none() {
            // By the rules that there are otherwise, somebody might do more than was meant.
            believed.found.trust = None;
        }
        believed
    }

    /// Whose tokens are taken; nobody's if the files could not be read.
    pub(crate) fn trust(&self) -> Arc<Trust> {
        Arc::new(self.found.trust.clone().unwrap_or_default())
    }

    /// Who may do what, and how much; as without a file if it could not be read.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::new(self.found.rules.clone().unwrap_or_default())
    }

    /// Whose credentials are taken besides.
    pub(crate) fn others(&self) -> &Arc<Others> {
        &self.others
    }

    /// The files.
    pub(crate) fn files(&self) -> &AccessFiles {
        &self.files
    }

    /// What a look found, as far as that is something else than before. What cannot be read leaves
    /// what was known.
    pub(crate) fn changed(&mut self, mut found: Found, log: &ServerLog) -> Vec<Input> {
        found.keep_of(&self.found.there);
        let strange = self.keys.take(found.keys, Instant::now());
        found.strange.extend(strange);
        for line in &found.strange {
            if !self.found.strange.contains(line) {
                log.write(&Line::warning(line.clone()));
            }
        }
        self.found.strange = found.strange;
        self.found.there = found.there;
        let mut inputs = Vec::new();
        let is_new = |rules: &Rules| self.found.rules.as_ref() != Some(rules);
        if let Some(rules) = found.rules.filter(is_new) {
            self.found.rules = Some(rules);
            inputs.push(Input::Access(AccessChange::Rules(self.rules())));
        }
        let is_new = |trust: &Trust| self.found.trust.as_ref() != Some(trust);
        // Nobody is believed before it is known what they may do.
        if let Some(trust) = found.trust.filter(is_new)
            && self.found.rules.is_some()
        {
            self.found.trust = Some(trust);
            inputs.push(Input::Access(AccessChange::Trust(self.trust())));
        }
        // Nor somebody else, before it is known who was revoked.
        if self.found.trust.is_some() && self.found.rules.is_some() {
            // Keys may have changed of those that are known.
            let known = || self.others.known().map(|known| Issuers::clone(&known));
            let issuers = found.issuers.or_else(known);
            inputs.extend(issuers.and_then(|issuers| self.issuers_changed(issuers)));
        }
        inputs
    }

    fn issuers_changed(&mut self, mut issuers: Issuers) -> Option<Input> {
        let before = self.others.issuers();
        issuers.keep_answers_of(&before);
        issuers.set_keys(&self.files.path, &self.keys);
        if issuers == *before {
            if self.others.known().is_none() {
                self.others.set(Arc::new(issuers));
            }
            return None;
        }
        let change = IssuersChange {
            known: issuers.names(),
            changed: issuers.changed_since(&before),
        };
        before.stop_if_replaced(&issuers);
        self.others.set(Arc::new(issuers));
        Some(Input::Access(AccessChange::Issuers(change)))
    }
}

/// One line of what was revoked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The token, and all that were made from it.
    pub id: TokenId,
    /// When, and whatever else was said.
    pub note: String,
}

impl AccessFiles {
    pub(crate) fn within(data: &Path) -> Self {
        Self {
            data: data.to_owned(),
            path: data.join(DIRECTORY),
            key_files: KeyFiles::default(),
        }
    }

    /// Whether there is a key of an issuer.
    pub(crate) fn are_there(&self) -> bool {
        self.path.join(ISSUER_FILE).is_file()
    }

    /// Makes the issuer's key if there is none; says whether others may have the one that there is. Without space for
    /// it a server goes without: it takes no tokens, and says so.
    pub(crate) fn make(&self) -> Result<Option<String>, ServerError> {
        let path = self.path.join(ISSUER_FILE);
        if let Ok(found) = std::fs::metadata(&path) {
            let mode = found.mode() & 0o777;
            return Ok((mode & 0o077 != 0).then(|| {
                format!(
                    "{} has the mode {mode:04o}: others than its user may have the key that tokens \
                     are signed with. Its mode is to be 0600; removed, it is made anew by the next \
                     start, and all tokens that were made are none",
                    path.display()
                )
            }));
        }
        let mut seed = [0; SEED_BYTES];
        getrandom::fill(&mut seed).expect("the kernel gives random bytes once it has booted");
        let text = format!("{}\n", hex(&seed));
        let made = make_private(&self.path)
            .and_then(|()| durable_file::write(&self.path.join(ISSUER_FILE), text.as_bytes()));
        match made {
            Err(ServerError::File { source, .. }) if source.kind() == ErrorKind::StorageFull => {
                Ok(Some(format!(
                    "{}: there is no space for the key of tokens: none is taken until a start \
                     has made it",
                    self.path.display()
                )))
            }
            made => made.map(|()| None),
        }
    }

    /// The key that tokens are signed with.
    ///
    /// # Errors
    /// If there is none, or it cannot be read.
    pub fn issuer(&self) -> Result<IssuerKey, ServerError> {
        let key = self.issuer_if_there()?;
        key.ok_or_else(|| {
            self.refuse("it has no key of tokens yet: the next start of a server makes it".into())
        })
    }

    fn issuer_if_there(&self) -> Result<Option<IssuerKey>, ServerError> {
        let Some(text) = read_if_there(&self.path.join(ISSUER_FILE))? else {
            return Ok(None);
        };
        // A seed has the form of a public key: 32 bytes in hexadecimal digits.
        let seed: PublicKey = text.parse().map_err(|_| {
            self.refuse(format!(
                "{DIRECTORY}/{ISSUER_FILE} is not 32 bytes in hexadecimal digits"
            ))
        })?;
        Ok(Some(IssuerKey::new(Seed(seed.0))))
    }

    /// Whose tokens are taken, which are not, and lines that could not be understood.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn trust(&self) -> Result<(Trust, Vec<String>), ServerError> {
        let (revoked, strange) = self.revoked()?;
        let keys = self.issuer_if_there()?;
        let trust = Trust {
            keys: keys.iter().map(IssuerKey::public).collect(),
            revoked: revoked.into_iter().map(|revoked| revoked.id).collect(),
        };
        Ok((trust, strange))
    }

    /// Whose tokens are taken now, and what they may do, for a server that runs.
    pub(crate) fn look(&self) -> Found {
        let (trust, mut strange) = match self.trust() {
            Ok((trust, strange)) => (Some(trust), strange),
            Err(error) => {
                let line = format!("whose tokens are taken stays as it was: {error}");
                (None, vec![line])
            }
        };
        let rules = match self.rules() {
            Ok(rules) => Some(rules),
            Err(error) => {
                strange.push(format!(
                    "who may do what stays as it was, and after a start no token is taken: {error}"
                ));
                None
            }
        };
        // Looked for behind the reading: a file that comes meanwhile is read by the next look.
        let there = [REVOKED_FILE, RULES_FILE];
        let there = there
            .into_iter()
            .filter(|file| self.path.join(file).exists());
        let issuers = match self.issuers() {
            Ok(issuers) => Some(issuers),
            Err(error) => {
                strange.push(format!(
                    "whose credentials are taken besides stays as it was, and after a start nobody's \
                     are: {error}"
                ));
                None
            }
        };
        let keys = issuers
            .as_ref()
            .map(|issuers| issuers.key_files(&self.path));
        Found {
            trust,
            rules,
            issuers,
            keys: self.key_files.look(keys),
            there: there.collect(),
            strange,
        }
    }

    /// Whose credentials are taken besides the server's own. Their keys are read apart.
    fn issuers(&self) -> Result<Issuers, ServerError> {
        let refused = |why: String| self.refuse(format!("{DIRECTORY}/{ISSUERS_FILE}: {why}"));
        let path = self.path.join(ISSUERS_FILE);
        let text = match issuers::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Issuers::default()),
            text => text.map_err(|error| refused(error.to_string()))?,
        };
        // It names a program, which runs as the server's user.
        if let Some(writable) = self.writable_by_others(&path) {
            return Err(refused(format!(
                "others may write {}: they might have the server run what they like. {} is to have the mode 0700",
                writable.display(),
                self.path.display()
            )));
        }
        Issuers::parse(&text).map_err(refused)
    }

    /// The file, or the directory that it is in, if others than the server's user can write it.
    fn writable_by_others(&self, file: &Path) -> Option<PathBuf> {
        let own = rustix::process::geteuid().as_raw();
        let found = |path: &Path| std::fs::metadata(path).ok().map(|it| (it.uid(), it.mode()));
        let (directory, file) = (self.path.as_path(), file);
        match write_access(own, found(directory), found(file)) {
            Writable::Nobody => None,
            Writable::Directory => Some(directory.to_owned()),
            Writable::File => Some(file.to_owned()),
        }
    }

    /// Who may do what, and how much; without a file, what there is by default.
    ///
    /// # Errors
    /// If the file cannot be read, or says what cannot be right.
    pub fn rules(&self) -> Result<Rules, ServerError> {
        let text = read_if_there(&self.path.join(RULES_FILE))?;
        let rules = text.map(|text| rules_file::parse(&text)).transpose();
        let rules = rules.map_err(|why| self.refuse(format!("{DIRECTORY}/{RULES_FILE}: {why}")))?;
        Ok(rules.unwrap_or_default())
    }

    /// What was revoked, and lines that could not be understood.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn revoked(&self) -> Result<(Vec<Revocation>, Vec<String>), ServerError> {
        let path = self.path.join(REVOKED_FILE);
        let text = read_if_there(&path)?.unwrap_or_default();
        let (mut revoked, mut strange) = (Vec::new(), Vec::new());
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let (id, note) = line.split_once(' ').unwrap_or((line, ""));
            match id.parse() {
                Ok(id) => revoked.push(Revocation {
                    id,
                    note: note.trim().to_owned(),
                }),
                // What of it was to be revoked nobody knows; the rest counts.
                Err(_) => strange.push(format!(
                    "{}: line {} names no token: what it was to revoke is not known",
                    path.display(),
                    index + 1
                )),
            }
        }
        Ok((revoked, strange))
    }

    /// Revokes a token, and all that are made from it. When this returns, the line is durable; a
    /// server that runs reads it within seconds.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn revoke(&self, id: TokenId, note: &str) -> Result<(), ServerError> {
        make_private(&self.path)?;
        let path = self.path.join(REVOKED_FILE);
        let note = note.replace(char::is_control, " ");
        let append = || -> std::io::Result<()> {
            let mut file = OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .mode(0o600)
                .open(&path)?;
            // A line that a crash cut short ends here, so that this one stands alone.
            let start = if ends_in_a_line(&mut file)? { "" } else { "\n" };
            file.write_all(format!("{start}{id} {note}\n").as_bytes())?;
            file.sync_all()?;
            durable_file::sync_parent(&path)
        };
        append().map_err(ServerError::file(format!("writing {}", path.display())))
    }

    fn refuse(&self, why: String) -> ServerError {
        ServerError::Directory {
            directory: self.data.clone(),
            why,
        }
    }
}

/// What others than the server's user, and root, may write.
#[derive(Debug, PartialEq, Eq)]
enum Writable {
    Nobody,
    Directory,
    File,
}

/// Of a directory and a file in it with these owners and modes, for a server of the user `own`.
fn write_access(own: u32, directory: Option<(u32, u32)>, file: Option<(u32, u32)>) -> Writable {
    const ENTERED: u32 = 0o011;
    const WRITTEN: u32 = 0o022;
    let is_others = |(owner, mode): (u32, u32)| (owner != own && owner != 0) || mode & WRITTEN != 0;
    let is_shut = |(owner, mode): (u32, u32)| !is_others((owner, mode)) && mode & ENTERED == 0;
    // Who owns a file may change its mode; where nobody enters there is no way to it.
    if directory.is_some_and(is_others) {
        Writable::Directory
    } else if !directory.is_some_and(is_shut) && file.is_some_and(is_others) {
        Writable::File
    } else {
        Writable::Nobody
    }
}

fn ends_in_a_line(file: &mut std::fs::File) -> std::io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::{Examiner, Presented};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_key_is_made_once_and_is_the_owners_alone() {
        let data = tempfile::tempdir().unwrap();
        let files = AccessFiles::within(data.path());
        assert!(files.issuer().is_err());
        assert_eq!(files.make().unwrap(), None);
        let key = files.issuer().unwrap().public();
        files.make().unwrap();
        assert_eq!(files.issuer().unwrap().public(), key);
        let mode = |name: &str| {
            let found = std::fs::metadata(data.path().join(name)).unwrap();
            found.permissions().mode() & 0o777
        };
        assert_eq!((mode("access"), mode("access/issuer")), (0o700, 0o600));
        assert_eq!(files.trust().unwrap().0.keys, [key]);
    }

    #[test]
    fn nobody_is_believed_by_rules_that_cannot_be_read() {
        let data = tempfile::tempdir().unwrap();
        let files = AccessFiles::within(data.path());
        files.make().unwrap();
        let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
        let kept = lines.clone();
        let log = Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_owned()));
        let log = ServerLog::from(log);
        let path = data.path().join("access/rules.json");
        std::fs::write(&path, r#"{"quota": {}}"#).unwrap();
        let mut believed = Believed::at_start(&files, &log);
        assert_eq!(*believed.trust(), Trust::default());
        assert!(believed.changed(files.look(), &log).is_empty());
        std::fs::write(&path, r#"{"quotas": {"*": {"topics": 3}}}"#).unwrap();
        let inputs = believed.changed(files.look(), &log);
        use AccessChange::{Rules as Changed, Trust as Believes};
        let [Input::Access(Changed(_)), Input::Access(Believes(_))] = inputs[..] else {
            panic!("the rules first")
        };
        assert_eq!(believed.trust().keys.len(), 1);
        // One that is broken later leaves those before.
        std::fs::write(&path, "{").unwrap();
        assert!(believed.changed(files.look(), &log).is_empty());
        assert_ne!(*believed.rules(), Rules::default());
        log.flush_all();
        let said = lines.lock().unwrap().concat();
        assert!(
            said.contains("access/rules.json: the file has no key \"quota\""),
            "{said}"
        );
    }

    #[test]
    fn a_file_that_is_gone_allows_nobody_more() {
        let data = tempfile::tempdir().unwrap();
        let files = AccessFiles::within(data.path());
        files.make().unwrap();
        files.revoke(TokenId(1), "").unwrap();
        let access = data.path().join("access");
        std::fs::write(
            access.join("rules.json"),
            r#"{"quotas": {"*": {"topics": 3}}}"#,
        )
        .unwrap();
        let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
        let kept = lines.clone();
        let log = ServerLog::from(Arc::new(move |line: &str| {
            kept.lock().unwrap().push(line.to_owned());
        }));
        let mut believed = Believed::at_start(&files, &log);
        let (trust, rules) = (believed.trust(), believed.rules());
        assert_eq!(trust.revoked.len(), 1);
        for file in ["rules.json", "revoked"] {
            std::fs::rename(access.join(file), access.join("aside")).unwrap();
            for _ in 0..2 {
                assert!(believed.changed(files.look(), &log).is_empty());
            }
            assert_eq!(
                (believed.trust(), believed.rules()),
                (trust.clone(), rules.clone())
            );
            std::fs::rename(access.join("aside"), access.join(file)).unwrap();
            assert!(believed.changed(files.look(), &log).is_empty());
        }
        // What is there counts, were it nothing.
        std::fs::write(access.join("rules.json"), "{}").unwrap();
        let inputs = believed.changed(files.look(), &log);
        assert!(matches!(
            inputs[..],
            [Input::Access(AccessChange::Rules(_))]
        ));
        log.flush_all();
        let said = lines.lock().unwrap().concat();
        for file in ["rules.json", "revoked"] {
            let gone = format!("access/{file} is gone: what it said holds");
            assert_eq!(said.matches(&gone).count(), 1, "{said}");
        }
    }

    #[test]
    fn what_is_revoked_stays_so_whatever_else_is_in_the_file() {
        let data = tempfile::tempdir().unwrap();
        let files = AccessFiles::within(data.path());
        files.revoke(TokenId(1), "lost\nlaptop").unwrap();
        let path = data.path().join("access/revoked");
        // A crash amid a line.
        let mut text = std::fs::read_to_string(&path).unwrap();
        text.push_str("0000");
        std::fs::write(&path, text).unwrap();
        files.revoke(TokenId(2), "").unwrap();
        let (revoked, strange) = files.revoked().unwrap();
        let ids: Vec<TokenId> = revoked.iter().map(|one| one.id).collect();
        assert_eq!(ids, [TokenId(1), TokenId(2)]);
        assert_eq!(revoked[0].note, "lost laptop");
        assert_eq!(strange.len(), 1);
        assert!(strange[0].contains("line 2 names no token"));
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn issuers_are_read_again_with_their_keys_and_what_changed_is_told() {
        let data = tempfile::tempdir().unwrap();
        let files = AccessFiles::within(data.path());
        files.make().unwrap();
        let lines = Arc::new(std::sync::Mutex::new(Vec::new()));
        let kept = lines.clone();
        let log = Arc::new(move |line: &str| kept.lock().unwrap().push(line.to_owned()));
        let log = ServerLog::from(log);
        let mut believed = Believed::at_start(&files, &log);
        assert!(believed.others().issuers().is_empty());
        let access = data.path().join("access");
        let write = |name: &str, text: &str| std::fs::write(access.join(name), text).unwrap();
        let issuers = |may: &str| {
            let map =
                format!(r#"{{"if": {{}}, "project": "p", "may": ["{may}"], "topics": ["**"]}}"#);
            write(
                "issuers.json",
                &format!(
                    r#"{{"issuers": {{"i": {{"audience": "a", "algorithms": ["EdDSA"],
                       "keys": "keys.json", "maps": [{map}]}}}}}}"#
                ),
            );
        };
        let keys = |x: &str| {
            let key = format!(r#"{{"kty": "OKP", "crv": "Ed25519", "x": "{x}"}}"#);
            write("keys.json", &format!(r#"{{"keys": [{key}]}}"#));
        };
        let mut changes = || -> Vec<IssuersChange> {
            let inputs = believed.changed(files.look(), &log).into_iter();
            let changes = inputs.map(|input| match input {
                Input::Access(AccessChange::Issuers(change)) => change,
                _ => panic!("nothing else has changed"),
            });
            changes.collect()
        };
        let change = |changed: &[&str]| IssuersChange {
            known: vec!["i".to_owned()],
            changed: changed.iter().map(|name| (*name).to_owned()).collect(),
        };
        issuers("read");
        assert_eq!(changes(), [change(&[])], "its keys are not there yet");
        keys(&"A".repeat(43));
        assert_eq!(changes(), [change(&[])]);
        assert_eq!(changes(), []);
        // What cannot be read changes nothing.
        write("keys.json", "{");
        assert_eq!(changes(), []);
        write("issuers.json", "{");
        assert_eq!(changes(), []);
        keys(&"A".repeat(43));
        issuers("write");
        assert_eq!(changes(), [change(&["i"])]);
        keys(&format!("{}E", "B".repeat(42)));
        assert_eq!(changes(), [change(&["i"])], "a key is gone");
        // Also while it cannot be known whose credentials are taken.
        write("issuers.json", "{");
        write("keys.json", r#"{"keys": []}"#);
        assert_eq!(changes(), [change(&["i"])], "no key is left");
        keys(&"A".repeat(43));
        assert_eq!(changes(), [change(&[])]);
        std::fs::remove_file(access.join("keys.json")).unwrap();
        assert_eq!(changes(), [change(&["i"])], "the file is gone");
        std::fs::remove_file(access.join("issuers.json")).unwrap();
        let gone = IssuersChange {
            known: Vec::new(),
            changed: vec!["i".to_owned()],
        };
        assert_eq!(changes(), [gone]);
        log.flush_all();
        let said = lines.lock().unwrap().concat();
        for part in [
            "keys.json: there is no such file",
            "keys.json: no key of it",
            "access/issuers.json: EOF",
            "keys.json: these keys cannot be read: those from before count",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn a_file_that_others_may_write_names_no_program() {
        let data = tempfile::tempdir().unwrap();
        let files = AccessFiles::within(data.path());
        files.make().unwrap();
        let access = data.path().join("access");
        let file = access.join("issuers.json");
        std::fs::write(
            &file,
            r#"{"introspection": {"command": ["x"], "maps": []}}"#,
        )
        .unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        for (directory, own, is_taken) in [
            (0o700, 0o666, true),
            (0o755, 0o644, true),
            (0o755, 0o664, false),
            (0o755, 0o646, false),
            (0o775, 0o600, false),
        ] {
            mode(&access, directory);
            mode(&file, own);
            let issuers = files.issuers();
            assert_eq!(issuers.is_ok(), is_taken, "{directory:o} {own:o}");
        }
        let said = files.issuers().unwrap_err().to_string();
        assert!(said.contains("is to have the mode 0700"), "{said}");
        // What somebody else owns is written by that one.
        for (directory, file, writable) in [
            ((7, 0o700), (7, 0o600), Writable::Nobody),
            ((0, 0o755), (0, 0o644), Writable::Nobody),
            ((8, 0o700), (7, 0o600), Writable::Directory),
            ((7, 0o755), (8, 0o600), Writable::File),
            ((7, 0o700), (8, 0o666), Writable::Nobody),
        ] {
            let found = write_access(7, Some(directory), Some(file));
            assert_eq!(found, writable, "{directory:?} {file:?}");
        }
        // A pipe that nobody writes holds up nobody.
        mode(&access, 0o700);
        std::fs::remove_file(&file).unwrap();
        let kind = rustix::fs::FileType::Fifo;
        let made = rustix::fs::mknodat(rustix::fs::CWD, &file, kind, 0o600.into(), 0);
        made.unwrap();
        let said = files.issuers().unwrap_err().to_string();
        assert!(said.contains("no regular file"), "{said}");
    }

    /// What was revoked cannot be read: nobody is believed who might have been.
    #[test]
    fn no_issuer_is_believed_before_it_is_known_who_was_revoked() {
        let data = tempfile::tempdir().unwrap();
        let files = AccessFiles::within(data.path());
        files.make().unwrap();
        let access = data.path().join("access");
        let issuers = r#"{"issuers": {"i": {"audience": "a", "algorithms": ["EdDSA"], "keys": "k", "maps": []}},
            "introspection": {"command": ["x"], "maps": []}}"#;
        std::fs::write(access.join("issuers.json"), issuers).unwrap();
        // What is no text cannot be read by root either.
        std::fs::write(access.join("revoked"), [0xff]).unwrap();
        let log = ServerLog::from(Arc::new(|_: &str| {}));
        let mut believed = Believed::at_start(&files, &log);
        assert!(believed.others().known().is_none());
        assert!(believed.changed(files.look(), &log).is_empty());
        let presented = Presented {
            proof: "x".into(),
            namespace: String::new(),
            now: access::UnixTime(1),
        };
        let refused = believed.others().examine(&presented).unwrap_err();
        assert!(refused.retryable, "{refused}");
        files_mended(&access, &mut believed, &files, &log);
        // Nor by rules that cannot be read.
        std::fs::write(access.join("rules.json"), "{").unwrap();
        let mut believed = Believed::at_start(&files, &log);
        assert!(believed.others().known().is_none());
        std::fs::write(access.join("rules.json"), "{}").unwrap();
        files_mended(&access, &mut believed, &files, &log);
    }

    fn files_mended(access: &Path, believed: &mut Believed, files: &AccessFiles, log: &ServerLog) {
        std::fs::write(access.join("revoked"), "").unwrap();
        let inputs = believed.changed(files.look(), log);
        let of_issuers = |input: &Input| matches!(input, Input::Access(AccessChange::Issuers(_)));
        assert!(inputs.iter().any(of_issuers));
        assert_eq!(believed.others().issuers().names(), ["i", "site"]);
    }
}
