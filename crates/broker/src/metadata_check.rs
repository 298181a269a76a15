//! Metadata is judged at the server, for topics that say so.

use std::sync::Arc;
use topic::{Definition, NoPlugins, Serializer, Steps, Validator};
use wire::batch::EventRef;
use wire::{ErrorCode, ErrorReply};

/// What a topic's metadata must be.
pub(crate) struct MetadataCheck {
    validator: Arc<dyn Validator>,
    /// Undoes what the producer did behind its own validator.
    serializer: Arc<dyn Serializer>,
}

impl MetadataCheck {
    /// The metadata_check of a topic, if it wants one.
    pub fn of(definition: &Definition) -> Option<Self> {
        if !definition.validate_on_server() {
            return None;
        }
        let promise = "a definition that has the server validate has no plugins";
        let validator = definition.validator().build(&NoPlugins).expect(promise);
        let serializer = definition.serializer().build(&NoPlugins).expect(promise);
        (!validator.accepts_all()).then_some(Self {
            validator,
            serializer,
        })
    }

    /// Refuses a batch in which the metadata of an event is not good, or which
    /// takes more work than a batch may: the node does nothing else meanwhile.
    pub fn check(
        &self,
        events: &[EventRef],
        section: &[u8],
        is_unbounded: bool,
    ) -> Result<(), ErrorReply> {
        let mut batch = Steps::of_batch();
        for (index, event) in events.iter().enumerate() {
            let refuse = |code: ErrorCode, why: &dyn std::fmt::Display| {
                ErrorReply::fatal(code, format!("event {index} of the batch: {why}"))
            };
            let start = event.metadata_start as usize;
            let stored = &section[start..start + event.metadata_bytes as usize];
            let metadata = self
                .serializer
                .deserialize(stored)
                .map_err(|error| refuse(ErrorCode::InvalidEvent, &error))?;
            let mut steps = Steps::of_event(metadata.len());
            self.validator
                .validate_within(&metadata, &mut steps)
                .map_err(|error| refuse(error.code(), &error))?;
            if !is_unbounded {
                batch
                    .spend(&steps)
                    .map_err(|error| refuse(ErrorCode::InvalidEvent, &error))?;
            }
        }
        Ok(())
    }
}
