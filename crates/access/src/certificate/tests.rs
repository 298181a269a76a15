//! Which certificates are of a client of a site, and which are not.

use super::*;
use crate::decide::decide;
use crate::faults;
use crate::grant::Grant;
use crate::name::Name;
use crate::verb::{Verb, Verbs};
use rcgen::{CertificateParams, KeyPair, SanType};

const SECOND: u64 = 1_000_000_000;
/// 2026-01-01 and a day later.
const BEGINS: u64 = 1_767_225_600 * SECOND;
const DAY: u64 = 24 * 3600 * SECOND;

fn der(names: Vec<SanType>) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.subject_alt_names = names;
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2026, 1, 2);
    let key = KeyPair::generate().unwrap();
    params.self_signed(&key).unwrap().der().to_vec()
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn read(text: &str) -> Result<Certificate, CertificateError> {
    Certificate::read(&der(vec![uri(text)]))
}

#[test]
fn a_certificate_says_whom_it_is_for_and_until_when() {
    let certificate = read("thalweg://ornl/stf008/beamline-7").unwrap();
    let holder = certificate.holder();
    assert_eq!((holder.project(), holder.name()), ("stf008", "beamline-7"));
    assert_eq!(holder.uri(), "thalweg://ornl/stf008/beamline-7");
    certificate.check_site("ornl").unwrap();
    // It is good in its last second.
    assert_eq!(certificate.expires(), UnixTime(BEGINS + DAY + SECOND));
    let lasts = Duration::from_nanos(DAY + SECOND) - CERTIFICATE_EARLY;
    assert_eq!(certificate.life(), lasts);
    let identity = certificate.identity(Origin::default(), Arc::default());
    let told = identity.to_string();
    assert!(
        told.contains("project stf008 with certificate \"beamline-7\""),
        "{told}"
    );
    assert_eq!(identity.expires(), Some(certificate.expires()));
}

#[test]
fn names_of_hosts_and_people_beside_the_uri_do_not_matter() {
    let names = vec![
        SanType::DnsName("node7.ornl.gov".try_into().unwrap()),
        uri("thalweg://ornl/p/n"),
        SanType::Rfc822Name("somebody@ornl.gov".try_into().unwrap()),
        SanType::IpAddress([192, 0, 2, 1].into()),
    ];
    assert_eq!(Certificate::read(&der(names)).unwrap().holder().name(), "n");
}

#[test]
fn a_certificate_has_one_uri() {
    let count = |names: Vec<SanType>| match Certificate::read(&der(names)) {
        Err(CertificateError::Uris(count)) => count,
        other => panic!("{other:?}"),
    };
    let (ours, other) = ("thalweg://s/p/n", "spiffe://s/p/n");
    assert_eq!(count(vec![]), 0);
    assert_eq!(
        count(vec![SanType::DnsName("thalweg".try_into().unwrap())]),
        0
    );
    assert_eq!(count(vec![uri(ours), uri(ours)]), 2);
    assert_eq!(count(vec![uri(ours), uri("thalweg://s/q/n")]), 2);
    assert_eq!(count(vec![uri(ours), uri(other)]), 2);
    assert_eq!(count(vec![uri(other), uri(ours)]), 2);
}

#[test]
fn a_uri_of_any_other_form_is_refused() {
    let long = "x".repeat(PART_BYTES_MAX + 1);
    let long = format!("thalweg://s/p/{long}");
    let texts = [
        "",
        "thalweg:",
        "thalweg://",
        "thalweg:///p/n",
        "thalweg://s",
        "thalweg://s/",
        "thalweg://s/p",
        "thalweg://s/p/",
        "thalweg://s//n",
        "thalweg://s/p/n/",
        "thalweg://s/p/n/more",
        "thalweg://s/p/n?admin",
        "thalweg://s/p/n#admin",
        "thalweg://s:443/p/n",
        "thalweg://somebody@s/p/n",
        "thalweg://s/p/%6e",
        "thalweg://s/p/a%2fb",
        "thalweg://s/p/..",
        "thalweg://s/../n",
        "thalweg://s/p/.n",
        "thalweg://s/p/a b",
        "thalweg://s/p/n\n",
        "thalweg://s/p/n\0",
        "thalweg://s/p/\u{7f}",
        "thalweg://s\\p\\n",
        "THALWEG://s/p/n",
        "Thalweg://s/p/n",
        " thalweg://s/p/n",
        "thalweg://s/p/n ",
        "thalweg:/s/p/n",
        "thalweg:s/p/n",
        "thalweg://s/p/*",
        "thalweg://*/p/n",
        "https://s/p/n",
        "spiffe://s/p/n",
        "s/p/n",
        long.as_str(),
    ];
    for text in texts {
        match read(text) {
            Err(CertificateError::Form(found)) => assert_eq!(found, text),
            other => panic!("{text:?}: {other:?}"),
        }
    }
    // As far as a part may go.
    let most = "x".repeat(PART_BYTES_MAX);
    read(&format!("thalweg://{most}/{most}/{most}")).unwrap();
    for (site, project, name) in [
        ("", "p", "n"),
        ("s", "", "n"),
        ("s", "p", ""),
        ("s", "p", "ä"),
    ] {
        Holder::new(site, project, name).unwrap_err();
    }
}

#[test]
fn any_bytes_are_read_or_refused() {
    let good = der(vec![uri("thalweg://s/p/n")]);
    for end in 0..good.len() {
        Certificate::read(&good[..end]).unwrap_err();
    }
    let behind = [&good[..], b"x"].concat();
    assert!(matches!(
        Certificate::read(&behind),
        Err(CertificateError::Bytes(_))
    ));
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        // Who signed it is verified elsewhere: here it must not panic.
        let _ = Certificate::read(&bytes);
    }
}

#[test]
fn a_certificate_of_another_site_does_not_count() {
    let certificate = read("thalweg://anl/p/n").unwrap();
    let error = certificate.check_site("ornl").unwrap_err().to_string();
    assert!(
        error.contains("site anl") && error.contains("ornl"),
        "{error}"
    );
    // No part of a name is enough, nor another spelling.
    for site in ["an", "anl1", "ANL", ""] {
        certificate.check_site(site).unwrap_err();
    }
    let missed = faults::with(Fault::OtherSite, || certificate.check_site("ornl").is_ok());
    assert!(missed, "the fault is not planted");
}

#[test]
fn certificates_of_one_key_have_an_id_in_common() {
    let key = KeyPair::generate().unwrap();
    let of = |key: &KeyPair, day: u8| {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![uri("thalweg://s/p/n")];
        params.not_after = rcgen::date_time_ymd(2030, 1, day);
        Certificate::read(params.self_signed(key).unwrap().der()).unwrap()
    };
    let (one, next, other) = (
        of(&key, 1),
        of(&key, 2),
        of(&KeyPair::generate().unwrap(), 1),
    );
    assert_eq!(one.ids()[0], next.ids()[0]);
    assert_ne!(one.ids()[1], next.ids()[1]);
    assert_ne!(one.ids()[0], other.ids()[0]);
    assert_eq!(one.public_key(), next.public_key());
    // The next one takes its place on a connection; another name's does not.
    let identity =
        |certificate: &Certificate| certificate.identity(Origin::default(), Arc::default());
    assert!(identity(&one).has_rights_of(&identity(&next)));
    let elsewhere = read("thalweg://s/p/m").unwrap();
    assert!(!identity(&one).has_rights_of(&identity(&elsewhere)));
    let project = read("thalweg://s/q/n").unwrap();
    assert!(!identity(&one).has_rights_of(&identity(&project)));
}

#[test]
fn a_grant_may_be_to_one_certificate() {
    let certificate = |text: &str, grants: &Arc<Grants>| {
        read(text)
            .unwrap()
            .identity(Origin::default(), grants.clone())
    };
    let only = Grant::of("cert:p/n", Verbs::from_iter([Verb::Write]), "p/run*").unwrap();
    assert_eq!(
        only.to_string(),
        r#"{"who":"cert:p/n","may":["write"],"on":"p/run*"}"#
    );
    let grants = Arc::new(Grants(vec![only]));
    let may = |uri: &str, verb, topic| {
        let identity = certificate(uri, &grants);
        let (project, topic) = ("p", topic);
        let name = Name::Topic { project, topic };
        decide(&identity, verb, name, UnixTime(BEGINS + SECOND)).is_allowed()
    };
    assert!(may("thalweg://s/p/n", Verb::Write, "run1"));
    assert!(!may("thalweg://s/p/n", Verb::Read, "run1"));
    assert!(!may("thalweg://s/p/n", Verb::Write, "other"));
    assert!(!may("thalweg://s/p/m", Verb::Write, "run1"));
    assert!(!may("thalweg://s/q/n", Verb::Write, "run1"));
    for who in [
        "cert:",
        "cert:p",
        "cert:p/",
        "cert:/n",
        "cert:p/n/m",
        "cert:p/n m",
    ] {
        Grant::of(who, Verbs::MEMBER, "p/**").unwrap_err();
    }
    // By default a certificate is a member of its project, and of no other.
    let usual = Arc::new(Grants::default());
    let identity = certificate("thalweg://s/p/n", &usual);
    let decides = |verb, project| {
        let name = Name::Topic {
            project,
            topic: "t",
        };
        decide(&identity, verb, name, UnixTime(BEGINS + SECOND))
    };
    assert!(decides(Verb::Manage, "p").is_allowed());
    assert!(!decides(Verb::Read, "q").is_allowed());
    let decision = decide(
        &identity,
        Verb::Admin,
        Name::Server,
        UnixTime(BEGINS + SECOND),
    );
    assert!(!decision.is_allowed());
    let over = decide(
        &identity,
        Verb::Read,
        Name::Topic {
            project: "p",
            topic: "t",
        },
        UnixTime(BEGINS + 2 * DAY),
    );
    let crate::Decision::Deny(denied) = over else {
        panic!("it is over")
    };
    let said = denied.to_string();
    assert!(said.contains("the certificate expired at"), "{said}");
    assert!(said.contains("thalweg pair"), "{said}");
}
