//! How clients reach an instance, and with what.

use crate::certificate::Certificate;
use crate::error::GatewayError;
use crate::keeper::View;
use crate::keys::instance_token;
use crate::options::Mode;
use crate::process::DATA;
use crate::url::{self, Way};
use std::path::Path;
use std::sync::{Arc, RwLock};

/// How clients reach instances.
#[derive(Debug, Clone)]
pub struct Ways {
    /// The domain of their names.
    pub domain: String,
    /// The port of the gateway.
    pub port: u16,
    /// Host and port that clients dial instead.
    pub dialled: Option<String>,
    /// Who ends TLS.
    pub mode: Mode,
    /// Whose certificate counts where the gateway does.
    pub certificate: Arc<RwLock<Certificate>>,
}

/// What a client of an instance needs. Has secrets.
pub struct Access {
    /// The token.
    pub token: String,
    /// The URL that is enough.
    pub thalweg: String,
    /// The same for clients that are inside, while it serves.
    pub inside: Option<String>,
    /// The URL for clients of AMQP.
    pub amqps: String,
    /// The name that these ask for in TLS, if it is not that of the URL.
    pub name: Option<String>,
    /// The user of that: the project.
    pub user: String,
}

impl Ways {
    /// What a client of an instance needs.
    ///
    /// # Errors
    /// If it has not been ready yet.
    pub fn access(&self, view: &View, folder: &Path) -> Result<Access, GatewayError> {
        let instance = view.record.instance();
        let token = instance_token(&folder.join(DATA), &view.record)?;
        let host = format!("{}.{}", instance.label(), self.domain);
        let own = view.record.certificates.clone();
        let certificates = match self.mode {
            Mode::Pass => own.clone(),
            Mode::End => vec![self.certificate.read().expect("no holder panics").hash()],
        };
        let outside = Way {
            host: host.clone(),
            dialled: self.dialled.clone(),
            port: self.port,
            certificates,
        };
        let path = instance.to_string();
        let inside = view
            .endpoints
            .as_ref()
            .and_then(|endpoints| endpoints.tls.clone());
        let inside = inside.map(|dialled| {
            let way = Way {
                host,
                dialled: Some(dialled),
                port: self.port,
                certificates: own,
            };
            url::thalweg(&token, &way, &path)
        });
        Ok(Access {
            thalweg: url::thalweg(&token, &outside, &path),
            amqps: url::amqps(instance.project(), &token, &outside),
            name: outside.dialled.is_some().then_some(outside.host),
            token: token.to_text(),
            user: instance.project().to_owned(),
            inside,
        })
    }
}
