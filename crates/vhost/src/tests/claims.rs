//! Acts that are under way at the same time, of which some fail, and connections that end meanwhile.

use super::rig::{Rig, bind, consume, declare, delete, delete_exchange, exchange, unbind};
use super::{Chance, seeds};
use crate::faults::{Fault, with};
use crate::*;
use amqp::{ReplyCode, Table};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Who claims.
#[derive(Debug, Clone)]
enum Claim {
    Client(ConnectionId, Act),
    Server(QueueId, Removal),
}

/// What is being carried out.
struct UnderWay {
    plan: Plan,
    appended: bool,
}

struct Play {
    rig: Rig,
    connections: Vec<ConnectionId>,
    under_way: Vec<UnderWay>,
    parked: Vec<(ActId, Claim)>,
    consumers: Vec<(ConnectionId, Consumer)>,
    /// Names of queues that are being made.
    names: BTreeSet<Arc<str>>,
    hint: String,
}

impl Play {
    fn new(seed: u64) -> Self {
        let mut rig = Rig::new();
        let connections = (0..4).map(|_| rig.vhost.connect()).collect();
        Self {
            rig,
            connections,
            under_way: Vec::new(),
            parked: Vec::new(),
            consumers: Vec::new(),
            names: BTreeSet::new(),
            hint: format!("VHOST_SEEDS={seed}..{}", seed + 1),
        }
    }

    fn claim(&mut self, claim: Claim) {
        let claimed = match &claim {
            Claim::Client(connection, _) if !self.connections.contains(connection) => return,
            Claim::Client(connection, act) => self.rig.vhost.claim(*connection, act),
            Claim::Server(queue, removal) => Ok(self.rig.vhost.remove_queue(*queue, *removal)),
        };
        match claimed {
            Ok(Claimed::Begun(plan)) => self.begin(plan),
            Ok(Claimed::Wait(act)) => {
                let is_under_way = self.under_way.iter().any(|one| one.plan.act == act);
                assert!(is_under_way, "{}: {claim:?} waits for {act}", self.hint);
                self.parked.push((act, claim));
            }
            Ok(Claimed::Done(answer)) => self.answered(&claim, answer),
            Err(failure) => assert_ne!(failure.code, ReplyCode::InternalError, "{failure}"),
        }
    }

    fn begin(&mut self, plan: Plan) {
        if let Some(queue) = &plan.create {
            let name = &queue.name;
            assert!(
                self.names.insert(name.clone()),
                "{}: '{name}' is made twice",
                self.hint
            );
            let is_there = self.rig.vhost.queues().any(|found| found.name == *name);
            assert!(!is_there, "{}: '{name}' is there", self.hint);
        }
        self.rig.make(&plan);
        let appended = false;
        self.under_way.push(UnderWay { plan, appended });
    }

    fn answered(&mut self, claim: &Claim, answer: Answer) {
        let Claim::Client(connection, _) = claim else {
            return;
        };
        let queue = match &answer {
            Answer::QueueDeclared { queue, .. } => Some(queue.clone()),
            Answer::Consuming(consumer) => self.rig.vhost.queue(consumer.queue()).cloned(),
            _ => None,
        };
        let owner = queue.and_then(|queue| queue.owner);
        assert!(
            owner.is_none_or(|owner| owner == *connection),
            "{}",
            self.hint
        );
        if let Answer::Consuming(consumer) = answer {
            self.consumers.push((*connection, consumer));
        }
    }

    fn append(&mut self, index: usize) {
        let one = &mut self.under_way[index];
        if !std::mem::replace(&mut one.appended, true) {
            self.rig.append(&one.plan);
        }
    }

    fn settle(&mut self, index: usize, outcome: Outcome) {
        // What is appended is done.
        let outcome = match self.under_way[index].appended {
            true => Outcome::Done,
            false => outcome,
        };
        if outcome == Outcome::Done {
            self.append(index);
        }
        let plan = self.under_way.swap_remove(index).plan;
        if let Some(queue) = &plan.create {
            self.names.remove(&queue.name);
            if outcome != Outcome::Done {
                self.rig.ids.remove(&queue.id);
            }
        }
        let settled = self.rig.vhost.settle(plan.act, outcome.clone());
        assert!(outcome == Outcome::Done || settled.answer.is_err());
        self.carry_out(settled.effects);
        let (woken, parked) = std::mem::take(&mut self.parked)
            .into_iter()
            .partition(|(act, _)| *act == plan.act);
        self.parked = parked;
        let woken: Vec<_> = woken;
        woken.into_iter().for_each(|(_, claim)| self.claim(claim));
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::DeleteTopic(queue) => {
                    assert!(self.rig.topics.remove(&queue), "{}: {queue}", self.hint);
                    assert!(
                        self.rig.vhost.queue(queue).is_none(),
                        "{}: {queue}",
                        self.hint
                    );
                }
                Effect::CancelConsumers(_) => {}
                Effect::RemoveQueue(queue, removal) => self.claim(Claim::Server(queue, removal)),
            }
        }
    }

    fn disconnect(&mut self, index: usize) {
        let connection = self.connections[index];
        self.connections[index] = self.rig.vhost.connect();
        let effects = self.rig.vhost.disconnect(connection);
        self.carry_out(effects);
        while let Some(own) = self.consumers.iter().position(|(of, _)| *of == connection) {
            self.end_consumer(own);
        }
    }

    fn end_consumer(&mut self, index: usize) {
        let (_, consumer) = self.consumers.swap_remove(index);
        let effect = self.rig.vhost.end_consumer(consumer);
        self.carry_out(effect.into_iter().collect());
    }

    /// Lets all that is under way end, and looks at what is there.
    fn quiesce(&mut self, chance: &mut Chance) {
        while !self.under_way.is_empty() {
            let index = chance.below(self.under_way.len());
            self.settle(index, outcome(chance));
        }
        assert!(self.parked.is_empty(), "{}: {:?}", self.hint, self.parked);
        let vhost = &self.rig.vhost;
        assert!(vhost.is_quiet());
        vhost.check();
        let there: BTreeSet<_> = vhost.queues().map(|queue| queue.id).collect();
        assert_eq!(self.rig.topics, there, "{}", self.hint);
        for queue in vhost.queues() {
            let owner = queue.owner;
            let is_there = owner.is_none_or(|owner| self.connections.contains(&owner));
            assert!(is_there, "{}: {queue:?} is nobody's", self.hint);
        }
        assert_eq!(
            self.rig.recovered().durable(),
            vhost.durable(),
            "{}",
            self.hint
        );
        let snapshot = vhost.snapshot().expect("nothing is under way");
        let again = Vhost::recover("/", Limits::default(), snapshot).unwrap();
        assert_eq!(again.durable(), vhost.durable(), "{}", self.hint);
    }

    fn restart(&mut self) {
        self.rig.vhost = self.rig.recovered();
        let vhost = &self.rig.vhost;
        self.rig
            .topics
            .retain(|queue| vhost.queue(*queue).is_some());
        self.consumers.clear();
        for connection in &mut self.connections {
            *connection = self.rig.vhost.connect();
        }
    }
}

fn outcome(chance: &mut Chance) -> Outcome {
    match chance.below(4) {
        0 => Outcome::Failed("the disk is full".to_owned()),
        1 => Outcome::NotEmpty,
        _ => Outcome::Done,
    }
}

fn acts_at_once_do_not_disturb_each_other_for(count: u64) {
    for seed in seeds(count) {
        let mut chance = Chance(seed);
        let mut play = Play::new(seed);
        for _ in 0..200 {
            match chance.below(40) {
                0 => {
                    play.quiesce(&mut chance);
                    if chance.one_in(3) {
                        play.restart();
                    }
                }
                1..3 => play.disconnect(chance.below(4)),
                // What a crash leaves: some of what is under way is appended, some is not.
                39 => drop(play.rig.recovered()),
                3..5 if !play.consumers.is_empty() => {
                    play.end_consumer(chance.below(play.consumers.len()));
                }
                5..18 if !play.under_way.is_empty() => {
                    let index = chance.below(play.under_way.len());
                    play.settle(index, outcome(&mut chance));
                }
                // Records are appended in another order than acts are settled in.
                18..22 if !play.under_way.is_empty() => {
                    play.append(chance.below(play.under_way.len()));
                }
                _ => {
                    let connection = play.connections[chance.below(4)];
                    let act = chance.act();
                    play.claim(Claim::Client(connection, act));
                }
            }
        }
        play.quiesce(&mut chance);
        (0..4).for_each(|index| play.disconnect(index));
        play.quiesce(&mut chance);
    }
}

#[test]
fn acts_at_once_do_not_disturb_each_other() {
    acts_at_once_do_not_disturb_each_other_for(400);
}

macro_rules! noticed {
    ($($name:ident: $fault:ident,)*) => {$(
        #[test]
        #[should_panic]
        fn $name() {
            with(Fault::$fault, || acts_at_once_do_not_disturb_each_other_for(400));
        }
    )*};
}

noticed! {
    two_that_have_one_name_are_noticed: TwoAtOnce,
    a_failed_act_that_keeps_its_names_is_noticed: StaysClaimed,
    a_failed_act_that_is_done_is_noticed: FailedIsDone,
    an_exclusive_queue_without_its_connection_is_noticed: Orphan,
    a_snapshot_in_another_order_is_noticed: BindingsFirst,
    an_exclusive_queue_that_others_get_is_noticed: Shared,
    a_cascade_that_is_not_recorded_is_noticed: UnrecordedCascade,
    an_id_by_name_is_noticed: ByName,
}

fn begun(claimed: Result<Claimed, amqp::Failure>) -> Plan {
    match claimed {
        Ok(Claimed::Begun(plan)) => plan,
        other => panic!("{other:?}"),
    }
}

fn waits(claimed: Result<Claimed, amqp::Failure>) -> ActId {
    match claimed {
        Ok(Claimed::Wait(act)) => act,
        other => panic!("{other:?}"),
    }
}

/// A second declaration of a name waits for the first, and gets what that made.
#[test]
fn two_declarations_of_a_name_are_one_queue() {
    let mut rig = Rig::new();
    let (one, other) = (rig.vhost.connect(), rig.vhost.connect());
    let act = declare("q").into();
    let plan = begun(rig.vhost.claim(one, &act));
    rig.make(&plan);
    assert_eq!(waits(rig.vhost.claim(other, &act)), plan.act);
    assert_eq!(
        rig.to("", "q"),
        [""; 0],
        "nothing goes to what is not there"
    );
    let first = rig.settle(&plan, Outcome::Done);
    let Ok(Answer::QueueDeclared { queue, .. }) = first else {
        panic!("{first:?}");
    };
    let second = rig.ask(other, act).unwrap();
    assert_eq!(
        second,
        Answer::QueueDeclared {
            queue,
            consumers: 0
        }
    );
}

/// A declaration that fails leaves the name to the next one.
#[test]
fn a_failed_declaration_leaves_its_name() {
    let mut rig = Rig::new();
    let (one, other) = (rig.vhost.connect(), rig.vhost.connect());
    let act: Act = declare("q").into();
    let plan = begun(rig.vhost.claim(one, &act));
    rig.make(&plan);
    let failed = rig
        .settle(&plan, Outcome::Failed("the disk is full".to_owned()))
        .unwrap_err();
    assert_eq!(failed.to_string(), "INTERNAL_ERROR - the disk is full");
    assert!(rig.topics.is_empty());
    assert!(matches!(
        rig.ask(other, act),
        Ok(Answer::QueueDeclared { .. })
    ));
    assert_eq!(rig.topics.len(), 1);
}

/// A connection that ends while it declares takes nothing of others along: the next one gets a queue of its own.
#[test]
fn a_connection_that_ends_in_a_declaration_leaves_the_name_to_others() {
    let mut rig = Rig::new();
    let (one, other) = (rig.vhost.connect(), rig.vhost.connect());
    let exclusive = amqp::queue::Declare {
        exclusive: true,
        ..declare("q")
    };
    let plan = begun(rig.vhost.claim(one, &exclusive.into()));
    rig.make(&plan);
    let act: Act = declare("q").into();
    waits(rig.vhost.claim(other, &act));
    rig.disconnect(one);
    assert!(rig.settle(&plan, Outcome::Done).is_err());
    assert!(rig.topics.is_empty(), "nobody's topic is deleted");
    rig.ask(other, act).unwrap();
    assert_eq!(
        (rig.to("", "q"), rig.topics.len()),
        (vec!["q".to_owned()], 1)
    );
    rig.vhost.check();
}

/// What is removed is the queue that was meant, not the one that has its name now.
#[test]
fn a_queue_is_removed_by_its_id() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    let auto = amqp::queue::Declare {
        auto_delete: true,
        ..declare("q")
    };
    rig.ask(one, auto.clone()).unwrap();
    let Ok(Answer::Consuming(consumer)) = rig.ask(one, consume("q")) else {
        panic!("it consumes");
    };
    let Some(Effect::RemoveQueue(id, removal)) = rig.vhost.end_consumer(consumer) else {
        panic!("the queue is to go");
    };
    rig.ask(one, delete("q")).unwrap();
    rig.ask(one, auto).unwrap();
    rig.carry_out(vec![Effect::RemoveQueue(id, removal)]);
    assert_eq!(rig.to("", "q"), ["q"]);
}

/// A queue that is to go for want of consumers stays when there is one again, and goes with its connection anyway.
fn a_queue_that_is_used_again_stays() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    let auto = amqp::queue::Declare {
        auto_delete: true,
        exclusive: true,
        ..declare("q")
    };
    rig.ask(one, auto).unwrap();
    let Ok(Answer::Consuming(consumer)) = rig.ask(one, consume("q")) else {
        panic!("it consumes");
    };
    let effect = rig.vhost.end_consumer(consumer).unwrap();
    let Ok(Answer::Consuming(_again)) = rig.ask(one, consume("q")) else {
        panic!("it consumes again");
    };
    rig.carry_out(vec![effect]);
    assert_eq!(rig.to("", "q"), ["q"]);
    rig.disconnect(one);
    assert!(rig.topics.is_empty());
}

#[test]
fn used_again() {
    a_queue_that_is_used_again_stays();
}

#[test]
#[should_panic]
fn a_queue_that_goes_while_it_is_used_is_noticed() {
    with(Fault::InUse, a_queue_that_is_used_again_stays);
}

/// An auto-delete queue that never had a consumer waits for its first.
#[test]
fn an_auto_delete_queue_without_a_first_consumer_stays() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    let auto = amqp::queue::Declare {
        auto_delete: true,
        ..declare("q")
    };
    rig.ask(one, auto).unwrap();
    rig.disconnect(one);
    assert_eq!(rig.to("", "q"), ["q"]);
}

/// Of two acts that take the last two bindings of an auto-delete exchange, the second takes the exchange along.
#[test]
fn the_last_binding_is_seen_by_one_of_two() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    let auto = amqp::exchange::Declare {
        auto_delete: true,
        ..exchange("x", "fanout")
    };
    rig.ask(one, auto).unwrap();
    for name in ["q", "r"] {
        rig.ask(one, declare(name)).unwrap();
        rig.ask(one, bind(name, "x", "", Table::default())).unwrap();
    }
    let plan = begun(rig.vhost.claim(one, &delete("q").into()));
    let act: Act = unbind("r", "x", "", Table::default()).into();
    assert_eq!(waits(rig.vhost.claim(one, &act)), plan.act);
    rig.settle(&plan, Outcome::Done).unwrap();
    rig.ask(one, act).unwrap();
    assert!(rig.vhost.exchanges().all(|exchange| &*exchange.name != "x"));
}

/// Bindings of one exchange are made at the same time; what deletes it waits.
#[test]
fn bindings_of_an_exchange_do_not_wait_for_each_other() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    rig.ask(one, exchange("x", "fanout")).unwrap();
    let mut plans = Vec::new();
    for name in ["q", "r"] {
        rig.ask(one, declare(name)).unwrap();
        let act = bind(name, "x", "", Table::default()).into();
        plans.push(begun(rig.vhost.claim(one, &act)));
    }
    let act: Act = delete_exchange("x").into();
    waits(rig.vhost.claim(one, &act));
    for plan in plans {
        rig.settle(&plan, Outcome::Done).unwrap();
    }
    assert_eq!(rig.to("x", ""), ["q", "r"]);
    rig.ask(one, act).unwrap();
}

/// Nothing is answered from what is about to change: what comes is waited for, and what goes.
fn what_is_about_to_change_is_waited_for() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    rig.ask(one, declare("there")).unwrap();
    rig.ask(one, exchange("x", "direct")).unwrap();
    let passive = |name: &str| amqp::queue::Declare {
        passive: true,
        ..declare(name)
    };
    let passive_exchange = |name: &str| amqp::exchange::Declare {
        passive: true,
        ..exchange(name, "")
    };
    let none = Table::default;
    let meanwhile = |queue: &str, name: &str| -> Vec<Act> {
        vec![
            passive(queue).into(),
            declare(queue).into(),
            delete(queue).into(),
            consume(queue).into(),
            bind(queue, "amq.topic", "", none()).into(),
            unbind(queue, "amq.topic", "", none()).into(),
            passive_exchange(name).into(),
            exchange(name, "direct").into(),
            delete_exchange(name).into(),
            unbind("other", name, "", none()).into(),
        ]
    };
    let cases: [(Act, Act, &str, &str); 2] = [
        (
            declare("new").into(),
            exchange("y", "direct").into(),
            "new",
            "y",
        ),
        (
            delete("there").into(),
            delete_exchange("x").into(),
            "there",
            "x",
        ),
    ];
    rig.ask(one, declare("other")).unwrap();
    for (of_queue, of_exchange, queue, name) in cases {
        let plans = [of_queue, of_exchange].map(|act| begun(rig.vhost.claim(one, &act)));
        for (at, act) in meanwhile(queue, name).iter().enumerate() {
            let expected = &plans[usize::from(at >= 6)];
            assert_eq!(waits(rig.vhost.claim(one, act)), expected.act, "{act:?}");
        }
        for plan in plans {
            rig.make(&plan);
            rig.settle(&plan, Outcome::Done).unwrap();
        }
    }
    rig.vhost.check();
}

#[test]
fn about_to_change() {
    what_is_about_to_change_is_waited_for();
}

#[test]
#[should_panic]
fn an_answer_that_is_early_is_noticed() {
    with(Fault::Early, what_is_about_to_change_is_waited_for);
}

/// What wants a name alone is not overtaken for ever by those that share it.
fn a_deletion_is_not_overtaken() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    rig.ask(one, exchange("x", "fanout")).unwrap();
    let names = ["q", "r", "s"];
    for name in names {
        rig.ask(one, declare(name)).unwrap();
    }
    let binding = |name: &str| Act::from(bind(name, "x", "", Table::default()));
    let plans = ["q", "r"].map(|name| begun(rig.vhost.claim(one, &binding(name))));
    let deletion: Act = delete_exchange("x").into();
    assert_eq!(waits(rig.vhost.claim(one, &deletion)), plans[0].act);
    assert_eq!(waits(rig.vhost.claim(one, &binding("s"))), plans[0].act);
    rig.settle(&plans[0], Outcome::Done).unwrap();
    assert_eq!(waits(rig.vhost.claim(one, &deletion)), plans[1].act);
    assert_eq!(waits(rig.vhost.claim(one, &binding("s"))), plans[1].act);
    rig.settle(&plans[1], Outcome::Done).unwrap();
    rig.ask(one, deletion).unwrap();
    assert!(rig.ask(one, binding("s")).is_err());
    rig.vhost.check();
}

#[test]
fn not_overtaken() {
    a_deletion_is_not_overtaken();
}

#[test]
#[should_panic]
fn a_deletion_that_is_overtaken_is_noticed() {
    with(Fault::Overtaken, a_deletion_is_not_overtaken);
}

/// An exchange that is deleted only if it is unused is looked at again when a binding that was being made is there.
#[test]
fn a_binding_that_is_being_made_counts_as_use() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    rig.ask(one, exchange("x", "fanout")).unwrap();
    rig.ask(one, declare("q")).unwrap();
    let plan = begun(
        rig.vhost
            .claim(one, &bind("q", "x", "", Table::default()).into()),
    );
    let unused = amqp::exchange::Delete {
        if_unused: true,
        ..delete_exchange("x")
    };
    let act = Act::from(unused);
    assert_eq!(waits(rig.vhost.claim(one, &act)), plan.act);
    rig.settle(&plan, Outcome::Done).unwrap();
    let failure = rig.ask(one, act).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use"
    );
}

/// While acts with records are under way there is no snapshot: their records are in the log or not.
#[test]
fn no_snapshot_while_records_are_under_way() {
    let mut rig = Rig::new();
    let one = rig.vhost.connect();
    let durable = amqp::queue::Declare {
        durable: true,
        ..declare("q")
    };
    let plan = begun(rig.vhost.claim(one, &durable.into()));
    assert_eq!(rig.vhost.snapshot(), None);
    rig.make(&plan);
    rig.settle(&plan, Outcome::Done).unwrap();
    assert!(rig.vhost.snapshot().is_some());
}
