//! Clients that are known by a certificate: which counts, for whom, how long, and how it is renewed.

use super::farm::SECOND;
use super::harness::*;
use crate::certificates::{Certified, Certifier, ClientCertificates};
use crate::node::{Input, LinkId};
use crate::{AccessChange, Fault};
use access::{CERTIFICATE_EARLY, Certificate, Code, Holder, Trust, UnixTime};
use bytes::Bytes;
use net::{Authorities, Identities, Identity, Peer};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PublicKeyData, SanType, SubjectPublicKeyInfo,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use wire::frame::FrameKind;
use wire::message::*;
use wire::*;

const SITE: &str = "ornl";
const LIFE: Duration = Duration::from_secs(6 * 3600);

/// An authority, as a server has one.
pub(super) struct Maker {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    der: Bytes,
    /// How many it has made.
    codes: AtomicU32,
}

impl std::fmt::Debug for Maker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Maker")
    }
}

impl Maker {
    fn new() -> Arc<Self> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        let made = params.self_signed(&key).unwrap();
        let (pem, der) = (made.pem(), Bytes::copy_from_slice(made.der()));
        let issuer = Issuer::new(params, key);
        let codes = AtomicU32::new(100);
        Arc::new(Self {
            issuer,
            pem,
            der,
            codes,
        })
    }

    fn authorities(&self) -> Authorities {
        Authorities::from_pem(self.pem.as_bytes()).unwrap()
    }

    pub fn sign(
        &self,
        uri: &str,
        key: &impl PublicKeyData,
        now: UnixTime,
        life: Duration,
    ) -> Vec<Bytes> {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let since = Duration::from_secs(now.0 / 1_000_000_000);
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        params.not_before = epoch + (since - CERTIFICATE_EARLY);
        params.not_after = epoch + (since + life - SECOND);
        let made = params.signed_by(key, &self.issuer).unwrap();
        vec![Bytes::copy_from_slice(made.der()), self.der.clone()]
    }
}

impl Certifier for Maker {
    fn certify(
        &self,
        what: Certified<'_>,
        holder: &Holder,
        now: UnixTime,
        life: Duration,
    ) -> Result<Vec<Bytes>, String> {
        let (Certified::Request(der) | Certified::Key(der)) = what;
        let key = SubjectPublicKeyInfo::from_der(der).map_err(|error| error.to_string())?;
        Ok(self.sign(&holder.uri(), &key, now, life))
    }

    fn new_code(&self) -> Result<Code, String> {
        let number = self.codes.fetch_add(1, Ordering::Relaxed);
        let bytes = number.to_be_bytes();
        Ok(Code::new(std::array::from_fn(|at| bytes[at % bytes.len()])))
    }
}

/// A server of site `ornl`, whose authority this is; of the site's own, that one.
pub(super) struct Site {
    pub own: Arc<Maker>,
    of_site: Arc<Maker>,
    pub ground: Ground,
    /// What the server shows.
    pub shown: Identities,
}

impl Site {
    pub fn new() -> Self {
        Self::with(Ground::new())
    }

    pub fn with(mut ground: Ground) -> Self {
        let (own, of_site) = (Maker::new(), Maker::new());
        let server = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = server.signing_key.serialize_pem();
        let shown = Identity::from_pem(server.cert.pem().as_bytes(), key.as_bytes()).unwrap();
        let shown = Identities::new(shown);
        let both = format!("{}{}", own.pem, of_site.pem);
        ground.certificates = Some(ClientCertificates {
            authorities: Authorities::from_pem(both.as_bytes()).unwrap(),
            own: own.authorities(),
            site: SITE.to_owned(),
            shown: shown.clone(),
            certifier: own.clone(),
        });
        Self {
            own,
            of_site,
            ground,
            shown,
        }
    }
}

pub(super) fn now(world: &World) -> UnixTime {
    UnixTime(world.now.unix_ns)
}

/// A client that has shown these.
pub(super) fn peer(chain: &[Bytes]) -> Peer {
    Peer {
        address: "tls://192.0.2.7:5000".to_owned(),
        certificates: chain.to_vec(),
        ..Peer::default()
    }
}

pub(super) fn by_certificate() -> Hello {
    Hello {
        mechanism: CERTIFICATE.into(),
        proof: Bytes::new(),
        ..hello()
    }
}

fn connect(world: &mut World, chain: &[Bytes]) -> LinkId {
    let link = world.connect_as(peer(chain), by_certificate());
    let first = &world.links[&link].inbox[0];
    assert_eq!(first.kind, FrameKind::Welcome, "{:?}", world.error(link, 0));
    link
}

/// Why a client is not let in that shows these.
fn refused(world: &mut World, chain: &[Bytes]) -> ErrorReply {
    let link = world.connect_as(peer(chain), by_certificate());
    assert!(world.links[&link].closed.is_some(), "it is let in");
    world.error(link, 0).expect("it is refused")
}

fn present(world: &mut World, link: LinkId, mechanism: &str, proof: impl Into<Bytes>) {
    let asked = Authenticate {
        mechanism: mechanism.into(),
        proof: proof.into(),
    };
    world.message(link, FrameKind::Authenticate, 0, asked.to_bytes(), &[]);
}

/// What was said last of the credential of a connection.
fn said(world: &World, link: LinkId) -> Authenticated {
    let mut inbox = world.links[&link].inbox.iter().rev();
    let last = inbox.find(|message| message.kind == FrameKind::Authenticate);
    Authenticated::from_bytes("said", &last.expect("something was said").head).unwrap()
}

fn chain_of(certificates: Vec<Bytes>) -> Vec<u8> {
    CertificateChain { certificates }.to_bytes()
}

#[test]
fn a_certificate_makes_its_holder_a_member_of_its_project() {
    let mut site = Site::new();
    let mut world = site.ground.start();
    let key = KeyPair::generate().unwrap();
    let owner = world.connect_as(
        Peer::default(),
        Hello {
            namespace: "p".into(),
            ..hello()
        },
    );
    let topic = world.topic(owner);
    for authority in [&site.own, &site.of_site] {
        let chain = authority.sign("thalweg://ornl/p/beamline", &key, now(&world), LIFE);
        let link = connect(&mut world, &chain);
        world.stored(link, topic, (5, 0), &["a"]);
        let asked = world.request(link, Method::Status, TopicId(0), &Empty, &[]);
        let error = world.answer(link, asked).unwrap().unwrap_err();
        assert_eq!(error.code, ErrorCode::NotAuthorized);
        assert!(
            error.message.contains("with certificate \"beamline\""),
            "{error}"
        );
    }
    // Another project's topics are none to it.
    let chain = site
        .own
        .sign("thalweg://ornl/q/beamline", &key, now(&world), LIFE);
    let link = connect(&mut world, &chain);
    let asked = world.produce(link, topic, &batch(topic, 5, 0, 1, &["b"]));
    let error = world.answer(link, asked).unwrap().unwrap_err();
    assert_eq!(error.code, ErrorCode::UnknownTopic);
    let elsewhere = Hello {
        namespace: "p".into(),
        ..by_certificate()
    };
    let link = world.connect_as(peer(&chain), elsewhere);
    assert!(
        world
            .error(link, 0)
            .unwrap()
            .message
            .contains("has no names of namespace")
    );
}

#[test]
fn what_hello_names_counts_and_nothing_else_that_was_shown() {
    let mut site = Site::new();
    let mut world = site.ground.start();
    let key = KeyPair::generate().unwrap();
    let chain = site
        .own
        .sign("thalweg://ornl/p/beamline", &key, now(&world), LIFE);
    // The server's token makes an owner, whatever certificate is there; so does no certificate.
    let owner = world.connect_as(peer(&chain), hello());
    assert!(world.links[&owner].closed.is_none());
    let asked = world.request(owner, Method::Status, TopicId(0), &Empty, &[]);
    assert!(world.answer(owner, asked).unwrap().is_ok());
    let nothing = Hello {
        mechanism: String::new(),
        proof: Bytes::new(),
        ..hello()
    };
    let link = world.connect_as(peer(&chain), nothing);
    assert!(
        world.links[&link].closed.is_some(),
        "a certificate counts unasked"
    );
    // A certificate that is wrong does not spoil a token that is right.
    let other = Maker::new().sign("thalweg://ornl/p/n", &key, now(&world), LIFE);
    let link = world.connect_as(peer(&other), hello());
    assert!(world.links[&link].closed.is_none());
    // And a right one beside a wrong token does not help.
    let wrong = Hello {
        proof: Bytes::from_static(&[0; 32]),
        ..hello()
    };
    let link = world.connect_as(peer(&chain), wrong);
    assert!(world.links[&link].closed.is_some());
    let error = refused(&mut world, &[]);
    assert!(error.message.contains("no certificate came"), "{error}");
}

/// The certificates of a client that has none that counts, at this time.
type Wrong = fn(&Site, UnixTime) -> Vec<Bytes>;

const STRANGER: Wrong = |_, now| {
    let key = KeyPair::generate().unwrap();
    Maker::new().sign("thalweg://ornl/p/n", &key, now, LIFE)
};
const EXPIRED: Wrong = |site, now| {
    let key = KeyPair::generate().unwrap();
    let before = UnixTime(now.0 - LIFE.as_nanos() as u64);
    site.own.sign("thalweg://ornl/p/n", &key, before, LIFE)
};
const OTHER_SITE: Wrong = |site, now| {
    let key = KeyPair::generate().unwrap();
    site.own.sign("thalweg://anl/p/n", &key, now, LIFE)
};

/// Whether a client is let in by such a certificate, and else why not.
fn entry(fault: Option<Fault>, wrong: Wrong) -> Result<(), ErrorReply> {
    let mut site = Site::with(fault.map_or_else(Ground::new, Ground::with_fault));
    let mut world = site.ground.start();
    let chain = wrong(&site, now(&world));
    let link = world.connect_as(peer(&chain), by_certificate());
    match world.links[&link].closed.is_some() {
        true => Err(world.error(link, 0).expect("it hears why")),
        false => Ok(()),
    }
}

#[test]
fn what_is_wrong_with_a_certificate_is_said_with_what_helps() {
    let said = |wrong| entry(None, wrong).unwrap_err();
    let stranger = said(STRANGER);
    assert_eq!(stranger.code, ErrorCode::NotAuthenticated);
    for part in [
        "thalweg://ornl/p/n",
        "no authority that is known here",
        "thalweg pair",
        "tls_client_ca",
    ] {
        assert!(stranger.message.contains(part), "{part}: {stranger}");
    }
    let expired = said(EXPIRED);
    assert_eq!(expired.code, ErrorCode::CredentialExpired);
    for part in ["the certificate expired at", "pair anew"] {
        assert!(expired.message.contains(part), "{part}: {expired}");
    }
    let other = said(OTHER_SITE);
    assert!(
        other.message.contains("for site anl, and this is ornl"),
        "{other}"
    );
    let early = said(|site, now| {
        let key = KeyPair::generate().unwrap();
        let later = UnixTime(now.0 + 2 * CERTIFICATE_EARLY.as_nanos() as u64);
        site.own.sign("thalweg://ornl/p/n", &key, later, LIFE)
    });
    assert_eq!(early.code, ErrorCode::NotAuthenticated);
    assert!(early.message.contains("is good from"), "{early}");
    let no_uri = said(|site, _| vec![site.own.der.clone()]);
    assert!(no_uri.message.contains("has 0 URIs"), "{no_uri}");
    let nonsense = said(|_, _| vec![Bytes::from_static(b"nonsense")]);
    assert!(nonsense.message.contains("cannot be read"), "{nonsense}");
    let long = said(|site, now| {
        let key = KeyPair::generate().unwrap();
        let mut chain = site.own.sign("thalweg://ornl/p/n", &key, now, LIFE);
        chain.extend(vec![site.own.der.clone(); 4]);
        chain
    });
    assert!(
        long.message.contains("more than 3 of authorities"),
        "{long}"
    );
    let large = said(|site, now| {
        let key = KeyPair::generate().unwrap();
        let mut chain = site.own.sign("thalweg://ornl/p/n", &key, now, LIFE);
        chain.push(Bytes::from(vec![0x30; 16 << 10]));
        chain
    });
    assert!(large.message.contains("more than 16384 bytes"), "{large}");
    // A server without TLS says so.
    let mut world = Ground::new().start();
    let error = refused(&mut world, &[]);
    assert!(error.message.contains("takes no certificates"), "{error}");
}

#[test]
fn planted_faults_of_certificates_are_noticed() {
    for (fault, wrong) in [
        (Fault::ForeignCertificate, STRANGER),
        (Fault::ExpiredCertificate, EXPIRED),
    ] {
        entry(None, wrong).unwrap_err();
        entry(Some(fault), wrong).unwrap();
    }
}

#[test]
fn revoking_ends_the_connections_of_a_certificate_and_of_what_it_becomes() {
    let mut site = Site::new();
    let mut world = site.ground.start();
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let [first, second] =
        [LIFE, LIFE * 2].map(|life| site.own.sign("thalweg://ornl/p/n", &key, now(&world), life));
    let third = site
        .own
        .sign("thalweg://ornl/p/n", &other, now(&world), LIFE);
    let chains = [&first, &second, &third];
    let links = chains.map(|chain| connect(&mut world, chain));
    let ids = |chain: &[Bytes]| Certificate::read(&chain[0]).unwrap().ids().to_vec();
    let revoke = |world: &mut World, id| {
        let trust = Trust {
            keys: vec![issuer().public()],
            revoked: [id].into(),
        };
        world.input(Input::Access(AccessChange::Trust(Arc::new(trust))));
    };
    let is_open = |world: &World| links.map(|link| world.links[&link].closed.is_none());
    // The id of the one certificate.
    revoke(&mut world, ids(&first)[1]);
    assert_eq!(is_open(&world), [false, true, true]);
    let error = world.error(links[0], 0).unwrap();
    assert!(error.message.contains("was revoked"), "{error}");
    assert!(refused(&mut world, &first).message.contains("was revoked"));
    // That of the key, which all certificates of it have.
    revoke(&mut world, ids(&second)[0]);
    assert_eq!(is_open(&world), [false, false, true]);
    assert!(refused(&mut world, &second).message.contains("was revoked"));
    // What it was made into on a connection is revoked by the same id.
    present(&mut world, links[2], RENEW_CERTIFICATE, Bytes::new());
    assert_eq!(said(&world, links[2]).issued.len(), 2);
    revoke(&mut world, ids(&third)[0]);
    assert_eq!(is_open(&world), [false, false, false]);
}

#[test]
fn a_certificate_is_renewed_on_the_connection_that_has_shown_its_key() {
    let mut site = Site::new();
    let mut world = site.ground.start();
    let key = KeyPair::generate().unwrap();
    let chain = site.own.sign("thalweg://ornl/p/n", &key, now(&world), LIFE);
    let link = connect(&mut world, &chain);
    let told = said(&world, link);
    assert_eq!(told.expires_in_ms, LIFE.as_millis() as u64);
    assert_eq!(told.renew_in_ms, LIFE.as_millis() as u64 * 2 / 3);
    world.live(&[link], LIFE / 2);
    // One that connects late has to renew at the same time.
    let late = connect(&mut world, &chain);
    assert_eq!(said(&world, late).renew_in_ms, LIFE.as_millis() as u64 / 6);
    world.live(&[link, late], LIFE / 4);
    assert_eq!(said(&world, late).renew_in_ms, LIFE.as_millis() as u64 / 6);
    present(&mut world, link, RENEW_CERTIFICATE, Bytes::new());
    let told = said(&world, link);
    assert_eq!((told.refused.as_str(), told.issued.len()), ("", 2));
    assert_eq!(told.expires_in_ms, LIFE.as_millis() as u64);
    let (before, after) = (
        Certificate::read(&chain[0]).unwrap(),
        Certificate::read(&told.issued[0]).unwrap(),
    );
    assert_eq!(before.ids()[0], after.ids()[0]);
    assert_eq!(
        (before.holder(), before.life()),
        (after.holder(), after.life())
    );
    // Another process takes up what this one has got.
    present(&mut world, late, CERTIFICATE, chain_of(told.issued.clone()));
    assert_eq!(said(&world, late).refused, "");
    world.live(&[link, late], LIFE / 2);
    for link in [link, late] {
        assert!(
            world.links[&link].closed.is_none(),
            "it ends with the first certificate"
        );
    }
    connect(&mut world, &told.issued);
    assert_eq!(
        refused(&mut world, &chain).code,
        ErrorCode::CredentialExpired
    );
}

/// Whether a certificate of somebody else's key, which everybody may have, takes the place of one's own.
fn other_key(fault: Option<Fault>) -> Result<(), String> {
    let mut site = Site::with(fault.map_or_else(Ground::new, Ground::with_fault));
    let mut world = site.ground.start();
    let keys = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
    let [own, other] = keys.map(|key| site.own.sign("thalweg://ornl/p/n", &key, now(&world), LIFE));
    let link = connect(&mut world, &own);
    present(&mut world, link, CERTIFICATE, chain_of(other));
    let said = said(&world, link);
    match said.refused.is_empty() {
        true => Ok(()),
        false => Err(said.refused),
    }
}

#[test]
fn a_certificate_of_another_key_needs_another_connection() {
    assert!(other_key(None).unwrap_err().contains("connect anew"));
    other_key(Some(Fault::OtherKey)).unwrap();
}

#[test]
fn what_cannot_be_renewed_stays_what_it_is() {
    let mut site = Site::new();
    let mut world = site.ground.start();
    let key = KeyPair::generate().unwrap();
    let chain = site.own.sign("thalweg://ornl/p/n", &key, now(&world), LIFE);
    let link = connect(&mut world, &chain);
    let refusal = |world: &mut World, mechanism: &str, proof: Vec<u8>| {
        present(world, link, mechanism, proof);
        assert!(world.links[&link].closed.is_none());
        said(world, link).refused
    };
    let elsewhere = site.own.sign("thalweg://ornl/q/n", &key, now(&world), LIFE);
    assert!(refusal(&mut world, CERTIFICATE, chain_of(elsewhere)).contains("connect anew"));
    let stranger = Maker::new().sign("thalweg://ornl/p/n", &key, now(&world), LIFE);
    assert!(refusal(&mut world, CERTIFICATE, chain_of(stranger)).contains("no authority"));
    assert!(refusal(&mut world, CERTIFICATE, chain_of(vec![])).contains("another key"));
    assert!(!refusal(&mut world, CERTIFICATE, b"nonsense".to_vec()).is_empty());
    assert!(refusal(&mut world, "guess", vec![]).contains("not known here"));
    // What the site's authority has signed is renewed there.
    let of_site = site
        .of_site
        .sign("thalweg://ornl/p/n", &key, now(&world), LIFE);
    let theirs = connect(&mut world, &of_site);
    present(&mut world, theirs, RENEW_CERTIFICATE, Bytes::new());
    assert!(
        said(&world, theirs)
            .refused
            .contains("an authority of the site")
    );
    // Nobody gets a certificate by a token, whatever was shown beside it.
    let owner = world.connect_as(peer(&chain), hello());
    present(&mut world, owner, RENEW_CERTIFICATE, Bytes::new());
    let told = said(&world, owner);
    assert!(told.refused.contains("not known here") && told.issued.is_empty());
    // In the grace behind its end a connection may present another one, and make none.
    world.live(&[link, theirs, owner], LIFE + SECOND);
    present(&mut world, link, RENEW_CERTIFICATE, Bytes::new());
    let told = said(&world, link);
    assert!(
        told.refused.contains("expired") && told.issued.is_empty(),
        "{told:?}"
    );
    let fresh = site.own.sign("thalweg://ornl/p/n", &key, now(&world), LIFE);
    present(&mut world, link, CERTIFICATE, chain_of(fresh));
    assert_eq!(said(&world, link).refused, "");
    // Without another one the connection ends.
    world.live(&[link, theirs, owner], SECOND * 60);
    assert!(world.links[&theirs].closed.is_some());
    assert!(world.links[&link].closed.is_none());
}

/// A key of another kind than the server's own.
#[test]
fn the_holder_chooses_the_kind_of_key() {
    let mut site = Site::new();
    let mut world = site.ground.start();
    for kind in [&rcgen::PKCS_ED25519, &rcgen::PKCS_ECDSA_P384_SHA384] {
        let key = KeyPair::generate_for(kind).unwrap();
        let chain = site.own.sign("thalweg://ornl/p/n", &key, now(&world), LIFE);
        let link = connect(&mut world, &chain);
        present(&mut world, link, RENEW_CERTIFICATE, Bytes::new());
        assert_eq!(said(&world, link).refused, "");
    }
}
