//! Both dial each other, and one link stays.

use super::super::hello::Greeting;
use super::super::peer::{Arrival, Dial, Peer};
use super::certificates::Authority;
use super::*;
use crate::faults::{Fault, with};
use net::LinkId;
use std::collections::VecDeque;

/// Both begin to dial before either hears of the other. Returns what each has seen: links that stood, and
/// links that ended.
fn cross(security: &Security) -> [(usize, usize); 2] {
    let mut smaller = Node::new(1, security, patient());
    let mut greater = Node::new(2, security, patient());
    smaller.dials_node(&greater);
    greater.dials_node(&smaller);
    let now = Instant::now();
    smaller.links.look_at_timers(now);
    greater.links.look_at_timers(now);
    let mut turns = 0;
    until(
        &mut [&mut smaller, &mut greater],
        "both have settled",
        |nodes| {
            turns += 1;
            // Some turns more, in which a second link would come.
            let stand = nodes.iter().all(|node| node.ups() > 0);
            let settled = nodes.iter().all(|node| node.links.connections.len() == 1);
            turns = if stand { turns } else { 0 };
            stand && turns > 100 && (settled || turns > 200)
        },
    );
    [&smaller, &greater].map(|node| (node.ups(), node.downs().len()))
}

#[test]
fn where_both_dial_each_other_one_link_stays_and_none_ends() {
    for security in [Security::Plain, Authority::new("cluster").security()] {
        assert_eq!(cross(&security), [(1, 0), (1, 0)], "{security:?}");
    }
}

#[test]
fn two_links_that_stay_are_noticed() {
    let seen = with(Fault::BothLinksStay, || cross(&Security::Plain));
    assert_ne!(seen, [(1, 0), (1, 0)]);
}

#[test]
fn many_that_dial_one_another_have_one_link_each() {
    const COUNT: usize = 5;
    let mut nodes: Vec<Node> = (1..=COUNT as u128).map(Node::plain).collect();
    let addresses: Vec<(PeerId, String)> = nodes
        .iter()
        .map(|node| (node.id, node.links.address().to_owned()))
        .collect();
    for node in &mut nodes {
        let all: Vec<_> = addresses
            .iter()
            .map(|(id, address)| (*id, &address[..]))
            .collect();
        node.dials(&all);
    }
    let mut nodes: Vec<&mut Node> = nodes.iter_mut().collect();
    until(&mut nodes, "all are linked", |nodes| {
        nodes
            .iter()
            .all(|node| node.links.connections.len() == COUNT - 1 && node.ups() >= COUNT - 1)
    });
    for node in nodes {
        assert_eq!((node.ups(), node.downs().len()), (COUNT - 1, 0));
    }
}

/// What is on its way in a connection of the model.
#[derive(Debug, Clone, Copy)]
enum Said {
    Hello(Greeting),
    End,
}

#[derive(Debug)]
struct Wire {
    dialler: usize,
    opened: bool,
    /// To each end.
    to: [VecDeque<Said>; 2],
    /// Whether each end still has it.
    open: [bool; 2],
}

struct End {
    peer: Peer,
    run: u64,
    ended: u64,
    ups: usize,
    downs: usize,
}

/// Two servers that dial each other, in any order of all that happens: the rules of `peer` alone, without sockets.
struct Model {
    ends: [End; 2],
    wires: Vec<Wire>,
    random: Random,
    now: Instant,
}

impl Model {
    fn new(seed: u64) -> Self {
        let now = Instant::now();
        let end = |run| {
            let mut peer = Peer::new(now);
            peer.set_addresses(&["there".to_owned()], now);
            End {
                peer,
                run,
                ended: 0,
                ups: 0,
                downs: 0,
            }
        };
        Self {
            ends: [end(1), end(2)],
            wires: Vec::new(),
            random: Random::new(seed),
            now,
        }
    }

    fn greeting(&self, end: usize) -> Greeting {
        Greeting {
            run: self.ends[end].run,
            ended: self.ends[end].ended,
        }
    }

    /// One end has a connection no more.
    fn close(&mut self, wire: usize, end: usize) {
        let wire = &mut self.wires[wire];
        if !wire.opened && end == wire.dialler {
            // Nobody has heard of it.
            wire.open = [false, false];
        } else if std::mem::replace(&mut wire.open[end], false) {
            wire.to[1 - end].push_back(Said::End);
        }
    }

    /// A connection has ended at one end, which did not want that.
    fn lost(&mut self, wire: usize, end: usize) {
        self.close(wire, end);
        let link = LinkId(wire as u64);
        let at = &mut self.ends[end];
        let settings = LinkSettings::default();
        let dialled = match &at.peer.dial {
            Dial::Opening { link, .. } | Dial::Greeted { link, .. } => Some(*link),
            Dial::Waiting { .. } | Dial::Naming { .. } => None,
        };
        if at
            .peer
            .standing
            .is_some_and(|standing| standing.link == link)
        {
            at.ended += 1;
            at.downs += 1;
            at.peer
                .ended(String::new(), self.now, &settings, &mut self.random);
        } else if dialled == Some(link) {
            at.peer
                .failed(String::new(), self.now, &settings, &mut self.random);
        }
    }

    fn stand(&mut self, wire: usize, end: usize, greeting: Greeting) {
        let at = &mut self.ends[end];
        at.ups += 1;
        at.peer.stood(LinkId(wire as u64), greeting, self.now);
    }

    fn take(&mut self, wire: usize, end: usize, said: Said) {
        if !self.wires[wire].open[end] {
            return;
        }
        let greeting = match said {
            Said::End => return self.lost(wire, end),
            Said::Hello(greeting) => greeting,
        };
        if self.wires[wire].dialler == end {
            return self.stand(wire, end, greeting);
        }
        match self.ends[end].peer.arrival(end == 0, greeting) {
            Arrival::Refused(_) => self.close(wire, end),
            Arrival::Taken { replaces, given_up } => {
                if let Some(old) = replaces {
                    self.lost(old.0 as usize, end);
                }
                if let Some(dialled) = given_up {
                    self.close(dialled.0 as usize, end);
                }
                let own = Said::Hello(self.greeting(end));
                self.wires[wire].to[1 - end].push_back(own);
                self.stand(wire, end, greeting);
            }
        }
    }

    /// Something that can happen happens; false if nothing can but by time.
    fn step(&mut self) -> bool {
        let mut can: Vec<(usize, usize, bool)> = Vec::new();
        for (index, wire) in self.wires.iter().enumerate() {
            if !wire.opened && wire.open[wire.dialler] {
                can.push((index, wire.dialler, true));
            }
            for end in 0..2 {
                // An accepted connection is known when it is opened.
                if wire.opened && !wire.to[end].is_empty() {
                    can.push((index, end, false));
                }
            }
        }
        let due: Vec<usize> = (0..2)
            .filter(|end| {
                self.ends[*end]
                    .peer
                    .dials_at()
                    .is_some_and(|at| at <= self.now)
            })
            .collect();
        let choice = self.random.below((can.len() + due.len()) as u64) as usize;
        if let Some((wire, end, opens)) = can.get(choice).copied() {
            if opens {
                self.wires[wire].opened = true;
                self.ends[end].peer.greeted();
                let own = Said::Hello(self.greeting(end));
                self.wires[wire].to[1 - end].push_back(own);
            } else if let Some(said) = self.wires[wire].to[end].pop_front() {
                self.take(wire, end, said);
            }
            return true;
        }
        let Some(end) = due.get(choice - can.len()).copied() else {
            return false;
        };
        let address = self.ends[end].peer.dial(self.now).expect("it is due");
        let link = LinkId(self.wires.len() as u64);
        self.ends[end].peer.opening(address, link);
        self.wires.push(Wire {
            dialler: end,
            opened: false,
            to: Default::default(),
            open: [true, true],
        });
        true
    }

    /// Goes on until nothing happens any more, also with time.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.step() {
                continue;
            }
            let dials = self.ends.iter().filter_map(|end| end.peer.dials_at());
            match dials.min() {
                Some(next) => self.now = self.now.max(next),
                None => return,
            }
        }
        panic!("they never come to rest");
    }

    /// The one connection that is the link at both ends.
    fn link(&self) -> LinkId {
        let [one, other] =
            [0, 1].map(|end: usize| self.ends[end].peer.standing.map(|one| one.link));
        assert_eq!(one, other);
        let open = self.wires.iter().filter(|wire| wire.open != [false, false]);
        assert_eq!(open.count(), 1, "{:?}", self.wires);
        one.expect("a link stands")
    }
}

#[test]
fn in_whatever_order_two_dial_each_other_one_link_stands_and_stays() {
    let mut diallers = [0, 0];
    for seed in 0..2_000 {
        let mut model = Model::new(seed);
        model.settle();
        let link = model.link();
        diallers[model.wires[link.0 as usize].dialler] += 1;
        let seen = [0, 1].map(|end: usize| (model.ends[end].ups, model.ends[end].downs));
        assert_eq!(seen, [(1, 0), (1, 0)], "seed {seed}");
    }
    assert!(diallers.iter().all(|count| *count > 100), "{diallers:?}");
}

#[test]
fn where_both_hellos_are_on_their_way_the_connection_of_the_smaller_id_stays() {
    for seed in 0..500 {
        let mut model = Model::new(seed);
        let both = |model: &Model| {
            let greeted = |end: &End| matches!(end.peer.dial, Dial::Greeted { .. });
            model.ends.iter().all(greeted)
        };
        while !both(&model) && model.step() {}
        if both(&model) {
            model.settle();
            assert_eq!(
                model.wires[model.link().0 as usize].dialler,
                0,
                "seed {seed}"
            );
        }
    }
}

#[test]
fn whatever_is_cut_or_starts_again_one_link_stands_in_the_end() {
    for seed in 0..2_000 {
        let mut model = Model::new(seed);
        for _ in 0..200 {
            let wires = model.wires.len() as u64;
            match model.random.below(20) {
                0 if wires > 0 => {
                    let wire = model.random.below(wires) as usize;
                    let end = model.random.below(2) as usize;
                    if model.wires[wire].open[end] {
                        model.lost(wire, end);
                    }
                }
                1 if model.random.one_in(8) => {
                    // A process is gone, and its connections end where they are heard of.
                    let end = model.random.below(2) as usize;
                    for wire in 0..model.wires.len() {
                        model.close(wire, end);
                    }
                    let fresh = Model::new(0).ends;
                    let [mut one, _] = fresh;
                    one.run = 100 + model.random.number();
                    model.ends[end] = one;
                }
                _ => {
                    if !model.step() {
                        model.now += Duration::from_millis(50);
                    }
                }
            }
        }
        model.settle();
        model.link();
    }
}
