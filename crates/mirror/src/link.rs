//! A link at work: sessions, one after the other, until somebody wants an end.
//!
//! ```text
//!  Opening ──both sides, topics, where the copies are──► Copying ──stop──► Ending ──► over
//!     ▲                                                     │
//!     └──────────── Waiting (why, in words) ◄──────────────┘ whatever time may heal, of all topics
//!
//!  a topic:   Works ──what time may heal──► Waits ──its pause is over, and it opens──► Works
//! ```

use crate::flow::Flow;
use crate::lane::{Lane, Shared, fetch_bytes, notify};
use crate::progress::{Lag, LinkState, Progress};
use crate::setup::{self, Pair, at_copy, at_source, consumer};
use crate::trouble::{LinkError, Trouble, trouble};
use client::{
    ClientError, Driver, DriverOptions, Endpoint, MirrorPosition, Offset, PartitionIndex, Pending,
    Position, TopicDescription,
};
use net::Bucket;
use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a link waits before it begins anew, at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often the link reports to the source how far its events are durable at the copy.
const ACKNOWLEDGE_EVERY: Duration = Duration::from_millis(200);
/// How often it is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long an end waits for what is under way.
const END_WITHIN: Duration = Duration::from_secs(5);
/// With an answer so late, a server is away.
const AWAY_AFTER: Duration = Duration::from_secs(3);

/// A server that a link dials.
#[derive(Debug, Clone)]
pub struct Side {
    /// What errors call it.
    pub name: String,
    /// Where it is.
    pub endpoint: Endpoint,
    /// How it is reached, and as whom.
    pub options: DriverOptions,
}

/// A topic at the source, and what it is called at the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirroredTopic {
    /// Its name at the source.
    pub source: String,
    /// The name of the mirror.
    pub copy: String,
}

/// What a link copies, and how.
#[derive(Debug, Clone)]
pub struct LinkOptions {
    /// Its name, the same whenever it is started: at the source it is the consumer `link/NAME`.
    pub name: String,
    /// The topics.
    pub topics: Vec<MirroredTopic>,
    /// Bytes a second that are sent at most.
    pub rate: Option<u64>,
    /// Bytes that are fetched and not stored at most; large data of one batch that is longer is
    /// held alone.
    pub held_bytes_max: u64,
    /// Whether events whose data the source cannot read any more are left out: they are a gap of the copy.
    /// Without it they end the link.
    pub skips_damaged: bool,
    /// How often [`Link::run`] reports.
    pub report_every: Duration,
}

/// Ends a link, from any thread.
#[derive(Clone, Default)]
pub struct Stop(Arc<Signal>);

#[derive(Default)]
struct Signal {
    state: Mutex<SignalState>,
    changed: Condvar,
}

#[derive(Default)]
struct SignalState {
    is_stopped: bool,
    /// Something came since somebody looked.
    has_news: bool,
}

impl Stop {
    /// What is sent is waited for, for a little; what was not will be by the next run.
    pub fn stop(&self) {
        self.0.state.lock().expect("no holder panics").is_stopped = true;
        self.0.changed.notify_all();
    }

    fn is_stopped(&self) -> bool {
        self.0.state.lock().expect("no holder panics").is_stopped
    }

    pub(crate) fn wake(&self) {
        self.0.state.lock().expect("no holder panics").has_news = true;
        self.0.changed.notify_all();
    }

    /// Waits for news, or an end.
    pub(crate) fn wait(&self, longest: Duration) {
        let state = self.0.state.lock().expect("no holder panics");
        let is_quiet = |state: &mut SignalState| !state.has_news && !state.is_stopped;
        let waited = self.0.changed.wait_timeout_while(state, longest, is_quiet);
        waited.expect("no holder panics").0.has_news = false;
    }

    /// Waits for an end.
    fn pause(&self, longest: Duration) {
        let state = self.0.state.lock().expect("no holder panics");
        let goes_on = |state: &mut SignalState| !state.is_stopped;
        drop(self.0.changed.wait_timeout_while(state, longest, goes_on));
    }
}

/// See the module.
pub struct Link<'a> {
    from: Side,
    to: Side,
    options: LinkOptions,
    stop: Stop,
    report: Box<dyn FnMut(&Progress) + 'a>,
    source: Option<Driver>,
    copy: Option<Driver>,
    shared: Shared,
    state: LinkState,
    cuts: u64,
    lag: Option<Lag>,
    notes: Vec<String>,
    noted: BTreeSet<String>,
    reported: (Instant, u64),
}

/// An acknowledgement under way: of which lanes, and how far they are.
type Acknowledging = (Vec<(usize, Position)>, Pending<()>);

/// A topic of a link, in a session.
struct Place {
    topic: MirroredTopic,
    standing: Standing,
    /// How long it waits when it fails next.
    pause: Duration,
}

/// Where a topic stands.
enum Standing {
    /// It is copied.
    Works(Box<Work>),
    /// Something keeps it, and not the others. It is opened anew then.
    Waits {
        until: Instant,
        why: String,
        /// How far it was behind when it was seen last.
        lag: Lag,
    },
}

/// A topic that is copied.
struct Work {
    pair: Pair,
    lanes: Vec<Lane>,
    acknowledging: Option<Acknowledging>,
    acknowledged_at: Instant,
    /// Whether either side still answers: the source, and the copy.
    looking: [Option<(Instant, Pending<TopicDescription>)>; 2],
    looked_at: Instant,
    /// Mean bytes of an event at the source.
    event_bytes: u64,
}

impl<'a> Link<'a> {
    /// A link that has not begun. `report` is called on the thread of [`Link::run`].
    pub fn new(
        (from, to): (Side, Side),
        options: LinkOptions,
        stop: Stop,
        report: impl FnMut(&Progress) + 'a,
    ) -> Self {
        let wake = {
            let stop = stop.clone();
            Arc::new(move || stop.wake())
        };
        let shared = Shared {
            wake,
            rate: Bucket::new(options.rate, Instant::now()),
            rate_at: None,
            held: 0,
            held_max: options.held_bytes_max,
            fetch_bytes: 0,
            opening: 0,
            skips_damaged: options.skips_damaged,
            unreadable: BTreeSet::new(),
            held_data: 0,
            events: 0,
            bytes: 0,
            skipped: 0,
        };
        Self {
            from,
            to,
            options,
            stop,
            report: Box::new(report),
            source: None,
            copy: None,
            shared,
            state: LinkState::Opening,
            cuts: 0,
            lag: None,
            notes: Vec::new(),
            noted: BTreeSet::new(),
            reported: (Instant::now(), 0),
        }
    }

    /// Copies until [`Stop::stop`], across cuts and restarts of both servers. Blocks.
    ///
    /// # Errors
    /// What time does not heal: a copy that is no mirror of the source, events that the source has
    /// lost and the copy has, who may not.
    pub fn run(&mut self) -> Result<(), LinkError> {
        let mut pause = PAUSE_MIN;
        loop {
            let copied = self.shared.events + self.shared.skipped;
            let why = match self.session() {
                Err(Trouble::Stopped) | Ok(()) => {
                    self.tell();
                    return Ok(());
                }
                Err(Trouble::Over(error)) => return Err(*error),
                Err(Trouble::Again(why)) => why,
            };
            if copied != self.shared.events + self.shared.skipped {
                pause = PAUSE_MIN;
            }
            self.shared.held = 0;
            self.shared.held_data = 0;
            // A driver that was refused for good is no more; another credential may be in the file by now.
            self.source.take_if(|driver| driver.has_ended());
            self.copy.take_if(|driver| driver.has_ended());
            self.cuts += 1;
            self.state = LinkState::Waiting(why);
            self.tell();
            self.stop.pause(pause);
            pause = (pause * 2).min(PAUSE_MAX);
            if self.stop.is_stopped() {
                return Ok(());
            }
        }
    }

    fn session(&mut self) -> Result<(), Trouble> {
        let source = match self.source.take() {
            Some(driver) => driver,
            None => setup::connect(&self.from)?,
        };
        self.source = Some(source.clone());
        let copy = match self.copy.take() {
            Some(driver) => driver,
            None => setup::connect(&self.to)?,
        };
        self.copy = Some(copy.clone());
        let mut places = Vec::new();
        for topic in self.options.topics.clone() {
            let opened = self.open((&source, &copy), &topic);
            let standing = match opened {
                Ok(work) => Standing::Works(Box::new(work)),
                Err(Trouble::Again(why)) => Standing::waits(why, PAUSE_MIN, Lag::default()),
                Err(other) => return Err(other),
            };
            places.push(Place {
                topic,
                standing,
                pause: PAUSE_MIN,
            });
        }
        self.state = LinkState::Copying;
        let ended = self.copying((&source, &copy), &mut places);
        works(&mut places).for_each(|work| work.cancel());
        ended
    }

    /// Begins, or begins anew, with one topic.
    fn open(
        &mut self,
        (source, copy): (&Driver, &Driver),
        topic: &MirroredTopic,
    ) -> Result<Work, Trouble> {
        let pair = setup::open((source, copy), topic, &self.options.name)?;
        self.note_retention(&pair);
        self.begin(pair)
    }

    /// Goes on with each topic. One that fails waits by itself, and is opened anew; if all do, the session is over.
    fn advance(
        &mut self,
        drivers: (&Driver, &Driver),
        places: &mut [Place],
        is_ending: bool,
    ) -> Result<bool, Trouble> {
        let mut advanced = false;
        for place in places.iter_mut() {
            let stored = self.shared.events + self.shared.skipped;
            let went = match &mut place.standing {
                Standing::Works(work) => {
                    let link = &self.options.name;
                    work.advance(&mut self.shared, link, is_ending)
                }
                Standing::Waits { until, .. } if is_ending || *until > Instant::now() => continue,
                Standing::Waits { .. } => self.open(drivers, &place.topic).map(|work| {
                    place.standing = Standing::Works(Box::new(work));
                    true
                }),
            };
            match went {
                Ok(went) => {
                    advanced |= went;
                    if stored != self.shared.events + self.shared.skipped {
                        place.pause = PAUSE_MIN;
                    }
                }
                Err(Trouble::Again(why)) => {
                    place.wait(why, &mut self.shared);
                    self.cuts += 1;
                }
                Err(other) => return Err(other),
            }
        }
        let waits = |place: &Place| matches!(place.standing, Standing::Waits { .. });
        match places.iter().all(waits) {
            true => Err(Trouble::Again(why(places).unwrap_or_default())),
            false => Ok(advanced),
        }
    }

    /// A source that does not wait for the link may drop what is not copied yet.
    fn note_retention(&mut self, pair: &Pair) {
        let definition = pair.source.definition_now();
        let name = consumer(&self.options.name);
        let keepers = definition.keep_until_acknowledged();
        let is_safe =
            definition.retention().keeps_all() && keepers.is_empty() || keepers.contains(&name);
        if is_safe || !self.noted.insert(pair.source.name().to_owned()) {
            return;
        }
        self.notes.push(format!(
            "{} keeps nothing for {name:?}: what its retention takes before it is copied is a gap of the copy \
             (keep_until_acknowledged keeps it)",
            at_source(pair)
        ));
    }

    /// Asks the copy where it is, and the source where it was read last.
    fn begin(&mut self, pair: Pair) -> Result<Work, Trouble> {
        self.shared.opening += 1;
        let name = self.options.name.clone();
        let positions = self.positions(&pair)?;
        let cursors = setup::cursors(&pair.source, &name)?;
        let (mut lanes, mut unknown) = (Vec::new(), Vec::new());
        for (described, at) in pair.described.partitions.iter().zip(&positions) {
            let known = cursors
                .iter()
                .find(|cursor| cursor.partition == at.partition)
                .map(|cursor| cursor.position);
            self.check_cursor(&pair, at, known)?;
            if known.is_none() {
                unknown.push((at.partition, setup::present(described, at.next)));
            }
            let life = match setup::is_same(&pair, at)? {
                Some(true) => described.incarnation,
                Some(false) => {
                    return Err(Trouble::refused(format!(
                        "{}/{}: the last events before {} are not those of the source; promote the copy \
                         (thalweg relay promote), and mirror to another one",
                        at_copy(&pair),
                        at.partition,
                        at.next
                    )));
                }
                None => known.map_or(described.incarnation, |known| known.incarnation),
            };
            let flow = Flow::new(pair.source.id(), (life, at.next), at.durable, known);
            lanes.push(Lane::new(
                at.partition,
                flow,
                described.watermarks.committed,
                self.shared.opening,
            ));
        }
        setup::announce(&pair, &name, &unknown)?;
        let now = Instant::now();
        Ok(Work {
            event_bytes: event_bytes(&pair.described),
            pair,
            lanes,
            acknowledging: None,
            acknowledged_at: now,
            looking: [None, None],
            looked_at: now,
        })
    }

    /// The source was told of a copy that has more than this one has.
    fn check_cursor(
        &mut self,
        pair: &Pair,
        at: &MirrorPosition,
        known: Option<Position>,
    ) -> Result<(), Trouble> {
        let Some(known) = known.filter(|known| known.offset > at.next) else {
            return Ok(());
        };
        let mut partitions = pair.copy_described.partitions.iter();
        let described = partitions.find(|one| one.partition == at.partition);
        let is_new =
            at.next == Offset(0) && described.is_none_or(|described| described.ended.is_empty());
        let what = format!("{}/{}", at_copy(pair), at.partition);
        if is_new {
            return Err(setup::other_copy(&what, &self.options.name, known.offset));
        }
        let note = format!(
            "{what} has lost its events from {} on, of which the source was told; what the source has kept is copied again, \
             up to {} there may be a gap",
            at.next, known.offset
        );
        if self.noted.insert(note.clone()) {
            self.notes.push(note);
        }
        Ok(())
    }

    /// Opens the mirror; what was appended and is not durable yet is waited for.
    fn positions(&mut self, pair: &Pair) -> Result<Vec<MirrorPosition>, Trouble> {
        let since = Instant::now();
        loop {
            let number = self.shared.opening;
            let opening = pair
                .copy
                .begin_open_mirror(&self.options.name, pair.source.id(), number);
            let opened = self.wait(opening)?;
            let opened = opened.map_err(|error| trouble(&at_copy(pair), error))?;
            let is_durable = |at: &MirrorPosition| at.durable == at.next;
            let late = opened.partitions.iter().find(|at| !is_durable(at));
            let Some(late) = late else {
                return Ok(opened.partitions);
            };
            if since.elapsed() > AWAY_AFTER {
                self.state = LinkState::Waiting(format!(
                    "{}/{} makes its events before {} durable, and has come to {}",
                    at_copy(pair),
                    late.partition,
                    late.next,
                    late.durable
                ));
                self.tell_now_and_then();
            }
            self.stop.pause(PAUSE_MIN / 10);
            self.check_stopped()?;
        }
    }

    fn check_stopped(&self) -> Result<(), Trouble> {
        match self.stop.is_stopped() {
            true => Err(Trouble::Stopped),
            false => Ok(()),
        }
    }

    /// Waits for an answer, and reports meanwhile.
    fn wait<T>(
        &mut self,
        mut pending: Pending<T>,
    ) -> Result<Result<T, client::ClientError>, Trouble> {
        notify(&pending, &self.shared);
        let since = Instant::now();
        loop {
            if let Some(outcome) = pending.try_get() {
                return Ok(outcome);
            }
            self.check_stopped()?;
            if since.elapsed() > AWAY_AFTER && self.state == LinkState::Opening {
                self.state = LinkState::Waiting("no answer yet".to_owned());
            }
            self.tell_now_and_then();
            self.stop.wait(self.options.report_every.min(LOOK_EVERY));
        }
    }

    fn copying(
        &mut self,
        drivers: (&Driver, &Driver),
        places: &mut [Place],
    ) -> Result<(), Trouble> {
        let mut ends_at = None;
        loop {
            if self.stop.is_stopped() && ends_at.is_none() {
                ends_at = Some(Instant::now() + END_WITHIN);
            }
            self.shared.rate_at = None;
            let lanes = works(places).map(|work| work.lanes.len()).sum();
            self.shared.fetch_bytes = fetch_bytes(self.shared.held_max, lanes);
            let advanced = self.advance(drivers, places, ends_at.is_some())?;
            self.lag = Some(lag(places));
            self.state = why(places).map_or(LinkState::Copying, LinkState::Waiting);
            self.tell_now_and_then();
            if let Some(at) = ends_at
                && (works(places).all(|work| work.is_settled()) || Instant::now() >= at)
            {
                return Ok(());
            }
            if !advanced {
                let mut longest = self.options.report_every.min(ACKNOWLEDGE_EVERY);
                if let Some(at) = self.shared.rate_at {
                    longest = longest.min(at.saturating_duration_since(Instant::now()));
                }
                match ends_at {
                    Some(_) => std::thread::sleep(Duration::from_millis(1)),
                    None => self.stop.wait(longest),
                }
            }
        }
    }

    fn tell_now_and_then(&mut self) {
        if self.reported.0.elapsed() >= self.options.report_every {
            self.tell();
        }
    }

    fn tell(&mut self) {
        let (at, bytes) = self.reported;
        let seconds = at.elapsed().as_secs_f64().max(1e-3);
        let progress = Progress {
            state: self.state.clone(),
            events: self.shared.events,
            bytes: self.shared.bytes,
            rate: ((self.shared.bytes - bytes) as f64 / seconds) as u64,
            skipped: self.shared.skipped,
            cuts: self.cuts,
            lag: self.lag,
            notes: std::mem::take(&mut self.notes),
        };
        self.reported = (Instant::now(), self.shared.bytes);
        (self.report)(&progress);
    }
}

impl Work {
    fn advance(
        &mut self,
        shared: &mut Shared,
        link: &str,
        is_ending: bool,
    ) -> Result<bool, Trouble> {
        let mut advanced = false;
        for lane in &mut self.lanes {
            advanced |= lane.advance(&self.pair, shared, is_ending)?;
        }
        self.acknowledge(shared, link, is_ending)?;
        self.look(shared)?;
        Ok(advanced)
    }

    /// Tells the source now and then what it need not keep for the link.
    fn acknowledge(&mut self, shared: &Shared, link: &str, is_ending: bool) -> Result<(), Trouble> {
        if let Some((told, pending)) = &mut self.acknowledging {
            let Some(outcome) = pending.try_get() else {
                return Ok(());
            };
            outcome.map_err(|error| trouble(&at_source(&self.pair), error))?;
            for (index, position) in told.drain(..) {
                self.lanes[index].flow.acknowledged(position);
            }
            self.acknowledging = None;
        }
        let is_due = self.acknowledged_at.elapsed() >= ACKNOWLEDGE_EVERY;
        let is_last = is_ending && self.lanes.iter().all(Lane::is_settled);
        if !is_due && !is_last {
            return Ok(());
        }
        let lanes = self.lanes.iter().enumerate();
        let told = lanes.filter_map(|(index, lane)| Some((index, lane.flow.acknowledgement()?)));
        let told: Vec<(usize, Position)> = told.collect();
        if told.is_empty() {
            return Ok(());
        }
        let partition = |index: usize| self.lanes[index].partition;
        let positions: Vec<(PartitionIndex, Position)> = told
            .iter()
            .map(|(index, position)| (partition(*index), *position))
            .collect();
        let driver = self.pair.source.driver();
        let pending = driver.begin_acknowledge(&self.pair.source, &consumer(link), &positions);
        notify(&pending, shared);
        self.acknowledging = Some((told, pending));
        self.acknowledged_at = Instant::now();
        Ok(())
    }

    /// Asks the source now and then how far it is, and whether it has more partitions.
    fn look(&mut self, shared: &Shared) -> Result<(), Trouble> {
        let [source, copy] = &mut self.looking;
        if let Some(outcome) = answer(copy) {
            outcome.map_err(|error| trouble(&at_copy(&self.pair), error))?;
        }
        if let Some(outcome) = answer(source) {
            let described = outcome.map_err(|error| trouble(&at_source(&self.pair), error))?;
            if described.partitions.len() > self.lanes.len() {
                return Err(Trouble::Again(format!(
                    "{} has more partitions",
                    at_source(&self.pair)
                )));
            }
            self.event_bytes = event_bytes(&described);
            for (lane, partition) in self.lanes.iter_mut().zip(&described.partitions) {
                lane.committed = partition.watermarks.committed;
            }
        }
        if self.looked_at.elapsed() >= LOOK_EVERY {
            self.looked_at = Instant::now();
            for (looking, side) in self
                .looking
                .iter_mut()
                .zip([&self.pair.source, &self.pair.copy])
            {
                if looking.is_none() {
                    let pending = side.begin_refresh();
                    notify(&pending, shared);
                    *looking = Some((Instant::now(), pending));
                }
            }
        }
        Ok(())
    }

    /// Gives up what is under way.
    fn cancel(&self) {
        self.lanes.iter().for_each(Lane::cancel);
        if let Some((_, pending)) = &self.acknowledging {
            pending.cancel();
        }
        for (_, pending) in self.looking.iter().flatten() {
            pending.cancel();
        }
    }

    /// Why nothing is heard of the source, or of the copy.
    fn away(&self) -> Option<String> {
        let is_late = |(since, _): &(Instant, _)| since.elapsed() > AWAY_AFTER;
        let sides = [at_source(&self.pair), at_copy(&self.pair)];
        for (looking, side) in self.looking.iter().zip(sides) {
            if looking.as_ref().is_some_and(is_late) {
                return Some(format!("{side}: no answer"));
            }
        }
        let longest = self.lanes.iter().filter_map(Lane::waits_for_copy).max()?;
        Some(format!(
            "{} has stored nothing for {} s of what it was sent",
            at_copy(&self.pair),
            longest.as_secs()
        ))
    }

    fn lag(&self) -> Lag {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default().as_nanos() as u64;
        let mut lag = Lag::default();
        for lane in &self.lanes {
            let behind = lane.committed.0.saturating_sub(lane.flow.durable().0);
            lag.events += behind;
            lag.bytes += behind * self.event_bytes;
            if behind > 0 && lane.newest > 0 {
                let age = Duration::from_nanos(now.saturating_sub(lane.newest));
                lag.age = lag.age.max(age);
            }
        }
        lag
    }

    fn is_settled(&self) -> bool {
        let is_told = |lane: &Lane| lane.is_settled() && lane.flow.acknowledgement().is_none();
        self.lanes.iter().all(is_told) && self.acknowledging.is_none()
    }
}

impl Place {
    /// Its topic failed: it waits, and gives back what it had.
    fn wait(&mut self, why: String, shared: &mut Shared) {
        let lag = match &self.standing {
            Standing::Works(work) => {
                work.cancel();
                work.lanes.iter().for_each(|lane| lane.give_back(shared));
                work.lag()
            }
            Standing::Waits { lag, .. } => *lag,
        };
        self.standing = Standing::waits(why, self.pause, lag);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

impl Standing {
    fn waits(why: String, pause: Duration, lag: Lag) -> Self {
        let until = Instant::now() + pause;
        Self::Waits { until, why, lag }
    }
}

/// The topics that are copied.
fn works(places: &mut [Place]) -> impl Iterator<Item = &mut Work> {
    places
        .iter_mut()
        .filter_map(|place| match &mut place.standing {
            Standing::Works(work) => Some(&mut **work),
            Standing::Waits { .. } => None,
        })
}

/// What keeps a topic, of those that are kept.
fn why(places: &[Place]) -> Option<String> {
    places.iter().find_map(|place| match &place.standing {
        Standing::Works(work) => work.away(),
        Standing::Waits { why, .. } => Some(why.clone()),
    })
}

/// An answer, if it is there.
fn answer<T>(looking: &mut Option<(Instant, Pending<T>)>) -> Option<Result<T, ClientError>> {
    let outcome = looking.as_mut()?.1.try_get()?;
    *looking = None;
    Some(outcome)
}

/// What one event of a topic takes, in the mean.
pub(crate) fn event_bytes(described: &TopicDescription) -> u64 {
    let (events, bytes) =
        described
            .partitions
            .iter()
            .fold((0u64, 0u64), |(events, bytes), partition| {
                let count = partition.watermarks.end.0.saturating_sub(partition.first.0);
                (events + count, bytes + partition.bytes)
            });
    bytes.checked_div(events).unwrap_or(0)
}

fn lag(places: &[Place]) -> Lag {
    let mut all = Lag::default();
    for place in places {
        let lag = match &place.standing {
            Standing::Works(work) => work.lag(),
            Standing::Waits { lag, .. } => *lag,
        };
        all.events += lag.events;
        all.bytes += lag.bytes;
        all.age = all.age.max(lag.age);
    }
    all
}
