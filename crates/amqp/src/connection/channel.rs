//! Channels: what their client sends on them.

use super::{Connection, PENDING_MAX, decode, invalid};
use crate::content::Assembly;
use crate::error::{Failure, ReplyCode};
use crate::event::{Event, Publish, Request};
use crate::faults::{Fault, planted};
use crate::field::ShortString;
use crate::frame::ContentHeader;
use crate::id::{ChannelKey, MethodId, ids_of};
use crate::method::{Method, basic, channel as methods, confirm, tx};
use bytes::Bytes;
use std::collections::VecDeque;

/// One channel.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) incarnation: u32,
    pub(super) state: ChannelState,
    pub(super) pending: VecDeque<Pending>,
    mode: Mode,
    assembly: Assembly,
}

/// ```text
///            ┌──channel.close of the client──► Leaving ──answer──► (gone)
///   ► Open ──┤                                   │ an earlier request fails: channel.close and close-ok sent
///            │                                   ▼
///            └──failure: channel.close sent──► Closing ──close-ok──► (gone)
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChannelState {
    /// It works.
    Open,
    /// Its client closes it, and the owner has not answered. All else that comes is dropped.
    Leaving,
    /// It failed. All but the client's agreement is dropped.
    Closing,
}

/// How publishing is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Not at all.
    Plain,
    /// By confirms; so many messages were published.
    Confirm(u64),
    /// By commits.
    Transaction,
}

/// A request that the owner has not answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    pub(super) id: MethodId,
    /// Whether the client wants the answer.
    pub(super) is_sent: bool,
}

impl Channel {
    fn new(incarnation: u32) -> Self {
        Self {
            incarnation,
            state: ChannelState::Open,
            pending: VecDeque::new(),
            mode: Mode::Plain,
            assembly: Assembly::Idle,
        }
    }

    #[cfg(test)]
    pub(super) fn assembly_bytes(&self) -> u64 {
        self.assembly.bytes()
    }

    pub(super) const fn key(&self, number: u16) -> ChannelKey {
        ChannelKey {
            number,
            incarnation: self.incarnation,
        }
    }
}

/// What is asked for, and what its answer is waited for as, if it has one.
type Asked = Result<(Request, Option<Pending>), Failure>;

const fn answered(id: MethodId, no_wait: bool) -> Option<Pending> {
    Some(Pending {
        id,
        is_sent: !no_wait,
    })
}

fn not_implemented(id: MethodId, what: &str) -> Asked {
    Err(Failure::new(ReplyCode::NotImplemented, what).of(id))
}

impl Connection {
    /// Takes a method on a channel other than 0.
    pub(super) fn channel_method(&mut self, number: u16, payload: Bytes) -> Result<(), Failure> {
        let id = ids_of(&payload);
        let Some(channel) = self.channels.get_mut(&number) else {
            return self.open_channel(number, decode(payload)?);
        };
        match channel.state {
            ChannelState::Closing if !planted(Fault::Undead) => {
                self.agree(number, id);
                return Ok(());
            }
            // Other threads of a client may still use a channel that it closes.
            ChannelState::Leaving if id == Some(methods::Open::ID) => {
                let text = format!("channel {number} is opened again before it is closed");
                return Err(Failure::new(ReplyCode::ChannelError, text).of(methods::Open::ID));
            }
            ChannelState::Leaving => return Ok(()),
            _ => {}
        }
        if !channel.assembly.is_idle() && !planted(Fault::Interrupted) {
            let text = "expected the frames of a content, got a method";
            return Err(Failure {
                method: id,
                ..Failure::new(ReplyCode::UnexpectedFrame, text)
            });
        }
        match decode(payload)? {
            Method::ChannelOpen(_) => {
                let text = "second 'channel.open' seen";
                Err(Failure::new(ReplyCode::ChannelError, text).of(methods::Open::ID))
            }
            Method::ChannelFlow(flow) if flow.active => {
                let active = true;
                self.output
                    .method(number, &methods::FlowOk { active }.into());
                Ok(())
            }
            // Agreements to what the server asked of the client.
            Method::ChannelFlowOk(_) | Method::BasicCancelOk(_) => Ok(()),
            Method::BasicPublish(publish) => {
                if publish.immediate {
                    return not_implemented(basic::Publish::ID, "immediate=true").map(|_| ());
                }
                channel.assembly = Assembly::Header(publish);
                Ok(())
            }
            method => self.request(number, method),
        }
    }

    /// Opens a channel whose number is free.
    fn open_channel(&mut self, number: u16, method: Method) -> Result<(), Failure> {
        match method {
            Method::ChannelOpen(_) if number <= self.tuned.channel_max => {
                self.incarnations = self.incarnations.wrapping_add(1);
                let channel = Channel::new(self.incarnations);
                let key = channel.key(number);
                self.channels.insert(number, channel);
                self.output.method(number, &methods::OpenOk {}.into());
                self.events.push_back(Event::ChannelOpened(key));
                Ok(())
            }
            Method::ChannelOpen(_) => {
                let text = format!(
                    "channel {number} is beyond the negotiated channel_max ({})",
                    self.tuned.channel_max
                );
                Err(Failure::new(ReplyCode::ChannelError, text).of(methods::Open::ID))
            }
            // Of a channel that closed at both sides at once.
            Method::ChannelCloseOk(_) => Ok(()),
            method => {
                let text = format!("expected 'channel.open' on channel {number}");
                Err(Failure::new(ReplyCode::ChannelError, text).of(method.id()))
            }
        }
    }

    /// Takes what comes on a channel that is closing.
    fn agree(&mut self, number: u16, id: Option<MethodId>) {
        if id == Some(methods::CloseOk::ID) {
            self.channels.remove(&number);
        } else if id == Some(methods::Close::ID) {
            // Both sides close at once: the client's agreement still comes.
            self.output.method(number, &methods::CloseOk {}.into());
        }
    }

    fn request(&mut self, number: u16, method: Method) -> Result<(), Failure> {
        let channel = self.channels.get_mut(&number).expect("it was just there");
        let (request, pending) = channel.asked(method)?;
        if let Some(pending) = pending {
            if channel.pending.len() >= PENDING_MAX {
                let text =
                    format!("more than {PENDING_MAX} requests of a channel wait for answers");
                return Err(Failure::new(ReplyCode::ResourceError, text).of(pending.id));
            }
            channel.pending.push_back(pending);
        }
        let channel = channel.key(number);
        self.events.push_back(Event::Request { channel, request });
        Ok(())
    }

    /// Takes a content header.
    pub(super) fn content_header(&mut self, number: u16, payload: Bytes) -> Result<(), Failure> {
        let body_max = self.settings.message_bytes_max;
        let Some(channel) = self.open_for_content(number)? else {
            return Ok(());
        };
        let publish = Some(basic::Publish::ID);
        let header = ContentHeader::decode(payload).map_err(|error| error.failure(publish))?;
        channel.assembly.header(header, body_max)?;
        let held = channel.assembly.bytes();
        self.hold(held)?;
        self.finish(number);
        Ok(())
    }

    /// Sees a body frame begin.
    pub(super) fn body_start(&mut self, number: u16, bytes: u32) -> Result<(), Failure> {
        match self.open_for_content(number)? {
            Some(channel) => channel.assembly.body_start(bytes),
            None => Ok(()),
        }
    }

    /// Takes bytes of the body frame that began last.
    pub(super) fn body(&mut self, number: u16, bytes: &[u8]) -> Result<(), Failure> {
        if self.open_for_content(number)?.is_none() {
            return Ok(());
        }
        self.hold(bytes.len() as u64)?;
        if let Some(channel) = self.channels.get_mut(&number) {
            channel.assembly.body(bytes);
        }
        if planted(Fault::EarlyPublish) {
            self.finish(number);
        }
        Ok(())
    }

    /// Counts bytes of a content under way, if there may be more of them.
    fn hold(&mut self, bytes: u64) -> Result<(), Failure> {
        let max = self.settings.assembly_bytes_max;
        if self.assembly_bytes + bytes > max && !planted(Fault::AnyContent) {
            let text = format!("contents under way on all channels have more than {max} bytes");
            return Err(Failure::new(ReplyCode::ResourceError, text).of(basic::Publish::ID));
        }
        self.assembly_bytes += bytes;
        Ok(())
    }

    /// Sees a body frame end in order.
    pub(super) fn body_end(&mut self, number: u16) {
        self.finish(number);
    }

    /// The channel of a content's frame; none if the channel is closing and the frame is dropped.
    fn open_for_content(&mut self, number: u16) -> Result<Option<&mut Channel>, Failure> {
        match self.channels.get_mut(&number) {
            Some(channel) if channel.state == ChannelState::Open => Ok(Some(channel)),
            Some(_) => Ok(None),
            None => {
                let text = format!("content on channel {number}, which is not open");
                Err(Failure::new(ReplyCode::ChannelError, text))
            }
        }
    }

    /// Publishes the message of a channel, if all of it has come.
    fn finish(&mut self, number: u16) {
        let Some(channel) = self.channels.get_mut(&number) else {
            return;
        };
        let Some((publish, content)) = channel.assembly.finish() else {
            return;
        };
        self.assembly_bytes -= content.bytes();
        self.event_bytes += content.bytes();
        let number_of_message = match &mut channel.mode {
            Mode::Confirm(published) => {
                *published += 1;
                Some(*published)
            }
            Mode::Plain | Mode::Transaction => None,
        };
        self.events.push_back(Event::Publish(Publish {
            channel: channel.key(number),
            number: number_of_message,
            publish,
            content,
        }));
    }

    /// Closes a channel that has failed. It stays until its client agrees; what it has under way is dropped.
    ///
    /// Its client may have closed it already, behind the request that failed. It is answered then, too: some clients wait
    /// for that before they let go of the number.
    pub(super) fn close_channel(&mut self, key: ChannelKey, failure: Failure) {
        let Some(channel) = self.channels.get_mut(&key.number) else {
            return;
        };
        let id = failure.method.unwrap_or_default();
        let close = methods::Close {
            reply_code: failure.code.number(),
            reply_text: ShortString::truncated(&failure.to_string()),
            class_id: id.class,
            method_id: id.method,
        };
        self.assembly_bytes -= channel.assembly.bytes();
        channel.assembly = Assembly::Idle;
        channel.pending.clear();
        let is_left = channel.state == ChannelState::Leaving && !planted(Fault::Unanswered);
        channel.state = ChannelState::Closing;
        self.output.method(key.number, &close.into());
        if is_left {
            self.output.method(key.number, &methods::CloseOk {}.into());
        }
        self.events.push_back(Event::ChannelFailed {
            channel: key,
            failure,
        });
    }
}

impl Channel {
    /// What a method asks for.
    fn asked(&mut self, method: Method) -> Asked {
        let id = method.id();
        let waits = answered(id, false);
        Ok(match method {
            Method::ExchangeDeclare(m) => {
                let pending = answered(id, m.no_wait);
                (Request::DeclareExchange(m), pending)
            }
            Method::ExchangeDelete(m) => {
                let pending = answered(id, m.no_wait);
                (Request::DeleteExchange(m), pending)
            }
            Method::ExchangeBind(m) => {
                let pending = answered(id, m.no_wait);
                (Request::BindExchange(m), pending)
            }
            Method::ExchangeUnbind(m) => {
                let pending = answered(id, m.no_wait);
                (Request::UnbindExchange(m), pending)
            }
            Method::QueueDeclare(m) => {
                let pending = answered(id, m.no_wait);
                (Request::DeclareQueue(m), pending)
            }
            Method::QueueBind(m) => {
                let pending = answered(id, m.no_wait);
                (Request::BindQueue(m), pending)
            }
            Method::QueueUnbind(m) => (Request::UnbindQueue(m), waits),
            Method::QueuePurge(m) => {
                let pending = answered(id, m.no_wait);
                (Request::PurgeQueue(m), pending)
            }
            Method::QueueDelete(m) => {
                let pending = answered(id, m.no_wait);
                (Request::DeleteQueue(m), pending)
            }
            Method::BasicConsume(m) => {
                let pending = answered(id, m.no_wait);
                (Request::Consume(m), pending)
            }
            Method::BasicCancel(m) => {
                let pending = answered(id, m.no_wait);
                (Request::Cancel(m), pending)
            }
            Method::BasicQos(m) if m.prefetch_size != 0 => {
                let text = format!("prefetch_size!=0 ({})", m.prefetch_size);
                return not_implemented(id, &text);
            }
            Method::BasicQos(m) => (Request::Qos(m), waits),
            Method::BasicGet(m) => (Request::Get(m), waits),
            Method::BasicAck(m) => (Request::Ack(m), None),
            Method::BasicNack(m) => (Request::Nack(m), None),
            Method::BasicReject(m) => (Request::Reject(m), None),
            Method::BasicRecover(basic::Recover { requeue: false })
            | Method::BasicRecoverAsync(basic::RecoverAsync { requeue: false }) => {
                return not_implemented(id, "requeue=false");
            }
            Method::BasicRecover(m) => (Request::Recover(m), waits),
            Method::BasicRecoverAsync(m) => (Request::RecoverAsync(m), None),
            Method::ConfirmSelect(m) => {
                self.select_confirm()?;
                let pending = answered(id, m.no_wait);
                (Request::SelectConfirm(m), pending)
            }
            Method::TxSelect(m) => {
                self.select_transaction()?;
                (Request::SelectTransaction(m), waits)
            }
            Method::TxCommit(m) => {
                self.check_transaction(id)?;
                (Request::Commit(m), waits)
            }
            Method::TxRollback(m) => {
                self.check_transaction(id)?;
                (Request::Rollback(m), waits)
            }
            Method::ChannelFlow(_) => return not_implemented(id, "active=false"),
            Method::ChannelClose(m) => {
                self.state = ChannelState::Leaving;
                (Request::CloseChannel(m), waits)
            }
            _ => return Err(invalid(id, "on a channel is none of a client")),
        })
    }

    fn select_confirm(&mut self) -> Result<(), Failure> {
        match self.mode {
            Mode::Plain => self.mode = Mode::Confirm(0),
            Mode::Confirm(_) => {}
            Mode::Transaction => {
                let text = "cannot switch from tx to confirm mode";
                return Err(precondition(text, confirm::Select::ID));
            }
        }
        Ok(())
    }

    fn select_transaction(&mut self) -> Result<(), Failure> {
        if let Mode::Confirm(_) = self.mode {
            let text = "cannot switch from confirm to tx mode";
            return Err(precondition(text, tx::Select::ID));
        }
        self.mode = Mode::Transaction;
        Ok(())
    }

    fn check_transaction(&self, id: MethodId) -> Result<(), Failure> {
        match self.mode {
            Mode::Transaction => Ok(()),
            _ => Err(precondition("channel is not transactional", id)),
        }
    }
}

fn precondition(text: &str, id: MethodId) -> Failure {
    Failure::new(ReplyCode::PreconditionFailed, text).of(id)
}
