//! Certificates of clients: that they are asked for, come with the connection, and what is said of them.

use bytes::Bytes;
use certificates::Authority;
use net::*;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use std::sync::Arc;
use std::time::Duration;

mod certificates;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A listener that asks for certificates of `of`, and both ends of connections to it.
struct World {
    reactor: Reactor,
    address: String,
}

impl World {
    fn asking(server: &Authority, of: Authorities) -> Self {
        let tls = Tls::default().listening_as(Identities::new(server.of_this_host()));
        let listener = tls.asking(of).listen("tls://127.0.0.1:0").unwrap();
        let address = format!("{}?sha256={}", listener.address(), server.fingerprint());
        let mut reactor = Reactor::new().unwrap();
        reactor.add_listener(listener).unwrap();
        Self { reactor, address }
    }

    /// What the server has of a client that shows this, in PEM.
    fn shown(&mut self, certificate: Option<&str>) -> Vec<Bytes> {
        let certificate = certificate.map(str::as_bytes);
        let link = Tls::default()
            .connect_as(&self.address, certificate)
            .unwrap();
        let client = self.reactor.add_link(link).unwrap();
        let (mut ups, mut server) = (0, None);
        while ups < 2 {
            match self.reactor.next() {
                Some(ReactorEvent::Link { link, event }) => {
                    assert!(matches!(event, LinkEvent::Up), "{event:?}");
                    ups += 1;
                    server = server.or((link != client).then_some(link));
                }
                Some(_) => {}
                None => self.reactor.wait(None).unwrap(),
            }
        }
        let client = self
            .reactor
            .link(client)
            .unwrap()
            .peer()
            .certificates
            .clone();
        assert_eq!(client.len(), 2, "the server shows itself and its authority");
        let server = self.reactor.link(server.unwrap()).unwrap();
        server.peer().certificates.clone()
    }
}

fn params() -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn authorities(of: &Authority) -> Authorities {
    Authorities::from_pem(of.pem().as_bytes()).unwrap()
}

fn since_1970() -> Duration {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).unwrap()
}

#[test]
fn a_client_is_served_with_a_certificate_and_without_and_the_server_has_what_it_showed() {
    let (server, ours, other) = (
        Authority::new("server"),
        Authority::new("ours"),
        Authority::new("ours"),
    );
    let mut world = World::asking(&server, authorities(&ours));
    assert!(world.shown(None).is_empty());
    let known = authorities(&ours);
    let now = since_1970();
    let good = world.shown(Some(&ours.client(params())));
    assert_eq!(known.verify(&good, now), Ok(()));
    assert!(known.verify(&[], now).is_err());
    // One of another authority of the same name comes through, and counts for nothing.
    let strange = world.shown(Some(&other.client(params())));
    assert_eq!(strange.len(), 2);
    assert_eq!(known.verify(&strange, now), Err(Untrusted::Stranger));
    assert_eq!(authorities(&other).verify(&strange, now), Ok(()));
    // Nor does a chain whose end is ours and whose beginning is not.
    let mixed = [strange[0].clone(), good[1].clone()];
    assert_eq!(known.verify(&mixed, now), Err(Untrusted::Stranger));
}

#[test]
fn what_is_wrong_with_a_certificate_is_said() {
    let ours = Authority::new("ours");
    let known = authorities(&ours);
    let verdict = |change: fn(&mut CertificateParams), now: Duration| {
        let mut params = params();
        change(&mut params);
        let text = ours.client(params);
        known.verify(&certificates_in(text.as_bytes()).unwrap(), now)
    };
    let now = since_1970();
    assert_eq!(verdict(|_| {}, now), Ok(()));
    let expired = |params: &mut CertificateParams| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        params.not_before = rcgen::date_time_ymd(2019, 1, 1);
    };
    assert_eq!(verdict(expired, now), Err(Untrusted::Expired));
    // 2019-06-01
    assert_eq!(verdict(expired, DAY * 18_048), Ok(()));
    assert_eq!(verdict(expired, DAY), Err(Untrusted::NotYet));
    let of_a_server = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    };
    let of_an_authority = |params: &mut CertificateParams| {
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    };
    let of_an_unknown_kind = |params: &mut CertificateParams| {
        let mut extension = rcgen::CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
        extension.set_criticality(true);
        params.custom_extensions = vec![extension];
    };
    for change in [of_a_server, of_an_authority, of_an_unknown_kind] {
        let verdict = verdict(change, now);
        assert!(matches!(verdict, Err(Untrusted::Wrong(_))), "{verdict:?}");
    }
    assert!(
        known
            .verify(&[Bytes::from_static(b"nonsense")], now)
            .is_err()
    );
    assert!(Authorities::from_pem(b"nonsense").is_err());
}

/// Who has somebody's certificate, and not its key.
#[test]
fn a_certificate_without_its_key_ends_the_handshake() {
    let (server, ours) = (Authority::new("server"), Authority::new("ours"));
    let tls = Tls::default().listening_as(Identities::new(server.of_this_host()));
    let listener = tls.asking(authorities(&ours)).listen("tls://127.0.0.1:0");
    let listener = listener.unwrap();
    let address = listener.address();
    let mut reactor = Reactor::new().unwrap();
    reactor.add_listener(listener).unwrap();
    let provider = crypto_provider();
    let stolen = ours.client(params());
    let chain: Vec<_> = CertificateDer::pem_slice_iter(stolen.as_bytes())
        .map(Result::unwrap)
        .collect();
    let own =
        PrivateKeyDer::from_pem_slice(KeyPair::generate().unwrap().serialize_pem().as_bytes());
    let own = provider
        .key_provider
        .load_private_key(own.unwrap())
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    for one in CertificateDer::pem_slice_iter(server.pem().as_bytes()) {
        roots.add(one.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(CertifiedKey::new(
            chain, own,
        ))));
    let thread = std::thread::spawn(move || {
        use std::io::Read;
        let name = "localhost".try_into().unwrap();
        let mut session = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
        let at = address.strip_prefix("tls://").unwrap();
        let mut socket = std::net::TcpStream::connect(at).unwrap();
        let mut stream = rustls::Stream::new(&mut session, &mut socket);
        stream.read(&mut [0]).unwrap_err().to_string()
    });
    let reason = loop {
        match reactor.next() {
            Some(ReactorEvent::Link { event, .. }) => match event {
                LinkEvent::Down(error) => break error.to_string(),
                other => panic!("{other:?}"),
            },
            Some(_) => {}
            None => reactor.wait(None).unwrap(),
        }
    };
    assert!(reason.contains("BadSignature"), "{reason}");
    let told = thread.join().unwrap();
    assert!(told.contains("DecryptError"), "{told}");
}
