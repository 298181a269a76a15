//! One string that is enough: whom to reach, whom to trust, and by which right.

use access::{TEXT_PREFIX, Token};

/// Host and port that clients dial, and the name that they mean there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The name of the instance's host.
    pub host: String,
    /// Host and port to dial, if they are not those of the name.
    pub dialled: Option<String>,
    /// The port of the name.
    pub port: u16,
    /// SHA-256 of certificates that the server may show.
    pub certificates: Vec<String>,
}

/// `thalweg://TOKEN@HOST:PORT/PROJECT/NAME?…`, as docs/reference/gateway.md has it. Whoever has it has the token.
pub fn thalweg(token: &Token, way: &Way, path: &str) -> String {
    let text = token.to_text();
    let token = text
        .strip_prefix(TEXT_PREFIX)
        .expect("the text of a token begins so");
    let (authority, name) = match &way.dialled {
        Some(dialled) => (dialled.clone(), Some(format!("name={}", way.host))),
        None => (format!("{}:{}", way.host, way.port), None),
    };
    let hashes =
        (!way.certificates.is_empty()).then(|| format!("sha256={}", way.certificates.join(",")));
    let options: Vec<String> = name.into_iter().chain(hashes).collect();
    let mark = if options.is_empty() { "" } else { "?" };
    format!(
        "thalweg://{token}@{authority}/{path}{mark}{}",
        options.join("&")
    )
}

/// `amqps://USER:PASSWORD@HOST:PORT`, for clients of AMQP. It is the same port: TLS names the instance. Where another
/// address is dialled the name stands beside the URL: many clients refuse one with options that they do not know.
pub fn amqps(user: &str, token: &Token, way: &Way) -> String {
    // The only character of a token that means something in a URL.
    let password = token.to_text().replace(':', "%3A");
    let default = || format!("{}:{}", way.host, way.port);
    let authority = way.dialled.clone().unwrap_or_else(default);
    format!("amqps://{user}:{password}@{authority}")
}
