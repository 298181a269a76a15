//! Authorities and certificates, made when tests run.

use super::super::{PeerId, Security, certificate_name};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::ops::Range;

/// Signs certificates.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, in PEM.
pub(super) struct Holder {
    pub(super) chain: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// A certificate of all servers that tests have, good from the beginning of one year to that of another.
    pub(super) fn holder(&self, years: (i32, i32)) -> Holder {
        self.holder_for(1..16, years)
    }

    /// The same, of these servers alone.
    pub(super) fn holder_for(&self, servers: Range<u128>, years: (i32, i32)) -> Holder {
        let key = KeyPair::generate().unwrap();
        let names = servers.map(|server| certificate_name(PeerId(server)));
        let names = names.chain(["some-server".to_owned()]).collect::<Vec<_>>();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Holder {
            chain: certificate.pem(),
            key: key.serialize_pem(),
        }
    }

    /// What a server has that trusts this authority and holds that certificate.
    pub(super) fn security_of(&self, holder: &Holder) -> Security {
        Security::Tls {
            authority: self.pem.clone().into_bytes(),
            chain: holder.chain.clone().into_bytes(),
            key: holder.key.clone().into_bytes(),
        }
    }

    /// What a server of the cluster has.
    pub(super) fn security(&self) -> Security {
        self.security_of(&self.holder((2020, 2200)))
    }
}
