//! A shared directory in memory, which shows what others write as late as it can.

use super::shared::{Published, Shared};
use crate::error::ServerError;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// Numbers that follow from a seed (splitmix64).
#[derive(Debug, Clone)]
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound as u64) as usize
    }

    pub(super) fn one_in(&mut self, chance: usize) -> bool {
        self.below(chance) == 0
    }
}

/// All versions that each name has had; before the first there was no file.
#[derive(Debug, Clone, Default)]
pub(super) struct Share(Rc<RefCell<BTreeMap<String, Vec<Option<String>>>>>);

impl Share {
    /// As a host sees it that sees all at once.
    pub(super) fn view(&self) -> View {
        View {
            share: self.clone(),
            late: None,
            seen: BTreeMap::new(),
            now: Duration::ZERO,
            dies_after: None,
        }
    }

    /// As a host sees it that sees any older version.
    pub(super) fn late_view(&self, seed: u64) -> View {
        let late = Some(Random(seed));
        View {
            late,
            ..self.view()
        }
    }

    pub(super) fn remove(&self, name: &str) {
        self.put(name, None);
    }

    /// As if there had never been one. Nobody may have seen it who runs.
    pub(super) fn forget(&self, name: &str) {
        self.0.borrow_mut().remove(name);
    }

    pub(super) fn latest(&self, name: &str) -> Option<String> {
        let names = self.0.borrow();
        names
            .get(name)
            .and_then(|versions| versions.last().cloned().flatten())
    }

    fn put(&self, name: &str, text: Option<String>) {
        let mut names = self.0.borrow_mut();
        names.entry(name.to_owned()).or_default().push(text);
    }

    fn versions(&self, name: &str) -> usize {
        self.0.borrow().get(name).map_or(0, Vec::len)
    }
}

/// One process's view.
#[derive(Debug)]
pub(super) struct View {
    share: Share,
    /// `None`: what is newest is seen.
    pub(super) late: Option<Random>,
    /// The version that was seen last, of each name: never an earlier one after it.
    seen: BTreeMap<String, usize>,
    now: Duration,
    /// After so many calls more every call fails, and the process is dead.
    pub(super) dies_after: Option<u32>,
}

impl View {
    /// Whether the process dies in this call.
    fn dies(&mut self) -> bool {
        match &mut self.dies_after {
            Some(0) => true,
            Some(calls) => {
                *calls -= 1;
                false
            }
            None => false,
        }
    }

    /// Dies before the call or after it.
    fn act<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> Result<T, ServerError> {
        let dead = || ServerError::System(std::io::Error::other("killed"));
        if !self.dies() {
            return Ok(act(self));
        }
        if self.late.as_mut().is_some_and(|random| random.one_in(2)) {
            act(self);
        }
        Err(dead())
    }
}

impl Shared for View {
    fn path(&self, name: &str) -> PathBuf {
        Path::new("/shared").join(name)
    }

    fn read(&mut self, name: &str) -> Result<Option<String>, ServerError> {
        self.act(|view| {
            let versions = view.share.versions(name);
            let seen = view.seen.get(name).copied().unwrap_or(0);
            let at = match &mut view.late {
                Some(random) => match random.one_in(2) {
                    true => versions,
                    false => seen + random.below(versions - seen + 1),
                },
                None => versions,
            };
            view.seen.insert(name.to_owned(), at);
            let names = view.share.0.borrow();
            let before = at.checked_sub(1)?;
            names[name][before].clone()
        })
    }

    fn replace(&mut self, name: &str, text: &str) -> Result<(), ServerError> {
        self.act(|view| {
            view.share.put(name, Some(text.to_owned()));
            let versions = view.share.versions(name);
            view.seen.insert(name.to_owned(), versions);
        })
    }

    fn publish(&mut self, name: &str, text: &str) -> Result<Published, ServerError> {
        self.act(|view| {
            // It may be seen late, but the server of the files knows it.
            if view.share.latest(name).is_some() {
                return Published::Exists;
            }
            view.share.put(name, Some(text.to_owned()));
            let versions = view.share.versions(name);
            view.seen.insert(name.to_owned(), versions);
            Published::Made
        })
    }

    fn now(&mut self) -> Duration {
        self.now
    }

    fn wait(&mut self, time: Duration) -> bool {
        self.now += time;
        true
    }
}
