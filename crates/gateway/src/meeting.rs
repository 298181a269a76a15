//! Relays that meet, of two sites that nobody reaches: who waits for whom.
//!
//! Plain state. Anybody who reaches the port can say that they wait, so that those who do are bounded, offers and those who join
//! each for themselves: at the bound the oldest of the address that has most goes, and a stranger at one address is in nobody's
//! way but their own.

use crate::client_hello::Guest;
use crate::faults::{Fault, planted};
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex};
use tokio::sync::oneshot;

/// Connections of one side of one rendezvous: as many as a link has. A further one takes the place of the oldest.
const SIDE_MAX: usize = 16;

/// Who waits to be handed a `T`, which is the other side.
#[derive(Debug)]
pub struct Meeting<T> {
    waiting_max: usize,
    /// Locked for a look.
    present: Mutex<Present<T>>,
}

#[derive(Debug)]
struct Present<T> {
    count: u64,
    /// By when they came.
    waiting: BTreeMap<u64, Waiting<T>>,
}

#[derive(Debug)]
struct Waiting<T> {
    guest: Guest,
    source: IpAddr,
    tell: oneshot::Sender<T>,
}

/// What somebody who comes finds.
#[derive(Debug)]
pub enum Entered<T> {
    /// The other side waits: it takes who has come.
    Meets(oneshot::Sender<T>),
    /// Nobody yet.
    Waits(Seat<T>),
}

/// The place of one who waits, until it is dropped.
#[derive(Debug)]
pub struct Seat<T> {
    all: Arc<Meeting<T>>,
    number: u64,
    told: oneshot::Receiver<T>,
}

impl<T> Meeting<T> {
    /// So many offers wait at most, and so many who join.
    pub fn new(waiting_max: usize) -> Arc<Self> {
        let present = Present {
            count: 0,
            waiting: BTreeMap::new(),
        };
        Arc::new(Self {
            waiting_max,
            present: Mutex::new(present),
        })
    }

    /// Somebody comes from there.
    pub fn enter(self: &Arc<Self>, guest: Guest, from: IpAddr) -> Entered<T> {
        let mut present = self.present.lock().expect("no holder panics");
        if let Some(other) = present.oldest(|one| meets(guest, one.guest)) {
            return Entered::Meets(other.tell);
        }
        let source = source(from);
        let same = present.waiting.values().filter(|one| one.guest == guest);
        // Who is dropped here learns it from the channel.
        if same.count() >= SIDE_MAX {
            present.oldest(|one| one.guest == guest);
        } else if present.of_side(guest).count() >= self.waiting_max
            && !planted(Fault::UnboundedMeeting)
        {
            let most = present.most(guest, source);
            present.oldest(|one| is_same_side(one.guest, guest) && one.source == most);
        }
        let (tell, told) = oneshot::channel();
        present.count += 1;
        let number = present.count;
        let waiting = Waiting {
            guest,
            source,
            tell,
        };
        present.waiting.insert(number, waiting);
        Entered::Waits(Seat {
            all: self.clone(),
            number,
            told,
        })
    }

    /// How many wait.
    pub fn count(&self) -> usize {
        self.present.lock().expect("no holder panics").waiting.len()
    }
}

impl<T> Present<T> {
    /// Takes away the oldest one of whom that is so.
    fn oldest(&mut self, is_so: impl Fn(&Waiting<T>) -> bool) -> Option<Waiting<T>> {
        let found = self.waiting.iter().find(|(_, one)| is_so(one));
        let number = *found?.0;
        self.waiting.remove(&number)
    }

    /// Those who wait on the same side of whatever rendezvous, the oldest first.
    fn of_side(&self, guest: Guest) -> impl Iterator<Item = &Waiting<T>> {
        let all = self.waiting.values();
        all.filter(move |one| is_same_side(one.guest, guest))
    }

    /// The source that most wait of on a side, with one more who comes from `own`; of those with as many that one, or the
    /// one that has waited longest.
    fn most(&self, side: Guest, own: IpAddr) -> IpAddr {
        let mut counts = HashMap::from([(own, 1)]);
        for one in self.of_side(side) {
            *counts.entry(one.source).or_insert(0) += 1;
        }
        let most = counts.values().copied().max().unwrap_or_default();
        let mut sources = self.of_side(side).map(|one| one.source);
        match counts[&own] == most && most > 1 {
            true => own,
            false => sources.find(|source| counts[source] == most).unwrap_or(own),
        }
    }
}

fn is_same_side(one: Guest, other: Guest) -> bool {
    matches!(
        (one, other),
        (Guest::Offers(_), Guest::Offers(_)) | (Guest::Joins(_), Guest::Joins(_))
    )
}

/// Whether one is the other side of the other.
fn meets(one: Guest, other: Guest) -> bool {
    match (one, other) {
        (Guest::Offers(one), Guest::Joins(other)) | (Guest::Joins(one), Guest::Offers(other)) => {
            one == other || planted(Fault::AnyMeeting)
        }
        _ => false,
    }
}

/// Who somebody is taken to be: their address, of IPv6 the network of it, for that is what one host has.
pub fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

impl<T> Seat<T> {
    /// The other side, once it has come; `None` if this one has to go.
    pub async fn met(&mut self) -> Option<T> {
        (&mut self.told).await.ok()
    }

    /// Gives the place up. The other side comes with that if it has come at this moment.
    pub fn leave(mut self) -> Option<T> {
        self.told.close();
        self.told.try_recv().ok()
    }
}

impl<T> Drop for Seat<T> {
    fn drop(&mut self) {
        let mut present = self.all.present.lock().expect("no holder panics");
        present.waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client_hello::Rendezvous;
    use crate::faults;
    use tokio::sync::oneshot::error::TryRecvError;

    const NEAR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn far(last: u8) -> IpAddr {
        [10, 1, 0, last].into()
    }

    fn offers(id: u8) -> Guest {
        Guest::Offers(Rendezvous([id; 16]))
    }

    fn joins(id: u8) -> Guest {
        Guest::Joins(Rendezvous([id; 16]))
    }

    fn waits(all: &Arc<Meeting<u32>>, guest: Guest, from: IpAddr) -> Seat<u32> {
        match all.enter(guest, from) {
            Entered::Waits(seat) => seat,
            Entered::Meets(_) => panic!("{guest:?} meets somebody"),
        }
    }

    fn is_evicted(seat: &mut Seat<u32>) -> bool {
        seat.told.try_recv() == Err(TryRecvError::Closed)
    }

    #[test]
    fn two_meet_who_have_the_same_rendezvous_and_are_not_of_one_side() {
        let meet = || {
            let all = Meeting::<u32>::new(8);
            let mut first = waits(&all, offers(1), NEAR);
            let _same = waits(&all, offers(1), NEAR);
            let Entered::Waits(_other) = all.enter(joins(2), NEAR) else {
                return false;
            };
            assert_eq!(all.count(), 3);
            let Entered::Meets(tell) = all.enter(joins(1), far(1)) else {
                panic!("nobody waits");
            };
            tell.send(7).unwrap();
            // The first to come, and once.
            assert_eq!(first.told.try_recv(), Ok(7));
            assert_eq!(all.count(), 2);
            true
        };
        assert!(meet());
        assert!(!faults::with(Fault::AnyMeeting, meet), "it is not missed");
    }

    #[test]
    fn who_has_gone_is_met_by_nobody() {
        let all = Meeting::<u32>::new(8);
        drop(waits(&all, joins(1), NEAR));
        assert_eq!(all.count(), 0);
        let seat = waits(&all, offers(1), NEAR);
        let Entered::Meets(tell) = all.enter(joins(1), NEAR) else {
            panic!("it waits");
        };
        drop(seat);
        assert_eq!(tell.send(1), Err(1), "who came is given back");
    }

    #[test]
    fn strangers_take_places_from_themselves() {
        let all = Meeting::<u32>::new(8);
        let mut honest: Vec<_> = (0..3).map(|id| waits(&all, offers(id), far(id))).collect();
        let strangers: Vec<_> = (0..100)
            .map(|id| waits(&all, offers(100 + id), NEAR))
            .collect();
        assert_eq!(all.count(), 8);
        assert!(!honest.iter_mut().any(is_evicted));
        // Where everybody has one place, the oldest goes.
        drop(strangers);
        let mut more: Vec<_> = (3..9).map(|id| waits(&all, offers(id), far(id))).collect();
        assert_eq!(all.count(), 8);
        let everybody = honest.iter_mut().chain(&mut more);
        let gone: Vec<bool> = everybody.map(is_evicted).collect();
        assert!(gone[0] && !gone[1..].contains(&true), "{gone:?}");
        // Who joins from wherever takes no place of an offer.
        let joining: Vec<_> = (0..50)
            .map(|id| waits(&all, joins(100 + id), far(id)))
            .collect();
        assert_eq!(all.count(), 16);
        assert!(!more.iter_mut().any(is_evicted));
        drop(joining);
        let unbounded = || {
            let all = Meeting::<u32>::new(4);
            let _seats: Vec<_> = (0..9).map(|id| waits(&all, joins(id), NEAR)).collect();
            all.count() > 4
        };
        assert!(!unbounded());
        assert!(
            faults::with(Fault::UnboundedMeeting, unbounded),
            "it is not missed"
        );
    }

    #[test]
    fn one_side_of_a_rendezvous_has_as_many_places_as_a_link_has_connections() {
        let all = Meeting::<u32>::new(256);
        let mut seats: Vec<_> = (0..SIDE_MAX)
            .map(|_| waits(&all, offers(1), NEAR))
            .collect();
        let _next = waits(&all, offers(1), far(1));
        assert_eq!(all.count(), SIDE_MAX);
        assert!(is_evicted(&mut seats[0]) && !is_evicted(&mut seats[1]));
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let address = |text: &str| source(text.parse().unwrap());
        assert_eq!(address("fd00::1"), address("fd00::2:0:0:1"));
        assert_ne!(address("fd00::1"), address("fd00:0:0:1::1"));
        assert_eq!(address("::ffff:10.0.0.1"), NEAR);
    }
}
