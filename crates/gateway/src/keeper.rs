//! Who keeps one instance: a task that hands its life what happens, and carries out what that says.

use crate::clock::Clock;
use crate::directory::Directory;
use crate::error::GatewayError;
use crate::faults::{Fault, planted};
use crate::hook;
use crate::life::{Act, Bounds, Event, Life, State};
use crate::names::InstanceName;
use crate::options::{Launch, Limits};
use crate::process::{Endpoints, Happened, Running};
use crate::record::Record;
use crate::report::Report;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Requests that wait for a keeper at most.
const MAILBOX: usize = 64;
/// How soon files that could not be moved aside are tried again.
const ARCHIVE_AGAIN: Duration = Duration::from_secs(10);

/// What is to be known of an instance.
#[derive(Debug, Clone)]
pub struct View {
    /// What is kept of it.
    pub record: Arc<Record>,
    /// Where it is in its life.
    pub state: State,
    /// Where its server listens, while it serves.
    pub endpoints: Option<Endpoints>,
    /// Why it failed last.
    pub why: Option<String>,
}

#[derive(Debug)]
enum Request {
    Want,
    Extend(oneshot::Sender<Result<(), String>>),
    Remove(oneshot::Sender<Result<(), String>>),
    Leave,
}

/// What every keeper needs.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The gateway's directory.
    pub directory: Arc<Directory>,
    /// How instances are started.
    pub launch: Arc<Launch>,
    /// The domain of their names.
    pub domain: String,
    /// The command that is called when one serves.
    pub on_ready: Option<Arc<hook::OnReady>>,
    /// Whether they go on when the gateway ends.
    pub leave_instances: bool,
    /// Bounds.
    pub limits: Limits,
    /// The time.
    pub clock: Clock,
    /// Lines for the operator.
    pub report: Report,
}

/// An instance, for those who ask for it.
#[derive(Debug)]
pub struct Instance {
    name: InstanceName,
    folder: PathBuf,
    requests: mpsc::Sender<Request>,
    view: watch::Receiver<View>,
    use_: Arc<Use>,
}

/// Who uses an instance.
#[derive(Debug, Default)]
struct Use {
    /// Connections that are open.
    open: AtomicUsize,
    /// When the last one was, since the gateway's start, milliseconds.
    last_ms: AtomicU64,
}

/// A connection to an instance, for as long as it lives.
#[derive(Debug)]
pub struct Used {
    use_: Arc<Use>,
    clock: Clock,
}

impl Drop for Used {
    fn drop(&mut self) {
        let now = self.clock.now().as_millis() as u64;
        // The time first: who sees no connection sees when the last one was.
        self.use_.last_ms.store(now, Ordering::Release);
        self.use_.open.fetch_sub(1, Ordering::Release);
    }
}

impl Instance {
    /// Which one.
    pub fn name(&self) -> &InstanceName {
        &self.name
    }

    /// Its folder.
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// What is known of it now.
    pub fn view(&self) -> View {
        self.view.borrow().clone()
    }

    /// Notes that somebody uses it.
    pub fn used(&self, clock: &Clock) -> Used {
        self.use_.open.fetch_add(1, Ordering::Release);
        Used {
            use_: self.use_.clone(),
            clock: clock.clone(),
        }
    }

    /// How many use it.
    pub fn open(&self) -> usize {
        self.use_.open.load(Ordering::Acquire)
    }

    /// Waits until it serves, and has it started if it does not; no longer than so.
    ///
    /// # Errors
    /// Says why it does not serve.
    pub async fn serving(&self, wait: Duration) -> Result<View, String> {
        let mut view = self.view.clone();
        let until_it_serves = async {
            loop {
                let now = view.borrow_and_update().clone();
                match now.state {
                    State::Ready { .. } if now.endpoints.is_some() => return Ok(now),
                    State::Archived => return Err("its time is over".to_owned()),
                    State::Provisioned | State::Stopping { .. } => {
                        // A full mailbox has somebody's request already.
                        let _ = self.requests.try_send(Request::Want);
                    }
                    State::Starting { .. } | State::Ready { .. } | State::Failed { .. } => {}
                }
                if view.changed().await.is_err() {
                    return Err("its time is over".to_owned());
                }
            }
        };
        match tokio::time::timeout(wait, until_it_serves).await {
            Ok(result) => result,
            Err(_) => {
                let view = self.view();
                let why = view
                    .why
                    .unwrap_or_else(|| format!("it is {}", view.state.name()));
                Err(format!(
                    "it does not serve after {} s: {why}",
                    wait.as_secs_f64()
                ))
            }
        }
    }

    /// Counts its life anew; durable when it returns.
    ///
    /// # Errors
    /// Says why not.
    pub async fn extend(&self) -> Result<(), String> {
        self.ask(Request::Extend).await
    }

    /// Deletes it: durably decided when it returns, and done once its process has ended.
    ///
    /// # Errors
    /// Says why not.
    pub async fn remove(&self) -> Result<(), String> {
        self.ask(Request::Remove).await
    }

    /// Waits until its files were moved aside, no longer than so.
    pub async fn gone(&self, wait: Duration) {
        let mut view = self.view.clone();
        let gone = async { while view.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(wait, gone).await;
    }

    async fn ask(
        &self,
        request: impl FnOnce(oneshot::Sender<Result<(), String>>) -> Request,
    ) -> Result<(), String> {
        let over = "its time is over";
        let (answer, answered) = oneshot::channel();
        let sent = self.requests.send(request(answer)).await;
        sent.map_err(|_| over.to_owned())?;
        answered.await.map_err(|_| over.to_owned())?
    }

    /// Ends it with the gateway, or leaves it.
    pub async fn leave(&self) {
        let _ = self.requests.send(Request::Leave).await;
        let mut view = self.view.clone();
        while view.changed().await.is_ok() {}
    }
}

/// Begins to keep an instance; `wanted` starts it at once. It ends when its files were moved aside, or with the
/// gateway; `on_end` is called then, before those who wait for the end go on.
pub fn keep(
    record: Record,
    wanted: bool,
    around: &Surroundings,
    on_end: impl FnOnce() + Send + 'static,
) -> Arc<Instance> {
    let name = record.instance();
    let folder = around.directory.folder(&name);
    let (requests, mailbox) = mpsc::channel(MAILBOX);
    let use_ = Arc::new(Use::default());
    let bounds = Bounds {
        start: around.limits.start,
        stop: around.limits.stop,
        idle: around.limits.rest,
    };
    let mut keeper = Keeper {
        host: format!("{}.{}", name.label(), around.domain),
        folder: folder.clone(),
        life: Life::new(bounds),
        running: None,
        endpoints: None,
        why: None,
        use_: use_.clone(),
        around: around.clone(),
        name: name.clone(),
        record,
    };
    keeper.find_again(bounds);
    let (publish, view) = watch::channel(keeper.view());
    let wanted = wanted || (keeper.record.runs && keeper.running.is_none());
    tokio::spawn(async move {
        keeper.run(wanted, mailbox, &publish).await;
        on_end();
        drop(publish);
    });
    Arc::new(Instance {
        name,
        folder,
        requests,
        view,
        use_,
    })
}

struct Keeper {
    name: InstanceName,
    host: String,
    folder: PathBuf,
    record: Record,
    life: Life,
    running: Option<Running>,
    endpoints: Option<Endpoints>,
    why: Option<String>,
    use_: Arc<Use>,
    around: Surroundings,
}

/// What a keeper hears next.
enum Heard {
    Process(Happened),
    Request(Request),
    /// Nobody asks any more, for the gateway is gone.
    Nobody,
    Time,
}

impl Keeper {
    fn view(&self) -> View {
        View {
            record: Arc::new(self.record.clone()),
            state: self.life.state(),
            endpoints: self.endpoints.clone(),
            why: self.why.clone(),
        }
    }

    fn say(&self, text: &str) {
        self.around
            .report
            .line(format!("instance {}: {text}", self.name));
    }

    /// Takes up a process that the gateway before has left, or one that it did not come to note.
    fn find_again(&mut self, bounds: Bounds) {
        let noted = self.record.process.and_then(Running::find);
        let found = noted.or_else(|| Running::holder(&self.folder).and_then(Running::find));
        let Some(running) = found else {
            return;
        };
        match Endpoints::in_folder(&self.folder) {
            Ok(endpoints) => {
                self.endpoints = Some(endpoints);
                self.life = Life::adopted(bounds, self.around.clock.now());
                self.say(&format!("its process {} goes on", running.process().pid));
                self.running = Some(running);
            }
            Err(why) => {
                // It was starting or ending: who it is to clients is not known.
                self.say(&format!(
                    "its process {} is ended and started anew: {why}",
                    running.process().pid
                ));
                running.kill();
            }
        }
    }

    async fn run(
        mut self,
        wanted: bool,
        mut mailbox: mpsc::Receiver<Request>,
        publish: &watch::Sender<View>,
    ) {
        let first = match (self.record.removed, wanted) {
            (true, _) => Some(Event::Remove),
            (false, true) => Some(Event::Wanted),
            (false, false) => None,
        };
        if let Some(event) = first {
            self.happens(event).await;
        }
        let mut is_leaving = false;
        loop {
            let _ = publish.send(self.view());
            let state = self.life.state();
            if state == State::Archived || (is_leaving && state == State::Provisioned) {
                return;
            }
            match self.hear(&mut mailbox).await {
                Heard::Nobody => return,
                Heard::Process(Happened::Serves) => self.serves().await,
                Heard::Process(Happened::Ended(why)) => self.ended(why).await,
                Heard::Time => self.time_passes().await,
                Heard::Request(Request::Want) => self.happens(Event::Wanted).await,
                Heard::Request(Request::Extend(answer)) => {
                    let done = self.extend().await;
                    // The life is published before the answer.
                    let _ = publish.send(self.view());
                    let _ = answer.send(done);
                }
                Heard::Request(Request::Remove(answer)) => {
                    let done = self.remove().await;
                    let _ = answer.send(done);
                }
                Heard::Request(Request::Leave) if self.around.leave_instances => return,
                Heard::Request(Request::Leave) => {
                    is_leaving = true;
                    self.happens(Event::Leave).await;
                }
            }
        }
    }

    async fn hear(&mut self, mailbox: &mut mpsc::Receiver<Request>) -> Heard {
        let now = self.around.clock.now();
        let due = self.life.due().map(|due| due.saturating_sub(now));
        let wait = due.map_or(self.around.limits.look, |due| {
            due.min(self.around.limits.look)
        });
        let process = async {
            match &mut self.running {
                Some(running) => running.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            happened = process => Heard::Process(happened),
            request = mailbox.recv() => request.map_or(Heard::Nobody, Heard::Request),
            () = tokio::time::sleep(wait) => Heard::Time,
        }
    }

    async fn happens(&mut self, event: Event) {
        let acts = self.life.handle(self.around.clock.now(), event);
        for act in acts {
            self.carry_out(act).await;
        }
    }

    async fn carry_out(&mut self, act: Act) {
        match act {
            Act::Start => self.start().await,
            Act::Terminate => self.running.iter().for_each(Running::terminate),
            Act::Kill => {
                self.say("it takes too long, and is killed");
                self.running.iter().for_each(Running::kill);
            }
            Act::Announce => self.announce().await,
            Act::Archive => self.archive().await,
        }
    }

    async fn start(&mut self) {
        self.record.runs = true;
        let started = Running::start(&self.around.launch, &self.host, &self.folder, &self.record);
        match started {
            Ok(running) => {
                self.record.process = Some(running.process());
                self.running = Some(running);
                // Where it cannot be written, the next gateway finds the process by its lock.
                if let Err(error) = self.write().await {
                    self.say(&error.to_string());
                }
            }
            Err(error) => {
                self.why = Some(error.to_string());
                self.say(&error.to_string());
                // As one that ended at once: it is tried again, later and later.
                self.life.handle(self.around.clock.now(), Event::Ended);
            }
        }
    }

    async fn serves(&mut self) {
        match Endpoints::in_folder(&self.folder) {
            Ok(endpoints) => {
                self.record.certificates.clone_from(&endpoints.certificates);
                self.endpoints = Some(endpoints);
                self.why = None;
                self.happens(Event::Serves).await;
            }
            Err(why) => {
                self.why = Some(format!("where it listens is not known: {why}"));
                self.say(&format!(
                    "it is ended, for where it listens is not known: {why}"
                ));
                self.running.iter().for_each(Running::kill);
            }
        }
    }

    async fn ended(&mut self, how: String) {
        self.running = None;
        self.endpoints = None;
        self.record.process = None;
        let was = self.life.state();
        let acts = self.life.handle(self.around.clock.now(), Event::Ended);
        match self.life.state() {
            State::Failed { again } => {
                let wait = again.saturating_sub(self.around.clock.now()).as_secs_f64();
                let log = self.folder.join("log");
                self.say(&format!(
                    "{how}; its log is {}; it is started again in {wait:.1} s",
                    log.display()
                ));
                self.why = Some(how);
            }
            State::Provisioned => {
                // A gateway that ends stops it, and the next one starts it again.
                self.record.runs = matches!(
                    was,
                    State::Stopping {
                        then: crate::life::Then::Leave,
                        ..
                    }
                );
                if let Err(error) = self.write().await {
                    self.say(&error.to_string());
                }
            }
            _ => {}
        }
        for act in acts {
            self.carry_out(act).await;
        }
    }

    async fn announce(&mut self) {
        let is_first = !std::mem::replace(&mut self.record.announced, true);
        if let Err(error) = self.write().await {
            self.say(&error.to_string());
        }
        if let Some(on_ready) = self.around.on_ready.clone().filter(|_| is_first) {
            on_ready.call(&self.view(), &self.folder, &self.around.report);
        }
    }

    async fn time_passes(&mut self) {
        let is_over =
            self.around.clock.unix() >= self.record.expires_at && !planted(Fault::NeverExpires);
        if is_over && !self.record.removed {
            self.say("its time is over");
            if let Err(why) = self.remove().await {
                self.say(&why);
            }
            return;
        }
        self.happens(Event::Tick).await;
        if self.use_.open.load(Ordering::Acquire) == 0 {
            let State::Ready { since } = self.life.state() else {
                return;
            };
            let last = Duration::from_millis(self.use_.last_ms.load(Ordering::Acquire));
            let quiet = self.around.clock.now().saturating_sub(last.max(since));
            self.happens(Event::Idle(quiet)).await;
        }
    }

    async fn extend(&mut self) -> Result<(), String> {
        if self.record.removed {
            return Err("its time is over".to_owned());
        }
        let before = self.record.clone();
        self.record.extend(self.around.clock.unix());
        if let Err(error) = self.write().await {
            self.record = before;
            return Err(error.to_string());
        }
        Ok(())
    }

    async fn remove(&mut self) -> Result<(), String> {
        self.record.removed = true;
        if let Err(error) = self.write().await {
            self.record.removed = false;
            return Err(error.to_string());
        }
        self.happens(Event::Remove).await;
        Ok(())
    }

    async fn archive(&mut self) {
        loop {
            let (directory, name) = (self.around.directory.clone(), self.name.clone());
            let now = self.around.clock.unix();
            let moved = tokio::task::spawn_blocking(move || directory.archive(&name, now)).await;
            match moved.expect("moving files does not panic") {
                Ok(to) => return self.say(&format!("it is archived in {}", to.display())),
                Err(error) => self.say(&format!("it is not archived yet: {error}")),
            }
            tokio::time::sleep(ARCHIVE_AGAIN).await;
        }
    }

    async fn write(&self) -> Result<(), GatewayError> {
        let (directory, record) = (self.around.directory.clone(), self.record.clone());
        let written = tokio::task::spawn_blocking(move || directory.keep(&record)).await;
        written.expect("writing a file does not panic")
    }
}
