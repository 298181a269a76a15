//! Who a client is, and which virtual host it has.

use super::calls::{ClientId, Out, Whose};
use super::client::{Blocked, Client};
use super::host::{Host, Stage};
use super::publish::Publisher;
use super::state::AmqpListener;
use amqp::{Credentials, ReplyCode, ShortString, Table, Value};
use broker::node::LinkId;
use broker::request::ClientInput;
use bytes::Bytes;
use std::sync::Arc;
use wire::codec::Appended;
use wire::message::{
    ACCESS_TOKEN, Authenticate, Authenticated, CERTIFICATE, Hello, ISSUED, PROTOCOL_VERSION, Role,
};
use wire::{DirectoryId, SessionId};

/// What the text of a token of a server begins with; in a URL it may be left out.
const TOKEN_PREFIX: &str = "thalweg-token-1:";

/// The user whom RabbitMQ lets in from its own host, and the password of that user.
const GUEST: &[u8] = b"guest";

/// By what a password proves who somebody is, and the proof.
fn proof_of(password: &[u8]) -> (&'static str, Bytes) {
    let text = std::str::from_utf8(password).unwrap_or_default();
    if let Some(secret) = from_hex(text) {
        return ("token", secret.into());
    }
    if text.starts_with(TOKEN_PREFIX) {
        return (ACCESS_TOKEN, Bytes::copy_from_slice(password));
    }
    let whole = format!("{TOKEN_PREFIX}{text}");
    match access::Token::from_text(&whole) {
        Ok(_) => (ACCESS_TOKEN, whole.into()),
        Err(_) => (ISSUED, Bytes::copy_from_slice(password)),
    }
}

/// The 32 bytes of a group file's token.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let is_hex = text.len() == 64 && text.bytes().all(|one| one.is_ascii_hexdigit());
    let pairs = (0..32).map(|at| u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok());
    is_hex.then(|| pairs.collect::<Option<Vec<u8>>>())?
}

impl AmqpListener {
    /// A client presents something: the node looks at it.
    pub(super) fn log_in(&mut self, id: ClientId, credentials: Credentials, said: &Table) {
        let guest = self.guest;
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let (mechanism, proof) = match credentials {
            Credentials::Password { user, password, .. } => {
                client.user = String::from_utf8_lossy(&user).into_owned();
                let is_guest = *user == *GUEST && *password == *GUEST;
                match guest.filter(|_| is_guest) {
                    Some(token) => ("token", token.to_vec().into()),
                    None => proof_of(&password),
                }
            }
            Credentials::External { .. } => (CERTIFICATE, Bytes::new()),
        };
        let text = |name: &str| match said.get(name) {
            Some(Value::String(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            _ => String::new(),
        };
        let name = match text("connection_name") {
            name if name.is_empty() => format!("{} {}", text("product"), client.user),
            name => name,
        };
        let hello = Hello {
            version_min: PROTOCOL_VERSION,
            version_max: PROTOCOL_VERSION,
            features_required: 0,
            features_optional: 0,
            namespace: String::new(),
            mechanism: mechanism.to_owned(),
            proof,
            session: SessionId(0),
            role: Role::Control,
            directory: DirectoryId(0),
            trace: 0,
            client_name: topic::fit_client_name(name.trim()),
            stripes: Appended(0),
        };
        client.hello = Some(hello.clone());
        client.blocked = Some(Blocked::Login);
        let session = self.calls.introduce(id, client.peer.clone(), hello);
        client.session = Some(session);
    }

    /// The node has let a client in.
    pub(super) fn welcome(&mut self, id: ClientId, link: LinkId, credit: u64, namespace: &str) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        client.namespace = namespace.into();
        client.publisher = Some(Publisher::new(link, credit));
        if !std::mem::replace(&mut client.is_known, true) {
            client.amqp.accept_login();
            self.calls.out.push_back(Out::Known { client: id });
        }
        self.unblock(id);
    }

    /// The node has ended a session.
    pub fn ended(&mut self, now: broker::node::Now, link: LinkId, reason: &str) {
        self.now = now;
        let whose = self.calls.whose(link).cloned();
        let unanswered = self.calls.close(link);
        match whose {
            Some(Whose::Client(id)) => {
                if let Some(client) = self.clients.get(&id) {
                    let namespace = client.namespace.clone();
                    self.abandoned(&namespace, unanswered, Vec::new());
                }
                self.session_ended(id, link, reason);
            }
            Some(Whose::Host(namespace)) => self.host_failed(&namespace, reason),
            None => {}
        }
        self.settle_down();
    }

    fn session_ended(&mut self, id: ClientId, link: LinkId, reason: &str) {
        let now = self.now.monotonic;
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        // One that another took the place of is nothing to the client.
        if client.session != Some(link) {
            return;
        }
        client.session = None;
        self.dirty.clients.insert(id);
        match client.blocked.take() {
            Some(Blocked::Login) => client.amqp.refuse_login(now, reason),
            Some(Blocked::Open(name)) => {
                let user = &client.user;
                let text = format!("access to vhost '{name}' refused for user '{user}': {reason}");
                self.fail_client(id, ReplyCode::NotAllowed, text);
            }
            Some(Blocked::Leaving) => client.amqp.accept_close(self.now.monotonic),
            _ => self.fail_client(id, ReplyCode::ConnectionForced, reason),
        }
    }

    /// A client asks for a virtual host: a namespace, of which `/` is its own.
    pub(super) fn open_host(&mut self, id: ClientId, name: ShortString) {
        let now = self.now.monotonic;
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let wanted = name.strip_prefix('/').unwrap_or(&name);
        if !wanted.is_empty() && *wanted != *client.namespace {
            // Who may have names of another namespace says so with its Hello.
            let Some(hello) = client.hello.take() else {
                let text = format!("vhost '{name}' is none of the client's");
                return self.fail_client(id, ReplyCode::NotAllowed, text);
            };
            let hello = Hello {
                namespace: wanted.to_owned(),
                ..hello
            };
            client.blocked = Some(Blocked::Open(name));
            if let Some(before) = client.session.take() {
                self.calls.close(before);
            }
            let session = self.calls.introduce(id, client.peer.clone(), hello);
            client.session = Some(session);
            return;
        }
        let namespace = client.namespace.clone();
        let calls = &mut self.calls;
        let host = self
            .hosts
            .entry(namespace.clone())
            .or_insert_with(|| Self::begin_host(&namespace, calls));
        host.clients.insert(id);
        if !host.is_ready() {
            client.blocked = Some(Blocked::Open(name));
            host.openers.push(id);
            return;
        }
        client.hello = None;
        client.connection = Some(host.vhost.connect());
        client.amqp.accept_open(now);
    }

    /// A client leaves its virtual host: its channels are closed, and what is its alone is removed.
    pub(super) fn leave_host(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let keys: Vec<_> = client.channels.keys().copied().collect();
        let namespace = client.namespace.clone();
        let connection = client.connection;
        for key in keys {
            self.close_channel(id, key);
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.connection = None;
        }
        let Some(host) = self.hosts.get_mut(&namespace) else {
            return;
        };
        host.clients.remove(&id);
        host.openers.retain(|other| *other != id);
        if let Some(connection) = connection {
            let effects = host.vhost.disconnect(connection);
            self.carry_out(&namespace, effects);
        }
        self.drop_unused(&namespace);
    }

    /// A virtual host without anything in it is made anew when somebody comes.
    pub(super) fn drop_unused(&mut self, namespace: &Arc<str>) {
        let is_unused = |host: &Host| {
            matches!(host.stage, Stage::Ready)
                && host.clients.is_empty()
                && host.queues.is_empty()
                && host.acts.is_empty()
                && host.letters.is_empty()
                && host.records.is_none()
        };
        if self.hosts.get(namespace).is_some_and(is_unused)
            && let Some(host) = self.hosts.remove(namespace)
        {
            self.calls.close(host.session);
        }
    }

    /// A client presents another credential.
    pub(super) fn update_secret(&mut self, id: ClientId, secret: &[u8]) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let Some(session) = client.session else {
            return;
        };
        let (mechanism, proof) = proof_of(secret);
        client.blocked = Some(Blocked::Secret);
        let asked = Authenticate {
            mechanism: mechanism.to_owned(),
            proof,
        };
        self.calls.say(session, ClientInput::Authenticate(asked));
    }

    /// The node has looked at it.
    pub(super) fn secret_answered(&mut self, id: ClientId, said: &Authenticated) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let is_asked = matches!(client.blocked, Some(Blocked::Secret));
        match (is_asked, said.refused.is_empty()) {
            (true, true) => {
                client.amqp.accept_secret();
                self.unblock(id);
            }
            (true, false) => {
                self.fail_client(id, ReplyCode::NotAllowed, said.refused.clone());
            }
            (false, _) => {}
        }
    }

    /// Who may be spoken to.
    pub(super) fn client(&mut self, id: ClientId) -> Option<&mut Client> {
        self.clients.get_mut(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_what_it_looks_like() {
        let (mechanism, proof) = proof_of("ab".repeat(32).as_bytes());
        assert_eq!((mechanism, &proof[..]), ("token", &[0xab; 32][..]));
        for text in [
            "guest",
            "",
            "eyJh.eyJi.c",
            "zz",
            &"g".repeat(64),
            &"\u{e4}".repeat(32),
        ] {
            assert_eq!(proof_of(text.as_bytes()).0, ISSUED, "{text}");
        }
        let (mechanism, proof) = proof_of(b"thalweg-token-1:none");
        assert_eq!(
            (mechanism, &proof[..]),
            (ACCESS_TOKEN, &b"thalweg-token-1:none"[..])
        );
        assert_eq!(proof_of(b"\xff\xfe").0, ISSUED);
    }
}
