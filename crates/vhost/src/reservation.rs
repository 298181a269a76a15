//! Names that acts hold while they are carried out.

use crate::faults::{Fault, planted};
use crate::id::ActId;
use crate::name::Name;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How an act holds a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Hold {
    /// With others: bindings are made at it, and what it is stays as it is.
    Shared,
    /// Alone: it comes, or goes, or its last binding may go.
    Exclusive,
}

/// The names of one act. One that is named twice is held by the stronger hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Names(BTreeMap<Name, Hold>);

impl Names {
    pub fn add(&mut self, name: Name, hold: Hold) {
        let held = self.0.entry(name).or_insert(hold);
        *held = hold.max(*held);
    }
}

/// Who holds a name that is not free.
#[derive(Debug)]
enum Reservation {
    Shared(BTreeSet<ActId>),
    /// Shared until all of these are settled, and by no more: an act waits that wants the name alone.
    Closing(BTreeSet<ActId>),
    Exclusive(ActId),
}

/// All names that are held.
#[derive(Debug, Default)]
pub(crate) struct Reservations(HashMap<Name, Reservation>);

impl Reservations {
    /// An act that has to be settled before this name can be held so.
    pub fn in_the_way(&self, name: &Name, hold: Hold) -> Option<ActId> {
        if planted(Fault::TwoAtOnce) {
            return None;
        }
        match (self.0.get(name)?, hold) {
            (Reservation::Exclusive(act), _) => Some(*act),
            (Reservation::Closing(acts), _) | (Reservation::Shared(acts), Hold::Exclusive) => {
                acts.first().copied()
            }
            (Reservation::Shared(_), Hold::Shared) => None,
        }
    }

    /// The same for all names of an act.
    pub fn any_in_the_way(&self, names: &Names) -> Option<ActId> {
        let mut names = names.0.iter();
        names.find_map(|(name, hold)| self.in_the_way(name, *hold))
    }

    /// An act waits for some of these names. Those that it wants alone and others share are shared by no more, so that it
    /// does not wait for ever.
    pub fn close(&mut self, names: &Names) {
        let alone = names.0.iter().filter(|(_, hold)| **hold == Hold::Exclusive);
        for (name, _) in alone {
            if let Some(held) = self.0.get_mut(name)
                && let Reservation::Shared(acts) = held
                && !planted(Fault::Overtaken)
            {
                *held = Reservation::Closing(std::mem::take(acts));
            }
        }
    }

    /// Gives an act its names, in whose way there is no other.
    pub fn take(&mut self, act: ActId, names: &Names) {
        for (name, hold) in &names.0 {
            match hold {
                Hold::Exclusive => {
                    self.0.insert(name.clone(), Reservation::Exclusive(act));
                }
                Hold::Shared => {
                    let shared = Reservation::Shared(BTreeSet::new());
                    let held = self.0.entry(name.clone()).or_insert(shared);
                    if let Reservation::Shared(acts) = held {
                        acts.insert(act);
                    }
                }
            }
        }
    }

    /// Frees the names of an act.
    pub fn release(&mut self, act: ActId, names: &Names) {
        for name in names.0.keys() {
            let is_free = match self.0.get_mut(name) {
                Some(Reservation::Exclusive(holder)) => *holder == act,
                Some(Reservation::Shared(acts) | Reservation::Closing(acts)) => {
                    acts.remove(&act);
                    acts.is_empty()
                }
                None => false,
            };
            if is_free {
                self.0.remove(name);
            }
        }
    }

    /// Whether no name is held.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
