//! Authorities and certificates of tests, made when they run.

#![allow(dead_code, reason = "each program of tests uses a part of it")]

use net::{Fingerprint, Identities, Identity, LinkOptions, Tls, Trust};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use std::path::{Path, PathBuf};

/// Signs certificates.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        let issuer = Issuer::new(params, key);
        Self { issuer, pem }
    }

    /// A server that has this certificate: valid from one year to another.
    pub fn identity(&self, names: &[&str], years: (i32, i32)) -> Identity {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.not_before = rcgen::date_time_ymd(years.0, 1, 1);
        params.not_after = rcgen::date_time_ymd(years.1, 1, 1);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let chain = format!("{}{}", certificate.pem(), self.pem);
        Identity::from_pem(chain.as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }

    /// Its certificate, in PEM.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A client: key, certificate, and the authority's, in PEM.
    pub fn client(&self, params: CertificateParams) -> String {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        format!("{}{}{}", key.serialize_pem(), certificate.pem(), self.pem)
    }

    /// A server of this host.
    pub fn of_this_host(&self) -> Identity {
        self.identity(&["localhost", "127.0.0.1"], (2020, 2200))
    }

    /// The hash of its certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        self.of_this_host().fingerprints()[1]
    }

    /// Both ends of a connection on this host.
    pub fn tls(&self, options: LinkOptions) -> Tls {
        Tls::new(options)
            .trusting(Trust::Certificates(vec![self.fingerprint()]))
            .listening_as(Identities::new(self.of_this_host()))
    }

    /// A file with its certificate.
    pub fn write(&self, directory: &Path) -> PathBuf {
        let path = directory.join("authority.pem");
        std::fs::write(&path, &self.pem).unwrap();
        path
    }
}
