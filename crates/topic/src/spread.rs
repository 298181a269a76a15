//! Topics whose partitions are spread over nodes: each of these partitions is a topic by itself.

use crate::definition::PARTITIONS_MAX;
use crate::placement::Placement;
use serde::Serialize;

/// What stands between the name of a spread topic and the index of one of its partitions. No other topic's name has it.
const SEPARATOR: char = '/';

/// The partitions of a spread topic: how each is stored and on which nodes it is made, in the order of their indices. The topic itself has no partition; partition
/// `I` of the topic `T` is the topic `T/I`, whose only partition has the index `I`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Spread {
    partitions: Vec<Stored>,
}

/// Partitions that lie behind each other and are made alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Stored {
    storage: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    config: String,
    count: u32,
    #[serde(skip_serializing_if = "Placement::is_anywhere")]
    placement: Placement,
}

/// How one partition of a spread topic is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Making<'a> {
    /// The kind of storage.
    pub storage: &'a str,
    /// The storage's configuration.
    pub config: &'a str,
    /// On which nodes.
    pub placement: &'a Placement,
}

impl Spread {
    /// So many more partitions of a kind of storage, on nodes that have these labels.
    ///
    /// # Errors
    /// More than [`PARTITIONS_MAX`], or a kind without a name.
    pub fn push(
        &mut self,
        storage: &str,
        config: &str,
        placement: &Placement,
        count: u32,
    ) -> Result<(), String> {
        if storage.is_empty() || count == 0 {
            return Err("a partition has a \"storage\", and a \"count\" above 0".to_owned());
        }
        let all = u64::from(self.count()) + u64::from(count);
        if all > PARTITIONS_MAX as u64 {
            return Err(format!(
                "{all} partitions; a topic has {PARTITIONS_MAX} at most"
            ));
        }
        let is_alike = |last: &&mut Stored| {
            last.storage == storage && last.config == config && last.placement == *placement
        };
        match self.partitions.last_mut().filter(is_alike) {
            Some(last) => last.count += count,
            None => self.partitions.push(Stored {
                storage: storage.to_owned(),
                config: config.to_owned(),
                placement: placement.clone(),
                count,
            }),
        }
        Ok(())
    }

    /// The same partitions, on whichever nodes.
    pub fn anywhere(&self) -> Self {
        let mut anywhere = Self::default();
        for stored in &self.partitions {
            let (kind, config) = (&stored.storage, &stored.config);
            let pushed = anywhere.push(kind, config, &Placement::default(), stored.count);
            pushed.expect("there are as many as before");
        }
        anywhere
    }

    /// How many partitions there are.
    pub fn count(&self) -> u32 {
        self.partitions.iter().map(|stored| stored.count).sum()
    }

    /// How each partition is made, in the order of their indices.
    pub fn makings(&self) -> impl Iterator<Item = Making<'_>> {
        self.partitions.iter().flat_map(|stored| {
            let one = Making {
                storage: &stored.storage,
                config: &stored.config,
                placement: &stored.placement,
            };
            std::iter::repeat_n(one, stored.count as usize)
        })
    }

    /// Whether these are the partitions of `before`, and perhaps more behind them.
    pub fn continues(&self, before: &Self) -> bool {
        let count = before.count() as usize;
        self.count() as usize >= count && self.makings().take(count).eq(before.makings())
    }
}

/// Which partition of which spread topic a topic is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PartOf {
    /// The spread topic's id, in hexadecimal: one that was made anew under its name is another.
    pub topic: String,
    /// The partition's index, which is that of this topic's only partition.
    pub index: u32,
}

/// The name of the topic that is a partition of the spread topic `topic`.
pub fn part_name(topic: &str, index: u32) -> String {
    format!("{topic}{SEPARATOR}{index}")
}

/// The name of the spread topic, and the index, if `name` is that of a partition of one.
pub fn part_of_name(name: &str) -> Option<(&str, u32)> {
    let (topic, index) = name.rsplit_once(SEPARATOR)?;
    let is_plain = index == "0" || !index.starts_with(['0', '+']);
    Some((topic, index.parse().ok().filter(|_| is_plain)?))
}

/// The name that a program knows: of a partition of a spread topic, the spread topic's; of any other, its own.
pub fn spread_name(name: &str) -> &str {
    part_of_name(name).map_or(name, |(topic, _)| topic)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_partition_says_of_which_topic_it_is() {
        assert_eq!(part_name("events", 12), "events/12");
        assert_eq!(part_of_name("events/12"), Some(("events", 12)));
        assert_eq!(part_of_name("events/0"), Some(("events", 0)));
        for other in [
            "events",
            "events/",
            "events/01",
            "events/+1",
            "events/x",
            "events/-1",
        ] {
            assert_eq!(part_of_name(other), None, "{other}");
        }
        assert_eq!(spread_name("events/3"), "events");
        assert_eq!(spread_name("events"), "events");
    }

    #[test]
    fn partitions_are_counted_in_order_and_only_added() {
        let mut spread = Spread::default();
        let anywhere = Placement::default();
        spread.push("disk", "", &anywhere, 2).unwrap();
        let before = spread.clone();
        spread.push("disk", "", &anywhere, 1).unwrap();
        spread.push("disk", "", &Placement::rank(2), 1).unwrap();
        spread.push("memory", "", &anywhere, 1).unwrap();
        let made = spread.makings();
        let made: Vec<_> = made
            .map(|one| (one.storage, one.placement.to_string()))
            .collect();
        let expected = [("disk", ""), ("disk", ""), ("disk", ""), ("disk", "rank=2")];
        let expected = expected.into_iter().chain([("memory", "")]);
        let expected: Vec<_> = expected.map(|(kind, on)| (kind, on.to_owned())).collect();
        assert_eq!(made, expected);
        assert!(spread.continues(&before) && spread.continues(&spread));
        assert!(!before.continues(&spread));
        let mut other = Spread::default();
        other.push("memory", "", &anywhere, 4).unwrap();
        assert!(!other.continues(&before));
        let mut elsewhere = Spread::default();
        elsewhere.push("disk", "", &Placement::rank(1), 4).unwrap();
        assert!(!elsewhere.continues(&before));
        let moved = elsewhere.anywhere();
        assert_eq!(moved.count(), 4);
        assert!(moved.makings().all(|one| one.placement.is_anywhere()));
        let many = PARTITIONS_MAX as u32;
        assert!(spread.push("disk", "", &anywhere, many).is_err());
        assert!(spread.push("", "", &anywhere, 1).is_err());
        assert!(spread.push("disk", "", &anywhere, 0).is_err());
    }
}
