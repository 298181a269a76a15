//! Placement: on which nodes a topic, or a partition of a spread topic, is made.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The most labels of a placement.
pub const PLACEMENT_LABELS_MAX: usize = 8;
/// The longest name or value of a label in a placement, in bytes.
const TEXT_BYTES_MAX: usize = 255;

/// Labels that a node has to have so that a topic is made on it: `rank`, `host`, and what the operator has given it. Without any, each
/// node will do. It says where a topic is made, not where it stays: topics move.
///
/// ```
/// use topic::Placement;
///
/// let placement: Placement = "host=node7".parse()?;
/// assert_eq!(placement.to_string(), "host=node7");
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(transparent)]
pub struct Placement(BTreeMap<String, String>);

impl Placement {
    /// The server of this rank.
    pub fn rank(rank: u32) -> Self {
        Self(BTreeMap::from([("rank".to_owned(), rank.to_string())]))
    }

    /// One label more.
    ///
    /// # Errors
    /// A name that is empty, too long or there already, or too many of them.
    pub fn push(&mut self, label: &str, value: &str) -> Result<(), String> {
        if label.is_empty() || label.contains('=') {
            return Err(format!("{label:?} is no name of a label"));
        }
        if label.len().max(value.len()) > TEXT_BYTES_MAX {
            return Err(format!("a label is longer than {TEXT_BYTES_MAX} bytes"));
        }
        if self.0.len() == PLACEMENT_LABELS_MAX {
            return Err(format!("more than {PLACEMENT_LABELS_MAX} labels"));
        }
        match self.0.insert(label.to_owned(), value.to_owned()) {
            None => Ok(()),
            Some(_) => Err(format!("label {label} is named twice")),
        }
    }

    /// Whether each node will do.
    pub fn is_anywhere(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a node with these labels will do.
    pub fn accepts(&self, labels: &BTreeMap<String, String>) -> bool {
        let mut wanted = self.0.iter();
        wanted.all(|(label, value)| labels.get(label) == Some(value))
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (label, value)) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma}{label}={value}")?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Placement {
    type Err = String;

    /// `LABEL=VALUE`, or several with commas between.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut placement = Self::default();
        for one in text.split(',') {
            let (label, value) = one
                .split_once('=')
                .ok_or_else(|| format!("{one:?} is not LABEL=VALUE"))?;
            placement.push(label, value)?;
        }
        Ok(placement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(of: &[(&str, &str)]) -> BTreeMap<String, String> {
        let of = of.iter();
        of.map(|(label, value)| ((*label).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn a_node_has_to_have_each_label() {
        let node = labels(&[("host", "a"), ("rank", "1"), ("pid", "7")]);
        assert!(Placement::default().accepts(&node) && Placement::default().is_anywhere());
        assert!(Placement::rank(1).accepts(&node) && !Placement::rank(2).accepts(&node));
        let both: Placement = "host=a,rank=1".parse().unwrap();
        assert!(both.accepts(&node) && !both.accepts(&labels(&[("rank", "1")])));
        assert!(!"host=b,rank=1".parse::<Placement>().unwrap().accepts(&node));
    }

    #[test]
    fn a_placement_is_read_as_it_is_written_and_what_is_none_is_refused() {
        let text = "disk=fast,rank=0";
        assert_eq!(text.parse::<Placement>().unwrap().to_string(), text);
        for wrong in ["", "rank", "=1", "rank=1,rank=2", "rank=1,"] {
            assert!(wrong.parse::<Placement>().is_err(), "{wrong}");
        }
        let mut many = Placement::default();
        for label in 0..PLACEMENT_LABELS_MAX {
            many.push(&label.to_string(), "").unwrap();
        }
        assert!(many.push("one", "more").is_err());
        assert!(Placement::default().push("long", &"x".repeat(256)).is_err());
    }
}
