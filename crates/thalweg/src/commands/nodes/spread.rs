//! Which topic goes to which node, so that each has about as many.

use crate::commands::topic::companion_of;
use client::NodeId;
use std::collections::BTreeMap;

/// Topics that stay together: one, and those that come with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    pub namespace: String,
    /// By name, the one whose name begins the others' first.
    pub topics: Vec<String>,
}

/// The topics of a node, as families.
pub fn families(topics: &[(String, String)]) -> Vec<Family> {
    let mut families: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    for (namespace, name) in topics {
        let whose = companion_of(name).unwrap_or_else(|| name.clone());
        let family = families.entry((namespace, whose)).or_default();
        family.push(name.clone());
    }
    let families = families.into_iter().map(|((namespace, _), mut topics)| {
        topics.sort();
        Family {
            namespace: namespace.to_owned(),
            topics,
        }
    });
    families.collect()
}

/// A family that goes from a node to another.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub family: Family,
    pub from: NodeId,
    pub to: NodeId,
}

/// Where families of a node go that gets no topics any more: each to the node that has the fewest then, of those in `counts`. `None` if
/// there is none.
pub fn drain(
    from: NodeId,
    families: Vec<Family>,
    mut counts: BTreeMap<NodeId, u64>,
) -> Option<Vec<Step>> {
    let step = |family: Family| {
        let (to, count) = counts.iter_mut().min_by_key(|(_, count)| **count)?;
        *count += family.topics.len() as u64;
        let to = *to;
        Some(Step { family, from, to })
    };
    families.into_iter().map(step).collect()
}

/// The fewest steps after which no two nodes differ by more than one topic, as far as families allow that: each goes from the node
/// that has the most to the one that has the fewest, and is the largest that does not make that one the larger of the two.
pub fn balance(mut nodes: BTreeMap<NodeId, Vec<Family>>) -> Vec<Step> {
    let size = |family: &Family| family.topics.len();
    let count = |families: &Vec<Family>| families.iter().map(size).sum::<usize>();
    let mut steps = Vec::new();
    loop {
        let counts = nodes
            .iter()
            .map(|(node, families)| (count(families), *node));
        let (Some((most, from)), Some((fewest, to))) = (counts.clone().max(), counts.min()) else {
            return steps;
        };
        let room = (most - fewest) / 2;
        let families = nodes.entry(from).or_default();
        let fits = |(_, family): &(usize, &Family)| size(family) <= room;
        let best = families.iter().enumerate().filter(fits);
        let Some((at, _)) = best.max_by_key(|(_, family)| size(family)) else {
            return steps;
        };
        let family = families.remove(at);
        nodes.entry(to).or_default().push(family.clone());
        steps.push(Step { family, from, to });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topics(names: &[&str]) -> Vec<Family> {
        let topics = names.iter().map(|name| ("".to_owned(), (*name).to_owned()));
        families(&topics.collect::<Vec<_>>())
    }

    fn sizes_after(mut nodes: BTreeMap<NodeId, Vec<Family>>) -> Vec<usize> {
        for step in balance(nodes.clone()) {
            let families = nodes.get_mut(&step.from).unwrap();
            families.retain(|family| *family != step.family);
            nodes.get_mut(&step.to).unwrap().push(step.family);
        }
        let size = |families: &Vec<Family>| families.iter().map(|it| it.topics.len()).sum();
        nodes.values().map(size).collect()
    }

    #[test]
    fn a_topic_and_what_comes_with_it_are_one_family() {
        let parts = topics(&["a/1", "a.dead/1", "a/0", "a", "a.dead"]);
        let names: Vec<String> = parts.iter().map(|it| it.topics.join(" ")).collect();
        assert_eq!(names, ["a a.dead", "a/0", "a.dead/1 a/1"]);
        let found = topics(&["run.dead", "scan", "run", "run.replies", "lone.dead"]);
        let names: Vec<_> = found.iter().map(|it| it.topics.join(" ")).collect();
        assert_eq!(names, ["lone.dead", "run run.dead run.replies", "scan"]);
        let namespaces = families(&[("a".into(), "run".into()), ("b".into(), "run.dead".into())]);
        assert_eq!(namespaces.len(), 2);
    }

    #[test]
    fn afterwards_no_two_nodes_differ_by_more_than_one_topic() {
        let (one, other, third) = (NodeId(1), NodeId(2), NodeId(5));
        let names: Vec<String> = (0..10).map(|number| format!("run.{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let nodes = BTreeMap::from([
            (one, topics(&names)),
            (other, Vec::new()),
            (third, topics(&["scan"])),
        ]);
        assert_eq!(sizes_after(nodes.clone()), [4, 4, 3]);
        // Nothing moves twice.
        let steps = balance(nodes);
        assert_eq!(steps.len(), 6);
        assert!(steps.iter().all(|step| step.from == one));
    }

    #[test]
    fn what_leaves_a_node_goes_to_the_one_that_has_the_fewest_then() {
        let counts = BTreeMap::from([(NodeId(1), 3), (NodeId(2), 1)]);
        let found = topics(&["a", "a.dead", "b", "c", "d"]);
        let steps = drain(NodeId(7), found.clone(), counts).unwrap();
        let to: Vec<_> = steps.iter().map(|step| step.to.0).collect();
        assert_eq!(to, [2, 1, 2, 1]);
        assert!(steps.iter().all(|step| step.from == NodeId(7)));
        assert_eq!(drain(NodeId(7), found, BTreeMap::new()), None);
        assert_eq!(
            drain(NodeId(7), Vec::new(), BTreeMap::new()),
            Some(Vec::new())
        );
    }

    #[test]
    fn what_is_even_and_what_cannot_be_evener_stays() {
        let (one, other) = (NodeId(1), NodeId(2));
        for (left, right) in [
            (vec!["a", "b"], vec!["c"]),
            // A family of two would only change sides.
            (vec!["a", "a.dead"], vec![]),
            (vec![], vec![]),
        ] {
            let nodes = BTreeMap::from([(one, topics(&left)), (other, topics(&right))]);
            assert_eq!(balance(nodes), []);
        }
        assert_eq!(balance(BTreeMap::from([(one, topics(&["a", "b"]))])), []);
        assert_eq!(balance(BTreeMap::new()), []);
    }
}
