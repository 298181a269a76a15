//! `thalweg doctor`: what this host offers, measured, and how a client here
//! would reach a server.

mod host;
mod url;
mod way;

use crate::commands::bench::limits::files::{self, Write};
use crate::commands::bench::limits::memory;
use crate::commands::bench::limits::stream::{self, Buffers, Socket};
use crate::commands::bench::peer::{Cores, Way};
use crate::commands::bench::rpc;
use crate::failure::{About, Code, Failure};
use crate::output::Output;
use clap::Args;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Servers to reach, each a group file, an address or a file with a thalweg:// URL: what a client here would
    /// choose, and why [default: the URL of THALWEG_URL]
    #[arg(value_name = "ENDPOINT")]
    pub endpoints: Vec<String>,
    /// A directory for data, whose syncs are measured
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Measure nothing: only say what is there and what would be chosen
    #[arg(long)]
    pub no_measure: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Read 8 bytes of a process's memory: pid and address
    #[arg(long, hide = true, num_args = 2, value_names = ["PID", "ADDRESS"])]
    pub read_memory: Option<Vec<u64>>,
}

/// Bytes that streams and files are measured with: enough for a median's worth.
const STREAM_BYTES: u64 = 256 << 20;
const FILE_BYTES: u64 = 64 << 20;
/// Round trips of each kind.
const ROUND_TRIPS: u64 = 20_000;
/// How long is looked before sleeping where spinning is measured.
const SPIN_US: u64 = 50;

/// Something that was found: a name, a value, and what to say of it.
pub struct Finding {
    name: &'static str,
    value: Value,
    text: String,
}

impl Finding {
    fn new(name: &'static str, value: impl Into<Value>, text: impl Into<String>) -> Self {
        Self {
            name,
            value: value.into(),
            text: text.into(),
        }
    }

    fn rate(name: &'static str, bytes_per_s: f64) -> Self {
        Self::new(name, bytes_per_s, format!("{:.2} GB/s", bytes_per_s * 1e-9))
    }
}

/// A heading and what was found under it.
type Section = (&'static str, Vec<Finding>);

/// What was found of an endpoint.
enum Found {
    Way(way::Choice),
    Url(url::Checked),
}

impl Found {
    fn of(endpoint: &str) -> Self {
        match url::check(Some(endpoint)) {
            Some(checked) => Self::Url(checked),
            None => Self::Way(way::choose(endpoint)),
        }
    }

    /// Whether a client here would have a connection.
    fn is_usable(&self) -> bool {
        match self {
            Self::Way(way) => way.answers(),
            Self::Url(url) => url.is_good(),
        }
    }
}

/// `thalweg doctor`. The exit code says whether each of the servers that were asked for can be reached.
pub fn run(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    if let Some([pid, address]) = args.read_memory.as_deref() {
        host::answer_probe(*pid, *address)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut sections = vec![
        ("host", host::findings()?),
        ("shared memory", host::sharing()?),
    ];
    if let Some(directory) = &args.data_dir {
        sections.push((
            "data directory",
            data_directory(directory, args.no_measure)?,
        ));
    }
    if !args.no_measure {
        let cores = Cores::choose(false)?;
        sections.push(("memory", memory_rates()));
        sections.push(("streams", streams(&cores)?));
        sections.push(("round trips", round_trips(&cores)?));
    }
    let mut found: Vec<Found> = args.endpoints.iter().map(|one| Found::of(one)).collect();
    if found.is_empty() {
        found.extend(url::check(None).map(Found::Url));
    }
    print(args, &sections, &found)?;
    Ok(match found.iter().all(Found::is_usable) {
        true => ExitCode::SUCCESS,
        false => Code::Findings.into(),
    })
}

fn memory_rates() -> Vec<Finding> {
    vec![
        Finding::rate("memcpy_hot_bytes_per_s", memory::copy_hot()),
        Finding::rate("memcpy_cold_bytes_per_s", memory::copy_cold()),
        Finding::rate("memcpy_fresh_pages_bytes_per_s", memory::copy_fresh()),
        Finding::rate("crc_hot_bytes_per_s", memory::crc_hot()),
        Finding::rate("crc_cold_bytes_per_s", memory::crc_cold()),
        Finding::rate("copy_and_crc_cold_bytes_per_s", memory::copy_and_crc_cold()),
    ]
}

fn streams(cores: &Cores) -> Result<Vec<Finding>, Failure> {
    let measure = |name, socket| {
        let rate = stream::measure(socket, Buffers::Hot, cores, STREAM_BYTES)?;
        Ok(Finding::rate(name, rate))
    };
    Ok(vec![
        measure("tcp_hot_bytes_per_s", Socket::Tcp)?,
        measure("unix_hot_bytes_per_s", Socket::Unix)?,
    ])
}

/// One empty message there and back at a time, through the transports themselves.
fn round_trips(cores: &Cores) -> Result<Vec<Finding>, Failure> {
    let ways = [
        ("tcp_round_trip_ns", Way::Tcp, 0),
        ("unix_round_trip_ns", Way::Unix, 0),
        ("shm_round_trip_ns", Way::Shm, 0),
        ("shm_spinning_round_trip_ns", Way::Shm, SPIN_US),
    ];
    let measure = |(name, way, spin_us)| {
        let delays = rpc::round_trips(way, spin_us, ROUND_TRIPS, cores)?;
        let text = format!(
            "p50 {:.1} us, p99 {:.1} us{}",
            delays.p50 * 1e-3,
            delays.p99 * 1e-3,
            match spin_us {
                0 => String::new(),
                spin =>
                    format!(", looking for {spin} us before sleeping (spin_us, THALWEG_SPIN_US)"),
            }
        );
        let value = json!({ "p50": delays.p50, "p99": delays.p99 });
        Ok(Finding::new(name, value, text))
    };
    ways.into_iter().map(measure).collect()
}

fn data_directory(path: &Path, no_measure: bool) -> Result<Vec<Finding>, Failure> {
    let subject = path.display().to_string();
    let system = server::FileSystem::of(path).about(&subject)?;
    let caution = system.caution;
    let mut findings = vec![Finding::new("file_system", system.name, system.name)];
    if let Some(caution) = caution {
        findings.push(Finding::new("caution", caution, caution));
    }
    if no_measure {
        return Ok(findings);
    }
    let sync = server::measure_sync(path).about(&subject)?;
    findings.push(Finding::new(
        "fdatasync_4k_ns",
        sync.as_nanos() as u64,
        format!("{:.3} ms for an append of 4 KiB", sync.as_secs_f64() * 1e3),
    ));
    for (name, how) in [
        ("page_cache_fallocated_bytes_per_s", Write::Fallocated),
        ("direct_sync_fallocated_bytes_per_s", Write::DirectSync),
        (
            "direct_sync_overwrite_bytes_per_s",
            Write::DirectSyncOverwrite,
        ),
    ] {
        let rate = files::measure(path, how, FILE_BYTES).about(&subject)?;
        findings.push(match rate {
            Some(rate) => Finding::rate(name, rate),
            None => Finding::new(name, Value::Null, "this file system cannot do it"),
        });
    }
    Ok(findings)
}

fn print(args: &DoctorArgs, sections: &[Section], found: &[Found]) -> Result<(), Failure> {
    let mut output = Output::new(args.json);
    if output.is_json() {
        let mut all = Map::new();
        for (heading, findings) in sections {
            let fields = findings
                .iter()
                .map(|finding| (finding.name.to_owned(), finding.value.clone()));
            all.insert(heading.replace(' ', "_"), Value::Object(fields.collect()));
        }
        let (mut ways, mut urls) = (Vec::new(), Vec::new());
        for one in found {
            match one {
                Found::Way(way) => ways.push(way.json()),
                Found::Url(url) => urls.push(url.json()),
            }
        }
        all.insert("endpoints".to_owned(), Value::Array(ways));
        all.insert("urls".to_owned(), Value::Array(urls));
        output.json(&Value::Object(all))?;
        return output.flush();
    }
    for (heading, findings) in sections {
        output.line(&format!("{heading}:"))?;
        for finding in findings {
            let name = finding
                .name
                .trim_end_matches("_bytes_per_s")
                .trim_end_matches("_ns")
                .replace('_', " ");
            output.line(&format!("  {name:<28}{}", finding.text))?;
        }
    }
    for one in found {
        let text = match one {
            Found::Way(way) => way.text(),
            Found::Url(url) => url.text(),
        };
        output.line(&text)?;
    }
    output.flush()
}
