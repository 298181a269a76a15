//! The nodes of a table: how many there are, where clients find each, and which of them a new topic is on.

use crate::ids::LEADER;
use serde_json::{Value, json};
use std::sync::OnceLock;
use topic::key_hash;
use wire::{DirectoryId, NodeId};

/// The nodes of one table, by their ids. Each says where it is once it listens; what was said stays.
#[derive(Debug)]
pub struct Nodes(Vec<OnceLock<Listening>>);

/// Where a node is.
#[derive(Debug)]
struct Listening {
    directory: DirectoryId,
    endpoints: Vec<String>,
}

impl Default for Nodes {
    /// A node that is alone.
    fn default() -> Self {
        Self::new(1)
    }
}

impl Nodes {
    /// So many, and nothing is known of where they are.
    pub fn new(count: usize) -> Self {
        Self((0..count.max(1)).map(|_| OnceLock::new()).collect())
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// A node listens at these addresses; one of every interface is at the host that its client has reached. What it has said
    /// before stays; a node of another table is none.
    pub fn listens(&self, node: NodeId, directory: DirectoryId, endpoints: Vec<String>) {
        if let Some(place) = self.0.get(node.0 as usize) {
            let _ = place.set(Listening {
                directory,
                endpoints,
            });
        }
    }

    /// The nodes but for this one, as the status has it: where each is, once it listens.
    pub(crate) fn status_of_others(&self, own: NodeId) -> Value {
        let nodes = (0..self.count() as u32).map(NodeId);
        let others = nodes.filter(|node| *node != own).map(|node| {
            let place = self.listening(node);
            json!({
                "node": node.0,
                "directory": place.map(|place| place.directory.to_string()),
                "endpoints": place.map(|place| &place.endpoints),
            })
        });
        others.collect()
    }

    /// What a client hears of where a node is, whose own address is `peer`: `ADDRESS#DIRECTORY`, for the transport that
    /// it came by. Without the directory, `#NODE`, as long as that node has not said where it is.
    pub fn hint(&self, node: NodeId, peer: &str) -> String {
        let Some(place) = self.listening(node) else {
            return format!("#{node}");
        };
        let own = scheme(peer);
        let of_scheme = |wanted: &str| {
            let mut endpoints = place.endpoints.iter();
            endpoints.find(|one| scheme(one) == wanted).cloned()
        };
        let address = of_scheme(own).or_else(|| match own {
            "shm" => of_scheme("unix"),
            _ => None,
        });
        format!("{}#{}", address.unwrap_or_default(), place.directory)
    }

    /// The node that a new topic of this name is on, which all nodes agree on: the one whose number gives the greatest hash
    /// with it (rendezvous hashing, Thaler and Ravishankar 1998), so that one node more takes its share from each of the others and moves
    /// nothing between those.
    pub fn home_of(&self, namespace: &str, name: &str) -> NodeId {
        let weight = |node: &u32| {
            let mut key = node.to_le_bytes().to_vec();
            key.extend_from_slice(namespace.as_bytes());
            // No name has it.
            key.push(0);
            key.extend_from_slice(name.as_bytes());
            key_hash(&key)
        };
        (0..self.count() as u32)
            .max_by_key(weight)
            .map_or(LEADER, NodeId)
    }

    /// The node that has this data directory.
    pub(crate) fn node_of(&self, directory: DirectoryId) -> Option<NodeId> {
        let nodes = (0..self.count() as u32).map(NodeId);
        let mut found = nodes.filter(|node| {
            let place = self.listening(*node);
            place.is_some_and(|place| place.directory == directory)
        });
        found.next()
    }

    fn listening(&self, node: NodeId) -> Option<&Listening> {
        self.0.get(node.0 as usize)?.get()
    }
}

fn scheme(address: &str) -> &str {
    address.split_once("://").map_or("", |(scheme, _)| scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: usize) -> Nodes {
        Nodes::new(count)
    }

    fn homes(nodes: &Nodes) -> Vec<u32> {
        let names = (0..3000).map(|number| format!("run/{number}"));
        names.map(|name| nodes.home_of("", &name).0).collect()
    }

    #[test]
    fn topics_are_spread_evenly_and_a_node_more_moves_its_share_alone() {
        let mut before = homes(&nodes(1));
        assert!(before.iter().all(|home| *home == 0));
        for count in 2..=5_u32 {
            let homes = homes(&nodes(count as usize));
            let fair = homes.len() / count as usize;
            for node in 0..count {
                let share = homes.iter().filter(|home| **home == node).count();
                // Six standard deviations.
                let off = 6.0 * (fair as f64).sqrt();
                assert!(
                    (share as f64 - fair as f64).abs() < off,
                    "{share} of {fair}"
                );
            }
            let moved = homes.iter().zip(&before).filter(|(now, was)| now != was);
            assert!(moved.clone().all(|(now, _)| *now == count - 1));
            before = homes;
        }
        assert_ne!(
            (0..64)
                .map(|n| nodes(2).home_of("a", &n.to_string()))
                .collect::<Vec<_>>(),
            (0..64)
                .map(|n| nodes(2).home_of("b", &n.to_string()))
                .collect::<Vec<_>>(),
        );
    }

    #[test]
    fn a_client_hears_of_an_address_of_its_own_transport() {
        let nodes = nodes(2);
        let other = NodeId(1);
        assert_eq!(nodes.hint(other, "tcp://127.0.0.1:4242"), "#1");
        let endpoints = ["tcp://127.0.0.1:9001", "unix:///d/s", "shm:///d/s"].map(str::to_owned);
        nodes.listens(other, DirectoryId(0xd2), endpoints.to_vec());
        nodes.listens(other, DirectoryId(7), Vec::new());
        let directory = DirectoryId(0xd2);
        for (peer, address) in [
            ("tcp://10.0.0.7:4242", "tcp://127.0.0.1:9001"),
            ("unix://", "unix:///d/s"),
            ("shm://", "shm:///d/s"),
            ("tls://10.0.0.7:1", ""),
            ("", ""),
        ] {
            assert_eq!(nodes.hint(other, peer), format!("{address}#{directory}"));
        }
        assert_eq!(nodes.hint(NodeId(2), "tcp://h:1"), "#2");
    }
}
