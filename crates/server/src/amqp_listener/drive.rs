//! What happens to clients and to time, and what is looked at because of it.

use super::calls::{Calls, ClientId, Out};
use super::client::{Blocked, Client, Open, QUEUED_BYTES_MAX};
use super::faults::{Fault, planted};
use super::host;
use super::publish::Publisher;
use super::state::{AmqpListener, At, Dirty, Options, Timer};
use amqp::{ChannelKey, Event, Failure, Mechanism, Method, ReplyCode, Settings};
use broker::node::Now;
use bytes::Buf;
use net::Peer;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use vhost::{Channel, ChannelLimits};

/// Bytes of messages of all clients that have not come whole.
const ASSEMBLY_BYTES_MAX: u64 = if cfg!(test) { 8 << 20 } else { 1 << 30 };

impl AmqpListener {
    /// A listener without clients.
    pub fn new(options: Options) -> Self {
        // Beside the body a batch has properties, twice, and headers of its own.
        let message_bytes_max = (options.payload_bytes_max - (1 << 20)).min(128 << 20);
        let plain = Settings {
            message_bytes_max,
            assembly_bytes_max: 2 * message_bytes_max,
            ..Settings::default()
        };
        let mut encrypted = plain.clone();
        encrypted.mechanisms.push(Mechanism::External);
        let now = Now {
            monotonic: Duration::ZERO,
            unix_ns: 0,
        };
        Self {
            settings: [Arc::new(plain), Arc::new(encrypted)],
            pool: options.pool,
            random: options.random,
            guest: options.guest,
            now,
            calls: Calls::default(),
            clients: BTreeMap::new(),
            hosts: BTreeMap::new(),
            dirty: Dirty::default(),
            timers: BTreeSet::new(),
            regions: BTreeMap::new(),
            regions_begun: 0,
            assembly_bytes: 0,
            blocked: BTreeSet::new(),
            is_draining: false,
            reading: BTreeMap::new(),
        }
    }

    /// Somebody has connected.
    pub fn connected(&mut self, now: Now, id: net::LinkId, peer: Peer, is_encrypted: bool) {
        self.now = now;
        let settings = self.settings[usize::from(is_encrypted)].clone();
        let client = Client::new(peer, settings, now.monotonic);
        self.clients.insert(id, client);
        self.dirty.clients.insert(id);
        self.settle_down();
    }

    /// A client has sent bytes. What is not taken of them at once is kept.
    pub fn received(&mut self, now: Now, id: net::LinkId, bytes: &[u8]) {
        self.now = now;
        self.advance(id, bytes);
        self.settle_down();
    }

    /// So many bytes wait on a client's link.
    pub fn queued(&mut self, now: Now, id: net::LinkId, bytes: u64) {
        self.now = now;
        if let Some(client) = self.clients.get_mut(&id) {
            let was_congested = client.is_congested();
            client.queued = bytes;
            if was_congested && !client.is_congested() {
                self.dirty.clients.insert(id);
                self.serve_consumers_of(id);
            }
        }
        self.settle_down();
    }

    /// Some of what waits on a client's link has gone.
    pub fn moved(&mut self, now: Now, id: net::LinkId) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.amqp.held_up(now.monotonic);
        }
    }

    /// A client has gone.
    pub fn disconnected(&mut self, now: Now, id: net::LinkId) {
        self.now = now;
        self.forget(id);
        self.settle_down();
    }

    /// When [`AmqpListener::handle_timeout`] is to be called, at the latest.
    pub fn timeout(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now) {
        self.now = now;
        while let Some((at, _)) = self.timers.first()
            && *at <= now.monotonic
            && let Some((_, timer)) = self.timers.pop_first()
        {
            match timer {
                Timer::Client(id) => {
                    if let Some(client) = self.clients.get_mut(&id) {
                        client.timer_at = None;
                        // One that takes nothing of what it is sent is not held up by the server.
                        let is_congested = client.is_congested() && !planted(Fault::Patient);
                        if client.held && !is_congested {
                            client.amqp.held_up(now.monotonic);
                        }
                        client.amqp.handle_timeout(now.monotonic);
                        self.dirty.clients.insert(id);
                    }
                }
                Timer::Queue(namespace, id) => self.queue_timer(namespace, id),
                Timer::Host(namespace) => self.host_timer(&namespace),
                Timer::Storage => self.let_publish(),
            }
        }
        self.settle_down();
    }

    /// Whether there is something to be done.
    pub fn is_behind(&self) -> bool {
        !self.calls.out.is_empty()
    }

    /// What is to be done next.
    pub fn poll(&mut self) -> Option<Out> {
        self.calls.out.pop_front()
    }

    /// Looks at all that has changed, until nothing does.
    pub(super) fn settle_down(&mut self) {
        loop {
            if let Some((namespace, id)) = self.dirty.queues.pop_first() {
                self.serve(&namespace, id);
            } else if let Some(id) = self.dirty.clients.pop_first() {
                self.advance(id, &[]);
            } else if let Some(namespace) = self.dirty.hosts.pop_first() {
                if let Some(host) = self.hosts.get_mut(&namespace) {
                    host.publisher.flush(&self.pool, &mut self.calls);
                }
            } else {
                return;
            }
        }
    }

    /// Takes what a client has sent, as far as that goes: what is kept of it, and then what has just come.
    pub(super) fn advance(&mut self, id: ClientId, mut fresh: &[u8]) {
        while let Some(client) = self.clients.get_mut(&id) {
            if client.has_stored() {
                self.unblock(id);
                continue;
            }
            if client.blocked.is_some() {
                break;
            }
            if let Some(event) = client.amqp.poll_event() {
                self.event(id, event);
                continue;
            }
            let is_kept = !client.input.is_empty();
            let bytes = match is_kept {
                true => &client.input[..],
                false => fresh,
            };
            if client.takes_nothing() || bytes.is_empty() {
                break;
            }
            let taken = client.amqp.input(self.now.monotonic, bytes);
            match is_kept {
                true => client.input.advance(taken),
                false => fresh = &fresh[taken..],
            }
            // It takes nothing while its output waits.
            if taken == 0 && !self.send_output(id) {
                break;
            }
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.input.extend_from_slice(fresh);
        }
        self.finish(id);
    }

    /// Hands what waits for a client to its link. Whether there was something.
    pub(super) fn send_output(&mut self, id: ClientId) -> bool {
        let Some(client) = self.clients.get_mut(&id) else {
            return false;
        };
        let mut sent = false;
        while let Some(bytes) = client.amqp.poll_output(self.now.monotonic) {
            client.queued += bytes.len() as u64;
            self.calls.out.push_back(Out::Send { client: id, bytes });
            sent = true;
        }
        sent
    }

    /// Sends what came of a client's requests, and says whether it is read further.
    pub(super) fn finish(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        if let Some(publisher) = &mut client.publisher {
            publisher.flush(&self.pool, &mut self.calls);
        }
        for key in std::mem::take(&mut client.confirming) {
            let Some(open) = client.channels.get_mut(&key) else {
                continue;
            };
            for confirm in open.channel.confirms() {
                match confirm {
                    Method::BasicAck(ack) => client.amqp.confirm(key, ack),
                    Method::BasicNack(nack) => client.amqp.reject(key, nack),
                    _ => {}
                }
            }
        }
        self.send_output(id);
        self.count_assembly(id);
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let held = client.takes_nothing() || !client.input.is_empty();
        if held != client.held {
            client.held = held;
            self.calls.out.push_back(Out::Hold { client: id, held });
        }
        let due = client.amqp.timeout();
        if let Some(at) = due
            && client.timer_at.is_none_or(|armed| at < armed)
        {
            if let Some(armed) = client.timer_at.replace(at) {
                self.timers.remove(&(armed, Timer::Client(id)));
            }
            self.timers.insert((at, Timer::Client(id)));
        }
        // It is over though nobody waits for its events.
        if client.amqp.is_ended() && client.blocked.is_some() {
            self.end(id, "the connection is over");
        }
    }

    /// Messages of all clients that have not come whole are bounded: who has most of them is ended.
    fn count_assembly(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        let now = client.amqp.assembly_bytes();
        let before = std::mem::replace(&mut client.assembly_bytes, now);
        self.assembly_bytes = (self.assembly_bytes + now).saturating_sub(before);
        if now <= before || self.assembly_bytes <= ASSEMBLY_BYTES_MAX || planted(Fault::Unbounded) {
            return;
        }
        let most = self
            .clients
            .iter()
            .max_by_key(|(_, one)| one.assembly_bytes);
        if let Some(id) = most.map(|(id, _)| *id) {
            let text = format!(
                "messages of all connections that have not come whole have more than {ASSEMBLY_BYTES_MAX} bytes, \
                 and this connection has most of them"
            );
            self.fail_client(id, ReplyCode::ResourceError, text);
        }
    }

    pub(super) fn event(&mut self, id: ClientId, event: Event) {
        match event {
            Event::Authenticate {
                credentials,
                client_properties,
            } => self.log_in(id, credentials, &client_properties),
            Event::Response(_) => {}
            Event::OpenVirtualHost(name) => self.open_host(id, name),
            Event::UpdateSecret { secret, .. } => self.update_secret(id, &secret),
            Event::ChannelOpened(key) => self.channel_opened(id, key),
            Event::Request { channel, request } => self.request(id, channel, request),
            Event::Publish(publish) => self.publish(id, publish),
            Event::ChannelFailed { channel, .. } => self.close_channel(id, channel),
            Event::CloseRequested { .. } => {
                self.leave_host(id);
                if let Some(client) = self.clients.get_mut(&id) {
                    // Its session takes along what is on its way.
                    match client.is_storing() {
                        true => client.blocked = Some(Blocked::Leaving),
                        false => client.amqp.accept_close(self.now.monotonic),
                    }
                }
            }
            Event::Failed(_) => self.leave_host(id),
            Event::Ended(ended) => {
                self.send_output(id);
                self.end(id, &format!("{ended:?}"));
            }
        }
    }

    pub(super) fn channel_opened(&mut self, id: ClientId, key: ChannelKey) {
        if let Some(client) = self.clients.get_mut(&id) {
            let name = host::name_of(&client.namespace);
            let channel = Channel::new(name, ChannelLimits::default());
            let replies = None;
            client.channels.insert(key, Open { channel, replies });
        }
    }

    /// Ends a client's connection.
    pub(super) fn end(&mut self, id: ClientId, reason: &str) {
        self.forget(id);
        let reason = reason.to_owned();
        self.calls.out.push_back(Out::Close { client: id, reason });
    }

    /// A client is gone: what it had is others'.
    pub(super) fn forget(&mut self, id: ClientId) {
        self.leave_host(id);
        if let Some(mut client) = self.clients.remove(&id) {
            self.assembly_bytes = self.assembly_bytes.saturating_sub(client.assembly_bytes);
            self.blocked.remove(&id);
            let unanswered = client.session.map(|session| self.calls.close(session));
            let publisher = client.publisher.take();
            let unsent = publisher.map_or_else(Vec::new, Publisher::into_batches);
            self.abandoned(&client.namespace, unanswered.unwrap_or_default(), unsent);
            if let Some(at) = client.timer_at {
                self.timers.remove(&(at, Timer::Client(id)));
            }
        }
    }

    /// What a client waits for has come: it goes on.
    pub(super) fn unblock(&mut self, id: ClientId) {
        let Some(client) = self.clients.get_mut(&id) else {
            return;
        };
        self.dirty.clients.insert(id);
        match client.blocked.take() {
            Some(Blocked::Request(key, request) | Blocked::Stored(key, request)) => {
                self.request(id, key, *request);
            }
            Some(Blocked::Leaving) => client.amqp.accept_close(self.now.monotonic),
            Some(Blocked::Publish(publish)) => self.publish(id, *publish),
            Some(Blocked::Open(name)) => self.open_host(id, name),
            Some(Blocked::Login | Blocked::Answer | Blocked::Secret) | None => {}
        }
    }

    /// Fails a channel of a client, or its connection.
    pub(super) fn fail(&mut self, id: ClientId, key: ChannelKey, failure: Failure) {
        if let Some(client) = self.clients.get_mut(&id) {
            client.checked.clear();
            client.amqp.fail(self.now.monotonic, key, failure);
            self.dirty.clients.insert(id);
        }
    }

    /// Ends a client's connection with an error of the server's.
    pub(super) fn fail_client(&mut self, id: ClientId, code: ReplyCode, text: impl Into<String>) {
        if let Some(client) = self.clients.get_mut(&id) {
            let failure = Failure::new(code, text);
            if let Some(Blocked::Leaving) = client.blocked.take() {
                client.amqp.accept_close(self.now.monotonic);
            }
            client.amqp.fail_connection(self.now.monotonic, failure);
            self.dirty.clients.insert(id);
        }
    }

    /// A client, and its virtual host.
    pub(super) fn at(&mut self, id: ClientId) -> Option<At<'_>> {
        let client = self.clients.get_mut(&id)?;
        client.connection?;
        let host = self.hosts.get_mut(&client.namespace)?;
        Some(At {
            client,
            host,
            calls: &mut self.calls,
            dirty: &mut self.dirty,
            now: self.now,
        })
    }
}

const _: () = assert!(QUEUED_BYTES_MAX > amqp::OUTPUT_BYTES_MAX as u64);
