//! What an executor runs on: a clock, links, a disk and threads. The server's is the
//! operating system (`system`); the simulation has one of its own.

use broker::node::{Input, Job, JobId, Now, StorageId};
use broker::{AuditRecord, Line};
use log::{DiskError, Operation, OperationToken, Outcome};
use net::{BulkToken, Capabilities, LinkId, Message, Peer, ReactorEvent, RegionRead, RegionWrite};
use std::time::Duration;
use wire::NodeId;
use wire::table::TableMessage;

/// How long inputs are taken before what they led to is sent: many frames then cost one
/// system call, and none waits noticeably longer.
const TURN: Duration = Duration::from_micros(500);

/// What an executor runs on. No call waits for anything.
pub trait Environment {
    /// The time; both halves never go back.
    fn now(&mut self) -> Now;

    /// Whether a turn that began at `began` sends now what it has gathered. Both are times
    /// of [`Environment::now`].
    fn is_turn_over(&mut self, began: Duration, now: Duration) -> bool {
        now - began >= TURN
    }

    /// Whether the executor is to return to its caller, though there is more to do.
    fn interrupts(&self) -> bool;

    /// The next thing that happened to a link or a listener.
    fn next_event(&mut self) -> Option<ReactorEvent>;

    /// Appends what came of operations and jobs, in the order in which they were done.
    fn take_done(&mut self, done: &mut Vec<Input>);

    /// Carries out an operation here, or gives it back if it waits for a device.
    #[allow(clippy::result_large_err)] // it is not an error, and goes on to `start_operation`
    fn execute(&mut self, operation: Operation) -> Result<Result<Outcome, DiskError>, Operation>;

    /// Has an operation carried out elsewhere; [`Environment::take_done`] has its outcome.
    fn start_operation(&mut self, storage: StorageId, token: OperationToken, operation: Operation);

    /// Has a job done elsewhere; [`Environment::take_done`] has its outcome.
    fn start_job(&mut self, job: JobId, work: Job);

    /// Who is at the other end of a link, and what its transport can do. `None` if the link
    /// is gone.
    fn peer(&self, link: LinkId) -> Option<(&Peer, &Capabilities)>;

    /// Ends a link without a word. Its peer, if the link was still there.
    fn remove_link(&mut self, link: LinkId) -> Option<Peer>;

    /// The node has put out a message, which is sent at the end of the turn: for those who
    /// watch the node, in the order in which it takes and puts out.
    fn observe_output(&mut self, _link: LinkId, _message: &Message) {}

    /// Queues a message, and returns how many bytes wait on the link. `None` if it is gone:
    /// the message is dropped.
    fn send(&mut self, link: LinkId, message: Message) -> Option<u64>;

    /// Reads a client's memory; as [`net::Link::read`]. Nothing if the link is gone.
    fn read(&mut self, link: LinkId, token: BulkToken, read: RegionRead);

    /// Writes into a client's memory; as [`net::Link::write`]. Nothing if the link is gone.
    fn write(&mut self, link: LinkId, token: BulkToken, write: RegionWrite);

    /// Sends in chunks what is for a link from here on; as [`net::Link::striped`].
    fn stripe(&mut self, _link: LinkId) {}

    /// Sends a last message on a link, and has it carry chunks of another one; as [`net::Link::join`]. False if that
    /// cannot be: it is gone then.
    fn join(&mut self, _link: LinkId, _stripe: LinkId, _welcome: Message) -> bool {
        false
    }

    /// A link has just come up, and goes on with frames or bytes, as its client has begun. Whether it speaks AMQP, and if
    /// so whether it came by TLS.
    fn begin(&mut self, _link: LinkId) -> Option<bool> {
        None
    }

    /// Takes nothing in of a link while it is held; as [`net::Link::hold`].
    fn hold(&mut self, _link: LinkId, _held: bool) {}

    /// Ends a link after what was sent; as [`net::Link::close`].
    fn close(&mut self, link: LinkId, reason: &str);

    /// Bytes that wait on a link to be handed to the network. `None` if it is gone.
    fn queued_bytes(&self, link: LinkId) -> Option<u64>;

    /// Has a link move its bytes before those that are asked for later in this turn.
    fn serve_first(&mut self, link: LinkId);

    /// A connection has come: how many others have to go for its descriptors.
    fn connection_came(&mut self) -> u64 {
        0
    }

    /// A connection could not be taken: how many others have to go.
    fn connection_failed(&mut self) -> u64 {
        0
    }

    /// What bounds the connections, for the operator.
    fn describe_limit(&self) -> String;

    /// A line for the operator.
    fn report(&mut self, line: &Line);

    /// A record for the audit trail. Does not wait.
    fn audit(&mut self, record: AuditRecord);

    /// Sends a message to another node of the table. A node that is alone has none to send to.
    fn send_to_node(&mut self, _node: NodeId, _message: TableMessage) {}
}
