//! HAProxy: a pair with TLS in between, and a balancer before one that routes by SNI.

use super::certificate::{Certificate, NAME};
use super::process::{Process, Starter};
use super::programs::HAPROXY;
use crate::failure::Failure;
use std::path::PathBuf;

/// Connections of one, beside those of the members.
const CONNECTIONS_MIN: u64 = 256;
/// The protocol that Thalweg's own clients ask for, where a proxy ends TLS.
const PROTOCOL: &str = "thalweg/1";

/// What HAProxys of a run have in common.
pub struct Haproxies<'a> {
    starter: &'a Starter<'a>,
    program: PathBuf,
    connections: u64,
}

impl<'a> Haproxies<'a> {
    /// With room for so many clients.
    pub fn new(starter: &'a Starter<'a>, clients: u64) -> Result<Self, Failure> {
        Ok(Self {
            starter,
            program: HAPROXY.find()?,
            // A producer of replies has two connections at once, and they may come again before the old ones are gone.
            connections: CONNECTIONS_MIN + 4 * clients,
        })
    }

    fn start(
        &self,
        name: &str,
        sections: impl Fn(u16) -> String,
    ) -> Result<(Process, u16), Failure> {
        // Nobody speaks for as long as a member is stopped: only what is cut is ended here.
        let common = format!(
            "global\n    maxconn {}\ndefaults\n    mode tcp\n    timeout connect 5s\n    timeout client 1h\n    \
             timeout server 1h\n",
            self.connections
        );
        self.starter.listening(name, &self.program, |port| {
            let path = self.starter.path(&format!("{name}.cfg"));
            let text = format!("{common}{}", sections(port));
            super::certificate::write_private(&path, &text)?;
            Ok(vec!["-db".into(), "-f".into(), path.into()])
        })
    }

    /// Two, and TLS between them.
    pub fn pair(&self, server: &str) -> Result<(Vec<Process>, u16), Failure> {
        let certificate = Certificate::make(self.starter.folder)?;
        let (both, authority) = (certificate.both.display(), certificate.authority.display());
        let (far, at) = self.start("far-haproxy", |port| {
            format!(
                "listen far\n    bind 127.0.0.1:{port} ssl crt {both}\n    server server {server}\n"
            )
        })?;
        let (near, port) = self.start("near-haproxy", |port| {
            format!(
                "listen near\n    bind 127.0.0.1:{port}\n    server far 127.0.0.1:{at} ssl verify required ca-file \
                 {authority} verifyhost {NAME} sni str({NAME})\n"
            )
        })?;
        Ok((vec![near, far], port))
    }

    /// A balancer, and behind it one that routes by the name that clients ask for. TLS goes on to the server, or ends
    /// here with the certificate that is given.
    pub fn entrance(
        &self,
        server: &str,
        name: &str,
        ends_tls: Option<&Certificate>,
    ) -> Result<(Vec<Process>, u16), Failure> {
        let (router, at) = self.start("router-haproxy", |port| match ends_tls {
            None => format!(
                "frontend router\n    bind 127.0.0.1:{port}\n    tcp-request inspect-delay 5s\n    \
                 tcp-request content accept if {{ req.ssl_hello_type 1 }}\n    \
                 use_backend service if {{ req.ssl_sni -i {name} }}\n\
                 backend service\n    server server {server}\n"
            ),
            Some(certificate) => format!(
                "frontend router\n    bind 127.0.0.1:{port} ssl crt {} alpn {PROTOCOL}\n    \
                 use_backend service if {{ ssl_fc_sni -i {name} }}\n\
                 backend service\n    server server {server}\n",
                certificate.both.display()
            ),
        })?;
        let (balancer, port) = self.start("balancer-haproxy", |port| {
            format!(
                "listen balancer\n    bind 127.0.0.1:{port}\n    balance leastconn\n    server router 127.0.0.1:{at}\n"
            )
        })?;
        Ok((vec![balancer, router], port))
    }
}
