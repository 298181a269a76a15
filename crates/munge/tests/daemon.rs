//! With a `munged` of its own, where Debian's package `munge` is installed.

use munge::{Error, Library, PAYLOAD_BYTES_MAX, Realm, TEXT_BYTES_MAX};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A daemon in a directory of its own; ends when it is dropped.
struct Daemon {
    child: Child,
    directory: tempfile::TempDir,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Daemon {
    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// One with this key; none where it is not installed.
    fn start(key: &[u8; 64]) -> Option<Self> {
        let program = ["/usr/sbin/munged", "/usr/local/sbin/munged"];
        let program = program.into_iter().find(|path| Path::new(path).exists());
        let Some(program) = program else {
            println!("skipped: there is no munged (Debian's package munge)");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| directory.path().join(name);
        std::fs::set_permissions(directory.path(), Permissions::from_mode(0o711)).unwrap();
        std::fs::write(file("key"), key).unwrap();
        std::fs::set_permissions(file("key"), Permissions::from_mode(0o600)).unwrap();
        // As root, or below a directory that others may write, it starts with --force alone.
        let child = Command::new(program)
            .args(["--foreground", "--force"])
            .arg(format!("--socket={}", file("socket").display()))
            .arg(format!("--key-file={}", file("key").display()))
            .arg(format!("--pid-file={}", file("pid").display()))
            .arg(format!("--log-file={}", file("log").display()))
            .arg(format!("--seed-file={}", file("seed").display()))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut daemon = Self { child, directory };
        // It listens before it answers, and this waits for both.
        while Library::at(&daemon.socket()).encode(b"").is_err() {
            assert_eq!(daemon.child.try_wait().unwrap(), None, "it ended");
            std::thread::yield_now();
        }
        Some(daemon)
    }
}

#[test]
fn a_credential_says_who_has_made_it_once() {
    let Some(daemon) = Daemon::start(&[1; 64]) else {
        return;
    };
    let realm = Library::at(&daemon.socket());
    for payload in [&b""[..], b"a\0b", &[0xff; PAYLOAD_BYTES_MAX]] {
        let text = realm.encode(payload).unwrap();
        assert!(text.starts_with("MUNGE:") && text.len() <= TEXT_BYTES_MAX);
        let vouched = realm.decode(&text).unwrap();
        let id = |what: &str| {
            let said = Command::new("id").arg(what).output().unwrap();
            String::from_utf8(said.stdout).unwrap().trim().to_owned()
        };
        assert_eq!(vouched.payload, payload);
        assert_eq!(vouched.uid.to_string(), id("-u"));
        assert_eq!(vouched.gid.to_string(), id("-g"));
        assert!(vouched.made_at > 1_700_000_000 && vouched.lasts == 300);
        assert_eq!(realm.decode(&text), Err(Error::Replayed));
    }
}

#[test]
fn what_another_realm_has_made_or_nobody_does_not_count() {
    let (Some(one), Some(other)) = (Daemon::start(&[1; 64]), Daemon::start(&[2; 64])) else {
        return;
    };
    let (one, other) = (Library::at(&one.socket()), Library::at(&other.socket()));
    let text = one.encode(b"x").unwrap();
    let refused = other.decode(&text).unwrap_err();
    assert!(matches!(refused, Error::Refused(_)), "{refused}");
    assert!(refused.to_string().contains("the same key"), "{refused}");
    assert!(!refused.to_string().contains(&text), "{refused}");
    let long = format!("MUNGE:{}:", "A".repeat(TEXT_BYTES_MAX));
    for nonsense in ["", "x", "MUNGE:", "MUNGE::", "MUNGE:AAAA:", "a\0b", &long] {
        let refused = one.decode(nonsense).unwrap_err();
        assert!(!refused.is_unknown(), "{nonsense:?}: {refused}");
    }
    // Damaged at each place. The last digit of base64 has two bits that say nothing: A to D differ in them alone.
    for at in 0..text.len() {
        let mut bytes = text.clone().into_bytes();
        bytes[at] = match bytes[at] {
            b'A'..=b'D' => b'z',
            _ => b'A',
        };
        let damaged = String::from_utf8(bytes).unwrap();
        assert!(one.decode(&damaged).is_err(), "at {at}");
    }
}

#[test]
fn a_daemon_that_is_not_there_is_an_answer() {
    let realm = Library::at(Path::new("/nonexistent/socket"));
    for error in [
        realm.encode(b"x").unwrap_err(),
        realm.decode("MUNGE:AAAA:").unwrap_err(),
    ] {
        assert!(error.is_unknown(), "{error}");
        // Without the library this is what is said.
        let said = error.to_string();
        assert!(
            said.contains("munged running") || said.contains("install libmunge2"),
            "{said}"
        );
    }
}
