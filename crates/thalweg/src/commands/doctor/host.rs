//! What the host is, and what it lets processes do.

use super::Finding;
use crate::failure::{About, Code, Failure};
use rustix::process::{Resource, getrlimit};
use serde_json::Value;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::Command;

fn file(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

/// Bytes, as people say it.
fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{count} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

/// A limit of this process; none is unlimited.
fn limit(name: &'static str, resource: Resource, is_bytes: bool) -> Finding {
    match getrlimit(resource).current {
        None => Finding::new(name, Value::Null, "unlimited"),
        Some(limit) if is_bytes => Finding::new(name, limit, bytes(limit)),
        Some(limit) => Finding::new(name, limit, limit.to_string()),
    }
}

/// The machine and the limits of this process.
pub fn findings() -> Result<Vec<Finding>, Failure> {
    let system = rustix::system::uname();
    let release = system.release().to_string_lossy().into_owned();
    let cores = rustix::thread::sched_getaffinity(None)
        .map_err(std::io::Error::from)
        .about("cores")?
        .count();
    let mut findings = vec![
        Finding::new("kernel", release.clone(), release),
        Finding::new("cores", cores, format!("{cores} that this process may use")),
    ];
    if let Some(load) = file("/proc/loadavg") {
        let running = load.split(' ').nth(3).unwrap_or("").to_owned();
        let text = format!(
            "{load} (running/all: {running}); spinning pays where running is below the cores"
        );
        findings.push(Finding::new("load", load, text));
    }
    let information = rustix::system::sysinfo();
    let total = information.totalram as u64 * u64::from(information.mem_unit);
    findings.push(Finding::new("memory_bytes", total, bytes(total)));
    let huge = file("/sys/kernel/mm/transparent_hugepage/enabled");
    let huge = huge.unwrap_or_else(|| "not there".to_owned());
    findings.push(Finding::new("transparent_huge_pages", huge.clone(), huge));
    let pages = file("/proc/sys/vm/nr_hugepages").unwrap_or_else(|| "0".to_owned());
    findings.push(Finding::new("huge_pages_reserved", pages.clone(), pages));
    findings.push(limit("limit_locked_bytes", Resource::Memlock, true));
    findings.push(limit("limit_open_files", Resource::Nofile, false));
    findings.push(limit("limit_file_bytes", Resource::Fsize, true));
    Ok(findings)
}

/// Whether processes can share memory, and read each other's.
pub fn sharing() -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    match rustix::fs::statvfs("/dev/shm") {
        Ok(status) => {
            let (all, free) = (
                status.f_blocks * status.f_frsize,
                status.f_bavail * status.f_frsize,
            );
            let text = format!(
                "{}, {} of it free (memory files are not bound by it, but by memory itself)",
                bytes(all),
                bytes(free)
            );
            findings.push(Finding::new("dev_shm_bytes", all, text));
        }
        Err(error) => findings.push(Finding::new(
            "dev_shm_bytes",
            Value::Null,
            format!("cannot be looked at: {error}"),
        )),
    }
    let sealed = fabric::sealed_memory();
    findings.push(Finding::new(
        "sealed_memory",
        sealed.is_ok(),
        match sealed {
            Ok(()) => "works: made, sealed, mapped and read back".to_owned(),
            Err(error) => format!("does not work: {error}"),
        },
    ));
    let scope = file("/proc/sys/kernel/yama/ptrace_scope");
    let read = probe()?;
    let why = match (&read, scope.as_deref()) {
        (Ok(()), _) => "works: another process of this user has read ours".to_owned(),
        (Err(error), Some(scope)) => {
            format!("does not work: {error} (yama/ptrace_scope is {scope})")
        }
        (Err(error), None) => format!("does not work: {error}"),
    };
    findings.push(Finding::new("process_vm_readv", read.is_ok(), why));
    Ok(findings)
}

/// Lets another process read our memory, as a server does with a client's.
fn probe() -> Result<Result<(), String>, Failure> {
    // Not to be guessed: whoever says it has read it.
    let secret = RandomState::new().build_hasher().finish();
    let secret: Box<[u8; 8]> = Box::new(secret.to_le_bytes());
    let output = Command::new(std::env::current_exe().about("this program")?)
        .args(["doctor", "--read-memory"])
        .arg(std::process::id().to_string())
        .arg((secret.as_ptr().addr()).to_string())
        .output()
        .about("a process that reads our memory")?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Ok(Err(why.trim_start_matches("thalweg: ").to_owned()));
    }
    let expected: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(match said == expected {
        true => Ok(()),
        false => Err(format!("{said} was read where {expected} is")),
    })
}

/// The other process: prints what it reads.
pub fn answer_probe(pid: u64, address: u64) -> Result<(), Failure> {
    let subject = format!("memory of process {pid}");
    let pid =
        u32::try_from(pid).map_err(|error| Failure::new(Code::Usage, subject.clone(), error))?;
    let mut bytes = [0; 8];
    fabric::read_process(pid, address, &mut bytes).about(subject)?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{text}");
    Ok(())
}
