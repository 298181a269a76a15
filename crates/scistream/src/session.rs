//! Sessions: who asked for listeners, which there are, and where they lead. Plain state; the time is an argument.
//!
//! ```text
//!  req ──► Asked ──hello──► Named ──update──► Turning ──it leads──► Leading
//!            │                ▲   │              │                     │
//!            │ no hello       │   │ no update    │                     │ released, idle for a day, or the
//!            │ in 180 s       │   │ in an hour   │                     │ other side has ended
//!            ▼                └───┼ it does not ─┘                     ▼
//!          gone ◄──────────────────────────────────────────────────── gone: its ports are free again
//! ```

use crate::faults::{Fault, planted};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Sessions at once.
pub const SESSIONS_MAX: usize = 64;
/// Sessions of one project at once.
pub const PROJECT_SESSIONS_MAX: usize = 16;
/// Listeners of one session.
pub const LISTENERS_MAX: usize = 16;
/// The longest uid.
const UID_BYTES_MAX: usize = 64;
/// A session that nobody has used for so long ends.
pub const IDLE: Duration = Duration::from_secs(24 * 3600);
/// One that leads nowhere yet ends after so long: the code of its other side is no longer good then.
pub const UNLED: Duration = Duration::from_secs(3600);

/// On which side of the way between the sites a session is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Beside the servers that are reached: SciStream's `PROD`.
    Inbound,
    /// Beside the programs that reach them: SciStream's `CONS`.
    Outbound,
}

/// Where a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// Listeners were asked for; who is behind them was not said.
    Asked,
    /// That was said.
    Named,
    /// An update is under way.
    Turning,
    /// What comes to its listeners goes there.
    Leading(Vec<String>),
}

/// Tells a session from an earlier one of the same uid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Serial(u64);

/// One session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The project of who asked: nobody else's calls find it.
    pub project: String,
    /// Which one of its uid.
    pub serial: Serial,
    /// On which side it is.
    pub role: Role,
    /// How many listeners were asked for.
    pub count: usize,
    /// The rate that was asked for, bytes a second; `None` is none.
    pub rate: Option<u64>,
    /// The ports that it has.
    pub ports: Vec<u16>,
    /// Where it is.
    pub stage: Stage,
    /// What `hello` said, as it came.
    pub named: Vec<String>,
    /// When it was used last.
    used: Duration,
}

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Asked<'a> {
    /// Who has asked for the session.
    pub uid: &'a str,
    /// The project of who asks.
    pub project: &'a str,
    /// `PROD` or `CONS`.
    pub role: &'a str,
    /// Listeners.
    pub count: i32,
    /// Kilobytes a second; 0 is as many as the operator lets.
    pub rate: i32,
}

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// What was said cannot be.
    Invalid(String),
    /// There is no such session.
    NotFound,
    /// There is no place or port left.
    Exhausted(&'static str),
    /// It may not be.
    Denied(String),
    /// Not in this state of the session, or of this relay.
    NotNow(&'static str),
}

/// What an update has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// Make the session's listeners lead there, and say how that went by [`Table::settle`].
    Lead(Session),
    /// Nothing: they do already.
    Leads(Session),
}

/// Ports for listeners.
#[derive(Debug)]
enum Ports {
    /// Whichever the system gives.
    Any,
    /// These, of those that are free.
    Of(BTreeSet<u16>),
}

/// All sessions.
#[derive(Debug)]
pub struct Table {
    ports: Ports,
    all: BTreeMap<String, Session>,
    /// How many there were.
    count: u64,
}

impl Table {
    /// None yet, with these ports to give; 0 is whichever are free.
    pub fn new(ports: impl Iterator<Item = u16>) -> Self {
        let ports: BTreeSet<u16> = ports.collect();
        Self {
            ports: match ports.contains(&0) {
                true => Ports::Any,
                false => Ports::Of(ports),
            },
            all: BTreeMap::new(),
            count: 0,
        }
    }

    /// A project's session.
    ///
    /// # Errors
    /// [`Refused::NotFound`], if there is none or it is another project's.
    pub fn find(&mut self, uid: &str, project: &str) -> Result<&mut Session, Refused> {
        let is_theirs =
            |session: &&mut Session| session.project == project || planted(Fault::AnotherProject);
        let found = self.all.get_mut(uid).filter(is_theirs);
        found.ok_or(Refused::NotFound)
    }

    /// Takes up a session, with ports that `bind` could bind if it is outbound: `bind` returns the port that it has,
    /// and nothing if that is another program's.
    ///
    /// # Errors
    /// If it cannot be, or there is one of that uid, or no port.
    pub fn ask(
        &mut self,
        asked: &Asked<'_>,
        now: Duration,
        bind: impl FnMut(u16) -> Option<u16>,
    ) -> Result<&Session, Refused> {
        let invalid = |why: &str| Refused::Invalid(why.to_owned());
        let is_right = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let uid = asked.uid;
        if uid.is_empty() || uid.len() > UID_BYTES_MAX || !uid.bytes().all(is_right) {
            return Err(invalid("uid is letters, digits, - and _, 64 at most"));
        }
        let role = role(asked.role)?;
        let count = usize::try_from(asked.count).unwrap_or(0);
        if !(1..=LISTENERS_MAX).contains(&count) {
            let why = format!("num_conn is from 1 to {LISTENERS_MAX}");
            return Err(Refused::Invalid(why));
        }
        let Ok(rate) = u64::try_from(asked.rate) else {
            return Err(invalid("rate is kilobytes a second, or 0 for none"));
        };
        if self.all.contains_key(uid) {
            return Err(invalid("there is a session of that uid"));
        }
        let of_project = |session: &&Session| session.project == asked.project;
        if self.all.len() >= SESSIONS_MAX
            || self.all.values().filter(of_project).count() >= PROJECT_SESSIONS_MAX
        {
            return Err(Refused::Exhausted("there are as many sessions as may be"));
        }
        let ports = match role {
            Role::Inbound => Vec::new(),
            Role::Outbound => self.take_ports(count, bind)?,
        };
        self.count += 1;
        let session = Session {
            project: asked.project.to_owned(),
            serial: Serial(self.count),
            role,
            count,
            rate: (rate > 0).then_some(rate * 1000),
            ports,
            stage: Stage::Asked,
            named: Vec::new(),
            used: now,
        };
        Ok(self.all.entry(uid.to_owned()).or_insert(session))
    }

    fn take_ports(
        &mut self,
        count: usize,
        bind: impl FnMut(u16) -> Option<u16>,
    ) -> Result<Vec<u16>, Refused> {
        let bound: Vec<u16> = match &self.ports {
            Ports::Any => std::iter::repeat_n(0, count).filter_map(bind).collect(),
            Ports::Of(free) => free.iter().copied().filter_map(bind).take(count).collect(),
        };
        if bound.len() < count {
            return Err(Refused::Exhausted("there are not so many ports left"));
        }
        if let Ports::Of(free) = &mut self.ports {
            free.retain(|port| !bound.contains(port));
        }
        Ok(bound)
    }

    /// Notes who is behind a session's listeners.
    ///
    /// # Errors
    /// [`Refused::NotFound`].
    pub fn name(
        &mut self,
        uid: &str,
        project: &str,
        places: Vec<String>,
        now: Duration,
    ) -> Result<Session, Refused> {
        let session = self.find(uid, project)?;
        session.used = now;
        session.named = places;
        if session.stage == Stage::Asked {
            session.stage = Stage::Named;
        }
        Ok(session.clone())
    }

    /// Begins an update.
    ///
    /// # Errors
    /// If the session is not there, not that far, or leads elsewhere.
    pub fn turn(
        &mut self,
        uid: &str,
        project: &str,
        role_said: &str,
        places: &[String],
        now: Duration,
    ) -> Result<Turn, Refused> {
        let session = self.find(uid, project)?;
        if role(role_said)? != session.role {
            let why = "role is another one than the request's";
            return Err(Refused::Invalid(why.to_owned()));
        }
        if places.is_empty() {
            let why = "remote_listeners names nobody";
            return Err(Refused::Invalid(why.to_owned()));
        }
        session.used = now;
        match &session.stage {
            Stage::Asked => Err(Refused::NotNow("hello comes before update")),
            Stage::Turning => Err(Refused::NotNow("another update is under way")),
            Stage::Leading(led) if led == places => Ok(Turn::Leads(session.clone())),
            Stage::Leading(_) => Err(Refused::NotNow(
                "the session leads elsewhere already: release it, and ask for another one",
            )),
            Stage::Named => {
                session.stage = Stage::Turning;
                Ok(Turn::Lead(session.clone()))
            }
        }
    }

    /// Says how an update went: where the session leads now. Whether it is still there.
    pub fn settle(&mut self, uid: &str, serial: Serial, led: Option<Vec<String>>) -> bool {
        let is_same =
            |session: &&mut Session| session.serial == serial || planted(Fault::LateUpdate);
        let Some(session) = self.all.get_mut(uid).filter(is_same) else {
            return false;
        };
        session.stage = led.map_or(Stage::Named, Stage::Leading);
        true
    }

    /// Ends a session: its ports are free again.
    ///
    /// # Errors
    /// [`Refused::NotFound`].
    pub fn release(&mut self, uid: &str, project: &str) -> Result<(), Refused> {
        let serial = self.find(uid, project)?.serial;
        self.end(uid, serial);
        Ok(())
    }

    /// Ends a session, if it is this one. Whether it was.
    pub fn end(&mut self, uid: &str, serial: Serial) -> bool {
        if self.all.get(uid).is_none_or(|one| one.serial != serial) {
            return false;
        }
        let ended = self.all.remove(uid);
        if let (Ports::Of(free), Some(session)) = (&mut self.ports, ended)
            && !planted(Fault::PortsKept)
        {
            free.extend(session.ports);
        }
        true
    }

    /// Notes that a session is used.
    pub fn used(&mut self, uid: &str, serial: Serial, now: Duration) {
        if let Some(session) = self.all.get_mut(uid)
            && session.serial == serial
        {
            session.used = now;
        }
    }

    /// Ends those that nobody has used for a day, or led anywhere for an hour; which, and why.
    pub fn end_idle(&mut self, now: Duration) -> Vec<(String, &'static str)> {
        let why = |session: &Session| match session.stage {
            Stage::Leading(_) => (IDLE, "is over: nobody used it for a day"),
            _ => (UNLED, "is over: no update came for an hour"),
        };
        let is_idle =
            |session: &&Session| now >= session.used + why(session).0 && !planted(Fault::NeverIdle);
        let idle = self.all.iter().filter(|(_, session)| is_idle(session));
        let idle: Vec<_> = idle
            .map(|(uid, one)| (uid.clone(), one.serial, why(one).1))
            .collect();
        let ended = idle
            .into_iter()
            .filter(|(uid, serial, _)| self.end(uid, *serial));
        ended.map(|(uid, _, why)| (uid, why)).collect()
    }
}

fn role(text: &str) -> Result<Role, Refused> {
    match text {
        "PROD" => Ok(Role::Inbound),
        "CONS" => Ok(Role::Outbound),
        _ => Err(Refused::Invalid("role is PROD or CONS".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults;

    const S: Duration = Duration::from_secs(1);

    fn asked<'a>(uid: &'a str, project: &'a str, count: i32) -> Asked<'a> {
        Asked {
            uid,
            project,
            role: "CONS",
            count,
            rate: 10_000,
        }
    }

    fn ask(all: &mut Table, uid: &str, project: &str, count: i32) -> Result<Session, Refused> {
        all.ask(&asked(uid, project, count), S, Some).cloned()
    }

    fn turn(all: &mut Table, uid: &str, places: &[&str]) -> Result<Turn, Refused> {
        let places: Vec<String> = places.iter().map(|&place| place.to_owned()).collect();
        all.turn(uid, "stf", "CONS", &places, S)
    }

    fn led(place: &str) -> Option<Vec<String>> {
        Some(vec![place.to_owned()])
    }

    #[test]
    fn a_session_is_asked_for_named_led_and_released() {
        let mut all = Table::new(5100..5104);
        let session = ask(&mut all, "u", "stf", 3).unwrap();
        assert_eq!(session.ports, [5100, 5101, 5102]);
        assert_eq!(session.rate, Some(10_000_000));
        assert!(matches!(
            turn(&mut all, "u", &["a:1"]),
            Err(Refused::NotNow(_))
        ));
        all.name("u", "stf", vec!["x:1".to_owned()], S).unwrap();
        assert!(matches!(turn(&mut all, "u", &[]), Err(Refused::Invalid(_))));
        let Ok(Turn::Lead(session)) = turn(&mut all, "u", &["a:1"]) else {
            panic!("it may lead now");
        };
        assert_eq!(session.named, ["x:1"]);
        assert!(matches!(
            turn(&mut all, "u", &["a:1"]),
            Err(Refused::NotNow(_))
        ));
        // What could not be reached may be tried again.
        assert!(all.settle("u", session.serial, None));
        let Ok(Turn::Lead(session)) = turn(&mut all, "u", &["a:1"]) else {
            panic!("it may lead once more");
        };
        assert!(all.settle("u", session.serial, led("a:1")));
        assert!(matches!(turn(&mut all, "u", &["a:1"]), Ok(Turn::Leads(_))));
        assert!(matches!(
            turn(&mut all, "u", &["b:1"]),
            Err(Refused::NotNow(_))
        ));
        assert!(matches!(
            ask(&mut all, "v", "stf", 2),
            Err(Refused::Exhausted(_))
        ));
        all.release("u", "stf").unwrap();
        assert_eq!(all.release("u", "stf"), Err(Refused::NotFound));
        assert_eq!(ask(&mut all, "v", "stf", 4).unwrap().ports.len(), 4);
    }

    #[test]
    fn ports_are_given_back_and_those_of_others_are_left_out() {
        let again = |all: &mut Table| {
            (0..10).all(|_| {
                let taken = ask(all, "u", "stf", 2).is_ok();
                taken && all.release("u", "stf").is_ok()
            })
        };
        assert!(again(&mut Table::new(5100..5104)));
        assert!(!faults::with(Fault::PortsKept, || again(&mut Table::new(
            5100..5104
        ))));
        let mut all = Table::new(5100..5104);
        let bind = |port| (port != 5101).then_some(port);
        let session = all.ask(&asked("u", "stf", 2), S, bind).unwrap();
        assert_eq!(session.ports, [5100, 5102]);
        let none = all.ask(&asked("v", "stf", 1), S, |_| None);
        assert!(matches!(none, Err(Refused::Exhausted(_))));
        let mut any = Table::new(0..=0);
        let mut next = 40_000;
        let bind = |_| {
            next += 1;
            Some(next)
        };
        let session = any.ask(&asked("u", "stf", 2), S, bind).unwrap();
        assert_eq!(session.ports, [40_001, 40_002]);
    }

    #[test]
    fn another_projects_session_is_not_there() {
        let seen = || {
            let mut all = Table::new(5100..5104);
            ask(&mut all, "u", "stf", 1).unwrap();
            let named = all.name("u", "phy", Vec::new(), S).is_ok();
            let turned = all.turn("u", "phy", "CONS", &["a:1".to_owned()], S).is_ok();
            named || turned || all.release("u", "phy").is_ok()
        };
        assert!(!seen());
        assert!(faults::with(Fault::AnotherProject, seen));
        let mut all = Table::new(5100..5104);
        ask(&mut all, "u", "stf", 1).unwrap();
        assert!(matches!(
            ask(&mut all, "u", "phy", 1),
            Err(Refused::Invalid(_))
        ));
    }

    #[test]
    fn what_cannot_be_is_refused_and_takes_nothing() {
        let mut all = Table::new(5100..5104);
        let long = "u".repeat(UID_BYTES_MAX + 1);
        for (uid, count) in [("", 1), ("a b", 1), ("../x", 1), ("w\n", 1), (&long, 1)] {
            assert!(matches!(
                ask(&mut all, uid, "stf", count),
                Err(Refused::Invalid(_))
            ));
        }
        for count in [0, -1, 17, i32::MAX, i32::MIN] {
            assert!(matches!(
                ask(&mut all, "w", "stf", count),
                Err(Refused::Invalid(_))
            ));
        }
        for (role, rate) in [("prod", 1), ("", 1), ("CONS", -1), ("PROD", i32::MIN)] {
            let asked = Asked {
                role,
                rate,
                ..asked("w", "stf", 1)
            };
            assert!(matches!(all.ask(&asked, S, Some), Err(Refused::Invalid(_))));
        }
        assert_eq!(ask(&mut all, "w", "stf", 4).unwrap().ports.len(), 4);
        let role = all.turn("w", "stf", "PROD", &["a:1".to_owned()], S);
        assert!(matches!(role, Err(Refused::Invalid(_))));
    }

    #[test]
    fn sessions_are_bounded_in_all_and_for_each_project() {
        let mut all = Table::new(0..=0);
        let mut count = 0;
        for project in ["a", "b", "c", "d", "e"] {
            for index in 0..=PROJECT_SESSIONS_MAX {
                let uid = format!("{project}{index}");
                count += usize::from(ask(&mut all, &uid, project, 1).is_ok());
            }
        }
        assert_eq!(count, SESSIONS_MAX);
    }

    #[test]
    fn an_update_of_an_earlier_session_does_not_count() {
        let counts = || {
            let mut all = Table::new(5100..5104);
            let earlier = ask(&mut all, "u", "stf", 1).unwrap();
            all.release("u", "stf").unwrap();
            let later = ask(&mut all, "u", "stf", 1).unwrap();
            assert_ne!(earlier.serial, later.serial);
            assert!(!all.end("u", earlier.serial));
            all.settle("u", earlier.serial, led("a:1"))
        };
        assert!(!counts());
        assert!(faults::with(Fault::LateUpdate, counts));
    }

    #[test]
    fn one_that_leads_nowhere_gives_its_ports_back_after_an_hour() {
        let mut all = Table::new(5100..5101);
        ask(&mut all, "u", "stf", 1).unwrap();
        all.name("u", "stf", vec!["x:1".to_owned()], 2 * S).unwrap();
        assert_eq!(all.end_idle(S + UNLED), []);
        let ended = all.end_idle(2 * S + UNLED);
        assert_eq!(
            ended,
            [("u".to_owned(), "is over: no update came for an hour")]
        );
        let next = ask(&mut all, "v", "stf", 1).unwrap();
        assert_eq!(next.ports, [5100]);
        // An update that fails leaves it time for another one.
        all.name("v", "stf", Vec::new(), S).unwrap();
        turn(&mut all, "v", &["a:1"]).unwrap();
        assert!(all.settle("v", next.serial, None));
        assert_eq!(all.end_idle(UNLED), []);
    }

    #[test]
    fn one_that_nobody_uses_ends_after_a_day() {
        let ends = || {
            let mut all = Table::new(5100..5104);
            for uid in ["u", "v"] {
                let session = ask(&mut all, uid, "stf", 1).unwrap();
                assert!(all.settle(uid, session.serial, led("a:1")));
                if uid == "v" {
                    all.used(uid, session.serial, 2 * S);
                }
            }
            let mut ended = |now| {
                let ended = all.end_idle(now).into_iter();
                ended.map(|(uid, _)| uid).collect::<Vec<_>>()
            };
            (ended(S + IDLE), ended(S + IDLE).len(), ended(2 * S + IDLE))
        };
        assert_eq!(ends(), (vec!["u".to_owned()], 0, vec!["v".to_owned()]));
        let kept = faults::with(Fault::NeverIdle, ends);
        assert!(kept.0.is_empty());
    }
}
