//! What a token may do, and what it may not whatever is done to it.

use crate::faults::{self, Fault};
use crate::*;
use std::sync::Arc;
use wire::DirectoryId;

const HOUR: u64 = 3_600_000_000_000;

/// Chance for tests: splitmix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    fn seed(&mut self) -> Seed {
        let mut seed = [0; SEED_BYTES];
        seed.fill_with(|| self.next() as u8);
        Seed(seed)
    }
}

/// The seeds of a test: those of `ACCESS_SEEDS`, as in `81000..81050`, or the first `count`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("ACCESS_SEEDS") else {
        return 0..count;
    };
    let (from, to) = text.split_once("..").expect("ACCESS_SEEDS is FROM..TO");
    from.parse().unwrap()..to.parse().unwrap()
}

fn issuer() -> IssuerKey {
    IssuerKey::new(Seed([7; SEED_BYTES]))
}

fn trust() -> Trust {
    Trust {
        keys: vec![issuer().public()],
        ..Trust::default()
    }
}

fn seed(number: u8) -> Seed {
    Seed([number; SEED_BYTES])
}

fn for_project(project: &str) -> Limits {
    Limits {
        project: Some(project.to_owned()),
        ..Limits::default()
    }
}

fn patterns(texts: &[&str]) -> Option<Vec<Pattern>> {
    Some(texts.iter().map(|text| text.parse().unwrap()).collect())
}

fn verbs(verbs: &[Verb]) -> Option<Verbs> {
    Some(verbs.iter().copied().collect())
}

/// For project `a`, topics `run*`, to read and write, for 8 hours.
fn usual() -> Limits {
    Limits {
        topics: patterns(&["run*"]),
        verbs: verbs(&[Verb::Read, Verb::Write]),
        expires: Some(UnixTime(8 * HOUR)),
        ..for_project("a")
    }
}

fn issued(limits: &Limits) -> Token {
    Token::issue(&issuer(), limits, seed(1)).unwrap()
}

fn identity(token: &Token) -> Identity {
    let verified = token.verify(&trust()).unwrap();
    verified.identity(Origin::default(), Arc::default())
}

fn denied(identity: &Identity, verb: Verb, name: &str, now: u64) -> Denied {
    match decide(identity, verb, Name::topic(name), UnixTime(now)) {
        Decision::Allow => panic!("{verb} {name} is allowed"),
        Decision::Deny(denied) => *denied,
    }
}

fn is_allowed(identity: &Identity, verb: Verb, name: &str, now: u64) -> bool {
    decide(identity, verb, Name::topic(name), UnixTime(now)).is_allowed()
}

#[test]
fn a_token_allows_what_it_says_and_nothing_else() {
    let identity = identity(&issued(&usual()));
    assert!(is_allowed(&identity, Verb::Read, "a/run42", 0));
    assert!(is_allowed(&identity, Verb::Write, "a/run42", 8 * HOUR - 1));
    let said = |verb, name, now| denied(&identity, verb, name, now).to_string();
    assert!(said(Verb::Manage, "a/run42", 0).contains("the token is for read and write"));
    assert!(said(Verb::Read, "a/other", 0).contains("the token is for topics run*"));
    assert!(said(Verb::Read, "b/run42", 0).contains("the token is for project a"));
    assert!(said(Verb::Read, "run42", 0).contains("the token is for project a"));
    assert!(said(Verb::Read, "a/run42", 8 * HOUR).contains("expired at 1970-01-01T08:00:00Z"));
    let server = decide(&identity, Verb::Read, Name::Server, UnixTime(0));
    assert!(!server.is_allowed());
}

#[test]
fn the_owner_may_do_everything_and_a_member_all_but_admin_in_the_project() {
    let owner = Identity::owner(Origin::default(), Arc::default());
    let member = identity(&issued(&for_project("a")));
    for verb in Verb::ALL {
        assert!(decide(&owner, verb, Name::Server, UnixTime(0)).is_allowed());
        assert!(is_allowed(&owner, verb, "b/x", 0));
        assert_eq!(is_allowed(&member, verb, "a/x", 0), verb != Verb::Admin);
        assert!(!is_allowed(&member, verb, "b/x", 0));
        assert!(!decide(&member, verb, Name::Server, UnixTime(0)).is_allowed());
    }
    let said = denied(&member, Verb::Admin, "a/x", 0).to_string();
    assert!(
        said.starts_with("a member of project a with token "),
        "{said}"
    );
    let grant = r#"{"who":"project:a","may":["admin"],"on":"a/x"}"#;
    assert!(said.ends_with(grant), "{said}");
}

#[test]
fn a_reason_says_for_whom_somebody_is_taken_and_what_would_help() {
    let limits = Limits {
        note: Some("beamline 7".to_owned()),
        ..usual()
    };
    let token = issued(&limits);
    let denied = denied(&identity(&token), Verb::Manage, "a/run42", 0);
    let id = token.ids()[0];
    assert_eq!(
        denied.to_string(),
        format!(
            "a member of project a with token {id} (\"beamline 7\") may not manage a/run42: the \
             token is for read and write; ask who made it for one that has it; a token only gets \
             narrower"
        )
    );
}

#[test]
fn a_holder_narrows_a_token_without_the_issuer() {
    let token = issued(&usual());
    let narrower = Limits {
        topics: patterns(&["run42"]),
        verbs: verbs(&[Verb::Read]),
        expires: Some(UnixTime(HOUR)),
        ..Limits::default()
    };
    let narrow = token.restrict(&narrower, seed(2)).unwrap();
    let identity = identity(&narrow);
    assert!(is_allowed(&identity, Verb::Read, "a/run42", 0));
    assert!(!is_allowed(&identity, Verb::Write, "a/run42", 0));
    assert!(!is_allowed(&identity, Verb::Read, "a/run43", 0));
    assert!(!is_allowed(&identity, Verb::Read, "a/run42", HOUR));
    assert_eq!(identity.expires(), Some(UnixTime(HOUR)));
    assert_eq!(
        narrow.ids()[0],
        token.ids()[0],
        "the parent is known by its id"
    );
    assert_eq!(narrow.limits().len(), 2);
}

#[test]
fn a_block_that_asks_for_more_gets_no_more() {
    let token = issued(&usual());
    let wider = Limits {
        topics: patterns(&["**"]),
        verbs: Some(Verbs::ALL),
        expires: Some(UnixTime(1000 * HOUR)),
        ..Limits::default()
    };
    let identity = identity(&token.restrict(&wider, seed(2)).unwrap());
    assert!(!is_allowed(&identity, Verb::Read, "a/other", 0));
    assert!(!is_allowed(&identity, Verb::Manage, "a/run42", 0));
    assert!(!is_allowed(&identity, Verb::Read, "a/run42", 9 * HOUR));
    let other = token.restrict(&for_project("b"), seed(2)).unwrap();
    let identity = self::identity(&other);
    assert!(!is_allowed(&identity, Verb::Read, "b/run42", 0));
    assert!(!is_allowed(&identity, Verb::Read, "a/run42", 0));
}

#[test]
fn place_and_server_are_limits_too() {
    let limits = Limits {
        networks: Some(vec!["10.1.0.0/16".parse().unwrap()]),
        instance: Some(DirectoryId(9)),
        ..for_project("")
    };
    let token = issued(&limits);
    let from = |address: Option<&str>, instance| {
        let origin = Origin {
            address: address.map(|address| address.parse().unwrap()),
            instance: DirectoryId(instance),
        };
        let identity = token
            .verify(&trust())
            .unwrap()
            .identity(origin, Arc::default());
        let is_good = identity.check(UnixTime(0)).is_ok();
        assert_eq!(is_allowed(&identity, Verb::Read, "x", 0), is_good);
        is_good
    };
    assert!(from(Some("10.1.2.3"), 9));
    assert!(!from(Some("10.2.2.3"), 9));
    assert!(!from(None, 9));
    assert!(!from(Some("10.1.2.3"), 8));
}

#[test]
fn a_token_begins_when_it_says() {
    let limits = Limits {
        not_before: Some(UnixTime(2 * HOUR)),
        ..usual()
    };
    let identity = identity(&issued(&limits));
    assert!(!is_allowed(&identity, Verb::Read, "a/run1", 2 * HOUR - 1));
    assert!(is_allowed(&identity, Verb::Read, "a/run1", 2 * HOUR));
    let early = identity.check(UnixTime(0)).unwrap_err().to_string();
    assert!(
        early.contains("good from 1970-01-01T02:00:00Z on"),
        "{early}"
    );
}

#[test]
fn another_servers_token_is_told_as_that() {
    let other = IssuerKey::new(seed(8));
    let token = Token::issue(&other, &usual(), seed(1)).unwrap();
    let error = token.verify(&trust()).unwrap_err();
    assert_eq!(error, TokenError::Issuer(other.public()));
    assert!(error.to_string().contains("for another server"));
}

#[test]
fn revoking_cuts_a_token_and_all_that_were_made_from_it() {
    let token = issued(&usual());
    let child = token.restrict(&Limits::default(), seed(2)).unwrap();
    let grandchild = child.restrict(&Limits::default(), seed(3)).unwrap();
    let other = Token::issue(&issuer(), &usual(), seed(4)).unwrap();
    let mut trust = trust();
    trust.revoked.insert(child.ids()[1]);
    assert!(token.verify(&trust).is_ok(), "what it was made from stays");
    assert!(other.verify(&trust).is_ok());
    for gone in [&child, &grandchild] {
        let error = gone.verify(&trust).unwrap_err();
        assert_eq!(error, TokenError::Revoked(child.ids()[1]));
    }
    // With the fault, only the token that is named itself is refused.
    let is_taken = faults::with(Fault::RevokedParent, || grandchild.verify(&trust).is_ok());
    assert!(is_taken, "the fault is not noticed");
}

/// A token of whose blocks the last ones were cut off.
fn cut(token: &Token, left: usize) -> Token {
    let mut bytes = token.to_bytes();
    let secret = bytes.split_off(bytes.len() - SEED_BYTES);
    let starts = block_starts(&bytes);
    bytes.truncate(starts[left]);
    bytes[1 + SEED_BYTES] = left as u8;
    bytes.extend(secret);
    Token::from_bytes(&bytes).unwrap()
}

/// Where each block begins, and where the last ends.
fn block_starts(bytes: &[u8]) -> Vec<usize> {
    let mut at = 2 + SEED_BYTES;
    let mut starts = vec![at];
    for _ in 0..bytes[1 + SEED_BYTES] {
        let payload = u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap());
        at += 2 + usize::from(payload) + SEED_BYTES + 64;
        starts.push(at);
    }
    starts
}

#[test]
fn a_restriction_cannot_be_cut_off() {
    let narrower = Limits {
        verbs: verbs(&[Verb::Read]),
        ..Limits::default()
    };
    let token = issued(&usual()).restrict(&narrower, seed(2)).unwrap();
    let token = token.restrict(&narrower, seed(3)).unwrap();
    for left in [1, 2] {
        let error = cut(&token, left).verify(&trust()).unwrap_err();
        assert_eq!(error, TokenError::CutOff);
        let is_taken = faults::with(Fault::CutRestriction, || {
            cut(&token, left).verify(&trust()).is_ok()
        });
        assert!(is_taken, "the fault is not noticed");
    }
}

#[test]
fn an_expired_token_and_a_wrong_projects_grant_are_noticed() {
    let identity = identity(&issued(&usual()));
    let is_allowed = |name, now| is_allowed(&identity, Verb::Read, name, now);
    assert!(!is_allowed("a/run42", 9 * HOUR) && identity.check(UnixTime(9 * HOUR)).is_err());
    assert!(faults::with(Fault::Expired, || is_allowed(
        "a/run42",
        9 * HOUR
    )));
    assert!(!is_allowed("b/run42", 0));
    assert!(faults::with(Fault::WrongProject, || is_allowed(
        "b/run42", 0
    )));
}

#[test]
fn the_text_is_one_line_and_what_is_none_says_why() {
    let token = issued(&usual());
    let text = token.to_text();
    assert!(text.starts_with("thalweg-token-1:") && text.lines().count() == 1);
    assert_eq!(Token::from_text(&text), Ok(token.clone()));
    assert_eq!(
        Token::from_text(&format!("# may read\n\n {text} \n")),
        Ok(token)
    );
    for (wrong, why) in [
        ("", "this is no token"),
        ("# nothing\n", "this is no token"),
        ("0123456789abcdef", "this is no token"),
        (&format!("{text}\n{text}"), "more than one line"),
        (&format!("{text}="), "characters that none has"),
        ("thalweg-token-1:", "needs 1 bytes"),
        ("thalweg-token-1:Aw", "version 3"),
        (&format!("thalweg-token-1:{}", "A".repeat(9000)), "at most"),
    ] {
        let error = Token::from_text(wrong).unwrap_err().to_string();
        assert!(error.contains(why), "{wrong}: {error}");
    }
}

#[test]
fn the_bytes_of_this_version_stay_what_they_are() {
    let token = issued(&usual())
        .restrict(&for_project("a"), seed(2))
        .unwrap();
    assert_eq!(
        token.to_text(),
        include_str!("golden/token-1.txt").trim_end()
    );
    token.verify(&trust()).unwrap();
}

#[test]
fn no_secret_is_printed() {
    let token = issued(&usual());
    let restricted = token.restrict(&Limits::default(), seed(2)).unwrap();
    let identity = identity(&restricted);
    let printed = format!(
        "{token:?}{restricted:?}{identity:?}{:?}{:?}",
        issuer(),
        seed(2)
    );
    for secret in [1_u8, 2, 7] {
        let hex = format!("{secret:02x}").repeat(4);
        let list = format!("{secret}, {secret}, {secret}, {secret}");
        assert!(
            !printed.contains(&hex) && !printed.contains(&list),
            "{printed}"
        );
    }
    let text = restricted.to_text();
    assert!(!printed.contains(&text[40..60]));
}

#[test]
fn a_limit_that_is_not_known_is_refused() {
    let token = issued(&usual());
    let bytes = token.to_bytes();
    let starts = block_starts(&bytes);
    // A limit of kind 99, without a value, behind the last one.
    let mut newer = bytes[..starts[0]].to_vec();
    let payload = u16::from_le_bytes(bytes[starts[0]..starts[0] + 2].try_into().unwrap());
    newer.extend((payload + 4).to_le_bytes());
    let rest = starts[0] + 2 + usize::from(payload);
    newer.extend(&bytes[starts[0] + 2..rest]);
    newer.extend([99, 0, 0, 0]);
    newer.extend(&bytes[rest..]);
    let error = Token::from_bytes(&newer).unwrap_err();
    assert_eq!(error, TokenError::UnknownLimit(99));
}

#[test]
fn a_token_is_bounded() {
    let mut token = issued(&usual());
    for number in 2..=BLOCKS_MAX {
        token = token
            .restrict(&Limits::default(), seed(number as u8))
            .unwrap();
    }
    token.verify(&trust()).unwrap();
    let one_more = token.restrict(&Limits::default(), seed(99));
    assert_eq!(one_more, Err(TokenError::TooLong));
    let many: Vec<String> = (0..LIST_MAX)
        .map(|at| format!("{at}{}", "x".repeat(200)))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let long = Limits {
        topics: patterns(&many),
        ..for_project("a")
    };
    assert_eq!(
        Token::issue(&issuer(), &long, seed(1)),
        Err(TokenError::TooLong)
    );
    let too_many = Limits {
        topics: patterns(&["x"; LIST_MAX + 1]),
        ..for_project("a")
    };
    assert!(matches!(
        Token::issue(&issuer(), &too_many, seed(1)),
        Err(TokenError::Limits(_))
    ));
    let nothing = Token::issue(&issuer(), &Limits::default(), seed(1));
    assert!(matches!(nothing, Err(TokenError::Limits(_))));
}

/// Any limits, of few values, so that they meet.
fn any_limits(chance: &mut Chance) -> Limits {
    let topics = ["*", "**", "run*", "run42", "a/*", "a/**", "*2", "x"];
    let networks = ["10.0.0.0/8", "10.1.0.0/16", "::/0", "0.0.0.0/0"];
    let mut limits = Limits::default();
    if chance.one_in(2) {
        let count = 1 + chance.below(3);
        let texts: Vec<&str> = (0..count).map(|_| chance.of(&topics)).collect();
        limits.topics = patterns(&texts);
    }
    if chance.one_in(2) {
        limits.verbs = Verbs::from_bits(1 + chance.below(15) as u8);
    }
    if chance.one_in(3) {
        limits.not_before = Some(UnixTime(chance.below(6) as u64));
    }
    if chance.one_in(3) {
        limits.expires = Some(UnixTime(4 + chance.below(8) as u64));
        limits.not_before = limits
            .not_before
            .filter(|from| Some(*from) < limits.expires);
    }
    if chance.one_in(4) {
        limits.networks = Some(vec![chance.of(&networks).parse().unwrap()]);
    }
    if chance.one_in(4) {
        limits.instance = Some(DirectoryId(1 + chance.below(2) as u128));
    }
    if chance.one_in(4) {
        limits.bytes_per_second = Some(chance.next());
    }
    limits.once = chance.one_in(6);
    if chance.one_in(6) {
        limits.project = Some(chance.of(&["a", "b"]).to_owned());
    }
    if chance.one_in(4) {
        limits.note = Some("for somebody".to_owned());
    }
    limits
}

fn any_token(chance: &mut Chance) -> Token {
    let limits = Limits {
        project: Some(chance.of(&["a", "b", ""]).to_owned()),
        ..any_limits(chance)
    };
    let mut token = Token::issue(&issuer(), &limits, chance.seed()).unwrap();
    for _ in 0..chance.below(3) {
        token = token.restrict(&any_limits(chance), chance.seed()).unwrap();
    }
    token
}

#[test]
fn restricting_never_widens() {
    let names = [
        "a/run42", "a/x", "b/run42", "b/a/y", "run42", "x", "a/a/b/c",
    ];
    let addresses = [None, Some("10.1.2.3"), Some("10.9.0.1"), Some("fd00::1")];
    let mut allowed = [0, 0];
    for number in seeds(800) {
        let chance = &mut Chance(number);
        let token = any_token(chance);
        let child = token.restrict(&any_limits(chance), chance.seed()).unwrap();
        let origin = Origin {
            address: chance
                .of(&addresses)
                .map(|address| address.parse().unwrap()),
            instance: DirectoryId(1 + chance.below(2) as u128),
        };
        let of = |token: &Token| {
            token
                .verify(&trust())
                .unwrap()
                .identity(origin, Arc::default())
        };
        let (wide, narrow) = (of(&token), of(&child));
        for name in names
            .iter()
            .map(|name| Name::topic(name))
            .chain([Name::Server])
        {
            for verb in Verb::ALL {
                for now in [0, 3, 5, 11].map(UnixTime) {
                    let [wide, narrow] = [&wide, &narrow].map(|who| decide(who, verb, name, now));
                    assert!(
                        wide.is_allowed() || !narrow.is_allowed(),
                        "ACCESS_SEEDS={number}..{}: {verb} {name} is allowed to a child alone",
                        number + 1
                    );
                    allowed[0] += usize::from(wide.is_allowed());
                    allowed[1] += usize::from(narrow.is_allowed());
                }
            }
        }
    }
    let [wide, narrow] = allowed;
    assert!(
        narrow > 0 && wide > narrow,
        "the test sees nothing: {wide}, {narrow}"
    );
}

/// Changes the bytes of a token as somebody would who knows the format, or by chance.
fn mutated(chance: &mut Chance, token: &Token, other: &Token) -> Vec<u8> {
    let mut bytes = token.to_bytes();
    let starts = block_starts(&bytes);
    let other_bytes = other.to_bytes();
    let other_starts = block_starts(&other_bytes);
    let at = chance.below(bytes.len());
    match chance.below(9) {
        0 => bytes[at] ^= 1 << chance.below(8),
        1 => bytes.truncate(at),
        2 => bytes.insert(at, chance.next() as u8),
        3 => drop(bytes.remove(at)),
        // A length, a count or a kind at a boundary.
        4 => {
            let start = chance.of(&starts) + chance.below(8);
            let value = chance.of(&[0, 1, 0xff, 0x7f, 0x80]);
            let last = bytes.len() - 1;
            bytes[start.min(last)] = value;
        }
        // A block again, or away, or one of another token in its place.
        5 => {
            let index = chance.below(starts.len() - 1);
            let block = bytes[starts[index]..starts[index + 1]].to_vec();
            bytes.splice(starts[index]..starts[index], block);
            bytes[1 + SEED_BYTES] += 1;
        }
        6 => {
            let index = chance.below(starts.len() - 1);
            bytes.drain(starts[index]..starts[index + 1]);
            bytes[1 + SEED_BYTES] -= 1;
        }
        7 => {
            let index = chance.below(starts.len() - 1);
            let theirs = chance.below(other_starts.len() - 1);
            let block = other_bytes[other_starts[theirs]..other_starts[theirs + 1]].to_vec();
            bytes.splice(starts[index]..starts[index + 1], block);
        }
        // The end of another.
        _ => {
            let end = bytes.len() - SEED_BYTES;
            bytes.truncate(end);
            bytes.extend(&other_bytes[other_bytes.len() - SEED_BYTES..]);
        }
    }
    bytes
}

#[test]
fn no_byte_of_a_token_can_be_changed() {
    let mut decoded = 0;
    for number in seeds(2500) {
        let chance = &mut Chance(number);
        let (token, other) = (any_token(chance), any_token(chance));
        let mut bytes = mutated(chance, &token, &other);
        for _ in 0..chance.below(2) {
            if let Ok(changed) = Token::from_bytes(&bytes) {
                bytes = mutated(chance, &changed, &other);
            }
        }
        let Ok(changed) = Token::from_bytes(&bytes) else {
            continue;
        };
        decoded += 1;
        assert_eq!(
            changed.to_bytes(),
            bytes,
            "a token has one form: seed {number}"
        );
        let is_one = [&token, &other].map(Token::to_bytes).contains(&bytes);
        assert!(
            is_one || changed.verify(&trust()).is_err(),
            "ACCESS_SEEDS={number}..{}: a changed token is taken",
            number + 1
        );
    }
    assert!(decoded > 0, "no change reaches the signatures");
}

#[test]
fn any_bytes_are_read_to_an_end() {
    for number in seeds(2000) {
        let chance = &mut Chance(number);
        let mut bytes: Vec<u8> = (0..chance.below(400))
            .map(|_| chance.next() as u8)
            .collect();
        if let Some(first) = bytes.first_mut() {
            *first = 1;
        }
        assert!(Token::from_bytes(&bytes).is_err());
        let text: String = bytes.iter().map(|byte| char::from(byte % 128)).collect();
        assert!(Token::from_text(&format!("{TEXT_PREFIX}{text}")).is_err());
    }
}
