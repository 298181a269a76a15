//! Credentials of MUNGE, by a realm of the tests' own.

use super::*;
use ::munge::{Error, Patient, Realm, Vouched, bound_to};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// What the server shows.
const SHOWN: [[u8; 32]; 2] = [[1; 32], [2; 32]];

fn here() -> Asker<'static> {
    Asker {
        certificates: &SHOWN,
        ..HERE
    }
}

/// A realm whose credentials are `MUNGE:UID/MADE_AT/LASTS/CERTIFICATE:`.
#[derive(Default)]
struct Fake {
    seen: Mutex<BTreeSet<String>>,
    /// Held by a test for as long as the daemon is to hang.
    hangs: Mutex<()>,
}

fn text(uid: u32, made_at: u64, lasts: u32, certificate: u8) -> String {
    format!("MUNGE:{uid}/{made_at}/{lasts}/{certificate}:")
}

impl Realm for Fake {
    fn encode(&self, _: &[u8]) -> Result<String, Error> {
        unreachable!("a server makes none")
    }

    fn decode(&self, text: &str) -> Result<Vouched, Error> {
        let _hangs = self.hangs.lock().unwrap();
        let inner = text.strip_prefix("MUNGE:").unwrap().strip_suffix(':');
        let parts: Option<Vec<u64>> =
            inner.and_then(|inner| inner.split('/').map(|part| part.parse().ok()).collect());
        let parts = parts.ok_or_else(|| Error::Refused("nonsense".to_owned()))?;
        if !self.seen.lock().unwrap().insert(text.to_owned()) {
            return Err(Error::Replayed);
        }
        Ok(Vouched {
            payload: bound_to(&[parts[3] as u8; 32]),
            uid: parts[0] as u32,
            gid: 100,
            made_at: parts[1],
            lasts: parts[2] as u32,
        })
    }
}

/// Users of the cluster: no such user runs these tests.
const USER: u32 = 3_000_000;
const OTHER: u32 = 3_000_001;

fn cluster() -> (Issuers, Arc<Fake>) {
    let file = json!({"munge": {"maps": [
        {"if": {"uid": [USER, OTHER]}, "project": "stf008", "may": ["read", "write"], "topics": ["**"]},
        {"if": {"gid": 200}, "project": "stf009", "may": ["read"], "topics": ["**"]},
    ]}});
    let mut issuers = Issuers::parse(&file.to_string()).unwrap();
    let fake = Arc::<Fake>::default();
    issuers.munged.as_mut().unwrap().realm = Patient::of(fake.clone());
    (issuers, fake)
}

#[test]
fn a_user_of_the_cluster_is_who_munge_says_for_five_minutes() {
    let (issuers, _) = cluster();
    let good = text(USER, NOW_S - 10, 300, 2);
    assert!(issuers.takes_long(&good));
    let verified = issuers.check(&good, here(), soon()).unwrap();
    let identity = identity(verified);
    let credential = identity.credential.as_ref().unwrap();
    assert_eq!(
        credential.issued().unwrap().to_string(),
        format!("\"{USER}\" of \"cluster\"")
    );
    assert_eq!(
        credential.expires(),
        Some(UnixTime((NOW_S + 290) * 1_000_000_000))
    );
    // A maker that asks for a day has five minutes.
    let day = issuers.check(&text(OTHER, NOW_S, 86_400, 1), here(), soon());
    let day = self::identity(day.unwrap());
    assert_eq!(
        day.credential.unwrap().expires(),
        Some(UnixTime((NOW_S + 300) * 1_000_000_000))
    );
    // So has one whose host is an hour ahead.
    let ahead = issuers.check(&text(OTHER, NOW_S + 3600, 3600, 1), here(), soon());
    let ahead = self::identity(ahead.unwrap());
    assert_eq!(
        ahead.credential.unwrap().expires(),
        Some(UnixTime((NOW_S + 300) * 1_000_000_000))
    );
    // Once.
    let again = issuers.check(&good, here(), soon()).unwrap_err();
    assert_eq!(again, Refusal::No(Error::Replayed.to_string()));
    // Nobody is somebody by default: not root, and not the user of the server.
    let own = rustix::process::getuid().as_raw();
    for (number, uid) in (0..).zip([0, 4, own]) {
        let text = text(uid, NOW_S - number, 300, 1);
        let nobody = issuers.check(&text, here(), soon());
        let why = nobody.unwrap_err().to_string();
        assert!(why.contains("nothing in the server's"), "{why}");
    }
    let nonsense = issuers.check("MUNGE:x:", here(), soon()).unwrap_err();
    assert!(matches!(nonsense, Refusal::No(_)), "{nonsense}");
}

#[test]
fn what_was_made_for_another_server_does_not_count() {
    let (issuers, _) = cluster();
    let check = |number: u64, asker: Asker<'_>| {
        let text = text(USER, NOW_S - number, 300, 3);
        issuers.check(&text, asker, soon())
    };
    let why = check(1, here()).unwrap_err().to_string();
    assert!(why.contains("another certificate"), "{why}");
    // A server without TLS shows none.
    assert!(check(2, HERE).is_err());
    assert!(with(Fault::AnyCertificate, || check(3, here()).is_ok()));
}

#[test]
fn what_is_over_does_not_count() {
    let (issuers, _) = cluster();
    let check =
        |seconds: u64| issuers.check(&text(USER, NOW_S - 300, seconds as u32, 1), here(), soon());
    assert!(matches!(check(300), Err(Refusal::Expired(_))));
    assert!(matches!(check(1), Err(Refusal::Expired(_))));
    // Numbers that cannot be are no panic.
    let _ = issuers.check(&text(USER, u64::MAX, u32::MAX, 1), here(), soon());
    assert!(with(Fault::NeverOver, || check(2).is_ok()));
}

#[test]
fn a_daemon_that_hangs_holds_up_nobody_for_long_and_says_nothing_of_the_credential() {
    let (issuers, fake) = cluster();
    let hangs = fake.hangs.lock().unwrap();
    for number in 0..40 {
        let text = text(USER, NOW_S - number, 300, 1);
        let refused = issuers.check(&text, here(), Instant::now()).unwrap_err();
        assert!(matches!(refused, Refusal::Unknown(_)), "{refused}");
        let said = refused.to_string();
        assert!(said.to_lowercase().contains("munge"), "{said}");
        assert!(!said.contains(&text), "{said}");
    }
    drop(hangs);
    // Those that hung end, and it goes on.
    while issuers
        .check(&text(OTHER, NOW_S, 300, 1), here(), soon())
        .is_err_and(|refused| matches!(refused, Refusal::Unknown(_)))
    {
        std::thread::yield_now();
    }
}

#[test]
fn without_the_key_munge_it_is_nothing_that_is_known() {
    let none = Issuers::default();
    let text = text(USER, NOW_S, 300, 1);
    assert!(!none.takes_long(&text));
    let why = none.check(&text, here(), soon()).unwrap_err().to_string();
    assert!(why.contains("MUNGE, which is not configured"), "{why}");
}

#[test]
fn a_cluster_that_is_changed_ends_what_stands_by_it() {
    let (one, _) = cluster();
    assert!(one.changed_since(&one).is_empty());
    assert_eq!(one.names(), ["cluster"]);
    assert_eq!(Issuers::default().changed_since(&one), ["cluster"]);
    let other = json!({"munge": {"name": "cluster", "socket": "/run/x", "maps": []}});
    let mut other = Issuers::parse(&other.to_string()).unwrap();
    other.keep_answers_of(&one);
    assert_eq!(other.changed_since(&one), ["cluster"]);
    for (file, part) in [
        (json!({"munge": {}}), "\"maps\""),
        (json!({"munge": {"maps": [], "key": "x"}}), "no key \"key\""),
        (
            json!({"munge": {"maps": [], "socket": "x"}}),
            "no absolute path",
        ),
        (json!({"munge": {"maps": [], "name": 1}}), "name is no text"),
        (
            json!({"munge": {"maps": [], "name": "site"}, "introspection": {"command": ["x"], "maps": []}}),
            "the name \"site\"",
        ),
    ] {
        let why = Issuers::parse(&file.to_string()).unwrap_err();
        assert!(why.contains(part), "{file}: {why}");
    }
}
