//! Which server, how to reach it, and when it is lost for good.

use super::address::{is_alike, is_socket, is_tls, trusted_as};
use super::credential::Credential;
use super::elsewhere::Hint;
use super::io::{Output, StripeDial};
use super::retry;
use super::stripes::{self, Stripes};
use super::wire_session::{Context, Timer, Wire, WireSession, error_of};
use crate::error::ClientError;
use crate::faults::{Fault, planted};
use crate::group_file::{GroupFile, OtherServer, is_local};
use crate::mailbox::Counters;
use crate::options::{DriverOptions, Endpoint};
use crate::presented::{TOKEN_PREFIX, is_jwt, is_overheard};
use crate::url::has_stripes;
use bytes::Bytes;
use net::{Fingerprint, Link, Message, Received};
use std::collections::VecDeque;
use std::time::Duration;
use wire::codec::{Appended, Codec};
use wire::frame::FrameKind;
use wire::message::{
    ACCESS_TOKEN, Authenticated, FEATURE_STRIPES, FEATURES, Hello, ISSUED, ISSUED_TIMEOUT,
    PROTOCOL_VERSION, Role, STRIPE, STRIPES_MAX, Welcome,
};
use wire::{DirectoryId, ErrorCode, ErrorReply, SessionId};

/// How long one address may take to answer before the next one is tried.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer to what others have issued may take: the server has it looked at. Who came again meanwhile
/// would only have it looked at twice.
const LOOKED_AT: Duration = ISSUED_TIMEOUT.saturating_add(Duration::from_secs(4));
/// For so long a server that was just started may not have written its group
/// file yet, so that a token from the file before is refused.
const TOKEN_GRACE: Duration = Duration::from_secs(2);

/// How far the present attempt has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    /// Waiting for the next round, until then.
    Waiting(Duration),
    /// The credential is being read, or the group file.
    Reading,
    /// The transport connects.
    Connecting { address: String, deadline: Duration },
    /// MUNGE makes a credential for the server that has answered.
    Vouching { address: String, deadline: Duration },
    /// Hello was sent.
    Greeting { address: String, deadline: Duration },
    /// Welcomed.
    Up { address: String },
}

/// What a client's connections to all its servers have in common.
#[derive(Clone)]
struct Settings {
    client_name: String,
    namespace: String,
    connect_timeout: Duration,
    reconnect_timeout: Option<Duration>,
    session: SessionId,
    /// How many connections a session is to have at most, and whether all are opened at once.
    stripes_wanted: (u8, bool),
}

pub(super) struct Connection {
    endpoint: Endpoint,
    settings: Settings,
    phase: Phase,
    attempt: u64,
    /// Addresses of this round that were not tried yet.
    candidates: VecDeque<String>,
    token: Bytes,
    /// Those that the group file says the server may show.
    certificates: Vec<Fingerprint>,
    /// The addresses of other hosts at which the group file has its token presented.
    offered: Vec<String>,
    /// The other servers of the cluster, as the group file says.
    others: Vec<OtherServer>,
    credential: Option<Credential>,
    /// The server that is expected: as the endpoint says, or as found first.
    directory: Option<DirectoryId>,
    /// How often on end no address of the server's could be reached.
    failures: u32,
    /// Since when there is no connection.
    down_since: Duration,
    /// Since when only foreign servers answer.
    foreign_since: Option<Duration>,
    /// Since when the group file's token is refused.
    token_refused_since: Option<Duration>,
    /// Why the last attempt failed.
    failure: Option<ClientError>,
    /// Where the present link was opened, and with which certificate.
    dialled: (String, Option<Bytes>),
    /// The further connections of the present session.
    stripes: Option<Stripes>,
    /// The failure is one that time does not heal.
    is_final: bool,
    was_up: bool,
    chance: u64,
}

impl Connection {
    /// Where the present link was opened, or is being opened.
    pub fn dialled(&self) -> &str {
        &self.dialled.0
    }

    pub fn new(endpoint: Endpoint, options: &DriverOptions, session: SessionId) -> Self {
        let settings = Settings {
            client_name: options.client_name.clone(),
            namespace: options.namespace.clone(),
            connect_timeout: options.connect_within(),
            reconnect_timeout: options.reconnect_timeout,
            session,
            stripes_wanted: (options.stripes, options.stripes_at_once),
        };
        let has_token =
            matches!(&endpoint, Endpoint::Address { token: Some(token), .. } if !token.is_empty());
        let credential = options.credential.clone().filter(|_| !has_token);
        let credential = credential.map(Credential::new);
        Self::unconnected(endpoint, settings, credential, session.0 as u64 | 1)
    }

    /// One that has tried nothing yet.
    fn unconnected(
        endpoint: Endpoint,
        settings: Settings,
        credential: Option<Credential>,
        chance: u64,
    ) -> Self {
        let (token, directory) = match &endpoint {
            Endpoint::GroupFile(_) => (Bytes::new(), None),
            Endpoint::Address {
                token, directory, ..
            } => (token.clone().unwrap_or_default(), *directory),
        };
        Self {
            endpoint,
            settings,
            phase: Phase::Waiting(Duration::ZERO),
            attempt: 0,
            candidates: VecDeque::new(),
            token,
            certificates: Vec::new(),
            offered: Vec::new(),
            others: Vec::new(),
            credential,
            directory,
            failures: 0,
            down_since: Duration::ZERO,
            foreign_since: None,
            token_refused_since: None,
            failure: None,
            dialled: (String::new(), None),
            stripes: None,
            is_final: false,
            was_up: false,
            chance,
        }
    }

    /// The data directory of its server, once that is known.
    pub fn directory(&self) -> Option<DirectoryId> {
        self.directory
    }

    /// The server is said to be at this address: where the next round looks for it. An address of another transport is
    /// not taken over: what is presented at a `tls://` one would be overheard at a `tcp://` one.
    pub fn is_at(&mut self, said: String) {
        if let Endpoint::Address { address, .. } = &mut self.endpoint
            && is_alike(&said, address)
        {
            *address = trusted_as(said, address);
        }
    }

    /// Whether what is presented to this server may be presented to that one: the way there is as this one. Or this one is a
    /// socket of this host, and the group file has what it says presented by that transport elsewhere.
    pub fn leads_to(&self, hint: &Hint) -> bool {
        let (dialled, _) = &self.dialled;
        let mut offered = self.offered.iter();
        is_alike(&hint.address, dialled)
            || is_socket(dialled) && offered.any(|address| is_alike(&hint.address, address))
            || planted(Fault::AnyHint)
    }

    /// A connection to another server, of which this one says where it is: with what is presented to this one. The
    /// certificates that a group file names are in the address that was dialled.
    pub fn branch(&self, hint: &Hint) -> Self {
        let (dialled, _) = &self.dialled;
        let address = trusted_as(hint.address.clone(), dialled);
        let endpoint = Endpoint::Address {
            address: match address.contains('?') {
                true => address,
                false => GroupFile::dialled(&address, &self.certificates),
            },
            token: Some(self.token.clone()).filter(|token| !token.is_empty()),
            directory: Some(hint.directory),
        };
        let credential = self.credential.as_ref().map(Credential::anew);
        let chance = self.chance.rotate_left(7) | 1;
        Self::unconnected(endpoint, self.settings.clone(), credential, chance)
    }

    /// The other servers of the cluster, as far as a group file has said.
    pub fn others(&self) -> Vec<Hint> {
        // What is shown or presented in TLS alone.
        let credential = self.credential.as_ref();
        let is_for_tls = credential.is_some_and(|it| it.is_certificate() || it.is_munged)
            || self.presents_issued();
        let others = self.others.iter().filter_map(|other| {
            let mut endpoints = other.endpoints.iter();
            let address = endpoints.find(|address| !is_for_tls || is_tls(address))?;
            Some(Hint {
                address: address.clone(),
                directory: other.directory,
            })
        });
        others.collect()
    }

    /// Whether no address of its server could be reached since the last connection, or from the beginning on.
    pub fn has_failed(&self) -> bool {
        self.failures > 0 && !matches!(self.phase, Phase::Up { .. })
    }

    /// Begins the first round; `now` is when the connect timeout counts from.
    pub fn start(&mut self, context: &mut Context, outputs: &mut VecDeque<Output>) {
        self.down_since = context.now;
        context.arm(
            context.now.saturating_add(self.settings.connect_timeout),
            Timer::Connection,
        );
        self.begin_round(context, outputs);
    }

    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Whether events of this attempt's link are of any interest.
    pub fn is_present(&self, attempt: u64) -> bool {
        attempt == self.attempt && !matches!(self.phase, Phase::Waiting(_) | Phase::Reading)
    }

    fn begin_round(&mut self, context: &mut Context, outputs: &mut VecDeque<Output>) {
        match &self.credential {
            Some(credential) if !credential.is_munged => {
                self.phase = Phase::Reading;
                outputs.push_back(credential.fetched());
            }
            // What MUNGE makes is made for a server that is known.
            _ => self.find_addresses(context, outputs),
        }
    }

    /// The file of the credential was read, or MUNGE has made one, or not: for a connection, or for one that stands.
    pub fn credential_read(
        &mut self,
        wire: &mut Wire<'_>,
        result: Result<Bytes, String>,
        outputs: &mut VecDeque<Output>,
    ) {
        let Some(credential) = &mut self.credential else {
            return;
        };
        match &self.phase {
            Phase::Up { address } => credential.renew(wire, result, address),
            Phase::Vouching { address, deadline } => {
                let (address, deadline) = (address.clone(), *deadline);
                match result {
                    Ok(text) => {
                        credential.begin_with(text);
                        self.hello(wire, address, deadline);
                    }
                    Err(reason) => {
                        self.failure = Some(ClientError::Invalid(format!(
                            "{}: there is no credential: {reason}",
                            credential.path.display()
                        )));
                        self.is_final = !self.was_up;
                        self.abandon(outputs, "there is no credential");
                        self.next_candidate(wire.context, outputs);
                    }
                }
            }
            Phase::Reading => match result {
                Ok(text) => {
                    credential.begin_with(text);
                    self.find_addresses(wire.context, outputs);
                }
                Err(reason) => {
                    self.failure = Some(ClientError::Invalid(format!(
                        "{}: the credential cannot be read: {reason}",
                        credential.path.display()
                    )));
                    self.is_final = !self.was_up;
                    self.next_candidate(wire.context, outputs);
                }
            },
            _ => {}
        }
    }

    /// The server says how long the credential is good. True if the one that was presented last
    /// does not do for this connection: another one is to be made.
    pub fn authenticated(
        &mut self,
        context: &mut Context,
        said: &Authenticated,
        outputs: &mut VecDeque<Output>,
    ) -> bool {
        let Some(credential) = &mut self.credential else {
            return false;
        };
        let renewed = credential.take_issued(said);
        outputs.extend(renewed.map(Output::RenewCredential));
        let ends = credential.good_for(context, said, self.chance);
        outputs.extend(ends.map(Output::CredentialEnds));
        !said.refused.is_empty() && !credential.is_refusal_to_renew(said)
    }

    fn find_addresses(&mut self, context: &mut Context, outputs: &mut VecDeque<Output>) {
        match &self.endpoint {
            Endpoint::GroupFile(path) => {
                self.phase = Phase::Reading;
                outputs.push_back(Output::ReadGroupFile(path.clone()));
            }
            Endpoint::Address { address, .. } => {
                self.candidates = VecDeque::from([address.clone()]);
                self.keep_secret();
                self.next_candidate(context, outputs);
            }
        }
    }

    /// The group file was read, or not.
    pub fn group_file(
        &mut self,
        context: &mut Context,
        result: Result<(GroupFile, Vec<String>), String>,
        outputs: &mut VecDeque<Output>,
    ) {
        if self.phase != Phase::Reading {
            return;
        }
        match result {
            Ok((file, endpoints)) => {
                let file_endpoints = endpoints.clone();
                // Another connection of the client may be to one of the others: this one stays with its server.
                let is_kept = self.was_up || !self.others.is_empty();
                let own = self.directory.filter(|_| is_kept);
                let Some(endpoints) = file.endpoints_of(own, endpoints) else {
                    let address = file.endpoints.first().cloned().unwrap_or_default();
                    self.foreign(context, address, Some(file.directory), "by its group file");
                    self.next_candidate(context, outputs);
                    return;
                };
                self.directory = own.or(Some(file.directory));
                self.token = file.token;
                self.certificates = file.certificates;
                // What is presented to a loopback address goes over no network.
                self.offered = file.endpoints;
                self.offered.retain(|address| !is_local(address));
                self.others = file.others;
                if own.is_some_and(|own| own != file.directory) {
                    let first = OtherServer {
                        directory: file.directory,
                        host: file.host,
                        endpoints: file_endpoints,
                    };
                    self.others.push(first);
                }
                self.candidates = endpoints.into();
                // A certificate is shown in TLS, and by nothing else.
                let credential = self.credential.as_ref();
                let has_tls = self.candidates.iter().any(|address| is_tls(address));
                if has_tls && credential.is_some_and(Credential::is_certificate) {
                    self.candidates.retain(|address| is_tls(address));
                }
                self.keep_secret();
            }
            Err(reason) => {
                self.failure = Some(ClientError::Unreachable {
                    address: self.endpoint.to_string(),
                    reason,
                });
            }
        }
        self.next_candidate(context, outputs);
    }

    /// Takes out addresses at which what others have issued is not presented, for whoever listens on the way would have
    /// it. Without another one there is nothing to be tried.
    fn keep_secret(&mut self) {
        let is_munged = self.credential.as_ref().is_some_and(|one| one.is_munged);
        let (is_good, why): (fn(&str) -> bool, _) = match (is_munged, self.presents_issued()) {
            (true, _) => (
                is_tls,
                "MUNGE says who one is at addresses of tls:// alone; on the server's host a connection \
                 without a credential is known by its user",
            ),
            (false, true) => (
                |address| !is_overheard(address),
                "a JWT, or a token that others have made, is not presented without encryption: use an \
                 address of tls://",
            ),
            (false, false) => return,
        };
        let first = self.candidates.front().cloned();
        self.candidates.retain(|address| is_good(address));
        if let Some(address) = first.filter(|_| self.candidates.is_empty()) {
            self.failure = Some(ClientError::Invalid(format!("{address}: {why}")));
            self.is_final = !self.was_up;
        }
    }

    fn presents_issued(&self) -> bool {
        match &self.credential {
            Some(credential) => credential.is_issued(),
            None => is_jwt(&self.token),
        }
    }

    fn next_candidate(&mut self, context: &mut Context, outputs: &mut VecDeque<Output>) {
        let Some(address) = self.candidates.pop_front() else {
            // A little chance, so that many clients do not come back at once.
            self.chance ^= self.chance << 13;
            self.chance ^= self.chance >> 7;
            self.chance ^= self.chance << 17;
            let wait = retry::CONNECTION.after_failures(self.failures);
            let wait = wait.mul_f64(0.75 + (self.chance % 512) as f64 / 1024.0);
            self.failures = self.failures.saturating_add(1);
            self.phase = Phase::Waiting(context.now + wait);
            context.arm(context.now + wait, Timer::Connection);
            return;
        };
        self.attempt += 1;
        let deadline = context.now + ATTEMPT_TIMEOUT.min(self.settings.connect_timeout);
        context.arm(deadline, Timer::Connection);
        self.phase = Phase::Connecting {
            address: address.clone(),
            deadline,
        };
        let address = GroupFile::dialled(&address, &self.certificates);
        let certificate = self.credential.as_ref().and_then(Credential::shown);
        self.dialled = (address.clone(), certificate.clone());
        outputs.push_back(Output::Connect {
            attempt: self.attempt,
            address,
            certificate,
        });
    }

    /// The transport has connected: say hello, with what MUNGE makes for that server if it is to.
    pub fn link_up(
        &mut self,
        context: &mut Context,
        attempt: u64,
        link: &mut dyn Link,
        outputs: &mut VecDeque<Output>,
    ) {
        let Phase::Connecting { address, deadline } = &self.phase else {
            return;
        };
        if attempt != self.attempt {
            return;
        }
        let (address, deadline) = (address.clone(), *deadline);
        match self.credential.as_mut().filter(|one| one.is_munged) {
            None => self.hello(&mut Wire::new(context, Some(link)), address, deadline),
            Some(credential) => {
                // TLS has none without a certificate, and no other address is tried.
                let shown = link.peer().certificates.first();
                let shown = shown.map(|der| Fingerprint::of_der(der).0);
                credential.shown_by_server = shown.unwrap_or_default();
                outputs.push_back(credential.fetched());
                self.phase = Phase::Vouching { address, deadline };
            }
        }
    }

    fn hello(&mut self, wire: &mut Wire<'_>, address: String, deadline: Duration) {
        let (mechanism, proof) = match &self.credential {
            Some(credential) => credential.hello(),
            None if self.token.is_empty() => ("", Bytes::new()),
            // A server's own token is bytes that begin with no word.
            None if self.token.starts_with(TOKEN_PREFIX.as_bytes()) => {
                (ACCESS_TOKEN, self.token.clone())
            }
            None if is_jwt(&self.token) => (ISSUED, self.token.clone()),
            None => ("token", self.token.clone()),
        };
        let stripes = self.stripes_asked();
        let hello = Hello {
            version_min: PROTOCOL_VERSION,
            version_max: PROTOCOL_VERSION,
            features_required: 0,
            features_optional: match stripes {
                0 => FEATURES & !FEATURE_STRIPES,
                _ => FEATURES,
            },
            namespace: self.settings.namespace.clone(),
            mechanism: mechanism.to_owned(),
            proof,
            session: self.settings.session,
            role: Role::Control,
            directory: self.directory.unwrap_or_default(),
            trace: 0,
            client_name: self.settings.client_name.clone(),
            stripes: Appended(stripes),
        };
        let deadline = match hello.mechanism == ISSUED {
            true => wire.now() + LOOKED_AT,
            false => deadline,
        };
        wire.context.arm(deadline, Timer::Connection);
        self.phase = Phase::Greeting { address, deadline };
        wire.send(Message::control(FrameKind::Hello, 0, hello.to_bytes()));
    }

    /// A message before the welcome. True if it is the welcome.
    pub fn greeting(
        &mut self,
        context: &mut Context,
        message: Received,
        outputs: &mut VecDeque<Output>,
    ) -> bool {
        let Phase::Greeting { address, .. } = &self.phase else {
            return false;
        };
        let address = address.clone();
        match message.kind {
            FrameKind::Welcome => {
                match Welcome::from_bytes("welcome", &message.head) {
                    Ok(welcome) => return self.welcome(context, address, &welcome, outputs),
                    Err(error) => self.unreachable(address, error.to_string()),
                };
            }
            FrameKind::ErrorReply => {
                let error = error_of(&message.head);
                match error.code {
                    ErrorCode::WrongServer => {
                        let found = None;
                        self.foreign(context, address, found, &error.to_string());
                    }
                    // One that was good once is replaced by whoever made it.
                    ErrorCode::CredentialExpired => {
                        self.is_final = !self.was_up;
                        self.failure = Some(ClientError::Server(error));
                    }
                    // Whether it counts could not be found out, if it may be tried again.
                    ErrorCode::NotAuthenticated if !error.retryable => {
                        self.token_refused(context, &address, error);
                    }
                    ErrorCode::Unsupported | ErrorCode::NotAuthorized => {
                        self.failure = Some(ClientError::Server(error));
                        self.is_final = true;
                    }
                    _ => self.unreachable(address, error.to_string()),
                }
            }
            other => self.unreachable(address, format!("it answers with a {other:?} frame")),
        }
        self.abandon(outputs, "the greeting failed");
        self.next_candidate(context, outputs);
        false
    }

    fn welcome(
        &mut self,
        context: &mut Context,
        address: String,
        welcome: &Welcome,
        outputs: &mut VecDeque<Output>,
    ) -> bool {
        if self
            .directory
            .is_some_and(|directory| directory != welcome.directory)
        {
            self.foreign(context, address, Some(welcome.directory), "");
            self.abandon(outputs, "another server was expected");
            self.next_candidate(context, outputs);
            return false;
        }
        self.directory = Some(welcome.directory);
        self.was_up = true;
        self.foreign_since = None;
        self.token_refused_since = None;
        self.failure = None;
        self.is_final = false;
        self.failures = 0;
        self.candidates.clear();
        let liveness = &context.liveness;
        liveness.connected(&address, welcome.features & FEATURES);
        context.liveness.heard(context.now);
        Counters::add(&context.mailbox.counters.connections);
        context.session = Some(WireSession::new(context.now, welcome));
        Wire::new(context, None).watch();
        self.phase = Phase::Up { address };
        self.begin_stripes(context, welcome, outputs);
        true
    }

    /// How many connections are asked for on the present link; 0 is this one alone.
    fn stripes_asked(&self) -> u8 {
        let (most, _) = self.settings.stripes_wanted;
        let (address, _) = &self.dialled;
        match has_stripes(address) {
            true if most >= 2 => most.min(STRIPES_MAX),
            _ => 0,
        }
    }

    /// The server lets the session have several connections: all that follows is in chunks.
    fn begin_stripes(
        &mut self,
        context: &mut Context,
        welcome: &Welcome,
        outputs: &mut VecDeque<Output>,
    ) {
        let (most, at_once) = self.settings.stripes_wanted;
        let most = most.min(welcome.stripes.0);
        self.stripes = None;
        if welcome.features & FEATURE_STRIPES == 0 || most < 2 {
            return;
        }
        outputs.push_back(Output::Stripe {
            attempt: self.attempt,
        });
        let hello = Hello {
            version_min: PROTOCOL_VERSION,
            version_max: PROTOCOL_VERSION,
            features_required: FEATURE_STRIPES,
            features_optional: 0,
            namespace: String::new(),
            mechanism: STRIPE.to_owned(),
            proof: welcome.stripe_key.0.0.clone(),
            session: self.settings.session,
            role: Role::BulkStripe,
            directory: welcome.directory,
            trace: 0,
            client_name: self.settings.client_name.clone(),
            stripes: Appended(0),
        };
        let (address, certificate) = self.dialled.clone();
        let dial = StripeDial {
            address,
            certificate,
            hello: hello.to_bytes().into(),
            instance: welcome.instance,
        };
        self.stripes = Some(Stripes::new(context.now, most, at_once, dial));
        context.liveness.stripes(1);
        let first = if at_once {
            Duration::ZERO
        } else {
            stripes::LOOK
        };
        context.arm(context.now + first, Timer::Stripes);
    }

    /// Whether one more connection would be of use.
    pub fn look_at_stripes(
        &mut self,
        context: &mut Context,
        link: &mut dyn Link,
        outputs: &mut VecDeque<Output>,
    ) {
        if let Some(stripes) = &mut self.stripes
            && matches!(self.phase, Phase::Up { .. })
        {
            let (count, output) = stripes.look(context.now, self.attempt, link);
            if let Some(count) = count {
                context.liveness.stripes(count);
            }
            outputs.extend(output);
            context.arm(context.now + stripes::LOOK, Timer::Stripes);
        }
    }

    /// A further connection has joined, or could not be opened: the session goes on with those that it has.
    pub fn stripe_opened(&mut self, context: &mut Context, result: &Result<(), String>) {
        if let Some(stripes) = &mut self.stripes {
            stripes.opened(context.now, result);
            match result {
                Ok(()) => context.arm(context.now, Timer::Stripes),
                Err(reason) => context.liveness.stripe_failed(reason),
            }
        }
    }

    fn unreachable(&mut self, address: String, reason: String) {
        self.failure = Some(ClientError::Unreachable { address, reason });
    }

    /// The server does not take the token. The one of an address stays what it
    /// is; the one of a group file may be a stale file's, which is read again, and so may
    /// a credential's be that was good before: it is being replaced.
    fn token_refused(&mut self, context: &mut Context, address: &str, error: ErrorReply) {
        let stays = match &self.credential {
            Some(_) => !self.was_up,
            None => matches!(self.endpoint, Endpoint::Address { .. }),
        };
        if stays {
            self.is_final = true;
        } else if self.token_refused_since.is_none() {
            self.token_refused_since = Some(context.now);
            context.arm(context.now + TOKEN_GRACE, Timer::Connection);
        }
        let message = format!("{} (at {address})", error.message);
        self.failure = Some(ClientError::Server(ErrorReply { message, ..error }));
    }

    /// Another server answers than the one that is expected. With a group
    /// file that may be a stale one, so it is read again.
    fn foreign(
        &mut self,
        context: &Context,
        address: String,
        found: Option<DirectoryId>,
        reason: &str,
    ) {
        self.foreign_since.get_or_insert(context.now);
        self.failure = Some(ClientError::WrongServer {
            address,
            expected: self.directory.unwrap_or_default(),
            found,
            reason: reason.to_owned(),
        });
        if !self.was_up && matches!(self.endpoint, Endpoint::Address { .. }) {
            self.is_final = true;
        }
    }

    fn abandon(&mut self, outputs: &mut VecDeque<Output>, reason: &str) {
        outputs.push_back(Output::Disconnect {
            attempt: self.attempt,
            reason: reason.to_owned(),
        });
    }

    /// The present connection is dead.
    pub fn lost(&mut self, context: &mut Context, reason: String, outputs: &mut VecDeque<Output>) {
        context
            .timers
            .retain(|(_, timer)| !matches!(timer, Timer::Heartbeat | Timer::Stripes));
        self.stripes = None;
        match self.phase.clone() {
            Phase::Up { address } => {
                context.liveness.disconnected();
                self.unreachable(address, reason);
                self.down_since = context.now;
                context.arm(
                    context.now.saturating_add(self.settings.connect_timeout),
                    Timer::Connection,
                );
                if let Some(timeout) = self.settings.reconnect_timeout {
                    context.arm(context.now.saturating_add(timeout), Timer::Connection);
                }
                self.begin_round(context, outputs);
            }
            Phase::Connecting { address, .. }
            | Phase::Vouching { address, .. }
            | Phase::Greeting { address, .. } => {
                self.unreachable(address, reason);
                self.next_candidate(context, outputs);
            }
            Phase::Waiting(_) | Phase::Reading => {}
        }
    }

    /// Time has passed. Says why the present connection is to be given up, if it is.
    pub fn timer(
        &mut self,
        context: &mut Context,
        outputs: &mut VecDeque<Output>,
    ) -> Option<String> {
        let now = context.now;
        let is_up = matches!(self.phase, Phase::Up { .. });
        let patience = self.settings.reconnect_timeout.unwrap_or(Duration::MAX);
        if self.was_up && !is_up && now >= self.down_since.saturating_add(patience) {
            let error = self.last_failure();
            context.liveness.lose(error);
        }
        match &self.phase {
            Phase::Up { .. } => {
                if let Some(credential) = &mut self.credential
                    && credential.renew_at.is_some_and(|at| at <= now)
                {
                    credential.renew_at = None;
                    outputs.push_back(credential.fetched());
                }
                None
            }
            Phase::Waiting(until) if *until <= now => {
                self.begin_round(context, outputs);
                None
            }
            Phase::Connecting { deadline, .. }
            | Phase::Vouching { deadline, .. }
            | Phase::Greeting { deadline, .. }
                if *deadline <= now =>
            {
                Some("no answer in time".to_owned())
            }
            _ => None,
        }
    }

    fn last_failure(&self) -> ClientError {
        self.failure
            .clone()
            .unwrap_or_else(|| ClientError::Unreachable {
                address: self.endpoint.to_string(),
                reason: "no answer in time".to_owned(),
            })
    }

    /// Why nothing will come of it any more, if that is so: the connect
    /// timeout has passed without a first connection, or for as long only
    /// foreign servers have answered, or the token is refused.
    pub fn hopeless(&self, context: &Context) -> Option<ClientError> {
        if matches!(self.phase, Phase::Up { .. }) {
            return None;
        }
        // What others have issued is looked at, which has a time of its own.
        if let Phase::Greeting { deadline, .. } = &self.phase
            && context.now < *deadline
            && self.presents_issued()
        {
            return None;
        }
        let passed =
            |since: Duration| context.now >= since.saturating_add(self.settings.connect_timeout);
        let is_refused = self
            .token_refused_since
            .is_some_and(|since| context.now >= since + TOKEN_GRACE);
        let hopeless = self.is_final
            || is_refused
            || (!self.was_up && passed(self.down_since))
            || self.foreign_since.is_some_and(passed);
        hopeless.then(|| self.last_failure())
    }

    /// When the last connection was lost, or the first one was begun.
    pub fn down_since(&self) -> Duration {
        self.down_since
    }

    /// For how long what is at this server waits for it, before it is looked for elsewhere.
    pub fn patience(&self) -> Duration {
        let settings = &self.settings;
        let reconnect = settings.reconnect_timeout.unwrap_or(Duration::MAX);
        settings.connect_timeout.min(reconnect)
    }

    /// Whether the server was reached once and has been away for that long, or nothing will come of it any more.
    pub fn is_away(&self, context: &Context) -> bool {
        let is_up = matches!(self.phase, Phase::Up { .. });
        let is_late = context.now >= self.down_since.saturating_add(self.patience());
        !is_up && (self.was_up && is_late || self.hopeless(context).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::mailbox::Mailbox;
    use wire::ServerInstance;

    /// A connection that was let in by a group file's server, which is known by one certificate at `tls://first:1`.
    fn by_group_file() -> (Connection, Context) {
        let mailbox = Mailbox::new(Clock::simulated());
        let liveness = mailbox.liveness.clone();
        let mut context = Context::new(mailbox, liveness);
        let endpoint = Endpoint::GroupFile("group".into());
        let mut connection = Connection::new(endpoint, &DriverOptions::default(), SessionId(7));
        connection.start(&mut context, &mut VecDeque::new());
        let file = GroupFile {
            directory: DirectoryId(0xd1),
            instance: ServerInstance(1),
            host: String::new(),
            boot_id: String::new(),
            endpoints: Vec::new(),
            token: Bytes::from_static(b"token"),
            certificates: vec![Fingerprint([0xab; 32])],
            others: Vec::new(),
        };
        let result = Ok((file, vec!["tls://first:1".to_owned()]));
        connection.group_file(&mut context, result, &mut VecDeque::new());
        (connection, context)
    }

    fn hint(address: &str) -> Hint {
        Hint {
            address: address.to_owned(),
            directory: DirectoryId(0xd2),
        }
    }

    /// The address that a connection dials first.
    fn dialled(mut connection: Connection, context: &mut Context) -> String {
        let mut outputs = VecDeque::new();
        connection.start(context, &mut outputs);
        let mut outputs = outputs.into_iter();
        let address = outputs.find_map(|output| match output {
            Output::Connect { address, .. } => Some(address),
            _ => None,
        });
        address.expect("its address is known")
    }

    #[test]
    fn another_server_is_known_by_the_same_certificates_each_named_once() {
        let (first, mut context) = by_group_file();
        let certificate = Fingerprint([0xab; 32]);
        let another = first.branch(&hint("tls://second:1"));
        assert_eq!(
            dialled(another, &mut context),
            format!("tls://second:1?sha256={certificate}")
        );
        let of_its_own = first.branch(&hint("tls://second:1?ca=a.pem"));
        assert_eq!(dialled(of_its_own, &mut context), "tls://second:1?ca=a.pem");
    }

    /// The file of a server that was never reached is replaced by one that names another server first.
    fn after_another_file(others: &[u128]) -> Option<DirectoryId> {
        let mailbox = Mailbox::new(Clock::simulated());
        let liveness = mailbox.liveness.clone();
        let mut context = Context::new(mailbox, liveness);
        let endpoint = Endpoint::GroupFile("group".into());
        let mut connection = Connection::new(endpoint, &DriverOptions::default(), SessionId(7));
        let mut outputs = VecDeque::new();
        connection.start(&mut context, &mut outputs);
        for (directory, others) in [(0xd1, others), (0xd2, &[0xd1])] {
            let others = others.iter().map(|other| OtherServer {
                directory: DirectoryId(*other),
                host: String::new(),
                endpoints: vec!["tcp://other:1".to_owned()],
            });
            let file = GroupFile {
                directory: DirectoryId(directory),
                instance: ServerInstance(1),
                host: String::new(),
                boot_id: String::new(),
                endpoints: Vec::new(),
                token: Bytes::from_static(b"token"),
                certificates: Vec::new(),
                others: others.collect(),
            };
            connection.phase = Phase::Reading;
            connection.group_file(&mut context, Ok((file, Vec::new())), &mut outputs);
        }
        connection.directory()
    }

    #[test]
    fn a_server_that_was_never_there_is_given_up_for_another_one_unless_that_is_of_its_cluster() {
        assert_eq!(after_another_file(&[]), Some(DirectoryId(0xd2)));
        assert_eq!(after_another_file(&[0xd2]), Some(DirectoryId(0xd1)));
    }

    #[test]
    fn no_hint_changes_the_transport_by_which_a_token_goes() {
        let (first, mut context) = by_group_file();
        assert!(first.leads_to(&hint("tls://second:1")));
        for address in ["tcp://second:1", "unix:///second", "second:1", ""] {
            assert!(!first.leads_to(&hint(address)), "{address}");
            let mut known = first.branch(&hint("tls://second:1?ca=a.pem"));
            known.is_at(address.to_owned());
            let stays = dialled(known, &mut context);
            assert_eq!(stays, "tls://second:1?ca=a.pem", "{address}");
        }
        let mut known = first.branch(&hint("tls://second:1?ca=a.pem"));
        known.is_at("tls://third:1".to_owned());
        assert_eq!(dialled(known, &mut context), "tls://third:1?ca=a.pem");
    }
}
