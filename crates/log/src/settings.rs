//! The configuration of a disk partition.

use crate::producers::ProducerLimits;
use serde::Deserialize;

/// The largest `segment_bytes` of a new partition: what is beyond is a mistake.
const SEGMENT_BYTES_MAX: u64 = 1 << 40;

/// Configuration of the storage kind `disk`, as JSON in the topic's
/// definition. Unknown keys are refused.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskSettings {
    /// A segment is followed by another when its log and data reach this. It
    /// holds at least one batch, however large. Default 256 MiB, at most 1 TiB.
    pub segment_bytes: u64,
    /// Under `written`: after so many bytes a sync is begun in the
    /// background. Default 64 MiB.
    pub background_sync_bytes: u64,
    /// Under `synced`: the external data of a batch that has at least so many
    /// bytes goes to the device past the page cache, several chunks at once,
    /// unless somebody reads along, who would have to wait for the device.
    /// Default 1 MiB.
    pub direct_bytes_min: u64,
    /// After so many synced bytes the checkpoint is written anew: about what
    /// has to be verified after a crash. Default 64 MiB.
    pub checkpoint_bytes: u64,
    /// One entry of the sparse index covers about so much of the log. Default 64 KiB.
    pub index_bytes: u64,
    /// A segment's file is lengthened in steps between these two, depending
    /// on how fast it grows. Defaults 64 KiB and 32 MiB.
    pub allocate_bytes_min: u64,
    /// See `allocate_bytes_min`.
    pub allocate_bytes_max: u64,
    /// How many logs of removed segments are kept to be written again, and with
    /// any at all data files too: that spares the file system removing and
    /// allocating them. Default 2.
    pub recycle_count: usize,
    /// How many bytes of data files are kept so, one file aside; never more
    /// than the partition holds otherwise. Default 1 GiB.
    pub recycle_bytes_max: u64,
    /// How many bytes of the newest batches stay in memory while somebody reads
    /// along, who is then given these and not what would be read back; those of
    /// all partitions of a server together stay within 64 MiB. Default 8 MiB.
    pub tail_bytes_max: u64,
    /// The same of external data, within 64 MiB of its own. Default 32 MiB.
    pub data_tail_bytes_max: u64,
    /// Files of older segments that are kept open for reading. Default 16.
    pub open_segments_max: usize,
    /// How many producers are remembered. Default 4096.
    pub producers_max: usize,
    /// For how long a silent producer is remembered, seconds. Default 7 days.
    pub producer_silence_seconds_max: u64,
}

impl Default for DiskSettings {
    fn default() -> Self {
        Self {
            segment_bytes: 256 << 20,
            background_sync_bytes: 64 << 20,
            direct_bytes_min: 1 << 20,
            checkpoint_bytes: 64 << 20,
            index_bytes: 64 << 10,
            allocate_bytes_min: 64 << 10,
            allocate_bytes_max: 32 << 20,
            recycle_count: 2,
            recycle_bytes_max: 1 << 30,
            tail_bytes_max: 8 << 20,
            data_tail_bytes_max: 32 << 20,
            open_segments_max: 16,
            producers_max: 4096,
            producer_silence_seconds_max: 7 * 24 * 3600,
        }
    }
}

impl DiskSettings {
    /// Reads a configuration; empty text is the default.
    ///
    /// # Errors
    /// Says which key or value is wrong.
    pub fn parse(config: &str) -> Result<Self, String> {
        let settings: Self = parse_config("disk", config)?;
        for (name, value, least) in [
            ("segment_bytes", settings.segment_bytes, 1024),
            ("background_sync_bytes", settings.background_sync_bytes, 1),
            ("checkpoint_bytes", settings.checkpoint_bytes, 1),
            ("index_bytes", settings.index_bytes, 1),
            ("open_segments_max", settings.open_segments_max as u64, 1),
            ("producers_max", settings.producers_max as u64, 1),
        ] {
            if value < least {
                return Err(format!(
                    "disk storage: {name} is {value}, at least {least} is needed"
                ));
            }
        }
        if settings.allocate_bytes_min > settings.allocate_bytes_max {
            return Err(format!(
                "disk storage: allocate_bytes_min is {}, above allocate_bytes_max, {}",
                settings.allocate_bytes_min, settings.allocate_bytes_max
            ));
        }
        Ok(settings)
    }

    /// Checks the configuration of partitions that are to be made. Those that
    /// were made with a larger number before can still be opened.
    ///
    /// # Errors
    /// Says which key or value is wrong.
    pub(crate) fn check_new(config: &str) -> Result<(), String> {
        let bytes = Self::parse(config)?.segment_bytes;
        match bytes > SEGMENT_BYTES_MAX {
            true => Err(format!(
                "disk storage: segment_bytes is {bytes}, {SEGMENT_BYTES_MAX} (1 TiB) at most"
            )),
            false => Ok(()),
        }
    }

    pub(crate) fn producer_limits(&self) -> ProducerLimits {
        ProducerLimits {
            count_max: self.producers_max,
            silence_ns_max: self
                .producer_silence_seconds_max
                .saturating_mul(1_000_000_000),
        }
    }
}

/// Reads the configuration of a storage kind; empty text is the default.
pub(crate) fn parse_config<T: Default + for<'a> Deserialize<'a>>(
    kind: &str,
    config: &str,
) -> Result<T, String> {
    if config.trim().is_empty() {
        return Ok(T::default());
    }
    serde_json::from_str(config).map_err(|error| format!("{kind} storage: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_and_refusals() {
        assert_eq!(DiskSettings::parse(" "), Ok(DiskSettings::default()));
        let small = DiskSettings::parse(r#"{"segment_bytes": 4096}"#).unwrap();
        assert_eq!(small.segment_bytes, 4096);
        let error = DiskSettings::parse(r#"{"segment_byte": 1}"#).unwrap_err();
        assert!(error.contains("segment_byte"), "{error}");
        let error = DiskSettings::parse(r#"{"segment_bytes": 1}"#).unwrap_err();
        assert_eq!(
            error,
            "disk storage: segment_bytes is 1, at least 1024 is needed"
        );
    }

    #[test]
    fn a_segment_of_a_size_that_no_file_has_is_refused() {
        let most = format!(r#"{{"segment_bytes": {SEGMENT_BYTES_MAX}}}"#);
        assert_eq!(DiskSettings::check_new(&most), Ok(()));
        for bytes in [SEGMENT_BYTES_MAX + 1, 1 << 63, u64::MAX] {
            let config = format!(r#"{{"segment_bytes": {bytes}}}"#);
            assert_eq!(
                DiskSettings::check_new(&config),
                Err(format!(
                    "disk storage: segment_bytes is {bytes}, 1099511627776 (1 TiB) at most"
                ))
            );
            // One that was made so is not lost.
            assert!(DiskSettings::parse(&config).is_ok());
        }
    }
}
