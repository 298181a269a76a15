//! Selectors that look at a field of JSON metadata.

use super::{PartitionSelector, RoundRobin, SelectorError, SelectorInput, place_of};
use crate::field::{FieldPath, FieldValue};
use crate::hash::key_hash;

/// The most boundaries of a [`FieldRange`].
pub const BOUNDARIES_MAX: usize = 10_000;

/// Doubles that are integers and smaller than this have one decimal form.
const INTEGERS_END: f64 = (1u64 << 53) as f64;

/// The hash of a field's value chooses the partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldHash {
    /// The field.
    pub field: FieldPath,
    /// What becomes of events without it.
    pub missing: MissingFromHash,
}

/// Where an event goes that has no field to hash: it is not there, or it is
/// null, an object or a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MissingFromHash {
    /// Nowhere: pushing it is an error.
    #[default]
    Refuse,
    /// To the partitions in turn.
    RoundRobin,
}

/// Each partition has a range of a field's values.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldRange {
    field: FieldPath,
    boundaries: Vec<f64>,
    missing: MissingFromRange,
    outside: Outside,
}

/// Where an event goes whose field is no number, or is not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MissingFromRange {
    /// Nowhere: pushing it is an error.
    #[default]
    Refuse,
    /// To this partition.
    Partition(u32),
}

/// Where an event goes whose value is below the first boundary, or not below
/// the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Outside {
    /// Nowhere: pushing it is an error.
    #[default]
    Refuse,
    /// To the first or the last partition.
    Clamp,
}

impl FieldRange {
    /// Partition `i` has the values from `boundaries[i]` on, up to and without
    /// `boundaries[i + 1]`: there is one partition less than boundaries.
    ///
    /// # Errors
    /// If the boundaries are fewer than two, more than [`BOUNDARIES_MAX`], not
    /// finite or not ascending, or `missing` is not one of their partitions.
    pub fn new(
        field: FieldPath,
        boundaries: Vec<f64>,
        missing: MissingFromRange,
        outside: Outside,
    ) -> Result<Self, String> {
        let count = boundaries.len();
        if !(2..=BOUNDARIES_MAX).contains(&count) {
            return Err(format!(
                "{count} boundaries; a range needs 2 to {BOUNDARIES_MAX}, one more than partitions"
            ));
        }
        if let Some(bad) = boundaries.iter().find(|bound| !bound.is_finite()) {
            return Err(format!("boundary {bad} is not finite"));
        }
        let steps = boundaries.windows(2);
        if let Some(at) = steps.into_iter().position(|pair| pair[0] >= pair[1]) {
            return Err(format!(
                "boundaries ascend, but {} is followed by {}",
                boundaries[at],
                boundaries[at + 1]
            ));
        }
        if let MissingFromRange::Partition(partition) = missing
            && partition as usize >= count - 1
        {
            return Err(format!(
                "partition {partition} for events without the field is out of range: there are {}, \
                 counted from 0",
                count - 1
            ));
        }
        Ok(Self {
            field,
            boundaries,
            missing,
            outside,
        })
    }

    /// The field.
    pub fn field(&self) -> &FieldPath {
        &self.field
    }

    /// The boundaries, ascending.
    pub fn boundaries(&self) -> &[f64] {
        &self.boundaries
    }

    /// What becomes of events without the field.
    pub fn missing(&self) -> MissingFromRange {
        self.missing
    }

    /// What becomes of events outside of the boundaries.
    pub fn outside(&self) -> Outside {
        self.outside
    }

    /// How many partitions the boundaries make.
    pub fn partition_count(&self) -> u32 {
        // BOUNDARIES_MAX fits.
        (self.boundaries.len() - 1) as u32
    }

    fn partition_of(&self, value: f64) -> Result<u32, SelectorError> {
        // Boundaries that are not greater than the value.
        let passed = self.boundaries.partition_point(|bound| *bound <= value);
        let last = self.boundaries.len() - 1;
        match (passed, self.outside) {
            (1.., _) if passed <= last => Ok((passed - 1) as u32),
            (0, Outside::Clamp) => Ok(0),
            (_, Outside::Clamp) => Ok((last - 1) as u32),
            (_, Outside::Refuse) => Err(SelectorError::Refused(format!(
                "field {}: {value} is outside of {} to {}",
                self.field, self.boundaries[0], self.boundaries[last]
            ))),
        }
    }
}

fn missing(field: &FieldPath, wanted: &str) -> SelectorError {
    SelectorError::Refused(format!("field {field} is not there, or is {wanted}"))
}

/// The hash of a value: of the same bytes for every client, however the value
/// was written. `None` for what has none.
fn value_hash(value: &FieldValue<'_>) -> Option<u64> {
    Some(match value {
        FieldValue::Text(text) => key_hash(text.as_bytes()),
        FieldValue::Bool(true) => key_hash(b"true"),
        FieldValue::Bool(false) => key_hash(b"false"),
        FieldValue::Integer(integer) => key_hash(integer.to_string().as_bytes()),
        FieldValue::Double(double) if double.fract() == 0.0 && double.abs() < INTEGERS_END => {
            key_hash((*double as i64).to_string().as_bytes())
        }
        FieldValue::Double(double) => key_hash(&double.to_le_bytes()),
        FieldValue::Null | FieldValue::Compound => return None,
    })
}

pub(super) struct ByHash {
    pub settings: FieldHash,
    pub without_field: RoundRobin,
}

impl PartitionSelector for ByHash {
    fn select(
        &mut self,
        input: SelectorInput<'_>,
        partition_count: u32,
    ) -> Result<u32, SelectorError> {
        let FieldHash {
            field,
            missing: policy,
        } = &self.settings;
        let value = field.find(input.metadata).map_err(SelectorError::Refused)?;
        match (value.as_ref().and_then(value_hash), policy) {
            (Some(hash), _) => Ok(place_of(hash, partition_count)),
            (None, MissingFromHash::RoundRobin) => Ok(self.without_field.turn(partition_count)),
            (None, MissingFromHash::Refuse) => Err(missing(field, "null, an object or a list")),
        }
    }
}

pub(super) struct ByRange(pub FieldRange);

impl PartitionSelector for ByRange {
    fn select(
        &mut self,
        input: SelectorInput<'_>,
        partition_count: u32,
    ) -> Result<u32, SelectorError> {
        let range = &self.0;
        let value = match range
            .field
            .find(input.metadata)
            .map_err(SelectorError::Refused)?
        {
            // Boundaries are doubles, so the value is taken as one.
            Some(FieldValue::Integer(integer)) => Some(integer as f64),
            Some(FieldValue::Double(double)) => Some(double),
            _ => None,
        };
        let partition = match (value, range.missing) {
            (Some(value), _) => range.partition_of(value)?,
            (None, MissingFromRange::Partition(partition)) => partition,
            (None, MissingFromRange::Refuse) => return Err(missing(&range.field, "no number")),
        };
        // A topic has as many partitions as ranges, or none yet; this holds
        // should a server not keep to that.
        match partition < partition_count {
            true => Ok(partition),
            false => Err(SelectorError::OutOfRange {
                requested: partition,
                partition_count,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::NoPlugins;
    use crate::selector::SelectorKind;

    fn path(text: &str) -> FieldPath {
        FieldPath::new(text).unwrap()
    }

    fn with(metadata: &str) -> SelectorInput<'_> {
        SelectorInput {
            metadata: metadata.as_bytes(),
            ..SelectorInput::default()
        }
    }

    fn by_hash(missing: MissingFromHash) -> Box<dyn PartitionSelector> {
        let field = path("sensor.id");
        let kind = SelectorKind::FieldHash(FieldHash { field, missing });
        kind.build(&NoPlugins, 0).unwrap()
    }

    fn by_range(missing: MissingFromRange, outside: Outside) -> Box<dyn PartitionSelector> {
        let boundaries = vec![-1.0, 0.0, 10.5, 100.0];
        let range = FieldRange::new(path("energy"), boundaries, missing, outside).unwrap();
        SelectorKind::FieldRange(range)
            .build(&NoPlugins, 0)
            .unwrap()
    }

    #[test]
    fn one_value_meets_one_partition_however_it_is_written() {
        let mut selector = by_hash(MissingFromHash::Refuse);
        let mut of = |value: &str| {
            let metadata = format!(r#"{{"x": [1, 2], "sensor": {{"id": {value}}}}}"#);
            selector.select(with(&metadata), 1_000_003).unwrap()
        };
        let hash = |bytes: &[u8]| (key_hash(bytes) % 1_000_003) as u32;
        assert_eq!(of(r#""abc""#), hash(b"abc"));
        assert_eq!(of(r#""\u0061bc""#), hash(b"abc"));
        assert_eq!(of("7"), hash(b"7"));
        assert_eq!(of("7.0"), hash(b"7"));
        assert_eq!(of("0.7e1"), hash(b"7"));
        assert_eq!(of("-0"), hash(b"0"));
        assert_eq!(of("-0.0"), hash(b"0"));
        assert_eq!(of("18446744073709551615"), hash(b"18446744073709551615"));
        assert_eq!(of("0.1"), hash(&0.1f64.to_le_bytes()));
        assert_eq!(of("true"), hash(b"true"));
    }

    #[test]
    fn values_without_a_hash_are_missing() {
        for metadata in ["", "{}", "7", r#"{"sensor": {"id": null}}"#] {
            let mut turns = by_hash(MissingFromHash::RoundRobin);
            let got: Vec<_> = (0..3)
                .map(|_| turns.select(with(metadata), 2).unwrap())
                .collect();
            assert_eq!(got, [0, 1, 0], "{metadata}");
            let error = by_hash(MissingFromHash::Refuse).select(with(metadata), 2);
            assert_eq!(
                error.unwrap_err().to_string(),
                "the partition selector refuses the event: field sensor.id is not there, or is \
                 null, an object or a list",
                "{metadata}"
            );
        }
        let error = by_hash(MissingFromHash::RoundRobin).select(with("nonsense"), 2);
        let error = error.unwrap_err().to_string();
        assert!(error.contains("metadata is not JSON"), "{error}");
    }

    #[test]
    fn values_spread_over_partitions() {
        let mut selector = by_hash(MissingFromHash::Refuse);
        let mut counts = [0u32; 4];
        for id in 0..4000 {
            let metadata = format!(r#"{{"sensor": {{"id": {id}}}}}"#);
            counts[selector.select(with(&metadata), 4).unwrap() as usize] += 1;
        }
        assert!(counts.iter().all(|count| *count > 850), "{counts:?}");
    }

    #[test]
    fn a_range_begins_with_its_boundary_and_ends_before_the_next() {
        let mut refuse = by_range(MissingFromRange::Refuse, Outside::Refuse);
        let mut clamp = by_range(MissingFromRange::Refuse, Outside::Clamp);
        for (energy, inside, clamped) in [
            ("-1e300", None, 0),
            ("-1.0000001", None, 0),
            ("-1", Some(0), 0),
            ("-0.5", Some(0), 0),
            ("0", Some(1), 1),
            ("-0.0", Some(1), 1),
            ("10.499", Some(1), 1),
            ("10.5", Some(2), 2),
            ("99", Some(2), 2),
            ("100", None, 2),
            ("18446744073709551615", None, 2),
        ] {
            let metadata = format!(r#"{{"energy": {energy}}}"#);
            assert_eq!(refuse.select(with(&metadata), 3).ok(), inside, "{energy}");
            assert_eq!(clamp.select(with(&metadata), 3), Ok(clamped), "{energy}");
        }
        let error = refuse.select(with(r#"{"energy": 200}"#), 3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the partition selector refuses the event: field energy: 200 is outside of -1 to 100"
        );
    }

    #[test]
    fn every_value_is_in_the_range_that_a_search_from_below_finds() {
        let mut state = 1u64;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            ((state >> 40) as f64 - (1 << 23) as f64) / 1024.0
        };
        for round in 0..200 {
            let mut boundaries: Vec<f64> = (0..2 + round % 9).map(|_| next()).collect();
            boundaries.sort_by(f64::total_cmp);
            boundaries.dedup();
            let missing = MissingFromRange::Refuse;
            let Ok(range) =
                FieldRange::new(path("v"), boundaries.clone(), missing, Outside::Refuse)
            else {
                continue;
            };
            let count = range.partition_count();
            let mut selector = SelectorKind::FieldRange(range)
                .build(&NoPlugins, 0)
                .unwrap();
            for value in (0..50).map(|_| next()).chain(boundaries.clone()) {
                let metadata = format!(r#"{{"v": {value}}}"#);
                let expected = (0..count as usize)
                    .find(|i| boundaries[*i] <= value && value < boundaries[i + 1]);
                let got = selector.select(with(&metadata), count).ok();
                assert_eq!(got, expected.map(|i| i as u32), "{value} in {boundaries:?}");
            }
        }
    }

    #[test]
    fn what_is_no_number_is_missing() {
        for metadata in ["", "{}", r#"{"energy": "7"}"#, r#"{"energy": null}"#] {
            let mut second = by_range(MissingFromRange::Partition(1), Outside::Refuse);
            assert_eq!(second.select(with(metadata), 3), Ok(1));
            let error = by_range(MissingFromRange::Refuse, Outside::Clamp);
            let error = { error }.select(with(metadata), 3).unwrap_err();
            assert_eq!(
                error.to_string(),
                "the partition selector refuses the event: field energy is not there, or is no \
                 number"
            );
        }
    }

    #[test]
    fn ranges_are_checked_when_they_are_made() {
        let make = |boundaries: &[f64], missing| {
            FieldRange::new(path("a"), boundaries.into(), missing, Outside::Refuse)
                .map(|range| range.partition_count())
        };
        let refuse = MissingFromRange::Refuse;
        assert_eq!(make(&[0.0, 1.0], refuse), Ok(1));
        assert_eq!(make(&[0.0, 1.0], MissingFromRange::Partition(0)), Ok(1));
        let ascend =
            |a: String, b: String| Err(format!("boundaries ascend, but {a} is followed by {b}"));
        assert_eq!(
            make(&[0.0, 2.0, 1.0], refuse),
            ascend("2".into(), "1".into())
        );
        assert_eq!(
            make(&[0.0, 1.0, 1.0], refuse),
            ascend("1".into(), "1".into())
        );
        assert_eq!(make(&[-0.0, 0.0], refuse), ascend("-0".into(), "0".into()));
        assert!(make(&[0.0], refuse).is_err());
        assert!(make(&[0.0, f64::INFINITY], refuse).is_err());
        assert!(make(&[0.0, f64::NAN], refuse).is_err());
        assert!(make(&[0.0, 1.0], MissingFromRange::Partition(1)).is_err());
        let many: Vec<f64> = (0..=BOUNDARIES_MAX).map(|i| i as f64).collect();
        assert!(make(&many, refuse).is_err());
    }
}
