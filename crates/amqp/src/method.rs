//! All methods of AMQP 0-9-1 and of RabbitMQ's extensions: fixed fields, one struct each.

use crate::decode::DecodeError;
use crate::field::{Field, Reader, ShortString, Writer};
use crate::id::MethodId;
use crate::table::Table;
use bytes::{Bytes, BytesMut};

/// Declares the methods: for each its variant, its name, its ids and its fields. What stands in brackets before and
/// after the fields is reserved: written as zeros, and not looked at.
macro_rules! methods {
    ($($(#[$class_doc:meta])* $module:ident = $class:literal {
        $($variant:ident, $struct:ident = $method:literal
            [$($before:ty),*] { $($field:ident: $type:ty),* } [$($after:ty),*];)*
    })*) => {
        /// A method.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is the struct that it holds")]
        pub enum Method { $($($variant($module::$struct),)*)* }

        $($(#[$class_doc])*
        #[allow(missing_docs, reason = "methods and fields have the names of the standard")]
        pub mod $module {
            #[allow(unused_imports, reason = "a class may lack fields of a type")]
            use crate::{field::ShortString, table::Table};
            use crate::id::MethodId;
            #[allow(unused_imports, reason = "likewise")]
            use bytes::Bytes;
            use std::fmt;

            $(
                #[derive(Clone, Default, PartialEq, Eq)]
                pub struct $struct { $(pub $field: $type),* }

                impl fmt::Debug for $struct {
                    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        #[allow(unused_mut, reason = "some methods have no fields")]
                        let mut fields = f.debug_struct(stringify!($struct));
                        $(match stringify!($field) {
                            // Credentials.
                            name @ ("response" | "new_secret") => fields.field(name, &"..."),
                            name => fields.field(name, &self.$field),
                        };)*
                        fields.finish()
                    }
                }

                impl $struct {
                    /// Its ids.
                    pub const ID: MethodId = MethodId::new($class, $method);
                }

                impl From<$struct> for super::Method {
                    fn from(method: $struct) -> Self {
                        Self::$variant(method)
                    }
                }
            )*
        })*

        impl Method {
            /// The ids of all methods, with their names.
            pub const ALL: &[(MethodId, &str)] = &[$($(
                ($module::$struct::ID, concat!(stringify!($module), ".", stringify!($struct))),
            )*)*];

            /// Its ids.
            pub const fn id(&self) -> MethodId {
                match self { $($(Self::$variant(_) => $module::$struct::ID,)*)* }
            }

            /// Reads the fields of a method.
            #[allow(unused_variables, reason = "some methods have no fields")]
            fn read(id: MethodId, reader: &mut Reader) -> Result<Self, DecodeError> {
                match (id.class, id.method) {
                    $($(($class, $method) => {
                        $(<$before>::read(reader)?;)*
                        $(let $field = <$type>::read(reader)?;)*
                        $(<$after>::read(reader)?;)*
                        Ok(Self::$variant($module::$struct { $($field),* }))
                    })*)*
                    _ => Err(DecodeError::Method(id)),
                }
            }

            #[allow(unused_variables, reason = "some methods have no fields")]
            fn write(&self, writer: &mut Writer<'_>) {
                match self { $($(
                    Self::$variant($module::$struct { $($field),* }) => {
                        $(<$before>::default().write(writer);)*
                        $($field.write(writer);)*
                        $(<$after>::default().write(writer);)*
                    }
                )*)* }
            }

            /// A method of this place in [`Method::ALL`], whose fields are chosen by chance.
            #[cfg(test)]
            pub(crate) fn generate(index: usize, chance: &mut crate::tests::Chance) -> Self {
                use crate::tests::Generated;
                let makes: &[fn(&mut crate::tests::Chance) -> Self] = &[$($(
                    |_chance| Self::$variant($module::$struct {
                        $($field: Generated::generated(_chance)),*
                    }),
                )*)*];
                makes[index](chance)
            }
        }
    };
}

methods! {
    /// Connections: their start, tuning, and end.
    connection = 10 {
        ConnectionStart, Start = 10 [] { version_major: u8, version_minor: u8, server_properties: Table,
            mechanisms: Bytes, locales: Bytes } [];
        ConnectionStartOk, StartOk = 11 [] { client_properties: Table, mechanism: ShortString, response: Bytes,
            locale: ShortString } [];
        ConnectionSecure, Secure = 20 [] { challenge: Bytes } [];
        ConnectionSecureOk, SecureOk = 21 [] { response: Bytes } [];
        ConnectionTune, Tune = 30 [] { channel_max: u16, frame_max: u32, heartbeat: u16 } [];
        ConnectionTuneOk, TuneOk = 31 [] { channel_max: u16, frame_max: u32, heartbeat: u16 } [];
        ConnectionOpen, Open = 40 [] { virtual_host: ShortString } [ShortString, bool];
        ConnectionOpenOk, OpenOk = 41 [] {} [ShortString];
        ConnectionClose, Close = 50 [] { reply_code: u16, reply_text: ShortString, class_id: u16,
            method_id: u16 } [];
        ConnectionCloseOk, CloseOk = 51 [] {} [];
        ConnectionBlocked, Blocked = 60 [] { reason: ShortString } [];
        ConnectionUnblocked, Unblocked = 61 [] {} [];
        ConnectionUpdateSecret, UpdateSecret = 70 [] { new_secret: Bytes, reason: ShortString } [];
        ConnectionUpdateSecretOk, UpdateSecretOk = 71 [] {} [];
    }
    /// Channels: their start, flow, and end.
    channel = 20 {
        ChannelOpen, Open = 10 [] {} [ShortString];
        ChannelOpenOk, OpenOk = 11 [] {} [Bytes];
        ChannelFlow, Flow = 20 [] { active: bool } [];
        ChannelFlowOk, FlowOk = 21 [] { active: bool } [];
        ChannelClose, Close = 40 [] { reply_code: u16, reply_text: ShortString, class_id: u16, method_id: u16 } [];
        ChannelCloseOk, CloseOk = 41 [] {} [];
    }
    /// Exchanges, and their bindings to each other.
    exchange = 40 {
        ExchangeDeclare, Declare = 10 [u16] { exchange: ShortString, kind: ShortString, passive: bool,
            durable: bool, auto_delete: bool, internal: bool, no_wait: bool, arguments: Table } [];
        ExchangeDeclareOk, DeclareOk = 11 [] {} [];
        ExchangeDelete, Delete = 20 [u16] { exchange: ShortString, if_unused: bool, no_wait: bool } [];
        ExchangeDeleteOk, DeleteOk = 21 [] {} [];
        ExchangeBind, Bind = 30 [u16] { destination: ShortString, source: ShortString, routing_key: ShortString,
            no_wait: bool, arguments: Table } [];
        ExchangeBindOk, BindOk = 31 [] {} [];
        ExchangeUnbind, Unbind = 40 [u16] { destination: ShortString, source: ShortString,
            routing_key: ShortString, no_wait: bool, arguments: Table } [];
        ExchangeUnbindOk, UnbindOk = 51 [] {} [];
    }
    /// Queues, and their bindings to exchanges.
    queue = 50 {
        QueueDeclare, Declare = 10 [u16] { queue: ShortString, passive: bool, durable: bool, exclusive: bool,
            auto_delete: bool, no_wait: bool, arguments: Table } [];
        QueueDeclareOk, DeclareOk = 11 [] { queue: ShortString, message_count: u32, consumer_count: u32 } [];
        QueueBind, Bind = 20 [u16] { queue: ShortString, exchange: ShortString, routing_key: ShortString,
            no_wait: bool, arguments: Table } [];
        QueueBindOk, BindOk = 21 [] {} [];
        QueuePurge, Purge = 30 [u16] { queue: ShortString, no_wait: bool } [];
        QueuePurgeOk, PurgeOk = 31 [] { message_count: u32 } [];
        QueueDelete, Delete = 40 [u16] { queue: ShortString, if_unused: bool, if_empty: bool, no_wait: bool } [];
        QueueDeleteOk, DeleteOk = 41 [] { message_count: u32 } [];
        QueueUnbind, Unbind = 50 [u16] { queue: ShortString, exchange: ShortString, routing_key: ShortString,
            arguments: Table } [];
        QueueUnbindOk, UnbindOk = 51 [] {} [];
    }
    /// Messages: published, delivered, and settled.
    basic = 60 {
        BasicQos, Qos = 10 [] { prefetch_size: u32, prefetch_count: u16, global: bool } [];
        BasicQosOk, QosOk = 11 [] {} [];
        BasicConsume, Consume = 20 [u16] { queue: ShortString, consumer_tag: ShortString, no_local: bool,
            no_ack: bool, exclusive: bool, no_wait: bool, arguments: Table } [];
        BasicConsumeOk, ConsumeOk = 21 [] { consumer_tag: ShortString } [];
        BasicCancel, Cancel = 30 [] { consumer_tag: ShortString, no_wait: bool } [];
        BasicCancelOk, CancelOk = 31 [] { consumer_tag: ShortString } [];
        BasicPublish, Publish = 40 [u16] { exchange: ShortString, routing_key: ShortString, mandatory: bool,
            immediate: bool } [];
        BasicReturn, Return = 50 [] { reply_code: u16, reply_text: ShortString, exchange: ShortString,
            routing_key: ShortString } [];
        BasicDeliver, Deliver = 60 [] { consumer_tag: ShortString, delivery_tag: u64, redelivered: bool,
            exchange: ShortString, routing_key: ShortString } [];
        BasicGet, Get = 70 [u16] { queue: ShortString, no_ack: bool } [];
        BasicGetOk, GetOk = 71 [] { delivery_tag: u64, redelivered: bool, exchange: ShortString,
            routing_key: ShortString, message_count: u32 } [];
        BasicGetEmpty, GetEmpty = 72 [] {} [ShortString];
        BasicAck, Ack = 80 [] { delivery_tag: u64, multiple: bool } [];
        BasicReject, Reject = 90 [] { delivery_tag: u64, requeue: bool } [];
        BasicRecoverAsync, RecoverAsync = 100 [] { requeue: bool } [];
        BasicRecover, Recover = 110 [] { requeue: bool } [];
        BasicRecoverOk, RecoverOk = 111 [] {} [];
        BasicNack, Nack = 120 [] { delivery_tag: u64, multiple: bool, requeue: bool } [];
    }
    /// Publisher confirms.
    confirm = 85 {
        ConfirmSelect, Select = 10 [] { no_wait: bool } [];
        ConfirmSelectOk, SelectOk = 11 [] {} [];
    }
    /// Transactions.
    tx = 90 {
        TxSelect, Select = 10 [] {} [];
        TxSelectOk, SelectOk = 11 [] {} [];
        TxCommit, Commit = 20 [] {} [];
        TxCommitOk, CommitOk = 21 [] {} [];
        TxRollback, Rollback = 30 [] {} [];
        TxRollbackOk, RollbackOk = 31 [] {} [];
    }
}

impl Method {
    /// The method of a frame's payload.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(payload: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(payload);
        let id = MethodId::new(u16::read(&mut reader)?, u16::read(&mut reader)?);
        let method = Self::read(id, &mut reader)?;
        reader.end()?;
        Ok(method)
    }

    /// Appends the payload of its frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let id = self.id();
        let mut writer = Writer::new(out);
        id.class.write(&mut writer);
        id.method.write(&mut writer);
        self.write(&mut writer);
    }

    /// The name of a method, as `Queue.Declare` is `queue.Declare`.
    pub fn name_of(id: MethodId) -> Option<&'static str> {
        let found = Self::ALL.iter().find(|(known, _)| *known == id);
        found.map(|(_, name)| *name)
    }
}
