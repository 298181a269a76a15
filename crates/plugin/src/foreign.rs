//! Instances of plugins, as what they are used for.

use crate::abi::{FAILED, OK, REFUSED, RawEvent, Table};
use crate::output::{Fault, Output};
use std::borrow::Cow;
use std::ffi::c_void;
use std::fmt;
use topic::{
    METADATA_BYTES_MAX_LIMIT, PartitionSelector, PluginRef, SelectorError, SelectorInput,
    Serializer, SerializerError, ValidationError, Validator,
};

/// The most that one call may write: no metadata is longer.
const WRITE_BYTES_MAX: usize = METADATA_BYTES_MAX_LIMIT as usize;

/// What a plugin is loaded as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Validator,
    PartitionSelector,
    Serializer,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Validator => "validator",
            Self::PartitionSelector => "partition selector",
            Self::Serializer => "serializer",
        })
    }
}

/// What a plugin has made with its options.
pub struct Instance {
    name: String,
    table: &'static Table,
    instance: *mut c_void,
}

// SAFETY: the header says to plugins that an instance is made, used and ended on
// any thread.
unsafe impl Send for Instance {}
// SAFETY: the header says to plugins that several threads validate and serialize
// at once. Selecting takes `&mut self`, so there one thread at a time does.
unsafe impl Sync for Instance {}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(destroy) = self.table.destroy {
            // SAFETY: `create` made it, and this ends it once.
            unsafe { destroy(self.instance) };
        }
    }
}

/// How a call went wrong.
enum Failure {
    /// The plugin refuses what it was given.
    Refused(String),
    /// The plugin is at fault.
    Failed(String),
}

impl Instance {
    /// Makes an instance for a role, which the plugin must have.
    pub fn new(plugin: &PluginRef, table: &'static Table, role: Role) -> Result<Self, String> {
        let has = match role {
            Role::Validator => table.validate.is_some(),
            Role::PartitionSelector => table.select.is_some(),
            Role::Serializer => table.serialize.is_some() && table.deserialize.is_some(),
        };
        if !has {
            return Err(format!("{:?} is no {role}", plugin.parts().0));
        }
        let Some(create) = table.create else {
            return Err(format!("{:?} has no create", plugin.parts().0));
        };
        let options = plugin.options_json();
        let mut instance = std::ptr::null_mut();
        let mut reason = Output::reason();
        // SAFETY: the options are readable for their length, the places to
        // write to are ours and used by nobody else.
        let code = unsafe {
            create(
                options.as_ptr().cast(),
                options.len(),
                &raw mut instance,
                reason.as_raw(),
            )
        };
        match outcome(code, reason) {
            Ok(()) => Ok(Self {
                name: plugin.name().to_owned(),
                table,
                instance,
            }),
            Err(Failure::Refused(reason) | Failure::Failed(reason)) => {
                Err(format!("options {options} are refused: {reason}"))
            }
        }
    }

    fn failed(&self, reason: &str) -> String {
        format!("plugin {:?} failed: {reason}", self.name)
    }

    /// One direction of a serializer, appending to `out`, which is as it was
    /// if that fails.
    fn convert(
        &self,
        convert: crate::abi::Convert,
        from: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SerializerError> {
        let before = out.len();
        let mut output = Output::new(std::mem::take(out), WRITE_BYTES_MAX);
        let mut reason = Output::reason();
        // SAFETY: the instance is of this table, the bytes are readable for
        // their length, and the outputs ours and used by nobody else.
        let code = unsafe {
            convert(
                self.instance,
                from.as_ptr(),
                from.len(),
                output.as_raw(),
                reason.as_raw(),
            )
        };
        let fault;
        (*out, fault) = output.finish();
        let failure = match fault {
            // What the plugin did is worse than what it says.
            Some(Fault::TooLong) => Failure::Failed(format!(
                "it wrote more than {WRITE_BYTES_MAX} bytes for {}",
                from.len()
            )),
            Some(Fault::Null) => Failure::Failed("it appended from a null pointer".to_owned()),
            None => match outcome(code, reason) {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            },
        };
        out.truncate(before);
        Err(SerializerError::new(match failure {
            Failure::Refused(reason) => format!("metadata is refused: {reason}"),
            Failure::Failed(reason) => self.failed(&reason),
        }))
    }
}

fn outcome(code: i32, reason: Output) -> Result<(), Failure> {
    match code {
        OK => Ok(()),
        REFUSED => Err(Failure::Refused(reason.into_reason())),
        FAILED => Err(Failure::Failed(reason.into_reason())),
        other => Err(Failure::Failed(format!(
            "it returned {other}, which means nothing"
        ))),
    }
}

impl Validator for Instance {
    fn validate(&self, metadata: &[u8]) -> Result<(), ValidationError> {
        let validate = self.table.validate.expect("looked at when it was made");
        let mut reason = Output::reason();
        // SAFETY: the instance is of this table, the bytes are readable for
        // their length, and the output is ours and used by nobody else.
        let code = unsafe {
            validate(
                self.instance,
                metadata.as_ptr(),
                metadata.len(),
                reason.as_raw(),
            )
        };
        outcome(code, reason).map_err(|failure| {
            ValidationError::Refused(match failure {
                Failure::Refused(reason) => reason,
                Failure::Failed(reason) => self.failed(&reason),
            })
        })
    }
}

impl PartitionSelector for Instance {
    fn select(
        &mut self,
        input: SelectorInput<'_>,
        partition_count: u32,
    ) -> Result<u32, SelectorError> {
        let select = self.table.select.expect("looked at when it was made");
        let event = RawEvent {
            metadata: input.metadata.as_ptr(),
            metadata_bytes: input.metadata.len(),
            key: input.key.map_or(std::ptr::null(), <[u8]>::as_ptr),
            key_bytes: input.key.map_or(0, <[u8]>::len),
            partition_count,
            reserved: 0,
        };
        // No partition, should the plugin choose none.
        let mut partition = u32::MAX;
        let mut reason = Output::reason();
        // SAFETY: the instance is of this table, the event's parts are
        // readable for their lengths, and what is written to is ours alone.
        let code = unsafe {
            select(
                self.instance,
                &raw const event,
                &raw mut partition,
                reason.as_raw(),
            )
        };
        match outcome(code, reason) {
            Ok(()) => Ok(partition),
            Err(Failure::Refused(reason)) => Err(SelectorError::Refused(reason)),
            Err(Failure::Failed(reason)) => Err(SelectorError::Refused(self.failed(&reason))),
        }
    }
}

impl Serializer for Instance {
    fn serialize(&self, metadata: &[u8], out: &mut Vec<u8>) -> Result<(), SerializerError> {
        let serialize = self.table.serialize.expect("looked at when it was made");
        self.convert(serialize, metadata, out)
    }

    fn deserialize<'a>(&self, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>, SerializerError> {
        let deserialize = self.table.deserialize.expect("looked at when it was made");
        let mut out = Vec::new();
        self.convert(deserialize, bytes, &mut out)?;
        Ok(Cow::Owned(out))
    }
}
