//! What the server's executor runs on in a simulation: the virtual clock, the simulated
//! network, and a disk of which operations and jobs complete later, in an order that the
//! seed chooses.

use crate::leaders::Leaders;
use crate::machine::MachinePlan;
use crate::mailbox::Mailbox;
use crate::planted::Planted;
use crate::random::Random;
use crate::trace::{Trace, Violation};
use crate::wired::{Notified, Wired};
use crate::witness::Witness;
use broker::node::{Input, Job, JobId, Now, StorageId};
use broker::{AuditRecord, Line};
use log::testing::FaultyDisk;
use log::{Disk, DiskError, Operation, OperationToken, Outcome};
use net::{
    BulkToken, Capabilities, Link, LinkEvent, LinkId, Listener, ListenerId, Message, Peer,
    ReactorEvent, RegionRead, RegionWrite,
};
use server::environment::Environment;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use wire::NodeId;
use wire::table::TableMessage;

const UNIX_NS: u64 = 1_700_000_000_000_000_000;
const LISTENER: ListenerId = ListenerId(1);

/// The time `now`, nanoseconds since the simulation began, as a node takes it.
pub(crate) fn time(now: u64) -> Now {
    Now {
        monotonic: Duration::from_nanos(now),
        unix_ns: UNIX_NS + now,
    }
}

/// See the module. Lives as long as one run of the server.
pub(crate) struct Ground {
    /// The server's name, for the trace.
    name: String,
    now: u64,
    disk: Arc<FaultyDisk>,
    plan: MachinePlan,
    listener: Box<dyn Listener>,
    notified: Notified,
    /// Connections that were taken, and of which the executor does not know yet.
    arrived: VecDeque<LinkId>,
    links: BTreeMap<LinkId, Wired>,
    /// Links that are to be polled, each once, in the order of their turns.
    to_poll: VecDeque<LinkId>,
    last_link: u64,
    operations: Vec<Pending>,
    jobs: Vec<(u64, JobId, Job)>,
    random: Random,
    trace: Trace,
    witness: Rc<RefCell<Option<Witness>>>,
    leaders: Rc<RefCell<Leaders>>,
    mailbox: Mailbox,
    violation: Option<Violation>,
}

struct Pending {
    due: u64,
    storage: StorageId,
    token: OperationToken,
    operation: Operation,
}

impl Ground {
    /// The ground of one run of the server, counted by `run`.
    #[allow(clippy::too_many_arguments)] // what a machine lends to each of its runs
    pub(crate) fn new(
        name: &str,
        now: u64,
        run: u64,
        disk: Arc<FaultyDisk>,
        plan: MachinePlan,
        mut listener: Box<dyn Listener>,
        random: Random,
        trace: Trace,
        witness: Rc<RefCell<Option<Witness>>>,
        leaders: Rc<RefCell<Leaders>>,
        mailbox: Mailbox,
    ) -> Self {
        let notified = Notified::new();
        listener.attach(notified.notify());
        Self {
            name: name.to_owned(),
            now,
            disk,
            plan,
            listener,
            notified,
            arrived: VecDeque::new(),
            links: BTreeMap::new(),
            to_poll: VecDeque::new(),
            // Never used again, in no run.
            last_link: run << 32,
            operations: Vec::new(),
            jobs: Vec::new(),
            random,
            trace,
            witness,
            leaders,
            mailbox,
            violation: None,
        }
    }

    pub(crate) fn set_time(&mut self, now: u64) {
        self.now = now;
    }

    /// What must not have happened, if it has.
    pub(crate) fn violation(&mut self) -> Result<(), Violation> {
        self.violation.take().map_or(Ok(()), Err)
    }

    /// When the next operation or job is done.
    pub(crate) fn next_done(&self) -> Option<u64> {
        let operations = self.operations.iter().map(|pending| pending.due);
        let jobs = self.jobs.iter().map(|(due, _, _)| *due);
        operations.chain(jobs).min()
    }

    /// The process ends here: each operation that the disk has not done yet is done, or
    /// half done, or never.
    pub(crate) fn crash(mut self) {
        for pending in self.operations {
            match self.random.below(3) {
                0 => {}
                1 => {
                    let part = self.random.below(5000);
                    self.disk.execute_in_part(&pending.operation, part);
                }
                _ => drop(self.disk.execute(pending.operation)),
            }
        }
    }

    fn accept(&mut self) {
        if !self.notified.take() {
            return;
        }
        loop {
            let link = match self.listener.accept() {
                Ok(Some(link)) => link,
                Ok(None) => return,
                Err(error) => {
                    self.violation = Some(Violation(format!("accepting fails: {error}")));
                    return;
                }
            };
            self.last_link += 1;
            let id = LinkId(self.last_link);
            self.trace.say(self.now, || {
                let (name, address) = (&self.name, &link.peer().address);
                format!("{name}: accepts {address} as {id:?}")
            });
            self.links.insert(id, Wired::new(link));
            self.arrived.push_back(id);
        }
    }

    /// The link, to ask something of it: it has its turn after that.
    fn ask(&mut self, id: LinkId) -> Option<&mut dyn Link> {
        let wired = self.links.get_mut(&id)?;
        if !self.to_poll.contains(&id) {
            self.to_poll.push_back(id);
        }
        Some(&mut *wired.link)
    }

    /// Carries out an operation, unless a planted fault skips it.
    fn carry_out(&self, operation: Operation) -> Result<Outcome, DiskError> {
        let skipped = match (&operation, self.plan.planted) {
            (Operation::SyncData { .. }, Some(Planted::NoSync)) => true,
            (Operation::SyncDirectory { .. }, Some(Planted::NoDirectorySync)) => true,
            (Operation::SyncData { file }, Some(Planted::NoDataSync)) => {
                let path = self.disk.path_of(*file);
                path.is_some_and(|path| path.extension().is_some_and(|ending| ending == "data"))
            }
            _ => false,
        };
        let result = match skipped {
            true => Ok(Outcome::Done),
            false => self.disk.execute(operation),
        };
        self.trace.say(self.now, || match &result {
            Ok(_) => format!("{}: disk: {:?}", self.name, self.disk.trace().pop()),
            Err(error) => format!("{}: disk: {error}", self.name),
        });
        result
    }

    fn pop_due_operation(&mut self) -> Option<Pending> {
        let due = self.operations.iter().enumerate();
        let due = due.filter(|(_, pending)| pending.due <= self.now);
        let (index, _) = due.min_by_key(|(index, pending)| (pending.due, *index))?;
        Some(self.operations.remove(index))
    }
}

fn syncs(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::SyncData { .. } | Operation::SyncDirectory { .. }
    )
}

impl Environment for Ground {
    fn now(&mut self) -> Now {
        time(self.now)
    }

    fn is_turn_over(&mut self, _: Duration, _: Duration) -> bool {
        // The virtual time stands still within a turn.
        self.random.one_in(self.plan.turn_ends_one_in)
    }

    fn interrupts(&self) -> bool {
        false
    }

    fn next_event(&mut self) -> Option<ReactorEvent> {
        self.accept();
        if let Some(link) = self.arrived.pop_front() {
            let listener = LISTENER;
            return Some(ReactorEvent::Accepted { listener, link });
        }
        loop {
            let Some(&id) = self.to_poll.front() else {
                let notified = self.links.iter().filter(|(_, wired)| wired.is_notified());
                self.to_poll.extend(notified.map(|(id, _)| *id));
                if self.to_poll.is_empty() {
                    return None;
                }
                continue;
            };
            let event = self.links.get_mut(&id).and_then(|wired| wired.link.poll());
            let Some(event) = event else {
                self.to_poll.pop_front();
                continue;
            };
            match &event {
                LinkEvent::Message(message) => {
                    let link = broker::node::LinkId(id.0);
                    self.leaders.borrow_mut().received(link, message);
                    if let Some(witness) = &mut *self.witness.borrow_mut() {
                        witness.received(self.now, link, message);
                    }
                }
                LinkEvent::Down(reason) => {
                    let name = &self.name;
                    self.trace
                        .say(self.now, || format!("{name}: {id:?} is down: {reason}"));
                }
                _ => {}
            }
            return Some(ReactorEvent::Link { link: id, event });
        }
    }

    fn take_done(&mut self, done: &mut Vec<Input>) {
        while let Some(pending) = self.pop_due_operation() {
            let result = self.carry_out(pending.operation);
            done.push(Input::DiskDone {
                storage: pending.storage,
                token: pending.token,
                result,
            });
        }
        while let Some(index) = self.jobs.iter().position(|(due, _, _)| *due <= self.now) {
            let (_, job, work) = self.jobs.remove(index);
            let result = work.run();
            done.push(Input::JobDone { job, result });
        }
        if self.mailbox.is_full() {
            done.extend(self.mailbox.hear_all().into_iter().map(Input::Peer));
        }
    }

    fn execute(&mut self, operation: Operation) -> Result<Result<Outcome, DiskError>, Operation> {
        match !syncs(&operation) && self.random.one_in(self.plan.inline_one_in) {
            true => Ok(self.carry_out(operation)),
            false => Err(operation),
        }
    }

    fn start_operation(&mut self, storage: StorageId, token: OperationToken, operation: Operation) {
        let takes = match syncs(&operation) {
            true => self.plan.sync_ns.clone(),
            false => self.plan.operation_ns.clone(),
        };
        self.operations.push(Pending {
            due: self.now + self.random.within(takes),
            storage,
            token,
            operation,
        });
    }

    fn start_job(&mut self, job: JobId, work: Job) {
        let takes = self.random.within(self.plan.sync_ns.clone());
        self.jobs.push((self.now + takes, job, work));
    }

    fn peer(&self, link: LinkId) -> Option<(&Peer, &Capabilities)> {
        let link = &self.links.get(&link)?.link;
        Some((link.peer(), link.capabilities()))
    }

    fn remove_link(&mut self, link: LinkId) -> Option<Peer> {
        let removed = self.links.remove(&link)?;
        Some(removed.link.peer().clone())
    }

    fn observe_output(&mut self, link: LinkId, message: &Message) {
        let link = broker::node::LinkId(link.0);
        self.leaders.borrow_mut().sent(link, message);
        if let Some(witness) = &mut *self.witness.borrow_mut() {
            witness.sent(self.now, link, message);
        }
    }

    fn send(&mut self, link: LinkId, message: Message) -> Option<u64> {
        let link = self.ask(link)?;
        link.send(message);
        Some(link.queued_bytes())
    }

    fn read(&mut self, link: LinkId, token: BulkToken, read: RegionRead) {
        if let Some(link) = self.ask(link) {
            link.read(token, read);
        }
    }

    fn write(&mut self, link: LinkId, token: BulkToken, write: RegionWrite) {
        if let Some(link) = self.ask(link) {
            link.write(token, write);
        }
    }

    fn close(&mut self, id: LinkId, reason: &str) {
        let name = &self.name;
        self.trace
            .say(self.now, || format!("{name}: closes {id:?}: {reason}"));
        if let Some(link) = self.ask(id) {
            link.close(reason);
        }
    }

    fn queued_bytes(&self, link: LinkId) -> Option<u64> {
        Some(self.links.get(&link)?.link.queued_bytes())
    }

    fn serve_first(&mut self, link: LinkId) {
        self.ask(link);
    }

    fn describe_limit(&self) -> String {
        "the simulation has no limit".to_owned()
    }

    fn report(&mut self, line: &Line) {
        let (name, text) = (&self.name, &line.text);
        self.trace.say(self.now, || format!("{name}: {text}"));
    }

    fn audit(&mut self, record: AuditRecord) {
        self.trace
            .say(self.now, || format!("audit: {}", record.to_line()));
    }

    fn send_to_node(&mut self, _: NodeId, message: TableMessage) {
        // There is the one that leads, and no other.
        self.mailbox.say(message);
    }
}
