//! stunnel, a pair with TLS in between.

use super::certificate::{Certificate, NAME, write_private};
use super::process::{Process, Starter};
use super::programs::STUNNEL;
use crate::failure::Failure;

/// Two, and TLS between them. With a log that nobody reads they log all that they can, as published.
pub fn pair(starter: &Starter<'_>, server: &str) -> Result<(Vec<Process>, u16), Failure> {
    let program = STUNNEL.find()?;
    let certificate = Certificate::make(starter.folder)?;
    let level = match starter.is_unread {
        true => 7,
        false => 5,
    };
    let start = |name: &str, section: &dyn Fn(u16) -> String| {
        starter.listening(name, &program, |port| {
            let path = starter.path(&format!("{name}.conf"));
            let text = format!(
                "foreground = yes\npid =\ndebug = {level}\n{}",
                section(port)
            );
            write_private(&path, &text)?;
            Ok(vec![path.into()])
        })
    };
    let (far, at) = start("far-stunnel", &|port| {
        format!(
            "[far]\naccept = 127.0.0.1:{port}\nconnect = {server}\ncert = {}\nkey = {}\n",
            certificate.chain.display(),
            certificate.key.display()
        )
    })?;
    let (near, port) = start("near-stunnel", &|port| {
        format!(
            "[near]\nclient = yes\naccept = 127.0.0.1:{port}\nconnect = 127.0.0.1:{at}\nverifyChain = yes\n\
             CAfile = {}\ncheckHost = {NAME}\nsni = {NAME}\n",
            certificate.authority.display()
        )
    })?;
    Ok((vec![near, far], port))
}
