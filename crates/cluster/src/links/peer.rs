//! What is known of one peer: which link with it stays, and when it is dialled again.

use super::hello::{Greeting, Reason};
use super::settings::LinkSettings;
use crate::faults::{Fault, planted};
use crate::random::Random;
use net::LinkId;
use std::time::{Duration, Instant};

/// How far an attempt to reach a peer is. The drawing is in the crate's README.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Dial {
    /// The next attempt is made then, if no link stands.
    Waiting { until: Instant },
    /// The name of this address is looked up.
    Naming { address: String },
    /// TCP and TLS.
    Opening { address: String, link: LinkId },
    /// The hello was sent, so the peer may have taken the connection.
    Greeted { address: String, link: LinkId },
}

/// A link that stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) link: LinkId,
    /// What the peer has said on it.
    pub(super) greeting: Greeting,
}

/// What becomes of a connection that a peer has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is the link from here on; these others end.
    Taken {
        replaces: Option<LinkId>,
        given_up: Option<LinkId>,
    },
    Refused(Reason),
}

/// What is known of one peer. It makes no connections: its owner does, and reports what came of them.
#[derive(Debug)]
pub(super) struct Peer {
    /// Where to dial it; nowhere if empty.
    addresses: Vec<String>,
    next_address: usize,
    pub(super) dial: Dial,
    pub(super) standing: Option<Standing>,
    /// Attempts that failed since a link stood.
    pub(super) failures: u32,
    /// Why there is no link, or why the last one ended.
    pub(super) why: Option<String>,
}

impl Peer {
    /// One that is not dialled.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            addresses: Vec::new(),
            next_address: 0,
            dial: Dial::Waiting { until: now },
            standing: None,
            failures: 0,
            why: None,
        }
    }

    pub(super) fn addresses(&self) -> &[String] {
        &self.addresses
    }

    pub(super) fn is_listed(&self) -> bool {
        !self.addresses.is_empty()
    }

    /// It is dialled at these addresses from now on; at none if they are none. Returns the attempt
    /// that is given up.
    pub(super) fn set_addresses(&mut self, addresses: &[String], now: Instant) -> Option<LinkId> {
        if self.addresses == addresses {
            return None;
        }
        self.addresses = addresses.to_vec();
        self.next_address = 0;
        self.failures = 0;
        self.give_up(now)
    }

    /// Ends an attempt that is under way, and returns its connection. The next one may be made now.
    fn give_up(&mut self, now: Instant) -> Option<LinkId> {
        let waiting = Dial::Waiting { until: now };
        match std::mem::replace(&mut self.dial, waiting) {
            Dial::Waiting { .. } | Dial::Naming { .. } => None,
            Dial::Opening { link, .. } | Dial::Greeted { link, .. } => Some(link),
        }
    }

    /// When it is dialled next, if that waits for nothing but time.
    pub(super) fn dials_at(&self) -> Option<Instant> {
        match self.dial {
            Dial::Waiting { until } if self.standing.is_none() && self.is_listed() => Some(until),
            _ => None,
        }
    }

    /// The address to dial now, if it is time. Each attempt takes the next one.
    pub(super) fn dial(&mut self, now: Instant) -> Option<String> {
        if self.dials_at()? > now {
            return None;
        }
        let address = self.addresses[self.next_address % self.addresses.len()].clone();
        self.next_address = (self.next_address + 1) % self.addresses.len();
        self.dial = Dial::Naming {
            address: address.clone(),
        };
        Some(address)
    }

    /// The attempt has a connection.
    pub(super) fn opening(&mut self, address: String, link: LinkId) {
        self.dial = Dial::Opening { address, link };
    }

    /// The hello was sent on the attempt's connection.
    pub(super) fn greeted(&mut self) {
        if let Dial::Opening { address, link } = &self.dial {
            self.dial = Dial::Greeted {
                address: address.clone(),
                link: *link,
            };
        }
    }

    /// The attempt has failed: another one is made later, by the wait that doubles each time.
    pub(super) fn failed(
        &mut self,
        why: String,
        now: Instant,
        settings: &LinkSettings,
        random: &mut Random,
    ) {
        let until = now + wait(self.failures, settings, random);
        self.failures = self.failures.saturating_add(1);
        self.dial = Dial::Waiting { until };
        self.why = Some(why);
    }

    /// What becomes of a connection on which this peer has said `greeting`. `own_is_smaller`: the
    /// id of this server is smaller than the peer's.
    pub(super) fn arrival(&self, own_is_smaller: bool, greeting: Greeting) -> Arrival {
        if planted(Fault::BothLinksStay) {
            return Arrival::Taken {
                replaces: None,
                given_up: None,
            };
        }
        if let Some(standing) = &self.standing
            && !greeting.is_after(standing.greeting)
        {
            return Arrival::Refused(Reason::Stands);
        }
        let given_up = match self.dial {
            // The peer has this server's hello, or gets it, and takes that connection: the rule is the
            // same at both ends.
            Dial::Greeted { .. } if own_is_smaller => return Arrival::Refused(Reason::Crossed),
            Dial::Opening { link, .. } | Dial::Greeted { link, .. } => Some(link),
            Dial::Waiting { .. } | Dial::Naming { .. } => None,
        };
        Arrival::Taken {
            replaces: self.standing.map(|standing| standing.link),
            given_up,
        }
    }

    /// A link with it stands.
    pub(super) fn stood(&mut self, link: LinkId, greeting: Greeting, now: Instant) {
        self.standing = Some(Standing { link, greeting });
        self.dial = Dial::Waiting { until: now };
        self.failures = 0;
        self.why = None;
    }

    /// Its link has ended. It is dialled again after the least wait.
    pub(super) fn ended(
        &mut self,
        why: String,
        now: Instant,
        settings: &LinkSettings,
        random: &mut Random,
    ) {
        self.standing = None;
        self.failed(why, now, settings, random);
    }
}

/// What is waited after so many failures: the least wait, doubled with each, and between a half and
/// the whole of that by chance, so that two that dial each other do not stay in step.
fn wait(failures: u32, settings: &LinkSettings, random: &mut Random) -> Duration {
    let factor = 1u32.checked_shl(failures.min(31)).unwrap_or(u32::MAX);
    let whole = settings
        .redial_min
        .saturating_mul(factor)
        .min(settings.redial_max);
    let micros = u64::try_from(whole.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(random.within(micros / 2, micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_from_the_least_to_the_greatest_and_differ_by_chance() {
        let settings = LinkSettings::default();
        let (mut random, mut waits) = (Random::new(5), Vec::new());
        for (failures, whole) in [
            (0, 100),
            (1, 200),
            (2, 400),
            (4, 1_600),
            (5, 2_000),
            (99, 2_000),
        ] {
            let whole = Duration::from_millis(whole);
            for _ in 0..100 {
                let wait = wait(failures, &settings, &mut random);
                assert!(wait >= whole / 2 && wait <= whole, "{failures}: {wait:?}");
                waits.push(wait);
            }
        }
        waits.dedup();
        assert!(waits.len() > 500);
    }

    #[test]
    fn attempts_go_round_the_addresses_and_stop_while_a_link_stands() {
        let (settings, mut random) = (LinkSettings::default(), Random::new(1));
        let mut now = Instant::now();
        let mut peer = Peer::new(now);
        assert_eq!(peer.dial(now), None);
        let addresses: Vec<String> = ["a", "b", "c"].map(str::to_owned).into();
        peer.set_addresses(&addresses, now);
        let mut dialled = Vec::new();
        for _ in 0..4 {
            dialled.push(peer.dial(now).unwrap());
            assert_eq!(peer.dial(now), None, "one attempt at a time");
            peer.failed("refused".to_owned(), now, &settings, &mut random);
            assert_eq!(peer.dial(now), None, "not before the wait is over");
            now = peer.dials_at().unwrap();
        }
        assert_eq!(dialled, ["a", "b", "c", "a"]);
        assert_eq!((peer.failures, peer.why.as_deref()), (4, Some("refused")));
        let greeting = Greeting { run: 1, ended: 0 };
        peer.stood(LinkId(1), greeting, now);
        assert_eq!((peer.dials_at(), peer.why.as_deref()), (None, None));
        peer.ended("silent".to_owned(), now, &settings, &mut random);
        let again = peer.dials_at().unwrap();
        assert!(again > now && again <= now + settings.redial_min);
        // Without addresses it is not dialled any more.
        assert_eq!(peer.set_addresses(&[], now), None);
        assert_eq!(peer.dials_at(), None);
    }

    #[test]
    fn a_peer_that_started_again_or_saw_the_link_end_replaces_it_and_no_other() {
        let now = Instant::now();
        let mut peer = Peer::new(now);
        peer.stood(LinkId(1), Greeting { run: 7, ended: 3 }, now);
        let arrival = |run, ended| peer.arrival(true, Greeting { run, ended });
        let replaced = Arrival::Taken {
            replaces: Some(LinkId(1)),
            given_up: None,
        };
        assert_eq!(arrival(8, 0), replaced, "another process");
        assert_eq!(arrival(7, 4), replaced, "it has seen the link end");
        let stands = Arrival::Refused(Reason::Stands);
        assert_eq!(arrival(7, 3), stands, "it was on its way");
        assert_eq!(arrival(7, 2), stands, "older yet");
    }
}
