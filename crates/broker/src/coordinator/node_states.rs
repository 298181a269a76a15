//! The states of nodes, as operators change them.
//!
//! ```text
//!                  drain                     remove, once it does not follow any more
//!   Serving ───────────────► Draining ──────────────────────────────────────────────► Removed
//!    │   ▲ ◄──── serve ─────────┘                                                        ▲
//!    ▼   │ the table's leader, by itself                                                 │
//!    Away ───────────────────────────────────────────────────────────────────────────────┘
//! ```

use super::commands::Decided;
use super::lent::Lent;
use crate::answer::Answer;
use crate::ids::RequestId;
use crate::refusal::{Refused, refuse};
use topic::Definition;
use wire::message::SetNode;
use wire::record::{NodeRecord, NodeState, Record, TopicRecord};
use wire::{ErrorCode, NodeId};

/// Topics that a refusal names.
const NAMED_MAX: usize = 3;

/// Gives a node another state. The caller is answered when the table says that.
///
/// # Errors
/// Of a node that there is not or that was removed; of a state that nobody sets; of a node that is to be removed and has
/// topics, unless their loss is accepted. Whether it follows still the leader of the table knows, who refuses it then.
pub(super) fn set(caller: RequestId, set: SetNode, lent: &mut Lent<'_>) -> Result<(), Refused> {
    lent.drain.refuse_begun()?;
    let unsupported = |why: String| refuse(ErrorCode::Unsupported, why);
    if !lent.ctx.options.nodes.are_of_table() {
        let why = "this server is no part of a cluster: there is no state of it to be changed";
        return Err(unsupported(why.to_owned()));
    }
    let SetNode {
        node,
        state,
        accept_loss,
    } = set;
    if state == NodeState::Away {
        let why = "which nodes are away the table says by itself: drain the node, or remove it";
        return Err(unsupported(why.to_owned()));
    }
    let table = lent.commands.table();
    let known = table.nodes().get(node);
    let known = known.ok_or_else(|| unsupported(format!("there is no node {node}")))?;
    // One that is away serves again as soon as it is back.
    let is_done =
        known.state == state || (known.state, state) == (NodeState::Away, NodeState::Serving);
    if is_done {
        lent.ctx.answer(caller, Answer::Done);
        return Ok(());
    }
    let mut records = Vec::new();
    if state == NodeState::Removed {
        let lost: Vec<_> = table
            .topics()
            .filter(|(_, entry)| entry.home() == node)
            .collect();
        if !lost.is_empty() && !accept_loss {
            let names = lost.iter().map(|(_, it)| named(&it.record));
            return Err(unsupported(has_topics(node, names)));
        }
        records.extend(lost.iter().map(|(id, _)| Record::TopicDeleted(**id)));
    }
    records.push(Record::Node(NodeRecord {
        state,
        ..known.clone()
    }));
    let decided = Decided::Answered(caller);
    lent.commands.submit(records, decided, lent.ctx);
    Ok(())
}

/// A topic that would be lost. What is known of a spread topic is on one node, and its partitions elsewhere are not found without.
fn named(record: &TopicRecord) -> String {
    let definition = Definition::from_json(&record.definition).ok();
    let count = definition.and_then(|it| Some(it.spread()?.count()));
    match count {
        None | Some(0) => format!("{:?}", record.name),
        Some(count) => format!("{:?} with all its {count} partitions", record.name),
    }
}

/// Why a node is not removed that has these topics.
fn has_topics(node: NodeId, names: impl ExactSizeIterator<Item = String>) -> String {
    let count = names.len();
    let named: Vec<String> = names.take(NAMED_MAX).collect();
    format!(
        "node {node} has {count} topic{} ({}{}), which would be lost: start its server again, or accept the loss",
        if count == 1 { "" } else { "s" },
        named.join(", "),
        if count > NAMED_MAX { ", …" } else { "" }
    )
}
