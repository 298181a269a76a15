//! Which partition an event goes to.

mod by_field;

pub use by_field::{
    BOUNDARIES_MAX, FieldHash, FieldRange, MissingFromHash, MissingFromRange, Outside,
};

use crate::hash::key_hash;
use crate::plugin::{PluginError, PluginRef, Plugins};
use std::fmt;
use wire::ErrorCode;

/// What a selector may look at.
#[derive(Debug, Clone, Copy, Default)]
pub struct SelectorInput<'a> {
    /// The event's key; an empty key is a key.
    pub key: Option<&'a [u8]>,
    /// The partition that the producer asked for, from 0.
    pub requested: Option<u32>,
    /// The event's metadata, not yet serialized.
    pub metadata: &'a [u8],
}

/// Chooses the partition of each event, in the order of pushing.
///
/// A producer owns its selector: one thread at a time calls it. An
/// implementation returns a partition below `partition_count` or an error,
/// never panics, and must cope with a count that has grown since the last
/// call, because partitions are added to live topics.
pub trait PartitionSelector: Send {
    /// The partition of the next event, below `partition_count`.
    ///
    /// # Errors
    /// [`SelectorError::NoPartitions`] if `partition_count` is 0, others by selector.
    fn select(
        &mut self,
        input: SelectorInput<'_>,
        partition_count: u32,
    ) -> Result<u32, SelectorError>;
}

/// Why an event has no partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SelectorError {
    /// The topic has no partition yet.
    NoPartitions,
    /// The partition that was asked for is not there.
    OutOfRange {
        /// What was asked for.
        requested: u32,
        /// How many there are.
        partition_count: u32,
    },
    /// The topic wants each event to name its partition, and this one does not.
    PartitionRequired,
    /// A selector's own reason, in one sentence.
    Refused(String),
}

impl SelectorError {
    /// The code under which the error travels.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NoPartitions => ErrorCode::NoPartitions,
            Self::OutOfRange { .. } => ErrorCode::UnknownPartition,
            Self::PartitionRequired | Self::Refused(_) => ErrorCode::InvalidEvent,
        }
    }
}

impl fmt::Display for SelectorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPartitions => f.write_str("the topic has no partitions yet; add one first"),
            Self::OutOfRange {
                requested,
                partition_count,
            } => write!(
                f,
                "partition {requested} is out of range: the topic has {partition_count}, counted from 0"
            ),
            Self::PartitionRequired => f.write_str(
                "the topic's partition selector is explicit: the event must name its partition",
            ),
            Self::Refused(reason) => {
                write!(f, "the partition selector refuses the event: {reason}")
            }
        }
    }
}

impl std::error::Error for SelectorError {}

/// Which selector a topic uses. With each, a partition that the producer
/// asks for is taken.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum SelectorKind {
    /// Partitions in turn from 0, for each producer on its own. An event that
    /// asks for its partition takes no turn.
    #[default]
    RoundRobin,
    /// Any partition, each as likely as the others.
    Random,
    /// [`key_hash`] modulo the number of partitions; events without a key in turn.
    KeyHash,
    /// The hash of a field of the metadata, modulo the number of partitions.
    FieldHash(FieldHash),
    /// Each partition has a range of a field's values.
    FieldRange(FieldRange),
    /// The producer names the partition of each event.
    Explicit,
    /// A plugin chooses.
    Plugin(PluginRef),
}

impl SelectorKind {
    /// The names of all kinds, in the order in which messages list them.
    pub const NAMES: &[&str] = &[
        "round_robin",
        "random",
        "key_hash",
        "field_hash",
        "field_range",
        "explicit",
        "plugin",
    ];

    /// The name in a definition.
    pub fn name(&self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::Random => "random",
            Self::KeyHash => "key_hash",
            Self::FieldHash(_) => "field_hash",
            Self::FieldRange(_) => "field_range",
            Self::Explicit => "explicit",
            Self::Plugin(_) => "plugin",
        }
    }

    /// The plugin, if it is one.
    pub fn plugin(&self) -> Option<&PluginRef> {
        match self {
            Self::Plugin(plugin) => Some(plugin),
            _ => None,
        }
    }

    /// How many partitions a topic with this selector has, if that is fixed.
    pub fn partition_count(&self) -> Option<u32> {
        match self {
            Self::FieldRange(range) => Some(range.partition_count()),
            _ => None,
        }
    }

    /// A selector of this kind for one producer, at its beginning. `seed` is
    /// what random choices come from: another one for each producer.
    ///
    /// # Errors
    /// Of plugins only.
    pub fn build(
        &self,
        plugins: &dyn Plugins,
        seed: u64,
    ) -> Result<Box<dyn PartitionSelector>, PluginError> {
        Ok(match self {
            Self::RoundRobin => boxed(RoundRobin::default()),
            Self::Random => boxed(Random { state: seed }),
            Self::KeyHash => boxed(KeyHash::default()),
            Self::FieldHash(settings) => boxed(by_field::ByHash {
                settings: settings.clone(),
                without_field: RoundRobin::default(),
            }),
            Self::FieldRange(range) => boxed(by_field::ByRange(range.clone())),
            Self::Explicit => boxed(Explicit),
            Self::Plugin(plugin) => boxed(Foreign {
                name: plugin.name().to_owned(),
                selector: plugins.partition_selector(plugin)?,
            }),
        })
    }
}

fn boxed(selector: impl PartitionSelector + 'static) -> Box<dyn PartitionSelector> {
    Box::new(UnlessRequested(selector))
}

/// A selector that is asked only where there is something to choose: topics
/// have partitions then, and events that name one get it.
struct UnlessRequested<S>(S);

impl<S: PartitionSelector> PartitionSelector for UnlessRequested<S> {
    fn select(
        &mut self,
        input: SelectorInput<'_>,
        partition_count: u32,
    ) -> Result<u32, SelectorError> {
        match input.requested {
            _ if partition_count == 0 => Err(SelectorError::NoPartitions),
            Some(requested) if requested >= partition_count => Err(SelectorError::OutOfRange {
                requested,
                partition_count,
            }),
            Some(requested) => Ok(requested),
            None => self.0.select(input, partition_count),
        }
    }
}

/// The partition of what has this hash.
fn place_of(hash: u64, partition_count: u32) -> u32 {
    // The remainder is below a u32, so nothing is cut off.
    (hash % u64::from(partition_count)) as u32
}

#[derive(Default)]
struct RoundRobin {
    /// Whose turn it is; the partition count if all have had theirs, so that
    /// one that was added meanwhile comes next.
    next: u32,
}

impl RoundRobin {
    fn turn(&mut self, partition_count: u32) -> u32 {
        let turn = if self.next < partition_count {
            self.next
        } else {
            0
        };
        self.next = turn + 1;
        turn
    }
}

impl PartitionSelector for RoundRobin {
    fn select(&mut self, _: SelectorInput<'_>, partition_count: u32) -> Result<u32, SelectorError> {
        Ok(self.turn(partition_count))
    }
}

#[derive(Default)]
struct KeyHash {
    without_key: RoundRobin,
}

impl PartitionSelector for KeyHash {
    fn select(
        &mut self,
        input: SelectorInput<'_>,
        partition_count: u32,
    ) -> Result<u32, SelectorError> {
        Ok(match input.key {
            Some(key) => place_of(key_hash(key), partition_count),
            None => self.without_key.turn(partition_count),
        })
    }
}

/// Sebastiano Vigna's splitmix64.
struct Random {
    state: u64,
}

impl PartitionSelector for Random {
    fn select(&mut self, _: SelectorInput<'_>, partition_count: u32) -> Result<u32, SelectorError> {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^= z >> 31;
        // The upper half of the product is below the count, and as even as
        // 2^64 values over so few places can be.
        Ok(((u128::from(z) * u128::from(partition_count)) >> 64) as u32)
    }
}

/// A selector of others: asked only what it is promised to be asked, and
/// believed only what can be.
struct Foreign {
    name: String,
    selector: Box<dyn PartitionSelector>,
}

impl PartitionSelector for Foreign {
    fn select(
        &mut self,
        input: SelectorInput<'_>,
        partition_count: u32,
    ) -> Result<u32, SelectorError> {
        match self.selector.select(input, partition_count)? {
            partition if partition < partition_count => Ok(partition),
            partition => Err(SelectorError::Refused(format!(
                "plugin {:?} chose partition {partition}; the topic has {partition_count}, counted \
                 from 0",
                self.name
            ))),
        }
    }
}

struct Explicit;

impl PartitionSelector for Explicit {
    fn select(&mut self, _: SelectorInput<'_>, _: u32) -> Result<u32, SelectorError> {
        Err(SelectorError::PartitionRequired)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FieldPath;
    use crate::plugin::NoPlugins;

    fn ask(requested: u32) -> SelectorInput<'static> {
        SelectorInput {
            requested: Some(requested),
            ..SelectorInput::default()
        }
    }

    fn keyed(key: &[u8]) -> SelectorInput<'_> {
        SelectorInput {
            key: Some(key),
            ..SelectorInput::default()
        }
    }

    const ANY: SelectorInput<'static> = SelectorInput {
        key: None,
        requested: None,
        metadata: b"",
    };

    #[test]
    fn round_robin_is_strict() {
        let mut selector = SelectorKind::RoundRobin.build(&NoPlugins, 0).unwrap();
        let got: Vec<_> = (0..7).map(|_| selector.select(ANY, 3).unwrap()).collect();
        assert_eq!(got, [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn round_robin_takes_no_turn_for_events_that_ask() {
        let mut selector = SelectorKind::RoundRobin.build(&NoPlugins, 0).unwrap();
        assert_eq!(selector.select(ANY, 3), Ok(0));
        assert_eq!(selector.select(ask(0), 3), Ok(0));
        assert_eq!(selector.select(ask(2), 3), Ok(2));
        assert_eq!(selector.select(ANY, 3), Ok(1));
        let error = selector.select(ask(3), 3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "partition 3 is out of range: the topic has 3, counted from 0"
        );
        assert_eq!(error.code(), ErrorCode::UnknownPartition);
        assert_eq!(selector.select(ANY, 3), Ok(2));
    }

    #[test]
    fn round_robin_reaches_partitions_that_were_added() {
        let mut selector = SelectorKind::RoundRobin.build(&NoPlugins, 0).unwrap();
        let got: Vec<_> = [2, 2, 3, 3, 4, 4, 4]
            .map(|count| selector.select(ANY, count).unwrap())
            .into();
        assert_eq!(got, [0, 1, 2, 0, 1, 2, 3]);
        // Another view of the topic may even have fewer.
        assert_eq!(selector.select(ANY, 2), Ok(0));
    }

    #[test]
    fn one_key_always_meets_one_partition() {
        let mut first = SelectorKind::KeyHash.build(&NoPlugins, 0).unwrap();
        let mut second = SelectorKind::KeyHash.build(&NoPlugins, 0).unwrap();
        assert_eq!(second.select(ANY, 5), Ok(0));
        for key in [&b""[..], b"a", b"detector-7", &[0xff; 100]] {
            let partition = first.select(keyed(key), 5).unwrap();
            assert_eq!(u64::from(partition), key_hash(key) % 5);
            assert_eq!(first.select(keyed(key), 5), Ok(partition));
            assert_eq!(second.select(keyed(key), 5), Ok(partition));
        }
    }

    #[test]
    fn events_without_a_key_go_in_turn_and_an_empty_key_is_a_key() {
        let mut selector = SelectorKind::KeyHash.build(&NoPlugins, 0).unwrap();
        // XXH64 of nothing is 0xef46db3751d8e999, 1 modulo 4.
        let empty = keyed(b"");
        let got: Vec<_> = [ANY, empty, ANY, empty, ANY, ask(3), ANY, ANY]
            .map(|input| selector.select(input, 4).unwrap())
            .into();
        assert_eq!(got, [0, 1, 1, 1, 2, 3, 3, 0]);
    }

    #[test]
    fn keys_spread_also_where_their_lowest_bits_agree() {
        let mut selector = SelectorKind::KeyHash.build(&NoPlugins, 0).unwrap();
        let mut counts = [0u32; 2];
        for run in (0..2000u64).step_by(2) {
            counts[selector.select(keyed(&run.to_le_bytes()), 2).unwrap() as usize] += 1;
        }
        assert!(counts.iter().all(|count| *count > 400), "{counts:?}");
    }

    #[test]
    fn explicit_wants_a_partition() {
        let mut selector = SelectorKind::Explicit.build(&NoPlugins, 0).unwrap();
        assert_eq!(selector.select(ask(1), 2), Ok(1));
        assert_eq!(
            selector.select(keyed(b"key"), 2),
            Err(SelectorError::PartitionRequired)
        );
        assert_eq!(
            selector.select(ask(2), 2),
            Err(SelectorError::OutOfRange {
                requested: 2,
                partition_count: 2
            })
        );
    }

    /// Chooses what it was made to choose.
    struct Says(u32);

    impl PartitionSelector for Says {
        fn select(&mut self, input: SelectorInput<'_>, count: u32) -> Result<u32, SelectorError> {
            assert!(input.requested.is_none() && count > 0);
            Ok(self.0)
        }
    }

    fn foreign(partition: u32) -> Box<dyn PartitionSelector> {
        boxed(Foreign {
            name: "a:b".into(),
            selector: Box::new(Says(partition)),
        })
    }

    #[test]
    fn a_plugin_is_asked_only_where_the_choice_is_its_own() {
        assert_eq!(foreign(1).select(ask(0), 2), Ok(0));
        assert_eq!(foreign(1).select(ANY, 2), Ok(1));
        assert!(foreign(1).select(ask(2), 2).is_err());
    }

    #[test]
    fn a_plugin_that_chooses_what_is_not_there_is_told_so() {
        assert_eq!(
            foreign(2).select(ANY, 2).unwrap_err().to_string(),
            "the partition selector refuses the event: plugin \"a:b\" chose partition 2; the topic \
             has 2, counted from 0"
        );
    }

    #[test]
    fn random_is_even_and_another_for_each_seed() {
        let mut counts = [0u32; 3];
        let mut first = SelectorKind::Random.build(&NoPlugins, 7).unwrap();
        let mut second = SelectorKind::Random.build(&NoPlugins, 8).unwrap();
        let mut same = 0;
        for _ in 0..30_000 {
            let choice = first.select(ANY, 3).unwrap();
            counts[choice as usize] += 1;
            same += u32::from(second.select(ANY, 3).unwrap() == choice);
        }
        for count in counts.into_iter().chain([same]) {
            // Six standard deviations.
            assert!((9_500..10_500).contains(&count), "{counts:?}, {same} equal");
        }
        assert_eq!(first.select(ask(1), 3), Ok(1));
    }

    fn all() -> Vec<Box<dyn PartitionSelector>> {
        let field = FieldPath::new("a").unwrap();
        let missing = MissingFromRange::Partition(0);
        let range = FieldRange::new(field.clone(), vec![0.0, 1.0], missing, Outside::Clamp);
        let hash = FieldHash {
            field,
            missing: MissingFromHash::RoundRobin,
        };
        let kinds = [
            SelectorKind::RoundRobin,
            SelectorKind::Random,
            SelectorKind::KeyHash,
            SelectorKind::FieldHash(hash),
            SelectorKind::FieldRange(range.unwrap()),
            SelectorKind::Explicit,
        ];
        let mut selectors: Vec<Box<dyn PartitionSelector>> = vec![foreign(0)];
        for (kind, name) in kinds.iter().zip(SelectorKind::NAMES) {
            assert_eq!(kind.name(), *name);
            selectors.push(kind.build(&NoPlugins, 1).unwrap());
        }
        assert_eq!(selectors.len(), SelectorKind::NAMES.len());
        selectors
    }

    #[test]
    fn a_topic_without_partitions_is_an_error_of_its_own() {
        for mut selector in all() {
            for input in [ANY, ask(0), keyed(b"key")] {
                let error = selector.select(input, 0).unwrap_err();
                assert_eq!(error, SelectorError::NoPartitions);
                assert_eq!(error.code(), ErrorCode::NoPartitions);
            }
        }
    }

    #[test]
    fn a_partition_that_is_asked_for_is_taken() {
        for mut selector in all() {
            assert_eq!(selector.select(ask(4), 5), Ok(4));
            assert!(selector.select(ask(5), 5).is_err());
        }
    }
}
