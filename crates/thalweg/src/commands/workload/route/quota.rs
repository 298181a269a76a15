//! A bound of the processor time of a proxy: a control group of its own.

use crate::failure::{Code, Failure};
use std::io;
use std::path::{Path, PathBuf};

/// Microseconds in which the time counts: what Linux and Kubernetes have.
const PERIOD_US: u64 = 100_000;
/// A quota that is shorter is none for the kernel.
const QUOTA_US_MIN: u64 = 1_000;
/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";
/// Where they are in the first version, with the processor's alone.
const OLD_ROOTS: [&str; 2] = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"];

/// A control group, which is removed when this is dropped. Its processes have ended by then.
pub struct Quota {
    path: PathBuf,
}

impl Quota {
    /// Makes one for a proxy.
    pub fn new(name: &str, cores_thousandths: u64) -> Result<Self, Failure> {
        let name = format!("thalweg-workload-{}-{name}", std::process::id());
        let quota_us = (PERIOD_US * cores_thousandths / 1000).max(QUOTA_US_MIN);
        let (mut tried, mut why) = (Vec::new(), Vec::new());
        for place in places() {
            match make(&place, &name, quota_us) {
                Ok(path) => return Ok(Self { path }),
                Err(error) => {
                    why.push(format!("{}: {error}", place.path.display()));
                    tried.push(place);
                }
            }
        }
        let why = match tried.is_empty() {
            true => "there is no control group here that bounds processor time".to_owned(),
            false => why.join("; "),
        };
        let what = format!(
            "a bound of processor time needs a control group with cpu.max (or, in the first version, \
             cpu.cfs_quota_us) that this user may make: {why}. Leave it out, or run this as root or in a delegated \
             group"
        );
        Err(Failure::new(Code::Failure, "cores_thousandths", what))
    }

    /// The file that takes processes.
    pub fn processes(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // What cannot be removed has a process, and there is nobody to tell.
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// A group below which another one can be made.
struct Place {
    path: PathBuf,
    is_old: bool,
}

/// The groups of this process and those above, the nearest first.
fn places() -> Vec<Place> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut places = Vec::new();
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let is_old = controllers.split(',').any(|one| one == "cpu");
        let roots: Vec<&str> = match (controllers, is_old) {
            ("", _) => vec![ROOT],
            (_, true) => OLD_ROOTS.to_vec(),
            _ => continue,
        };
        for root in roots.into_iter().map(Path::new) {
            let relative = path.trim_start_matches('/');
            let own = root.join(relative);
            let above = own.ancestors().take_while(|one| one.starts_with(root));
            places.extend(
                above
                    .filter(|one| bounds_below(one, is_old))
                    .map(|one| Place {
                        path: one.to_owned(),
                        is_old,
                    }),
            );
        }
    }
    places
}

/// Whether groups below this one have processor time.
fn bounds_below(group: &Path, is_old: bool) -> bool {
    match is_old {
        true => group.join("cgroup.procs").exists(),
        false => std::fs::read_to_string(group.join("cgroup.subtree_control"))
            .is_ok_and(|text| text.split_whitespace().any(|one| one == "cpu")),
    }
}

fn make(place: &Place, name: &str, quota_us: u64) -> io::Result<PathBuf> {
    let path = place.path.join(name);
    std::fs::create_dir(&path)?;
    let written = match place.is_old {
        true => std::fs::write(path.join("cpu.cfs_period_us"), PERIOD_US.to_string())
            .and_then(|()| std::fs::write(path.join("cpu.cfs_quota_us"), quota_us.to_string())),
        false => std::fs::write(path.join("cpu.max"), format!("{quota_us} {PERIOD_US}")),
    };
    written.inspect_err(|_| drop(std::fs::remove_dir(&path)))?;
    Ok(path)
}
