//! Members of groups: consumers that are told of their partitions.

use crate::boundary::*;
use crate::callbacks::{Callbacks, ThalwegDataCallbacks};
use crate::consumer::Consumer;
use crate::options;
use crate::topic::Topic;
use client::{PartitionIndex, PartitionsCallback};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

type Told = extern "C" fn(*mut c_void, *const u32, usize);

/// `thalweg_group_callbacks`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ThalwegGroupCallbacks {
    pub assigned: Option<Told>,
    pub revoking: Option<Told>,
    pub lost: Option<Told>,
    pub destroy: Option<extern "C" fn(*mut c_void)>,
    pub context: *mut c_void,
}

/// Who is told; the last who holds it tells the user.
struct Listener {
    destroy: Option<extern "C" fn(*mut c_void)>,
    context: UserPointer,
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy {
            let context = self.context;
            client::deferred_drop(move || destroy(context.get()));
        }
    }
}

impl Listener {
    fn tells(self: &Arc<Self>, told: Option<Told>) -> Option<Arc<PartitionsCallback>> {
        let (told, listener) = (told?, self.clone());
        Some(Arc::new(move |partitions: &[PartitionIndex]| {
            let indices: Vec<u32> = partitions.iter().map(|partition| partition.0).collect();
            told(listener.context.0, indices.as_ptr(), indices.len());
        }))
    }
}

/// Joins a group.
#[unsafe(no_mangle)]
pub extern "C" fn thalweg_group_join(
    topic: Option<&Topic>,
    name: *const c_char,
    options: *const c_char,
    callbacks: Option<&ThalwegDataCallbacks>,
    listener: Option<&ThalwegGroupCallbacks>,
    consumer: Out<'_, *mut Consumer>,
    error: ErrorOut<'_>,
) -> i32 {
    guard(error, || {
        let topic = given("topic", topic)?;
        let name = text("name", name)?;
        let options: options::Group = options::read("options of a group", options)?;
        let (mut member, mut options) = options.to_client()?;
        let consumer = given("consumer", consumer)?;
        // From here on `destroy` is called, also if joining fails.
        let listener = listener.map(|given| {
            let listener = Arc::new(Listener {
                destroy: given.destroy,
                context: UserPointer(given.context),
            });
            member.on_assigned = listener.tells(given.assigned);
            member.on_revoking = listener.tells(given.revoking);
            member.on_lost = listener.tells(given.lost);
            listener
        });
        if let Some(callbacks) = callbacks.map(Callbacks::new) {
            (options.data, options.allocator) = callbacks.choose(options.data)?;
        }
        let client = topic.handle.group(name, member, options)?;
        drop(listener);
        consumer.write(give(Consumer::new(client, topic)));
        Ok(())
    })
}
