//! nginx, a pair with TLS in between, by its module for streams.

use super::certificate::{Certificate, NAME, write_private};
use super::process::{Process, Starter};
use super::programs::NGINX;
use crate::failure::Failure;
use std::path::Path;

/// Where Debian has the module; elsewhere it is part of the program.
const MODULE: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";
/// Connections of a worker, beside those of the members.
const CONNECTIONS_MIN: u64 = 512;

/// Two, and TLS between them.
pub fn pair(
    starter: &Starter<'_>,
    server: &str,
    clients: u64,
) -> Result<(Vec<Process>, u16), Failure> {
    let program = NGINX.find()?;
    let certificate = Certificate::make(starter.folder)?;
    let module = match Path::new(MODULE).exists() {
        true => format!("load_module {MODULE};\n"),
        false => String::new(),
    };
    // A connection of a client is two of a worker's.
    let connections = CONNECTIONS_MIN + 8 * clients;
    let start = |name: &str, server: &dyn Fn(u16) -> String| {
        starter.listening(name, &program, |port| {
            let path = starter.path(&format!("{name}.conf"));
            let text = format!(
                "{module}daemon off;\nworker_processes auto;\npid {};\nerror_log stderr notice;\n\
                 events {{\n    worker_connections {connections};\n}}\n\
                 stream {{\n    proxy_connect_timeout 5s;\n    proxy_timeout 1h;\n    server {{\n{}    }}\n}}\n",
                starter.path(&format!("{name}.pid")).display(),
                server(port)
            );
            write_private(&path, &text)?;
            Ok(vec![
                "-p".into(),
                starter.folder.into(),
                "-e".into(),
                "stderr".into(),
                "-c".into(),
                path.into(),
            ])
        })
    };
    let (far, at) = start("far-nginx", &|port| {
        format!(
            "        listen 127.0.0.1:{port} ssl;\n        ssl_certificate {};\n        ssl_certificate_key {};\n        \
             proxy_pass {server};\n",
            certificate.chain.display(),
            certificate.key.display()
        )
    })?;
    let (near, port) = start("near-nginx", &|port| {
        format!(
            "        listen 127.0.0.1:{port};\n        proxy_pass 127.0.0.1:{at};\n        proxy_ssl on;\n        \
             proxy_ssl_verify on;\n        proxy_ssl_trusted_certificate {};\n        proxy_ssl_name {NAME};\n        \
             proxy_ssl_server_name on;\n",
            certificate.authority.display()
        )
    })?;
    Ok((vec![near, far], port))
}
