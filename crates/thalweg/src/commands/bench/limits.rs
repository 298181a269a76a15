//! What this machine can do, measured the way it is used: every result of the
//! benchmark can be read as a fraction of one of these.

pub mod files;
pub mod foreign;
pub mod memory;
pub mod stream;

pub use stream::{ReceiverArgs, receive};

use super::case::{Case, Work};
use super::peer::{Cores, Way};
use super::report::Spread;
use crate::failure::{About, Failure};
use crate::output::Output;
use clap::Args;
use files::Write;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use stream::{Buffers, Socket};
use wire::Durability;

/// Bytes that a limit beside a repetition moves at most: it is to take less
/// time than the repetition.
const BESIDE_BYTES_MAX: u64 = 1 << 30;
/// Likewise for files.
const BESIDE_FILE_BYTES_MAX: u64 = 256 << 20;

/// Limits by name, bytes a second.
#[derive(Debug, Clone, Default)]
pub struct Limits(Vec<(&'static str, f64)>);

impl Limits {
    /// The names, in the order of measurement.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.0.iter().map(|(name, _)| *name)
    }

    /// A limit, if it was measured.
    pub fn get(&self, name: &str) -> Option<f64> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| *value)
    }

    fn set(&mut self, name: &'static str, bytes_per_s: f64) {
        self.0.push((name, bytes_per_s));
    }

    /// The limits of a case, measured now.
    pub fn of(case: &Case, way: Way, cores: &Cores, directory: &Path) -> Result<Self, Failure> {
        let mut limits = Self::default();
        let bytes = case.measured_bytes().min(BESIDE_BYTES_MAX);
        match way {
            Way::Inproc | Way::Shm => {
                limits.set("copy_and_crc_cold_bytes_per_s", memory::copy_and_crc_cold());
                if way == Way::Shm
                    && case.load.data_bytes > 0
                    && let Some(rate) = foreign::measure(cores)?
                {
                    limits.set("process_vm_readv_bytes_per_s", rate);
                }
            }
            Way::Tcp | Way::Unix => {
                let socket = match way {
                    Way::Unix => Socket::Unix,
                    _ => Socket::Tcp,
                };
                for (name, buffers) in [
                    ("stream_hot_bytes_per_s", Buffers::Hot),
                    ("stream_cold_bytes_per_s", Buffers::Cold),
                ] {
                    limits.set(name, stream::measure(socket, buffers, cores, bytes)?);
                }
            }
        }
        if let (Some(document), true) = (case.load.document, case.load.check) {
            let rate = document.checked_bytes_per_s(case.load.metadata_bytes)?;
            limits.set("validator_bytes_per_s", rate);
        }
        if case.work == Work::Produce && case.load.storage == "disk" {
            let bytes = bytes.min(BESIDE_FILE_BYTES_MAX);
            let (name, rate) = match case.load.durability {
                Some(Durability::Memory | Durability::Written) => (
                    "page_cache_fallocated_bytes_per_s",
                    files::measure(directory, Write::Fallocated, bytes),
                ),
                _ => (
                    "direct_sync_bytes_per_s",
                    files::measure_at_best_depth(directory, Write::DirectSync, bytes),
                ),
            };
            // Some file systems have no such thing.
            if let Some(rate) = rate.about("a file")? {
                limits.set(name, rate);
            }
        }
        Ok(limits)
    }
}

#[derive(Debug, Clone, Args)]
pub struct LimitsArgs {
    /// Counted repetitions
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    pub repetitions: usize,
    /// Bytes that each measurement of streams and files moves
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 30)]
    pub bytes: u64,
    /// Where files are written [default: a temporary directory]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// Let the kernel place the processes, instead of one core a side
    #[arg(long)]
    pub no_pin: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One round of everything.
fn all(args: &LimitsArgs, cores: &Cores, directory: &Path) -> Result<Limits, Failure> {
    let mut limits = Limits::default();
    limits.set("memcpy_hot_bytes_per_s", memory::copy_hot());
    limits.set("memcpy_cold_bytes_per_s", memory::copy_cold());
    limits.set("memcpy_fresh_pages_bytes_per_s", memory::copy_fresh());
    limits.set("crc_hot_bytes_per_s", memory::crc_hot());
    limits.set("crc_cold_bytes_per_s", memory::crc_cold());
    limits.set("copy_and_crc_cold_bytes_per_s", memory::copy_and_crc_cold());
    if let Some(rate) = foreign::measure(cores)? {
        limits.set("process_vm_readv_bytes_per_s", rate);
    }
    for (name, socket, buffers) in [
        ("tcp_hot_bytes_per_s", Socket::Tcp, Buffers::Hot),
        ("tcp_cold_bytes_per_s", Socket::Tcp, Buffers::Cold),
        ("unix_hot_bytes_per_s", Socket::Unix, Buffers::Hot),
        ("unix_cold_bytes_per_s", Socket::Unix, Buffers::Cold),
    ] {
        limits.set(name, stream::measure(socket, buffers, cores, args.bytes)?);
    }
    for (name, how) in [
        ("page_cache_fresh_bytes_per_s", Write::Fresh),
        ("page_cache_fallocated_bytes_per_s", Write::Fallocated),
        ("page_cache_overwrite_bytes_per_s", Write::Overwrite),
        ("page_cache_read_bytes_per_s", Write::Read),
        ("direct_bytes_per_s", Write::Direct),
        ("direct_sync_fallocated_bytes_per_s", Write::DirectSync),
        (
            "direct_sync_overwrite_bytes_per_s",
            Write::DirectSyncOverwrite,
        ),
    ] {
        if let Some(rate) = files::measure(directory, how, args.bytes).about("a file")? {
            limits.set(name, rate);
        }
    }
    let how = Write::DirectSync;
    let deep = files::measure_at_best_depth(directory, how, args.bytes).about("a file")?;
    if let Some(rate) = deep {
        limits.set("direct_sync_best_depth_bytes_per_s", rate);
    }
    Ok(limits)
}

/// `thalweg bench limits`.
pub fn run(args: &LimitsArgs) -> Result<(), Failure> {
    if args.repetitions == 0 || args.bytes == 0 {
        return Err(Failure::usage("bench", "counts and sizes begin at 1"));
    }
    let cores = Cores::choose(args.no_pin)?;
    let scratch = tempfile::tempdir().about("a temporary directory")?;
    let directory = args
        .directory
        .clone()
        .unwrap_or_else(|| scratch.path().to_owned());
    std::fs::create_dir_all(&directory).about("a directory")?;
    let rounds = (0..args.repetitions)
        .map(|_| all(args, &cores, &directory))
        .collect::<Result<Vec<_>, _>>()?;
    let spreads: Vec<(&str, Spread)> = rounds[0]
        .names()
        .map(|name| {
            let values = rounds.iter().filter_map(|round| round.get(name));
            (name, Spread::of(values))
        })
        .collect();
    let mut output = Output::new(args.json);
    let object: Map<String, Value> = spreads
        .iter()
        .map(|(name, spread)| ((*name).to_owned(), spread.json()))
        .collect();
    let line = json!({
        "work": "limits",
        "bytes": args.bytes,
        "repetitions": args.repetitions,
        "limits": object,
    });
    let mut text = vec![format!(
        "{}; median [min to max] of {} repetitions",
        cores.describe(),
        args.repetitions
    )];
    text.extend(spreads.iter().map(|(name, spread)| {
        let words = name.trim_end_matches("_bytes_per_s").replace('_', " ");
        format!("  {words:<28}{}", spread.text(1e-9, "GB/s"))
    }));
    output.either(&line, &text.join("\n"))?;
    output.flush()
}
